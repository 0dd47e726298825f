"""Custody over the wire: real members, gates, ledgers and a watching coordinator, cut off, killed, lied to.

One token whatever happens; without a re-issue the same bits; after one the conserved sums, and a bound on the answer.
"""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.graphs import random_walk
from hushgrid.kernels.patterns.token import Ack, Answer, Held, Leg, Notice, Token
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import COORDINATOR, Finish, Finished, Join, Plan, Refuse
from tests.support.devices.hostile_messages import OTHER, envelope, not_envelopes
from tests.support.runs import background_run
from tests.support.runs.custody_walks import CUT, LONG, cut_off
from tests.support.runs.walk_in_memory import Walk, assert_conserved, assert_one_token, setup, state_of
from tests.support.scenarios import record_scenarios

FAULTS = {"loss": 0.2, "duplicate": 0.2, "reorder": 0.3, "crash": 0.05, "seed": 3}
TREE = {"network": {"kind": "edges", "edges": [[0, 1], [1, 2], [1, 3]]}}
#: A walk of every kind: random, Hamiltonian, closed on a tree, given; every algorithm.
WALKS = {
    "recal, random": {},
    "recal, cycle": {"algorithm.walk": "hamiltonian"},
    "recal, tree": TREE | {"algorithm.walk": "hamiltonian"},
    "recal, given": {"algorithm.walk": [0, 1, 0, 3] * 5},
    "iadmm, cycle": {"algorithm": {"name": "iadmm", "rounds": 20, "rho": 1.0}},
    "iadmm, tree": TREE | {"algorithm": {"name": "iadmm", "rounds": 20, "rho": 1.0}},
    "wadmm, random": {"algorithm": {"name": "wadmm", "rounds": 20, "rho": 1.0}},
}
TRAJECTORY = {"run.record": "trajectory"}


# --- faults of the network, and crashes ---


@pytest.mark.runs
@pytest.mark.parametrize("walk", WALKS)
def test_loss_repetition_reordering_and_crashes_change_no_bit(walk):
    raw = record_scenarios.scenario(WALKS[walk] | TRAJECTORY, seed=11)
    quiet, disturbed = run(raw), run(raw, set={"run.faults": FAULTS})
    background_run.assert_same_bits(quiet, disturbed)
    assert disturbed.history == quiet.history


@pytest.mark.runs
@pytest.mark.parametrize("walk", ["recal, random", "iadmm, cycle"])
def test_without_a_seed_the_token_is_one_and_the_sums_are_conserved(tmp_path, walk):
    raw = record_scenarios.scenario(WALKS[walk] | TRAJECTORY | {"run.truth": True, "run.faults": FAULTS})
    result = run(raw, state=tmp_path)
    prepared = setup(WALKS[walk])
    states = {}
    for name in prepared.plan.nodes:
        ledger = Ledger(tmp_path / f"{name}.ledger", name)
        states[name] = state_of(ledger, prepared)
        ledger.close()
    assert assert_one_token(states).t == 20
    assert_conserved(result, prepared.plan.algorithm, states)


def test_a_random_walk_without_a_seed_is_a_function_of_the_runs_id(tmp_path):
    walk = Walk(tmp_path, setup(), seed=None)
    walk.run()
    seed = int.from_bytes(walk.centre.run[:8], "little")
    assert walk.collect().trajectory["active"].tolist() == random_walk(walk.setup.public.graph, 0, 20, seed)
    walk.close()


@pytest.mark.runs
def test_a_walk_that_moves_little_for_long_enough_stops_and_faults_do_not_change_where():
    over = {"algorithm": {"name": "iadmm", "rounds": 400, "rho": 5.0, "variant": "none"}, "privacy": None}
    raw = record_scenarios.scenario(over | TRAJECTORY, seed=11, **{"run.stop": {"tolerance": 1e-3, "patience": 2}})
    quiet = run(raw)
    assert quiet.stopped_because == "tolerance"
    moved = np.max(np.abs(np.diff(quiet.trajectory["z"], axis=0)), axis=1)
    calm = [bool(m <= 1e-3) for m in moved]
    assert calm[-8:] == [True] * 8
    assert not any(all(calm[k : k + 8]) for k in range(len(calm) - 8))
    background_run.assert_same_bits(quiet, run(raw, set={"run.faults": FAULTS}))


# --- a node that is cut off ---


BACK = {
    "in the suspicion": lambda watch: watch.suspect,
    "after it": lambda watch: watch.notice.fences and watch.held[1] >= CUT + 8,
    "never": lambda watch: False,
}


