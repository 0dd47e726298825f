"""RECAL and DP-RECAL: the paper's vectors, its sums, its limit, and what it tells an eavesdropper (Finding 1.1)."""

import math
from itertools import product
from math import inf

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.algorithms import recal
from hushgrid.kernels.algorithms.recal import Params
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.token_monitor import TokenMonitor
from hushgrid.kernels.problems.prox import Regularizer
from tests.support.agents import counting_walk
from tests.support.agents.agents_without_gate import Data, distance, eavesdrop, losses, network, random, walked
from tests.support.agents.counting_walk import Network, complete
from tests.support.agents.recal_agents import PROBLEMS, VECTORS, WALK, agents, stored


def near(a, b):
    return np.max(np.abs(np.asarray(a) - b)) <= 1e-9


# --- the kernel ---


short = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3).map(np.array)


@given(
    st.tuples(short, short, short, short, short),
    st.floats(0.01, 2),
    st.floats(0.01, 0.5),
    st.floats(0, 5),
    st.floats(0, 5),
)
def test_7a_to_7d_coordinate_by_coordinate(vectors, alpha, beta, l1, l2):
    x, u, y, lam, g = vectors
    found = recal.activation(x, u, y, lam, g, alpha, beta, 4.0, l1, l2, 50.0)
    for j in range(3):
        half = lam[j] + beta * (x[j] - y[j])
        v = x[j] - (u[j] + half - lam[j])
        shrunk = math.copysign(max(abs(v) - 4 * l1, 0), v) / (1 + 4 * l2)
        new, step = min(max(shrunk, -50), 50), y[j] - alpha * (g[j] - half)
        naive = new, step, lam[j] + beta * (new - step)  # (7a) in (7d)
        # Sums of fewer than ten terms, none of a size above 1e4.
        assert np.allclose([f[j] for f in found], naive, rtol=0, atol=10 * 2.0**-53 * 1e4)


# --- the vectors ---


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_iterates_without_noise_are_the_stored_ones(name):
    fs, r, params = stored(name)
    ring = VECTORS["adj_ring4"].tolist()
    agent = agents(fs, r, WALK, neighbours=ring, **params)
    for k, _, (x, u) in walked(agent):
        assert near(x, VECTORS[f"{name}/x"][k])
        assert near(u, VECTORS[f"{name}/u"][k])
        assert near([a.state.y for a in agent], VECTORS[f"{name}/y"][k])
        assert near([a.state.lam for a in agent], VECTORS[f"{name}/lam"][k])
    assert k == 11


@pytest.mark.parametrize(
    ("variant", "reading", "key"), [("published", "A", "A"), ("published", "B", "B"), ("guarded", "B", "H")]
)
def test_the_noisy_iterates_are_the_stored_ones(variant, reading, key):
    fs, r, params = stored("elastic")
    agent = agents(fs, r, WALK, noise=VECTORS["dp/eps"], variant=variant, reading=reading, **params)
    for k, _, (x, u) in walked(agent):
        assert near(x, VECTORS[f"dp/{key}/x"][k])
        assert near(u, VECTORS[f"dp/{key}/ut"][k])


@pytest.mark.parametrize("key", ["Bown", "C"])
def test_readings_that_no_agent_can_follow_or_that_are_not_shipped_come_out_of_the_same_step(key):
    """C, the proof's (9b), needs the noiseless u; in Bown the receiver first adds its own last noise."""
    fs, r, params = stored("elastic")
    eps, n = VECTORS["dp/eps"], 4
    x, u, seen = np.zeros(3), np.zeros(3), np.zeros(3)
    y, lam, last = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 3))
    for k, i in enumerate(WALK):
        start = seen + last[i] if key == "Bown" else seen
        g = fs[i].gradient(y[i])
        x, y[i], new = recal.activation(
            x, start, y[i], lam[i], g, params["alpha"][i], params["beta"], n, r.l1, r.l2, inf
        )
        u = u + (new - lam[i])
        seen = seen + (new - lam[i]) - eps[k] + last[i] if key == "Bown" else u - eps[k]
        lam[i], last[i] = new, eps[k]
        assert near(x, VECTORS[f"dp/{key}/x"][k])
        assert near(seen, VECTORS[f"dp/{key}/ut"][k])


# --- the sums ---


@pytest.mark.parametrize(
    ("variant", "reading"), [("none", "B"), ("guarded", "B"), ("published", "A"), ("published", "B")]
)
def test_u_is_the_sum_of_the_multipliers_and_of_the_noise_the_reading_keeps(variant, reading):
    rng = np.random.default_rng(2)
    fs, graph = losses("least-squares", 6, 8, 4, 1), network("geometric")
    walk = random(graph, 200)
    eps = rng.normal(size=(200, 4)) * 0.1
    agent = agents(fs, Regularizer(l1=0.01), walk, noise=eps, variant=variant, reading=reading)
    for k, _, (_, u) in walked(agent):
        total = sum(a.state.lam for a in agent)
        if variant == "published":
            total = total - (eps[: k + 1].sum(axis=0) if reading == "A" else sum(a.state.eps for a in agent))
        assert np.allclose(u, total, rtol=0, atol=1e-13 * (k + 1))  # one rounding of numbers below 100 a hop


