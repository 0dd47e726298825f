"""Answers a window: the version rises K times a window of running time at most, and in between nothing is read."""

import time

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from tests.support.site.source_device import ADJACENCY, SourceDevice, loads, table

P, Q = [10.0, 20.0, 30.0], [1.0, 2.0, 3.0]


def test_with_fresh_the_version_rises_only_when_the_running_time_between_two_answers_has_passed(tmp_path):
    device = SourceDevice(
        tmp_path / "z1", {"file": "loads.csv", "within": 0.5}, budget={"window": "24h"}, fresh=24, retention="2h"
    )
    file = device.directory / "loads.csv"
    file.write_text(table(P, Q))
    device.start()
    first, rises, last = device.version, 0, device.clock.now
    for number in range(1, 40):
        device.clock.now += 600.0
        file.write_text(table([float(number)] * 3, Q))
        if number % 7 == 0:
            device.restart()
        before = device.version
        held = device.holds.tobytes()
        if device.run() != before:
            assert device.clock.now - last >= 3600.0
            rises, last = rises + 1, device.clock.now
            np.testing.assert_array_equal(device.holds, loads([float(number)] * 3, Q))
        else:
            assert device.holds.tobytes() == held
    assert device.version == first + rises
    assert rises in (5, 6)  # 39 x 10 min = 6.5 h; the time between a death and the last spend does not count
    assert device.data_source.age < 3600.0
    device.end()


def test_a_repeated_run_with_fresh_reads_nothing_and_takes_no_time(tmp_path):
    device = SourceDevice(
        tmp_path / "z1", {"file": "loads.csv", "within": 2.0}, budget={"window": "24h"}, fresh=24, retention="2h"
    )
    (device.directory / "loads.csv").write_text(table(P, Q))
    device.start()
    began = time.monotonic()
    device.run()
    assert time.monotonic() - began < 1.0
    device.end()


def test_fresh_is_refused_for_rows_in_a_line(tmp_path):
    np.savez(tmp_path / "rows.npz", A=np.eye(3), b=np.ones(3))
    device = SourceDevice(
        tmp_path / "n0",
        {"file": "rows.csv"},
        node="n0",
        data=str(tmp_path / "rows.npz"),
        labels={"classes": 2},
        budget={"window": "24h", "adjacency": {"replace-one-record": {"clip": 1.0}}},
        fresh=4,
    )
    with pytest.raises(InputError, match=r"fresh: found 4, expected none \(a device with rows\)"):
        device.start()


def test_fresh_needs_a_window(tmp_path):
    device = SourceDevice(tmp_path / "z1", {"file": "loads.csv"}, fresh=24)
    with pytest.raises(InputError, match=r"fresh: found 24, expected one beside budget\.window"):
        device.start()


# --- A window that has no room for another fresh answer: the last one counts on ---

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
