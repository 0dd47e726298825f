"""Whatever comes over the wire that does not belong: counted, logged once, dropped; nothing of it changes a node."""

import json

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node import status, wire
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.wire import (
    COORDINATOR,
    Death,
    Finish,
    Finished,
    Join,
    Mark,
    Plan,
    Progress,
    Refuse,
)
from tests.support.devices.gated_device import budget
from tests.support.devices.hostile_messages import AHEAD, NONCE, OTHER, birth, envelope, not_envelopes, plan_message
from tests.support.devices.zone_fleet import World, setup
from tests.support.status import PLAIN


def to_member(world):
    """(name, topic, payload, kind it is dropped as; None where it is only ignored) for z1, fit for its present
    state.
    """
    z1, t = world["z1"], world["z1"].topics
    edge, everyone, state = t.edge(COORDINATOR, "z1"), t.all(COORDINATOR), t.state(COORDINATOR)
    size = z1.device.dimension
    run = z1.driver.run if z1.driver else OTHER
    now = z1.driver.machine.state.t if z1.driver else 0
    w = W(np.ones(size))
    for name, payload in not_envelopes(size + wire.SMALL):
        yield name, edge, payload, "malformed"
    yield "a foreign sender", t.edge("z2", "z1"), envelope(run, now + 1, w), "malformed"
    yield "another's edge", t.edge(COORDINATOR, "z2"), envelope(run, now + 1, w), "malformed"
    yield "another fleet", "hushgrid/1/demo/edge/coordinator/z1", envelope(run, now + 1, w), "malformed"
    yield "no topic at all", "", b"", "malformed"
    for whose in (COORDINATOR, "z1", "z2"):
        yield f"the status of {whose}", t.status(whose), status.encode(PLAIN), "malformed"
        yield f"a message as the status of {whose}", t.status(whose), envelope(run, now + 1, w), "malformed"
    yield "a foreign run", edge, envelope(OTHER, now + 1, w), "a foreign run"
    yield "a foreign farewell", edge, envelope(OTHER, 0, Finish("stopped", "go home")), "a foreign run"
    if z1.driver:
        yield "a foreign epoch", edge, envelope(run, now + 1, w, epoch=1), "foreign epoch"
        yield "too short", edge, envelope(run, now + 1, W(np.ones(size - 1))), "not of this edge"
        yield "z instead of w", edge, envelope(run, now + 1, Z(np.ones(size))), "not of this edge"
        yield "a negative number", edge, envelope(run, -1, w), "malformed"
        for seq in (0, now - 1, now + 2, 2**62):
            if seq not in (now, -1):
                yield f"old or future {seq - now}", edge, envelope(run, seq, w), None
        if now:
            yield "a second body", edge, envelope(run, now, w), "second body"
    for body in (Join(), Refuse("no"), Finished(), Plan(b"", b"", {}, {})):
        yield type(body).__name__, edge, envelope(run, 0, body), "not for a device"
    yield "w to all", everyone, envelope(run, now + 1, w), "not a plan"
    yield "junk to all", everyone, b"\xff" * 99, "malformed"
    blob = encode_plan(world.setup.plan)
    members = {"z1": z1.session, "z2": 1}
    foreign = "a plan that is not this device's, or not what its run says"
    yield "a plan under another id", everyone, plan_message(blob, members, run=OTHER), foreign
    yield (
        "a changed plan",
        everyone,
        plan_message(blob.replace(b"world", b"warld"), members, run=wire.run_id(blob, NONCE, members)),
        foreign,
    )
    yield (
        "changed members",
        everyone,
        plan_message(blob, members | {"z3": 1}, run=wire.run_id(blob, NONCE, members)),
        foreign,
    )
    yield "a plan without it", everyone, plan_message(blob, {"z2": 1}), foreign
    yield (
        "another session",
        everyone,
        plan_message(blob, members | {"z1": z1.session + 1}),
        "a plan for another session",
    )
    told = {"z1": AHEAD}
    yield "a mark in it", everyone, plan_message(blob, members | {"z1": 99}, marks=told), "a plan for another session"
    yield "retained junk", state, b"junk", "malformed"
    yield "retained nothing", state, b"", None
    yield "a foreign run is over", state, wire.encode(Progress(OTHER, 3, "done")), None
    yield "a retained birth", state, wire.encode(birth()), None
    yield "the coordinator's death", state, wire.encode(Death(1)), None