@pytest.mark.runs
@pytest.mark.parametrize("back", BACK)
@pytest.mark.parametrize("moment", ["before", "between", "after"])
@pytest.mark.parametrize("algorithm", LONG)
def test_a_holder_that_is_cut_off_leaves_one_token_and_every_step_counted_once(tmp_path, algorithm, moment, back):
    walk = Walk(tmp_path, setup(LONG[algorithm], seed=11))
    victim = cut_off(walk, moment)

    def again(walk):
        if victim and BACK[back](walk.watch):
            walk.hub.back(victim[0])

    walk.run(again)
    assert walk.centre.error is None
    (name,) = victim
    states, result = walk.states(), walk.collect()
    assert assert_one_token(states).t == result.rounds_done == 60
    assert_conserved(result, walk.setup.plan.algorithm, states)
    assert result.lost == ([name] if back == "never" else [])
    if back == "after it":
        assert int(name[1:]) in result.trajectory["active"][CUT + 8 :]
    # Where its step was undone, what that has spent stays, in its ledger and in the account of the run.
    of = result.trajectory["active"] == int(name[1:])
    if "recount" in result.trajectory:  # there it answers nothing
        of &= ~result.trajectory["recount"]
    made = int(np.sum(of))
    spent = [spend.answer for spend in walk.ledgers[name].spends.rows()]
    undone = walk.undone(name)
    assert undone == (moment == "between" and back != "in the suspicion") or back == "in the suspicion"
    assert spent == list(range(1, min(made + undone, walk.setup.terms.answers) + 1))
    assert result.history[f"epsilon_{name}"][-1] == walk.setup.terms.cost(len(spent))
    walk.close()


# --- what does not belong ---


def to_node(walk):
    """(name, topic, payload, kind it is dropped as; None where it is only ignored) for n1, fit for its present
    state.
    """
    n1, t = walk["n1"], walk["n1"].topics
    s = n1.driver.machine.state if n1.driver else None
    run, size = n1.driver.run if n1.driver else OTHER, walk.setup.public.size
    next_ = s.t + 1 if s else 0
    vectors = (np.ones(size), np.ones(size))
    token = Token(s.known if s else (), Leg(), 0, vectors)
    for src in ("n0", COORDINATOR):
        for name, payload in not_envelopes(n1._limit):
            yield f"{name} from {src}", t.edge(src, "n1"), payload, "malformed"
        yield f"a foreign run from {src}", t.edge(src, "n1"), envelope(OTHER, next_, token), "a foreign run"
        for body in (Join(), Refuse("no"), Finished(), Plan(b"", b"", {}, {})):
            yield f"{type(body).__name__} from {src}", t.edge(src, "n1"), envelope(run, 0, body), "not for a device"
    yield "another's edge", t.edge("n0", "n2"), envelope(run, next_, token), "malformed"
    yield "its own edge", t.edge("n1", "n1"), envelope(run, next_, token), "malformed"
    yield "a neighbour's farewell", t.edge("n0", "n1"), envelope(run, 0, Finish("done", "")), "not for a device"
    yield ("the coordinator's farewell of another "
          "run"), t.edge(COORDINATOR, "n1"), envelope(OTHER, 0, Finish("done", "")), "a foreign run"  # fmt: skip
    if s is None:
        return
    epoch = token.epoch
    for name, src, seq, body in (
        ("a token of a stranger", "n3", next_, token),
        ("a token of the coordinator", COORDINATOR, next_, token),
        ("a token too short", "n0", next_, Token(s.known, Leg(), 0, (np.ones(size), np.ones(size - 1)))),
        ("a token of three vectors", "n0", next_, Token(s.known, Leg(), 0, (*vectors, np.ones(size)))),
        ("a token beyond the end", "n0", 10**6, token),
        ("a neighbour's notice", "n0", s.last_notice + 1, Notice(announced=epoch)),
        ("a neighbour's report", "n0", next_, Held(epoch, "n1")),
        ("the coordinator's receipt", COORDINATOR, s.t, Ack(epoch, True)),
    ):
        yield name, t.edge(src, "n1"), envelope(run, seq, body, epoch=epoch), "not of this edge"
    for off in (-1, 1):
        if epoch + off >= 0:
            yield f"epoch {off}", t.edge("n0", "n1"), envelope(run, next_, token, epoch=epoch + off), "foreign epoch"
    yield "a receipt of another hop", t.edge("n0", "n1"), envelope(run, s.t + 2, Ack(epoch, True), epoch=epoch), None
    yield (
        "a receipt of another epoch",
        t.edge("n0", "n1"),
        envelope(run, s.t, Ack(epoch + 1, True), epoch=epoch + 1),
        None,
    )
    yield (
        "an old notice",
        t.edge(COORDINATOR, "n1"),
        envelope(run, s.last_notice - 1, Notice()),
        None if s.last_notice else "malformed",
    )
    if s.last_notice:
        wrong = Notice(announced=s.announced, without=("n2",))
        yield (
            "a second notice",
            t.edge(COORDINATOR, "n1"),
            envelope(run, s.last_notice, wrong, epoch=s.announced),
            "second body",
        )
    for src in ("n0", "n2"):
        if n1.driver.seen.get(f"{src} Token", ())[:2] == (epoch, s.t - 1):
            yield "a second token", t.edge(src, "n1"), envelope(run, s.t - 1, token, epoch=epoch), "second body"


