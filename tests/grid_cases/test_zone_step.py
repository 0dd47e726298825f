"""The projection of a zone: right, feasible, the same bits whatever came before, and the reference's iterates."""

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.model import consensus, gradient, objective, violation
from hushgrid.grid_cases.zone.projection import TOLERANCE, StepFailed, ZoneStep
from hushgrid.kernels.errors import InputError
from tests.support import paths

CASE14 = load("case14")
ZONES14 = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]
VECTORS = np.load(paths.VECTORS / "opf_case14.npz")
RHO = 100.0


@pytest.fixture(scope="module")
def models():
    return {diagonal: zone_models(CASE14, ZONES14, cache=False, diagonal=diagonal) for diagonal in (False, True)}


def weights(model, eta: float) -> np.ndarray:
    D = np.full(model.n, 1 / eta)
    D[model.shared] += RHO
    return D


def algorithm_3_1(models, rounds: int, local_updates: int, eta):
    """The non-private iteration; yields w, z, lambda after each round."""
    models = list(models.values())
    keys_w, at = consensus(models)
    d = {m.name: loads(CASE14, m.buses) for m in models}
    y = {m.name: m.start for m in models}  # z^{t,e}
    z, lam = dict(y), {m.name: np.zeros(len(m.shared)) for m in models}
    owners = np.zeros(len(keys_w))
    for m in models:
        owners[at[m.name]] += 1
    steps = {m.name: ZoneStep(m, weights(m, eta(1))) for m in models}
    for t in range(1, rounds + 1):
        w = np.zeros(len(keys_w))
        for m in models:
            w[at[m.name]] += z[m.name][m.shared] - lam[m.name] / RHO
        w /= owners
        for m in models:
            p, D, locals_ = m.name, weights(m, eta(t)), []
            for _ in range(local_updates):
                v = y[p] / eta(t) - gradient(m.A, y[p], d[p])
                v[m.shared] += RHO * w[at[p]] + lam[p]
                y[p] = steps[p].project(v / D, D)
                locals_.append(y[p])
            z[p] = np.mean(locals_, axis=0)
            lam[p] = lam[p] + RHO * (w[at[p]] - z[p][m.shared])
        yield w, dict(z), dict(lam)


@pytest.mark.runs
@pytest.mark.parametrize("local_updates", [1, 5])
@pytest.mark.parametrize("shared", ["cut_diag0", "cut_diag1", "owned_diag1"])
def test_the_first_six_rounds_are_those_of_the_reference(models, shared, local_updates):
    chosen = models[shared != "cut_diag0"]
    if shared == "owned_diag1":  # the paper's other reading: every variable is shared, owned by one zone or more
        chosen = {name: replace(model, shared=np.arange(model.n)) for name, model in chosen.items()}
    prefix = f"{shared}_E{local_updates}"
    for t, (w, z, lam) in enumerate(algorithm_3_1(chosen, 6, local_updates, lambda t: 1 / np.sqrt(t)), 1):
        np.testing.assert_allclose(w, VECTORS[f"{prefix}_w{t + 1}"], rtol=0, atol=5e-4)
        for p in (1, 2, 3):
            np.testing.assert_allclose(z[f"z{p}"], VECTORS[f"{prefix}_z{p}_{t + 1}"], rtol=0, atol=2e-3)
            np.testing.assert_allclose(lam[f"z{p}"], VECTORS[f"{prefix}_lam{p}_{t + 1}"], rtol=0, atol=1e-2)


@pytest.mark.runs
@pytest.mark.parametrize(("damped", "shed"), [(False, 0.073), (True, 0.128)])
def test_a_hundred_rounds_leave_the_known_amount_of_shedding(models, damped, shed):
    L = max(m.L for m in models[False].values())
    *_, (_, z, _) = algorithm_3_1(models[False], 100, 1, lambda t: 1 / (L * damped + np.sqrt(t)))
    total = sum(objective(m.A, z[m.name], loads(CASE14, m.buses)) for m in models[False].values())
    assert total == pytest.approx(shed, rel=0.03)


def points(model, seed: int, count: int) -> np.ndarray:
    """Centres far outside W_p."""
    return model.start + np.random.default_rng(seed).normal(scale=0.5, size=(count, model.n))


def gap_bound(D: np.ndarray, v: np.ndarray) -> float:
    """The duality gap the solver leaves: its tolerance relative to the objective, at most |v|_D^2 in size."""
    return TOLERANCE * (1 + float(D @ v**2))


@pytest.mark.runs
def test_the_answer_satisfies_the_variational_inequality_of_a_projection(models):
    """z = P(v) in the D-norm exactly if <D (v - z), y - z> <= 0 for every feasible y; here y from other projections."""
    for model in models[False].values():
        D = weights(model, 0.1)
        step = ZoneStep(model, D)
        v = points(model, 3, 6)
        z = [step.project(each, D) for each in v]
        assert max(step.violation(each) for each in z) < 1e-7
        for i in range(6):
            slack = np.sqrt(2 * gap_bound(D, v[i])) * max(np.sqrt(D @ (v[i] - y) ** 2) for y in z)
            assert all((D * (v[i] - z[i])) @ (y - z[i]) <= slack for y in z)


