"""`hushgrid study figures`: the paper's Figures 3 and 4 again, and the same methods at honest equal totals.

Reads scenarios/studies/figure3.yaml and figure4.yaml of the working directory and lays each setting over them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup, honest
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers.accuracy import DEFAULT, LAST, PAPER, PUBLISHED, published_privacy
from hushgrid.node.config.scenario import load_scenario

EPSILONS = (0.05, 0.1, 0.5, 1.0)  #: an answer, as in the paper
TOTALS = (1.0, 5.0, 25.0)  #: over the whole run; 5 is what ObjL at 0.05 says of itself with E = 1, 25 what it costs
LOCAL_UPDATES = (1, 5)
DELTA = 1e-5  #: every Gaussian is also priced at this delta, to be compared
SEEDS = {"figure3": 10, "figure4": 2}
SOURCES = Path("scenarios/studies")


class Setting(NamedTuple):
    """One line of a study's table: a scenario file and what is laid over it."""

    method: str
    claim: str  #: epsilon as the method states it
    local_updates: int
    eta: str
    over: Document


class SettingResult(NamedTuple):
    """A setting's outcome over its seeds; arrays are (seeds, T)."""

    setting: Setting
    claimed: float  #: epsilon over the run as the plan states it; NaN without privacy
    delta: float
    honest: float  #: what the ledgers say it costs at that delta; infinite where nothing bounds it
    honest_small: float  #: the same at DELTA
    objective: np.ndarray
    noise: np.ndarray
    residual: np.ndarray
    violation: np.ndarray


def settings() -> list[Setting]:
    """Every setting of a study, the paper's first."""
    chosen = []
    for E in LOCAL_UPDATES:
        common: Document = {"algorithm.local_updates": E, "algorithm.eta": PAPER}
        for method, epsilon in product(PUBLISHED, EPSILONS):
            mode, mechanism, _ = PUBLISHED[method]
            over = common | {"algorithm.variant": "published", "privacy": published_privacy(mode, mechanism, epsilon)}
            chosen.append(Setting(method, f"{epsilon:g} an answer", E, PAPER, over))
        for (name, extra), mechanism, total in product(GUARDED.items(), ("laplace", "gaussian"), TOTALS):
            delta = {"delta": DELTA, "accountant": "zcdp"} if mechanism == "gaussian" else {}
            privacy = {"mechanism": mechanism, "adjacency": {"bounded-change": 0.01}, "epsilon": total} | delta | extra
            over = common | {"algorithm.variant": "guarded", "privacy": privacy}
            chosen.append(Setting(f"{name}, {mechanism}", f"{total:g} in all", E, PAPER, over))
        for eta in (PAPER, DEFAULT):
            over = common | {"algorithm.variant": "none", "algorithm.eta": eta, "privacy": None}
            chosen.append(Setting("no privacy", "", E, eta, over))
    return chosen


GUARDED: dict[str, Document] = {
    "input": {"mode": "input"},
    "objective": {"mode": "objective"},
    "gradient": {"mode": "objective", "at": "gradient"},
}


def measure(task: tuple[Path, Setting, int, int | None]) -> SettingResult:
    """One setting over its seeds."""
    source, setting, seeds, rounds = task
    over = setting.over | ({"algorithm.rounds": rounds} if rounds else {})
    private = setting.over["algorithm.variant"] != "none"
    scenarios = [load_scenario(source, over | ({"seed": s} if private else {})) for s in range(seeds if private else 1)]
    results = [run(s) for s in scenarios]
    columns = {
        c: np.array([[np.nan if v is None else v for v in r.history[c]] for r in results])
        for c in ("objective", "noise_l1", "consensus_residual", "max_violation")
    }
    privacy = results[0].privacy
    claimed, delta, cost = np.nan, np.nan, np.nan
    if privacy["claimed"]:
        claimed, delta = privacy["claimed"]["epsilon"], privacy["claimed"]["delta"]
        cost = inf if privacy["spent"]["epsilon"] is None else privacy["spent"]["epsilon"]
    return SettingResult(
        setting,
        claimed,
        delta,
        cost,
        _at_small_delta(ZoneSetup(scenarios[0]), cost),
        columns["objective"],
        columns["noise_l1"],
        columns["consensus_residual"],
        columns["max_violation"],
    )


