"""The first-order rivals of DPP2: their papers' update boxes, their limits, and what the gate's and the papers' noise
does.
"""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.algorithms import dgd, diadsp, extra, mixing, nids, ppdc
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.rollout.compiled.mixing import Edges, mix
from tests.support import examples
from tests.support.agents.lockstep_rounds import Data, messages, name, run, states, weights
from tests.support.agents.rival_problems import GRAPHS, D, N, close, error, functions, gradients

SMOOTH = Regularizer()
COMPOSITE = Regularizer(l1=0.02, l2=0.05, box=0.6)
DPP2S = {"diadsp": {"alpha": 0.1}, "ppdc": {"gamma": 1.0, "omega": 0.5, "eta": 0.5}}
MODULES = {"extra": extra, "nids": nids, "dgd": dgd, "diadsp": diadsp, "ppdc": ppdc}


def nodes(which, fs, graph, rounds, *, r=SMOOTH, step_size=None, noise=None, perturbations=None, **params):
    """A node for each function. `noise` (n, answers, d) on the gradients; `perturbations`: of each node, in order."""
    module = MODULES[which]
    own = DPP2S.get(which) or {"step_size": step_size or 0.5 / max(f.L for f in fs)}
    p = module.Params(**{"variant": "none", "rounds": rounds} | own | params)
    between = () if which in DPP2S else (r,)
    return [
        module.Node(
            p, Data(f, None if noise is None else noise[i], None if perturbations is None else perturbations[i]),
            *between, weights(graph, i), f.size, name(i),
        )
        for i, f in enumerate(fs)
    ]  # fmt: skip


# --- the weights ---


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_node_s_mixing_is_its_row_of_I_minus_W(kind):
    graph, fs = GRAPHS[kind], functions("least-squares")
    v = np.random.default_rng(0).normal(size=(N, D))
    P = np.eye(N) - graph.metropolis()
    fleet = nodes("dgd", fs, graph, 1)
    found = [node.P(v[i], {name(j): v[j] for j in graph.neighbours[i]}) for i, node in enumerate(fleet)]
    assert close(found, P @ v)
    out = np.empty_like(v)
    mix(*Edges.from_graph(graph), v, out)
    assert close(out, P @ v)
    assert np.linalg.eigvalsh(P)[-1] <= mixing.bound(max(map(len, graph.neighbours))) + 1e-15


# --- the papers' boxes ---


@pytest.mark.parametrize("r", [SMOOTH, COMPOSITE], ids=["EXTRA", "PG-EXTRA"])
def test_EXTRA_and_PG_EXTRA_as_their_papers_print_them(r):
    fs, graph, alpha = functions("logistic"), GRAPHS["geometric"], 0.2
    W = graph.metropolis()
    mean = (np.eye(N) + W) / 2
    x = x_old = g_old = half = np.zeros((N, D))  # so that the first step is x^{1/2}
    for _, sent in messages(nodes("extra", fs, graph, 30, r=r, step_size=alpha)):
        assert close(sent, x)
        g = gradients(fs, x)
        half = W @ x + half - mean @ x_old - alpha * (g - g_old)
        x, x_old, g_old = np.array([r.prox(row, alpha) for row in half]), x, g
    assert np.linalg.norm(x) > 0.1


@pytest.mark.parametrize("r", [SMOOTH, COMPOSITE], ids=["smooth", "composite"])
def test_NIDS_as_its_paper_prints_it(r):
    """z+ = z - x + W~ (2 x - x_old - alpha (g - g_old)); the start z^1 = 0 is that of x_old - alpha g_old = 0."""
    fs, graph, alpha = functions("logistic"), GRAPHS["geometric"], 0.2
    mean = (np.eye(N) + graph.metropolis()) / 2
    x = z = old = np.zeros((N, D))
    fleet = nodes("nids", fs, graph, 30, r=r, step_size=alpha)
    for t, _ in messages(fleet):
        if t > 1:  # message 1 is the start
            new = x - alpha * gradients(fs, x)
            z, old = z - x + mean @ (x + new - old), new
            x = np.array([r.prox(row, alpha) for row in z])
        assert close(states(fleet, "x"), x)
        assert close(states(fleet, "z"), z)
    assert np.linalg.norm(x) > 0.1


