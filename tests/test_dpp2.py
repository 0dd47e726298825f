"""DPP2: the paper's vectors, its limit, where it diverges, and what it tells (Findings 4.1 to 4.3)."""

from dataclasses import replace
from math import inf, log10
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rounds import Data, classification, messages, name, run, states, weights

from hushgrid.broker import bench_rounds
from hushgrid.kernels import dpp2, jit
from hushgrid.kernels.dpp2 import Params
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Graph, Network
from hushgrid.kernels.losses import CURVATURE, Loss, Nonconvex, Objective
from hushgrid.kernels.mixing import Edges

V = np.load(Path(__file__).parent / "vectors" / "dpp2.npz")
K, N, D = V["w"].shape
STORED = Graph.of(N, [(i, j) for i in range(N) for j in range(i) if V["P"][i, j]])
NUMBERS = {key: float(V[key]) for key in ("alpha", "beta", "rho")}
FAST = {"alpha": 0.4, "beta": 0.15, "rho": 2.0}  #: modes of curvature h shrink by about (1 - g h)^(1/2) a round
NOISY = {"decay": 0.9, "u_w": 1.0, "u_e": 1.0}
NONCONVEX = Objective(kind="logistic", nonconvex=Nonconvex(lam=0.001, omega=1.0))
FUNCTIONS = [Loss(NONCONVEX, A, np.ones(len(A))) for A in V["A"]]  # the rows are label times feature


def smoothness(f):
    """M_i, from the rows: sharper than their norms."""
    if isinstance(f, Slope):
        return f.M
    o = f.objective
    curvature = CURVATURE[o.kind] * o.scale * float(np.linalg.eigvalsh(f.A.T @ f.A / f.rows)[-1])
    return curvature + o.l2 + 2 * o.lam * o.omega


class Slope:
    """f'(x) = delta - M x, on one coordinate."""

    size = 1

    def __init__(self, delta, M):
        self.delta, self.M = delta, M

    def gradient(self, x):
        return self.delta - self.M * x


def nodes(fs, graph, *, x0=None, noise=None, w=None, e=None, **params):
    """A node for each function. Of round k and node i: `noise` on the gradient, `w` on y and `e` on z, (K, n, d)."""
    p = Params(**{"variant": "none", "rounds": K, **NUMBERS} | params)
    degree, M = max(map(len, graph.neighbours)), max(map(smoothness, fs))
    found = []
    for i, f in enumerate(fs):
        both = None if w is None else np.stack([w[:, i], e[:, i]], axis=1).reshape(-1, f.size)  # w^0, e^0, w^1, ...
        gate = Data(f, None if noise is None else noise[:, i], both)
        found.append(dpp2.Node(p, gate, weights(graph, i), degree, M, f.size, name(i)))
        if x0 is not None:
            found[i].state = replace(found[i].state, x=x0[i])
    return found


def published(fs, graph, eta, **more):
    return nodes(fs, graph, variant="published", eta=eta, **NOISY | more)


def near(found, stored):
    return np.max(np.abs(np.asarray(found) - stored)) <= 1e-9


def logistic(kind="geometric", n=8, **keys):
    graph = Network(kind=kind, nodes=n, **({"radius": 0.5, "seed": 1} if kind == "geometric" else {})).build()
    return classification(NONCONVEX, n, 20, 3, 4), graph


# --- the vectors ---


def test_the_graph_of_the_vectors_has_the_metropolis_weights_of_the_machines():
    assert np.allclose(np.eye(N) - STORED.metropolis(), V["P"], rtol=0, atol=1e-15)


@pytest.mark.parametrize("key", ["T", "T0"])
def test_algorithm_1_gives_the_stored_messages_and_states(key):
    noise = {"w": V["w"], "e": V["e"]} if key == "T" else {}
    fleet = published(FUNCTIONS, STORED, tuple(V["eta"]), x0=V["x0"], **noise)
    before = {field: states(fleet, field) for field in "xqd"}
    for t, sent in messages(fleet):
        k = (t - 1) // 2
        assert near(sent, V[f"{key}_{'y' if t % 2 else 'z'}"][k])
        if t % 2:
            assert near([node.gate.answers[k] for node in fleet], V[f"{key}_g"][k])
        else:
            assert all(near(before[field], V[f"{key}_{field}"][k]) for field in "xqd")
            before = {field: states(fleet, field) for field in "xqd"}
    assert near(before["x"], V["xK" if key == "T" else "xK_noisefree"])


