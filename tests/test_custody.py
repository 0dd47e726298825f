"""Custody over the wire: real members, gates, ledgers and a watching coordinator, cut off, killed, lied to.

One baton whatever happens; without a re-issue the same bits; after one the conserved sums, and a bound on the answer.
"""

import fleet
import numpy as np
import pytest
import sensor_runs
from sensor_world import Walk, assert_conserved, assert_one_baton, setup, state_of, token_of

from hushgrid.broker.optimum import optimum
from hushgrid.broker.simulation import run
from hushgrid.kernels.graphs import random_walk
from hushgrid.node.ledger import Ledger

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


@pytest.mark.parametrize("walk", WALKS)
def test_loss_repetition_reordering_and_crashes_change_no_bit(walk):
    raw = sensor_runs.scenario(WALKS[walk] | TRAJECTORY, seed=11)
    fleet.assert_same_bits(run(raw), run(raw, set={"run.faults": FAULTS}))


@pytest.mark.parametrize("walk", ["recal, random", "iadmm, cycle"])
def test_without_a_seed_the_baton_is_one_and_the_sums_are_conserved(tmp_path, walk):
    raw = sensor_runs.scenario(WALKS[walk] | TRAJECTORY | {"run.truth": True, "run.faults": FAULTS})
    result = run(raw, state=tmp_path)
    prepared = setup(WALKS[walk])
    states = {}
    for name in prepared.plan.nodes:
        ledger = Ledger(tmp_path / f"{name}.ledger", name)
        states[name] = state_of(ledger, prepared)
        ledger.close()
    assert assert_one_baton(states).t == 20
    assert_conserved(result, prepared.plan.algorithm, states)


def test_a_random_walk_without_a_seed_is_a_function_of_the_runs_id(tmp_path):
    walk = Walk(tmp_path, setup(), seed=None)
    walk.run()
    seed = int.from_bytes(walk.centre.run[:8], "little")
    assert walk.collect().trajectory["active"].tolist() == random_walk(walk.setup.shown.graph, 0, 20, seed)
    walk.close()


def test_a_walk_that_moves_little_for_long_enough_stops_and_faults_do_not_change_where():
    over = {"algorithm": {"name": "iadmm", "rounds": 400, "rho": 5.0, "variant": "none"}, "privacy": None}
    raw = sensor_runs.scenario(over | TRAJECTORY, seed=11, **{"run.stop": {"tolerance": 1e-3, "patience": 2}})
    quiet = run(raw)
    assert quiet.stopped_because == "tolerance"
    moved = np.max(np.abs(np.diff(quiet.trajectory["z"], axis=0)), axis=1)
    calm = [bool(m <= 1e-3) for m in moved]
    assert calm[-8:] == [True] * 8
    assert not any(all(calm[k : k + 8]) for k in range(len(calm) - 8))
    fleet.assert_same_bits(quiet, run(raw, set={"run.faults": FAULTS}))


# --- a node that is cut off ---

FOUR = {"network": {"kind": "complete", "nodes": 4}}
LONG = {
    "recal": FOUR | {"algorithm.rounds": 60},
    "iadmm": FOUR | {"algorithm": {"name": "iadmm", "rounds": 60, "rho": 1.0}},
    "wadmm": FOUR | {"algorithm": {"name": "wadmm", "rounds": 60, "rho": 1.0}},
}
CUT = 9  #: the token whose receiver is cut off


def cut_off(walk, moment, hop=CUT):
    """Who is delivered token `hop` first is cut off before it, after it, or between taking it and saying so: its name."""
    victim = []

    def at(delivery):
        if token_of(delivery) == (hop, 0) and not victim:
            victim.append(delivery.dst)
            return moment
        return None

    walk.hub.moment = at
    return victim


BACK = {
    "in the suspicion": lambda watch: watch.suspect,
    "after it": lambda watch: watch.notice.fences and watch.held[1] >= CUT + 8,
    "never": lambda watch: False,
}


@pytest.mark.parametrize("back", BACK)
@pytest.mark.parametrize("moment", ["before", "between", "after"])
@pytest.mark.parametrize("algorithm", LONG)
def test_a_holder_that_is_cut_off_leaves_one_baton_and_every_step_counted_once(tmp_path, algorithm, moment, back):
    walk = Walk(tmp_path, setup(LONG[algorithm], seed=11))
    victim = cut_off(walk, moment)

    def again(walk):
        if victim and BACK[back](walk.watch):
            walk.hub.back(victim[0])

    walk.run(again)
    assert walk.centre.error is None
    (name,) = victim
    states, result = walk.states(), walk.collect()
    assert assert_one_baton(states).t == result.rounds_done == 60
    assert_conserved(result, walk.setup.plan.algorithm, states)
    assert result.lost == ([name] if back == "never" else [])
    # Where its step was undone, what that has spent stays, in its ledger and in the account of the run.
    made = int(np.sum(result.trajectory["active"] == int(name[1:])))
    spent = [spend.answer for spend in walk.ledgers[name].spends()]
    undone = walk.undone(name)
    assert undone == (moment == "between" and back != "in the suspicion") or back == "in the suspicion"
    assert spent == list(range(1, min(made + undone, walk.setup.terms.answers) + 1))
    assert result.history[f"epsilon_{name}"][-1] == walk.setup.terms.cost(len(spent))
    walk.close()
