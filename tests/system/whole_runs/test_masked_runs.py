"""Masked runs through real brokers: the bits of memory, kill -9 of every role, a ledger that is lost with its key."""

import random
import time

import pytest

from hushgrid.broker.simulation import run
from tests.support.runs import background_run
from tests.support.runs.masked_runs import assert_no_pad_twice, masked, summed

TRANSCRIPT = {"record": "transcript"}
NODES = ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize("make", [masked, summed], ids=["fedavg", "sum"])
def test_through_a_broker_the_bits_are_those_of_memory(tmp_path, any_broker, make):
    raw = make(tmp_path, run={"record": "trajectory"})
    background_run.assert_same_bits(run(raw), run(raw, transport="mqtt", broker=any_broker.url))


def test_among_few_neighbours_too(tmp_path, any_broker):
    few = {"masked": {"corrupt": 1, "neighbours": 3, "exposed": 1e-3}}
    raw = masked(tmp_path, nodes=6, privacy=few, run={"record": "trajectory"})
    background_run.assert_same_bits(run(raw), run(raw, transport="mqtt", broker=any_broker.url))


@pytest.mark.parametrize("early", [True, False], ids=["while they meet", "later"])
def test_killed_at_random_the_answer_keeps_its_bits_and_no_pad_is_used_twice(tmp_path, any_broker, early):
    raw = masked(tmp_path, algorithm={"rounds": 60}, run=TRANSCRIPT)
    background = background_run.Background(
        raw, transport="mqtt", broker=any_broker.url, state=tmp_path / "state", silent_s=120.0
    )
    dice, struck = random.Random(int(early)), 0
    while struck < 8 and background.going:
        time.sleep(dice.uniform(0.0, 0.1 if early else 0.8))
        alive = list(background.children().values())
        if alive:
            dice.choice(alive).kill()
            struck += 1
    result = background.wait(600)
    background_run.assert_same_bits(run(raw), result)
    assert_no_pad_twice(result.transcript)
    for node in NODES:
        assert background_run.spends(tmp_path / "state" / f"{node}.ledger") == [(k, k) for k in range(1, 61)]
    assert background_run.retained(any_broker.url) == {}


def test_killed_while_they_meet_a_sum_keeps_its_bits_and_is_paid_once(tmp_path, any_broker):
    raw = summed(tmp_path, "gram", run=TRANSCRIPT)
    for seed in range(3):
        state = tmp_path / f"state{seed}"
        background = background_run.Background(
            raw, transport="mqtt", broker=any_broker.url, state=state, silent_s=120.0
        )
        dice = random.Random(seed)
        for _ in range(4):
            time.sleep(dice.uniform(0.0, 0.4))
            if background.going and (alive := list(background.children().values())):
                dice.choice(alive).kill()
        result = background.wait(300)
        background_run.assert_same_bits(run(raw), result)
        assert_no_pad_twice(result.transcript)
        for node in NODES:
            assert background_run.spends(state / f"{node}.ledger") == [(1, 1)]


def test_a_device_whose_ledger_is_lost_has_lost_its_key_and_the_others_go_on(tmp_path, any_broker):
    raw = masked(
        tmp_path, algorithm={"rounds": 300}, privacy={"masked": {"corrupt": 1, "contributors": 3}}, run=TRANSCRIPT
    )
    state = tmp_path / "state"
    background = background_run.Background(raw, transport="mqtt", broker=any_broker.url, state=state, silent_s=8.0)
    background.when(lambda: (state / "n2.ledger").exists() and len(background_run.spends(state / "n2.ledger")) > 20)
    victim = background.child("n2")
    victim.suspend()
    for file in state.glob("n2.ledger*"):
        file.unlink()
    victim.kill()
    result = background.wait(600)
    of = assert_no_pad_twice(result.transcript)
    sets = [(m.body.round, m.body.attempt, m.body.among) for m in of.messages if hasattr(m.body, "attempt")]
    assert max(sets)[2] == ("n0", "n1", "n3")  # the last round
    assert result.summary["rounds_done"] == 300
    assert {a for _, a, _ in sets} >= {1, 2}
