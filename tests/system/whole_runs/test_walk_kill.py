"""A walk under fire: kill -9 of anything, messages again and out of order, the broker gone and back. The bits stay.

And over a real broker a node that stops for a while, or for good, is walked around.
"""

import os
import random
import signal
from contextlib import closing
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.node.privacy.ledger import Ledger
from tests.support.runs import background_run
from tests.support.runs.storms import Replayer, storm
from tests.support.runs.walk_in_memory import assert_conserved, assert_one_token, setup, state_of
from tests.support.scenarios import record_scenarios

RING = {"network": {"kind": "ring", "nodes": 8}}
ALGORITHMS = {"recal": {"name": "recal"}, "iadmm": {"name": "iadmm", "rho": 1.0}}
#: Without noise, so that the limit is an optimum.
EXACT = {
    "recal": {"name": "recal", "variant": "none"},
    "iadmm": {"name": "iadmm", "variant": "none", "rho": 0.3},
    "wadmm": {"name": "wadmm", "variant": "none", "rho": 0.3},
}


def scenario(algorithm, rounds, over=RING, **more):
    raw = over | {"algorithm": ALGORITHMS[algorithm] | {"rounds": rounds}, "run.record": "trajectory"}
    return record_scenarios.scenario(raw, **more)


def last_states(directory, prepared):
    found = {}
    for name in prepared.plan.nodes:
        with closing(Ledger(directory / f"{name}.ledger", name)) as ledger:
            found[name] = state_of(ledger, prepared)
    return found


def under_fire(tmp_path, broker, algorithm, rounds, blows, pause=0.1):
    raw = scenario(algorithm, rounds, seed=11)
    background = background_run.Background(
        raw, transport="mqtt", broker=broker.url, state=tmp_path / "state", silent_s=600.0
    )
    storm(background, broker, blows, random.Random(1), pause)
    result, quiet = background.wait(600), run(raw)
    background_run.assert_same_bits(quiet, result)
    prepared = setup(RING | {"algorithm": ALGORITHMS[algorithm] | {"rounds": rounds}}, seed=11)
    states = last_states(tmp_path / "state", prepared)
    assert assert_one_token(states).t == rounds
    assert all(s.known == () for s in states.values())  # nothing was issued again
    assert_conserved(result, prepared.plan.algorithm, states)
    for i, name in enumerate(prepared.plan.nodes):
        visits = int(np.sum(result.trajectory["active"] == i))
        answers = min(visits, prepared.plan.caps[i])
        assert background_run.spends(tmp_path / "state" / f"{name}.ledger") == [(k, k) for k in range(1, answers + 1)]
    assert [p for p in background.processes() if p.pid != broker.pid] == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_walk_under_fire_keeps_its_bits(tmp_path, any_broker, algorithm):
    blows = {"kill": 4, "restart": 1, "duplicate": 8, "reorder": 7}
    rounds = 3000 if any_broker.name.startswith("mosquitto") else 1200  # it must outlast the blows
    under_fire(tmp_path, any_broker, algorithm, rounds, blows, pause=0.03)


# --- over a real broker: a node that stops ---


FIVE = {"network": {"kind": "complete", "nodes": 5}}


def impatient(algorithm, rounds, broker, state, over=FIVE, seed=11):
    """A run that walks, and whose coordinator soon suspects."""
    raw = scenario(algorithm, rounds, over, seed=seed)
    background = background_run.Background(raw, transport="mqtt", broker=broker.url, state=state, silent_s=1.0)
    with closing(Replayer(broker.url, None)) as listener:
        background.when(listener.walking)
    return background


def said(background, words):
    """Whether the coordinator has said this."""
    place = background.child("coordinator").cmdline()[-1].replace(".json", ".log")
    return words in Path(place).read_text()


def assert_custody(result, state, algorithm, rounds, over=FIVE, seed=11):
    prepared = setup(over | {"algorithm": ALGORITHMS[algorithm] | {"rounds": rounds}}, seed=seed)
    states = last_states(state, prepared)
    assert assert_one_token(states).t == result.rounds_done == rounds
    assert_conserved(result, prepared.plan.algorithm, states)
    for i, (name, own) in enumerate(states.items()):
        asking = (result.trajectory["active"] == i) & ~result.trajectory["recount"]
        cap = prepared.plan.caps[i] if prepared.plan.caps else rounds
        assert background_run.spends(state / f"{name}.ledger") == [(k, k) for k in range(1, own.answers + 1)]
        assert min(int(np.sum(asking)), cap) <= own.answers <= cap  # an undone one is paid, one of a recount is none
    return states


