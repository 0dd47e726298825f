"""Readings expire: entry by entry and row by row, however often a coordinator asks, files are kept,
or a device dies.
"""

import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.lab.audit.events import events
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.renewal import Renewal
from hushgrid.node.problems.feed import Readings
from tests.support import examples
from tests.support.devices.gated_device import spend
from tests.support.devices.lives import ZONES, Life, at_once
from tests.support.devices.lives import counts as rows_counted
from tests.support.site.source_device import ADJACENCY, BUSES, SourceDevice, document, loads, table

P, Q, MORE = [10.0, 20.0, 30.0], [1.0, 2.0, 3.0], [11.0, 22.0, 33.0]
TYPICAL = [1.0, 2.0, 3.0], [0.5, 0.5, 0.5]
L, WINDOW = 1000.0, 1500.0
BUDGET = {"epsilon": 1.0, "window": WINDOW, "adjacency": ADJACENCY}
ZONE = {"case": "case5", "zone": list(BUSES), "loads": "typical.csv"}


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    at_once(monkeypatch)


def zone(directory, source=None, kind=SourceDevice, *more, **sections):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "typical.csv").write_text(table(*TYPICAL))
    source = {"within": 5.0} | (source or {"file": "loads.csv"})
    return kind(directory, source, *more, **({"budget": BUDGET, "retention": L, "data": ZONE} | sections))


@pytest.fixture
def device(tmp_path):
    made = zone(tmp_path / "z1")
    (made.directory / "loads.csv").write_text(table(P, Q))
    yield made.start()
    made.end()


def counts(device):
    """The loads that an answer of now would be made of, p.u."""
    of = device.data_source.device
    return np.where(of.until >= device.ledger.spends.running, of.d, of.typical)


# --- the file of the device ---


def test_a_source_beside_a_window_needs_a_retention_that_is_less(tmp_path, hushgrid):
    for retention, why in (
        (None, "retention: missing, expected less than its window of 25min"),
        (WINDOW, "retention: found 1500.0, expected less than its window of 25min"),
    ):
        made = zone(tmp_path / str(retention), retention=retention)
        made.edit(retention=retention)
        with pytest.raises(InputError, match=why):
            made.start()
        for command in ("check", "node"):
            told = hushgrid(command, made.file)
            assert (told.code, told.err.count("\n")) == (2, 1)
            assert why in told.err


# --- entries ---


def test_a_load_that_is_not_read_anew_counts_for_its_retention_and_is_the_public_one_then(device):
    device.clock.now += L
    np.testing.assert_array_equal(counts(device), loads(P, Q))
    device.clock.now += 1.0
    np.testing.assert_array_equal(counts(device), loads(*TYPICAL))


@pytest.mark.parametrize("how", ["run", "restart", "touched back", "reload"])
def test_a_file_that_stands_still_grows_no_younger(device, how):
    file, looks = device.directory / "loads.csv", os.stat(device.directory / "loads.csv")
    version, until = device.version, device.data_source.device.until.copy()
    for _ in range(5):
        device.clock.now += 100.0
        if how == "touched back":  # as it was before
            os.utime(file, ns=(1, 1))
            os.utime(file, ns=(looks.st_atime_ns, looks.st_mtime_ns))
        device.restart() if how == "restart" else device.reload() if how == "reload" else None
        device.run()
    assert device.version == version
    assert (device.data_source.device.until <= until).all()


def test_a_bus_that_is_missing_or_no_number_keeps_its_own_last_good_value_and_expires_alone(device):
    device.clock.now += 600.0
    (device.directory / "loads.csv").write_text(
        json.dumps({"1": {"p_mw": 11.0, "q_mvar": 1.5}, "2": {"p_mw": "none", "q_mvar": 2.5}})
    )
    device.run()
    np.testing.assert_array_equal(device.holds, loads([11.0, 20.0, 30.0], [1.5, 2.5, 3.0]))
    assert "bus 2: found no number" in device.said[-1]
    device.clock.now += 500.0  # what was read at the start is 1100 s old
    np.testing.assert_array_equal(counts(device), loads([11.0, 2.0, 3.0], [1.5, 2.5, 0.5]))


