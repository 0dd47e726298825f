"""Custody over the wire: a node that is lost for good is walked around, or the run stops and says who is missing."""

import dataclasses
import re

import numpy as np
import pytest
from msgspec.structs import replace

from hushgrid.kernels.errors import Stopped
from hushgrid.node.problems import machines
from hushgrid.node.runtime import member
from hushgrid.node.wire import COORDINATOR, Publication
from tests.support.runs.custody_walks import CUT, LONG, LOST, assert_solved, cut_off, stands_still
from tests.support.runs.walk_in_memory import Walk, assert_conserved, assert_one_token, setup, token_of

# --- lost for good ---


def ended(walk, lost, over=None):
    """The result of a walk that ended with `lost` away, its custody and sums checked."""
    walk.run(*([over] if over else []))
    assert walk.centre.error is None
    result, states = walk.collect(), walk.states()
    assert result.lost == sorted(lost)
    assert_one_token(states)
    assert_conserved(result, walk.setup.plan.algorithm, states)
    walk.close()
    return result


@pytest.mark.runs
@pytest.mark.parametrize("moment", ["before", "between", "told", "untold", "after"])
@pytest.mark.parametrize("algorithm", LOST)
def test_without_a_lost_node_the_walk_tends_to_the_optimum_of_the_rest(tmp_path, algorithm, moment):
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    victim = cut_off(walk, moment)
    result = ended(walk, victim)
    assert_solved(walk, result, [n for n in walk.setup.plan.nodes if n not in victim])


@pytest.mark.runs
@pytest.mark.parametrize("hop", [1, 2, 3, 4])
@pytest.mark.parametrize("algorithm", LOST)
def test_a_node_is_lost_where_others_were_not_visited_yet(tmp_path, algorithm, hop):
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    victim = cut_off(walk, "before", hop)
    result = ended(walk, victim)
    assert_solved(walk, result, [n for n in walk.setup.plan.nodes if n not in victim])


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", LOST)
def test_who_is_to_issue_the_token_again_may_be_killed_before_it_hears_so(tmp_path, algorithm):
    """It comes back in the suspicion of itself. Its copy is still for the lost node, whose answer nobody needs any
    more.
    """
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    victim, keeper = cut_off(walk, "before"), []

    def again(walk):
        if victim and not keeper and walk.watch.notice.by:
            keeper.append(walk.watch.notice.by)
            topic, will = walk[keeper[0]].will
            walk.hub.publish([Publication(topic, will, True)])
            walk.hub.away.add(keeper[0])
        if keeper and walk.watch.suspect == keeper[0] and keeper[0] in walk.hub.away:
            walk.restart(keeper[0])
            walk.hub.back(keeper[0])

    result = ended(walk, victim, again)
    assert keeper
    assert_solved(walk, result, [n for n in walk.setup.plan.nodes if n not in victim])


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", LOST)
def test_a_node_that_was_never_visited_is_not_in_the_problem(tmp_path, algorithm):
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    walk.hub.moment = lambda delivery: "before" if delivery.dst == "n4" and token_of(delivery)[0] >= 0 else None
    result = ended(walk, ["n4"])
    assert 4 not in result.trajectory["active"]
    assert_solved(walk, result, ["n0", "n1", "n2", "n3"])


@pytest.mark.runs
@pytest.mark.parametrize("first", ["never visited", "lost"])
@pytest.mark.parametrize("algorithm", LOST)
def test_a_node_that_joins_is_counted_with_what_it_holds(tmp_path, algorithm, first):
    walk, victim = Walk(tmp_path, setup(LOST[algorithm], seed=11)), []

    def at(delivery):
        hop, _ = token_of(delivery)
        if not victim and ((hop >= 0 and delivery.dst == "n4") if first == "never visited" else hop == CUT):
            victim.append(delivery.dst)
            return "before"
        return None

    def again(walk):
        if victim and walk.watch.missing == tuple(victim) and walk.watch.held[1] > 100:
            walk.hub.back(victim[0])

    walk.hub.moment = at
    result = ended(walk, [], again)
    active, toured = (result.trajectory[key] for key in ("active", "recount"))
    assert 100 < np.flatnonzero(toured)[-1] < len(active) - 100
    assert (int(victim[0][1:]) in active[:100]) == (first == "lost" and int(victim[0][1:]) in active[:CUT])
    assert_solved(walk, result, walk.setup.plan.nodes)


