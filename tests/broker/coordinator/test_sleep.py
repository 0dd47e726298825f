"""A coordinator that waits for its members sleeps: it is told the time when something is due, and seldom. Virtual
seconds.
"""

from contextlib import closing
from math import inf

import pytest

from hushgrid.broker.coordinator.star import StarCoordinator
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.endpoint import RETRY_S
from tests.support.devices.zone_fleet import World, setup

HOUR_S = 3600.0


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "coordinator.ledger", "coordinator")) as one:
        yield one


def gathers(ledger, **options):
    plan = setup()
    return StarCoordinator("world", plan.plan, plan.problem.case, ledger, **options)


def slept(coordinator, seconds):
    """It is told the time when it says that something is due. Returns when, and what it sent."""
    coordinator.on_tick(0.0)
    times, sent, began = [], [], coordinator.clock.time
    while True:
        now = max(coordinator.due, coordinator.clock.time + 1e-3)
        if now > began + seconds:
            return times, sent
        coordinator.clock.time = now
        times.append(now)
        sent += coordinator.on_tick(now)


def test_an_hour_without_its_members_wakes_it_twice_a_minute(ledger):
    said = []
    coordinator = gathers(ledger, missed=said.append, wait_s=60.0)
    coordinator.connected()
    times, sent = slept(coordinator, HOUR_S)
    assert len(times) <= 2.5 * HOUR_S / 60
    assert times[1] < 2 * RETRY_S[1]  # the first calls come soon
    assert {wire.decode_presence(p.payload).state for p in sent} == {"gathering"}
    assert len(sent) <= HOUR_S / 60 + 8
    assert len(said) == pytest.approx(HOUR_S / 60, abs=1)
    assert not coordinator.finished


def test_nothing_waits_for_the_broker_until_a_run_is_under_way(tmp_path):
    world, patient = World(tmp_path, setup()), []
    assert world.centre.patient
    world.run(lambda world: patient.append((world.centre.phase, world.centre.patient)))
    assert {phase for phase, patience in patient if patience} <= {"gathering", "over"}
    assert ("running", False) in patient
    assert world.centre.patient
    assert world.centre.due == inf
    world.close()


def test_without_anybody_to_tell_it_gives_up_after_wait_s(ledger):
    coordinator = gathers(ledger, wait_s=60.0)
    times, _ = slept(coordinator, 70.0)
    assert coordinator.finished
    assert times[-1] == pytest.approx(60.0, abs=0.1)
    assert str(coordinator.error) == "z1, z2 not there after 60 s, expected a birth"


def test_the_last_birth_is_answered_at_once(tmp_path):
    world = World(tmp_path, setup())
    centre = world.centre
    centre.on_tick(0.0)
    centre.clock.time = 500.0
    centre.on_tick(500.0)
    for name in ("z1", "z2"):
        birth = world[name].connected()[0]
        centre.on_message(birth.topic, birth.payload)
    assert centre.due <= 500.0
    said = [p for p in centre.on_tick(500.0) if "/all/" in p.topic]
    assert [type(wire.decode_envelope(p.payload, wire.PLAN_LIMIT).body) for p in said] == [wire.Plan]
    world.close()