def test_without_typical_loads_what_counts_no_more_is_zero(tmp_path):
    device = zone(tmp_path / "z1", data={"case": "case5", "zone": list(BUSES)})
    (device.directory / "loads.csv").write_text(document(P, Q))
    device.start()
    device.clock.now += L + 1
    np.testing.assert_array_equal(counts(device), np.zeros(6))
    device.end()


def test_after_a_crash_running_time_is_late_and_a_reading_is_never_of_the_future(device):
    device.clock.now += 400.0
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    device.run()
    read = device.data_source.readings.read.copy()
    device.ledger.spends._ran -= 300.0  # what a death leaves where nothing was spent since
    device.restart()
    now = device.ledger.spends.running
    assert (device.data_source.readings.read <= now).all()
    assert (device.data_source.readings.read < read).all()
    settled = device.data_source.readings.until.copy()
    device.clock.now += 100.0
    device.restart()
    np.testing.assert_array_equal(device.data_source.readings.until, settled)


@pytest.mark.parametrize("pause", [0.0, 100.0])
def test_after_a_crash_the_next_run_reads_its_source_though_running_time_is_late(tmp_path, pause):
    device = zone(tmp_path / "z1", **({"fresh": int(WINDOW / pause)} if pause else {}))
    (device.directory / "loads.csv").write_text(table(P, Q))
    device.start()
    device.clock.now += 400.0
    (device.directory / "loads.csv").write_text(table(P, P))
    device.run()
    device.ledger.spends._ran -= 300.0  # what a death leaves where nothing was spent since
    device.restart()
    device.clock.now += pause
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    device.run()
    np.testing.assert_array_equal(device.holds, loads(MORE, Q))
    device.end()


def test_a_device_that_has_lost_what_it_had_read_takes_no_file_for_new(tmp_path):
    life = zone(tmp_path / "z1", None, Life, ZONES)
    (life.directory / "loads.csv").write_text(table(P, Q))
    life.start()
    assert life.asked()
    life.end()
    (life.directory / "state" / "z1.intake").unlink()
    life.start()
    life.clock.now += 1.0
    np.testing.assert_array_equal(counts(life), loads(*TYPICAL))
    (life.directory / "loads.csv").write_text(table(MORE, Q))
    life.run()
    np.testing.assert_array_equal(counts(life), loads(MORE, Q))
    life.end()


def test_a_shorter_retention_holds_from_the_next_run_on_and_a_longer_one_makes_nothing_younger(device):
    until = device.data_source.device.until.copy()
    device.edit(retention=1400.0)
    device.reload()
    np.testing.assert_array_equal(device.data_source.device.until, until)
    device.edit(retention=200.0)
    device.reload()
    np.testing.assert_array_equal(device.data_source.device.until, until - 800.0)


def test_data_of_a_file_without_a_source_are_not_young_when_a_source_takes_its_place(tmp_path):
    device = zone(tmp_path / "z1")
    (device.directory / "loads.csv").write_text(table(MORE, Q))
    device.edit(source=None, retention=None, data=ZONE | {"loads": "private.csv"})
    (device.directory / "private.csv").write_text(table(P, Q))
    device.start()
    device.edit(source={"file": "loads.csv", "within": 5.0}, retention=L, data=ZONE)
    device.reload()
    np.testing.assert_array_equal(counts(device), loads(*TYPICAL))
    device.run()
    np.testing.assert_array_equal(counts(device), loads(MORE, Q))
    device.end()


# --- rows ---

M = 6


@pytest.fixture
def rows(tmp_path):
    np.savez(tmp_path / "first.npz", A=np.full((M, 2), -1.0), b=np.ones(M))
    made = SourceDevice(
        tmp_path / "n0",
        {"folder": "rows", "within": 5.0},
        node="n0",
        data=str(tmp_path / "first.npz"),
        labels={"classes": 2},
        budget={"epsilon": 1.0, "window": WINDOW, "adjacency": {"replace-one-record": {"clip": 1.0}}},
        retention=L,
    )
    (made.directory / "rows").mkdir()
    yield made.start()
    made.end()