@pytest.mark.runs
@pytest.mark.parametrize("moment", ["before", "between"])
@pytest.mark.parametrize("algorithm", LOST)
def test_among_members_of_an_older_release_the_lost_node_leaves_its_last_linear_model(
    tmp_path, algorithm, moment, monkeypatch
):
    """One member that knows of no recount, and there is none: l leaves its multiplier in the sum for ever. Where the
    walk

    stands still every other node has y_i = x and lambda_i = f_i'(x) (RECAL), x_i = z and y_i = f_i'(z) (I-ADMM): F'(x)
    = 0,

        F(x) = sum_{i != l} f_i(x) + <lambda_l, x>   or   sum_{i != l} f_i(z) + <y_l, z> + rho/2 |z - x_l|^2,

    and the optimum of the others is missed by more than a thousandth.
    """
    plain = member.capabilities
    monkeypatch.setattr(member, "capabilities", lambda *a, **k: replace(plain(*a, **k), recounts=False))
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    victim = cut_off(walk, moment)
    result = ended(walk, victim)
    lost = int(victim[0][1:])
    assert result.solved == walk.setup.plan.nodes
    assert result.frozen == victim
    tilted, best = with_a_linear_model(walk, result, lost, [i for i in range(5) if i != lost])
    assert np.linalg.norm(result.solution["x"] - tilted) <= 1e-6 * np.linalg.norm(tilted)
    assert np.linalg.norm(result.solution["x"] - best) > 1e-3


def with_a_linear_model(walk, result, frozen, nodes):
    """argmin of F, and of the f_i of `nodes` alone. `frozen`: the node l whose last linear model is in F."""
    last = np.flatnonzero(result.trajectory["active"] == frozen)
    recal = walk.setup.plan.algorithm.name == "recal"
    own, zero = ("y", "lam") if recal else ("x", "y"), np.zeros(3)
    x_l, y_l = (result.trajectory[key][last[-1]] if last.size else zero for key in own)
    losses = [walk.setup.losses[i] for i in nodes]
    rho = 0.0 if recal else walk.setup.plan.algorithm.rho
    return stands_still(losses, y_l, rho, x_l), stands_still(losses)


@pytest.mark.runs
@pytest.mark.parametrize("away", [False, True], ids=["capped", "capped and another lost"])
@pytest.mark.parametrize("algorithm", LOST)
def test_a_node_beyond_its_cap_stays_by_its_last_linear_model_and_a_recount_counts_that(
    tmp_path, algorithm, away, monkeypatch
):
    """Where exact answers are capped, n2's at three. A lost node is taken out; what n2 holds is counted as it is."""
    plain = machines._on_walk
    monkeypatch.setattr(
        machines, "_on_walk", lambda *a: dataclasses.replace(p := plain(*a), cap=3 if p.name == "n2" else None)
    )
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    victim = cut_off(walk, "before", 120) if away else []
    result = ended(walk, victim)
    left = [i for i in range(5) if f"n{i}" not in victim]
    assert 2 in left
    assert result.solved == [f"n{i}" for i in left]
    tilted, best = with_a_linear_model(walk, result, 2, [i for i in left if i != 2])
    assert np.linalg.norm(result.solution["x"] - tilted) <= 1e-9
    assert np.linalg.norm(result.solution["x"] - best) > 1e-3


@pytest.mark.runs
@pytest.mark.parametrize("back", [False, True], ids=["lost", "back"])
@pytest.mark.parametrize("algorithm", LOST)
def test_two_nodes_of_five_may_be_left_and_all_come_back(tmp_path, algorithm, back):
    """A step that is right for a fleet is right for what is left of it: the limit is the optimum of those two."""
    walk, gone, hops = Walk(tmp_path, setup(LOST[algorithm], seed=11)), [], (60, 90, 120)

    def at(delivery):
        if len(gone) < len(hops) and token_of(delivery)[0] == hops[len(gone)]:
            gone.append(delivery.dst)
            return "before"
        return None

    def again(walk):
        if back and len(gone) == len(hops) and walk.watch.missing == tuple(sorted(gone)):
            for name in gone:
                walk.hub.back(name)

    walk.hub.moment = at
    result = ended(walk, [] if back else gone, again)
    assert len(set(gone)) == 3
    assert_solved(walk, result, [n for n in walk.setup.plan.nodes if back or n not in gone])