# --- the limit ---


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["ring", "geometric"])
@pytest.mark.parametrize(
    ("loss", "l2", "r"),
    [
        ("least-squares", 0.1, Regularizer()),
        ("least-squares", 0.0, Regularizer(l1=0.02)),
        ("least-squares", 0.0, Regularizer(l1=0.02, l2=0.05)),
        ("logistic", 0.2, Regularizer(l1=0.005, l2=0.05)),
    ],
    ids=["ridge", "lasso", "elastic net", "logistic"],
)
def test_without_noise_it_reaches_the_central_optimum_to_1e_12(kind, loss, l2, r):
    fs, graph = losses(loss, 6, 20, 3, 4, l2=l2), network(kind)
    walk = random(graph, 10_000)
    for k, _, (x, _) in walked(agents(fs, r, walk, neighbours=graph.neighbours)):
        if k % 500 == 499 and distance(fs, r, x) <= 1e-12 * np.linalg.norm(x):
            break
    assert distance(fs, r, x) <= 1e-12 * np.linalg.norm(x)
    assert np.linalg.norm(x) > 0.1


def limit(fs, r, noise, **params):
    """The token after a walk long enough for the noise-free part to settle."""
    walk = random(network("ring"), 6000)
    eps = np.zeros((6000, fs[0].size))
    eps[: len(noise)] = noise
    *_, last = walked(agents(fs, r, walk, noise=eps, **params))
    return last.token[0]


@pytest.mark.runs
def test_reading_A_keeps_all_the_noise_in_its_limit_and_reading_B_none_of_what_has_decayed():
    fs, r = losses("least-squares", 6, 20, 3, 4, l2=0.1), Regularizer(l1=0.01)
    noise = np.random.default_rng(9).normal(size=(60, 3)) * 0.3
    total = noise.sum(axis=0)
    A = limit(fs, r, noise, variant="published", reading="A")
    assert distance(fs, r, A, linear=-total) <= 1e-10  # argmin sum f + n r - <E, x>
    exact = limit(fs, r, noise * 0, variant="none")
    assert distance(fs, r, exact) <= 1e-10
    assert np.linalg.norm(A - exact) > 0.1
    B = limit(fs, r, noise, variant="published", reading="B")
    assert distance(fs, r, B) <= 1e-10  # every agent has been visited since, and its last noise is 0


# --- Finding 1.1: what the token tells ---


def overheard(variant, r, noise_sd, reading="B", seed=3):
    """(y seen, y, gradient seen, gradient, answer of the gate) of every visit of a walk of 300 hops."""
    fs, graph = losses("least-squares", 6, 20, 3, 4), network("geometric")
    walk = random(graph, 300)
    eps = np.random.default_rng(seed).normal(size=(300, 3)) * noise_sd
    agent = agents(fs, r, walk, noise=eps, variant=variant, reading=reading)
    truth = {i: [] for i in range(6)}
    tokens = []
    for _, i, token in walked(agent):
        tokens.append((i, token))
        truth[i].append(agent[i].state.before[0])
    at = dict.fromkeys(range(6), 0)
    for i, y, g in eavesdrop(tokens, agent[0].params, fs, r):
        true = truth[i][at[i]]
        answers = agent[i].gate.answers
        yield y, true, g, fs[i].gradient(true), answers[at[i]] if answers else None
        at[i] += 1


@pytest.mark.parametrize(("variant", "reading"), [("none", "B"), ("published", "A"), ("published", "B")])
@pytest.mark.parametrize("r", [Regularizer(), Regularizer(l2=0.05)], ids=["r = 0", "ridge"])
def test_an_eavesdropper_reads_every_gradient_whatever_noise_the_paper_adds(variant, reading, r):
    """1/beta = 14 times the rounding of the token, summed up over about 50 visits: below 1e-10 whatever the noise."""
    seen = list(overheard(variant, r, 1.0, reading))
    assert len(seen) == 300 - 6
    for y_seen, y, g_seen, g, _ in seen:
        assert np.max(np.abs(y_seen - y)) <= 1e-10
        assert np.max(np.abs(g_seen - g)) <= 1e-10


def test_with_an_l1_term_he_still_reads_nearly_all_of_y():
    seen = list(overheard("published", Regularizer(l1=0.002, l2=0.01), 0.1))
    right = np.array([np.abs(y_seen - y) <= 1e-10 for y_seen, y, *_ in seen])
    assert 0.9 < np.mean(right) < 1.0  # where x+ = 0 the soft threshold hides it


