"""`hushgrid study air`: what twelve air-quality stations gain by learning together, and what hiding an hour or a day costs.

Each seed makes another station young: it has the last two weeks of its rows, the others a year. All are tested on their own
hours of the year that follows, beside persistence, each station alone, all rows in one place, and a trusted curator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.kernels.privacy.accounting import calibrate
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, write
from hushgrid.node.problems.records.files import read_csv
from hushgrid.node.schema.yaml_file import read_yaml
from hushgrid.scenarios import FOLDER
from hushgrid.scenarios.prepare_air import COLUMNS, TESTED

COMMAND = "hushgrid study air"
Goal = Literal["warn", "predict"]
GOALS: tuple[Goal, ...] = ("warn", "predict")
YOUNG = 66  #: rows of two weeks
DELTA = 1e-5
EPSILONS = (0.3, 1.0, 4.0)  #: of the whole run, a station
UNITS = {"hour": 1, "day": 6}  #: how many rows the readings of it are in
SEEDS = tuple(range(24))  #: each of twelve stations is young in two of them
RIDGES = (1e-4, 1e-3, 3e-3, 1e-2, 1e-1)  #: of a station alone
RIDGE = 1.2e-4  #: of all together: 12 times that of air.yaml
#: Scenario, and its keys for another goal than its own. All were chosen by the loss on the rows of training, at epsilon 1 of
#: an hour; other epsilons and the day have the same.
PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "rounds": ("air", {"step_size": 60.0}),
    "token": ("air-token", {"rho": 0.025}),
    "star": ("air-star", {"eta": 60.0, "rho": 0.004}),
}
CLIP = {("predict", "token"): 0.35}  #: else 1/2

Shards = list[tuple[Matrix, Vector]]


class Task(NamedTuple):
    goal: Goal
    pattern: str  #: rounds, token, star, curator
    unit: str
    epsilon: float
    seeds: Sequence[int]


class Line(NamedTuple):
    """Errors of one method, a row a seed: of the old stations' mean, and of the young one."""

    goal: Goal
    method: str
    unit: str
    epsilon: float  #: inf: without privacy
    common: Matrix  #: (seeds, 2) of the common model, on a station's own hours
    own: Matrix  #: (seeds, 2) of each station's own model, on its own hours


@cache
def stations() -> tuple[list[str], Shards, Shards]:
    """Names, a year's rows of each, and those of the last year: labels ln(PM2.5/75)/2."""
    files = [str(name) for name in read_yaml(FOLDER / "air.yaml")["problem"]["data"]["files"]]
    names = [Path(name).name.split(".")[0].removesuffix("-young") for name in files]
    air = FOLDER / "data" / "air"
    year = [read_csv(air / f"{name}.csv.bz2", "least-squares") for name in names]
    A, b, _ = read_csv(air / "last-year.csv.bz2", "least-squares")
    tested = [(A[i : i + TESTED], b[i : i + TESTED]) for i in range(0, len(b), TESTED)]
    return names, [(t.A, t.b) for t in year], tested


def labels(b: Vector, goal: Goal) -> Vector:
    return b if goal == "predict" else np.where(b > 0, 1.0, -1.0)


def shards(goal: Goal, young: int) -> Shards:
    """Every station's rows; the young one has its last two weeks."""
    return [
        (A[-YOUNG:], labels(b[-YOUNG:], goal)) if i == young else (A, labels(b, goal))
        for i, (A, b) in enumerate(stations()[1])
    ]


def error(margins: Vector, b: Vector, goal: Goal) -> float:
    """The share of hours that are wrongly warned of or not, or the root mean square error of ln(PM2.5/75)/2."""
    return float(np.mean((margins > 0) != (b > 0))) if goal == "warn" else float(np.sqrt(np.mean((margins - b) ** 2)))


def errors(goal: Goal, young: int, said: Sequence[Vector]) -> list[float]:
    """The old stations' mean error, and the young one's; `said`: what is said of each station's hours of the last year."""
    each = [error(margins, b, goal) for margins, (_, b) in zip(said, stations()[2], strict=True)]
    return [float(np.mean([e for i, e in enumerate(each) if i != young])), each[young]]


def by(models: Sequence[Vector]) -> list[Vector]:
    """What the stations' models say of their hours of the last year."""
    return [A @ x for x, (A, _) in zip(models, stations()[2], strict=True)]