@pytest.mark.parametrize("eta", [0.1, 0.5, 0.99, tuple(V["eta"])], ids=["0.1", "0.5", "0.99", "stored"])
def test_whatever_eta_is_the_iterates_are_those_of_20_and_21(eta):
    x = run(published(FUNCTIONS, STORED, eta, x0=V["x0"], w=V["w"], e=V["e"]))
    assert near(x, V["xK"])
    assert near(x, V["xK_reduced"])


def test_without_noise_published_and_guarded_are_the_plain_method():
    plain = run(nodes(FUNCTIONS, STORED, x0=V["x0"]))
    assert near(plain, V["xK_noisefree"])
    assert np.array_equal(run(nodes(FUNCTIONS, STORED, x0=V["x0"], variant="guarded")), plain)
    assert near(run(published(FUNCTIONS, STORED, 0.5, x0=V["x0"])), plain)


def test_guarded_is_the_plain_method_on_the_gates_answers():
    noise = np.random.default_rng(0).normal(size=(K, N, D))
    fleet = nodes(FUNCTIONS, STORED, variant="guarded", noise=noise)
    x, q, G = np.zeros((N, D)), np.zeros((N, D)), NUMBERS["alpha"] * np.eye(N) - NUMBERS["beta"] * V["P"]
    run(fleet)
    for k in range(K):
        Px = NUMBERS["rho"] * V["P"] @ x
        answers = np.array([node.gate.answers[k] for node in fleet])
        assert near(answers, [f.gradient(x[i]) + noise[k, i] for i, f in enumerate(FUNCTIONS)])
        x, q = x - G @ (answers + q + Px), q + Px  # (20), (21) with the old x
    assert near(states(fleet, "x"), x)
    assert near(states(fleet, "q"), q)
    assert not states(fleet, "d").any()


def test_the_published_noise_decays_by_r_a_round_from_u_w_on_y_and_u_e_on_z():
    fleet = published(FUNCTIONS, STORED, 0.5, rounds=3, decay=0.5, u_w=4.0, u_e=1.0)
    run(fleet)
    assert fleet[0].gate.scales == [4.0, 1.0, 2.0, 0.5, 1.0, 0.25]
    assert [len(node.gate.answers) for node in fleet] == [3] * N


# --- the limit ---


def test_31_is_the_stored_measure():
    for k in range(K):
        assert abs(dpp2.stationarity(V["T_x"][k], V["T_g"][k]) - V["opt"][k]) <= 1e-9


@pytest.mark.parametrize("kind", ["ring", "geometric", "complete"])
def test_on_a_nonconvex_problem_it_reaches_consensus_and_stationarity_below_1e_20(kind):
    fs, graph = logistic(kind)
    all_nodes = dpp2.Nodes(Params(variant="none", rounds=4000, **FAST), fs, graph)
    for _ in range(20):
        all_nodes.run(200)
        gap = dpp2.stationarity(all_nodes.x, np.array([f.gradient(x) for f, x in zip(fs, all_nodes.x, strict=True)]))
        if gap < 1e-20:
            break
    assert gap < 1e-20
    assert np.linalg.norm(all_nodes.x[0]) > 0.1


def test_decaying_noise_leaves_the_limit_where_it_is_and_the_gates_constant_noise_does_not():
    fs, graph = logistic()
    rounds, draw = 3000, np.random.default_rng(3)
    exact = dpp2.Nodes(Params(variant="none", rounds=rounds, **FAST), fs, graph)
    exact.run(rounds)
    noise = draw.laplace(size=(rounds, len(fs), 3))
    decay = (0.9 ** np.arange(rounds))[:, None, None]
    paper = dpp2.Nodes(Params(variant="published", rounds=rounds, eta=0.5, **FAST, **NOISY), fs, graph)
    paper.run(rounds, w=noise * decay, e=noise[::-1] * decay)
    assert np.max(np.abs(paper.x - exact.x)) <= 1e-9
    guarded = dpp2.Nodes(Params(variant="guarded", rounds=rounds, **FAST), fs, graph)
    guarded.run(rounds, noise=noise)
    assert np.max(np.abs(guarded.x - exact.x)) > 0.1


# --- whole runs ---


