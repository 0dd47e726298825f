"""A walk under fire: kill -9 of anything, messages again and out of order, the broker gone and back. The bits stay.

And over a real broker a node that stops for a while, or for good, is walked around.
"""

import os
import random
import signal
import time
from contextlib import closing
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


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_five_hundred_blows_to_a_walk_change_no_bit(tmp_path, any_broker, algorithm):
    """Two algorithms: a thousand on each broker."""
    blows = {"kill": 100, "restart": 20, "duplicate": 190, "reorder": 190}
    rounds = 40_000 if any_broker.name.startswith("mosquitto") else 12_000  # it must outlast the blows
    under_fire(tmp_path, any_broker, algorithm, rounds, blows)


# --- over a real broker: a node that stops ---


FIVE = {"network": {"kind": "complete", "nodes": 5}}


def impatient(algorithm, rounds, broker, state):
    """A run that walks, and whose coordinator soon suspects."""
    raw = scenario(algorithm, rounds, FIVE, seed=11)
    background = background_run.Background(raw, transport="mqtt", broker=broker.url, state=state, silent_s=1.0)
    with closing(Replayer(broker.url, None)) as listener:
        background.when(listener.walking)
    return background


def said(background, words):
    """Whether the coordinator has said this."""
    place = background.child("coordinator").cmdline()[-1].replace(".json", ".log")
    return words in Path(place).read_text()


def assert_custody(result, state, algorithm, rounds):
    prepared = setup(FIVE | {"algorithm": ALGORITHMS[algorithm] | {"rounds": rounds}}, seed=11)
    states = last_states(state, prepared)
    assert assert_one_token(states).t == result.rounds_done == rounds
    assert_conserved(result, prepared.plan.algorithm, states)
    return states


def test_a_node_that_stops_and_goes_on_is_walked_around_and_to_again(tmp_path, any_broker):
    background = impatient("recal", 1200, any_broker, tmp_path / "state")
    victim = background.child("n2")
    os.kill(victim.pid, signal.SIGSTOP)
    background.when(lambda: said(background, "n2 is feared lost"))
    time.sleep(1.0)
    os.kill(victim.pid, signal.SIGCONT)
    result = background.wait(120)
    assert_custody(result, tmp_path / "state", "recal", 1200)
    assert result.lost == []
    assert 2 in result.trajectory["active"][-50:]


def test_a_node_that_stops_for_good_is_walked_around_and_named(tmp_path, any_broker):
    background = impatient("iadmm", 1200, any_broker, tmp_path / "state")
    os.kill(background.child("n3").pid, signal.SIGSTOP)
    result = background.wait(120)
    states = assert_custody(result, tmp_path / "state", "iadmm", 1200)
    assert result.lost == ["n3"]
    assert max(len(s.known) for s in states.values()) >= 1
    assert 3 not in result.trajectory["active"][-50:]