def test_guarded_he_reads_the_gates_answers_and_nothing_behind_them():
    seen = list(overheard("guarded", Regularizer(l2=0.05), 0.5))
    assert max(np.max(np.abs(g_seen - answer)) for _, _, g_seen, _, answer in seen) <= 1e-10
    missed = [np.max(np.abs(g_seen - g)) for _, _, g_seen, g, _ in seen]
    assert np.mean(missed) > 0.3  # the noise of the gate, in full


# --- a node lost on the way ---


@pytest.mark.runs
@pytest.mark.parametrize("recounts", [True, False])
def test_around_a_lost_agent_a_recount_restores_the_problem_of_the_others(recounts):
    """Where n1 stays away, its lambda stays in u without a recount: the limit is argmin sum_{i != 1} f_i + <lambda_1,
    x>.
    """
    nodes, rounds = ("n0", "n1", "n2", "n3"), 4000
    fs, near, route = losses("least-squares", 4, 20, 3, 4, l2=0.1), complete(nodes), counting_walk.along(nodes)
    p = Params(rounds=rounds, variant="none")
    agent = {
        name: recal.Agent(p, Data(fs[i]), Regularizer(), i, 4, fs[i].L, 3, name, near[name], route)
        for i, name in enumerate(nodes)
    }
    net = Network(agent, TokenMonitor(near, route, rounds, recounts=recounts))
    while agent["n1"].state.t != 10:  # n1 has made activation 9, and is never heard of again
        for name in nodes:
            net.tick(name)
        for key in list(net.air):
            net.deliver(key)
    net.air = {}
    watch = net.nodes["coordinator"]
    assert not net.finish({"n0", "n2", "n3"}, limit=50)
    net.after("coordinator", lambda: watch.suspect("n1"))
    assert net.finish({"n0", "n2", "n3"})
    x, u = next(a.state.final for a in agent.values() if a.state.done)
    lost = agent["n1"].state
    counted = lost.before[1] if watch.state.notice.fences[-1] <= 9 else lost.lam
    left, others = sum(agent[name].state.lam for name in ("n0", "n2", "n3")), [fs[0], fs[2], fs[3]]
    assert np.max(np.abs(counted)) > 1e-3
    assert np.allclose(u, left + (0 if recounts else counted), rtol=0, atol=1e-12)
    assert distance(others, Regularizer(), x, linear=np.zeros(3) if recounts else counted) <= 1e-10
    assert recounts or distance(others, Regularizer(), x, linear=np.zeros(3)) > 1e-3


def test_the_steps_of_a_network_are_right_for_what_is_left_of_it():
    """Section VI: diag(1, 1/alpha_i - L_i/2) - beta L^T L > 0, L = (-U, I). beta is that of all n, 1/(2(n + 1))."""
    for n, share in product(range(2, 9), (0.1, 0.5, 0.999)):
        L = np.geomspace(0.01, 100, n)
        alpha, beta = share * 2 / (L + 1), Params(rounds=1).beta_n(n)
        margins = []
        for left in (np.arange(m) for m in range(2, n + 1)):
            constraint = np.hstack([-np.ones((left.size, 1)), np.eye(left.size)])
            whole = np.diag([1.0, *(1 / alpha - L / 2)[left]]) - beta * constraint.T @ constraint
            margins.append(np.linalg.eigvalsh(whole)[0])
        assert margins[-1] > 0
        assert all(margins[-1] <= margin + 1e-12 for margin in margins)


# --- the parameters ---


def test_the_default_stepsizes_are_the_papers():
    p = Params(rounds=1)
    assert p.alpha_i(3, L=1.5) == 1 / 2.5
    assert p.beta_n(7) == 1 / 16
    p = msgspec.convert({"rounds": 1, "alpha": [0.1, 0.2], "beta": 0.5, "walk": [0, 1]}, Params)
    assert (p.alpha_i(1, L=9.0), p.beta_n(7)) == (0.2, 0.5)
    with pytest.raises(InputError, match="found 2 numbers"):
        p.alpha_i(2, L=1.0)


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": 0}, {"alpha": 0}, {"alpha": [0.1, -1]}, {"beta": "x"}, {"walk": "cycle"}, {"walk": [-1]}],
    ids=str,
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"rounds": 5} | wrong, Params)


def test_beyond_its_answers_an_agent_keeps_its_state_and_hands_the_token_on():
    fs, r = losses("least-squares", 6, 8, 3, 1), Regularizer()
    walk = random(network("ring"), 100)
    agent = agents(fs, r, walk, variant="guarded", noise=np.zeros((100, 3)))
    for a in agent:
        a.cap = 4
    token, capped = None, 0
    for _, i, new in walked(agent):
        s = agent[i].state
        if s.answers == 4 and s.before[0] is s.y:
            capped += 1
            assert new[0].tobytes() == token[0].tobytes()
            assert new[1].tobytes() == token[1].tobytes()
        token = new
    assert [len(a.gate.answers) for a in agent] == [4] * 6
    assert capped == 100 - 6 * 4
