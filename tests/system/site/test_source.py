"""A device takes its data from a source: what is no value changes neither the schedule of versions nor the time it
takes.
"""

import json
import os
import stat
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.durable import stamp
from hushgrid.node.site import data_source
from tests.support.site.source_device import BUSES, SourceDevice, document, loads, table

P, Q = [10.0, 20.0, 30.0], [1.0, 2.0, 3.0]
MORE = [11.0, 22.0, 33.0]
QUICK = 0.4  #: s that reading takes in these tests


@pytest.fixture
def device(tmp_path):
    made = SourceDevice(tmp_path / "z1", {"file": "loads.csv", "within": QUICK})
    (made.directory / "loads.csv").write_text(table(P, Q))
    yield made
    made.end()


#: Contents that are no values, each by what a writer may leave behind.
WRONG = {
    "half": table(P, Q)[:-12],
    "a last number cut short": table(P, Q)[:-2],
    "empty": "",
    "another header": "bus,p\n1,2\n",
    "a bus less": table(P[:2], Q[:2], BUSES[:2]),
    "a word": table(P, Q).replace("20.0", "twenty"),
    "nan": table(P, Q).replace("20.0", "nan"),
    "a bus twice": table(P, Q) + "1,5.0,5.0\n",
    "half a document": document(P, Q)[:-5],
    "a list": "[1, 2, 3]",
    "deep": "{" + '"a":{' * 5000 + "}" * 5001,
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_no_value_keeps_the_last_good_one_and_a_file_that_was_replaced_is_a_version_all_the_same(
    device, content
):
    device.start()
    before = device.version
    (device.directory / "loads.csv").write_text(content)
    assert device.run() == before + 1
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    assert device.data_source.data_state == "last-good"
    assert "last good one counts" in device.said[-1]
    assert "twenty" not in device.said[-1]
    assert "20.0" not in device.said[-1]
    assert device.run() == before + 1  # it stands still
    assert len(device.said) == 1  # a reason is said once
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    assert device.run() == before + 2
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    assert device.said[-1] == "the source gives values again"
    assert device.data_source.data_state == "current"


@pytest.mark.parametrize("how", ["gone", "a folder", "a pipe", "unreadable"])
def test_a_file_that_cannot_be_read_keeps_the_last_good_value(device, how):
    device.start()
    file = device.directory / "loads.csv"
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how == "a pipe":
        os.mkfifo(file)
    elif how == "unreadable":
        file.symlink_to(file)
    version = device.version
    assert device.run() == version  # nothing was put in its place
    np.testing.assert_array_equal(device.holds, loads(P, Q))


def test_a_document_of_buses_counts_like_a_table_and_other_buses_in_it_count_nothing(device):
    (device.directory / "loads.csv").write_text(document([*MORE, 5.0], [*Q, 6.0], [*BUSES, 77]))
    device.start()
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))


def test_a_value_outside_its_bounds_is_moved_to_the_nearer_end_and_never_refused(tmp_path):
    bounds = {"p_mw": [0.0, 25.0], "q_mvar": [-2.0, 2.0]}
    device = SourceDevice(tmp_path / "z1", {"file": "loads.json", "within": QUICK, "bounds": bounds})
    (device.directory / "loads.json").write_text(document([-5.0, 20.0, 1e300], [1e308, -3.0, 0.5]))
    device.start()
    np.testing.assert_array_equal(device.holds, loads([0.0, 20.0, 25.0], [2.0, -2.0, 0.5]))
    device.end()


def test_a_load_beyond_all_bounds_is_moved_to_the_largest_load_there_is(device):
    (device.directory / "loads.csv").write_text(table([1e12, float("inf"), -1e300], Q))
    device.start()
    np.testing.assert_array_equal(device.holds, loads([1e6, 1e6, -1e6], Q))


def test_without_any_good_value_the_device_waits_for_one_with_code_4(device):
    (device.directory / "loads.csv").write_text("bus,")
    with pytest.raises(Stopped, match="no value yet") as error:
        device.start()
    assert error.value.exit_code == 4
    assert device.ledger.data_version == 1
    device.end()
    (device.directory / "loads.csv").write_text(table(P, Q))
    device.start()
    np.testing.assert_array_equal(device.holds, loads(P, Q))


def test_loads_that_the_file_of_the_device_names_count_until_the_first_good_value(tmp_path):
    device = SourceDevice(
        tmp_path / "z1",
        {"file": "meter.csv", "within": QUICK},
        data={"case": "case5", "zone": list(BUSES), "loads": "typical.csv"},
    )
    (device.directory / "typical.csv").write_text(table(P, Q))
    device.start()
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    (device.directory / "meter.csv").write_text(table(MORE, Q))
    device.run()
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    device.end()