def to_centre(walk):
    """The same for the coordinator, from n1."""
    centre, t = walk.centre, walk.centre.topics
    edge, running = t.edge("n1", COORDINATOR), centre.phase == "running"
    token = Token((), Leg(), 0, (np.ones(3), np.ones(3)))
    for name, payload in not_envelopes(wire.SMALL):
        yield name, edge, payload, "malformed"
    yield "a stranger's report", t.edge("n9", COORDINATOR), envelope(centre.run or OTHER, 1, Held(0, "n1")), "malformed"
    for body in (Held(0, "n2"), Answer(0, False), Finished(), Join()):
        yield f"a foreign {type(body).__name__}", edge, envelope(OTHER, 1, body), "a foreign run"
    if not running:
        return
    s, run = centre.monitor.state, centre.run
    for body in (token, Notice(), Ack(0, True)):
        yield f"{type(body).__name__}", edge, envelope(run, 1, body), "not of this edge"
    yield "a foreign epoch", edge, envelope(run, s.held[1] + 1, Held(0, "n2"), epoch=1), "foreign epoch"
    yield "an answer to no notice", edge, envelope(run, s.no + 1, Answer(10**6, True, "n2"), mark=None), None
    if s.held[1]:
        epoch, hop = s.held[0], s.held[1] - 1
        known = centre.driver.seen.get("n1 Held", (0, -1))[:2] == (epoch, hop)  # n1's own is the last of its reports
        old = envelope(run, hop, Held(epoch, "n3"), epoch=epoch, mark=None)
        yield "an old report", edge, old, "second body" if known else None
    yield "a farewell", edge, envelope(run, 0, Finished()), "a farewell before the end"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return reissued(tmp_path_factory.mktemp("undisturbed"))


def reissued(directory, before_each=lambda walk: None):
    """What a walk of the ring leaves, a holder cut off and back after the token was issued again; and what it
    spends.
    """
    walk = Walk(directory, setup({"algorithm.rounds": 40}, seed=11))
    victim = cut_off(walk, "between")

    def again(walk):
        before_each(walk)
        if victim and BACK["after it"](walk.watch):
            walk.hub.back(victim[0])

    walk.run(again)
    assert walk.watch.notice.fences
    result, spent = walk.collect(), {name: spends for name, (_, _, spends) in walk.results().items()}
    walk.close()
    return result, spent


@pytest.mark.runs
@pytest.mark.parametrize(("target", "hostile"), [("n1", to_node), (COORDINATOR, to_centre)])
def test_at_every_moment_of_a_walk_nothing_foreign_changes_a_byte(tmp_path, undisturbed, target, hostile):
    tried = set()

    def attack(walk):
        for name, topic, payload, kind in hostile(walk):
            end = walk[target]
            before, dropped = walk.state(target), end.dropped.copy()
            assert end.on_message(topic, payload) == [], name
            assert walk.state(target) == before, name
            assert end.dropped - dropped == ({kind: 1} if kind else {}), name
            tried.add(name)

    result, spent = reissued(tmp_path, attack)
    wanted = {
        "n1": {"a second token", "a second notice", "epoch -1", "a token of a stranger", "nan from n0"},
        COORDINATOR: {"an old report", "an answer to no notice", "a foreign epoch", "nan", "a farewell"},
    }
    assert wanted[target] <= tried
    background_run.assert_same_bits(undisturbed[0], result)
    assert spent == undisturbed[1]
