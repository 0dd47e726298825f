"""The study of masked sums: its noise is the plan's, its runs are the program's, its tables have a row a line."""

from math import sqrt

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.lab.studies import masked
from hushgrid.lab.studies.masked import CURATOR, Cell, Line, Pooled, Problem, Who, deviation, scenario, tables
from hushgrid.node.config.scenario import scenario_from

VALUES = {"step": 2.0, "answers": 4, "clip": 0.7}
SEEDS = tuple(range(40))


def small(kind: str, scale: float) -> Problem:
    data = {"synthetic": {"rows": 8 if kind == "logistic" else 30, "features": 3}, "normalize": "unit-rows"}
    section = {"kind": kind, "data": data, "row_bound": 1.0, "scale": scale or "share"}
    return Problem("small", section, scale, 2.0, {1.0: 4}, 1.0)


@pytest.mark.parametrize("scale", [16.0, 0.0])
def test_the_noise_of_the_mean_answer_is_a_curators_at_t_0_and_sqrt_n_more_alone(scale):
    """But for the rounding of the noise upwards: a few parts in a million."""
    problem = small("logistic", scale)

    def noise(who: Who) -> float:
        return deviation(RowSetup(scenario_from(scenario(problem, who, 1.0, VALUES)))) / problem.unit(who.nodes)

    at_0, at_2, alone = noise(Who(8, 0)), noise(Who(8, 2)), noise(Who(8, None))
    assert at_2 / at_0 == pytest.approx(sqrt(8 / 6), rel=1e-5)
    assert alone / at_0 == pytest.approx(sqrt(8), rel=1e-5)
    if problem.section["scale"] == "share":  # 64 rows of 8 devices: at one device a curator has 8
        assert noise(CURATOR) == pytest.approx(8 * at_0, rel=1e-5)


@pytest.mark.parametrize(("kind", "C"), [("logistic", 1), ("softmax", 4)])
def test_gradients_of_all_seeds_at_once_are_the_mean_of_the_devices(kind, C):
    rng = np.random.default_rng(3)
    losses = []
    for m in (5, 9):
        b = rng.choice([-1.0, 1.0], m) if kind == "logistic" else rng.integers(C, size=m).astype(float)
        losses.append(Loss(Objective(kind=kind, scale=2.0), rng.normal(size=(m, 6)), b, C))
    X = rng.normal(size=(3, 6 * C))
    expected = [np.mean([f.clipped_gradient(x, 0.6, 2) for f in losses], axis=0) / 2 for x in X]
    found = Pooled(losses, unit=2.0).gradients(X, 0.6)
    assert np.allclose(found, expected, atol=1e-6)  # single precision, sums of a few numbers of order 1


def test_runs_made_at_once_end_where_the_program_ends():
    """Mean square distances from the noiseless end, of 40 and 40 runs, by four standard errors of their difference."""
    problem, who = small("logistic", 16.0), Who(8, 2)
    raw = scenario(problem, who, 1.0, VALUES)
    setup = RowSetup(scenario_from(raw))
    rows, sd = Pooled(setup.losses, 16.0), deviation(setup) / 16
    (centre,) = masked.played(rows, 0.0, VALUES, 3, [np.random.default_rng(0)])
    made = masked.played(rows, sd, VALUES, 3, [np.random.default_rng([s, 1]) for s in SEEDS])
    real = np.array([run(raw | {"seed": s}).solution["x"] for s in SEEDS])
    one, two = (np.sum((X - centre) ** 2, axis=1) for X in (made, real))
    error = sqrt(np.var(one) / one.size + np.var(two) / two.size)
    assert abs(one.mean() - two.mean()) < 4 * error


def line(who: Who, gap: float) -> Line:
    gaps = gap * np.linspace(0.9, 1.1, 5)
    return Line("small", 1.0, who, VALUES, ["clip"], 1.0, 1.8, gaps, gaps, 0.1, gaps[:2] if who.corrupt else gaps[:0])


def test_a_table_has_the_optimum_and_a_row_a_line_beside_the_curator():
    lines = [line(CURATOR, 0.01), line(Who(8, 2), 0.012), line(Who(8, None), 0.05)]
    table, real = tables([lines])
    assert [r[1] for r in table.rows] == [
        "nobody: the optimum", "a trusted curator", "masked, t = 2", "each device's own noise",
    ]  # fmt: skip
    assert {len(r) for r in table.rows} == {len(table.columns)}
    assert table.rows[2][7].startswith("1.20 ± ")
    assert [r[3] for r in real.rows] == ["masked, t = 2"]
    assert masked.picture([lines]).startswith("<?xml")


def test_the_walk_ends_at_a_point_that_no_neighbour_beats(tmp_path):
    problem = small("logistic", 16.0)
    tests = tmp_path / "tests.csv"
    tests.write_text("1,0,0,1\n0,1,0,-1\n")
    problem = problem._replace(section={**problem.section, "test": str(tests)})
    cell = Cell(problem, 1.0, (), SEEDS[:5], SEEDS[:5], ())
    runs = masked.Runs(cell)
    search, place = runs.tuned(Who(8, 0))
    own = np.median(runs.judge.gaps(runs.models(Who(8, 0), search.values(place), SEEDS[:5])))
    for near in search.around(place):
        gaps = runs.judge.gaps(runs.models(Who(8, 0), search.values(near), SEEDS[:5]))
        assert np.median(gaps) >= 0.995 * own