def _at_small_delta(setup: ZoneSetup, cost: float) -> float:
    """The honest total at DELTA: pure epsilon is the same at every delta."""
    t = setup.terms
    if t is None or t.mechanism == "laplace" or cost == inf:
        return cost
    worst = [honest(msgspec.structs.replace(t, delta=DELTA), m) for m in setup.models.values()]
    return max(h.cost(h.answers) for h in worst if h is not None)


# --- tables and charts ---

COLUMNS = (
    "method", "E", "ε asked", "ε claimed in all", "δ", "honest ε", f"honest ε at δ = {DELTA:g}",
    "objective", "least", "most", "noise a round", "residual", "violation: median", "worst",
)  # fmt: skip

TITLES = {"figure3": "Figure 3: case14, three zones", "figure4": "Figure 4: case118, three zones"}


def row(line: SettingResult) -> list[str | float]:
    """A line of the table: objective and residual over the last rounds, noise and violation over all of them."""
    s, last = line.setting, line.objective[:, -LAST:]
    figures = [
        last.mean(),
        last.min(),
        last.max(),
        line.noise.mean() if np.isfinite(line.noise).any() else np.nan,
        line.residual[:, -LAST:].mean(),
        np.median(line.violation),
        line.violation.max(),
    ]
    privacy = [line.claimed, line.delta, line.honest, line.honest_small]
    method = s.method if s.eta == PAPER else f"{s.method}, η {s.eta}"
    return [method, s.local_updates, s.claim, *privacy, *map(float, figures)]


def tables(figure: str, lines: list[SettingResult]) -> list[Table]:
    """The paper's methods, then those at honest totals."""
    T, seeds = lines[0].objective.shape[1], max(line.objective.shape[0] for line in lines)
    base = f"{TITLES[figure]}, {T} rounds, {seeds} seeds; objective over the last {LAST} rounds, p.u.²"
    parts = {"as published": True, "at honest totals": False}
    return [
        Table(f"{base}; {part}", COLUMNS, [row(li) for li in lines if (li.setting.method in PUBLISHED) is published])
        for part, published in parts.items()
    ]


def picture(figure: str, lines: list[SettingResult]) -> str:
    """The paper's figure: noise, objective for each E, feasibility, a column for each method."""
    by_setting = {li.setting[:3]: li for li in lines if li.setting.eta == PAPER}

    def panel(method: str, label: str, E: int, quantity: str) -> Panel:
        chosen = {f"ε {epsilon:g} an answer": (method, f"{epsilon:g} an answer", E) for epsilon in EPSILONS}
        if quantity != "noise":
            chosen["no privacy"] = ("no privacy", "", E)
        means = {name: getattr(by_setting[key], quantity).mean(axis=0) for name, key in chosen.items()}
        curves = {name: (np.arange(1.0, mean.size + 1), mean) for name, mean in means.items()}
        return Panel(method, "round", label, curves)

    quantities = (
        ("noise (6.2), E = 1", 1, "noise"),
        ("objective, E = 1", 1, "objective"),
        ("objective, E = 5", 5, "objective"),
        ("|Aw + Bz|, E = 5", 5, "residual"),
    )
    return chart(TITLES[figure], [[panel(method, *quantity) for method in PUBLISHED] for quantity in quantities])


# --- the study ---


def measured(figure: str, chosen: Iterable[Setting], seeds: int, rounds: int | None = None) -> list[SettingResult]:
    """The lines of one figure, in order, on two processes. Raises InputError if scenarios/ is not."""
    source = SOURCES / f"{figure}.yaml"
    if not source.is_file():
        raise InputError(f"{source}: no such file, expected `hushgrid study figures` to run where scenarios/ is")
    tasks = [(source, setting, seeds, rounds) for setting in chosen]
    return on_two(measure, tasks, lambda t: f"{figure}: {t[1].method} {t[1].claim}, E = {t[1].local_updates}")


def study(seeds: dict[str, int] | None = None, rounds: int | None = None) -> list[Page]:
    """Both figures."""
    lines = {figure: measured(figure, settings(), n, rounds) for figure, n in (seeds or SEEDS).items()}
    return [Page(name, tables(name, made), {f"{name}.svg": picture(name, made)}) for name, made in lines.items()]
