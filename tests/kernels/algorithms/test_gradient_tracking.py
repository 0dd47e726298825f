"""Gradient tracking: its papers' box, its limit, its bound, and what the gate's noise does to it."""

import numpy as np
import pytest

from hushgrid.kernels.algorithms.gradient_tracking import Node, Params
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from tests.support.agents.lockstep_rounds import Data, classification, messages, name, run, states, weights

N, D = 6, 3
GRAPHS = {
    "ring": Network(kind="ring", nodes=N).build(),
    "complete": Network(kind="complete", nodes=N).build(),
    "geometric": Network(kind="geometric", nodes=N, radius=0.6, seed=3).build(),
}
LOGISTIC = classification(Objective(kind="logistic", l2=0.1), N, 20, D, 4)


def nodes(fs, graph, rounds, step_size, noise=None, variant="none"):
    """A node for each function. `noise`: (n, answers, d), on its gate's answers."""
    p = Params(rounds=rounds, step_size=step_size, variant=variant)
    oracles = [Data(f, None if noise is None else noise[i]) for i, f in enumerate(fs)]
    return [Node(p, oracle, weights(graph, i), D, name(i)) for i, oracle in enumerate(oracles)]


@pytest.mark.runs
@pytest.mark.parametrize("kind", GRAPHS)
def test_it_converges_to_the_central_optimum(kind):
    star = optimum(LOGISTIC, Regularizer())
    assert star.distance <= 1e-13
    x = run(nodes(LOGISTIC, GRAPHS[kind], 4000, 0.1 / max(f.L for f in LOGISTIC)))
    assert np.max(np.linalg.norm(x - star.x, axis=1)) <= 1e-10 * np.linalg.norm(star.x)


def test_its_iterates_are_those_of_the_papers_in_matrices():
    """A few dozen rounds, each a dozen roundings of numbers below 10. Message 1 is the public start."""
    graph, alpha = GRAPHS["geometric"], 0.1
    W = graph.metropolis()

    def gradients(x):
        return np.array([f.gradient(row) for f, row in zip(LOGISTIC, x, strict=True)])

    x = np.zeros((N, D))
    y = gradients(x)
    for t, sent in messages(nodes(LOGISTIC, graph, 40, alpha)):
        if t == 1:
            assert not sent.any()
            continue
        assert np.max(np.abs(sent - np.hstack([x, y]))) <= 1e-12
        new = W @ x - alpha * y
        x, y = new, W @ y + gradients(new) - gradients(x)
    assert np.linalg.norm(x) > 0.1


def test_a_gate_is_asked_once_a_gradient_and_the_sum_of_y_has_the_noise_of_the_last_answers_alone():
    rounds = 25
    noise = np.random.default_rng(1).normal(size=(N, rounds - 1, D))
    fleet = nodes(LOGISTIC, GRAPHS["ring"], rounds, 0.1, noise, "guarded")
    for k, _ in enumerate(messages(fleet)):
        asked = min(k + 1, rounds - 1)
        assert {len(node.gate.answers) for node in fleet} == {asked}
        last = sum(node.gate.answers[-1] for node in fleet)
        assert np.max(np.abs(states(fleet, "y").sum(axis=0) - last)) <= 1e-12
        if k + 1 < rounds:
            exact = sum(f.gradient(node.state.x) for f, node in zip(LOGISTIC, fleet, strict=True))
            assert np.max(np.abs(last - exact - noise[:, k].sum(axis=0))) <= 1e-12
    assert asked == fleet[0].messages - 1


@pytest.mark.runs
@pytest.mark.parametrize(("part", "stable"), [(0.98, True), (1.05, False)])
def test_its_bound_is_that_of_the_smallest_eigenvalue_of_W(part, stable):
    """Least squares of the same curvature h = 1 at three nodes on a path: alpha < (1 + w)^2/2, w the smallest
    eigenvalue.
    """
    graph = Network(kind="path", nodes=3).build()
    rows = np.sqrt(D) * np.eye(D)
    fs = [Loss(Objective(kind="least-squares"), rows, np.full(D, float(i**2))) for i in range(3)]
    limit = (1 + float(np.linalg.eigvalsh(graph.metropolis())[0])) ** 2 / 2
    degree = max(map(len, graph.neighbours))
    assert Params(rounds=1, step_size=limit).step_ratio([1.0] * 3, degree) >= 1  # the public bound is no larger
    with np.errstate(over="ignore", invalid="ignore"):
        x = run(nodes(fs, graph, 4000, part * limit))
    assert bool(np.max(np.abs(x)) < 10) == stable
