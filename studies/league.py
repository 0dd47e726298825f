"""`hushgrid study league`: every data algorithm of the project on one problem, one graph, at one honest total epsilon.

Logistic regression of made-up unit rows, on a geometric graph of 8 nodes with a Hamiltonian cycle. Adjacency: one
record replaced, of the rows of each node. The figures are those of `hushgrid run` over memory: medians over seeds that
the parameters were not tuned on. Tuning plays the same machines and gates, by the error, which no run can see, and
pays no epsilon for it: optimistic, for all alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.algorithms.base import Algorithm, Keys, Rounds
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.patterns.token import Leg
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.types import Vector
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.on_graph import place
from hushgrid.node.problems.records.gate import RowsGate
from hushgrid.node.problems.registry import KINDS
from hushgrid.node.schema.yaml_file import convert
from hushgrid.studies.study import TARGET, Panel, Table, Willing, chart, handed, on_two, shown, stepped, write

COMMAND = "hushgrid study league"
N, ROWS, FEATURES = 8, 2000, 10
DELTA = 1e-5
EPSILONS = (1.0, 10.0)  #: of the whole run, a node
ACCURACY = 1e-6  #: relative error, without privacy
LIMIT = 500  #: rounds (N activations each) after which a run without privacy is given up
SEEDS = (0, 1, 2, 3, 4)
TUNED_ON = (1000, 1001, 1002, 1003)
RUN = bytes(16)

Asks = Literal["gradient", "minimiser", "output"]
#: Mechanism and accountant of the least cost among those the gate has for what is asked.
PRIVACY: dict[Asks, dict[str, Any]] = {
    "gradient": {"mechanism": "gaussian", "accountant": "gdp"},
    "minimiser": {"mechanism": "laplace", "accountant": "pure-optimal"},
    "output": {"mechanism": "gaussian", "accountant": "gdp"},
}
ANSWERS: dict[Asks, Sequence[int]] = {
    "gradient": (10, 30, 90),
    "minimiser": (2, 6, 20),
    "output": (2, 6, 20),
}  #: grids


class Method(NamedTuple):
    declared: type[Algorithm]
    algorithm: dict[str, Any]  #: of the scenario, without rounds and variant
    grid: Sequence[Keys]  #: what is tuned

    @property
    def asks(self) -> Asks:
        section = declared(self.algorithm | dict(self.grid[0]), 1)
        return (
            "output"
            if section.minimizes and section.by_output("laplace")
            else "minimiser"
            if section.minimizes
            else "gradient"
        )


#: Every algorithm that solves data problems on a graph, as it is declared: a line or several.
RACING = {name: ALGORITHMS[name] for name in KINDS["data"].algorithms if ALGORITHMS[name].networked}
METHODS: dict[str, Method] = {
    race.title: Method(kind, {"name": name, **race.keys}, race.grid)
    for name, kind in RACING.items()
    for race in kind.raced()
}
#: As the papers have them, their noise where they put it; parameters of the runs without privacy.
PUBLISHED: dict[str, dict[str, Any]] = {
    title: {"name": name, "variant": "published", **keys}
    for name, kind in RACING.items()
    for title, keys in kind.published_races.items()
}
PUBLISHED_ANSWERS = 80


class Task(NamedTuple):
    method: str
    epsilon: float  #: inf: without privacy; nan: as published
    seeds: Sequence[int]
    tuned_on: Sequence[int]
    answers: Sequence[int] | None  #: another grid


class Line(NamedTuple):
    task: Task
    chosen: str
    figures: dict[str, float]  #: medians over seeds
    errors: tuple[float, float]  #: the least and the largest relative error of a seed
    reached: bool  #: ACCURACY within LIMIT
    curve: tuple[Vector, Vector]  #: messages sent, relative error, of the first seed


# --- one run ---


def scenario(algorithm: dict[str, Any], rounds: int, seed: int, privacy: dict[str, Any] | None) -> dict[str, Any]:
    """The league's problem, as in a scenario file. f_i has the scale 16: RECAL's step is 1 in whatever units."""
    found = {
        "hushgrid": 1,
        "name": "league",
        "seed": seed,
        "problem": {
            "kind": "logistic",
            "scale": 16.0,
            "l2": 0.16,
            "row_bound": 1.0,
            "data": {"synthetic": {"rows": ROWS, "features": FEATURES, "seed": 7}, "normalize": "unit-rows"},
        },
        "network": {"kind": "geometric", "nodes": N, "radius": 0.5, "seed": 11},
        "algorithm": algorithm | {"rounds": rounds},
    }
    if privacy:
        found["privacy"] = privacy | {"delta": DELTA, "adjacency": {"replace-one-record": {"clip": 1.0}}}
    return found


def declared(algorithm: dict[str, Any], rounds: int) -> Algorithm:
    """A scenario's section. Raises InputError."""
    return convert(algorithm | {"rounds": rounds}, RACING[algorithm["name"]], "league")


