"""`hushgrid study masked`: what a sum that nobody can take apart is worth, beside a trusted curator and each device's own noise.

Gradient descent around a coordinator (`fedavg`, one local step; one record replaced; Gaussian noise counted by GDP) at one honest
total. Whoever adds the noise, the model takes the same step: by the mean of all devices' answers, of which the noise is Gaussian.
So runs differ in its deviation alone, which is that of the scenario's own plan, and those of all seeds are made at once, in floating point
over all rows. Step, answers and clip of each line are tuned on seeds apart from those shown, on a lattice that goes on
until its best point is interior. Some runs of the real program stand beside.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from math import hypot, nan, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid import scenarios
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.cache import Cache, using_cache
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.comparison.medians import Median, median
from hushgrid.lab.studies.common.at_once import thin
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, shown, write
from hushgrid.lab.studies.common.tuning import Axis, Place, Search
from hushgrid.node.config.scenario import scenario_from

COMMAND = "hushgrid study masked"
DATA = scenarios.FOLDER / "data"
DELTA = 1e-5
EPSILONS = (0.1, 1.0)  #: of the whole run, a device
CORRUPT = {8: 2, 60: 20}  #: t, of so many devices n
SHOWN = tuple(range(1, 21))
TUNED_ON = tuple(range(1000, 1020))
REAL = (1, 2, 3)  #: seeds of the real program's runs


class Problem(NamedTuple):
    """Rows that devices have, and where the walks begin."""

    title: str
    section: Mapping[str, Any]  #: of a scenario, without nodes and ridge
    scale: float  #: of each device's mean loss; 0: its share of all rows
    step: float  #: of the mean loss of all rows
    answers: Mapping[float, int]  #: by epsilon
    longest: float  #: of a record's gradient

    def unit(self, n: int) -> float:
        """How many times the mean loss of all rows the mean of n devices' functions is."""
        return self.scale or 1 / n


RIDGE = 0.001  #: of the mean loss
ADULT = Problem(
    "Adult",
    {
        "kind": "logistic",
        "data": {"libsvm": str(DATA / "adult.trn.bz2"), "features": 123, "first_index": 0, "normalize": "unit-rows"},
        "test": str(DATA / "adult.tst.bz2"),
        "row_bound": 1.0,
        "scale": 16.0,
    },
    16.0,
    16.0,
    {0.1: 16, 1.0: 64},
    1.0,
)
DIGITS = Problem(
    "digits",
    {
        "kind": "softmax",
        "classes": 10,
        "data": {"csv": str(DATA / "digits.trn.csv.bz2"), "features": 64, "normalize": "unit-rows"},
        "test": str(DATA / "digits.tst.csv.bz2"),
        "row_bound": 1.0,
        "scale": "share",
    },
    0.0,
    4.0,
    {0.1: 4, 1.0: 64},
    sqrt(2.0),
)


class Who(NamedTuple):
    """Who adds noise."""

    nodes: int  #: 1: a curator, who has all rows
    corrupt: int | None  #: t of a masked run; None: each device's answer is worth the claim by itself

    @property
    def title(self) -> str:
        if self.nodes == 1:
            return "a trusted curator"
        return "each device's own noise" if self.corrupt is None else f"masked, t = {self.corrupt}"


CURATOR = Who(1, None)


def scenario(problem: Problem, who: Who, epsilon: float, values: Mapping[str, float]) -> dict[str, Any]:
    """A run, as in a scenario file. values: step (of the mean loss of all rows), answers, clip."""
    unit = problem.unit(who.nodes)
    section = {**problem.section, "data": {**problem.section["data"], "nodes": who.nodes}, "l2": RIDGE * unit}
    privacy = {
        "adjacency": {"replace-one-record": {"clip": values["clip"]}},
        "mechanism": "gaussian",
        "accountant": "gdp",
        "epsilon": epsilon,
        "delta": DELTA,
    }
    if who.corrupt is not None:
        privacy["masked"] = {"corrupt": who.corrupt}
    algorithm = {"name": "fedavg", "rounds": int(values["answers"]), "step_size": values["step"] / unit}
    found = {"hushgrid": 1, "name": "masked", "problem": section, "algorithm": algorithm, "privacy": privacy}
    return found | {"run": {"record": "end"}}