@pytest.mark.runs
def test_a_feasible_point_is_its_own_projection(models):
    for model in models[False].values():
        D = weights(model, 0.1)
        step = ZoneStep(model, D)
        inside = step.project(points(model, 4, 1)[0], D)
        again = step.project(inside, D)
        assert np.abs(again - inside).max() <= np.sqrt(2 * gap_bound(D, inside) / D.min())


def test_the_bits_do_not_depend_on_earlier_solves_or_on_a_restart(models):
    model = models[False]["z1"]
    first, later = weights(model, 1.0), weights(model, 1 / np.sqrt(7))
    v = points(model, 5, 8)
    walked = ZoneStep(model, first)
    for k, each in enumerate(v):
        walked.project(each, first if k % 2 else later)
    for D in (later, first, later):
        expected = walked.project(v[3], D).tobytes()
        restarted = ZoneStep(model, first)
        assert restarted.project(v[3], D).tobytes() == expected
        assert restarted.project(v[3], D).tobytes() == expected


def test_a_step_that_fails_releases_nothing_and_the_next_one_is_as_if_it_had_not_been(models):
    model = models[False]["z2"]
    D = weights(model, 0.1)
    step, v = ZoneStep(model, D), points(model, 6, 1)[0]
    expected = step.project(v, D)
    for bad in (np.full(model.n, np.nan), np.full(model.n, np.inf)):
        with pytest.raises(StepFailed, match="zone z2: found a step that is not finite"):
            step.project(bad, D)
    with pytest.raises(StepFailed):
        step.project(v, -D)
    assert step.project(v, D).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("weight", "noise"), [(1e9, 0.5), (1e3, 1e6), (1e12, 1e8)])
def test_a_problem_the_kept_solver_cannot_finish_is_solved_by_one_of_its_own(models, monkeypatch, weight, noise):
    """Scaled for D = 1, then asked for huge weights or noise: the answer is still feasible and optimal."""
    model = models[False]["z1"]
    step, D = ZoneStep(model, np.ones(model.n)), np.full(model.n, weight)
    v = model.start + np.random.default_rng(7).normal(scale=noise, size=model.n)
    built = []
    build = step._solver._built
    monkeypatch.setattr(step._solver, "_built", lambda *problem: built.append(1) or build(*problem))
    z = step.project(v, D)
    assert len(built) == 1
    assert violation(model, z) < 1e-7
    for y in (model.start, *(step.project(each, np.ones(model.n)) for each in points(model, 9, 3))):
        if violation(model, y) < 1e-7:
            distance = np.linalg.norm(v - z)
            assert (v - z) @ (y - z) <= np.sqrt(2 * TOLERANCE) * distance * max(distance, np.linalg.norm(y - z))
    ordinary = points(model, 10, 1)[0]  # and the kept solver goes on as before
    fresh = ZoneStep(model, np.ones(model.n)).project(ordinary, np.ones(model.n))
    assert step.project(ordinary, np.ones(model.n)).tobytes() == fresh.tobytes()


@pytest.mark.runs
@pytest.mark.parametrize("solver", ["ecos", "ipopt"])
def test_other_solvers_find_the_same_point(models, solver):
    pytest.importorskip({"ecos": "ecos", "ipopt": "casadi"}[solver])
    for model in models[False].values():
        D = weights(model, 0.1)
        ours, theirs = ZoneStep(model, D), ZoneStep(model, D, solver)
        for v in points(model, 8, 3):
            a, b = ours.project(v, D), theirs.project(v, D)
            # Each is within sqrt(2 gap / min D) of the one minimiser of a strongly convex objective.
            assert np.abs(a - b).max() <= 2 * np.sqrt(2 * gap_bound(D, v) / D.min())
            assert theirs.violation(b) < 1e-7


def test_an_unknown_or_absent_solver_is_an_input_error(models, monkeypatch):
    model = models[False]["z1"]
    with pytest.raises(InputError, match="solver: found 'gurobi', expected one of clarabel, ecos, ipopt"):
        ZoneStep(model, np.ones(model.n), "gurobi")
    monkeypatch.setitem(__import__("sys").modules, "casadi", None)
    with pytest.raises(InputError, match=r"casadi is not installed, expected hushgrid\[laptop\]"):
        ZoneStep(model, np.ones(model.n), "ipopt")


def test_violation_measures_each_kind_of_constraint(models):
    model = models[False]["z1"]
    D = weights(model, 0.1)
    z = ZoneStep(model, D).project(model.start, D)
    at = {key: k for k, key in enumerate(model.keys)}

    def after(key: str, value: float) -> float:
        moved = z.copy()
        moved[at[key]] = value
        return violation(model, moved)

    assert after("pg:0", 5.0) == pytest.approx(5.0 - 3.4)  # (D.2e): 340 MW at most
    assert after("pg:0", -0.25) == pytest.approx(0.25)
    assert after("qg:2", 0.45) == pytest.approx(0.05)
    assert after("c:1", 1.06**2 + 100) >= 100 - 1e-9  # (D.2d), and the flows and cones it breaks
    assert after("pF:0", 1e3) >= 990  # (D.2f), (D.2j)
    assert np.isnan(after("pg:0", np.nan))
