"""The ADMM family's private rivals: without noise they are what they perturb, with the gate's they cost what the plan
says.
"""

import numpy as np
import pytest

from hushgrid.kernels.algorithms import dpadmm, dpladmm, madmm, radmm
from hushgrid.kernels.privacy import perturbation
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.records.gate import RowsGate
from tests.support.agents.agents_without_gate import Data, losses
from tests.support.agents.lockstep_rounds import messages
from tests.support.agents.radmm_agents import UNLIKE, ring, sent, stored
from tests.support.devices.rows_device import commit, device, problem, terms


def nodes(fs, neighbours, machine=radmm, params=None, gates=None, **keys):
    p = (params or machine.Params)(**{"variant": "none", "rounds": 20, "eta": 0.5} | keys)
    gates = gates or [Data(f) for f in fs]
    return [
        machine.Agent(p, gates[i], f.size, f"n{i}", [f"n{j}" for j in neighbours[i]], centre="coordinator")
        for i, f in enumerate(fs)
    ]


# --- equivalences ---


@pytest.mark.runs
def test_without_noise_each_of_them_is_admm():
    fs, neighbours = stored()
    plain = sent(nodes(fs, neighbours, params=radmm.Conventional))
    for perturb in ("dual", "primal"):
        assert np.array_equal(sent(nodes(fs, neighbours, dpadmm, perturb=perturb)), plain)
    assert np.array_equal(sent(nodes(fs, neighbours, madmm, theta=0.5)), plain)


def test_dual_variable_perturbation_is_guarded_admm():
    fs, neighbours = stored()
    noise = np.random.default_rng(2).normal(size=(4, 20, 3))
    one, two = (
        sent(
            nodes(
                fs, neighbours, machine, params, [Data(f, e) for f, e in zip(fs, noise, strict=True)], variant="guarded"
            )
        )
        for machine, params in ((dpadmm, None), (radmm, radmm.Conventional))
    )
    assert np.array_equal(one, two)


class Output(Data):
    """Noise behind the minimiser."""

    def output_minimizer(self, linear, quadratic):
        return self.minimize(linear, quadratic).x + next(self.noise)


def test_primal_variable_perturbation_goes_on_from_what_was_sent():
    """(8)-(9) written out over all nodes, the noise added once, to f_i: the dual and the next minimiser see no other
    f_i.
    """
    fs, neighbours = stored()
    noise = np.random.default_rng(2).normal(size=(4, 6, 3))
    gates = [Output(f, e) for f, e in zip(fs, noise, strict=True)]
    found = sent(nodes(fs, neighbours, dpadmm, gates=gates, variant="guarded", perturb="primal", rounds=6))
    f, lam, eta = np.zeros((4, 3)), np.zeros((4, 3)), 0.5
    near = np.zeros((4, 4))
    for i, js in enumerate(neighbours):
        near[i, js] = 1.0
    for k in range(6):
        v = 2 * lam - eta * (2 * f + near @ f)
        f = np.array([Data(fs[i]).exact_minimizer(v[i], 2 * eta * 2) + noise[i, k] for i in range(4)])
        lam = lam + eta / 2 * (2 * f - near @ f)
        assert np.allclose(found[k], f, rtol=0, atol=1e-13)


def test_linearised_admm_is_the_minimiser_of_the_linearised_function():
    """And with the step 1/gamma it is the paper's (10), the gradient taken anew."""
    rng = np.random.default_rng(1)
    f, g, lam = rng.normal(size=(3, 5))
    eta, F, s = np.array([0.5, 0.5, 0.5]), rng.normal(size=(3, 5)), 0.3
    v = radmm.linear(f, lam, eta, F)
    x = dpladmm.linearised(f, g, v, 2 * 1.5, s)
    assert np.allclose(g + v + 3.0 * x + (x - f) / s, 0, atol=1e-13)
    expected = f - (g + 2 * lam + radmm.disagreement(f, eta, F)) / (2 * 1.5 + 1 / s)
    assert np.allclose(x, expected, rtol=0, atol=1e-14)


# --- the limit ---


