"""A forecast by a rule, of readings that a process of its own reads."""

import numpy as np

from tests.support.site.readings_device import FIRST, ReadingsDevice, days_of, mean


def test_readings_are_read_in_a_process_of_their_own_within_the_time_of_the_source(tmp_path, monkeypatch):
    week = days_of(FIRST, 7)
    device = ReadingsDevice(tmp_path / "z1", monkeypatch, {"within": 1.0})
    device.write(week)
    device.today(FIRST + 7)
    device.start()
    assert np.abs(device.holds - mean(week)).max() < 1e-15
    device.end()