def rounds_of(algorithm: dict[str, Any], answers: int) -> int:
    """Rounds (activations, where a token walks) in which each node answers so often (W-ADMM: on average)."""
    if RACING[algorithm["name"]].pattern == "token":
        return N * answers
    return declared(algorithm, 4 * answers + 4).capped(answers, "objective", 0)[1]


def setup_of(raw: dict[str, Any]) -> RowSetup:
    return RowSetup(scenario_from(raw))


def played(setup: RowSetup) -> Iterator[Vector]:
    """x after each round (activation) of the run, from its machines and gates alone: no ledger, no message."""
    plan, seed, algorithm = setup.plan, setup.scenario.seed, setup.plan.running
    machines: list[Any] = []
    for i, node in enumerate(plan.nodes):
        noise = SeededNoise(seed or 0, node)
        gate = RowsGate(node, setup.device(node).loss(plan.problem), plan.terms_of(node), noise, Willing())
        machines.append(algorithm.agent(place(plan, RUN, i, gate, noise)))
    if algorithm.walks is not None:
        route, walk = plan.problem.way(algorithm, RUN), [""]
        for k in range(algorithm.rounds):
            walk.append(route(walk[-1], k, Leg()))
        yield from (hop.token[0] for hop in handed(machines, map(index, walk[1:]), machines[0].first))
        return
    rounds = cast(Rounds, algorithm)
    yield from stepped(machines, rounds.messages, rounds.iterate_is_sent)


class Race:
    """The problem's optimum, and how far from it a run is."""

    def __init__(self) -> None:
        setup = setup_of(scenario({"name": "dgd", "variant": "none", "step_size": 1.0}, 1, 0, None))
        self.star = optimum(setup.losses, setup.plan.problem.regularizer).x

    @np.errstate(over="ignore", invalid="ignore")  # of what diverges
    def errors(self, raw: dict[str, Any], until: float = 0.0) -> Vector:
        """|x - x*|/|x*| after each round (activation), to the first that is at most `until`; infinite what is refused."""
        found = []
        try:
            for x in played(setup_of(raw)):
                found.append(float(np.linalg.norm(x - self.star) / np.linalg.norm(self.star)))
                if found[-1] <= until or not found[-1] < 1e6:
                    break
        except (InputError, Refused):  # unstable, or too many answers for its epsilon
            return np.array([inf])
        each: Vector = np.nan_to_num(np.array(found), nan=inf)
        return each


# --- tuning ---


