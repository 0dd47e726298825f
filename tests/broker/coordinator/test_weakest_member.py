"""A fleet of eight with a quorum of five lives with its weakest member: virtual time, real members and ledgers.

Each device in turn refuses, dies, has a wrong clock, and has an empty budget; some while the others join or in the
rounds: 200 intervals in `make test-long`, of which at least 195 are answered or held, and a fifth of the illnesses in
`make test`.
"""

import json
from itertools import pairwise, product

import pytest

from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import UNWILLING, WeakFleet, budget, zones

LONG = 5  #: intervals for which a device is ill
FAULTS = ("refuses", "dies", "wrong clock", "empty budget")
WELL = 8  #: intervals before the first illness of the long life


def ill(fleet, zone, fault):
    if fault == "refuses":
        fleet.owner(zone, allow=UNWILLING)
    elif fault == "empty budget":
        fleet.owner(zone, budget(1.0))  # less than it has spent
    elif fault == "dies":
        fleet.goes(zone)
    else:  # of 1970: it believes no certificate, and so it is not connected
        fleet.ledgers[zone].tables.now = lambda: "1970-01-01T00:00:09Z"
        fleet.goes(zone)


def well(fleet, zone, fault):
    if fault in ("refuses", "empty budget"):
        fleet.owner(zone)
    else:
        fleet.comes(zone)


class During:
    """What happens to a device within an interval, once."""

    def __init__(self, zone, fault, at):
        self.zone, self.fault, self.at = zone, fault, at

    def __call__(self, fleet):
        centre = fleet.centre
        begun = centre.driver is not None and centre.driver.machine.state.t >= 1
        if self.at is None or (centre.phase != "joining" if self.at == "joining" else not begun):
            return
        member = fleet.member(self.zone)
        if self.at == "rounds" and self.fault in ("refuses", "empty budget"):
            if member.budget_check is None:
                return
            member.budget_check.tighten(budget(0.1))
        ill(fleet, self.zone, self.fault)
        self.at = None


def moments():
    """(device, fault, when it begins): each pair once, four of them in the rounds of a run, eight while others join."""
    for k, (zone, fault) in enumerate(product([f"z{i}" for i in range(1, 9)], FAULTS)):
        yield zone, fault, "rounds" if k in (0, 9, 18, 31) else "joining" if k % 4 == 1 else "idle"


@pytest.fixture(scope="module", params=["short", pytest.param("long", marks=pytest.mark.long)])
def life(request, tmp_path_factory):
    """The fleet; and of each interval its line, who is ill, and of what."""
    short = request.param == "short"
    fleet = WeakFleet(tmp_path_factory.mktemp("fleet"), zones(8), quorum=5, hold="24h")
    lines = [(fleet.interval(), set(), "") for _ in range(1 if short else WELL)]
    for zone, fault, when in list(moments())[:: 5 if short else 1]:
        if when == "idle":
            ill(fleet, zone, fault)
        lines.append((fleet.interval(During(zone, fault, None if when == "idle" else when)), {zone}, fault))
        lines += [(fleet.interval(), {zone}, fault) for _ in range(LONG - 1)]
        well(fleet, zone, fault)
        lines.append((fleet.interval(), set(), ""))
    yield fleet, lines
    fleet.close()


@pytest.mark.runs
def test_nearly_all_intervals_are_answered_or_held(life):
    _, lines = life
    missed = [row for row, _, _ in lines if row["outcome"] == "missed"]
    assert len(lines) in (1 + 7 * (LONG + 1), 200)
    assert len(missed) <= len(lines) / 40
    # Only those in whose rounds a device has gone or refused: the others have paid for them.
    assert len(missed) == (4 if len(lines) == 200 else 1)
    assert {row["cause"] for row in missed} <= {"refused", "silent"}


@pytest.mark.runs
def test_each_record_names_who_was_not_in_it_and_who_has_refused(life):
    fleet, lines = life
    records = {}
    for path in (fleet.directory / "runs").glob("*.json"):
        record = json.loads(path.read_text())
        records[record["interval"]] = record
    for row, away, fault in lines:
        assert set(row["absent"]) == away, row
        assert set(row["refused"]) == (away if fault in ("refuses", "empty budget") else set()), row
        record = records[row["interval"]]
        if row["outcome"] == "missed":
            continue
        assert set(row["held"]) == away
        assert set(record["members"]) == {f"z{i}" for i in range(1, 9)} - away
        assert (record["refused"], set(record["held"])) == (row["refused"], away)


@pytest.mark.runs
def test_nobody_waits_long_for_a_device_that_is_known_to_be_gone_or_to_refuse(life):
    fleet, lines = life
    lasted = [row["ended_s"] - row["began_s"] for row, _, _ in lines]
    assert sorted(lasted)[len(lasted) // 2] < 10
    assert max(lasted) < fleet.config.silent_s + 10  # one that has died in the rounds
    assert all(x["began_s"] < y["began_s"] for (x, *_), (y, *_) in pairwise(lines))


def test_who_is_back_takes_part_in_the_next_interval(life):
    _, lines = life
    healthy = [row for row, away, _ in lines if not away]
    assert len(healthy) >= 8
    assert {row["outcome"] for row in healthy} == {"answer"}


def test_no_answer_is_paid_that_no_run_has_asked_for(life):
    """At most the rounds of the runs that a device was in: one that was given up before its rounds costs nothing."""
    fleet, lines = life
    rounds = fleet.setup.plan.terms.answers
    for zone in fleet.zones:
        runs = sum(zone not in away or row["outcome"] == "missed" for row, away, _ in lines)
        assert fleet.ledgers[zone].spends.no <= rounds * runs
    assert fleet.ledgers[COORDINATOR].spends.no == 0
