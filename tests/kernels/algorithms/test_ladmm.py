"""Algorithm 3.1 of Ryu and Kim (2022), line by line: the paper's sentences, a naive twin of each kernel, wrong
arguments.
"""

from math import inf, sqrt

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.algorithms import ladmm
from hushgrid.kernels.algorithms.ladmm import Params
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.star import W, Z
from tests.support.agents.quadratic_star import (
    CENTRES,
    HESSIAN,
    POSITION,
    SHARED,
    agent,
    converse,
    fleet,
    params,
    server,
)

numbers = st.floats(-1e3, 1e3)
positive = st.floats(1e-3, 1e3)


def vectors(size):
    return st.lists(numbers, min_size=size, max_size=size).map(np.array)


# --- the kernels against their naive twins ---


@given(st.data(), positive)
def test_line_5_averages_each_entry_over_its_owners(data, rho):
    owners = data.draw(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=4))
    owners.append({0, 1, 2, 3, 4})  # every entry has an owner
    position = [np.array(sorted(mine)) for mine in owners]
    z = [data.draw(vectors(k.size)) for k in position]
    lam = [data.draw(vectors(k.size)) for k in position]
    w = ladmm.average(z, lam, position, 5, rho)
    for k in range(5):
        mine = [
            z_p[i] - lam_p[i] / rho
            for z_p, lam_p, at in zip(z, lam, position, strict=True)
            for i in np.flatnonzero(at == k)
        ]
        assert w[k] == sum(mine) / len(mine)  # the same order of additions, so the same bits


@given(vectors(3), vectors(3), vectors(3), positive)
def test_lines_8_and_22_step_the_dual_along_what_is_left_of_the_consensus(lam, w, z, rho):
    naive = [lam[k] + rho * (w[k] - z[k]) for k in range(3)]
    assert ladmm.dual(lam, rho, w, z).tolist() == naive


@given(vectors(4), vectors(4), vectors(2), vectors(2), positive, positive, st.floats(0.1, 10))
def test_3_2_as_a_weighted_projection_minimises_the_printed_objective(noisy, z, w, lam, rho, eta, limit):
    """<f' + xi, x> + 1/(2 eta) |x - z|^2 + rho/2 |w - x + lambda/rho|^2 on the shared entries, over the box."""
    shared = np.array([1, 3])
    D = ladmm.weights(4, shared, rho, eta)
    x = np.clip(ladmm.target(noisy, z, w, lam, shared, rho, eta, D), -limit, limit)
    slope = noisy + (x - z) / eta  # of the printed objective
    slope[shared] -= rho * (w - x[shared] + lam / rho)
    # Each term of the slope is computed within a few roundings of its own size.
    size = np.abs(noisy) + (np.abs(x) + np.abs(z)) / eta
    size[shared] += rho * (np.abs(w) + np.abs(x[shared])) + np.abs(lam)
    room = 16 * 2.0**-52 * size + np.finfo(float).tiny  # among subnormal numbers a rounding is absolute
    assert (slope[x > -limit] <= room[x > -limit]).all()  # could not gain by a smaller x
    assert (slope[x < limit] >= -room[x < limit]).all()  # nor by a larger one


@given(positive, positive)
def test_the_weights_are_1_over_eta_and_rho_more_where_an_entry_is_shared(rho, eta):
    assert ladmm.weights(4, np.array([0, 3]), rho, eta).tolist() == [1 / eta + rho, 1 / eta, 1 / eta, 1 / eta + rho]


# --- the parameters ---


def test_E_1_grows_by_a_fifth_each_period_up_to_1e9():
    p = params(rho={"c1": 2.0, "c2": 5.0, "period": 100})
    p = msgspec.convert(msgspec.to_builtins(p), Params)
    assert p.rho_t(99, epsilon=0.5) == 2.0 + 5.0 / 0.5
    assert p.rho_t(100, epsilon=0.5) == pytest.approx(2.0 * 1.2 + 10.0, rel=1e-15)
    assert p.rho_t(1234, epsilon=0.5) == pytest.approx(2.0 * 1.2**12 + 10.0, rel=1e-14)
    assert p.rho_t(99) == 2.0  # nothing to hide: c2/epsilon vanishes
    assert p.rho_t(10**9, epsilon=0.5) == 1e9
    assert params(rho=7).rho_t(10**9) == 7.0


def test_eta_is_one_of_three():
    assert params().eta_t(4, L=10.0) == 1 / (10.0 + 2.0)  # the default
    assert params(eta="1/sqrt(t)").eta_t(4, L=10.0) == 0.5
    assert params(eta=0.03).eta_t(4, L=10.0) == 0.03


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": 0}, {"rounds": 2.5}, {"rho": 0.0}, {"rho": -1}, {"rho": float("nan")}, {"eta": "1/t"}, {"eta": 0},
     {"local_updates": 0}, {"rho": {"c1": 1, "c2": 0}}, {"rho": {"c1": 1, "c2": 0, "period": 0}}, {"step": 1.0}],
    ids=str,
)  # fmt: skip
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"rounds": 5} | wrong, Params)


# --- the machines ---


@pytest.mark.parametrize("E", [1, 3])
def test_the_duals_of_both_sides_are_the_same_bit_for_bit_over_a_run(E):
    p = params(rounds=20, local_updates=E)
    noise = np.random.default_rng(5).laplace(size=(60, 3))
    centre, agents = server(p), fleet(p, noise=noise)
    for _ in converse(centre, agents):
        for name, a in agents.items():
            assert centre.state.lam[name].tobytes() == a.state.lam.tobytes()
            assert centre.state.z[name].tobytes() == a.state.mean[SHARED].tobytes()
    assert centre.state.done == "rounds"
    assert [a.state.t for a in agents.values()] == [20, 20, 20]


