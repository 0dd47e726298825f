"""DMSP, the method with a weakening factor and PrivSGP-VR: their updates, their limits, what their own noise costs, and
DIFF2 in simulation.
"""

from math import inf

import numpy as np
import pytest

from hushgrid.kernels.algorithms import dmsp, privsgp, weakening
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.lab.studies.baselines import diff2
from tests.support.agents.lockstep_rounds import Data, name, run, weights
from tests.support.agents.rival_problems import GRAPHS, D, N, close, error, functions, gradients

GRAPH = GRAPHS["geometric"]
W = GRAPH.metropolis()
KEYS = {
    "dmsp": {"c": 1.0, "q": 0.9},
    "weakening": {"step": 1.0, "a": 0.9, "chi": 0.7, "b": 0.7},
    "privsgp": {"step_size": 0.5},
}
MODULES = {"dmsp": dmsp, "weakening": weakening, "privsgp": privsgp}
NOISE = {"dmsp": {"b": 1.0, "p": 0.95}, "weakening": {"u": 1.0, "s": 0.1}}


def nodes(which, fs, rounds, *, box=inf, noise=None, perturbations=None, **keys):
    p = MODULES[which].Params(**{"variant": "none", "rounds": rounds} | KEYS[which] | keys)
    between = (Regularizer(box=box),) if which == "dmsp" else ()
    return [
        MODULES[which].Node(
            p, Data(f, None if noise is None else noise[i], None if perturbations is None else perturbations[i]),
            *between, weights(GRAPH, i), f.size, name(i),
        )
        for i, f in enumerate(fs)
    ]  # fmt: skip


# --- the updates ---


def test_DMSP_steps_from_the_mixed_states_with_steps_that_shrink():
    fs, K = functions("logistic"), 12
    xi = np.random.default_rng(1).normal(size=(N, K, D))
    fleet = nodes("dmsp", fs, K, variant="published", perturbations=xi, box=0.3, **NOISE["dmsp"])
    found, x = run(fleet), np.zeros((N, D))
    for k in range(K):
        assert fleet[0].gate.scales[k] == pytest.approx(0.95**k)
        z = W @ (x + xi[:, k])
        x = np.clip(z - 0.9**k * gradients(fs, z), -0.3, 0.3)
    assert close(found, x)
    assert np.max(np.abs(x)) == 0.3


def test_the_weakening_factor_is_on_the_neighbours_messages_alone():
    fs, K = functions("logistic"), 12
    xi = np.random.default_rng(1).normal(size=(N, K, D))
    fleet = nodes("weakening", fs, K, variant="published", perturbations=xi, **NOISE["weakening"])
    found, x, apart = run(fleet), np.zeros((N, D)), W - np.diag(np.diag(W))
    for k in range(1, K + 1):
        assert fleet[0].gate.scales[k - 1] == pytest.approx(k**0.1)
        heard = apart @ (x + xi[:, k - 1]) - apart.sum(axis=1)[:, None] * x
        x = x + 0.7 / k**0.7 * heard - 1.0 / k**0.9 * gradients(fs, x)
    assert close(found, x)


def test_PrivSGP_steps_along_the_answer_and_then_mixes_with_a_weight_that_stays_1():
    fs, K = functions("logistic"), 12
    noise = np.random.default_rng(1).normal(size=(N, K, D))
    fleet = nodes("privsgp", fs, K, variant="guarded", noise=noise)
    found, x, weight = run(fleet), np.zeros((N, D)), np.ones(N)
    for k in range(K - 1):
        x, weight = W @ (x - 0.5 * (gradients(fs, x) + noise[:, k])), W @ weight
    assert close(found, x)
    assert close(weight, 1.0)
    assert [len(node.gate.answers) for node in fleet] == [K - 1] * N


@pytest.mark.parametrize("which", MODULES)
def test_guarded_every_gradient_is_the_gate_s_answer_and_none_is_asked_for_twice(which):
    fs, K = functions("logistic"), 20
    noise = np.random.default_rng(3).normal(size=(N, K, D))
    fleet = nodes(which, fs, K, variant="guarded", noise=noise)
    x = run(fleet)
    assert [len(node.gate.answers) for node in fleet] == [MODULES[which].Params(rounds=K, **KEYS[which]).answers] * N
    replayed = nodes(which, fs, K)
    for node, other in zip(replayed, fleet, strict=True):
        answers = iter(other.gate.answers)
        node.gate.exact_gradient = lambda x, answers=answers: next(answers)
    assert np.array_equal(run(replayed), x)


# --- the limits ---


@pytest.mark.runs
def test_the_steps_of_DMSP_may_end_before_the_optimum_and_then_more_rounds_change_nothing():
    """Together they are c/(1 - q) long; what follows round 400 is at most .9^400/(1 - .9) of a gradient."""
    fs = functions("least-squares")
    short, long = (run(nodes("dmsp", fs, K, c=0.05)) for K in (400, 800))
    assert np.max(np.abs(short - long)) <= 1e-15
    assert error(fs, Regularizer(), short) > 0.3
    assert error(fs, Regularizer(), run(nodes("dmsp", fs, 800, c=0.5, q=0.99))) < 0.05


@pytest.mark.runs
def test_with_a_weakening_factor_noise_that_grows_is_forgotten():
    """Squares of what enters, (chi^k u k^s)^2, are summable: the error falls while the scale of the noise rises."""
    fs = functions("least-squares")
    xi = np.random.default_rng(5).laplace(size=(N, 6400, D))
    errors = [
        error(fs, Regularizer(), run(nodes("weakening", fs, K, variant="published", perturbations=xi, u=0.1, s=0.1)))
        for K in (100, 800, 6400)
    ]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.runs