def test_a_holder_whose_report_is_all_that_was_heard_is_found_behind_the_node_it_was_to_hand_on_to(tmp_path):
    walk = Walk(tmp_path, setup(LONG["recal"], seed=11))
    victim = cut_off(walk, "told", hop=7)  # every fourth token is reported
    walk.run()
    assert walk.centre.error is None
    assert walk.collect().lost == victim
    assert assert_one_token(walk.states()).t == 60
    walk.close()


def test_a_walks_end_that_only_the_node_before_it_has_heard_of_is_made_again(tmp_path):
    walk = Walk(tmp_path, setup(LONG["recal"], seed=11))
    victim = cut_off(walk, "untold", hop=59)
    walk.run()
    assert walk.centre.error is None
    assert walk.collect().lost == victim
    assert assert_one_token(walk.states()).t == 60
    walk.close()


@pytest.mark.runs
def test_a_node_that_dies_beside_the_walk_is_walked_around_and_a_holder_may_die_after_it(tmp_path):
    many = {"network": {"kind": "complete", "nodes": 24}, "algorithm.walk": "hamiltonian", "algorithm.rounds": 80}
    walk = Walk(tmp_path, setup(many, seed=11))
    lost = {}

    def at(delivery):
        hop, _ = token_of(delivery)
        if hop == 6 and "beside" not in lost:  # it made activation 2, and would be next at 26
            lost["beside"] = next(n for n in walk.setup.plan.nodes if walk[n].driver.machine.state.t == 3)
            topic, will = walk[lost["beside"]].will
            walk.hub.publish([Publication(topic, will, True)])
            walk.hub.away.add(lost["beside"])
        if hop == 40 and "holder" not in lost:
            lost["holder"] = delivery.dst
            return "between"
        return None

    walk.hub.moment = at
    walk.run()
    assert walk.centre.error is None
    assert any(line == f"the walk goes around {lost['beside']}" for line in walk.logs[COORDINATOR])
    result = walk.collect()
    assert result.lost == sorted(lost.values())
    assert_conserved(result, walk.setup.plan.algorithm, walk.states())
    walk.close()


@pytest.mark.runs
def test_a_coordinator_that_restarts_in_a_suspicion_goes_on_with_it(tmp_path):
    for restarts in (1, 3):
        walk = Walk(tmp_path / str(restarts), setup(LONG["recal"], seed=11))
        victim, times = cut_off(walk, "between"), []

        def again(walk, times=times, restarts=restarts):
            answers = len(walk.centre.monitor.state.answers) if walk.centre.driver else 0
            if len(times) < restarts and walk.centre.driver and walk.watch.suspect and answers == len(times):
                times.append(answers)
                walk.restart(COORDINATOR)

        walk.run(again)
        assert len(times) == restarts
        assert walk.centre.error is None
        assert walk.collect().lost == victim
        assert_one_token(walk.states())
        walk.close()


PATH = {"network": {"kind": "path", "nodes": 3}}
GIVEN = {"algorithm.walk": [0, 1, 2, 3] * 15, "algorithm.rounds": 60}


@pytest.mark.parametrize(
    ("over", "hop", "says"),
    [
        (PATH, 3, r"^without n1 the network falls apart: expected two nodes or more, connected$"),
        (GIVEN, 6, r"^n2 is lost and the walk is given, expected algorithm.walk: random or hamiltonian$"),
    ],
    ids=["a path", "a given walk"],
)
def test_where_nobody_can_walk_around_a_lost_node_the_run_stops_and_says_so(tmp_path, over, hop, says):
    walk = Walk(tmp_path, setup(over, seed=11))
    cut_off(walk, "before", hop)
    walk.run()
    assert isinstance(walk.centre.error, Stopped)
    assert re.match(says, str(walk.centre.error))
    assert walk.centre.error.exit_code == 4
    walk.close()


def test_a_holder_lost_together_with_the_node_before_it_stops_the_run_and_both_are_named(tmp_path):
    walk = Walk(tmp_path, setup(LONG["recal"], seed=11))
    victim, before = cut_off(walk, "before"), []

    def again(walk):
        if victim and not before:
            before.extend(n for n in walk.setup.plan.nodes if walk[n].driver.machine.state.t == CUT)
            walk.hub.away.update(before)

    walk.run(again)
    pair = ", ".join(sorted(victim + before))
    assert re.match(
        rf"^token \d+ stands still between n\d and n\d since \d\d:\d\d:\d\d, {pair} silent, expected an answer$",
        str(walk.centre.error),
    )
    walk.close()
