"""Consensus ADMM with exact steps: the reference's iterates, its rules one by one, and what a member refuses."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.consensus_admm import Params
from hushgrid.kernels.algorithms.owners import accelerated, centred, coefficients, mean
from hushgrid.kernels.errors import Failed
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.star import (
    Close,
    Closing,
    Concluded,
    Minimum,
    NodeContext,
    Released,
    ServerContext,
    Taken,
    V,
)
from tests.support.paths import VECTORS
from tests.support.runs.quadratics import Gate, Quadratic

STORED = np.load(VECTORS / "opf_admm_case14.npz")
ABOUT = json.loads((VECTORS / "opf_admm_case14.json").read_text())
ZONES = json.loads((VECTORS / "partitions-public.json").read_text())

# --- the reference's iterates, through whole runs ---

VARIANTS = {
    "plain": {"memory": 0},
    "relax1": {"memory": 0, "relaxation": 1.0},
    "default": {},
    "balance": {"rho0": 0.01},  # a twentieth of the default, and so is every weight
}


@pytest.fixture(scope="module", params=VARIANTS)
def stored(request):
    """(name, the run over memory)."""
    name = request.param
    return name, run(
        {
            "hushgrid": 1,
            "name": "vectors",
            "problem": {"kind": "zones", "case": "case14", "zones": ABOUT["zones"], "ac": "none"},
            "algorithm": {
                "name": "consensus-admm",
                "variant": "none",
                "rounds": ABOUT[name]["rounds"],
                **VARIANTS[name],
            },
            "run": {"record": "trajectory"},
        }
    )


@pytest.mark.runs
def test_each_round_is_the_references(stored):
    name, found = stored
    loose = name == "balance"
    assert found.solution["keys_w"].tolist() == ABOUT["w_keys"]
    for t in range(1, ABOUT[name]["rounds"] + 1):
        rho = STORED[f"{name}_rho{t}"]
        w = found.trajectory["w"][t - 1]
        assert np.max(np.abs(w - STORED[f"{name}_w{t}"])) <= (2e-3 if loose else 5e-4), t
        for k, (shared, at) in enumerate(zip(ABOUT["shared_positions_in_z"], ABOUT["positions_in_w"], strict=True), 1):
            z = found.trajectory[f"z_z{k}"][t - 1]
            lam = found.trajectory[f"lam_z{k}"][t - 1]
            assert np.max(np.abs(z[shared] - STORED[f"{name}_z{k}_{t}"])) <= (2e-3 if loose else 5e-4), (t, k)
            assert np.max(np.abs(lam - STORED[f"{name}_lam{k}_{t}"])) <= (5e-4 if loose else 1e-4), (t, k)
            v = z[shared] - lam / rho[at]
            assert np.max(np.abs(v - STORED[f"{name}_v{k}_{t}"])) <= (2e-3 if loose else 5e-4), (t, k)


@pytest.mark.runs
def test_so_is_what_the_coordinator_measures(stored):
    name, found = stored
    said = ABOUT[name]
    assert found.history["objective"] == pytest.approx(said["cost"], abs=0.3)
    assert found.history["consensus_residual"] == pytest.approx(said["primal"], abs=0.001)
    assert found.history["dual_residual"] == pytest.approx(said["dual"], abs=0.001)
    factors = np.array([STORED[f"{name}_rho{t}"][0] for t in range(1, said["rounds"] + 1)]) / STORED[f"{name}_rho1"][0]
    assert found.history["factor"] == pytest.approx(factors.tolist(), rel=1e-9)
    assert (name == "balance") == (len(set(found.history["factor"])) > 1)


# --- the rules, on quadratics ---


CENTRES = {"a": np.array([1.0, -2.0, 3.0]), "b": np.array([2.0, 0.0, -1.0]), "c": np.array([0.5, 4.0, 1.0])}
ALL = np.arange(3)


def star(rounds=60, patience=0, conclude=None, warm=None, factor=1.0, bounds=False, held=(), **keys):
    """(params, server, agents) of three members that share three entries."""
    params = Params(rounds=rounds, variant="none", **keys)
    told = {p: Released("done", 0.0, np.array([7.0])) for p in CENTRES}
    server = params.server(
        ServerContext(
            position=dict.fromkeys(CENTRES, ALL),
            start={p: np.zeros(3) for p in CENTRES},
            epsilon=np.inf,
            tolerance=1e-6,
            patience=patience,
            stiffness=np.full(3, np.nan),
            widths=dict.fromkeys(CENTRES, (3, 3, 0)),
            conclude=conclude or (lambda closing, measured: Concluded(told, np.array([1.0]), {})),
            warm=warm,
            factor=factor,
            bounds=bounds,
            held=np.array(held, float),
        )
    )
    agents = {
        p: params.agent(
            NodeContext(
                gate=Gate(c),
                feasible=lambda D: None,
                shared=ALL,
                start=np.zeros(3),
                L=1.0,
                mode=None,
                epsilon=np.inf,
                patience=patience,
                local=Quadratic,
                stiffness=np.full(3, np.nan),
                released=1,
            )
        )
        for p, c in CENTRES.items()
    }
    return params, server, agents


def exchange(server, agents, step):
    """One exchange: every member answers; the coordinator's next step."""
    for send in step.send:
        (answer,) = agents[send.dst].receive("coordinator", send.seq, send.body).send
        following = server.receive(send.dst, answer.seq, answer.body)
    return following