def to_coordinator(world):
    """The same for the coordinator, from z1."""
    centre, t = world.centre, world.centre.topics
    edge, state = t.edge("z1", COORDINATOR), t.state("z1")
    size = world["z1"].device.dimension
    run, running = centre.run or OTHER, centre.phase == "running"
    now = centre.driver.machine.state.t if centre.driver else 0
    z = Z(np.ones(size))
    for name, payload in not_envelopes(size + wire.SMALL):
        yield name, edge, payload, "malformed"
    yield "a stranger", t.edge("z9", COORDINATOR), envelope(run, now, z), "malformed"
    for whose in (COORDINATOR, "z1", "z9"):
        yield f"the status of {whose}", t.status(whose), status.encode(PLAIN), "malformed"
        yield f"a birth as the status of {whose}", t.status(whose), wire.encode(birth()), "malformed"
    yield "a stranger's birth", t.state("z9"), wire.encode(birth()), "malformed"
    yield "itself", t.edge(COORDINATOR, COORDINATOR), envelope(run, now, z), "malformed"
    yield "not to it", t.edge("z1", "z2"), envelope(run, now, z), "malformed"
    yield "a foreign run", edge, envelope(OTHER, now, z), "a foreign run"
    for body in (Join(), Finished(), Refuse("no")):
        yield f"a foreign {type(body).__name__}", edge, envelope(OTHER, 0, body), "a foreign run"
    if centre.run:
        for body in (Plan(b"", b"", {}, {}), Finish("done", "")):
            yield type(body).__name__, edge, envelope(run, 0, body), "not for the coordinator"
        if centre.phase not in ("finishing", "over"):
            yield "a farewell", edge, envelope(run, 0, Finished()), "a farewell before the end"
    if centre.run and not running:
        late = centre.phase in ("finishing", "over")  # it may have been on its way when they ended
        yield "z without rounds", edge, envelope(run, now, z), None if late else "before the rounds"
    if running:
        yield "a foreign epoch", edge, envelope(run, now, z, epoch=2), "foreign epoch"
        answered = "z1" in centre.driver.machine.state.arrived
        wrong = "second body" if answered else "not of this edge"
        yield "too long", edge, envelope(run, now, Z(np.ones(size + 1))), wrong
        yield "w instead of z", edge, envelope(run, now, W(np.ones(size))), "not of this edge"
        yield "z of the next round", edge, envelope(run, now + 1, z, mark=None), None  # its mark would be its own
        if answered:
            yield "a second body", edge, envelope(run, now, z), "second body"
    yield "retained junk", state, b"junk", "malformed"
    yield "retained nothing", state, b"", None
    yield "progress of a member", state, wire.encode(Progress(run, 3, "done")), "not a birth"
    if "z1" in centre.membership.births:
        yield "the death of another session", state, wire.encode(Death(10**6)), None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("undisturbed"), setup())
    world.run()
    final = world.results()
    world.close()
    return final


@pytest.mark.runs
@pytest.mark.parametrize(("victim", "hostile"), [("z1", to_member), (COORDINATOR, to_coordinator)])
def test_at_every_moment_of_a_run_nothing_foreign_changes_a_node(tmp_path, undisturbed, victim, hostile):
    world, tried = World(tmp_path, setup()), set()

    def attack(world):
        for name, topic, payload, kind in hostile(world):
            end = world[victim]
            before, dropped = world.state(victim), end.dropped.copy()
            out = end.on_message(topic, payload)
            # A device may say again who it is; anything else would be an answer.
            assert [p for p in out if p.topic != end.topics.state(victim)] == [], name
            assert world.state(victim) == before, name
            assert end.dropped - dropped == ({kind: 1} if kind else {}), name
            tried.add(name)

    world.run(attack)
    assert {"nan", "over size", "a second body", "a foreign epoch", "a foreign run", "truncated"} <= tried
    logged = [line for line in world.logs[victim] if line.startswith("dropped a message")]
    assert len(logged) == len(world[victim].dropped)  # once a kind, however many there were
    assert world.results() == undisturbed
    world.close()