def fitted(rows: Shards, goal: Goal, ridge: float) -> Vector:
    """The optimum of the mean loss of all these rows."""
    A, b = np.concatenate([A for A, _ in rows]), np.concatenate([b for _, b in rows])
    return optimum([Loss(objective(goal, ridge), A, b)], Regularizer()).x


def objective(goal: Goal, ridge: float) -> Objective:
    return Objective(kind="logistic" if goal == "warn" else "least-squares", l2=ridge)


# --- beside what it is held ---


def persistence(goal: Goal, young: int) -> list[float]:
    """PM2.5 stays as it is: a warning where it is above the limit now; its logarithm, as far as the row's norm tells it."""
    at, one = COLUMNS.index("pm25"), COLUMNS.index("one")

    # The row's first entry is 1 before it is scaled and shortened.
    return errors(goal, young, [A[:, at] / A[:, one] for A, _ in stations()[2]])


def alone(goal: Goal, young: int) -> list[float]:
    """Each station by its own rows, without noise. A favour: the ridge is the best of five, for either kind, on the test."""
    rows = shards(goal, young)
    found = [errors(goal, young, by([fitted([own], goal, ridge) for own in rows])) for ridge in RIDGES]
    return [min(each) for each in zip(*found, strict=True)]


def pooled(goal: Goal, young: int) -> list[float]:
    """All rows in one place, without noise."""
    return errors(goal, young, by([fitted(shards(goal, young), goal, RIDGE)] * 12))


def curator(task: Task, seed: int) -> list[float]:
    """All rows at one party that everybody trusts: as many noisy gradients, one noise each instead of twelve."""
    young, answers = seed % 12, 30
    raw = settings(task._replace(pattern="rounds"))
    rows = shards(task.goal, young)
    A, b = np.concatenate([A for A, _ in rows]), np.concatenate([b for _, b in rows])
    loss = Loss(objective(task.goal, RIDGE), A, b, row_bound=1.0)
    c = float(raw["privacy"]["adjacency"]["replace-one-record"]["clip"])
    noise = loss.sensitivity(c, UNITS[task.unit]) / calibrate("gdp", task.epsilon, DELTA, answers)
    step, x = raw["algorithm"]["step_size"] / 12, np.zeros(loss.size)
    draw = counter_generator(seed, "curator", 0)
    for _ in range(answers):
        x = x - step * (loss.clipped_gradient(x, c, 2) + loss.public_gradient(x) + noise * draw.normal(size=x.size))
    return errors(task.goal, young, by([x] * 12))


def of_one_station() -> Table:
    """The station of air.yaml alone, by what it holds: is a young station poor because it leaves hours out?"""
    at, columns = 11, ("rows", "number", *(f"{goal}, ridge {ridge:g}" for goal in GOALS for ridge in RIDGES))
    year = stations()[1][at]
    hourly = read_csv(FOLDER / "data" / "air" / "wanshouxigong-young-hourly.csv.bz2", "least-squares")
    held = {
        "two weeks, each fifth hour": (year[0][-YOUNG:], year[1][-YOUNG:]),
        "two weeks, every hour": (hourly.A, hourly.b),
        "a year, each fifth hour": year,
    }
    body: list[list[str | float]] = []
    for words, (A, b) in held.items():
        found = []
        for goal, ridge in product(GOALS, RIDGES):
            x = fitted([(A, labels(b, goal))], goal, ridge)
            found.append(errors(goal, at, by([x] * 12))[1])
        body.append([words, len(b), *found])
    return Table(f"{stations()[0][at]} alone, its error on the last year", columns, body)


# --- together ---


def settings(task: Task) -> dict[str, Any]:
    """The scenario of this pattern, goal, unit and total, without its data."""
    name, keys = PATTERNS[task.pattern]
    raw: dict[str, Any] = read_yaml(FOLDER / f"{name}.yaml")
    problem = raw["problem"]
    del problem["data"], problem["test"]
    clip = CLIP.get((task.goal, task.pattern), 0.5)
    if task.goal == "predict":
        problem["kind"] = "least-squares"
        raw["algorithm"] |= keys
    unit = {"clip": clip, "records": UNITS[task.unit]} if UNITS[task.unit] > 1 else {"clip": clip}
    raw["privacy"] |= {"adjacency": {"replace-one-record": unit}, "epsilon": task.epsilon, "delta": DELTA}
    return raw