@pytest.mark.parametrize("variant", ["none", "guarded", "published"])
def test_whole_runs_are_those_of_the_machines(variant):
    draw = np.random.default_rng(1)
    noise, w, e = draw.normal(size=(3, K, N, D))
    given = {"none": {}, "guarded": {"noise": noise}, "published": {"w": w, "e": e}}[variant]
    more = {"eta": tuple(V["eta"]), **NOISY} if variant == "published" else {}
    fleet = nodes(FUNCTIONS, STORED, variant=variant, **more, **given)
    whole = dpp2.Nodes(
        Params(variant=variant, rounds=K, **NUMBERS, **more), FUNCTIONS, STORED, max(map(smoothness, FUNCTIONS))
    )
    half = {key: a[: K // 2] for key, a in given.items()}, {key: a[K // 2 :] for key, a in given.items()}
    found = np.concatenate([whole.run(K // 2, record=True, **half[0]), whole.run(K - K // 2, record=True, **half[1])])
    for t, _ in messages(fleet):
        if t % 2 == 0:
            assert near(found[t // 2 - 1], [states(fleet, "x"), states(fleet, "q")])


def test_the_benchmark_times_the_same_arithmetic_beside_a_bare_loop():
    pytest.importorskip("numba")
    fs, graph = classification(bench_rounds.OBJECTIVE, 5, 8, bench_rounds.D, 6), Network(kind="ring", nodes=5).build()
    whole = dpp2.Nodes(bench_rounds.PARAMS, fs, graph, max(map(smoothness, fs)))
    whole.run(20)
    assert near(bench_rounds._bare(fs, Edges.of(graph), 20)(), whole.x)
    rows = bench_rounds.measured(n=12, rows=40, rounds=3, repeats=2)
    assert jit.MODE in rows[0].what
    assert all(row.unit == "ms" and row.value > 0 for row in rows)


# --- where it diverges ---

RING = Network(kind="ring", nodes=4).build()
H = 3.0  # curvature of every f_i = H/2 |x|^2 - b_i x


def quadratics(n):
    """f_i = 1/2 mean (sqrt(H) x - b)^2."""
    return [Loss(Objective(kind="least-squares"), np.full((1, 1), H**0.5), np.array([i + 1.0])) for i in range(n)]


def test_the_bound_of_the_stability_check_is_where_divergence_begins():
    """On a ring of four the largest eigenvalue of P is the bound 4/3 itself, and every curvature is M."""
    most, beta, rho = 4 / 3, 0.01, 2.0
    assert np.allclose(np.linalg.eigvalsh(np.eye(4) - RING.metropolis())[-1], most)
    edge = 4 / (rho * most + 2 * H) + beta * most
    calm = dpp2.Nodes(Params(variant="none", rounds=4000, alpha=0.99 * edge, beta=beta, rho=rho), quadratics(4), RING)
    calm.run(4000)
    optimum = 2.5 / H**0.5
    assert np.max(np.abs(calm.x - optimum)) <= 1e-10
    unstable = msgspec.structs.replace(calm.params, alpha=1.01 * edge)
    with pytest.raises(InputError, match=r"DPP2 may diverge$"):
        dpp2.Nodes(unstable, quadratics(4), RING)
    wild = dpp2.Nodes(calm.params, quadratics(4), RING)
    wild.params = unstable
    wild.run(1000)
    assert np.max(np.abs(wild.x - optimum)) > 1e3


def test_the_check_finds_a_mode_in_the_middle_of_the_spectrum():
    """alpha = beta l at the ends of [0, 4/3] nearly: rho lifts only the modes between."""
    p = Params(variant="none", rounds=1, alpha=0.1, beta=0.0749, rho=200.0)
    with pytest.raises(InputError, match=r"it is 6\.\d+ at l = 0\.6\d+"):
        p.check_stable(2, H)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"beta": 0.08}, r"algorithm.beta: found 0.08, expected below alpha/1.333 = 0.075 \(the largest degree is 2\)"),
        ({"alpha": 3.0}, r"algorithm.alpha: found 3 with beta 0.05, rho 10, expected \(alpha - beta l\)"),
    ],
)
def test_a_node_with_unstable_parameters_is_refused_at_its_start(wrong, said):
    with pytest.raises(InputError, match=said):
        nodes(quadratics(4), RING, **wrong)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"eta": 0.5}, "algorithm.eta: found 0.5, expected none .variant: guarded."),
        ({"variant": "published", "eta": 0.5, "decay": 0.9, "u_w": 1.0}, "algorithm.u_e: missing, expected a value"),
        ({"variant": "published", "eta": (0.5,), **NOISY}, "algorithm.eta: found 1 numbers, expected one for each"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys, said):
    with pytest.raises(InputError, match=said):
        Params(rounds=2, **NUMBERS, **keys)


def test_the_papers_own_parameters_violate_its_conditions_a_hundredfold():
    """Section VI: alpha = .1, M = 5.03."""
    p = Params(variant="none", rounds=1, **NUMBERS)
    found = {c.where: c for c in dpp2.conditions(p, V["P"], 5.03)}
    alpha = found["(26), (27) alpha < xi_6/xi_7"]
    assert (alpha.found, round(alpha.below, 7)) == (0.1, 9.236e-4)
    assert not any(found[where].holds for where in found if not where.startswith("(24)"))


def test_conditions_that_hold_are_found_to_hold():
    """On a complete graph kappa = 1; then rho large and alpha small fulfil them."""
    P = np.eye(4) - Network(kind="complete", nodes=4).build().metropolis()
    rho = 300.0
    alpha = 1e-9
    found = dpp2.conditions(Params(variant="none", rounds=1, alpha=alpha, beta=0.1 * alpha, rho=rho), P, 0.5)
    assert all(c.holds for c in found), found


# --- Finding 4.1: what the first tier tells ---


def eavesdrop(heard, etas, rho, P):
    """(x^k + w^k, f'(x^k) + e^k) of every node and round, from the messages, eta and public numbers alone."""
    d = q = np.zeros_like(heard[0][0])
    for (y, z), eta in zip(heard, etas, strict=True):
        Py = rho * P @ y
        yield y - (1 - eta) * d, z - eta * q - Py
        d, q = eta * d + y, eta * q + Py


def heard_from(fleet):
    sent = [message for _, message in messages(fleet)]
    return list(zip(sent[::2], sent[1::2], strict=True))


def test_who_knows_eta_reads_every_iterate_and_gradient_and_every_node_knows_it():
    heard = heard_from(published(FUNCTIONS, STORED, tuple(V["eta"]), x0=V["x0"]))
    for k, (x, g) in enumerate(eavesdrop(heard, V["eta"], NUMBERS["rho"], V["P"])):
        assert np.max(np.abs(x - V["T0_x"][k])) <= 1e-13 * (k + 1)
        assert np.max(np.abs(g - V["T0_g"][k])) <= 1e-13 * (k + 1) * NUMBERS["rho"]


def test_with_the_noise_he_reads_them_with_exactly_the_second_tiers_noise():
    heard = heard_from(published(FUNCTIONS, STORED, tuple(V["eta"]), x0=V["x0"], w=V["w"], e=V["e"]))
    for k, (x, g) in enumerate(eavesdrop(heard, V["eta"], NUMBERS["rho"], V["P"])):
        assert near(x, V["T_x"][k] + V["w"][k])
        assert near(g, V["T_g"][k] + V["e"][k])


def test_a_secret_eta_is_recovered_from_the_second_message_of_every_round_on():
    """d^1 = y^0 and x^{k+1} = x^k - G z^k are known from what was sent: y^{k+1} - x^{k+1} = (1 - eta) d^{k+1} tells eta."""
    etas = tuple(V["eta"])
    heard = heard_from(published(FUNCTIONS, STORED, etas, x0=V["x0"]))
    G = NUMBERS["alpha"] * np.eye(N) - NUMBERS["beta"] * V["P"]
    x, d = heard[0][0], np.zeros((N, D))
    for k, (y, z) in enumerate(heard):
        eta = 1 - np.sum((y - x) * d) / np.sum(d * d) if k else 0.0  # of the first round it touches nothing
        if k:
            assert abs(eta - etas[k]) <= 1e-13
        x, d = x - G @ z, eta * d + y


# --- Findings 4.2 and 4.3: what the second tier costs ---


def loss_of_privacy(params, delta, M):
    """ln P(messages | f)/P(messages | f'), two functions whose gradients differ by delta everywhere, for noise of f that
    lies beyond that of f' on every coordinate: an event of positive probability, throughout which it is the same.

    Two nodes: node 0 plays the game; its noise under f' is what gives the same messages.
    """
    graph = Network(kind="path", nodes=2).build()

    def fleet(slope, w, e):
        noise = np.zeros((params.rounds, 2, 1))
        w, e = (
            noise + np.array([1.0, 0.0])[:, None] * w[:, None, None],
            noise + np.array([1.0, 0.0])[:, None] * e[:, None, None],
        )
        p = msgspec.structs.asdict(params)
        return nodes([slope, Slope(0.0, M)], graph, w=w, e=e, **p)

    rounds = np.arange(params.rounds)
    gap, change = np.zeros(params.rounds), np.zeros(params.rounds)
    for k in rounds:  # w, e under f' less those under f
        change[k] = delta + M * gap[k]
        if k + 1 < params.rounds:
            gap[k + 1] = params.alpha * change[k]
    w, e = np.full(params.rounds, 0.7), np.full(params.rounds, -0.4)
    one = heard_from(fleet(Slope(0.0, M), w, e))
    other = heard_from(fleet(Slope(delta, M), w + gap, e - change))
    np.testing.assert_allclose(np.array(one), np.array(other), rtol=0, atol=1e-9)
    theta = np.array([params.theta(int(k)) for k in rounds])
    return float(np.sum((np.abs(w + gap) - np.abs(w)) / theta[:, 0] + (np.abs(e - change) - np.abs(e)) / theta[:, 1]))


def test_theorem_3_leaves_out_the_first_round_and_promises_too_little():
    one = Params(variant="published", rounds=6, alpha=0.1, beta=0.05, rho=1.0, eta=0.5, decay=0.9, u_w=4.0, u_e=4.0)
    assert abs(dpp2.epsilon(one, 1.0, 0.5, 1) - float(V["eps_tight_K5_r.9_u4_M.5_d1"])) <= 1e-12
    assert abs(loss_of_privacy(one, 1.0, 0.5) - dpp2.epsilon(one, 1.0, 0.5, 1)) <= 1e-9
    few = msgspec.structs.replace(one, rounds=2, decay=0.99, u_e=1.0, u_w=100.0)
    assert dpp2.claimed_epsilon(few, 1.0, 0.01, 1) < 1.03
    assert loss_of_privacy(few, 1.0, 0.01) > 1.98


def test_corollary_1_promises_1_where_7_9_is_attained():
    """Its r lies above (c/eps)^(1/(K-1)) with c < eps, and its sum over k was to be at most eps: it is nearly K eps."""
    K, target, M, delta, u_e, u_w = 8, 1.0, 0.01, 1.0, 1.05, 1e4
    bound = (target - M / u_e) / (delta * (1 / u_w + target))
    alpha = min(1 / M, bound) * 0.5
    c = (1 / (alpha * u_e) + 1 / u_w) * alpha * delta / (1 - alpha * M)
    assert u_e > M / target
    assert c < target
    r = 0.5 * ((c / target) ** (1 / (K - 1)) + 1)
    p = Params(
        variant="published", rounds=K + 1, alpha=alpha, beta=0.1 * alpha, rho=0.1, eta=0.5, decay=r, u_w=u_w, u_e=u_e
    )
    assert loss_of_privacy(p, delta, M) >= 7.9


def test_the_papers_own_experiment_costs_5e24():
    """Section VI: k = 0..500, r = .9, u = 1, alpha = .1, M = 5.03, d = 10, for delta = 1."""
    p = Params(variant="published", rounds=501, eta=0.5, **NUMBERS, **NOISY)
    found = dpp2.claimed_epsilon(p, 1.0, 5.03, 10)
    c, exponent = V["eps_K500_r.9"]
    assert abs(log10(found) - exponent) <= 1e-9
    assert abs(found - c * (0.9**-500 - 1) / 0.1) <= 1e-9 * found
    assert 5e24 < found < 6e24
    assert dpp2.claimed_epsilon(msgspec.structs.replace(p, decay=0.1), 1.0, 5.03, 10) == inf  # .1^500 is none


def test_who_is_given_the_final_x_takes_the_last_noise_off_the_last_gradient():
    """Finding 4.4: by (18) x^K less what was sent in the last round is alpha e^{K-1}."""
    fleet = published(FUNCTIONS, STORED, 0.5, x0=V["x0"], w=V["w"], e=V["e"])
    heard = heard_from(fleet)
    *_, (noisy_x, noisy_g) = eavesdrop(heard, [0.5] * K, NUMBERS["rho"], V["P"])
    G = NUMBERS["alpha"] * np.eye(N) - NUMBERS["beta"] * V["P"]
    e = (states(fleet, "x") - (noisy_x - G @ heard[-1][1])) / NUMBERS["alpha"]
    assert np.max(np.abs(e - V["e"][-1])) <= 1e-9
    assert np.max(np.abs(noisy_g - e - V["T_g"][-1])) <= 1e-9