def deviation(setup: RowSetup) -> float:
    """Of the noise of each coordinate of the mean answer, as the plan has it: n shares, or n answers that are each worth it."""
    lattices = setup.grids()
    assert lattices is not None
    return hypot(*(lattice.scale for lattice in lattices)) / len(lattices)


class Pooled:
    """The mean of the devices' functions over all their rows, in single precision, for points X (S, d) at once."""

    def __init__(self, losses: Sequence[Loss], unit: float) -> None:
        A = np.concatenate([f.A for f in losses])
        self.A, self.C, self.m = thin(A.astype(np.float32)), losses[0].classes, len(A)
        self.At = self.A.T.tocsr() if self.A is not A and hasattr(self.A, "tocsr") else self.A.T
        self.b = np.concatenate([f.b for f in losses]).astype(np.float32)
        self.logistic = losses[0].objective.kind == "logistic"
        each = [np.full(f.rows, f.objective.scale / (f.rows * len(losses) * unit)) for f in losses]
        self.weight = np.concatenate(each).astype(np.float32)[:, None]
        self.norm = np.maximum(np.linalg.norm(A, axis=1), 1e-30).astype(np.float32)[:, None]

    def gradients(self, X: Matrix, clip: float) -> Matrix:
        """Of the mean loss, rows' gradients clipped to that length, without the ridge; shape (S, d)."""
        S = len(X)
        T = self.A @ np.ascontiguousarray(X.reshape(S * self.C, -1).T, dtype=np.float32)
        if self.logistic:
            b = self.b[:, None]
            slopes = b * (np.tanh(b * T / 2) - 1) / 2
            length = np.abs(slopes)
        else:
            slopes = T.reshape(self.m, S, self.C)
            slopes = np.exp(slopes - slopes.max(axis=2, keepdims=True))
            slopes /= slopes.sum(axis=2, keepdims=True)
            slopes[np.arange(self.m), :, self.b.astype(int)] -= 1
            length = np.sqrt(np.einsum("jsc,jsc->js", slopes, slopes))
        share = self.weight * np.minimum(1, np.float32(clip) / np.maximum(length * self.norm, 1e-30))
        slopes = slopes * (share if self.logistic else share[:, :, None])
        found = self.At @ slopes.reshape(self.m, -1)  # (q, S C)
        return np.array(found.T, dtype=float).reshape(S, -1)


@np.errstate(over="ignore", invalid="ignore")  # of what diverges
def played(rows: Pooled, noise: float, values: Mapping[str, float], d: int, random: Sequence[Any]) -> Matrix:
    """(S, d) where runs end whose mean answers have noise of that deviation, each by its own random numbers."""
    X = np.zeros((len(random), d))
    for _ in range(int(values["answers"])):
        drawn = np.array([r.normal(scale=noise, size=d) for r in random])
        X = X - values["step"] * (rows.gradients(X, values["clip"]) + RIDGE * X + drawn)
    return X


class Judge:
    """How good models are for all rows, and for those that were held out."""

    def __init__(self, problem: Problem) -> None:
        setup = RowSetup(scenario_from(scenario(problem, CURATOR, 1.0, {"step": 1.0, "answers": 1, "clip": 1.0})))
        (self.loss,), self.unit = setup.losses, problem.unit(1)
        self.star = optimum([self.loss], setup.plan.problem.regularizer).x
        self.least = self.loss.value(self.star)
        assert setup.tests is not None
        self.tests = setup.tests

    def gaps(self, X: Matrix) -> Vector:
        """Of the mean loss and ridge over their least; shape (S,)."""
        each = [self.loss.value(x) if np.isfinite(x).all() else np.inf for x in X]
        return (np.array(each) - self.least) / self.unit

    def wrong(self, X: Matrix) -> Vector:
        return np.array(self.tests.errors(X), dtype=float)


class Cell(NamedTuple):
    """Lines that are made one after the other."""

    problem: Problem
    epsilon: float
    each: tuple[Who, ...]
    tuned_on: Sequence[int]
    seeds: Sequence[int]
    real: Sequence[int]  #: seeds of the real program's runs of masked sums of 8 with t > 0


