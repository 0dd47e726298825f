"""I-ADMM, PI-ADMM1 and 2, W-ADMM: the papers' vectors, the conserved sum, the limit, and what the token tells (Finding
3.1).
"""

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.algorithms import iadmm, wadmm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from tests.support.agents.agents_without_gate import Data, along, cycle, distance, losses, network, random, walked
from tests.support.agents.iadmm_agents import ALGORITHMS, VECTORS, Stored, agents

PLAIN = Regularizer()


# --- the kernels ---


def test_8_4b_and_5_coordinate_by_coordinate():
    rng = np.random.default_rng(7)
    z, x, y, x_new, y_new, g = rng.normal(size=(6, 5))
    assert iadmm.first_order(z, y, g, 2.5).tolist() == [z[j] + y[j] / 2.5 - g[j] / 2.5 for j in range(5)]
    assert iadmm.dual(y, z, x_new, 2.5).tolist() == [y[j] + 2.5 * (z[j] - x_new[j]) for j in range(5)]
    naive = [z[j] + ((x_new[j] - y_new[j] / 2.5) - (x[j] - y[j] / 2.5)) / 8 for j in range(5)]
    assert iadmm.token(z, x, y, x_new, y_new, 2.5, 8.0).tolist() == naive


# --- the vectors ---


