"""`hushgrid study renewing`: what a budget that renews buys over a day of changing loads.

An owner chooses epsilon a window, how many of the window's intervals get a fresh answer, and the noise. More answers are
noisier each, and fewer are older when they are used. Both errors are measured here on the 14-bus case, whose loads change
as those of households do (scenarios/households.py), beside what a dispatch at these loads costs and leaves to cover.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import COUNTS, AcDispatch, AcSolver
from hushgrid.grid_cases.ac.presence import ABSENT, installed
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import Case, Floats
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import Mechanism, calibrate
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.randomness import counter_generator
from hushgrid.lab.studies import renewing_rounds
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, write
from hushgrid.lab.studies.privacy_price import Drawn, operated
from hushgrid.scenarios.households import day

COMMAND = "hushgrid study renewing"
EPSILONS = (1.0, 5.0, 20.0)  #: of any window of 24 h
DELTA = 1e-5  #: of Gaussian noise
BETA = 0.01  #: p.u.: any one load, p or q of a bus, moved by at most 1 MW or MVAr on 100 MVA
INTERVALS = 96  #: of the window, a quarter of an hour each
FRESH = (4, 8, 12, 24, 48, 96)  #: fresh answers a window; the last one counts in between
MECHANISMS: tuple[Mechanism, ...] = ("gaussian", "laplace")
DRAWS = 40  #: days whose loads are compared
OPERATED = 2  #: of them, days whose dispatches are operated
EVERY = 5  #: intervals from one dispatch that is operated to the next; no divisor of those from one fresh answer to the next


class Task(NamedTuple):
    epsilon: float  #: infinity: no noise, so that age is the only error
    mechanism: Mechanism
    fresh: int


class Line(NamedTuple):
    task: Task
    deviation: float  #: standard deviation of the noise on one load, MW, from public numbers
    age: float  #: rms error of one load because of its age alone, MW
    error: float  #: rms error of one load in use, MW
    total: float  #: mean |error| of the sum of all active loads, MW
    imbalance: float  #: mean |active power| that generators give beyond the set-points, MW
    percent: float  #: generation's cost above the AC optimum of each interval, mean, %
    unserved: float  #: load that dispatches shed, mean, MW
    failed: int  #: dispatches without figures: none was found, or the power flow did not converge


@cache
def grid() -> tuple[Case, Floats]:
    """The case, and its loads over the day, (INTERVALS, 2, buses), p.u."""
    case = load("case14")
    return case, day(case, 1440 // INTERVALS)


def lattice(task: Task) -> Lattice:
    """Grid and noise of one answer: all of a window's answers together cost epsilon."""
    if task.mechanism == "laplace":
        return Lattice.laplace(task.epsilon / task.fresh, BETA, 1)
    return Lattice.gaussian(calibrate("gdp", task.epsilon, DELTA, task.fresh), BETA, 1)


def deviation(noise: Lattice) -> float:
    """Standard deviation of one entry, p.u."""
    return noise.scale * (sqrt(2.0) if noise.kind == "laplace" else 1.0)