class Line(NamedTuple):
    problem: str
    epsilon: float
    who: Who
    values: dict[str, float]
    limits: list[str]  #: what of them is at the natural end of its values
    noise: float  #: deviation of the mean answer, at the curator's clip and answers over the curator's
    alone: float  #: epsilon against all others together
    gaps: Vector  #: (seeds,)
    wrong: Vector  #: (seeds,)
    best: float  #: share of held-out rows that the optimum gets wrong
    real: Vector  #: (seeds,) gaps that the real program's runs had


class Walk(Search):
    """One whose neighbours are, too, a step along `step` and `clip` at once: a shorter gradient wants a longer step."""

    def around(self, place: Place) -> list[Place]:
        step, answers, clip = place
        both = [(step + a, answers, clip + b) for a, b in product((-1, 1), repeat=2)]
        return super().around(place) + [to for to in both if all(a.has(k) for a, k in zip(self.axes, to, strict=True))]


class Runs:
    """Runs of one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.judge = cell, Judge(cell.problem)
        self.pooled: dict[int, Pooled] = {}

    def setup(self, who: Who, values: Mapping[str, float]) -> RowSetup:
        return RowSetup(scenario_from(scenario(self.cell.problem, who, self.cell.epsilon, values)))

    def models(self, who: Who, values: Mapping[str, float], seeds: Sequence[int]) -> Matrix:
        setup, unit = self.setup(who, values), self.cell.problem.unit(who.nodes)
        if who.nodes not in self.pooled:
            self.pooled[who.nodes] = Pooled(setup.losses, unit)
        about = [who.nodes, 0 if who.corrupt is None else who.corrupt + 1]  # no two lines have the same noise
        random = [np.random.default_rng([seed, *about]) for seed in seeds]
        return played(self.pooled[who.nodes], deviation(setup) / unit, values, self.judge.star.size, random)

    def tuned(self, who: Who) -> tuple[Search, Place]:
        """The best point on the tuning seeds."""
        p, seeds = self.cell.problem, self.cell.tuned_on
        axes = [
            Axis("step", p.step),
            Axis("answers", p.answers[self.cell.epsilon], low=1),
            Axis("clip", sqrt(0.5), factor=sqrt(2), high=p.longest * 1.001),
        ]
        search, found = Walk(axes, seeds, [len(seeds)]), dict[tuple[Place, int], float]()

        def error(place: Place, seed: int) -> float | None:
            return found.get((place, seed))

        while True:
            best, asked = search.advance(error)
            if not asked:
                return search, best
            for place, which in asked.items():
                gaps = self.judge.gaps(self.models(who, search.values(place), which))
                found |= {(place, seed): float(gap) for seed, gap in zip(which, gaps, strict=True)}

    def line(self, who: Who, search: Search, place: Place, curators: Mapping[str, float]) -> Line:
        """What the chosen point is worth on the seeds that are shown. curators: what the curator's line has chosen."""
        cell, values = self.cell, search.values(place)
        mean, curator = (deviation(self.setup(w, curators)) / cell.problem.unit(w.nodes) for w in (who, CURATOR))
        X = self.models(who, values, cell.seeds)
        setup = self.setup(who, values)
        assert setup.terms is not None
        raw = scenario(cell.problem, who, cell.epsilon, values)
        real = [run(raw | {"seed": s}).solution["x"] for s in cell.real if who.corrupt and who.nodes == min(CORRUPT)]
        ends = zip(search.axes, place, strict=True)
        return Line(
            cell.problem.title,
            cell.epsilon,
            who,
            values,
            [a.key for a, k in ends if not (a.has(k - 1) and a.has(k + 1))],
            mean / curator,
            setup.terms.alone(),
            self.judge.gaps(X),
            self.judge.wrong(X),
            float(self.judge.wrong(self.judge.star[None])[0]),
            self.judge.gaps(np.array(real)),
        )


def measured(cell: Cell) -> list[Line]:
    """All lines of a cell; rows are read once."""
    found: list[Line] = []
    with using_cache(Cache()):
        runs = Runs(cell)
        for who in cell.each:
            search, place = runs.tuned(who)
            found.append(runs.line(who, search, place, found[0].values if found else search.values(place)))
            print(f"{time.strftime('%H:%M:%S')} {found[-1]}", file=sys.stderr, flush=True)
    return found


# --- tables ---

COLUMNS = (
    "devices", "noise by", "step", "answers", "clip", "noise over the curator's", "objective gap", "over the curator's",
    "testing error", "epsilon alone",
)  # fmt: skip