@pytest.mark.parametrize("which", ["diadsp", "ppdc"])
def test_the_reconstructions_with_their_noise(which):
    fs, graph, K = functions("logistic"), GRAPHS["geometric"], 12
    W, draw = graph.metropolis(), np.random.default_rng(1).normal(size=(N, 2 * K, D))
    noise = {"decay": 0.5, "u_x": 1.0} | ({"u_y": 2.0} if which == "diadsp" else {"u_v": 2.0})
    fleet = nodes(which, fs, graph, K, variant="published", perturbations=draw, **noise)
    found = run(fleet)
    scales = fleet[0].gate.scales
    x, other, g, p = np.zeros((N, D)), np.zeros((N, D)), np.zeros((N, D)), DPP2S[which]
    for k in range(K):
        first, second = draw[:, 2 * k], draw[:, 2 * k + 1]
        assert [scales[2 * k], scales[2 * k + 1]] == [0.5**k, 2 * 0.5**k]
        if which == "diadsp":
            sent, tracked = x + first, other + second
            x = W @ sent - p["alpha"] * tracked
            g_new = gradients(fs, x)
            other, g = W @ tracked + g_new - g, g_new
        else:
            Px, v = x + first - W @ (x + first), other + second
            x = x - p["eta"] * (p["gamma"] * Px + p["omega"] * v + gradients(fs, x))
            other = v + p["eta"] * p["omega"] * Px
    assert close(found, x)


# --- the limits ---


@pytest.mark.runs
@pytest.mark.parametrize("kind", examples.few(["ring", "geometric"], ["geometric"]))
@pytest.mark.parametrize("loss", ["least-squares", "logistic"])
@pytest.mark.parametrize(
    ("which", "r"),
    [
        ("extra", SMOOTH),
        ("extra", COMPOSITE),
        ("nids", SMOOTH),
        ("nids", COMPOSITE),
        ("diadsp", SMOOTH),
        ("ppdc", SMOOTH),
    ],
    ids=["EXTRA", "PG-EXTRA", "NIDS", "NIDS composite", "gradient tracking", "primal-dual"],
)
def test_without_noise_they_reach_the_central_optimum_to_1e_10(which, r, loss, kind):
    fs = functions(loss)
    found = error(fs, r, run(nodes(which, fs, GRAPHS[kind], 1500, r=r)))
    assert found <= 1e-10


@pytest.mark.runs
def test_NIDS_takes_steps_of_the_gradient_method_itself_on_any_graph():
    """alpha just below 2/L, L the largest eigenvalue of any f_i'': EXTRA's bound on a path is a third of that."""
    fs = functions("least-squares")
    L = max(float(np.linalg.eigvalsh(f.A.T @ f.A / f.rows)[-1]) + 0.1 for f in fs)
    graph = Network(kind="path", nodes=N).build()
    assert error(fs, SMOOTH, run(nodes("nids", fs, graph, 3000, step_size=1.9 / L))) <= 1e-10
    with np.errstate(over="ignore", invalid="ignore"):
        x = run(nodes("extra", fs, graph, 600, step_size=1.9 / L))
    assert not np.max(np.abs(x)) < 1e3


@pytest.mark.runs
def test_DGD_ends_at_a_distance_that_follows_its_step():
    fs, errors = functions("least-squares"), []
    for alpha in (0.08, 0.04, 0.02):
        errors.append(error(fs, SMOOTH, run(nodes("dgd", fs, GRAPHS["ring"], 1500, step_size=alpha))))
    assert errors[0] > 1e-3
    for larger, smaller in pairwise(errors):
        assert 1.8 < larger / smaller < 2.2


@pytest.mark.runs
@pytest.mark.parametrize("which", ["diadsp", "ppdc"])
def test_the_reconstructions_noise_moves_their_limit_by_its_sum(which):
    """sum_i f_i'(x) = -Z (DiaDSP) or -omega Z (PPDC), Z all noise on the second variable; DPP2's limit stays (its
    test).
    """
    fs, K = functions("least-squares"), 3000
    noise = np.zeros((N, 2 * K, D))
    noise[:, :40] = np.random.default_rng(2).normal(size=(N, 40, D)) * 0.05
    keys = {"decay": 0.5, "u_x": 1.0} | ({"u_y": 1.0} if which == "diadsp" else {"u_v": 1.0})
    x = run(nodes(which, fs, GRAPHS["geometric"], K, variant="published", perturbations=noise, **keys))
    Z = noise[:, 1::2].sum(axis=(0, 1)) * (DPP2S["ppdc"]["omega"] if which == "ppdc" else 1.0)
    assert np.max(np.abs(x - x[0])) <= 1e-11
    assert np.max(np.abs(gradients(fs, x).sum(axis=0) + Z)) <= 1e-10
    assert np.linalg.norm(Z) > 0.1