def test_a_node_that_stops_and_goes_on_is_walked_around_and_to_again(tmp_path, any_broker):
    background = impatient("recal", 4000, any_broker, tmp_path / "state")
    victim = background.child("n2")
    os.kill(victim.pid, signal.SIGSTOP)
    background.when(lambda: said(background, "the walk goes around n2"))
    os.kill(victim.pid, signal.SIGCONT)
    result = background.wait(120)
    assert_custody(result, tmp_path / "state", "recal", 4000)
    assert result.lost == []
    assert result.solved == ["n0", "n1", "n2", "n3", "n4"]
    assert 2 in result.trajectory["active"][-50:]


def test_a_node_that_stops_for_good_is_walked_around_and_named(tmp_path, any_broker):
    background = impatient("iadmm", 4000, any_broker, tmp_path / "state")
    os.kill(background.child("n3").pid, signal.SIGSTOP)
    background.when(lambda: said(background, "n3 is feared lost"))
    for name in ("n0", "n2", "n4"):
        background.child(name).kill()  # they come back, and pay for nothing twice
    result = background.wait(120)
    states = assert_custody(result, tmp_path / "state", "iadmm", 4000)
    assert result.lost == ["n3"]
    assert result.solved == ["n0", "n1", "n2", "n4"]
    assert max(len(s.known) for s in states.values()) >= 1
    assert 3 not in result.trajectory["active"][-50:]


@pytest.mark.parametrize("back", [False, True], ids=["lost", "joins"])
@pytest.mark.parametrize("algorithm", EXACT)
def test_the_limit_is_the_optimum_of_the_nodes_that_are_there(tmp_path, mosquitto, algorithm, back, monkeypatch):
    """One node stops; in the recount around it two others are killed and start again. To 1e-9, as the result says
    whose.
    """
    monkeypatch.setattr(f"{__name__}.ALGORITHMS", EXACT)
    plain, rounds = FIVE | {"privacy": None, "problem.kind": "least-squares"}, 2400
    background = impatient(algorithm, rounds, mosquitto, tmp_path / "state", plain)
    victim = background.child("n3")
    os.kill(victim.pid, signal.SIGSTOP)
    background.when(lambda: said(background, "n3 is feared lost"))
    for name in ("n1", "n4"):
        background.child(name).kill()
    if back:
        background.when(lambda: said(background, "the walk goes around n3"))
        os.kill(victim.pid, signal.SIGCONT)
    result = background.wait(240)
    assert_custody(result, tmp_path / "state", algorithm, rounds, plain)
    assert result.lost == ([] if back else ["n3"])
    assert result.solved == [f"n{i}" for i in range(5) if back or i != 3]
    assert result.trajectory["recount"].any()
    assert result.relative_error <= 1e-9


#: Five in a group, and two behind them, one behind the other: this walk is at the last one first with activation 249.
TAIL = {"network": {"kind": "edges", "nodes": 7, "edges": [*combinations(range(5), 2), (4, 5), (5, 6)]}}


@pytest.mark.parametrize("back", [False, True], ids=["lost", "joins"])
@pytest.mark.parametrize("algorithm", EXACT)
def test_a_node_that_stops_before_its_first_visit_is_in_the_problem_when_it_joins(
    tmp_path, mosquitto, algorithm, back, monkeypatch
):
    """It joins as soon as the walk has gone around it. Of the activations left RECAL, the slowest, needs 4000 for 1e-9:
    its error falls by e in 220 here (4e-2 with 150 left, 1e-8 with 3500, 2e-13 with 5700); the others need 500."""
    walks = {name: keys | {"walk": "random"} for name, keys in EXACT.items()}
    monkeypatch.setattr(f"{__name__}.ALGORITHMS", walks)
    plain, rounds = TAIL | {"privacy": None, "problem.kind": "least-squares"}, 12_000
    background = impatient(algorithm, rounds, mosquitto, tmp_path / "state", plain, seed=349)
    victim = background.child("n6")
    os.kill(victim.pid, signal.SIGSTOP)
    background.when(lambda: said(background, "the walk goes around n6"))
    if back:
        os.kill(victim.pid, signal.SIGCONT)
    result = background.wait(240)
    assert_custody(result, tmp_path / "state", algorithm, rounds, plain, seed=349)
    active, toured = (result.trajectory[key] for key in ("active", "recount"))
    visits = np.flatnonzero((active == 6) & ~toured)
    assert back or not visits.size
    assert not back or visits[0] > np.flatnonzero(toured)[0]
    assert result.lost == ([] if back else ["n6"])
    assert result.solved == [f"n{i}" for i in range(7) if back or i != 6]
    assert result.relative_error <= 1e-9
