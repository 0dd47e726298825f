"""DPP2: the paper's vectors, its limit, where it diverges, and what it tells (Findings 4.1 to 4.3)."""

import msgspec
import numpy as np
import pytest

from hushgrid.kernels import jit
from hushgrid.kernels.algorithms import dpp2
from hushgrid.kernels.algorithms.dpp2 import Params
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.lab.benchmarks import rounds
from hushgrid.lab.rollout.compiled import dpp2 as whole_dpp2
from hushgrid.lab.rollout.compiled.mixing import Edges
from tests.support.agents.dpp2_agents import (
    FUNCTIONS,
    NOISY,
    NUMBERS,
    STORED,
    D,
    K,
    N,
    V,
    logistic,
    near,
    nodes,
    published,
    smoothness,
)
from tests.support.agents.lockstep_rounds import classification, messages, run, states

FAST = {"alpha": 0.4, "beta": 0.15, "rho": 2.0}  #: modes of curvature h shrink by about (1 - g h)^(1/2) a round


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


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["ring", "geometric", "complete"])
def test_on_a_nonconvex_problem_it_reaches_consensus_and_stationarity_below_1e_20(kind):
    fs, graph = logistic(kind)
    all_nodes = whole_dpp2.Nodes(Params(variant="none", rounds=4000, **FAST), fs, graph)
    for _ in range(20):
        all_nodes.run(200)
        gap = dpp2.stationarity(all_nodes.x, np.array([f.gradient(x) for f, x in zip(fs, all_nodes.x, strict=True)]))
        if gap < 1e-20:
            break
    assert gap < 1e-20
    assert np.linalg.norm(all_nodes.x[0]) > 0.1


@pytest.mark.runs
def test_decaying_noise_leaves_the_limit_where_it_is_and_the_gates_constant_noise_does_not():
    fs, graph = logistic()
    rounds, draw = 3000, np.random.default_rng(3)
    exact = whole_dpp2.Nodes(Params(variant="none", rounds=rounds, **FAST), fs, graph)
    exact.run(rounds)
    noise = draw.laplace(size=(rounds, len(fs), 3))
    decay = (0.9 ** np.arange(rounds))[:, None, None]
    paper = whole_dpp2.Nodes(Params(variant="published", rounds=rounds, eta=0.5, **FAST, **NOISY), fs, graph)
    paper.run(rounds, w=noise * decay, e=noise[::-1] * decay)
    assert np.max(np.abs(paper.x - exact.x)) <= 1e-9
    guarded = whole_dpp2.Nodes(Params(variant="guarded", rounds=rounds, **FAST), fs, graph)
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
    whole = whole_dpp2.Nodes(
        Params(variant=variant, rounds=K, **NUMBERS, **more), FUNCTIONS, STORED, max(map(smoothness, FUNCTIONS))
    )
    half = {key: a[: K // 2] for key, a in given.items()}, {key: a[K // 2 :] for key, a in given.items()}
    found = np.concatenate([whole.run(K // 2, record=True, **half[0]), whole.run(K - K // 2, record=True, **half[1])])
    for t, _ in messages(fleet):
        if t % 2 == 0:
            assert near(found[t // 2 - 1], [states(fleet, "x"), states(fleet, "q")])


@pytest.mark.runs
def test_the_benchmark_times_the_same_arithmetic_beside_a_bare_loop(monkeypatch):
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(
        numba.config, "DISABLE_JIT", True
    )  # its loops as they are written: to compile them takes seconds
    fs, graph = classification(rounds.OBJECTIVE, 5, 8, rounds.D, 6), Network(kind="ring", nodes=5).build()
    whole = whole_dpp2.Nodes(rounds.PARAMS, fs, graph, max(map(smoothness, fs)))
    whole.run(20)
    assert near(rounds._bare(fs, Edges.from_graph(graph), 20)(), whole.x)
    rows = rounds.measured(n=12, rows=40, rounds=3, repeats=2)
    assert jit.MODE in rows[0].what
    assert all(row.unit == "ms" and row.value > 0 for row in rows)


# --- where it diverges ---


RING = Network(kind="ring", nodes=4).build()
H = 3.0  # curvature of every f_i = H/2 |x|^2 - b_i x


def quadratics(n):
    """f_i = 1/2 mean (sqrt(H) x - b)^2."""
    return [Loss(Objective(kind="least-squares"), np.full((1, 1), H**0.5), np.array([i + 1.0])) for i in range(n)]


@pytest.mark.runs
def test_the_bound_of_the_stability_check_is_where_divergence_begins():
    """On a ring of four the largest eigenvalue of P is the bound 4/3 itself, and every curvature is M."""
    most, beta, rho = 4 / 3, 0.01, 2.0
    assert np.allclose(np.linalg.eigvalsh(np.eye(4) - RING.metropolis())[-1], most)
    edge = 4 / (rho * most + 2 * H) + beta * most
    calm = whole_dpp2.Nodes(
        Params(variant="none", rounds=4000, alpha=0.99 * edge, beta=beta, rho=rho), quadratics(4), RING
    )
    calm.run(4000)
    optimum = 2.5 / H**0.5
    assert np.max(np.abs(calm.x - optimum)) <= 1e-10
    unstable = msgspec.structs.replace(calm.params, alpha=1.01 * edge)
    with pytest.raises(InputError, match=r"DPP2 may diverge$"):
        whole_dpp2.Nodes(unstable, quadratics(4), RING)
    wild = whole_dpp2.Nodes(calm.params, quadratics(4), RING)
    wild.params = unstable
    wild.run(1000)
    assert np.max(np.abs(wild.x - optimum)) > 1e3


def test_the_check_finds_a_mode_in_the_middle_of_the_spectrum():
    """alpha = beta l at the ends of [0, 4/3] nearly: rho lifts only the modes between."""
    p = Params(variant="none", rounds=1, alpha=0.1, beta=0.0749, rho=200.0)
    with pytest.raises(InputError, match=r"it is 6\.\d+ at l = 0\.6\d+"):
        p.check([H], 2)


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
    assert (alpha.actual, round(alpha.below, 7)) == (0.1, 9.236e-4)
    assert not any(found[where].holds for where in found if not where.startswith("(24)"))


def test_conditions_that_hold_are_found_to_hold():
    """On a complete graph kappa = 1; then rho large and alpha small fulfil them."""
    P = np.eye(4) - Network(kind="complete", nodes=4).build().metropolis()
    rho = 300.0
    alpha = 1e-9
    found = dpp2.conditions(Params(variant="none", rounds=1, alpha=alpha, beta=0.1 * alpha, rho=rho), P, 0.5)
    assert all(c.holds for c in found), found
