"""`hushgrid study privacy-price`: what an operator pays for loads that are protected, and which limits pay with it.

Each zone's gate answers once: its loads plus exact Laplace noise. A dispatch is made for these loads, by the AC optimal
power flow that a run ends with, and the network is then operated with the true loads: generators with headroom take up
the imbalance, voltages are held at generators. What that costs stands beside what it violates: a dispatch that passes a
limit may well cost less than the cheapest one that keeps them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.margins import Release, margins
from hushgrid.grid_cases.ac.opf import COUNTS, AcDispatch, AcSolver, NoDispatch
from hushgrid.grid_cases.ac.power_flow import operate
from hushgrid.grid_cases.ac.presence import ABSENT, installed
from hushgrid.grid_cases.ac.program import Margins, Program
from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.case import loads as loads_of
from hushgrid.grid_cases.costs import VOLL, generation_cost
from hushgrid.grid_cases.partition import explicit, partition
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.totals import reconciled
from hushgrid.kernels.randomness import Entropy, counter_generator
from hushgrid.lab.benchmarks.common.measure import ZONES
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, write

COMMAND = "hushgrid study privacy-price"
CASES: dict[str, int | list[list[int]]] = {
    "case14": ZONES["case14"],
    "case30": 3,
    "case57": 4,
    "case118": ZONES["case118"],
    "case300": 4,
}
EPSILONS = (0.2, 1.0, 5.0)  #: of the whole run, a zone: its gate answers once
BETA = 0.01  #: p.u.: any one load, p or q of a bus, moved by at most 1 MW or MVAr on 100 MVA
DRAWS = {"case300": 40}  #: its solves take the longest
MANY = 100  #: draws of every other case


class Mechanism(NamedTuple):
    name: str
    release: Release | None  #: of noisy loads; None: the true loads
    margins: bool


MECHANISMS = (
    Mechanism("plain", "plain", False),
    Mechanism("totals", "totals", False),
    Mechanism("totals + margins", "totals", True),
)
#: What lost load at its price and the margins do by themselves: at the true loads, where no limit need be passed.
NO_NOISE, MARGINS_ALONE = Mechanism("no noise", None, False), Mechanism("margins alone", None, True)


class Task(NamedTuple):
    case: str
    mechanism: Mechanism
    epsilon: float
    draws: int


class Drawn(NamedTuple):
    """One draw, operated with the true loads; nan where there is no dispatch or no power flow."""

    cost: float  #: of generation above the exact AC optimum, $/h
    percent: float  #: the same, of the optimum
    imbalance: float  #: |active power| that generators give beyond the set-points together, MW
    v: float  #: beyond the limits of |V| at the worst bus, p.u.
    rating: float  #: beyond the rating of the worst line, MVA
    p: float  #: beyond the limits of the worst generator, MW
    q: float  #: MVAr
    unserved: float  #: load that the dispatch sheds, MW
    slack: (
        float  #: what else of the dispatch does not add up at its price: unserved MVAr, spilled MW and MVAr, together
    )
    why: str = ""  #: there are no figures

    @property
    def violates(self) -> bool:
        """Whether any limit is passed."""
        return max(self.v, self.rating, self.p, self.q) > 0


NO_FIGURES = dict.fromkeys(Drawn._fields[:-1], np.nan)
NO_DISPATCH, NO_FLOW = (Drawn(**NO_FIGURES, why=why) for why in ("no dispatch", "power flow not converged"))


class Line(NamedTuple):
    task: Task
    optimum: float  #: the exact AC optimum, $/h
    drawn: list[Drawn]

    def of(self, figure: str) -> Floats:
        """A figure of every draw that has one."""
        values = np.array([getattr(d, figure) for d in self.drawn])
        finite: Floats = values[np.isfinite(values)]
        return finite

    def mean(self, figure: str) -> float:
        return float(np.mean(self.of(figure))) if self.of(figure).size else np.nan

    def high(self, figure: str) -> float:
        """Its 95 % quantile."""
        return float(np.quantile(self.of(figure), 0.95)) if self.of(figure).size else np.nan

    @property
    def violating(self) -> int:
        return sum(d.violates for d in self.drawn)

    def failed(self, kind: Drawn) -> int:
        return sum(d.why == kind.why for d in self.drawn)


# --- a release of loads, as the gates make it ---


def zones_of(name: str) -> dict[str, tuple[int, ...]]:
    """The zones of a case of the study."""
    case, zones = load(name), CASES[name]
    return partition(case, zones) if isinstance(zones, int) else explicit(case, zones)


def mask(case: Case) -> NDArray[np.bool_]:
    """(2, nb) which loads p, q carry noise: those that are not 0 in the case file, public."""
    loaded: NDArray[np.bool_] = np.stack([case.buses.p_d != 0, case.buses.q_d != 0])
    return loaded


def released(case: Case, zones: dict[str, tuple[int, ...]], epsilon: float, release: Release, draw: int) -> Floats:
    """d~ (2 nb,), p.u.: each zone's one answer, with the gate's own exact noise, seeded."""
    d = np.stack([case.buses.p_d, case.buses.q_d])
    noisy, loaded = np.zeros_like(d), mask(case)
    for zone, buses in zones.items():
        at = case.index(np.array(buses, np.int64))
        entropy = counter_generator(draw, f"study privacy-price {case.name} {zone}", 1).bytes
        for kind in (0, 1):
            own = at[loaded[kind, at]]
            noisy[kind, own] = answered(d[kind, own], epsilon, release, entropy)
    return noisy.ravel()


def answered(d: Floats, epsilon: float, release: Release, entropy: Entropy) -> Floats:
    """Noisy entries (n,); under `totals` entries and their total have half the epsilon each, and are made to agree."""
    if release == "plain":
        lattice = Lattice.laplace(epsilon, BETA, 1)
        return lattice.release(d, lattice.sample(d.size, entropy))
    lattice = Lattice.laplace(epsilon / 2, BETA, 1)
    y = lattice.release(d, lattice.sample(d.size, entropy))
    total = lattice.release(np.array([d.sum()]), lattice.sample(1, entropy))
    return reconciled(y, float(total[0]), np.ones(d.size), 1.0)


def kept(case: Case, zones: dict[str, tuple[int, ...]], epsilon: float, p_g: Floats) -> Margins:
    """The margins of a run with this epsilon and totals, if generation without them is p_g (ng,)."""
    active = case.buses.numbers[case.buses.p_d != 0]
    n = [int(np.isin(buses, active).sum()) for buses in zones.values()]
    return margins(case, BETA, epsilon, n, "totals", p_g=p_g)


# --- a draw, dispatched and operated ---


@cache
def exact(name: str) -> AcDispatch:
    """The AC optimum at the true loads, all of them served."""
    case = load(name)
    found = AcSolver(Program.of(case, None)).solve(loads_of(case, tuple(case.buses.numbers.tolist())))
    if isinstance(found, NoDispatch):
        raise InputError(f"{COMMAND}: {name}: found no dispatch at the true loads: {found.why}")
    return found


def operated(case: Case, found: AcDispatch | NoDispatch, optimum: float) -> Drawn:
    """The dispatch operated with the true loads.

    Load that it sheds is not served, as far as there is load; power that it spills is noise below zero, and is not.
    """
    if isinstance(found, NoDispatch):
        return NO_DISPATCH
    d = loads_of(case, tuple(case.buses.numbers.tolist()))
    shed = np.where(found.slack > COUNTS, found.slack, 0.0)[:, [0, 2]]
    unserved = np.minimum(shed, np.maximum(d.reshape(2, -1).T, 0.0))
    told = operate(case, found.point, d, unserved)
    if not told.converged:
        return NO_FLOW
    beyond = {kind: by if by > COUNTS else 0.0 for kind, by in told.violations.items()}
    above, base = round(generation_cost(case, told.point.p_g) - optimum, 6), case.base_mva
    return Drawn(
        cost=above,
        percent=100 * above / optimum,
        imbalance=abs(told.imbalance) * base,
        v=beyond["v"],
        rating=beyond["rating"] * base,
        p=beyond["p"] * base,
        q=beyond["q"] * base,
        unserved=float(unserved[:, 0].sum()) * base,
        slack=(sum(found.totals.values()) - found.totals["p_unserved"]) * base,
    )


def measure(task: Task) -> Line:
    """All draws of one setting."""
    case, zones, optimum = load(task.case), zones_of(task.case), exact(task.case).cost
    mechanism = task.mechanism
    solver, drawn = AcSolver(Program.of(case)), []
    for draw in range(task.draws if mechanism.release else 1):
        if mechanism.release is None:
            d = loads_of(case, tuple(case.buses.numbers.tolist()))
        else:
            d = released(case, zones, task.epsilon, mechanism.release, draw)
        found = solver.solve(d)
        if mechanism.margins and isinstance(found, AcDispatch):
            keep = kept(case, zones, task.epsilon, found.p_g)
            found = AcSolver(Program.of(case, VOLL, keep)).solve(d, found.point)
        drawn.append(operated(case, found, optimum))
    return Line(task, optimum, drawn)


# --- what is written ---

FIGURES = {
    "cost": "cost above the optimum, $/h",
    "percent": "%",
    "imbalance": "imbalance, MW",
    "v": "beyond V, p.u.",
    "rating": "beyond ratings, MVA",
    "p": "beyond P, MW",
    "q": "beyond Q, MVAr",
    "unserved": "unserved, MW",
    "slack": "other slack, MW or MVAr",
}
COUNTED = ("draws that pass a limit", "without a dispatch", "power flow not converged")


def tables(lines: Sequence[Line]) -> list[Table]:
    """Means, 95 % quantiles, and what the margins cost by themselves."""
    columns, noisy = ("case", "loads", "epsilon", *FIGURES.values()), [li for li in lines if li.task.mechanism.release]

    def rows(these: Sequence[Line], figure: Callable[[Line, str], float]) -> list[Sequence[str | float]]:
        settings = [
            (li.task.case, li.task.mechanism.name, f"{li.task.epsilon:g}" if li.task.epsilon < inf else "")
            for li in these
        ]
        return [(*s, *(figure(li, f) for f in FIGURES)) for s, li in zip(settings, these, strict=True)]

    means = [
        (*row, f"{li.violating} of {len(li.drawn)}", li.failed(NO_DISPATCH), li.failed(NO_FLOW))
        for row, li in zip(rows(noisy, Line.mean), noisy, strict=True)
    ]
    alone = [li for li in lines if li.task.mechanism.release is None]
    optima = {li.task.case: li.optimum for li in lines}
    return [
        Table("Operated with the true loads: means", (*columns, *COUNTED), means),
        Table("The same: 95 % quantiles", columns, rows(noisy, Line.high)),
        Table("At the true loads, without noise", columns, rows(alone, Line.mean)),
        Table("The exact AC optimum", ("case", "$/h"), [(name, f"{cost:.2f}") for name, cost in optima.items()]),
    ]


#: The chart's rows: cost first, violated limits below it. Linear around zero up to the second number.
ROWS = (
    ("percent", "cost above optimum, %", 0.1),
    ("imbalance", "imbalance, MW", 1.0),
    ("v", "beyond V, p.u.", 1e-3),
    ("rating", "beyond ratings, MVA", 1.0),
    ("q", "beyond Q, MVAr", 1.0),
)


def picture(lines: Sequence[Line]) -> str:
    """Means over epsilon, shaded up to the 95 % quantile; a column a case."""
    cases = list(dict.fromkeys(li.task.case for li in lines))
    panels = []
    for figure, label, linear in ROWS:
        across = []
        for name in cases:
            curves, ranges = {}, {}
            for mechanism in dict.fromkeys(li.task.mechanism for li in lines if li.task.mechanism.release):
                own = [li for li in lines if (li.task.case, li.task.mechanism) == (name, mechanism)]
                x, mean = np.array([li.task.epsilon for li in own]), np.array([li.mean(figure) for li in own])
                curves[mechanism.name] = (x, mean)
                ranges[mechanism.name] = (mean, np.array([li.high(figure) for li in own]))
            across.append(Panel(name, "epsilon", label, curves, xlog=True, marks=True, ranges=ranges, linear=linear))
        panels.append(across)
    return chart("Cost above the exact AC optimum, and violated limits beside it", COMMAND, panels)


def study(
    cases: Sequence[str] = tuple(CASES),
    epsilons: Sequence[float] = EPSILONS,
    draws: int | None = None,
    target: Path = TARGET,
) -> None:
    """The whole study, to files; draws: of every case, else DRAWS or MANY."""
    if not installed():
        raise InputError(f"study privacy-price: {ABSENT}")
    began = time.perf_counter()
    settings = [*product(MECHANISMS, epsilons), (NO_NOISE, inf), *product([MARGINS_ALONE], epsilons)]
    tasks = [
        Task(case, mechanism, epsilon, draws or DRAWS.get(case, MANY))
        for case, (mechanism, epsilon) in product(reversed(cases), settings)  # the longest first
    ]
    found = on_two(measure, tasks, lambda t: f"{t.case}: {t.mechanism.name}, epsilon {t.epsilon:g}")
    lines = sorted(found, key=lambda li: cases.index(li.task.case))
    write("privacy-price-figures", COMMAND, time.perf_counter() - began, tables(lines), picture(lines), target)