# --- time ---


COMMANDS = {
    "at once": ["cat", "loads.csv"],
    "nothing": ["true"],
    "an error": ["false"],
    "for ever": ["sleep", "60"],
    "children": ["sh", "-c", "sleep 60 & cat loads.csv"],
    "a flood": ["cat", "/dev/zero"],
    "absent": ["/no/such/program"],
}


def test_reading_takes_the_same_time_whatever_there_is_to_read(tmp_path):
    took = {}
    for name, command in COMMANDS.items():
        device = SourceDevice(tmp_path / name.replace(" ", "-"), {"command": command, "within": 1.0})
        (device.directory / "loads.csv").write_text(table(P, Q))
        device.config = None
        (device.directory / "first.csv").write_text(table(MORE, Q))
        text = json.loads(device.file.read_text())
        text["node"]["data"]["loads"] = "first.csv"
        device.file.write_text(json.dumps(text))
        device.start()
        version = device.version
        began = time.monotonic()
        assert device.run() == version + 1
        took[name] = time.monotonic() - began
        good = name in ("at once",)
        np.testing.assert_array_equal(device.holds, loads(P if good else MORE, Q))
        device.end()
    assert min(took.values()) >= 1.0
    assert max(took.values()) < 1.4, took


def test_a_command_is_a_group_of_its_own_and_nothing_of_it_is_left(tmp_path):
    device = SourceDevice(
        tmp_path / "z1", {"command": ["sh", "-c", "sleep 61.25 >/dev/null & cat loads.csv"], "within": QUICK}
    )
    (device.directory / "loads.csv").write_text(table(P, Q))
    device.start()
    device.end()
    left = [
        pid
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if b"61.25" in _read(f"/proc/{pid}/cmdline") and b"sleep\0" in _read(f"/proc/{pid}/cmdline")
    ]
    assert left == []


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_command_gets_no_secret_no_socket_of_systemd_and_no_file_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("HUSHGRID_MQTT_PASSWORD", "secret")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    script = f'env > env.txt; ls -l /proc/$$/fd > fds.txt; printf "{table(P, Q)}"'.replace("\n", "\\n")
    device = SourceDevice(tmp_path / "z1", {"command": ["sh", "-c", script], "within": 1.0})
    device.start()
    names = {line.partition("=")[0] for line in (device.directory / "env.txt").read_text().splitlines()}
    assert names <= {"HOME", "LANG", "LC_ALL", "PATH", "TZ", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"}
    assert ".ledger" not in (device.directory / "fds.txt").read_text()
    device.end()


# --- folders ---


def test_of_a_zones_folder_the_newest_whole_file_counts(tmp_path):
    device = SourceDevice(tmp_path / "z1", {"folder": "meters", "within": QUICK})
    folder = device.directory / "meters"
    folder.mkdir()
    for k, (name, text) in enumerate(
        [("a.csv", table(P, Q)), ("b.csv", table(MORE, Q)), (".c.csv", "x"), ("d.csv.tmp", "x")]
    ):
        (folder / name).write_text(text)
        os.utime(folder / name, ns=(k * 10**9, k * 10**9))
    device.start()
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    (folder / "e.csv").write_text(table(P, Q)[:-9])
    version = device.version
    assert device.run() == version + 1
    np.testing.assert_array_equal(device.holds, loads([*P[:2], MORE[2]], Q))  # the last line is still being written
    assert device.run() == version + 2
    device.end()


# --- the file that a version's values are kept in ---


def test_the_kept_values_are_the_owners_alone(device):
    device.start()
    kept = device.directory / "state" / "z1.intake"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_device_that_is_started_again_holds_the_values_of_its_version_whatever_the_source_says_now(device):
    device.start()
    device.run()
    version = device.version
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    device.restart()
    assert device.version == version
    np.testing.assert_array_equal(device.holds, loads(P, Q))


@pytest.mark.parametrize("lost", ["gone", "cut short", "of another ledger"])
def test_values_that_are_lost_are_never_replaced_within_their_version(device, lost):
    device.start()
    kept, version = device.directory / "state" / "z1.intake", device.version
    device.end()
    if lost == "gone":
        kept.unlink()
    elif lost == "cut short":
        kept.write_bytes(kept.read_bytes()[:-3])
    else:
        (device.directory / "state" / "z1.ledger").unlink()
        for more in ("-wal", "-shm"):
            (device.directory / "state" / f"z1.ledger{more}").unlink(missing_ok=True)
        version = 1
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    device.start()
    assert device.version == version + 1
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))


class Died(Exception):
    pass


