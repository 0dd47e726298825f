"""Rounds among neighbours under fire: kill -9 of anything, messages again and out of order, the broker gone and back.

The bits stay. And who stays away ends the run: named, in one line, in bounded time.
"""

import base64
import os
import random
import signal
import time
from contextlib import closing
from functools import cache

import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.patterns.neighbours import Iterate
from hushgrid.node import wire
from tests.support.runs import background_run
from tests.support.runs.storms import Replayer, storm
from tests.support.scenarios.neighbour_scenarios import scenario

NODES = [f"n{i}" for i in range(4)]


def assert_one_body_each(transcript, messages):
    """What every node said as its message t is one vector, whoever was told and however often."""
    said = {}
    for line in transcript:
        if "/state/" not in line["topic"] and line["src"] != "coordinator":
            envelope = wire.decode_envelope(base64.b64decode(line["bytes"]), 1 << 20)
            if isinstance(envelope.body, Iterate):
                said.setdefault((line["src"], envelope.seq), set()).add(wire.encode(envelope.body))
    assert {len(bodies) for bodies in said.values()} == {1}
    assert {seq for _, seq in said} <= set(range(1, messages + 1))
    assert len(said) > messages  # the eavesdropper was away with the broker


@cache
def undisturbed(name, rounds):
    return run(scenario(name, rounds, seed=11))


def under_fire(tmp_path, broker, name, rounds, blows):
    raw, state = scenario(name, rounds, {"run.record": "transcript"}, seed=11), tmp_path / "state"
    background = background_run.Background(raw, transport="mqtt", broker=broker.url, state=state, silent_s=600.0)
    storm(background, broker, blows, random.Random(1), pause=0.1)
    result, quiet = background.wait(600), undisturbed(name, rounds)
    background_run.assert_same_bits(quiet, result)
    assert result.history["messages"] == quiet.history["messages"]
    answers = quiet.privacy["answers"]
    for node in NODES:
        assert background_run.spends(state / f"{node}.ledger") == [(k, k) for k in range(1, answers + 1)]
    assert_one_body_each(result.transcript, rounds * (2 if name == "dpp2" else 1))
    assert [p for p in background.processes() if p.pid != broker.pid] == []


@pytest.mark.parametrize(("name", "rounds"), [("dpp2", 150), ("mradmm", 300)])
def test_rounds_under_fire_keep_their_bits(tmp_path, any_broker, name, rounds):
    under_fire(tmp_path, any_broker, name, rounds, {"kill": 4, "restart": 1, "duplicate": 6, "reorder": 6})


def test_a_node_that_stops_for_a_while_is_waited_for(tmp_path, any_broker):
    raw = scenario("nids", 800, {"run.record": "trajectory"}, seed=11)
    background = background_run.Background(
        raw, transport="mqtt", broker=any_broker.url, state=tmp_path / "state", silent_s=30.0
    )
    with closing(Replayer(any_broker.url, None)) as listener:
        background.when(listener.walking)
    victim = background.child("n2")
    for _ in range(3):
        os.kill(victim.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(victim.pid, signal.SIGCONT)
        time.sleep(0.1)
    background_run.assert_same_bits(run(raw), background.wait(120))


def test_a_node_that_stays_away_is_named(tmp_path, any_broker):
    raw = scenario("nids", 100_000, {"privacy": None, "algorithm.variant": "none"})
    background = background_run.Background(raw, transport="mqtt", broker=any_broker.url, silent_s=2.0)
    with closing(Replayer(any_broker.url, None)) as listener:
        background.when(listener.walking)
    os.kill(background.child("n2").pid, signal.SIGSTOP)
    with pytest.raises(Stopped, match=r"^n2 silent since \d\d:\d\d:\d\d \(\d+ s\)$") as stopped:
        background.wait(600)
    assert stopped.value.exit_code == 4
    assert background.processes() == [] or [p.pid for p in background.processes()] == [any_broker.pid]
    assert background_run.retained(any_broker.url) == {}