def append(device, name, values, number=None):
    file = device.directory / "rows" / name
    with file.open("a") as lines:
        lines.write("".join(f"{json.dumps([k, 0, 1])}\n" for k in values))
    if number is not None:
        os.utime(file, ns=(number * 10**9, number * 10**9))
    return file


def held(device):
    """First feature of each row, and whether it counts now."""
    of = device.data_source.device
    return of.shard.A[:, 0].tolist(), (of.until >= device.ledger.spends.running).tolist()


KEEPING = {
    "kept": lambda file: None,
    "touched": lambda file: os.utime(file, ns=(10**18, 10**18)),
    "renamed": lambda file: file.rename(file.with_name("other.jsonl")),
    "renamed and touched": lambda file: os.utime(file.rename(file.with_name("x.jsonl")), ns=(10**18, 10**18)),
    "written over in place": lambda file: file.write_text("".join(f"[{k}, 0, 1]\n" for k in (7, 8, 9))),
    "made unreadable and readable": lambda file: (file.chmod(0), file.chmod(0o644)),
    "moved away and back": lambda file: (shutil.move(file, "/dev/shm/away"), shutil.move("/dev/shm/away", file)),
}


@pytest.mark.parametrize("how", KEEPING)
def test_no_row_is_read_twice_however_its_file_is_kept(rows, how, monkeypatch):
    monkeypatch.chdir(rows.directory)
    file = append(rows, "a.jsonl", [1, 2, 3])
    rows.run()
    assert held(rows) == ([-1, -1, -1, 1, 2, 3], [True] * M)
    rows.clock.now += 600.0
    KEEPING[how](file)
    rows.run()
    rows.clock.now += 401.0
    rows.restart()
    rows.run()
    assert held(rows) == ([-1, -1, -1, 1, 2, 3], [False] * M)


def test_rows_that_are_appended_are_new_and_those_before_them_are_not(rows):
    append(rows, "a.jsonl", [1, 2, 3])
    rows.run()
    rows.clock.now += 600.0
    append(rows, "a.jsonl", [4])
    rows.run()
    rows.clock.now += 401.0
    assert held(rows) == ([-1, -1, 1, 2, 3, 4], [False] * 5 + [True])


def test_a_new_file_in_a_folder_that_rotates_is_new_though_it_gets_the_number_of_one_that_has_gone(rows):
    for k in range(5):
        for old in (rows.directory / "rows").iterdir():
            old.unlink()
        append(rows, f"{k}.jsonl", [k], k + 1)
        rows.run()
        rows.clock.now += 900.0
    assert held(rows)[0] == [-1, 0, 1, 2, 3, 4]
    assert held(rows)[1] == [False] * 5 + [True]


def test_a_file_that_has_gone_gives_its_rows_no_second_time_once_the_newest_are_deleted(rows):
    for k in range(M + 2):
        append(rows, f"{k}.jsonl", [k], k + 1)
        rows.run()
    for k in range(3, M + 2):
        (rows.directory / "rows" / f"{k}.jsonl").unlink()
    rows.clock.now += L + 1
    rows.run()
    assert held(rows) == ([2, 3, 4, 5, 6, 7], [False] * M)


# --- the budget ---


def test_of_readings_that_expire_the_window_counts_alone_and_of_data_that_stand_still_the_version_too(device):
    budget, run = device.config.budget, b"run"
    device.ledger.join(run, b"plan")
    device.ledger.commit(run, spends=[spend(epsilon=0.75)])
    still, expiring = (Renewal(device.ledger, budget, str(budget.adjacency), 0.0, expiring=e) for e in (False, True))
    assert (still.spent, expiring.spent) == (0.75, 0.75)
    device.clock.now += WINDOW + 1
    assert (still.spent, expiring.spent) == (0.75, 0.0)