@pytest.mark.parametrize("victim", ["z1", COORDINATOR])
def test_an_old_or_future_round_is_ignored_and_a_repetition_answered_with_the_same_bytes(tmp_path, undisturbed, victim):
    """The rounds' own messages, delivered again at every later moment."""
    world, sent, answers = World(tmp_path, setup()), [], {}
    world.hub.eavesdrop = lambda topic, payload: sent.append((topic, payload)) if "/edge/" in topic else None

    def replay(world):
        end = world[victim]
        if end.driver is None or end.driver.run != world.centre.run or world.centre.phase != "running":
            return
        arrived = {topic for topic in end.subscriptions if "/edge/" in topic}
        for topic, payload in [m for m in sent if m[0] in arrived]:
            got = wire.decode_envelope(payload, 10_000)
            if isinstance(got.body, W | Z) and got.seq <= end.driver.machine.state.t - (victim == COORDINATOR):
                before = world.state(victim)
                out = end.on_message(topic, payload)
                assert world.state(victim) == before
                for publication in out:
                    seq = wire.decode_envelope(publication.payload, 10_000).seq
                    assert answers.setdefault((publication.topic, seq), publication.payload) == publication.payload

    world.run(replay)
    bodies = {}
    for topic, payload in sent:
        got = wire.decode_envelope(payload, 10_000)
        if isinstance(got.body, W | Z):
            assert bodies.setdefault((topic, got.seq), payload) == payload  # one body per number, and what was replayed
            assert answers.get((topic, got.seq), payload) == payload
    assert world.results() == undisturbed
    world.close()


# --- plans that lie, from the coordinator itself ---


LIES = {
    "not JSON": lambda raw: "{",
    "another format": lambda raw: raw | {"format": 2},
    "an unknown key": lambda raw: raw | {"extra": 1},
    "rho is NaN": lambda raw: json.dumps(raw).replace('"rho": 100.0', '"rho": NaN'),
    "rho is beyond all numbers": lambda raw: json.dumps(raw).replace('"rho": 100.0', '"rho": 1e999'),
    "L below the zone's own": lambda raw: raw | {"problem": raw["problem"] | {"L": 1.0}},
    "another case": lambda raw: raw | {"problem": raw["problem"] | {"digest": "00"}},
    "another zone": lambda raw: raw | {"problem": raw["problem"] | {"zones": {"z1": [1], "z2": [2, 3, 4, 5]}}},
    "two epsilons": lambda raw: privacy(raw, per_answer={"epsilon": 100.0}),
    "no epsilon": lambda raw: privacy(raw, epsilon=None),
    "a pure claim for Gaussian noise": lambda raw: privacy(raw, mechanism="gaussian"),
    "a GDP claim for Laplace noise": lambda raw: privacy(raw, accountant="gdp", delta=0.1),
    "a delta that promises nothing": lambda raw: privacy(raw, accountant="pure-optimal", delta=0.999, epsilon=0.1),
    "exact answers": lambda raw: raw | {"privacy": None},
    "the variant none": lambda raw: raw | {"privacy": None, "algorithm": raw["algorithm"] | {"variant": "none"}},
    "the variant published": lambda raw: raw | {"algorithm": raw["algorithm"] | {"variant": "published"}},
    "output noise": lambda raw: privacy(raw, mode="output"),
    "no adjacency": lambda raw: privacy(raw, adjacency={}),
    "another adjacency": lambda raw: privacy(raw, adjacency={"bounded-change": 1e-9}),
    "a scale of nothing": lambda raw: privacy(raw, epsilon=1e300),
    "more than the budget": lambda raw: privacy(raw, epsilon=5.1),
}


def privacy(raw, **over):
    return raw | {"privacy": raw["privacy"] | over}


def lie_to(world, lie):
    """The plan message with this lie in it, run id and session right."""
    wrong = LIES[lie](msgspec.json.decode(encode_plan(world.setup.plan)))
    blob = wrong.encode() if isinstance(wrong, str) else msgspec.json.encode(wrong)
    return plan_message(blob, {"z1": world["z1"].session, "z2": 1})