def tuned(race: Race, task: Task) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Algorithm, rounds and privacy section: the best of the grid, by the median error of the seeds tuned on."""
    m = METHODS[task.method]
    privacy = PRIVACY[m.asks] | {"epsilon": task.epsilon}
    best: tuple[float, Any] = (inf, None)
    for parameters, T in product(m.grid, task.answers or ANSWERS[m.asks]):
        algorithm = m.algorithm | dict(parameters)
        rounds = rounds_of(algorithm, T)
        error = np.median([race.errors(scenario(algorithm, rounds, s, privacy))[-1] for s in task.tuned_on])
        if best[1] is None or error < best[0]:
            best = float(error), (algorithm, rounds, privacy)
    chosen: tuple[dict[str, Any], int, dict[str, Any]] = best[1]
    return chosen


def fastest(race: Race, method: str) -> tuple[dict[str, Any], int, bool]:
    """Without privacy: the parameters that need the fewest rounds to ACCURACY, or (none does) end nearest; and rounds."""
    m, reached = METHODS[method], False
    limit = LIMIT * (N if m.declared.pattern == "token" else 1)
    best: tuple[float, Any] = (inf, None)
    for parameters in m.grid:
        algorithm = m.algorithm | dict(parameters) | {"variant": "none"}
        raw = scenario(algorithm, limit, SEEDS[0], None)
        errors = race.errors(raw, ACCURACY)
        if errors[-1] <= ACCURACY:
            limit, reached = len(errors), True
            best = 0.0, (algorithm, limit)
        elif best[1] is None or errors[-1] < best[0]:
            best = float(errors[-1]), (algorithm, limit)
    return *best[1], reached


# --- the league ---

COLUMNS = (
    "method",
    "asks for",
    "mechanism",
    "ε",
    "parameters",
    "relative error",
    "least to largest",
    "objective gap",
    "consensus residual",
    "rounds or activations",
    "answers",
    "messages",
    "bytes",
    "wall s",
)


def measure(task: Task) -> Line:
    """One line: what is tuned, and then runs of it."""
    race, privacy, reached = Race(), None, True
    if isnan(task.epsilon):
        algorithm = PUBLISHED[task.method]
        rounds = rounds_of(algorithm, PUBLISHED_ANSWERS)
        if declared(algorithm, 1).claims:
            privacy = {"mechanism": "gaussian", "epsilon": EPSILONS[-1]}
    elif task.epsilon == inf:
        algorithm, rounds, reached = fastest(race, task.method)
    else:
        algorithm, rounds, privacy = tuned(race, task)
    raws = [scenario(algorithm, rounds, seed, privacy) for seed in task.seeds]
    results = [run(raw) for raw in raws]
    each = [_figures(r) for r in results]
    figures = {key: float(np.median([f[key] for f in each])) for key in each[0]}
    errors = min(f["error"] for f in each), max(f["error"] for f in each)
    if isnan(task.epsilon):  # what is published is not played
        return Line(task, _said(algorithm, {}), figures, errors, reached, (np.zeros(0), np.zeros(0)))
    way = race.errors(raws[0])
    curve = np.arange(1, len(way) + 1) / len(way) * figures["messages"], way
    return Line(task, _said(algorithm, METHODS[task.method].algorithm), figures, errors, reached, curve)


def _figures(r: Result) -> dict[str, float]:
    spent = r.privacy["spent"]
    answers = [node.get("answers") for node in r.privacy["per_node"].values()]
    return {
        "epsilon": inf if spent is None or spent["epsilon"] is None else spent["epsilon"],
        "error": _known(r.relative_error),
        "gap": _known(r.optimality_gap),
        "residual": _known(r.consensus_residual),
        "rounds": r.rounds_done,
        "answers": nan if None in answers else max(answers),
        "messages": r.messages,
        "bytes": r.bytes,
        "wall": r.wall_s,
    }


def _known(value: float | None) -> float:
    """A result has null where a figure is not finite."""
    return inf if value is None else value


def _said(algorithm: dict[str, Any], fixed: dict[str, Any]) -> str:
    parts = []
    for key, value in algorithm.items():
        if key in fixed or key in ("name", "variant"):
            continue
        if isinstance(value, dict):
            value = f"{value['start']:g}·{value['growth']:g}^k"
        parts.append(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(parts)


def row(line: Line) -> list[str | float]:
    f, method = line.figures, METHODS.get(line.task.method)
    asks, mechanism = method.asks if method else "gradient", "none"
    if isnan(line.task.epsilon):
        asks, mechanism = "gradient", "the paper's"
    elif method and line.task.epsilon < inf:
        mechanism = PRIVACY[asks]["mechanism"]
    spread = " to ".join(shown(v) for v in line.errors) if line.errors[0] < line.errors[1] else ""
    rounds: str | float = int(f["rounds"]) if line.reached else f"> {int(f['rounds'])}"
    answers = int(f["answers"]) if isfinite(f["answers"]) else f["answers"]
    return [
        line.task.method,
        asks,
        mechanism,
        f["epsilon"],
        line.chosen,
        f["error"],
        spread,
        f["gap"],
        f["residual"],
        rounds,
        answers,
        int(f["messages"]),
        int(f["bytes"]),
        f["wall"],
    ]


def tables(lines: Sequence[Line]) -> list[Table]:
    """By total epsilon, the least error first; then without privacy, the fewest messages first; then as published."""
    found = []
    for epsilon in sorted({li.task.epsilon for li in lines if li.task.epsilon < inf}):
        same = sorted((li for li in lines if li.task.epsilon == epsilon), key=lambda li: li.figures["error"])
        title = f"Honest total ε = {epsilon:g} of each node, δ = {DELTA:g}"
        found.append(Table(title, COLUMNS, [row(li) for li in same]))
    plain = [li for li in lines if li.task.epsilon == inf]
    plain.sort(key=lambda li: (not li.reached, li.figures["messages"]))
    published = [li for li in lines if isnan(li.task.epsilon)]
    return [
        *found,
        Table(f"Without privacy, to a relative error of {ACCURACY:g}", COLUMNS, [row(li) for li in plain]),
        Table("As published: no honest ε", COLUMNS, [row(li) for li in published]),
    ]


def picture(lines: Sequence[Line]) -> str:
    """The error over the messages sent, on the way of each method's first run."""

    def panel(title: str, epsilon: float) -> Panel:
        curves = {li.task.method: li.curve for li in lines if li.task.epsilon == epsilon}
        return Panel(title, "messages", "relative error", curves, xlog=True)

    honest = sorted({li.task.epsilon for li in lines if li.task.epsilon < inf})
    rows = [[panel(f"total ε = {e:g}", e) for e in honest], [panel("without privacy", inf)]]
    return chart("The league: one problem, one graph, one honest total ε", COMMAND, rows)


def league(
    methods: Sequence[str] = tuple(METHODS),
    epsilons: Sequence[float] = EPSILONS,
    published: Sequence[str] = tuple(PUBLISHED),
    seeds: Sequence[int] = SEEDS,
    tuned_on: Sequence[int] = TUNED_ON,
    answers: Sequence[int] | None = None,
    target: Path = TARGET,
) -> None:
    """The whole table, to files. `answers`: a grid in place of ANSWERS."""
    began = time.perf_counter()
    tasks = [Task(m, epsilon, seeds, tuned_on, answers) for epsilon, m in product(epsilons, methods)]
    tasks += [Task(m, inf, seeds[:1], (), None) for m in methods]
    tasks += [Task(m, nan, seeds, (), None) for m in published]
    lines = on_two(measure, tasks, lambda t: f"{t.method}, ε = {t.epsilon:g}")
    write("league-table", COMMAND, time.perf_counter() - began, tables(lines), picture(lines), target)
