"""Algorithm 3.1 on rows, all nodes sharing all of x in a box: stored iterates, its identities, and Theorems 5.3 to
5.5.
"""

from math import inf, sqrt

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.algorithms.ladmm import Agent, Constants, Params, Rho, Server
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.star import ServerContext
from hushgrid.kernels.problems.prox import Box
from tests.support.agents.ladmm_vectors import ABOUT, NODES, losses, machines, params, stored
from tests.support.agents.quadratic_star import converse


@pytest.mark.parametrize("name", ABOUT)
def test_the_machines_run_through_the_stored_iterates(name):
    """All modes, with the stored noise."""
    centre, agents = machines(name, params(name))
    for t, _ in enumerate(converse(centre, agents)):
        for p, node in enumerate(NODES):
            s = agents[node].state
            assert np.max(np.abs(s.mean - stored(name, "z")[t, p])) <= 1e-9
            assert np.max(np.abs(s.z - stored(name, "zend")[t, p])) <= 1e-9
            assert np.max(np.abs(s.lam - stored(name, "lam")[t, p])) <= 1e-9
            assert np.max(np.abs(centre.state.lam[node] - s.lam)) == 0.0
        if centre.state.done is None:  # the next round has begun
            assert np.max(np.abs(centre.state.w - stored(name, "w")[t + 1])) <= 1e-9
    assert centre.state.done == "rounds"
    assert centre.state.residual == pytest.approx(float(stored(name, "consensus_residual")), abs=1e-9)


@pytest.mark.parametrize("name", ["softmax_e3", "softmax_e1_noise"])  # (E.1) grows within the run
def test_what_a_node_keeps_is_the_mean_of_all_copies_one_round_before(name):
    """w^{t+1} alone tells it: neither w, which leaves the box, nor the node's own copy."""
    centre, agents = machines(name, params(name))
    last = np.zeros(centre.size)
    for _ in converse(centre, agents):
        for agent in agents.values():
            assert np.allclose(agent.outcome()["x"], last, rtol=1e-12, atol=1e-14)
        last = np.mean([agent.outcome()["z"] for agent in agents.values()], axis=0)


def test_a_node_that_begins_without_a_memory_of_the_mean_halves_its_error_each_round():
    """As after a warm start: the first w is then not the mean."""
    name = "softmax_e3_noise"
    centre, agents = machines(name, params(name))
    odd, last = agents["n0"], np.zeros(centre.size)
    odd.state.common = np.ones(centre.size)
    for t, _ in enumerate(converse(centre, agents), 1):
        assert np.allclose(odd.state.common - last, 0.5**t, rtol=1e-9, atol=1e-12)
        last = np.mean([agent.outcome()["z"] for agent in agents.values()], axis=0)


# --- E = 1, no noise ---


def projected_gradients(fs, box, eta, rho, rounds):
    """What Algorithm 3.1 is where the first gradient step of all copies is one and the same: written anew."""
    z, lam, w = [np.zeros(fs[0].size) for _ in fs], [np.zeros(fs[0].size) for _ in fs], None
    for _ in range(rounds):
        w = sum(z_p - lam_p / rho for z_p, lam_p in zip(z, lam, strict=True)) / len(fs)
        z = [
            np.clip(z_p - eta / (1 + eta * rho) * (f.gradient(z_p) - rho * (w - z_p) - lam_p), -box, box)
            for f, z_p, lam_p in zip(fs, z, lam, strict=True)
        ]
        lam = [lam_p + rho * (w - z_p) for z_p, lam_p in zip(z, lam, strict=True)]
    return z, w


def fleet(fs, box, rounds, **keys):
    size, L = fs[0].size, max(f.L for f in fs)
    p, every = msgspec.convert({"rounds": rounds} | keys, Params), np.arange(size)
    names = [f"n{i}" for i in range(len(fs))]
    centre = ServerContext(
        position=dict.fromkeys(names, every), start=dict.fromkeys(names, np.zeros(size)),
        epsilon=inf, tolerance=0.0, patience=0,
    )  # fmt: skip

    def agent(f):
        oracle = type("Plain", (), {"exact_gradient": staticmethod(f.gradient)})()
        alpha = f.objective.l2
        return Agent(p, oracle, Box(box), every, np.zeros(size), L, perturbation="none", alpha=alpha)

    return Server(p, centre), {name: agent(f) for name, f in zip(names, fs, strict=True)}


def test_one_local_update_without_noise_is_a_projected_step_of_eta_over_1_plus_eta_rho():
    """The paper's remark after 3.1: s = eta/(eta rho + 1)."""
    fs = losses("logistic_e1")
    centre, agents = fleet(fs, 0.3, 9, rho=0.7, eta=0.4)
    list(converse(centre, agents))
    z, w = projected_gradients(fs, 0.3, 0.4, 0.7, 9)
    assert np.allclose(centre.state.w, w, rtol=1e-12, atol=1e-14)
    for agent, own in zip(agents.values(), z, strict=True):
        assert np.allclose(agent.state.mean, own, rtol=1e-12, atol=1e-14)


