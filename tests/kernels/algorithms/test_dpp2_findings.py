"""DPP2: what its two tiers tell and what they cost (Findings 4.1 to 4.3)."""

from math import inf, log10

import msgspec
import numpy as np

from hushgrid.kernels.algorithms import dpp2
from hushgrid.kernels.algorithms.dpp2 import Params
from hushgrid.kernels.graphs import Network
from tests.support.agents.dpp2_agents import (
    FUNCTIONS,
    NOISY,
    NUMBERS,
    STORED,
    D,
    K,
    N,
    Slope,
    V,
    near,
    nodes,
    published,
)
from tests.support.agents.lockstep_rounds import messages, states

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
    """d^1 = y^0 and x^{k+1} = x^k - G z^k are known from what was sent: y^{k+1} - x^{k+1} = (1 - eta) d^{k+1} tells
    eta.
    """
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
    """ln P(messages | f)/P(messages | f'), two functions whose gradients differ by delta everywhere, for noise of f
    that lies beyond that of f' on every coordinate: an event of positive probability, throughout which it is the same.

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
