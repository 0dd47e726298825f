"""Custody over the wire: a node that is lost for good is walked around, or the run stops and says who is missing."""

import re

import numpy as np
import pytest

from hushgrid.kernels.errors import Stopped
from hushgrid.node.wire import COORDINATOR, Publication
from tests.support.runs.custody_walks import CUT, FOUR, LONG, cut_off
from tests.support.runs.walk_in_memory import Walk, assert_conserved, assert_one_token, setup, token_of

# --- lost for good ---


EXACT = {"privacy": None, "problem.kind": "least-squares"}
LOST = {
    "recal": FOUR | EXACT | {"algorithm": {"name": "recal", "rounds": 400, "variant": "none"}},
    "iadmm": FOUR | EXACT | {"algorithm": {"name": "iadmm", "rounds": 200, "rho": 0.3, "variant": "none"}},
}


@pytest.mark.parametrize("moment", ["before", "between"])
@pytest.mark.parametrize("algorithm", LOST)
def test_without_a_lost_node_the_walk_tends_to_the_optimum_of_the_rest_tilted_by_what_it_left(
    tmp_path, algorithm, moment
):
    """The lost node l leaves its multiplier in the sum for ever. Where the walk stands still, every other node has y_i = x

    and lambda_i = f_i'(x) (RECAL), x_i = z and y_i = f_i'(z) (I-ADMM), and the conserved sums read F'(x) = 0 with

        F(x) = sum_{i != l} f_i(x) + <lambda_l, x>   and   sum_{i != l} f_i(z) + <y_l, z> + rho/2 |z - x_l|^2.

    F is mu-strongly convex: its minimiser is within |F'(x)|/mu of any x, the whole network's optimum among them, so that
    the error is bounded by how far l was from agreeing when it was lost.
    """
    walk = Walk(tmp_path, setup(LOST[algorithm], seed=11))
    victim = cut_off(walk, moment)
    walk.run()
    result, states = walk.collect(), walk.states()
    assert result.lost == victim
    assert_one_token(states)
    assert_conserved(result, walk.setup.plan.algorithm, states)
    lost = int(victim[0][1:])
    last = np.flatnonzero(result.trajectory["active"] == lost)[-1]
    x_l, y_l = (result.trajectory[key][last] for key in (("y", "lam") if algorithm == "recal" else ("x", "y")))
    rho = 0.0 if algorithm == "recal" else walk.setup.plan.algorithm.rho
    losses = walk.setup.losses

    def slope(x):
        return sum(f.gradient(x) for i, f in enumerate(losses) if i != lost) + y_l + rho * (x - x_l)

    zero, axes = np.zeros(3), np.eye(3)
    H = np.array([slope(axis) - slope(zero) for axis in axes])
    mu, tilted = np.linalg.eigvalsh(H)[0], np.linalg.solve(H, -slope(zero))
    best = np.linalg.solve(np.array([sum(f.gradient(a) - f.gradient(zero) for f in losses) for a in axes]),
                           -sum(f.gradient(zero) for f in losses))  # fmt: skip
    x, size = result.solution["x"], np.linalg.norm(best)
    assert np.linalg.norm(x - tilted) <= 1e-6 * np.linalg.norm(tilted)
    assert result.relative_error * size <= np.linalg.norm(slope(best)) / mu + np.linalg.norm(x - tilted)
    walk.close()


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