def run_out(server, agents):
    step = server.start()
    while step.done is None:
        step = exchange(server, agents, step)
    return step.done


@pytest.mark.parametrize("keys", [{}, {"memory": 0}, {"relaxation": 1.0}, {"rho0": 5.0}, {"rho0": 1e-3}])
def test_it_reaches_the_mean_whatever_the_penalty_the_relaxation_and_the_memory(keys):
    _, server, agents = star(rounds=400, patience=3, **keys)
    assert run_out(server, agents) == "tolerance"
    best = np.mean(list(CENTRES.values()), axis=0)
    for agent in agents.values():
        assert agent.state.z == pytest.approx(best, abs=1e-4)
        assert agent.complete


def test_without_acceleration_a_step_is_over_relaxed_admm():
    """z^ = alpha z + (1 - alpha) w; w = mean(z^ + u); u += z^ - w, in the scaled form of the book."""
    params, server, agents = star(rounds=8, memory=0)
    w, u = np.zeros(3), {p: np.zeros(3) for p in CENTRES}
    step = server.start()
    for _ in range(8):
        assert server.state.w == pytest.approx(w, abs=1e-12)
        hat = {}
        for p, c in CENTRES.items():
            z = (c + params.rho0 * (w - u[p])) / (1 + params.rho0)
            hat[p] = params.relaxation * z + (1 - params.relaxation) * w
        step = exchange(server, agents, step)
        following = np.mean([hat[p] + u[p] for p in CENTRES], axis=0)
        u = {p: u[p] + hat[p] - following for p in CENTRES}
        w = following


def test_acceleration_solves_a_linear_iteration_at_once_when_it_has_seen_all_of_it():
    """y <- B y + b with B of rank two: three pairs span it."""
    rng = np.random.default_rng(3)
    B, b = np.diag([0.9, -0.5, 0.0, 0.0]), rng.normal(size=4)
    fixed = np.linalg.solve(np.eye(4) - B, b)
    ys, Rs, y = [], [], rng.normal(size=4)
    for _ in range(4):
        ys.append(y)
        Rs.append(B @ y + b - y)
        y = y + Rs[-1]
    differences = np.diff(Rs[1:], axis=0)
    gamma = coefficients(differences @ differences.T, differences @ Rs[-1])
    assert accelerated(ys[1:], Rs[1:], gamma) == pytest.approx(fixed, abs=1e-5)
    assert np.linalg.norm(ys[-1] + Rs[-1] - fixed) > 0.1  # the plain step is far away still


def test_an_accelerated_state_that_is_much_worse_is_dropped():
    """The next state is the plain one of the round before, and the memory is empty."""
    _, server, agents = star(rounds=30)
    step = server.start()
    for _ in range(6):
        step = exchange(server, agents, step)
    s = server.state
    assert s.leapt
    plain = s.plain.copy()
    s.s = {p: v + 1e3 for p, v in s.s.items()}  # as if the leap had gone far out
    server.begin()
    exchange(server, agents, server.tick())
    assert np.concatenate([s.s[p] for p in sorted(CENTRES)]) == pytest.approx(plain)
    assert (s.ys, s.Rs, s.leapt) == ([], [], False)


@pytest.mark.parametrize(("rho0", "up"), [(1e-4, True), (1e4, False)])
def test_the_common_factor_is_balanced_at_every_tenth_round_and_keeps_the_multipliers(rho0, up):
    _, server, agents = star(rounds=40, rho0=rho0, memory=0)
    step = server.start()
    factors = []
    for t in range(1, 41):
        before = server.state.factor
        step = exchange(server, agents, step)
        factors.append(server.state.factor)
        assert server.state.factor == before or t % 10 == 0
    assert (factors[9] > 1.0) == up
    assert factors[9] in (10.0, 0.1)


