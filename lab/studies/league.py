"""`hushgrid study league`: every data algorithm at one honest total epsilon, ranked by what a device holds at the end.

Problem, network and the deal of the rows are a setting. Each method's parameters are tuned there on seeds apart from
those shown, on a lattice that goes on until its best point is interior (lab/studies/common/tuning.py). All runs are
those of `sweep`, with ledgers, gates and messages; what has run is kept in DIRECTORY, and the command goes on where it
was ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation.problems.cache import using_cache
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.types import Document, DocumentView, Matrix, Vector
from hushgrid.lab.comparison.medians import Median, median
from hushgrid.lab.rollout.side_by_side import device_models, thin
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, in_digits
from hushgrid.lab.studies.common.tuning import Known, KnownPoints, Place
from hushgrid.lab.studies.races import (
    DELTA,
    METHODS,
    SCALE,
    SETTINGS,
    Method,
    Setting,
    rounds_to_agree,
    weights,
)
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.records.data import load_test

DIRECTORY = Path("runs/league")
SHOWN = tuple(range(1, 21))
TUNED_ON = tuple(range(1000, 1020))
LEVELS = (1, 4, 20)  #: seeds on which a walk compares points, one after the other
TARGETED = "own_gap"  #: what is tuned and ranked


# --- what a run is worth ---


class Judge:
    """All rows of a setting, and their optimum: how good models are. Gaps are of the nodes' mean loss, per unit of
    scale.
    """

    def __init__(self, setting: Setting) -> None:
        raw = setting.scenario("graph") | {
            "algorithm": {"name": "dgd", "variant": "none", "rounds": 1, "step_size": 1.0}
        }
        made = RowSetup(scenario_from(raw))
        self.n, self.l2 = len(made.shards), setting.problem["l2"] / SCALE
        A = np.concatenate([s.A for s in made.shards])
        self.A, self.size = thin(A), A.shape[1]
        self.b = np.concatenate([s.b for s in made.shards])
        self.weight = np.concatenate([np.full(len(s.b), 1.0 / (self.n * len(s.b))) for s in made.shards])
        self.losses, self.r = made.losses, made.plan.problem.regularizer
        self.star = optimum(self.losses, self.r).x
        self.least = float(self.value(self.star[None])[0])
        data = scenario_from(raw).problem.data
        self.tests = load_test(data, Path(setting.tests), "logistic", self.size) if setting.tests else None

    def value(self, X: Matrix) -> Vector:
        """Mean of the nodes' mean losses and the ridge at each row of X (k, d)."""
        of_rows = np.logaddexp(0.0, -self.b[:, None] * (self.A @ X.T))
        value: Vector = self.weight @ of_rows + self.l2 / 2 * np.sum(X**2, axis=1)
        return value

    def wrong(self, X: Matrix) -> float:
        """The mean share of test rows that models (k, d) get wrong."""
        if self.tests is None:
            return float("nan")
        return float(np.mean((self.tests.A @ X.T > 0) != (self.tests.b > 0)[:, None]))

    def figures(self, models: Matrix, mean: Vector) -> dict[str, float]:
        """models: (n, d) what each device has; mean: the mean of these, or the token."""
        gaps = self.value(models) - self.least
        length = float(np.linalg.norm(self.star))
        return {
            "own_gap": float(np.mean(gaps)),
            "worst_gap": float(np.max(gaps)),
            "mean_gap": float(self.value(mean[None])[0]) - self.least,
            "own_error": float(np.mean(np.linalg.norm(models - self.star, axis=1))) / length,
            "mean_error": float(np.linalg.norm(mean - self.star)) / length,
            "own_test": self.wrong(models),
        }

    def without_privacy(self) -> dict[str, dict[str, float]]:
        """Of the optimum of all rows, of each device's own rows, and of the mean of those."""
        each = np.array([optimum([loss], self.r).x for loss in self.losses])
        return {
            "the optimum of all rows": self.figures(self.star[None], self.star),
            "each alone": self.figures(each, each.mean(axis=0)),
            "the zero vector": self.figures(np.zeros((1, self.star.size)), np.zeros(self.star.size)),
        }