# --- equivalences ---


@pytest.mark.parametrize("which", MODULES)
def test_guarded_without_noise_is_the_plain_method_bit_for_bit(which):
    fs, graph = functions("logistic"), GRAPHS["geometric"]
    guarded = run(nodes(which, fs, graph, 40, variant="guarded"))
    assert np.array_equal(guarded, run(nodes(which, fs, graph, 40)))


@pytest.mark.parametrize("which", ["diadsp", "ppdc"])
def test_published_without_noise_is_the_plain_method_bit_for_bit(which):
    fs, graph = functions("logistic"), GRAPHS["geometric"]
    keys = {"decay": 0.5, "u_x": 1.0} | ({"u_y": 1.0} if which == "diadsp" else {"u_v": 1.0})
    assert np.array_equal(
        run(nodes(which, fs, graph, 40, variant="published", **keys)), run(nodes(which, fs, graph, 40))
    )


@pytest.mark.parametrize("which", MODULES)
def test_guarded_every_gradient_they_use_is_the_gate_s_noisy_answer_and_none_is_asked_for_twice(which):
    """The noise of answer k alone moves the run, by what a changed gradient would: it enters once."""
    fs, graph, K = functions("logistic"), GRAPHS["geometric"], 20
    noise = np.random.default_rng(3).normal(size=(N, K, D))
    fleet = nodes(which, fs, graph, K, variant="guarded", noise=noise)
    x = run(fleet)
    asked = K - 1 if which in ("nids", "diadsp") else K
    assert [len(node.gate.answers) for node in fleet] == [asked] * N
    replayed = nodes(which, fs, graph, K)
    for node, other in zip(replayed, fleet, strict=True):
        answers = iter(other.gate.answers)
        node.gate.exact_gradient = lambda x, answers=answers: next(answers)
    assert np.array_equal(run(replayed), x)


def test_DGD_on_a_complete_graph_is_the_averaged_gradient_step():
    """W = 1/n: mean x+ = mean x - alpha mean f_i'(x_i), and everybody is that far from it as its own gradient is."""
    fs, alpha = functions("least-squares"), 0.1
    fleet = nodes("dgd", fs, GRAPHS["complete"], 20, step_size=alpha)
    x = np.zeros((N, D))
    for _, sent in messages(fleet):
        assert close(sent, x)
        x = x.mean(axis=0) - alpha * gradients(fs, x)


def test_the_nodes_q_sums_to_zero_whatever_the_gate_answers():
    fs, graph = functions("logistic"), GRAPHS["geometric"]
    noise = np.random.default_rng(3).normal(size=(N, 50, D))
    for which in ("extra", "nids"):
        fleet = nodes(which, fs, graph, 50, variant="guarded", noise=noise)
        run(fleet)
        assert close(states(fleet, "q").sum(axis=0), 0.0)


# --- parameters ---


@pytest.mark.parametrize(
    ("params", "keys", "said"),
    [
        (diadsp.Params, {**DPP2S["diadsp"], "u_x": 1.0}, "algorithm.u_x: found 1.0, expected none .variant: guarded."),
        (ppdc.Params, {**DPP2S["ppdc"], "variant": "published"}, "algorithm.decay: missing, expected a value"),
    ],
)
def test_noise_is_for_the_published_variant_alone_and_needed_there(params, keys, said):
    with pytest.raises(InputError, match=said):
        params(rounds=2, **keys)


@pytest.mark.parametrize("module", MODULES.values())
def test_a_section_of_a_scenario_reads_as_its_parameters(module):
    own = DPP2S.get(module.Params.__struct_config__.tag) or {"step_size": 0.1}
    section = {"name": module.Params.__struct_config__.tag, "rounds": 5, **own}
    read = msgspec.convert(section, module.Params)
    assert (read.variant, read.weights) == ("guarded", "metropolis")
    with pytest.raises(msgspec.ValidationError, match="step"):
        msgspec.convert(section | {"steps": 1}, module.Params)