@pytest.mark.parametrize("lie", LIES)
def test_a_device_refuses_a_plan_that_lies_and_spends_nothing(tmp_path, lie):
    world = World(tmp_path, setup(), seed=None, budget=budget(5.0))
    z1, message = world["z1"], lie_to(world, lie)
    topic = z1.topics.all(COORDINATOR)
    (said,) = z1.on_message(topic, message)
    refusal = wire.decode_envelope(said.payload, 10_000).body
    assert isinstance(refusal, Refuse)
    assert z1.driver is None
    assert world.rows("z1")["spend"] == []
    assert z1.on_message(topic, message) == [said]  # never answered afresh
    world.close()


@pytest.mark.parametrize("other", [-1, 1])
def test_a_plan_of_another_session_is_answered_with_nothing(tmp_path, other):
    world = World(tmp_path, setup())
    z1 = world["z1"]
    plan = plan_message(encode_plan(world.setup.plan), {"z1": z1.session + other, "z2": 1})
    assert z1.on_message(z1.topics.all(COORDINATOR), plan) == []
    assert z1.driver is None
    assert z1.dropped["a plan for another session"] == 1
    world.close()


@pytest.mark.parametrize("lie", ["rho is NaN", "two epsilons", "more than the budget"])
def test_a_refused_plan_does_not_disturb_the_run_under_way(tmp_path, undisturbed, lie):
    world, refused = World(tmp_path, setup(), budget=budget(5.0)), set()

    def attack(world):
        z1 = world["z1"]
        if z1.driver is None:
            return
        machine, rows = wire.encode(z1.driver.machine.state), world.rows("z1")
        z1.on_message(z1.topics.all(COORDINATOR), lie_to(world, lie))
        refused.update(z1._refused)
        assert wire.encode(z1.driver.machine.state) == machine
        assert not z1.finished
        assert world.rows("z1") == rows  # it asks for nothing, so nothing of it is stored

    world.run(attack)
    assert len(refused) == 1
    stored = world.ledgers["z1"]
    final = stored.tables.db.execute("SELECT id FROM run WHERE status = 'done'").fetchall()
    assert final == [(world.centre.run,)]
    assert [row[2:10] for row in stored.spends.rows()] == undisturbed["z1"][2]
    world.close()


def test_a_late_farewell_of_an_old_run_does_not_silence_the_join_of_a_new_one(tmp_path):
    first = World(tmp_path, setup())
    first.run()
    old = envelope(first.centre.run, 0, Finish("done", "rounds"))
    first.close()
    world = World(tmp_path, setup())

    def late(world):
        z1 = world["z1"]
        if z1.driver and not z1.driver.started:
            (farewell,) = z1.on_message(z1.topics.edge(COORDINATOR, "z1"), old)
            assert isinstance(wire.decode_envelope(farewell.payload, 10_000).body, Finished)
            assert [wire.decode_envelope(p.payload, 10_000).body for p in z1._again()] == [Join(stands=0, accepted=())]

    world.run(late)
    assert world.centre.error is None
    world.close()


def test_a_peer_that_claims_a_higher_mark_stops_the_device_and_spends_nothing(tmp_path):
    world = World(tmp_path, setup(), budget=budget(5.0))
    z1 = world["z1"]
    blob = encode_plan(world.setup.plan)
    members = {"z1": z1.session, "z2": 1}
    lie = {"z1": Mark(world.ledgers["z1"].id, 1 << 20, 1e6)}
    (said,) = z1.on_message(z1.topics.all(COORDINATOR), plan_message(blob, members, marks=lie))
    assert "behind its mark" in wire.decode_envelope(said.payload, 10_000).body.reason
    assert world.rows("z1")["spend"] == []
    world.ledgers["z1"].accept()  # its owner believes it: the price stands, and the ledger still works
    assert world.ledgers["z1"].verify() == []
    world.close()


def test_the_plan_a_member_stores_is_the_coordinators_own(tmp_path):
    world = World(tmp_path, setup())
    world.run()
    for name in ("z1", "z2"):
        assert decode_plan(world.ledgers[name].runs.last().plan) == world.setup.plan
    world.close()