@cache
def judge(title: str) -> Judge:
    return Judge(SETTINGS[title])


FIGURES = ("own_gap", "worst_gap", "mean_gap", "own_error", "mean_error", "own_test")
_LAST: list[tuple[Result, dict[str, float]]] = []


def figure(name: str, title: str, result: Result) -> float:
    """A column of a sweep. Around a coordinator a device has the last model that it was sent; alone its own.

    Rounds of averaging that a run of the tuning was spared are made here: they are a product with W, without noise or
    data.
    """
    if not _LAST or _LAST[0][0] is not result:
        s, graph = result.solution, SETTINGS[title].graph
        models = np.array([v for key, v in s.items() if key.startswith("x_")])
        if made := result.summary.get("finish", {}).get("gossip"):
            models = np.linalg.matrix_power(weights(graph), rounds_to_agree(graph) - made) @ models
        if "w" in s and result.rounds_done > 1 and len(models) > 1:
            models = s["w"][None]
        _LAST[:] = [(result, judge(title).figures(models, s["x"]))]
    return _LAST[0][1][name]


# --- tuning, and what is shown ---

LAYOUTS = ("graph", "star", "curator")


class Cell(NamedTuple):
    """A method at a total epsilon."""

    method: Method
    epsilon: float


class LeagueRow(NamedTuple):
    cell: Cell
    values: dict[str, float]  #: what was chosen
    figures: dict[str, Median]  #: over the seeds that are shown
    limits: list[str]  #: what of them is at the natural end of its values
    over_answers: tuple[
        Vector, Vector
    ]  #: other numbers of answers that the walk saw, and the median gap there, over the tuning seeds it was played with


class Tuned:
    """What points of a cell are worth on the tuning seeds: played at once, or swept."""

    def __init__(self, setting: Setting, cell: Cell, known: Known, directory: Path, seeds: Sequence[int]) -> None:
        self.cell, self.known, self.scenario = cell, known, setting.scenario(cell.method.layout)
        self.title, self.graph = setting.title, setting.graph
        self.at_once = KnownPoints(directory / f"{cell.method.layout}.jsonl", seeds) if cell.method.at_once else None

    def point(self, values: Mapping[str, float]) -> Document:
        return self.cell.method.point(values, self.cell.epsilon, self.graph, averaged=False)

    def error(self, values: Mapping[str, float], seed: int) -> float | None:
        point = self.point(values)
        return self.at_once.error(point, seed) if self.at_once else self.known.error(point, seed, TARGETED)

    def run(self, wanted: DocumentView) -> None:
        """wanted: seeds by a point's values, as JSON."""
        points = [(self.point(json.loads(values)), seeds) for values, seeds in wanted.items()]
        if self.at_once:
            with using_cache(self.known.cache):
                self.at_once.run(self.scenario, [point for point, _ in points], self.worth)
        else:
            self.known.run(self.scenario, points, measured(self.title))

    def worth(self, models: Matrix) -> list[float]:
        """models: (S, n, d). A method that ends with averaging is judged by the gap of the mean: all end within 1 % of
        it.
        """
        referee = judge(self.title)
        each = models.mean(axis=1, keepdims=True) if self.cell.method.finishes else models
        return [float(np.mean(referee.value(X))) - referee.least for X in each]

    def medians(self, values: Mapping[str, float], seeds: Sequence[int]) -> dict[str, Median]:
        """Figures of other seeds, played at once."""
        referee, figures = judge(self.title), []
        with using_cache(self.known.cache):
            every = device_models({**self.scenario, **self.point(values)}, seeds)
        W = np.linalg.matrix_power(weights(self.graph), rounds_to_agree(self.graph))
        for models in every:
            figures.append(referee.figures(W @ models if self.cell.method.finishes else models, models.mean(axis=0)))
        return {name: median(np.array([f[name] for f in figures])) for name in FIGURES}