@pytest.mark.runs
@pytest.mark.parametrize(
    ("machine", "keys"),
    [
        (madmm, {"eta": radmm.Growth((0.3, 0.4, 0.5, 0.4), 1.001), "theta": 0.3}),
        (dpladmm, {"step": 1.0, "schedule": "constant"}),
    ],
    ids=["M-ADMM, penalties of nodes", "linearised ADMM"],
)
def test_without_noise_it_reaches_the_centralised_optimum(machine, keys):
    fs = losses("logistic", 4, 20, 3, 4, l2=0.5)
    best = optimum(fs, Regularizer())
    last = sent(nodes(fs, ring(4), machine, rounds=200, **keys))[-1]
    assert np.max(np.linalg.norm(last - best.x, axis=1)) <= 1e-10 * np.linalg.norm(best.x)


@pytest.mark.runs
def test_linearised_admm_reaches_the_optimum_under_a_regularizer_and_a_box():
    fs, r = losses("logistic", 4, 20, 3, 4), Regularizer(l1=0.08, l2=0.05, box=0.2)
    best = optimum(fs, r).x
    assert np.any(best == 0)
    assert np.any(np.abs(best) == 0.2)
    fleet = nodes(fs, ring(4), dpladmm, rounds=400, step=1.0, schedule="constant")
    for node in fleet:
        node.regularizer = r
    assert np.max(np.abs(sent(fleet)[-1] - best)) <= 1e-10


def test_a_step_that_falls_with_the_root_of_k_is_the_default_of_linearised_admm():
    p = dpladmm.Params(variant="none", rounds=9, eta=0.5, step=2.0)
    assert [p.step_k(k) for k in (1, 4, 9)] == [2.0, 1.0, 2 / 3]


# --- with the real gate ---

PRIVATE = {
    "ADMM": (radmm, radmm.Conventional, {}),
    "R-ADMM": (radmm, radmm.Recycled, {"gamma": 0.5}),
    "MR-ADMM": (radmm, radmm.Params, {"gamma": 0.5, "eta": radmm.Growth(UNLIKE, 1.04)}),
    "dual perturbation": (dpadmm, dpadmm.Params, {}),
    "primal perturbation": (dpadmm, dpadmm.Params, {"perturb": "primal"}),
    "M-ADMM": (madmm, madmm.Params, {"theta": 0.3, "eta": radmm.Growth(UNLIKE, 1.04)}),
    "linearised": (dpladmm, dpladmm.Params, {"step": 0.5}),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_run_spends_what_its_plan_says_and_an_even_round_of_recycled_admm_nothing(tmp_path, name):
    machine, params, keys = PRIVATE[name]
    neighbours, K = ring(4), 7
    answers = params(rounds=K, **{"eta": 0.5} | keys).answers
    t = terms(answers=answers, per_answer=0.5, clip=1.0, adjacency="replace-one-record")
    devices, gates = [], []
    for i in range(4):
        (tmp_path / f"{i}").mkdir()
        devices.append(device(tmp_path / f"{i}", t))
        gates.append(RowsGate(f"n{i}", problem(40, 3, i, l2=0.1), t, SeededNoise(1, f"n{i}"), devices[i][1]))
    fleet = nodes(
        [gate.loss for gate in gates], neighbours, machine, params, gates, rounds=K, variant="guarded", **keys
    )
    for message, _ in messages(fleet):
        for (ledger, _), gate in zip(devices, gates, strict=True):
            commit(ledger, gate)
            asked = min(message + 1, K)  # step t asks for message t + 1
            assert gate.state.answers == (-(-asked // 2) if params.recycles else asked)
    for ledger, _ in devices:
        totals = ledger.spends.totals(t.adjacency)
        assert (totals.laplace, totals.nonprivate) == (answers, False)
        assert totals.epsilon <= t.epsilon


def test_at_one_total_epsilon_recycled_admm_has_half_the_answers_and_less_than_half_the_noise():
    """Two rounds an answer; the price of the Jacobian is paid half as often too."""
    loss = problem(400, 5, scale=10.0)
    alpha = {
        recycles: perturbation.objective(loss, 1.0 / (10 if recycles else 20), np.zeros(5), 2.0).alpha
        for recycles in (True, False)
    }
    assert alpha[True] > 2 * alpha[False]