@pytest.mark.parametrize(("periods", "tolerance", "falls"), [(1, 1e9, True), (2, 1e9, False), (2, 1e-6, True)])
def test_over_a_horizon_weights_do_not_fall_for_a_dual_residual_within_its_tolerance(periods, tolerance, falls):
    _, server, agents = star(rounds=40, rho0=1e4, memory=0)
    server.periods, server.tolerance = periods, tolerance
    step = server.start()
    for _ in range(10):
        step = exchange(server, agents, step)
    assert (server.state.factor < 1.0) == falls


def test_balancing_keeps_lambda():
    """rho u = rho (s - w) is the same before and after, at the plain next state."""
    _, server, agents = star(rounds=20, rho0=1e-4, memory=0)
    step = server.start()
    for _ in range(9):
        step = exchange(server, agents, step)
    s = server.state
    old, w = {p: v.copy() for p, v in s.s.items()}, s.w.copy()
    z = {p: (CENTRES[p] + 1e-4 * (2 * w - old[p])) / (1 + 1e-4) for p in CENTRES}
    plain = {p: old[p] + 1.7 * (z[p] - w) for p in CENTRES}
    centre = np.mean(list(plain.values()), axis=0)
    exchange(server, agents, step)
    assert s.factor == 10.0
    for p in CENTRES:
        assert 10.0 * (s.s[p] - centre) == pytest.approx(plain[p] - centre)


def test_the_mean_is_over_the_owners_of_each_entry():
    assert mean([np.array([1.0, 2.0]), np.array([4.0])], [np.array([0, 1]), np.array([1])], 2).tolist() == [1.0, 3.0]


def test_a_warm_start_from_the_last_state_needs_few_rounds():
    _, cold, agents = star(rounds=200, patience=3, rho0=0.02)
    run_out(cold, agents)
    _, warm, agents = star(rounds=200, patience=3, rho0=0.02, warm=cold.state.s, factor=cold.state.factor)
    run_out(warm, agents)
    assert warm.state.rounds < cold.state.rounds / 2


# --- one weight an entry ---


def test_a_member_with_another_weight_ends_the_run_in_one_line():
    _, server, agents = star()
    agents["b"].weight = agents["b"].weight * np.array([1.0, 1.0, 1.5])
    with pytest.raises(Failed, match=r"^b: found multipliers of norm .*, expected .*: it has other weights"):
        run_out(server, agents)


def test_so_it_does_in_a_later_round_and_a_member_of_an_earlier_version_says_nothing_of_it():
    _, server, agents = star()
    step = exchange(server, agents, exchange(server, agents, server.start()))
    for send in step.send:
        (answer,) = agents[send.dst].receive("coordinator", send.seq, send.body).send
        body = answer.body
        if send.dst == "a":
            body = Minimum(body.z, body.value, body.totals)  # as 0.1.0 sends it
        if send.dst == "c":
            body = replace(body, pull=body.pull * (1 + 1e-6))
            with pytest.raises(Failed, match=r"^c: "):
                server.receive("c", answer.seq, body)
        else:
            server.receive(send.dst, answer.seq, body)


# --- the closing exchanges ---


def test_what_the_members_hand_over_is_concluded_once_and_told_to_each():
    seen = []

    def conclude(closing, measured):
        seen.append((sorted(closing), measured["factor"]))
        return Concluded({p: Released("ok", 0.5, np.array([float(len(p))])) for p in closing}, np.array([3.0]), {})

    _, server, agents = star(rounds=3, conclude=conclude)
    assert run_out(server, agents) == "rounds"
    assert seen == [(["a", "b", "c"], 1.0)]
    assert server.state.dispatch.tolist() == [3.0]
    for p, agent in agents.items():
        assert agent.outcome()["released"].tolist() == [1.0]
        assert agent.state.released.status == "ok"
        assert server.state.closing[p].data.tolist() == CENTRES[p].tolist()


def test_a_member_is_not_done_before_it_was_told_the_outcome():
    _, server, agents = star(rounds=2)
    step = server.start()
    for _ in range(3):  # two rounds, and what is handed over
        step = exchange(server, agents, step)
        assert not any(agent.complete for agent in agents.values())
    exchange(server, agents, step)
    assert all(agent.complete for agent in agents.values())


def test_the_gate_is_asked_by_the_first_round_and_every_answer_is_the_same():
    _, server, agents = star(rounds=5)
    run_out(server, agents)
    assert all(agent.gate.answers == 2 for agent in agents.values())  # the one of a run, and its repetition at the end