def measured(title: str) -> Document:
    return {name: partial(figure, name, title) for name in FIGURES}


def played(tuned: Sequence[Tuned], seeds: Sequence[int], levels: Sequence[int]) -> list[Place]:
    """The chosen point of each cell: waves of runs until no walk asks for more."""
    ended: dict[int, Place] = {}
    while len(ended) < len(tuned):
        for k, one in enumerate(tuned):
            if k in ended:
                continue
            search = one.cell.method.search(seeds, levels[-1:] if one.at_once else levels)

            def error(p: Any, seed: int, search: Any = search, one: Any = one) -> Any:
                return one.error(search.values(p), seed)

            place, wanted = search.advance(error)
            if wanted:
                one.run({json.dumps(search.values(p)): which for p, which in wanted.items()})
            else:
                ended[k] = place
                line = f"{one.title}: {one.cell.method.title}: {search.values(place)}"
                print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
    return [ended[k] for k in range(len(tuned))]


def lines(
    setting: Setting,
    directory: Path = DIRECTORY,
    tuned_on: Sequence[int] = TUNED_ON,
    seeds: Sequence[int] = SHOWN,
    levels: Sequence[int] = LEVELS,
    swept: bool = True,
) -> list[LeagueRow]:
    """Tuned on some seeds, shown on others. swept: the runs that are shown are a sweep's, as they are always of tokens,
    whose mean model is no mean; else the first seed's is, for its bytes, and the figures are of all seeds played at
    once.
    """
    titles = setting.methods or tuple(METHODS)

    def is_baseline(method: Method) -> bool:
        return swept or not method.at_once or method.kind.pattern == "token"

    cells = [Cell(METHODS[t], epsilon) for epsilon in setting.epsilons for t in titles]
    known = {layout: Known(directory / setting.directory / layout) for layout in LAYOUTS}
    graph = setting.graph
    tuned = [Tuned(setting, cell, known[cell.method.layout], directory / setting.directory, tuned_on) for cell in cells]
    places = played(tuned, tuned_on, levels)
    rows = []
    for layout in LAYOUTS:
        chosen = [
            (
                c.method.point(c.method.search().values(p), c.epsilon, graph),
                seeds if is_baseline(c.method) else seeds[:1],
            )
            for c, p in zip(cells, places, strict=True)
            if c.method.layout == layout
        ]
        known[layout].run(setting.scenario(layout), chosen, measured(setting.title))
    for one, place in zip(tuned, places, strict=True):
        cell = one.cell
        search = cell.method.search()
        values = search.values(place)
        key = cell.method.point(values, cell.epsilon, graph)
        names = (*FIGURES, "answers", "messages", "bytes", "wall_s", "epsilon_spent", "rounds_done")
        figures = {
            n: median(np.array([known[cell.method.layout].error(key, s, n) for s in seeds], float)) for n in names
        }
        figures |= one.medians(values, seeds) if not is_baseline(cell.method) else {}
        ends = zip(search.axes, place, strict=True)
        limits = [a.key for a, k in ends if not (a.has(k - 1) and a.has(k + 1))]
        rows.append(LeagueRow(cell, values, figures, limits, _over_answers(one, place, tuned_on)))
    return rows


def _over_answers(one: Tuned, place: Place, seeds: Sequence[int]) -> tuple[Vector, Vector]:
    search = one.cell.method.search()
    i = next(i for i, a in enumerate(search.axes) if a.key == "answers")
    seen = []
    for k in range(-12, 13):
        if search.axes[i].has(k):
            values = search.values((*place[:i], k, *place[i + 1 :]))
            errors = [one.error(values, seed) for seed in seeds]
            known = [error for error in errors if error is not None and error < inf]
            if known and errors[0] == known[0]:
                seen.append((values["answers"], float(np.median(known))))
    return np.array([x for x, _ in seen]), np.array([y for _, y in seen])


# --- tables ---