#: What happens to a device, each with whether it dies: before the values are stored, between that and the rise, after
#: it.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["new", "same", "wrong", "gone"]),
        st.sampled_from([None, "store", "rise", "after"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS)
def test_a_version_has_one_set_of_values_however_the_device_dies_and_versions_follow_what_files_look_like_alone(
    tmp_path_factory, monkeypatch, events
):
    """The adversary chooses when runs begin and when the device dies, and may have written the source."""
    directory = tmp_path_factory.mktemp("adversary")
    monkeypatch.setattr(data_source, "hold", lambda until: None)  # time is not what is tried here
    device = SourceDevice(directory / "z1", {"file": "loads.csv", "within": 5.0})
    file = device.directory / "loads.csv"
    file.write_text(table(P, Q))
    device.start()
    held = {device.version: device.holds.tobytes()}
    for number, (what, death, run) in enumerate(events):
        if what == "new":
            file.write_text(table([float(number)] * 3, Q))
        elif what == "wrong":
            file.write_text("bus,")
        elif what == "gone":
            file.unlink(missing_ok=True)
        version = device.version
        if run or death:
            rises = dying_run(device, death)
            assert device.version - version == rises
        assert held.setdefault(device.version, device.holds.tobytes()) == device.holds.tobytes()
    device.end()


def dying_run(device, death):
    """A run begins; the device dies at some point of that and is started again. How many versions it may have cost."""
    kept, ledger, file = device.data_source.store, device.ledger, device.directory / "loads.csv"
    replaced = file.exists() and stamp(file) != kept.now.stamp
    rise, new_data = kept.rise, ledger.new_data

    def dead(*_):
        raise Died

    if death == "store":
        kept.rise = dead
    elif death == "rise":
        ledger.new_data = dead
    with suppress(Died):
        device.run()
    kept.rise, ledger.new_data = rise, new_data
    if death:
        device.restart()
    return 0 if death == "store" else int(replaced)


# --- when data are new ---


def test_a_file_that_is_another_one_is_new_data_and_the_same_file_is_not_whatever_a_coordinator_says(device):
    device.start()
    version = device.version
    assert device.run() == version
    (device.directory / "loads.csv").write_text(table(P, Q))
    assert device.run() == version + 1
    (device.directory / "loads.csv").write_text("bus,")
    assert device.run() == version + 2  # what it holds does not show
    (device.directory / "loads.csv").unlink()
    assert device.run() == version + 2


def test_a_hang_up_takes_no_value(device):
    device.start()
    version = device.version
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    device.data_source.look()
    assert device.version == version
    np.testing.assert_array_equal(device.holds, loads(P, Q))


def test_an_old_value_counts_and_is_told_to_the_owner(tmp_path):
    device = SourceDevice(tmp_path / "z1", {"file": "loads.csv", "within": QUICK, "max_age": "30min"})
    file = device.directory / "loads.csv"
    file.write_text(table(P, Q))
    device.start()
    then = time.time() - 3600
    os.utime(file, (then, then))
    version = device.version
    assert device.run() == version + 1
    assert "older than 30min" in device.said[-1]
    assert device.data_source.age == pytest.approx(3600, abs=5)
    assert device.data_source.data_state == "expired"
    device.end()


# --- the section ---

WRONG_SECTIONS = [
    ({}, "source: found none, expected one of file, folder, command, mqtt"),
    ({"file": "a", "folder": "b"}, "source: found file and folder"),
    ({"file": "a", "bounds": {"features": [0, 1]}}, "source.bounds.features: found bounds"),
    ({"file": "a", "bounds": {"p_mw": [1, 0]}}, "source.bounds.p_mw: found [1.0, 0.0]"),
    ({"mqtt": {"broker": "http://x", "topic": "a"}}, "source.mqtt.broker: found 'http://x'"),
    ({"mqtt": {"broker": "mqtt://localhost:1884", "topic": "a/+"}}, "source.mqtt.topic: found 'a/+'"),
    ({"mqtt": {"broker": "mqtt://localhost:1884", "topic": "a/{quantity}"}}, "source.mqtt.topic: found 'a/{quantity}'"),
    ({"mqtt": {"broker": "mqtt://localhost:1884", "topic": "a/{zone}"}}, "expected no braces but {bus} and {quantity}"),
    (
        {"mqtt": {"broker": "mqtt://localhost:1884", "topic": "a", "path": {"p_mw": "p", "q_mvar": "q"}}},
        "expected one path",
    ),
    ({"file": "a", "max_age": 15}, "source.max_age"),
]


@pytest.mark.parametrize(("section", "said"), WRONG_SECTIONS)
def test_a_section_that_contradicts_itself_is_one_line(tmp_path, section, said):
    device = SourceDevice(tmp_path / "z1", section)
    with pytest.raises(InputError) as error:
        device.start()
    assert said in str(error.value)
    assert "\n" not in str(error.value)