def test_five_plans_that_are_refused_leave_the_data_version_as_it_was(tmp_path):
    """On the release before they raised it from 2 to 7."""
    life = zone(tmp_path / "z1", {"folder": "loads"}, Life, ZONES)
    (life.directory / "loads").mkdir()
    (life.directory / "loads" / "1.csv").write_text(table(P, Q))
    life.start()
    assert life.asked()
    version = life.version
    assert not any(life.announce(900.0) for _ in range(5))  # the window has no room
    life.plan = life.plan.replace(b'"ladmm"', b'"consensus-admm"').replace(b'"shedding"', b'"cost"')
    assert not life.announce(900.0)
    assert life.version == version
    life.end()


def test_an_answer_is_made_of_what_counts_when_it_is_authorised_though_its_run_began_long_before(tmp_path, monkeypatch):
    """A coordinator may keep a run open for as long as it likes."""
    monkeypatch.setattr(Lattice, "release", lambda lattice, v, n: v)
    plan = ZONES | {"algorithm": {"name": "ladmm", "rounds": 3}, "privacy": ZONES["privacy"] | {"epsilon": 0.3}}
    life = zone(tmp_path / "z1", None, Life, plan)
    (life.directory / "loads.csv").write_text(table(P, Q))
    life.start()
    assert life.announce(900.0)
    made = []
    for seq in (1, 2, 3):
        before = life.member.driver.gate.state.total.copy()
        life.ask(seq)
        made.append(life.member.driver.gate.state.total - (before if before.size else 0.0))
        life.clock.now += 600.0
    np.testing.assert_allclose(made, [loads(P, Q), loads(P, Q), loads(*TYPICAL)])
    assert [spend.version for spend in life.ledger.spends.rows()] == [life.version] * 3
    life.end()


@pytest.mark.runs
def test_forty_windows_about_one_file_tell_of_it_what_one_window_may(tmp_path, hushgrid):
    """40 windows of budget 1 about a file that nobody touches: epsilon 40 on the release before, 1 now."""
    life = zone(tmp_path / "z1", None, Life, ZONES)
    (life.directory / "loads.csv").write_text(table(P, Q))
    life.start()
    joined = 0
    for _ in range(40):
        joined += life.asked(900.0)
        life.clock.now += WINDOW + 1
    life.end()
    assert joined == 40
    (found,) = events(life.directory / "state", life.transcript)
    assert (found.claim.epsilon, found.readings, found.answers, found.missing) == (1.0, 6, 40, 0)
    assert 0.99 < found.epsilon <= 1.0
    told = hushgrid("audit", "--events", life.directory / "state", life.transcript, "--json")
    assert told.code == 0
    said = json.loads(told.out)
    assert said == {"claimed": 1.0, "largest": {"reading": found.reading, "epsilon": found.epsilon}, "readings": 6}


@pytest.mark.runs
def test_with_retention_switched_off_the_recount_says_what_a_window_alone_would_have_told(
    tmp_path, monkeypatch, hushgrid
):
    """The same life without expiry, as it was: epsilon 40 about each load, and the audit ends with 1."""
    monkeypatch.setattr(Readings, "within", lambda self, now, retention: self)
    life = zone(tmp_path / "z1", None, Life, ZONES)
    (life.directory / "loads.csv").write_text(table(P, Q))
    life.start()
    for _ in range(40):
        assert life.asked(900.0)
        life.clock.now += WINDOW + 1
    life.end()
    told = hushgrid("audit", "--events", life.directory / "state", life.transcript, "--json")
    assert told.code == 1
    assert json.loads(told.out)["largest"]["epsilon"] == pytest.approx(40.0, rel=1e-3)


class Died(BaseException):
    pass


