"""ADMM, R-ADMM and MR-ADMM: the papers' vectors, the limit (Finding 5.1), and what an even round may use (Finding
5.2).
"""

import msgspec
import numpy as np
import pytest

from hushgrid.kernels.algorithms import radmm
from hushgrid.kernels.algorithms.radmm import Conventional, Growth, Params, Recycled
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import ALL
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from tests.support.agents.agents_without_gate import Data, losses
from tests.support.agents.lockstep_rounds import messages
from tests.support.agents.radmm_agents import UNLIKE, VECTORS, nodes, ring, sent, stored

# --- the vectors ---


ALGORITHMS = {
    "admm": (Conventional, {"eta": 0.5}),
    "radmm": (Recycled, {"eta": 0.5, "gamma": 0.5}),
    "mradmm_common": (Params, {"eta": Growth(0.5, 1.05), "gamma": 0.5}),
    "mradmm_hetero_published": (Params, {"eta": UNLIKE, "gamma": 0.5, "penalties": "node"}),
    "mradmm_hetero_edgefix": (Params, {"eta": UNLIKE, "gamma": 0.5}),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_iterates_are_the_stored_ones(name):
    params, keys = ALGORITHMS[name]
    fs, neighbours = stored()
    K = 20 if params.recycles else 10
    fleet = nodes(fs, neighbours, params, rounds=K, **keys)
    names = ["f_odd", "f_even"] if params.recycles else ["f"]
    for t, f in messages(fleet):
        k = fleet[0].params.answer_of(t) - 1
        assert np.max(np.abs(f - VECTORS[f"{name}/{names[(t - 1) % len(names)]}"][k])) <= 1e-9
        lam = np.array([node.state.lam for node in fleet])
        assert np.max(np.abs(lam - VECTORS[f"{name}/lam"][k])) <= 1e-9
    assert t == K


# --- the pattern ---


def test_the_machine_answers_messages_in_any_order_with_the_same_bits():
    fs, neighbours = stored()
    expected = sent(nodes(fs, neighbours, rounds=6))
    fleet = {node.name: node for node in nodes(fs, neighbours, rounds=6)}
    air = []

    def after(node, step):
        air.extend((node, send) for send in step.send if send.dst == ALL)
        if step.more:
            after(node, node.proceed())

    for node in fleet.values():
        after(node, node.start())
    while air:
        src, send = air.pop()  # the latest first
        assert np.array_equal(send.body.vector, expected[send.seq - 1][int(src.name[1:])])
        for to in src.neighbours:
            after(fleet[to], fleet[to].receive(src.name, send.seq, send.body))
    assert {node.state.done for node in fleet.values()} == {"rounds"}


class Counted(Data):
    def __init__(self, loss):
        super().__init__(loss)
        self.asked = 0

    def exact_minimizer(self, linear, quadratic):
        self.asked += 1
        return super().exact_minimizer(linear, quadratic)


@pytest.mark.parametrize("rounds", [1, 2, 7])
@pytest.mark.parametrize("params", [Conventional, Recycled, Params])
def test_the_gate_is_asked_as_often_as_the_plan_says_and_never_in_an_even_round_of_recycled_admm(params, rounds):
    fs, neighbours = stored()
    gates = [Counted(f) for f in fs]
    fleet = nodes(fs, neighbours, params, gates, rounds=rounds)
    assert len(sent(fleet)) == rounds
    assert [gate.asked for gate in gates] == [fleet[0].params.answers] * 4
    assert fleet[0].params.answers == (-(-rounds // 2) if params.recycles else rounds)


# --- the limit ---


ON_THE_WAY = {
    "ADMM": (Conventional, {}),
    "ADMM, penalties of edges": (Conventional, {"eta": UNLIKE}),
    "R-ADMM": (Recycled, {"gamma": 1.0}),
    "MR-ADMM": (Params, {"eta": UNLIKE, "gamma": 1.0}),
    "MR-ADMM, growing": (Params, {"eta": Growth(UNLIKE, 1.001), "gamma": 1.0}),
}


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["least-squares", "logistic"])
@pytest.mark.parametrize("name", ON_THE_WAY)
def test_it_reaches_the_centralised_optimum(kind, name):
    params, keys = ON_THE_WAY[name]
    fs = losses(kind, 4, 20, 3, 4, l2=0.5)
    best = optimum(fs, Regularizer())
    last = sent(nodes(fs, ring(4), params, rounds=160, **keys))[-2:]
    assert best.distance <= 1e-13
    assert np.max(np.linalg.norm(last - best.x, axis=2)) <= 1e-10 * np.linalg.norm(best.x)


@pytest.mark.runs
def test_the_papers_node_penalties_tend_to_a_wrong_point_and_those_of_edges_to_the_right_one():
    """Finding 5.1: sum_i lambda_i/eta_i = 0 is kept in place of sum_i lambda_i = 0: argmin sum_i O_i/eta_i."""
    fs = losses("logistic", 4, 20, 3, 4, l2=0.5)
    right = optimum(fs, Regularizer())
    o = fs[0].objective
    scaled = [
        Loss(msgspec.structs.replace(o, scale=o.scale / eta, l2=o.l2 / eta), f.A, f.b)
        for f, eta in zip(fs, UNLIKE, strict=True)
    ]
    wrong = optimum(scaled, Regularizer())
    size = np.linalg.norm(right.x)
    keys = {"eta": UNLIKE, "gamma": 1.0, "rounds": 160}
    node, edge = (sent(nodes(fs, ring(4), Params, penalties=p, **keys))[-1] for p in ("node", "edge"))
    assert np.max(np.linalg.norm(node - wrong.x, axis=1)) <= 1e-10 * size
    assert np.max(np.linalg.norm(edge - right.x, axis=1)) <= 1e-10 * size
    assert np.linalg.norm(wrong.x - right.x) >= 0.01 * size


# --- equivalences ---


@pytest.mark.parametrize("penalties", ["edge", "node"])
def test_mr_admm_with_one_common_eta_is_r_admm(penalties):
    fs, neighbours = stored()
    plain = sent(nodes(fs, neighbours, Recycled, gamma=0.5))
    for eta in ((0.5,) * 4, Growth(0.5, 1.0), Growth((0.5,) * 4, (1.0,) * 4)):
        assert np.array_equal(sent(nodes(fs, neighbours, Params, eta=eta, gamma=0.5, penalties=penalties)), plain)


@pytest.mark.parametrize("params", [Conventional, Recycled, Params])
def test_without_noise_the_private_algorithm_is_the_plain_one(params):
    fs, neighbours = stored()
    silent = [Data(f, np.zeros((20, 3))) for f in fs]
    guarded = sent(nodes(fs, neighbours, params, silent, variant="guarded"))
    assert np.array_equal(guarded, sent(nodes(fs, neighbours, params)))


def test_an_even_round_is_19_with_the_noisy_gradient_it_does_not_see():
    """eps + grad O(f_i) = -(v + 2 sum_j eta_ij f_i) is the KKT condition of (18)."""
    fs, neighbours = stored()
    eps = np.random.default_rng(3).normal(size=(4, 1, 3))
    fleet = nodes(fs, neighbours, Params, [Data(f, e) for f, e in zip(fs, eps, strict=True)], variant="guarded",
                  penalties="edge", rounds=2, eta=UNLIKE, gamma=0.7)  # fmt: skip
    odd, even = sent(fleet)
    for i, node in enumerate(fleet):
        pull = sum((UNLIKE[i] + UNLIKE[j]) / 2 * (odd[i] - odd[j]) for j in neighbours[i])
        weight = 2 * sum((UNLIKE[i] + UNLIKE[j]) / 2 for j in neighbours[i]) + 0.7
        expected = odd[i] - (eps[i, 0] + fs[i].gradient(odd[i]) + 2 * node.state.lam + pull) / weight
        assert np.allclose(even[i], expected, rtol=0, atol=1e-13)


# --- Finding 5.2 ---


def steps_of_descent(loss, linear, quadratic, count=10):
    """An inexact minimiser: gradient descent from zero, as a device with little time would."""
    x = np.zeros(loss.size)
    for _ in range(count):
        x = x - 0.1 * (loss.gradient(x) + linear + quadratic * x)
    return x


@pytest.mark.runs
def test_with_an_inexact_solve_a_recycled_gradient_tells_the_data_set_every_time():
    """The even message gives eps + grad O(f~); with either data set that gives an eps, and only the true one yields
    f~.
    """
    rng, found = np.random.default_rng(8), 0
    eta, gamma, V = 0.5, 0.5, 2
    for _ in range(200):
        A, b = rng.normal(size=(6, 3)), np.sign(rng.normal(size=6))
        A /= np.linalg.norm(A, axis=1)[:, None]
        other = A.copy()
        other[0] = np.roll(A[0], 1)
        fs = [Loss(Objective(kind="logistic", l2=0.1), rows, b) for rows in (A, other)]
        truth, eps = rng.integers(2), rng.normal(size=3)
        f = steps_of_descent(fs[truth], eps, 2 * eta * V)
        lam, pull = rng.normal(size=(2, 3))  # public
        even = f - (eps + fs[truth].gradient(f) + 2 * lam + pull) / (2 * eta * V + gamma)
        stored_gradient = (f - even) * (2 * eta * V + gamma) - 2 * lam - pull
        guesses = [steps_of_descent(o, stored_gradient - o.gradient(f), 2 * eta * V) for o in fs]
        found += np.argmin([np.linalg.norm(g - f) for g in guesses]) == truth
    assert found == 200


def test_the_public_right_hand_side_makes_the_even_message_a_function_of_messages():
    """Whatever the data are, and whatever the gate has answered: step 1 has only messages to go by."""
    fs, neighbours = stored()
    odd = sent(nodes(fs, neighbours, rounds=1))[0] + 0.1  # an answer no minimiser would give
    even = []
    for gates in ([Data(f) for f in fs], [None] * 4):
        fleet = nodes(fs, neighbours, gates=gates, gamma=0.5)
        even.append([node.step(1, odd[i], {f"n{j}": odd[j] for j in neighbours[i]}) for i, node in enumerate(fleet)])
    assert np.array_equal(*even)


# --- the parameters ---


@pytest.mark.parametrize(
    ("params", "keys", "line"),
    [
        (Conventional, {"gamma": 0.5}, r"algorithm\.gamma: found 0\.5, expected none \(admm has no even step\)"),
        (Params, {"eta": (0.5, 0.5, 0.5)}, r"algorithm\.eta: found 3 numbers, expected one for each node"),
        (Params, {"eta": Growth((0.5,), 1.1)}, r"algorithm\.eta\.start: found 1 numbers, expected one for each node"),
    ],
)
def test_keys_that_contradict_are_one_line(params, keys, line):
    fs, neighbours = stored()
    with pytest.raises(InputError, match=f"^{line}$"):
        nodes(fs, neighbours, params, **keys)


def test_a_scenario_s_section_is_read_into_them():
    union = Conventional | Recycled | Params
    read = msgspec.convert({"name": "mradmm", "rounds": 8, "eta": {"start": 1.0, "growth": 1.04}, "gamma": 0.5}, union)
    assert isinstance(read, Params)
    assert [read.eta_i(0, k) for k in (1, 2)] == pytest.approx([1.04, 1.04**2], rel=1e-15)
    assert read.eta_i(0, 10**7) == radmm.LARGEST
    assert (read.variant, read.of_edges, read.answers) == ("guarded", True, 4)
    published = msgspec.convert({"name": "radmm", "rounds": 7, "eta": [1.0, 2.0], "variant": "published"}, union)
    assert (type(published), published.of_edges, published.eta_i(1, 9)) == (Recycled, False, 2.0)
    for wrong in ({"eta": 0.0}, {"eta": {"start": 1.0, "growth": 0.9}}, {"eta": 1.0, "gamma": -1.0}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"name": "radmm", "rounds": 8} | wrong, union)