# --- the bound ---

LEAST = sum(np.sum((c - np.mean(list(CENTRES.values()), axis=0)) ** 2) / 2 for c in CENTRES.values())


@pytest.mark.parametrize("rounds", [1, 2, 5, 40])
def test_the_members_bounds_add_up_to_one_that_is_proven_after_any_number_of_rounds(rounds):
    _, server, agents = star(rounds=rounds, bounds=True, memory=0)
    step = server.start()
    exchanges = 0
    while step.done is None:
        step = exchange(server, agents, step)
        exchanges += 1
    assert exchanges == rounds + 2  # none more than without a bound
    assert server.state.bound <= LEAST + 1e-12
    assert rounds < 40 or server.state.bound == pytest.approx(LEAST)
    total = sum(server.state.lam.values())
    assert total == pytest.approx(np.zeros(3), abs=1e-12)


def test_around_a_constant_it_is_of_the_problem_in_which_it_is_one():
    held = [4.0, np.nan, np.nan]
    _, server, agents = star(rounds=120, bounds=True, held=held, memory=0)
    run_out(server, agents)
    w = np.where(np.isnan(held), np.mean(list(CENTRES.values()), axis=0), held)
    least = sum(np.sum((c - w) ** 2) / 2 for c in CENTRES.values())
    assert server.state.bound <= least + 1e-9
    assert server.state.bound == pytest.approx(least, rel=1e-3)


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-3, 1.0, 1e3]))
def test_multipliers_of_any_size_give_a_true_bound(seed, size):
    rng = np.random.default_rng(seed)
    lam = centred([size * rng.normal(size=3) for _ in CENTRES], [ALL] * 3, np.zeros(0))
    told = [Quadratic(c, 1.0).bound(own) for c, own in zip(CENTRES.values(), lam, strict=True)]
    assert sum(told) <= LEAST + 1e-9 * size**2


def test_a_problem_that_tells_no_bound_is_asked_for_none_and_one_silent_member_leaves_none():
    for bounds, silent in ((False, False), (True, True)):
        _, server, agents = star(rounds=3, bounds=bounds)
        step = server.start()
        while step.done is None:
            for send in step.send:
                (answer,) = agents[send.dst].receive("coordinator", send.seq, send.body).send
                body = answer.body
                if silent and send.dst == "b" and isinstance(body, Closing):
                    body = Closing(body.data, body.z, body.duals)  # as 0.1.0 sends it
                following = server.receive(send.dst, answer.seq, body)
            step = following
        assert server.state.bound == -np.inf


WRONG = {
    "another size": V(np.zeros(2), 1.0),
    "no factor": V(np.zeros(3), 0.0),
    "a factor beyond its range": V(np.zeros(3), 1e6),
    "not its turn": Released("ok", 0.0, np.zeros(1)),
    "nothing to close yet": Close(),
    "multipliers before their turn": Close(np.zeros(3)),
    "another message": Taken(),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_member_refuses_what_the_coordinator_may_not_send(body):
    _, _, agents = star()
    before = agents["a"].state.z.copy()
    with pytest.raises(Malformed, match="expected"):
        agents["a"].receive("coordinator", 1, body)
    assert agents["a"].state.t == 0
    assert agents["a"].state.z.tolist() == before.tolist()
    assert agents["a"].gate.answers == 0


def test_an_outcome_of_another_size_is_refused():
    _, server, agents = star(rounds=1)
    step = exchange(server, agents, server.start())
    exchange(server, agents, step)
    with pytest.raises(Malformed):
        agents["a"].receive("coordinator", 3, Released("ok", 0.0, np.zeros(4)))


@pytest.mark.parametrize(
    "body",
    [
        Minimum(np.zeros(2), 0.0, np.zeros(0)),
        Minimum(np.zeros(3), 1e300, np.zeros(0)),
        Minimum(np.zeros(3), float("nan"), np.zeros(0)),
        Minimum(np.zeros(3), 0.0, np.zeros(1)),
        Closing(np.zeros(3), np.zeros(3), np.zeros(0)),
        Taken(),
    ],
)
def test_the_coordinator_refuses_what_a_member_may_not_send(body):
    _, server, _ = star()
    server.start()
    with pytest.raises(Malformed, match="expected"):
        server.receive("a", 1, body)


# --- parameters ---


def test_weights_follow_the_admittance_up_to_the_cap():
    stiffness = np.array([np.nan, 10.0, 1e6])
    assert Params(rounds=1).weights(stiffness).tolist() == pytest.approx([0.2, 0.2 * 0.3, 0.2 * 100.0])