@pytest.mark.parametrize("expired", [False, True])
def test_noise_that_was_drawn_is_used_again_on_the_same_readings_alone(tmp_path, monkeypatch, expired):
    """The same noise on other data would tell the difference: what a device that died had drawn is paid,
    and drawn anew.
    """
    made, commit = [], Ledger.commit
    monkeypatch.setattr(Lattice, "release", lambda lattice, v, n: made.append((v.tolist(), n.tolist())) or v)
    plan = ZONES | {"algorithm": {"name": "ladmm", "rounds": 2}, "privacy": ZONES["privacy"] | {"epsilon": 0.5}}
    life = zone(tmp_path / "z1", None, Life, plan)
    (life.directory / "loads.csv").write_text(table(P, Q))
    life.start()
    assert life.announce()

    def dead(*_, **__):
        raise Died

    monkeypatch.setattr(Ledger, "commit", dead)
    with pytest.raises(Died):
        life.ask(1)
    monkeypatch.setattr(Ledger, "commit", commit)
    life.crashes()
    life.clock.now += L + 1 if expired else 1.0
    life.ask(1)
    (first, noise), (again, more) = made
    assert (first == again, noise == more) == (not expired, not expired)
    assert len(life.ledger.spends.rows()) == (2 if expired else 1)
    life.end()


HAPPENS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "new", "touch", "rename", "delete", "overwrite", "nothing"]),
        st.sampled_from(["run", "run", "restart", "crash", "reload", "nothing"]),
        st.sampled_from([0.0, 1.0, 300.0, 999.0, 1500.0]),
    ),
    min_size=2,
    max_size=12,
)


@pytest.mark.runs
@examples.of(30)
@given(HAPPENS)
def test_no_row_ever_counts_longer_than_it_may_whatever_befalls_folder_and_device(tmp_path_factory, events):
    """Each value is written once: where it counts, in all its life, lies within one retention by the ledger's own
    time.
    """
    with pytest.MonkeyPatch.context() as patch:
        at_once(patch)
        life = row_life(tmp_path_factory.mktemp("rows"))
        life.start()
        life.ledger.join(b"run", b"plan")
        seen = {}
        for number, (what, then, later) in enumerate(events):
            befalls(life, what, number)
            if then == "run":
                life.run()
                life.ledger.commit(b"run", spends=[spend()])  # an answer, which is stored with its time
                now, of = life.ledger.spends.running, life.data_source.device
                for value, until in zip(of.shard.A[:, 0].tolist(), of.until.tolist(), strict=True):
                    if until >= now and value >= 0:
                        first, last = seen.get(value, (now, now))
                        seen[value] = (min(first, now), max(last, now))
            elif then != "nothing":
                {"restart": life.restart, "crash": life.crashes, "reload": life.reload}[then]()
            life.clock.now += later
        life.end()
    assert all(last - first <= L for first, last in seen.values())


def row_life(directory):
    np.savez(directory / "first.npz", A=np.full((M, 2), -1.0), b=np.ones(M))
    (directory / "n0").mkdir()
    (directory / "n0" / "rows").mkdir()
    adjacency = {"replace-one-record": {"clip": 1.0}}
    return Life(
        directory / "n0",
        {"folder": "rows", "within": 5.0},
        rows_counted(2, M, [0.0, 10.0, 100.0]),
        node="n0",
        data=str(directory / "first.npz"),
        labels={"classes": 2},
        budget={"epsilon": 1.0, "window": WINDOW, "adjacency": adjacency},
        retention=L,
    )


def befalls(life, what, number):
    """Something happens in the folder; each row that is written has a value of its own, the event's number."""
    files = sorted((life.directory / "rows").iterdir())
    line = f"[{number}, 0, 1]\n"
    if what == "new" or (what == "append" and not files):
        (life.directory / "rows" / f"{number}.jsonl").write_text(line)
    elif files and what == "append":
        with files[-1].open("a") as file:
            file.write(line)
    elif files and what == "touch":
        os.utime(files[0])
    elif files and what == "rename":
        files[0].rename(files[0].with_name(f"r{number}.jsonl"))
    elif files and what == "delete":
        files[-1].unlink()
    elif files and what == "overwrite":
        files[0].write_text(line)


def test_values_of_another_zone_are_none(tmp_path):
    device = zone(tmp_path / "z1")
    (device.directory / "loads.csv").write_text(table(P, Q))
    device.start()
    device.end()
    device.edit(data=ZONE | {"zone": [1, 2], "loads": None})
    device.start()
    np.testing.assert_array_equal(device.holds, loads(P[:2], Q[:2]))
    device.end()