@pytest.mark.parametrize("problem", ["ridge", "logistic"])
@pytest.mark.parametrize("update", ["exact", "first-order"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_iterates_are_the_stored_ones(problem, update, name):
    """gamma and omega are stored by activation, v by agent: each agent is given its own."""
    inputs, targets = VECTORS[f"{problem}_O"], VECTORS[f"{problem}_T"]
    objective = Objective(kind="least-squares", scale=2.0) if problem == "ridge" else Objective(kind="logistic")
    route, K = VECTORS[f"{problem}_route"].tolist(), 40
    walk = VECTORS[f"{problem}_walk"].tolist() if name == "wadmm" else [route[k % 8] for k in range(K)]
    v, gamma, omega = (VECTORS[f"{problem}_{key}"] for key in ("v", "gamma", "omega"))

    def draws(i):
        hops = [k for k, at in enumerate(walk) if at == i]
        random = [Stored(gamma[k], omega[k] if name == "pi2" else None) for k in hops]
        return lambda k: random[k - 1] if k else Stored(vector=v[i])

    adjacency = [np.flatnonzero(row).tolist() for row in VECTORS[f"{problem}_adj"]]
    agent = agents(
        [Loss(objective, inputs[i], targets[i]) for i in range(8)], walk, neighbours=adjacency, draws=draws,
        params=wadmm.Params if name == "wadmm" else iadmm.Params,
        rho=float(VECTORS[f"{problem}_rho"]), update=update, **ALGORITHMS[name],
    )  # fmt: skip
    key = f"{problem}_{'fo' if update == 'first-order' else 'exact'}_{name}"
    for k, i, (z,) in walked(agent):
        assert np.max(np.abs(z - VECTORS[f"{key}_z"][k + 1])) <= 1e-9
        assert np.max(np.abs(agent[i].state.x - VECTORS[f"{key}_x"][k])) <= 1e-9
        assert np.max(np.abs(agent[i].state.y - VECTORS[f"{key}_y"][k])) <= 1e-9
    assert k == K - 1


# --- the conserved sum ---


VARIANTS = {
    "I-ADMM": {"update": "exact"},
    "first-order": {"update": "first-order"},
    "Algorithm 2": {"start": iadmm.Uniform((-5.0, 5.0))},
    "PI-ADMM1": {"variant": "published", "start": iadmm.Uniform((0.0, 5.0)), "gamma": (0.8, 1.2)},
    "PI-ADMM2": {"variant": "published", "start": iadmm.Uniform((0.0, 5.0)), "noise_sd": 0.5},
    "guarded": {"variant": "guarded"},
}


@pytest.mark.runs
@pytest.mark.parametrize("variant", VARIANTS)
def test_N_z_is_the_sum_of_x_minus_y_over_rho(variant):
    fs, graph = losses("logistic", 6, 10, 3, 2), network("geometric")
    walk = random(graph, 150)
    noise = np.random.default_rng(4).normal(size=(150, 3))
    agent = agents(fs, walk, noise=noise, params=wadmm.Params, **VARIANTS[variant])
    for k, _, (z,) in walked(agent):
        total = sum(a.state.x - a.state.y / 5.0 for a in agent)
        assert np.allclose(6 * z, total, rtol=0, atol=1e-13 * (k + 10))  # a rounding of numbers below 100 a hop


# --- the limit ---


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["least-squares", "logistic"])
@pytest.mark.parametrize("variant", ["I-ADMM", "first-order", "Algorithm 2", "PI-ADMM1"])
def test_without_noise_on_the_iterates_it_reaches_the_central_optimum(kind, variant):
    fs, graph = losses(kind, 6, 20, 3, 4, l2=0.2), network("ring")
    rho = 2.5 * max(f.L for f in fs) if variant == "first-order" else 2.0
    agent = agents(fs, cycle(graph, 2400 if variant == "first-order" else 1200), **{"rho": rho} | VARIANTS[variant])
    *_, last = walked(agent)
    assert distance(fs, PLAIN, last.token[0]) <= 1e-11
    assert max(np.linalg.norm(a.state.x - last.token[0]) for a in agent) <= 1e-11


@pytest.mark.runs
def test_W_ADMM_reaches_it_on_a_random_walk():
    fs, graph = losses("least-squares", 6, 20, 3, 4, l2=0.2), network("geometric")
    *_, last = walked(agents(fs, random(graph, 3000), params=wadmm.Params, rho=2.0))
    assert distance(fs, PLAIN, last.token[0]) <= 1e-11


@pytest.mark.runs
def test_the_printed_sign_of_algorithm_2_tends_to_a_wrong_point_and_the_right_one_does_not():
    """y^0 = -rho v leaves N z - sum(x - y/rho) = -2 sum v for ever: where all agree, sum f_i' = sum y_i = -2 rho sum
    v.
    """
    fs, graph = losses("least-squares", 6, 20, 3, 4, l2=0.2), network("ring")
    limits = {}
    for sign in (1.0, -1.0):
        agent = agents(fs, cycle(graph, 1200), rho=2.0, start=iadmm.Uniform((0.0, 1.0)))
        v = [a.state.x for a in agent]
        for a in agent:
            a.state.y = sign * a.state.y
        *_, last = walked(agent)
        limits[sign] = last.token[0]
        left = 6 * last.token[0] - sum(a.state.x - a.state.y / 2.0 for a in agent)
        assert np.allclose(left, (sign - 1) * sum(v), rtol=0, atol=1e-10)
    assert distance(fs, PLAIN, limits[1.0]) <= 1e-11
    assert distance(fs, PLAIN, limits[-1.0], linear=2 * 2.0 * sum(v)) <= 1e-10
    assert np.linalg.norm(limits[-1.0] - limits[1.0]) > 0.1


@pytest.mark.runs
def test_noise_on_the_iterates_leaves_PI_ADMM2_at_a_distance_that_follows_its_size():
    fs, graph = losses("least-squares", 6, 20, 3, 4, l2=0.2), network("ring")
    errors = []
    for sd in (1e-2, 1e-4):
        agent = agents(fs, cycle(graph, 3000), rho=2.0, variant="published", noise_sd=sd)
        tail = [distance(fs, PLAIN, hop.token[0]) for hop in walked(agent) if hop.k >= 2000]
        errors.append(np.mean(tail))
    assert errors[0] / errors[1] == pytest.approx(100, rel=1e-3)  # the same draws, scaled: the error is linear in them


# --- Finding 3.1: what the token tells ---


def eavesdrop(hops, n, size, rho, gamma=1.0):
    """(agent, u_i, x_i, y_i) after every visit, from the tokens and public numbers; x_i is taken to start at 0.

    u_i = x_i - y_i/rho follows from the token's differences, u_i^0 = v - v = 0 is public; (18) does the rest.
    """
    z, u, x = np.zeros(size), np.zeros((n, size)), np.zeros((n, size))
    for _, i, (z_new,) in hops:
        step = n * (z_new - z)
        u[i] = u[i] + step
        x[i] = (step + gamma * z + x[i]) / (1 + gamma)
        z = z_new
        yield i, u[i].copy(), x[i].copy(), rho * (x[i] - u[i])


def test_I_ADMM_tells_every_iterate_and_every_gradient():
    fs, graph = losses("logistic", 6, 10, 3, 2, l2=0.1), network("ring")
    agent = agents(fs, cycle(graph, 120), rho=2.0)
    hops = list(walked_with_states(agent))
    for (i, _, x, y), (hop, true_x, true_y) in zip(eavesdrop([h for h, *_ in hops], 6, 3, 2.0), hops, strict=True):
        assert i == hop.i
        assert np.allclose(x, true_x, rtol=0, atol=1e-12)
        assert np.allclose(y, true_y, rtol=0, atol=1e-12)
        assert np.allclose(y, fs[i].gradient(true_x), rtol=0, atol=1e-12)  # (9)


def test_a_random_start_is_forgotten_by_half_a_visit_so_that_the_eavesdropper_need_not_know_it():
    fs, graph = losses("least-squares", 6, 20, 3, 4, l2=0.2), network("ring")
    agent = agents(fs, cycle(graph, 240), rho=2.0, start=iadmm.Uniform((0.0, 100.0)))
    v = [a.state.x for a in agent]
    visits = [0] * 6
    hops = list(walked_with_states(agent))
    for (i, u, x, _), (_, true_x, true_y) in zip(eavesdrop([h for h, *_ in hops], 6, 3, 2.0), hops, strict=True):
        visits[i] += 1
        assert np.allclose(u, true_x - true_y / 2.0, rtol=0, atol=1e-11)  # public from the first visit on
        assert np.allclose(true_x - x, v[i] / 2.0 ** visits[i], rtol=1e-9, atol=1e-11)
    assert np.max(np.abs(true_x - x)) < 1e-9  # after forty


@pytest.mark.runs
def test_PI_ADMM1_tells_the_gradients_at_the_optimum_whatever_its_gammas():
    fs, graph = losses("least-squares", 6, 20, 3, 4, l2=0.2), network("ring")
    agent = agents(fs, cycle(graph, 1200), rho=2.0, **VARIANTS["PI-ADMM1"])
    hops = list(walked(agent))
    seen = {i: u for i, u, _, _ in eavesdrop(hops, 6, 3, 2.0)}
    z = hops[-1].token[0]
    for i, f in enumerate(fs):
        assert np.max(np.abs(2.0 * (z - seen[i]) - f.gradient(z))) <= 4e-9


def walked_with_states(agent):
    """Each hop with the active agent's x and y after it."""
    for hop in walked(agent):
        yield hop, agent[hop.i].state.x, agent[hop.i].state.y


# --- guarded ---


def test_guarded_an_agents_y_is_the_gates_last_answer_and_nothing_else_of_its_data():
    fs, graph = losses("logistic", 6, 10, 3, 2), network("ring")
    walk = cycle(graph, 60)
    noise = np.random.default_rng(8).normal(size=(60, 3))
    agent = agents(fs, walk, variant="guarded", noise=noise)
    for hop in walked(agent):
        s, answers = agent[hop.i].state, agent[hop.i].gate.answers
        assert np.allclose(s.y, answers[-1], rtol=0, atol=1e-13)
    assert [len(a.gate.answers) for a in agent] == [10] * 6


def test_guarded_and_exact_it_asks_the_gates_minimiser():
    fs, graph = losses("logistic", 6, 10, 3, 2), network("ring")
    walk, noise = cycle(graph, 6), np.full((6, 3), 0.25)
    agent = agents(fs, walk, variant="guarded", update="exact", noise=noise)
    for _, i, _ in walked(agent):
        s = agent[i].state
        assert np.allclose(fs[i].gradient(s.x) + 0.25, s.y, rtol=0, atol=1e-12)  # (9) of the perturbed objective


# --- the parameters ---


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gamma": (0.5, 1.5)}, "found guarded"),
        ({"variant": "none", "noise_sd": 1.0}, "found none"),
        ({"variant": "published", "noise_sd": 1.0, "gamma": (0.5, 1.5)}, "expected one of them"),
        ({"variant": "published", "gamma": (1.5, 0.5)}, r"algorithm.gamma: found \[1.5, 0.5\]"),
        ({"start": iadmm.Uniform((1.0, 0.0))}, "algorithm.start.uniform"),
    ],
    ids=str,
)
def test_keys_that_contradict_each_other_are_refused(wrong, found):
    with pytest.raises(InputError, match=found):
        iadmm.Params(rounds=5, rho=1.0, **wrong)


def test_the_update_is_first_order_when_guarded_and_exact_otherwise_unless_it_is_said():
    assert not iadmm.Params(rounds=1, rho=1.0).exact
    assert iadmm.Params(rounds=1, rho=1.0, variant="none").exact
    assert iadmm.Params(rounds=1, rho=1.0, update="exact").exact
    assert wadmm.Params(rounds=1, rho=1.0).walk == "random"
    p = msgspec.convert({"name": "wadmm", "rounds": 1, "rho": 2, "start": {"uniform": [0, 1]}}, wadmm.Params)
    assert p.start == iadmm.Uniform((0.0, 1.0))


def test_a_random_start_needs_a_source_of_random_numbers():
    p, gate = iadmm.Params(rounds=1, rho=1.0, start=iadmm.Uniform((0.0, 1.0))), Data(losses("logistic", 1, 5, 2, 1)[0])
    with pytest.raises(InputError, match="n0: found no source of random numbers"):
        iadmm.Agent(p, gate, 1, 2, "n0", [], along([0]))
