"""A recount asks no gate and tells nothing of the data; a crash within one, or a bad network, changes neither sums nor
spends.
"""

import numpy as np
import pytest

from hushgrid.kernels.algorithms import iadmm, recal
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node import wire
from hushgrid.node.config.scenario import Faults
from hushgrid.node.wire import COORDINATOR
from tests.support import examples
from tests.support.runs.background_run import held_still, left_in, spends, with_data
from tests.support.runs.custody_walks import CUT, LONG, LOST, assert_solved, cut_off
from tests.support.runs.walk_in_memory import Walk, assert_conserved, assert_one_token, setup, token_of


def toured(delivery):
    """Whether a token of a recount is delivered."""
    return token_of(delivery)[0] >= 0 and wire.decode_envelope(delivery.payload, 1 << 20).body.leg.recount is True


def assert_each_answer_is_paid_once(walk, directory, result, states):
    """As many spends as activations that asked, the undone ones among them, and none of a recount's."""
    undone = {name: walk.undone(name) for name in states}
    walk.close()
    asked = result.trajectory["active"][~result.trajectory["recount"]]
    assert result.trajectory["recount"].any()
    for i, (name, state) in enumerate(states.items()):
        paid = min(int(np.sum(asked == i)) + undone[name], walk.setup.plan.caps[i])
        assert spends(directory / f"{name}.ledger") == [(k, k) for k in range(1, paid + 1)], name
        assert state.answers == paid


@pytest.mark.runs
@pytest.mark.parametrize("moment", ["killed before", "killed after"])
@pytest.mark.parametrize("algorithm", LONG)
def test_nodes_that_are_killed_in_a_recount_are_counted_once_and_pay_nothing_for_it(tmp_path, algorithm, moment):
    """At every one of its tokens, the coordinator too."""
    walk, killed = Walk(tmp_path, setup(LONG[algorithm], seed=11)), []
    victim, at = cut_off(walk, "before"), walk.hub.moment

    def then(delivery):
        if toured(delivery) and delivery.payload not in killed:
            killed.append(delivery.payload)
            walk.restart(COORDINATOR)
            return moment
        return at(delivery)

    walk.hub.moment = then
    walk.run()
    assert walk.centre.error is None
    assert len(killed) >= 2
    states, result = walk.states(), walk.collect()
    assert result.solved == [name for name in walk.setup.plan.nodes if name not in victim]
    assert assert_one_token(states).t == 60
    assert_conserved(result, walk.setup.plan.algorithm, states)
    assert_each_answer_is_paid_once(walk, tmp_path, result, states)


@pytest.mark.parametrize("algorithm", LONG)
def test_a_coordinator_that_asks_for_recount_after_recount_gets_no_answer_for_it(tmp_path, algorithm):
    walk, asked = Walk(tmp_path, setup(LONG[algorithm], seed=11)), []

    def again(walk):
        if walk.centre.driver and walk.watch.held[1] >= 8 * (len(asked) + 1) and len(asked) < 5:
            asked.append(walk.watch.held[1])
            walk.hub.publish(walk.centre._act(walk.centre.monitor.around(())))

    walk.run(again)
    assert walk.centre.error is None
    states, result = walk.states(), walk.collect()
    assert np.sum(result.trajectory["recount"]) == 4 * len(asked)
    assert_conserved(result, walk.setup.plan.algorithm, states)
    assert_each_answer_is_paid_once(walk, tmp_path, result, states)


@pytest.mark.runs
@pytest.mark.parametrize("back", [False, True], ids=["lost", "joins"])
@pytest.mark.parametrize("algorithm", LOST)
@pytest.mark.parametrize("seed", examples.few([1, 2, 3], [1]))
def test_on_a_network_that_loses_repeats_reorders_and_crashes_the_limit_is_that_of_who_is_there(
    tmp_path, algorithm, back, seed
):
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    walk.hub.faults = Faults(loss=0.1, duplicate=0.1, reorder=0.3, crash=0.03, seed=seed)
    walk.hub.random = np.random.Generator(np.random.Philox(key=seed))
    victim = cut_off(walk, "between", CUT)

    def again(walk):
        if back and victim and walk.watch.missing == tuple(victim) and walk.watch.held[1] > 100:
            walk.hub.back(victim[0])

    walk.run(again)
    assert walk.hub.crashes > 20
    assert walk.centre.error is None
    states, result = walk.states(), walk.collect()
    assert_one_token(states)
    assert_conserved(result, walk.setup.plan.algorithm, states)
    assert_solved(walk, result, [n for n in walk.setup.plan.nodes if back or n not in victim])
    walk.close()


def everything(directory, monkeypatch, algorithm, data="", release=None):
    """All that is published in a walk with a recount, by the node that has lost and by the one that joins again; and
    its ledgers.
    """
    with held_still(monkeypatch, release):
        walk, heard = Walk(directory, with_data(setup(LONG[algorithm], seed=11), data)), []
        victim = cut_off(walk, "between")
        walk.hub.eavesdrop = lambda topic, payload: heard.append((topic, payload))

        def again(walk):
            if victim and walk.watch.missing == tuple(victim) and walk.watch.held[1] > 30:
                walk.hub.back(victim[0])

        walk.run(again)
        assert walk.centre.error is None
        assert np.sum(walk.collect().trajectory["recount"]) >= 6
        walk.close()
    return heard, {name: rows for name, rows in left_in(directory).items() if "trace" not in name}


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", LONG)
def test_with_the_same_answers_a_recount_over_other_data_sends_the_same_bytes(tmp_path, monkeypatch, algorithm):
    one = everything(tmp_path / "own", monkeypatch, algorithm)
    for data in ("other rows", "far rows", "no rows", "one row"):
        heard, left = everything(tmp_path / data, monkeypatch, algorithm, data)
        assert heard == one[0], data
        assert left == one[1], data


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", LONG)
def test_the_comparison_fails_where_a_node_counts_what_it_has_not_released(tmp_path, monkeypatch, algorithm):
    agent = recal.Agent if algorithm == "recal" else iadmm.Agent
    honest = agent.counted
    monkeypatch.setattr(agent, "counted", lambda self: tuple(v + self.gate.loss.value(v) for v in honest(self)))
    one, other = (everything(tmp_path / data, monkeypatch, algorithm, data)[0] for data in ("no rows", "far rows"))
    assert one != other


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", LONG)
def test_it_fails_too_where_answers_follow_the_data(tmp_path, monkeypatch, algorithm):
    honest = Lattice.release
    one, other = (
        everything(tmp_path / data, monkeypatch, algorithm, data, honest)[0] for data in ("no rows", "far rows")
    )
    assert one != other
