"""kill -9 of anything, at any instant: the answer keeps its bits, and no ledger shows less than what has left.

And what cannot go on ends: said in one line, in bounded time, with nothing left behind.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import Stopped
from tests.support.runs import background_run

NODES = ("z1", "z2", "z3")
EVERYBODY = (*NODES, "coordinator")


def scenario(rounds, seed=5):
    return background_run.scenario({"algorithm.rounds": rounds}, seed=seed)


def recorded(raw):
    return raw | {"run": {"record": "transcript"}}


def storm(background, kills, dice, pause, victims=EVERYBODY):
    """Kill -9 random processes of the run, at random instants. How often it struck while the run was going."""
    struck = 0
    while struck < kills and background.going:
        time.sleep(dice.uniform(0.0, pause))
        alive = [p for name, p in background.children().items() if name in victims]
        if alive:
            dice.choice(alive).kill()
            struck += 1
    return struck


def assert_whole(result, state, rounds):
    """Every spend is in its ledger, once; every message on the wire had its spends there; none had two contents."""
    for node in NODES:
        assert background_run.spends(state / f"{node}.ledger") == [(k, k) for k in range(1, rounds + 1)]
    seen = {}
    for src, dst, envelope, payload in background_run.envelopes(result.transcript):
        kind = type(envelope.body).__name__
        seen.setdefault((kind, src, dst, envelope.run, envelope.epoch, envelope.seq), set()).add(payload)
        if kind == "Z":
            assert envelope.mark.no == envelope.seq, "a message whose spends are not the ledger's"
    assert [key for key, payloads in seen.items() if len(payloads) > 1] == []
    answers = sorted((src, seq) for kind, src, _, _, _, seq in seen if kind == "Z")
    assert answers == [(node, t) for node in NODES for t in range(1, rounds + 1)]


def test_killed_at_random_the_answer_keeps_its_bits(tmp_path, any_broker):
    raw = scenario(rounds=200)
    background = background_run.Background(
        recorded(raw), transport="mqtt", broker=any_broker.url, state=tmp_path / "state", out=tmp_path / "out"
    )
    assert storm(background, 10, random.Random(1), pause=0.3) == 10
    result = background.wait(600)
    background_run.assert_same_bits(run(raw), result)
    assert_whole(result, tmp_path / "state", 200)
    assert background.processes() == []
    assert background_run.retained(any_broker.url) == {}


def test_a_broker_killed_and_started_again_changes_nothing(tmp_path, any_broker):
    raw = scenario(rounds=150)
    background = background_run.Background(raw, transport="mqtt", broker=any_broker.url, state=tmp_path / "state")
    for _ in range(2):
        background.when(lambda: len(spends_so_far(tmp_path)) == 3)
        any_broker.restart()
        storm(background, 1, random.Random(1), pause=0.0)
    background_run.assert_same_bits(run(raw), background.wait(600))
    for node in NODES:
        assert background_run.spends(tmp_path / "state" / f"{node}.ledger") == [(k, k) for k in range(1, 151)]
    assert background_run.retained(any_broker.url) == {}


def spends_so_far(tmp_path):
    """Nodes with a ledger."""
    return [node for node in NODES if (tmp_path / "state" / f"{node}.ledger").exists()]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_coordinator_killed_as_the_run_ends_runs_nothing_twice(tmp_path, any_broker, moment):
    raw = scenario(rounds=20)
    background = background_run.Background(raw, transport="mqtt", broker=any_broker.url, state=tmp_path / "state")
    victim = background.child("coordinator")
    place = Path(victim.cmdline()[-1]).parent
    background.when(lambda: (place / "outcome.json").exists() if moment == "after" else last_round(place) == 20)
    victim.kill()
    background_run.assert_same_bits(run(raw), background.wait(600))
    for node in NODES:
        assert background_run.spends(tmp_path / "state" / f"{node}.ledger") == [(k, k) for k in range(1, 21)]


def last_round(place):
    """What the coordinator has said last."""
    try:
        return int((place / "outcome.progress").read_text().strip("[").split(",")[0])
    except (OSError, ValueError):
        return 0


def test_a_node_that_falls_silent_is_named(any_broker):
    background = background_run.Background(
        scenario(rounds=100_000), transport="mqtt", broker=any_broker.url, silent_s=1.0
    )
    victim = background.child("z2")
    place = Path(victim.cmdline()[-1]).parent
    background.when(lambda: last_round(place) > 0)
    os.kill(victim.pid, signal.SIGSTOP)
    with pytest.raises(Stopped, match=r"^z2 silent since \d\d:\d\d:\d\d \(\d+ s\); spent of a node") as stopped:
        background.wait(600)
    assert stopped.value.exit_code == 4
    assert background.processes() == []
    assert background_run.retained(any_broker.url) == {}


def test_a_broker_that_is_gone_for_good_ends_the_run(any_broker):
    background = background_run.Background(
        scenario(rounds=100_000), transport="mqtt", broker=any_broker.url, silent_s=1.0
    )
    place = Path(background.child("coordinator").cmdline()[-1]).parent
    background.when(lambda: last_round(place) > 0)
    any_broker.kill()
    with pytest.raises(Stopped, match=r"^broker mqtt:.*: .*, away for 1 s; spent of"):
        background.wait(600)
    assert background.processes() == []


@pytest.mark.mosquitto
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path, start_mosquitto, number):
    broker = start_mosquitto(config=["sys_interval 1"])
    file, out = tmp_path / "endless.yaml", tmp_path / "out"
    file.write_text(json.dumps(scenario(rounds=100_000)))  # JSON is YAML
    command = [sys.executable, "-m", "hushgrid", "run", str(file), "--transport", "mqtt", "--broker"]
    program = subprocess.Popen([*command, broker.url, "--out", str(out), "--quiet"], stderr=subprocess.PIPE, text=True)
    with program:
        until = time.monotonic() + 300
        while not any("coordinator" in topic for topic in background_run.retained(broker.url, 0.2)):
            assert time.monotonic() < until
        children = psutil.Process(program.pid).children(recursive=True)
        assert len(children) == 4
        program.send_signal(number)
        _, said = program.communicate(timeout=300)
    assert (program.returncode, said.count("\n")) == (4, 1)
    assert "interrupted" in said
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert background_run.retained(broker.url) == {}
    assert background_run.sessions(broker.url) == 0
    assert not out.exists()
