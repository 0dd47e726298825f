"""What costs no epsilon fills no disk: plans that are joined or refused, members that come and go. Virtual time."""

import json

import pytest

from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.runtime import member
from hushgrid.node.runtime.member import RUN_BYTES
from hushgrid.node.wire import COORDINATOR, Envelope, Finish, Join, Progress, Refuse
from tests.support.devices.gated_device import budget
from tests.support.devices.hostile_messages import birth, plan_message
from tests.support.devices.zone_fleet import World, setup

HOUR = 3600.0
FREE_BYTES = 1 << 18  #: that plans may write in an hour, less here than elsewhere


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(member, "FREE_BYTES", FREE_BYTES)
    made = World(tmp_path, setup(), budget=budget(5.0))
    yield made
    made.close()


def replies(world, blob, number):
    """What z1 says of so many runs of a plan: the type of each reply, None where it says nothing."""
    z1, found = world["z1"], []
    for k in range(number):
        members = {"z1": z1.session, "z2": k}  # another run each time
        out = z1.on_message(z1.topics.all(COORDINATOR), plan_message(blob, members))
        found.append(type(wire.decode_envelope(out[0].payload, wire.PLAN_LIMIT).body) if out else None)
    return found


def born(world, node, session):
    """A member's birth, as the coordinator hears it."""
    facts = {"digest": world.setup.plan.problem.digest, "dimension": world[node].device.dimension}
    world.centre.on_message(world.centre.topics.state(node), wire.encode(birth(session, **facts)))


@pytest.mark.runs
def test_the_plans_a_device_joins_in_an_hour_are_limited_by_what_they_write(world):
    z1, blob = world["z1"], encode_plan(world.setup.plan)
    each = len(blob) + RUN_BYTES
    z1.on_tick(0.0)
    found = replies(world, blob, 2 * FREE_BYTES // each)
    joined = found.count(Join)
    assert found == [Join] * joined + [None] * (len(found) - joined)
    assert FREE_BYTES <= joined * each < FREE_BYTES + each
    z1.on_tick(HOUR / 2)
    assert abs(replies(world, blob, joined).count(Join) - joined / 2) <= 2
    assert world.ledgers["z1"].spends() == []


def test_a_run_writes_no_more_beside_its_plan_than_is_counted_for_it(world):
    z1, blob = world["z1"], encode_plan(world.setup.plan)
    members, lines = {"z1": z1.session, "z2": 1}, world.logs["z1"]
    z1.on_message(z1.topics.all(COORDINATOR), plan_message(blob, members))
    run = z1.driver.run
    farewell = Envelope(run, 0, 0, None, Finish("stopped", "x" * 1000, "refused"))
    z1.on_message(z1.topics.edge(COORDINATOR, "z1"), wire.encode(farewell))
    (row,) = world.rows("z1")["run"]
    stored = sum(len(v) for v in row if isinstance(v, bytes | str)) - len(blob)
    assert len(lines) == 2
    assert stored + sum(map(len, lines)) <= RUN_BYTES


@pytest.mark.runs
def test_what_a_device_logs_of_the_plans_it_refuses_is_limited(world):
    plan = json.loads(encode_plan(world.setup.plan))
    plan["privacy"]["epsilon"] = 6.0  # its budget is 5
    blob = json.dumps(plan).encode()
    (kind,) = set(replies(world, blob, 1))
    line = len(world.logs["z1"][-1])
    replies(world, blob, 2 * FREE_BYTES // line)
    assert kind is Refuse
    assert FREE_BYTES - line <= sum(map(len, world.logs["z1"])) <= FREE_BYTES + line
    assert world.rows("z1")["run"] == []


@pytest.mark.runs
def test_a_member_that_comes_and_goes_is_asked_less_and_less_often_and_writes_no_ledger_full(world):
    """It is born again as soon as it is asked, for an hour; nobody has joined in between."""
    centre, runs, t = world.centre, set(), 0.0
    born(world, "z2", 1)
    while t < HOUR:
        born(world, "z1", 1 + len(runs))
        centre.on_tick(t)
        runs |= {centre.run} if centre.run else set()
        t += 0.25
    assert 3 <= len(runs) <= 3 + 6 + HOUR / 30  # at once, after 1, 2, 4, 8, 16 s, then every half a minute
    assert len(world.rows(COORDINATOR)["run"]) == 1
    assert sum(map(len, world.logs[COORDINATOR])) < 20_000


def test_two_restarts_of_a_member_before_it_joins_cost_no_time(world):
    centre, runs = world.centre, set()
    for session in (1, 2, 3):
        born(world, "z1", session)
        born(world, "z2", 1)
        centre.on_tick(0.0)
        runs.add(centre.run)
    assert len(runs) == 3


def test_a_state_is_one_of_a_few_words():
    with pytest.raises(Malformed):
        wire.decode_envelope(wire.encode(Envelope(b"r" * 16, 0, 0, None, Finish("done\nz1: forged", ""))), 10_000)
    with pytest.raises(Malformed):
        wire.decode_presence(wire.encode(Progress(b"", 0, "\x1b[2J")))
