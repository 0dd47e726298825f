"""A clock that is set while daemons run: no status says that something began after it was said, or is late by the
jump.
"""

import time
from contextlib import closing
from datetime import datetime
from types import SimpleNamespace

import pytest

from hushgrid.broker.coordinator.status import Reporter
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime import reporter as device
from hushgrid.node.schema.sections import Adjacency, Budget

HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch):
    """The wall clock; `ahead` s of the machine's own."""
    found, real = SimpleNamespace(ahead=0.0), time.time
    monkeypatch.setattr(time, "time", lambda: real() + found.ahead)
    return found


def seconds(moment):
    return datetime.fromisoformat(moment).timestamp()


def coordinator(phase, absent=()):
    return SimpleNamespace(
        ledger=SimpleNamespace(runs=SimpleNamespace(last=lambda **_: None)),
        driver=None,
        plan=SimpleNamespace(algorithm=SimpleNamespace(rounds=3)),
        phase=phase,
        session=1,
        membership=SimpleNamespace(absent=absent, births={}),
    )


@pytest.mark.parametrize("jump", [-HOUR, HOUR, -30 * 365 * 24 * HOUR])
def test_a_coordinators_times_are_those_of_the_clock_of_now(clock, jump):
    config = SimpleNamespace(tls=None, trust=None, standby=None)
    reporter = Reporter(config)
    reporter._notice(coordinator("over", ("z2",)))
    reporter.anew(60.0)
    clock.ahead = jump
    said = reporter.status(coordinator("over"), None, None)
    at = seconds(said.at)
    assert 0 <= at - seconds(said.since) <= 5
    assert 0 <= at - seconds(said.gone["z2"]) <= 5
    assert 55 <= seconds(said.due) - at <= 61
    assert said.late_s == 0.0


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_devices_start_is_before_now(clock, jump, tmp_path):
    with closing(Ledger(tmp_path / "z1.ledger", "z1")) as ledger:
        member = SimpleNamespace(
            device=SimpleNamespace(until=None),
            ledger=ledger,
            name="z1",
            session=1,
            driver=None,
            over=None,
            refusal="",
            days=lambda: None,
            budget=Budget(epsilon=1.0, adjacency=Adjacency(bounded_change=0.01)),
        )
        reporter = device.Reporter(SimpleNamespace(trust=None), member, None)
        clock.ahead = jump
        said = reporter.status()
    assert 0 <= seconds(said.at) - seconds(said.since) <= 5