@pytest.mark.runs
@pytest.mark.parametrize("box", [10.0, 0.3])
@pytest.mark.parametrize("rho", [0.1, 5.0])
def test_with_nodes_that_hold_the_same_rows_it_is_projected_gradient_descent(rho, box):
    """rho w^{t+1} + lambda^t = rho z^t: of the penalty is left that the step is s = eta/(1 + eta rho)."""
    f = losses("logistic_e1")[1]
    centre, agents = fleet([f] * 4, box, 30, rho=rho, eta=0.4)
    list(converse(centre, agents))
    x = np.zeros(f.size)
    for _ in range(30):
        x = np.clip(x - 0.4 / (1 + 0.4 * rho) * f.gradient(x), -box, box)
    assert box == 10.0 or np.any(np.abs(x) == box)
    for agent in agents.values():
        assert np.allclose(agent.state.mean, x, rtol=1e-10, atol=1e-12)


def test_in_a_slack_box_the_mean_copy_steps_along_the_mean_of_the_gradients_whatever_the_rows():
    """Averaged gradient descent, each gradient at the node's own copy."""
    fs = losses("logistic_e1")
    centre, agents = fleet(fs, 100.0, 20, rho=0.7, eta=0.4)
    x, own = np.zeros(fs[0].size), [np.zeros(fs[0].size) for _ in fs]
    for _ in converse(centre, agents):
        x = x - 0.4 / (1 + 0.4 * 0.7) * np.mean([f.gradient(z) for f, z in zip(fs, own, strict=True)], axis=0)
        own = [agent.state.mean for agent in agents.values()]
        assert np.allclose(np.mean(own, axis=0), x, rtol=1e-10, atol=1e-12)
    assert np.ptp(own, axis=0).max() > 1e-3  # and the copies are not one


# --- the rules of the theorems ---


def test_eta_has_the_rules_of_5_1a_and_5_3a():
    smooth, strong = Params(rounds=9, eta="1/(L+sqrt(t)/epsilon)"), Params(rounds=9, eta="2/(alpha(t+2))")
    assert smooth.eta_t(4, 10.0, 0.5) == 1 / (10.0 + 2.0 / 0.5)
    assert smooth.eta_t(4, 10.0) == 1 / 10.0  # nothing to hide
    assert strong.eta_t(4, 10.0, 0.5, alpha=0.25) == 2 / (0.25 * 6)
    smooth.check([1.0], 1, convexity=0.0)
    strong.check([1.0], 1, convexity=0.1)
    with pytest.raises(InputError, match=r"^algorithm\.eta: found a step of strong convexity, expected problem\.l2"):
        strong.check([1.0], 1, convexity=0.0)
    assert strong.eta_t(4, 10.0) == pytest.approx(1e9)  # never beyond a plan's numbers, whoever has written it


class Kinks:
    """f_p(x) = |x - c_p|_1, whose subgradient is a sign: Theorem 5.4's nonsmooth f_p. Noise on it, if there is some."""

    def __init__(self, c, noise):
        self.c, self.noise = c, noise

    def value(self, x):
        return float(np.sum(np.abs(x - self.c)))

    def gradient(self, x):
        return np.sign(x - self.c) + (self.noise.normal(0.0, 0.5, self.c.size) if self.noise else 0.0)


def iterated(fs, p, u, epsilon=inf, alpha=0.0):
    """(points, last, w): where each f_p was asked, T E of them, its z_p^{T,E+1}, and w of each round."""
    n, names = fs[0].c.size, [f"n{i}" for i in range(len(fs))]
    every, points = np.arange(n), {name: [] for name in names}
    centre = Server(
        p,
        ServerContext(
            position=dict.fromkeys(names, every), start=dict.fromkeys(names, np.zeros(n)),
            epsilon=epsilon, tolerance=0.0, patience=0,
        ),
    )  # fmt: skip

    def oracle(name, f):
        return type("At", (), {"gradient": lambda self, x: (points[name].append(x), f.gradient(x))[1]})()

    agents = {
        name: Agent(p, oracle(name, f), Box(u), every, np.zeros(n), 1.0, epsilon=epsilon, alpha=alpha)
        for name, f in zip(names, fs, strict=True)
    }
    w = [centre.state.w for _ in converse(centre, agents)]
    return list(points.values()), [agents[name].state.z for name in names], w


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("E", [1, 4])
def test_5_2b_bounds_the_averaged_iterates_of_a_nonsmooth_problem(E, noisy):
    """eta = 1/sqrt(t), z^(T) of (5.2c) at the points where the subgradients are taken; gamma = 2 |lambda*|."""
    P, n, u, T, rho = 5, 3, 2.0, 400, 1.0
    draw = np.random.default_rng(4)
    fs = [Kinks(c, draw if noisy else None) for c in draw.uniform(-u, u, (P, n))]
    p = Params(rounds=T, rho=rho, eta="1/sqrt(t)", local_updates=E)
    points, _, w = iterated(fs, p, u)
    averages = [np.mean(asked, axis=0) for asked in points]
    best = np.median([f.c for f in fs], axis=0)
    gap = sum(f.value(z) - f.value(best) for f, z in zip(fs, averages, strict=True))
    apart = np.linalg.norm([np.mean(w, axis=0) - z for z in averages])
    gamma = 2 * sqrt(P * n)  # |lambda*_k| <= 1, a subgradient of |x_k - c_k|
    U1, U2 = sqrt(n), 2 * u * sqrt(P * n)
    variance = P * n * 0.25 if noisy else 0.0
    bound = (variance + P * U1**2 + U2**2 / (2 * E)) / sqrt(T)
    bound += (U2**2 * rho + gamma**2 / rho + 2 * gamma * U2) / (2 * T)
    assert gap + gamma * apart <= bound
    assert p.bound(Constants(inf, 0.0, sqrt(P) * U1, U2, variance, inf)) == ("5.4", pytest.approx(bound))
    assert gap <= (0.6 if noisy else 0.2)  # of 5 |c| about 15: it has found the median, not only kept a loose bound