COLUMNS = (
    "method",
    "chosen",
    "a node's own gap",
    "worst node",
    "mean model",
    "a node's own error",
    "test error",
    "answers",
    "messages",
    "bytes",
    "wall s",
)


def with_error(value: Median) -> str:
    """A median and its standard error."""
    if value.n == 0:
        return "refused"
    return in_digits(value.value) + ("" if np.isnan(value.error) else f" ± {value.error:.1g}")


def row(line: LeagueRow) -> list[str | float]:
    f = line.figures
    values = [(key, value) for key, value in line.values.items() if key != "answers"]
    chosen = ", ".join(f"{key} {value:.3g}{' (limit)' * (key in line.limits)}" for key, value in values)
    test = f["own_test"]
    return [
        line.cell.method.title,
        chosen,
        with_error(f["own_gap"]),
        f["worst_gap"].value,
        with_error(f["mean_gap"]),
        with_error(f["own_error"]),
        "" if test.n == 0 else f"{test.value:.4f}",
        f["answers"].value,
        f["messages"].value,
        f["bytes"].value,
        f["wall_s"].value,
    ]


def tables(setting: Setting, outcomes: Sequence[LeagueRow]) -> list[Table]:
    """By total epsilon and by the kind of promise, the least own gap first; then what needs no privacy."""
    made = []
    for epsilon in setting.epsilons:
        for pure in (False, True):
            same = [li for li in outcomes if li.cell.epsilon == epsilon and li.cell.method.pure == pure]
            same.sort(key=lambda li: li.figures[TARGETED].value if li.figures[TARGETED].n else inf)
            promise = f"({epsilon:g}, {DELTA:g})" if not pure else f"pure {epsilon:g}: delta is 0"
            if same:
                made.append(Table(f"{setting.title}: {promise}", COLUMNS, [row(li) for li in same]))
    names = ("model", "own gap", "worst node", "mean model", "own error", "test error")
    plain = judge(setting.title).without_privacy()
    body: list[list[str | float]] = [
        [name, *(f[k] for k in ("own_gap", "worst_gap", "mean_gap", "own_error", "own_test"))]
        for name, f in plain.items()
    ]
    return [*made, Table(f"{setting.title}: without privacy", names, body)]


def picture(outcomes: Mapping[str, Sequence[LeagueRow]]) -> str:
    """The own gap over the number of answers, all else as chosen, of the points that the walk saw; a panel a setting
    and total.
    """
    panels = []
    for title, each in outcomes.items():
        totals = sorted({li.cell.epsilon for li in each})
        row = []
        for epsilon in totals:
            curves = {li.cell.method.title: li.over_answers for li in each if li.cell.epsilon == epsilon}
            curves = {name: curve for name, curve in curves.items() if curve[0].size}
            row.append(
                Panel(f"{title}, epsilon {epsilon:g}", "answers", "a node's own gap", curves, xlog=True, marks=True)
            )
        panels.append(row)
    return chart("The league: how many answers", panels)


#: What the page shows.
MEASURED = ("Adult, ring of 8", "Adult by label, ring of 8", "Adult by feature, ring of 8")
#: Of these, where the runs that are shown are a sweep's.
SWEPT = ("Adult, ring of 8",)


def study(
    settings: Sequence[str] = MEASURED,
    epsilons: Sequence[float] = (),
    directory: Path = DIRECTORY,
    swept: Collection[str] = SWEPT,
) -> list[Page]:
    """Tune and show all of these settings, or go on with it.

    epsilons: [each setting's own]. swept: settings whose runs are a sweep's; the runs of the others are played at once.
    """
    wanted = [replace(s, epsilons=tuple(epsilons) or s.epsilons) for s in (SETTINGS[title] for title in settings)]
    outcomes = {setting.title: lines(setting, directory, swept=setting.title in swept) for setting in wanted}
    each = [table for setting in wanted for table in tables(setting, outcomes[setting.title])]
    return [Page("league-table", each, {"league-table.svg": picture(outcomes)})]