def test_local_updates_go_on_from_the_last_one_and_not_from_the_mean():
    """Line 16: z^{t,1} = z^{t-1,E+1}. Line 20: what is sent is the mean of the E local solutions."""
    p = params(rounds=2, local_updates=3)
    a = agent("n0", p)
    a.receive("coordinator", 1, W(np.array([0.3, -0.4])))
    first = [z for _, _, z in a.feasible.projected]
    sent = a.receive("coordinator", 2, W(np.array([0.1, 0.2]))).send[0]
    second = [z for _, _, z in a.feasible.projected[3:]]
    assert not np.array_equal(first[2], np.mean(first, axis=0))
    starts = [np.zeros(3), first[0], first[1], first[2], second[0], second[1]]
    assert [x.tolist() for x in a.gate.asked] == [x.tolist() for x in starts]
    assert np.allclose(sent.body.z, np.mean(second, axis=0)[SHARED], rtol=1e-15)


@pytest.mark.parametrize("eta", ["1/(L+sqrt(t))", "1/sqrt(t)", 0.2])
def test_with_one_local_update_and_no_noise_it_is_linearised_admm(eta):
    p = params(rounds=8, eta=eta)
    centre, agents = server(p), fleet(p, limit=0.6)
    z, lam = {n: np.zeros(3) for n in POSITION}, {n: np.zeros(2) for n in POSITION}
    for t in converse(centre, agents):
        step = {"1/(L+sqrt(t))": 1 / (3.0 + sqrt(t)), "1/sqrt(t)": 1 / sqrt(t)}.get(eta, eta)
        w = np.zeros(3)
        for n, at in POSITION.items():
            w[at] += (z[n][SHARED] - lam[n] / 2.0) / 2  # each entry has two owners
        for n, at in POSITION.items():
            pull = np.array([1.0, 0.0, 1.0]) * 2.0  # rho where shared
            rhs = z[n] / step - np.array(HESSIAN) * (z[n] - CENTRES[n])
            rhs[SHARED] += 2.0 * w[at] + lam[n]
            z[n] = np.clip(rhs / (1 / step + pull), -0.6, 0.6)
            lam[n] = lam[n] + 2.0 * (w[at] - z[n][SHARED])
        assert all(np.allclose(agents[n].state.z, z[n], rtol=1e-12, atol=1e-14) for n in POSITION)


def test_without_noise_it_finds_the_common_minimiser():
    p = params(rounds=400)
    centre, agents = server(p), fleet(p)
    list(converse(centre, agents))
    total, curve = np.zeros(3), np.zeros(3)
    for n, at in POSITION.items():
        curve[at] += np.array(HESSIAN)[SHARED]
        total[at] += (np.array(HESSIAN) * CENTRES[n])[SHARED]
    assert np.allclose(centre.state.w, total / curve, atol=1e-6)
    for n, a in agents.items():
        assert np.allclose(a.state.z[SHARED], (total / curve)[POSITION[n]], atol=1e-6)
        assert a.state.z[1] == pytest.approx(CENTRES[n][1], abs=1e-6)  # its own entry: nobody else pulls


def test_a_noisy_gradient_still_gives_a_feasible_answer_and_output_perturbation_does_not():
    """(3.2) against (3.4), figure 1; the projected baseline is feasible again, after the noise."""
    noise = [np.full(3, 5.0)] * 2
    w, feasible = W(np.zeros(2)), {}
    for perturbation in ("gate", "output", "output-projected"):
        a = agent("n0", params(rounds=1, local_updates=2), limit=0.5, noise=noise, perturbation=perturbation)
        body = a.receive("coordinator", 1, w).send[0].body
        feasible[perturbation] = bool((np.abs(body.z) <= 0.5).all())
        if perturbation == "output":
            assert np.array_equal(a.state.z, a.feasible.projected[-1][2] + 5.0)  # (3.1), then the noise
    assert feasible == {"gate": True, "output": False, "output-projected": True}


@pytest.mark.parametrize("body", [W(np.zeros(3)), W(np.zeros(0)), Z(np.zeros(2)), None], ids=str)
def test_an_agent_refuses_what_is_not_its_w_before_it_touches_its_state(body):
    a = agent("n0", params())
    with pytest.raises(Malformed):
        a.receive("coordinator", 1, body)
    with pytest.raises(Malformed):
        a.receive("n1", 1, W(np.zeros(2)))
    assert a.state.t == 0
    assert a.gate.asked == []


@pytest.mark.parametrize("body", [Z(np.zeros(3)), W(np.zeros(2)), None], ids=str)
def test_the_server_refuses_what_is_not_a_members_z(body):
    centre = server(params())
    centre.start()
    with pytest.raises(Malformed):
        centre.receive("n0", 1, body)
    with pytest.raises(Malformed):
        centre.receive("n9", 1, Z(np.zeros(2)))
    assert centre.state.arrived == {}


def test_the_residual_is_the_distance_of_the_last_w_from_the_answers():
    centre, agents = server(params(rounds=3)), fleet(params(rounds=3))
    assert centre.state.residual == inf
    for _ in converse(centre, agents):
        if centre.state.done:
            gap = [centre.state.w[at] - centre.state.z[n] for n, at in POSITION.items()]
            assert centre.state.residual == pytest.approx(np.linalg.norm(np.concatenate(gap)), rel=1e-14)