def given(found: Median) -> str:
    """A median and its standard error."""
    return shown(found.value) + ("" if np.isnan(found.error) else f" ± {found.error:.1g}")


def over(line: Line, other: Line) -> str:
    """The ratio of two medians, and its standard error; they are independent."""
    one, two = median(line.gaps), median(other.gaps)
    ratio = one.value / two.value
    return f"{ratio:.2f} ± {ratio * hypot(one.error / one.value, two.error / two.value):.1g}"


def row(line: Line, curator: Line) -> Sequence[str | float]:
    step, answers, clip = (
        f"{line.values[key]:.3g}{' (limit)' * (key in line.limits)}" for key in ("step", "answers", "clip")
    )
    n = "" if line.who.nodes == 1 else str(line.who.nodes)
    about = (n, line.who.title, step, answers, clip, f"{line.noise:.4f}")
    ratio = "" if line is curator else over(line, curator)
    wrong, alone = median(line.wrong), line.alone if n else nan
    return (*about, given(median(line.gaps)), ratio, f"{wrong.value:.4f} ± {wrong.error:.1g}", alone)


def tables(cells: Sequence[Sequence[Line]]) -> list[Table]:
    """A table a problem and total; then what the real program's runs had."""
    made, real = [], []
    for lines in cells:
        first = lines[0]
        plain = ("", "nobody: the optimum", *[""] * 4, "0", "", f"{first.best:.4f}", "")
        title = f"{first.problem}: ({first.epsilon:g}, {DELTA:g})"
        made.append(Table(title, COLUMNS, [plain, *(row(line, first) for line in lines)]))
        real += [
            (li.problem, f"{li.epsilon:g}", li.who.nodes, li.who.title, given(mean(li.gaps)), given(mean(li.real)))
            for li in lines
            if li.real.size
        ]
    columns = ("rows", "epsilon", "devices", "noise by", "mean gap at once", "mean gap of `hushgrid run`")
    return [*made, Table("Beside the real program", columns, real)]


def mean(values: Vector) -> Median:
    """The mean in a median's place."""
    error = float(np.std(values, ddof=1)) / sqrt(values.size) if values.size > 1 else nan
    return Median(values.size, float(np.mean(values)), error, nan, nan)


def picture(cells: Sequence[Sequence[Line]]) -> str:
    """The gap over epsilon: a row a problem, a panel a number of devices."""
    lines = [line for cell in cells for line in cell]
    panels = []
    for problem in dict.fromkeys(line.problem for line in lines):
        of = [line for line in lines if line.problem == problem]
        across = []
        for n in sorted({line.who.nodes for line in of} - {1}):
            curves: dict[str, tuple[Vector, Vector]] = {}
            for name in dict.fromkeys(curve_of(line.who) for line in of):
                same = [line for line in of if line.who.nodes in (1, n) and curve_of(line.who) == name]
                x, y = [line.epsilon for line in same], [median(line.gaps).value for line in same]
                curves[name] = (np.array(x), np.array(y))
            across.append(Panel(f"{problem}, {n} devices", "total epsilon", "objective gap", curves, True, True))
        panels.append(across)
    return chart("What a masked sum is worth", COMMAND, panels)


def curve_of(who: Who) -> str:
    return "masked, a quarter or a third corrupt" if who.corrupt else who.title


def study(
    problems: Sequence[Problem] = (ADULT, DIGITS),
    epsilons: Sequence[float] = EPSILONS,
    devices: Sequence[int] = tuple(CORRUPT),
    tuned_on: Sequence[int] = TUNED_ON,
    seeds: Sequence[int] = SHOWN,
    real: Sequence[int] = REAL,
    target: Path = TARGET,
) -> None:
    """The whole study, to files."""
    began = time.perf_counter()
    each = (CURATOR, *(Who(n, t) for n in devices for t in (0, CORRUPT[n])), *(Who(n, None) for n in devices))
    cells = [Cell(p, e, each, tuned_on, seeds, real) for p, e in product(problems, epsilons)]
    found = on_two(measured, cells, lambda c: f"{c.problem.title}, epsilon {c.epsilon:g}")
    write("masked-table", COMMAND, time.perf_counter() - began, tables(found), picture(found), target)
