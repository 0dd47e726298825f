"""`hushgrid study finishing`: one answer of each node, and rounds of averaging after the last (`finish: {gossip: k}`).

The league's problem, graph and totals. Shards are alike (rows as they were made) or unlike (all rows sorted by their first
feature, then dealt). Each node's own error is what its device holds; the mean model is held by none before the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, write
from hushgrid.lab.studies.races import DELTA, EPSILONS, GEOMETRIC, MADE_UP
from hushgrid.node.config.scenario import scenario_from

COMMAND = "hushgrid study finishing"
N = int(GEOMETRIC["nodes"])
LONGEST = 40  #: rounds of averaging
SHOWN = (0, 5, 10, 20, LONGEST)
SEEDS = tuple(range(20))
LAPLACE: dict[str, Any] = {"mechanism": "laplace"}
GAUSSIAN: dict[str, Any] = {"mechanism": "gaussian", "accountant": "gdp", "delta": DELTA}
#: Algorithm, rounds, privacy. One answer of pure epsilon is objective perturbation, for which this problem's rows are made:
#: their curvature is above mu in all directions.
METHODS: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "ADMM, one answer": ({"name": "admm", "eta": 1e-4}, 1, LAPLACE),
    "ADMM, one answer, gaussian": ({"name": "admm", "eta": 1e-4}, 1, GAUSSIAN),
    "DGD, 10 answers": ({"name": "dgd", "step_size": 1.0}, 11, GAUSSIAN | {"answers": 10}),
}


class Task(NamedTuple):
    shards: str  #: alike, unlike
    method: str
    epsilon: float
    seeds: Sequence[int]


class Line(NamedTuple):
    task: Task
    mean: Vector  #: (seeds,) relative error of the mean model
    own: Matrix  #: (seeds, LONGEST + 1) median over nodes of a node's own relative error, after each round
    worst: Matrix  #: the same of the worst node


def scenario(algorithm: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The league's made-up problem, as in a scenario file."""
    found = {"hushgrid": 1, "name": "finishing", "seed": 0, "problem": dict(MADE_UP), "network": dict(GEOMETRIC)}
    return found | {"algorithm": algorithm | {"rounds": rounds}}


def made_up() -> RowSetup:
    return RowSetup(scenario_from(scenario({"name": "dgd", "variant": "none", "step_size": 1.0}, 1)))


def rows(shards: str) -> list[tuple[Matrix, Vector]]:
    """Every node's rows (A_i, b_i)."""
    made = made_up().shards
    if shards == "alike":
        return [(s.A, s.b) for s in made]
    A, b = np.concatenate([s.A for s in made]), np.concatenate([s.b for s in made])
    order = np.argsort(A[:, 0], kind="stable")
    return [(A[part], b[part]) for part in np.array_split(order, N)]


def measure(task: Task) -> Line:
    """Runs of one method; what shorter finishes give is on the way of the longest."""
    data, (algorithm, rounds, privacy) = rows(task.shards), METHODS[task.method]
    raw = scenario(algorithm | {"finish": {"gossip": LONGEST}}, rounds)
    setup = made_up()
    star = optimum(setup.losses, setup.plan.problem.regularizer).x  # of all rows, however they are dealt
    raw["privacy"] = privacy | {"epsilon": task.epsilon, "adjacency": {"replace-one-record": {"clip": 1.0}}}
    raw["run"] = {"record": "trajectory"}
    del raw["problem"]["data"]
    found = []
    for seed in task.seeds:
        result = run(raw | {"seed": seed}, data=data)
        assert result.trajectory is not None
        x = result.trajectory["finished"]  # (LONGEST + 1, n, d)
        x = np.concatenate([x, x.mean(axis=1, keepdims=True)], axis=1)
        found.append(np.linalg.norm(x - star, axis=2) / np.linalg.norm(star))
    each = np.array(found)  # (seeds, LONGEST + 1, n + 1)
    return Line(task, each[:, 0, -1], np.median(each[:, :, :-1], axis=2), np.max(each[:, :, :-1], axis=2))


def _with_error(values: Vector) -> str:
    """Median over seeds, and its standard error (that of a mean times sqrt(pi/2))."""
    spread = float(np.std(values, ddof=1)) if values.size > 1 else 0.0
    return f"{np.median(values):.3g} ± {1.2533 * spread / np.sqrt(values.size):.1g}"


def tables(lines: Sequence[Line]) -> list[Table]:
    columns = ("method", "ε", "mean model", *(f"own, k = {k}" for k in SHOWN), *(f"worst, k = {k}" for k in SHOWN[1:]))
    found = []
    for shards in dict.fromkeys(line.task.shards for line in lines):
        body: list[list[str | float]] = [
            [
                line.task.method,
                line.task.epsilon,
                _with_error(line.mean),
                *(_with_error(line.own[:, k]) for k in SHOWN),
                *(f"{np.median(line.worst[:, k]):.3g}" for k in SHOWN[1:]),
            ]
            for line in lines
            if line.task.shards == shards
        ]
        found.append(Table(f"Relative error, shards {shards}, k rounds of averaging", columns, body))
    return found


def picture(lines: Sequence[Line]) -> str:
    k: Vector = np.arange(LONGEST + 1.0)

    def panel(shards: str, epsilon: float) -> Panel:
        same = [li for li in lines if (li.task.shards, li.task.epsilon) == (shards, epsilon)]
        curves = {li.task.method: (k, np.median(li.own, axis=0)) for li in same}
        return Panel(f"shards {shards}, ε = {epsilon:g}", "rounds of averaging", "a node's own error", curves)

    kinds = list(dict.fromkeys(line.task.shards for line in lines))
    epsilons = sorted({line.task.epsilon for line in lines})
    return chart("Averaging after the last answer", COMMAND, [[panel(s, e) for e in epsilons] for s in kinds])


def study(
    shards: Sequence[str] = ("alike", "unlike"),
    methods: Sequence[str] = tuple(METHODS),
    epsilons: Sequence[float] = EPSILONS,
    seeds: Sequence[int] = SEEDS,
    target: Path = TARGET,
) -> None:
    """The whole study, to files."""
    began = time.perf_counter()
    tasks = [Task(s, m, e, seeds) for s, e, m in product(shards, epsilons, methods)]
    lines = on_two(measure, tasks, lambda t: f"{t.shards}, {t.method}, ε = {t.epsilon:g}")
    write("finishing-table", COMMAND, time.perf_counter() - began, tables(lines), picture(lines), target)
