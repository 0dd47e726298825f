"""A window that has no room for another fresh answer: the last one counts on."""

import numpy as np
import pytest

from tests.support.site.source_device import ADJACENCY, SourceDevice, loads, table

HOUR = 3600.0
FIRST, LATER = ([1.0, 2.0, 3.0], [0.5, 0.0, 0.25]), ([9.0, 8.0, 7.0], [0.0, 0.0, 0.0])


@pytest.fixture
def device(tmp_path):
    budget = {"epsilon": 24.0, "window": "24h", "adjacency": ADJACENCY}
    made = SourceDevice(tmp_path, {"file": "loads.csv", "within": 0.5}, fresh=24, budget=budget, retention="2h")
    (tmp_path / "loads.csv").write_text(table(*FIRST))
    yield made.start()
    made.end()


def test_while_the_window_has_no_room_the_last_answer_counts_on_and_its_owner_hears_why(device):
    first = device.version
    (device.directory / "loads.csv").write_text(table(*LATER))
    device.clock.now += HOUR
    device.data_source(affordable=False)
    assert device.version == first
    assert np.array_equal(device.holds, loads(*FIRST))
    assert "no room for a fresh answer" in device.data_source.reason
    assert device.data_source.age == pytest.approx(HOUR, abs=1)
    assert device.run() == first + 1
    assert device.data_source.reason == ""