def measure(task: Task) -> Line:
    """A pattern's errors, a row a seed."""
    common, own = [], []
    for seed in task.seeds:
        if task.pattern == "curator":
            common.append(curator(task, seed))
            continue
        young = seed % 12
        found = run(settings(task) | {"seed": seed}, data=shards(task.goal, young)).solution
        common.append(errors(task.goal, young, by([found["x"]] * 12)))
        own.append(errors(task.goal, young, by([found[f"x_n{i}"] for i in range(12)])))
    each = np.array(common)
    return Line(task.goal, task.pattern, task.unit, task.epsilon, each, np.array(own) if own else each)


def beside(goal: Goal, seeds: Sequence[int]) -> list[Line]:
    """The methods without privacy, one line each."""
    lines = []
    for name, method in (("persistence", persistence), ("each alone", alone), ("pooled, no privacy", pooled)):
        of = {young: method(goal, young) for young in {seed % 12 for seed in seeds}}
        each = np.array([of[seed % 12] for seed in seeds])
        lines.append(Line(goal, name, "", float("inf"), each, each))
    return lines


# --- what is shown ---


def _mean(values: Vector) -> str:
    """Mean over the seeds, and its standard error."""
    spread = float(np.std(values, ddof=1)) if values.size > 1 else 0.0
    return f"{np.mean(values):.4f} ± {spread / np.sqrt(values.size):.1g}"


def tables(lines: Sequence[Line]) -> list[Table]:
    found = []
    columns = (
        "method",
        "hidden",
        "ε",
        "old stations",
        "their own models",
        "young station",
        "its own model",
        "young, less pooled",
    )
    for goal in dict.fromkeys(line.goal for line in lines):
        same = [line for line in lines if line.goal == goal]
        base = next((line.common for line in same if line.method.startswith("pooled")), same[0].common)
        body: list[list[str | float]] = [
            [
                line.method,
                line.unit,
                line.epsilon if np.isfinite(line.epsilon) else "none",
                _mean(line.common[:, 0]),
                _mean(line.own[:, 0]),
                _mean(line.common[:, 1]),
                _mean(line.own[:, 1]),
                _mean(line.common[:, 1] - base[:, 1]),
            ]
            for line in same
        ]
        what = (
            "Warning: share of wrong hours"
            if goal == "warn"
            else "Prediction: root mean square error of ln(PM2.5/75)/2"
        )
        found.append(Table(f"{what}, on the last year", columns, body))
    return found


def picture(lines: Sequence[Line]) -> str:
    def panel(goal: Goal, who: int) -> Panel:
        same = [line for line in lines if line.goal == goal]
        totals = np.array(sorted({line.epsilon for line in same if np.isfinite(line.epsilon)}))
        curves = {}
        for line in same:
            if not np.isfinite(line.epsilon):
                curves[line.method] = totals, np.full(totals.size, np.mean(line.common[:, who]))
        for method, unit in dict.fromkeys((li.method, li.unit) for li in same if np.isfinite(li.epsilon)):
            at = {
                li.epsilon: float(np.mean(li.common[:, who])) for li in same if (li.method, li.unit) == (method, unit)
            }
            curves[f"{method}, {unit}"] = totals, np.array([at[epsilon] for epsilon in totals.tolist()])
        measure = "share of wrong hours" if goal == "warn" else "error of ln(PM2.5/75)/2"
        return Panel(("old stations", "young station")[who], "ε", measure, curves, xlog=True, marks=True)

    goals = list(dict.fromkeys(line.goal for line in lines))
    return chart(
        "Twelve stations, tested on the last year", COMMAND, [[panel(g, who) for who in (0, 1)] for g in goals]
    )


def study(
    goals: Sequence[Goal] = GOALS,
    patterns: Sequence[str] = (*PATTERNS, "curator"),
    epsilons: Sequence[float] = EPSILONS,
    seeds: Sequence[int] = SEEDS,
    target: Path = TARGET,
) -> None:
    """The whole study, to files."""
    began = time.perf_counter()
    tasks = [Task(g, p, u, e, seeds) for g, p, u, e in product(goals, patterns, UNITS, epsilons)]
    lines = on_two(measure, tasks, lambda t: f"{t.goal}, {t.pattern}, a {t.unit}, ε = {t.epsilon:g}")
    lines = [line for goal in goals for line in [*beside(goal, seeds), *(li for li in lines if li.goal == goal)]]
    write("air-table", COMMAND, time.perf_counter() - began, [*tables(lines), of_one_station()], picture(lines), target)
