"""`hushgrid study minimisers`: three ways to make a node's minimiser private, on Adult, at one total of each node.

ADMM on the problem and the graph of `scenarios/adult-minimisers.yaml`, (1, 1e-5) in all. Gaussian output perturbation and the
spherical Laplace of objective perturbation are the gate's; Gaussian objective perturbation is the rival of
`baselines/gaussian_objective.py`, in floating point. Machines and gates are played without ledgers or messages; the figures
are of the mean model, which every node has after rounds of averaging.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.kernels.types import Vector
from hushgrid.lab.in_process import Willing, last
from hushgrid.lab.studies.baselines.gaussian_objective import Perturbed
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, write
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.machines import place
from hushgrid.node.problems.records.gate import RowsGate
from hushgrid.scenarios import find

COMMAND = "hushgrid study minimisers"
SEEDS = tuple(range(100, 110))
#: Answers and penalty, tuned on other seeds.
SETTINGS = ((1, 0.001), (1, 0.003), (2, 0.005), (4, 0.01), (10, 0.03), (20, 0.06), (40, 0.1))
MECHANISMS = ("gaussian output", "gaussian objective", "laplace objective")
PRIVACY: dict[str, dict[str, Any]] = {
    "gaussian": {"mechanism": "gaussian", "accountant": "gdp"},
    "laplace": {"mechanism": "laplace", "accountant": "pure-optimal"},
}


class Task(NamedTuple):
    mechanism: str
    answers: int
    eta: float
    seeds: Sequence[int]
    scenario: Path


class Line(NamedTuple):
    task: Task
    gaps: Vector  #: (seeds,) objective above the optimum, per unit of scale; infinite where the gate refuses


def setup_of(task: Task) -> RowSetup:
    privacy = PRIVACY[task.mechanism.split()[0]] | {"epsilon": 1.0, "delta": 1e-5}
    privacy["adjacency"] = {"replace-one-record": {"clip": 1.0}}
    algorithm = {"name": "admm", "rounds": task.answers, "eta": task.eta}
    return RowSetup(load_scenario(task.scenario, {"privacy": privacy, "algorithm": algorithm, "seed": 0}))


@cache
def least(scenario: Path) -> float:
    """The optimum: of one problem, whatever the mechanism."""
    setup = setup_of(Task(MECHANISMS[0], 10, 1.0, (), scenario))
    return optimum(setup.losses, setup.public.regularizer).value


def measure(task: Task) -> Line:
    """Runs of one mechanism at one setting."""
    try:
        setup = setup_of(task)
        gaps = [gap(setup, task, seed) for seed in task.seeds]
    except (InputError, Refused):  # too many answers for its epsilon
        gaps = [inf] * len(task.seeds)
    return Line(task, np.array(gaps))


def gap(setup: RowSetup, task: Task, seed: int) -> float:
    """The mean model's objective above the optimum, per unit of scale."""
    plan, machines = setup.plan, []
    for i, node in enumerate(plan.nodes):
        noise, t = SeededNoise(seed, node), plan.terms_of(node)
        assert t is not None
        oracle: Any = RowsGate(node, setup.losses[i], t, noise, Willing())
        if task.mechanism == "gaussian objective":
            oracle = Perturbed(setup.losses[i], t.per_answer, noise)
        machines.append(plan.running.agent(place(plan, bytes(16), i, oracle, noise)))
    x = last(plan, machines).mean(axis=0)
    scale = sum(loss.objective.scale for loss in setup.losses)
    return (setup.objective(x) - least(task.scenario)) / scale


def table(lines: Sequence[Line]) -> Table:
    settings = list(dict.fromkeys((line.task.answers, line.task.eta) for line in lines))
    body: list[list[str | float]] = []
    for mechanism in dict.fromkeys(line.task.mechanism for line in lines):
        own = {(li.task.answers, li.task.eta): li.gaps for li in lines if li.task.mechanism == mechanism}
        body.append([mechanism, *(_with_error(own[s]) for s in settings)])
    columns = ("mechanism", *(f"{answers} answers, eta {eta:g}" for answers, eta in settings))
    return Table("Objective gap of the mean model, per unit of scale, ε = 1, δ = 1e-5", columns, body)


def _with_error(values: Vector) -> str:
    """Median over seeds, and its standard error (that of a mean times sqrt(pi/2))."""
    if not np.isfinite(values).all():
        return "refused"
    spread = float(np.std(values, ddof=1)) if values.size > 1 else 0.0
    return f"{np.median(values):.3g} ± {1.2533 * spread / np.sqrt(values.size):.1g}"


def picture(lines: Sequence[Line]) -> str:
    def curve(mechanism: str) -> tuple[Vector, Vector]:
        own = [li for li in lines if li.task.mechanism == mechanism and np.isfinite(li.gaps).all()]
        own = [
            min((li for li in own if li.task.answers == T), key=lambda li: float(np.median(li.gaps)))
            for T in dict.fromkeys(li.task.answers for li in own)
        ]
        return np.array([float(li.task.answers) for li in own]), np.array([np.median(li.gaps) for li in own])

    curves = {mechanism: curve(mechanism) for mechanism in dict.fromkeys(li.task.mechanism for li in lines)}
    return chart(
        "Private minimisers on Adult", COMMAND, [[Panel("ADMM, ε = 1", "answers", "objective gap", curves, xlog=True)]]
    )


def study(
    mechanisms: Sequence[str] = MECHANISMS,
    settings: Sequence[tuple[int, float]] = SETTINGS,
    seeds: Sequence[int] = SEEDS,
    scenario: Path | None = None,
    target: Path = TARGET,
) -> None:
    """The whole study, to files. `scenario`: another one, with its rows."""
    began = time.perf_counter()
    file = find("adult-minimisers") if scenario is None else scenario
    tasks = [Task(m, T, eta, seeds, file) for m, (T, eta) in product(mechanisms, settings)]
    lines = on_two(measure, tasks, lambda t: f"{t.mechanism}, {t.answers} answers")
    write("minimisers-table", COMMAND, time.perf_counter() - began, [table(lines)], picture(lines), target)
