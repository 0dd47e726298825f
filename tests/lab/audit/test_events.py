"""What was told of each reading over a life, recounted: never more than a window's budget,
whoever the coordinator is.
"""

import json
import os

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.lab.audit.events import events
from hushgrid.node.problems.feed import Readings
from hushgrid.node.site.subscriber import Subscriber
from tests.support.devices.lives import ZONES, Life, at_once, counts
from tests.support.site.source_device import ADJACENCY, BUSES, table

HOUR, DAY = 3600.0, 86400.0
M = 240  #: rows of the device that has rows, ten days of one an hour
LIARS = [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    at_once(monkeypatch)
    monkeypatch.setattr(Subscriber, "wait", lambda self: None)


def meters(directory, dice, **privacy):
    """A zone whose loads come by topics, some of which are silent for days."""
    directory.mkdir(parents=True)
    (directory / "typical.csv").write_text(table([1.0] * 3, [0.5] * 3))
    plan = ZONES | {"algorithm": {"name": "ladmm", "rounds": 4}, "privacy": ZONES["privacy"] | privacy}
    life = Life(
        directory,
        {"mqtt": {"broker": "mqtt://127.0.0.1:1", "topic": "meters/{bus}/{quantity}"}},
        plan,
        data={"case": "case5", "zone": list(BUSES), "loads": "typical.csv"},
        budget={"epsilon": 2.0, "delta": 1e-5, "window": 24 * HOUR, "adjacency": ADJACENCY},
        retention="20h",
        keep=10_000,
    )
    silent = dict.fromkeys(("meters/2/p_mw", "meters/3/q_mvar"), (2 * DAY, 9 * DAY))

    def happens(now):
        for topic in life.data_source.subscriber.slots:
            first, last = silent.get(topic, (0.0, 0.0))
            if not first <= now <= last and dice.random() < 0.5:
                life.data_source.subscriber.on_message(topic, b"%f" % dice.uniform(0, 40))

    return life, happens


def folder(directory, dice, **privacy):
    """A device with rows, one an hour, in a folder; its owner touches, renames and deletes files."""
    directory.mkdir(parents=True)
    np.savez(directory / "first.npz", A=np.zeros((M, 2)), b=np.ones(M))
    life = Life(
        directory,
        {"folder": "rows"},
        counts(2, M, [0.0, 10.0, 20.0, 40.0], privacy.get("epsilon", 0.5)),
        node="n0",
        data=str(directory / "first.npz"),
        labels={"classes": 2},
        budget={"epsilon": 2.0, "window": 24 * HOUR, "adjacency": {"replace-one-record": {"clip": 1.0}}},
        retention="20h",
        keep=10_000,
    )
    (directory / "rows").mkdir()

    def happens(now):
        files = sorted((directory / "rows").iterdir())
        if dice.random() < 0.6:
            line = f"[{dice.uniform(0, 40)}, 0, 1]\n" if dice.random() < 0.9 else "[half\n"
            (directory / "rows" / f"{now:011.0f}.jsonl").write_text(line)
        if files and dice.random() < 0.5:
            file = files[dice.integers(len(files))]
            match dice.integers(3):
                case 0:
                    os.utime(file)
                case 1:
                    file.rename(file.with_name(f"x{now:.0f}.jsonl"))
                case 2:
                    file.unlink()

    return life, happens


def lived(life, happens, dice, days):
    """A coordinator that keeps runs open, stops and resumes them, asks again what was refused,
    and strikes the device dead.
    """
    life.start()
    began, joined = life.clock.now, False
    while life.clock.now < began + days * DAY:
        happens(life.clock.now - began)
        life.clock.now += float(dice.choice([60.0, 900.0, 3600.0, 7200.0]))
        match dice.integers(8):
            case 0 | 1 | 2 | 5 | 6:
                joined = life.announce(dice.choice([None, 900.0]))
            case 3:
                joined = life.resume()
            case 4:
                if dice.random() < 0.1:
                    life.crashes() if dice.random() < 0.5 else life.restart()
        if joined and life.member.driver:
            size = 3 if life.config.kind.records else None
            life.ask(life.member.driver.machine.state.t + 1, size)
            if dice.random() < 0.4:
                life.finish()
    life.end()
    return life


@pytest.mark.runs
@pytest.mark.parametrize("seed", LIARS)
@pytest.mark.parametrize(
    ("made", "privacy"),
    [
        (meters, {"epsilon": 1.0}),
        (meters, {"epsilon": 1.0, "mechanism": "gaussian", "accountant": "gdp", "delta": 1e-5}),
        (folder, {"epsilon": 0.5}),
    ],
    ids=["meters", "meters, gaussian", "folder"],
)
def test_two_weeks_with_a_lying_coordinator_never_tell_more_of_a_reading_than_a_window_may(
    tmp_path, made, privacy, seed
):
    dice = np.random.default_rng(seed)
    life = lived(*made(tmp_path / "a", dice, **privacy), dice, 14)
    (found,) = events(life.directory / "state", life.transcript)
    assert found.answers > 20
    assert found.readings > 100
    assert found.missing == 0
    assert found.epsilon > 1.0  # the window is used
    assert not found.above
    assert found.epsilon <= 2.0 * (1 + 1e-9)


@pytest.mark.runs
@pytest.mark.parametrize("made", [meters, folder])
def test_with_retention_switched_off_the_same_weeks_tell_many_times_as_much(tmp_path, monkeypatch, made):
    """What the release before did: readings counted for as long as nothing took their place."""
    monkeypatch.setattr(Readings, "within", lambda self, now, retention: self)
    dice = np.random.default_rng(0)
    life = lived(*made(tmp_path / "a", dice, epsilon=1.0), dice, 14)
    (found,) = events(life.directory / "state", life.transcript)
    assert found.above
    assert found.epsilon > 2 * 2.0


# --- the recount by itself ---


def synthetic(tmp_path, lines, spends, **claim):
    """A state folder of a ledger with these (running time, epsilon), and a log."""
    from hushgrid.node.privacy.ledger import Ledger
    from tests.support.devices.gated_device import spend
    from tests.support.devices.windows import Clock

    clock = Clock()
    ledger = Ledger(tmp_path / "z1.ledger", "z1", durable=False, clock=clock)
    ledger.join(b"run", b"plan")
    for ran, epsilon in spends:
        clock.now = ran
        ledger.commit(b"run", spends=[spend(epsilon=epsilon)])
    facts = {"node": "z1", "ledger": ledger.id.hex(), "epsilon": 1.0, "delta": 0.0, "window": 100.0, "rows": 0}
    facts |= {"adjacency": "bounded-change 0.01", "retention": 50.0} | claim
    ledger.close()
    text = "".join(json.dumps(line) + "\n" for line in [{"claim": facts}, *lines])
    (tmp_path / "z1.readings").write_text(text)
    (tmp_path / "t.jsonl").touch()
    (found,) = events(tmp_path, tmp_path / "t.jsonl")
    return found


def test_a_reading_counts_in_a_closed_interval_until_it_expires_or_another_takes_its_place(tmp_path):
    lines = [
        {"taken": 10.0, "read": 10.0, "until": 60.0, "entries": ["1 p_mw", "1 q_mvar"]},
        {"taken": 40.0, "read": 35.0, "until": 85.0, "entries": ["1 p_mw"]},
    ]
    spends = [(9.9, 8.0), (10.0, 0.25), (40.0, 0.5), (60.0, 1.0), (61.0, 2.0), (85.5, 16.0)]
    found = synthetic(tmp_path, lines, spends)
    assert (found.epsilon, found.reading, found.readings, found.above) == (3.5, "1 p_mw, read at 35 s", 3, True)


def test_a_row_counts_until_as_many_others_have_come(tmp_path):
    lines = [{"taken": float(k), "read": float(k), "until": None, "rows": [[k, k]]} for k in (1, 2, 3, 4)]
    found = synthetic(tmp_path, lines, [(1.5, 1.0), (2.5, 1.0), (3.5, 1.0), (4.5, 1.0)], rows=2)
    assert found.epsilon == 2.0


def test_laplace_answers_are_stated_at_the_budgets_delta_if_that_is_less(tmp_path):
    lines = [{"taken": 0.0, "read": 0.0, "until": None, "entries": ["1 p_mw"]}]
    found = synthetic(tmp_path, lines, [(float(k), 0.125) for k in range(400)], delta=1e-5)
    assert found.epsilon == pytest.approx(gdp_epsilon((400 * np.pi / 2) ** 0.5 * 0.125, 1e-5), rel=1e-6)
    assert found.epsilon < 50.0


def test_a_log_that_is_none_and_a_state_without_one_are_one_line(tmp_path, hushgrid):
    (tmp_path / "t.jsonl").touch()
    told = hushgrid("audit", "--events", tmp_path, tmp_path / "t.jsonl")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "found no log of readings, expected the state of a device with a source" in told.err
    told = hushgrid("audit", "--events", tmp_path)
    assert "--events: found 1 files, expected a device's folder STATE and a TRANSCRIPT" in told.err
    with pytest.raises(InputError, match="expected a log of readings"):
        synthetic(tmp_path, [{"taken": "soon"}], [])