def used(task: Task, draw: int) -> Floats:
    """(INTERVALS, 2, buses) the loads that dispatches are made for on one day, p.u."""
    case, true = grid()
    fresh = true[:: INTERVALS // task.fresh]
    if task.epsilon < inf:
        made = lattice(task)
        noise = made.sample(fresh.size, counter_generator(draw, f"study renewing {task}", 1).bytes)
        loaded = np.stack([case.buses.p_d != 0, case.buses.q_d != 0])
        fresh = np.where(loaded, made.release(fresh.ravel(), noise).reshape(fresh.shape), 0.0)
    return np.repeat(fresh, INTERVALS // task.fresh, axis=0)


def measure(task: Task) -> Line:
    """One setting, over its days."""
    case, true = grid()
    loaded = case.buses.p_d != 0
    apart = np.array([(used(task, k) - true)[:, 0, loaded] for k in range(DRAWS if task.epsilon < inf else 1)])
    old = (used(task._replace(epsilon=inf), 0) - true)[:, 0, loaded]
    drawn = [
        dispatched(used(task, k)[t], t)
        for k in range(OPERATED if task.epsilon < inf else 1)
        for t in range(k % EVERY, INTERVALS, EVERY)
    ]
    tried = [one for one in drawn if one is not None]
    held = [one for one in tried if not one.why]
    base = case.base_mva
    return Line(
        task,
        deviation(lattice(task)) * base if task.epsilon < inf else 0.0,
        sqrt(float(np.mean(old**2))) * base,
        sqrt(float(np.mean(apart**2))) * base,
        float(np.mean(np.abs(apart.sum(axis=2)))) * base,
        float(np.mean([one.imbalance for one in held])) if held else np.nan,
        float(np.mean([one.percent for one in held])) if held else np.nan,
        float(np.mean([one.unserved for one in held])) if held else np.nan,
        len(tried) - len(held),
    )


@cache
def solver() -> AcSolver:
    return AcSolver(Program.of(grid()[0]))


@cache
def optimum(t: int) -> float | None:
    """Cost of the AC optimum at the true loads of interval t, $/h; None if the network cannot serve all of them."""
    found = solver().solve(grid()[1][t].ravel())
    if not isinstance(found, AcDispatch):
        raise InputError(f"{COMMAND}: found no dispatch at the true loads of interval {t}: {found.why}")
    return None if found.slack.max() > COUNTS else found.cost


def dispatched(d: Floats, t: int) -> Drawn | None:
    """The dispatch at loads d (2, buses), p.u., operated with the true ones of interval t; None where no optimum is."""
    case, true = grid()
    best = optimum(t)
    if best is None:
        return None
    at = replace(case, buses=replace(case.buses, p_d=true[t, 0], q_d=true[t, 1]))
    return operated(at, solver().solve(d.ravel()), best)


# --- what is written ---

COLUMNS = (
    "epsilon a window", "noise", "fresh answers", "noise of one load, MW", "age alone, MW rms", "error of one load, MW rms",
    "error of the sum, MW", "imbalance, MW", "cost above the optimum, %", "unserved, MW", "without a figure",
)  # fmt: skip


def best(lines: Sequence[Line], epsilon: float) -> Line:
    """The setting of the smallest error of one load at this epsilon."""
    return min((li for li in lines if li.task.epsilon == epsilon), key=lambda li: li.error)


def tables(lines: Sequence[Line]) -> list[Table]:
    """Every setting, and the best one of each epsilon."""

    def rows(these: Sequence[Line]) -> list[Sequence[str | float]]:
        return [
            (f"{t.epsilon:g}" if t.epsilon < inf else "none", t.mechanism if t.epsilon < inf else "", t.fresh, *figures)
            for t, *figures in these
        ]

    of = [epsilon for epsilon in EPSILONS if any(li.task.epsilon == epsilon for li in lines)]
    return [
        Table("Fresh answers a window", COLUMNS, rows(lines)),
        Table("The smallest error at each epsilon", COLUMNS, rows([best(lines, epsilon) for epsilon in of])),
    ]


def picture(lines: Sequence[Line]) -> str:
    """Error of one load over fresh answers; a column an epsilon."""
    panels = []
    for epsilon in dict.fromkeys(li.task.epsilon for li in lines if li.task.epsilon < inf):
        curves: dict[str, tuple[Floats, Floats]] = {}
        for mechanism in MECHANISMS:
            own = [li for li in lines if li.task[:2] == (epsilon, mechanism)]
            x = np.array([float(li.task.fresh) for li in own])
            curves[mechanism] = (x, np.array([li.error for li in own]))
            curves["age alone"] = (x, np.array([max(li.age, 1e-2) for li in own]))
        label = "error of one load, MW rms"
        panels.append(Panel(f"epsilon {epsilon:g} a day", "fresh answers a day", label, curves, xlog=True, marks=True))
    return chart("Error of a load in use: noise and age", COMMAND, [panels])


def study(epsilons: Sequence[float] = EPSILONS, fresh: Sequence[int] = FRESH, target: Path = TARGET) -> None:
    """The whole study, to files."""
    if not installed():
        raise InputError(f"study renewing: {ABSENT}")
    began = time.perf_counter()
    tasks = [Task(*setting) for setting in product(epsilons, MECHANISMS, fresh)]
    tasks += [Task(inf, "gaussian", k) for k in fresh]
    lines = on_two(measure, tasks, lambda t: f"epsilon {t.epsilon:g}, {t.mechanism}, {t.fresh} fresh")
    made = on_two(renewing_rounds.measure, renewing_rounds.tasks(tuple(epsilons)), lambda t: str(tuple(t)))
    written = [*tables(lines), renewing_rounds.table(made)]
    write("renewing-figures", COMMAND, time.perf_counter() - began, written, picture(lines), target)