def test_the_distance_at_which_PrivSGP_ends_follows_its_step():
    fs = functions("least-squares")
    larger, smaller = (
        error(fs, Regularizer(), run(nodes("privsgp", fs, 1500, step_size=step))) for step in (0.04, 0.02)
    )
    assert 1.8 < larger / smaller < 2.2


# --- what their own noise costs ---


def test_the_total_of_DMSP_is_bounded_whatever_the_number_of_rounds():
    few, many = (dmsp.Params(variant="published", rounds=K, **KEYS["dmsp"], **NOISE["dmsp"]) for K in (2, 10_000))
    assert dmsp.epsilon(few, 0.5, 4) == pytest.approx(2 * 0.5 * 1.0 / 0.95)  # sqrt(d) delta c under noise of b p
    assert dmsp.epsilon(many, 0.5, 4) == pytest.approx(2 * 0.5 * 1.0 / (0.95 - 0.9))
    assert dmsp.epsilon(dmsp.Params(rounds=2, **KEYS["dmsp"]), 0.5, 4) == inf


@pytest.mark.parametrize("which", ["dmsp", "weakening"])
def test_no_message_of_two_adjacent_nodes_differs_by_more_than_its_proof_says(which):
    """Node 0's gradients differ by exactly delta, all neighbours' messages are the same: the noise that makes node 0's
    own messages alike costs sum |difference|_1/scale.
    """
    fs, K, delta = functions("least-squares"), 15, np.full(D, 0.2)
    keys = KEYS[which] | NOISE[which]
    p = MODULES[which].Params(variant="published", rounds=K, **keys)
    one, other = (nodes(which, fs, K, variant="published", **NOISE[which])[0] for _ in range(2))
    moved = other.gate.exact_gradient
    other.gate.exact_gradient = lambda x: moved(x) + delta
    draw, cost = np.random.default_rng(7), 0.0
    here, there = one.first(), other.first()
    for t in range(1, K):
        heard = {j: draw.normal(size=D) for j in one.neighbours}
        sent = here + draw.normal(size=D)  # what is heard of node 0, the same in both
        if which == "dmsp":
            here, there = one.step(t, sent, heard), other.step(t, sent, heard)
        else:
            here, there = one.step(t, here, heard), other.step(t, there, heard)
        cost += np.sum(np.abs(here - there)) / one.gate.scales[t]
    size = float(np.linalg.norm(delta))
    more = () if which == "dmsp" else (1 - W[0, 0], fs[0].L)
    assert 0 < cost <= MODULES[which].epsilon(p, size, D, *more) * (1 + 1e-12)
    assert cost > 0.5 * MODULES[which].epsilon(p, size, D, *more)


# --- parameters ---


@pytest.mark.parametrize(
    ("module", "keys", "said"),
    [
        (dmsp, {**NOISE["dmsp"], "p": 0.9, "variant": "published"}, "algorithm.p: found 0.9, expected more than q"),
        (weakening, {"b": 0.85}, "algorithm.b: found 0.85, expected less than 2 a - 1 = 0.8"),
        (weakening, {"u": 1.0, "s": 0.2, "variant": "published"}, "algorithm.s: found 0.2, expected less than b - 1/2"),
        (weakening, {"variant": "published"}, "algorithm.u: missing, expected a value"),
    ],
)
def test_conditions_of_convergence_are_asked_for(module, keys, said):
    with pytest.raises(InputError, match=said):
        module.Params(rounds=2, **KEYS[module.__name__.rsplit(".", 1)[1]] | keys)


# --- DIFF2 ---


def test_without_noise_DIFF2_is_the_gradient_method():
    """A bound that clips nothing; 300 steps of .5 on a curvature of at least .1 leave .95^300 = 2e-7."""
    fs = functions("logistic")
    p = diff2.Params(rounds=300, step=0.5, clip=1e3, smooth=1e3, mu=1e6, restart=7)
    quiet = type("Quiet", (), {"normal": lambda self, size: np.zeros(size)})()
    *_, x = diff2.run(p, fs, quiet)
    assert np.linalg.norm(x - optimum(fs, Regularizer()).x) <= 1e-6


def test_the_noise_of_a_difference_shrinks_with_the_distance_of_its_points():
    """One node's answers with and without noise: sd is 2 C/m sqrt(K)/mu, and that times S |x - x-|/C for a
    difference.
    """
    (f, *_), drawn = functions("logistic"), []

    class Recorded:
        def normal(self, size):
            drawn.append(np.ones(size))
            return drawn[-1]

    p = diff2.Params(rounds=2, step=1e-3, clip=1.0, smooth=2.0, mu=0.5)
    first, second = diff2.run(p, [f], Recorded())
    sd = 2 / f.rows * 2**0.5 / 0.5
    fresh = diff2.clipped_mean(f.slope(np.zeros(D))[:, None] * f.A, 1.0)
    assert close(first, -1e-3 * (fresh + sd))
    moved = float(np.linalg.norm(first))
    change = diff2.clipped_mean((f.slope(first) - f.slope(np.zeros(D)))[:, None] * f.A, 2 * moved)
    assert close(second, first - 1e-3 * (fresh + sd + change + 2 * moved * sd + f.public_gradient(first)))


def test_a_record_moves_an_answer_of_DIFF2_by_no_more_than_twice_the_bound_over_m():
    draw = counter_generator(0, "records", 0)
    rows = draw.normal(size=(20, D)) * 10
    for bound in (0.0, 0.5, 3.0):
        other = rows.copy()
        other[3] = -100.0
        moved = np.linalg.norm(diff2.clipped_mean(rows, bound) - diff2.clipped_mean(other, bound))
        assert moved <= 2 * bound / 20 * (1 + 1e-12)