class Bowls:
    """f_p(x) = |x - c_p|^2/2: smooth and strongly convex with constant 1. Its gradient is noisy."""

    def __init__(self, c, noise):
        self.c, self.noise = c, noise

    def value(self, x):
        return float(np.sum((x - self.c) ** 2)) / 2

    def gradient(self, x):
        return x - self.c + self.noise.normal(0.0, 0.5, self.c.size)


def bowls(P, n, u):
    draw = np.random.default_rng(4)
    return [Bowls(c, draw) for c in draw.uniform(-u, u, (P, n))]


@pytest.mark.parametrize(("eta", "c"), [("1/(L+sqrt(t))", 1.0), ("1/(L+sqrt(t)/epsilon)", 2.0)])
@pytest.mark.parametrize("E", [1, 4])
def test_5_1b_bounds_the_averaged_iterates_of_a_smooth_problem(eta, c, E):
    """z^(T) of (5.1c) is of the points behind the steps."""
    P, n, u, T, rho = 5, 3, 2.0, 400, 1.0
    fs, p = bowls(P, n, u), Params(rounds=T, rho=rho, eta=eta, local_updates=E)
    points, last, _ = iterated(fs, p, u, epsilon=1 / c)
    averages = [np.mean([*asked[1:], z], axis=0) for asked, z in zip(points, last, strict=True)]
    U1, U2, variance, L = 2 * u * sqrt(n), 2 * u * sqrt(P * n), P * n * 0.25, 1.0
    gamma = 2 * sqrt(P) * U1
    bound = (variance / c + c * U2**2 / (2 * E)) / sqrt(T) + (U2**2 * (rho + L / E) + gamma**2 / rho) / (2 * T)
    assert p.bound(Constants(L, 1.0, sqrt(P) * U1, U2, variance, 1 / c)) == ("5.3", pytest.approx(bound))
    best = np.mean([f.c for f in fs], axis=0)
    assert sum(f.value(z) - f.value(best) for f, z in zip(fs, averages, strict=True)) <= min(bound, 0.6)


def test_5_3b_bounds_the_averaged_iterates_of_a_strongly_convex_problem():
    """z^(T) of (5.3c) counts later points more."""
    P, n, u, T, rho, alpha = 5, 3, 2.0, 400, 1.0, 1.0
    fs, p = bowls(P, n, u), Params(rounds=T, rho=rho, eta="2/(alpha(t+2))")
    points, _, _ = iterated(fs, p, u, alpha=alpha)
    averages = [np.average(asked, axis=0, weights=np.arange(1, T + 1)) for asked in points]
    U1, U2, variance = 2 * u * sqrt(n), 2 * u * sqrt(P * n), P * n * 0.25
    gamma = 2 * sqrt(P) * U1
    bound = 2 * U2 * gamma + U2**2 * rho + 4 * gamma**2 / rho + alpha * U2**2 / 2 + 2 * (P * U1**2 + variance) / alpha
    assert p.bound(Constants(1.0, alpha, sqrt(P) * U1, U2, variance, inf)) == ("5.5", pytest.approx(bound / (T + 1)))
    best = np.mean([f.c for f in fs], axis=0)
    assert sum(f.value(z) - f.value(best) for f, z in zip(fs, averages, strict=True)) <= 0.3


def test_no_theorem_bounds_another_step():
    constants = Constants(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert Params(rounds=5, eta=0.1).bound(constants) is None
    assert Params(rounds=5, eta="2/(alpha(t+2))", rho=Rho(1.0, 1.0, 1)).bound(constants) is None  # Assumption 5.2 (ii)
