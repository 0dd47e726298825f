"""`hushgrid study figures`: the paper's Figures 3 and 4 again, and the same methods at honest equal totals.

Reads scenarios/studies/figure3.yaml and figure4.yaml of the working directory and lays each setting over them; writes
tables (CSV, Markdown) and charts (SVG) to docs/studies/.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup, honest
from hushgrid.kernels.errors import InputError
from hushgrid.lab.benchmarks.common.measure import footer
from hushgrid.lab.studies.papers.accuracy import DEFAULT, LAST, PAPER, PUBLISHED, published_privacy
from hushgrid.node.config.scenario import load_scenario

COMMAND = "hushgrid study figures"
EPSILONS = (0.05, 0.1, 0.5, 1.0)  #: an answer, as in the paper
TOTALS = (1.0, 5.0, 25.0)  #: over the whole run; 5 is what ObjL at 0.05 says of itself with E = 1, 25 what it costs
LOCAL_UPDATES = (1, 5)
DELTA = 1e-5  #: every Gaussian is also priced at this delta, to be compared
SEEDS = {"figure3": 10, "figure4": 2}
SOURCES = Path("scenarios/studies")
TARGET = Path("docs/studies")


class Setting(NamedTuple):
    """One line of a study's table: a scenario file and what is laid over it."""

    method: str
    asked: str  #: epsilon as the method states it
    local_updates: int
    eta: str
    over: dict[str, Any]


class Line(NamedTuple):
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
    wall_s: float


def settings() -> list[Setting]:
    """Every setting of a study, the paper's first."""
    found = []
    for E in LOCAL_UPDATES:
        common: dict[str, Any] = {"algorithm.local_updates": E, "algorithm.eta": PAPER}
        for method, epsilon in product(PUBLISHED, EPSILONS):
            mode, mechanism, _ = PUBLISHED[method]
            over = common | {"algorithm.variant": "published", "privacy": published_privacy(mode, mechanism, epsilon)}
            found.append(Setting(method, f"{epsilon:g} an answer", E, PAPER, over))
        for (name, extra), mechanism, total in product(GUARDED.items(), ("laplace", "gaussian"), TOTALS):
            delta = {"delta": DELTA, "accountant": "zcdp"} if mechanism == "gaussian" else {}
            privacy = {"mechanism": mechanism, "adjacency": {"bounded-change": 0.01}, "epsilon": total} | delta | extra
            over = common | {"algorithm.variant": "guarded", "privacy": privacy}
            found.append(Setting(f"{name}, {mechanism}", f"{total:g} in all", E, PAPER, over))
        for eta in (PAPER, DEFAULT):
            over = common | {"algorithm.variant": "none", "algorithm.eta": eta, "privacy": None}
            found.append(Setting("no privacy", "", E, eta, over))
    return found


GUARDED: dict[str, dict[str, Any]] = {
    "input": {"mode": "input"},
    "objective": {"mode": "objective"},
    "gradient": {"mode": "objective", "at": "gradient"},
}


def measure(task: tuple[Path, Setting, int, int | None]) -> Line:
    """One setting over its seeds."""
    source, setting, seeds, rounds = task
    over = setting.over | ({"algorithm.rounds": rounds} if rounds else {})
    began = time.perf_counter()
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
    return Line(
        setting,
        claimed,
        delta,
        cost,
        _at_small_delta(ZoneSetup(scenarios[0]), cost),
        columns["objective"],
        columns["noise_l1"],
        columns["consensus_residual"],
        columns["max_violation"],
        time.perf_counter() - began,
    )


def _at_small_delta(setup: ZoneSetup, cost: float) -> float:
    """The honest total at DELTA: pure epsilon is the same at every delta."""
    t = setup.terms
    if t is None or t.mechanism == "laplace" or cost == inf:
        return cost
    worst = [honest(msgspec.structs.replace(t, delta=DELTA), m) for m in setup.models.values()]
    return max(h.cost(h.answers) for h in worst if h is not None)


# --- tables ---

HEADER = (
    "method",
    "epsilon_asked",
    "local_updates",
    "eta",
    "seeds",
    "claimed_epsilon",
    "delta",
    "honest_epsilon",
    f"honest_epsilon_at_delta_{DELTA:g}",
    "objective_mean",
    "objective_min",
    "objective_max",
    "noise_l1_per_round",
    "consensus_residual",
    "violation_median",
    "violation_max",
)


def cells(line: Line) -> list[str]:
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
    seeds = str(len(line.objective))
    return [s.method, s.asked, str(s.local_updates), s.eta, seeds, *map(number, privacy), *map(number, figures)]


def number(value: float) -> str:
    """Three digits; nothing where there is no such figure."""
    return "" if np.isnan(value) else "unbounded" if value == inf else f"{value:.3g}"


def heading(figure: str, lines: list[Line], wall_s: float) -> list[str]:
    """How the files came to be."""
    seeds, T = max(line.objective.shape[0] for line in lines), lines[0].objective.shape[1]
    return [
        f"{figure}: {COMMAND}",
        f"T = {T} rounds, {seeds} seeds a private setting, {wall_s:.0f} s on two processes",
        *footer().splitlines(),
    ]


def as_csv(about: list[str], lines: list[Line]) -> str:
    out = io.StringIO()
    out.writelines(f"# {text}\n" for text in about)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(cells(line) for line in lines)
    return out.getvalue()


def as_markdown(title: str, about: list[str], lines: list[Line]) -> str:
    """The paper's methods, then those at honest totals."""
    text = [f"<!-- {a} -->" for a in about] + ["", f"# {title}", ""]
    text += [
        f"Objective: mean and range over the last {LAST} rounds and all seeds, p.u.². Honest ε: what the ledgers say the",
        f"whole run costs at the δ in the column before; in brackets, for Gaussian noise, at δ = {DELTA:g}.",
        "",
    ]
    columns = (
        "method",
        "E",
        "ε asked",
        "ε claimed in all",
        "δ",
        "honest ε",
        "objective",
        "range",
        "noise a round",
        "residual",
        "violation: median",
        "worst",
    )
    for name, part in (
        ("As published", [li for li in lines if li.setting.method in PUBLISHED]),
        ("At honest totals", [li for li in lines if li.setting.method not in PUBLISHED]),
    ):
        text += [f"## {name}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        for line in part:
            c = cells(line)
            method = c[0] if c[3] == PAPER else f"{c[0]}, η {c[3]}"
            priced = f"{c[7]} ({c[8]})" if c[7] != c[8] else c[7]
            row = (method, c[2], c[1], c[5], c[6], priced, c[9], f"{c[10]} to {c[11]}", *c[12:])
            text.append(f"| {' | '.join(row)} |")
        text.append("")
    return "\n".join(text)


# --- charts ---


def chart(title: str, lines: list[Line]) -> str:
    """The paper's figure: noise, objective for each E, feasibility, a column for each method; one SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from hushgrid.broker.report.gridmap import PALETTE
    from hushgrid.broker.report.plots import STYLE

    def of(method: str, asked: str, E: int) -> Line:
        return next(li for li in lines if li.setting[:3] == (method, asked, E) and li.setting.eta == PAPER)

    rows = (
        ("noise (6.2), E = 1", 1, "noise"),
        ("objective, E = 1", 1, "objective"),
        ("objective, E = 5", 5, "objective"),
        ("|Aw + Bz|, E = 5", 5, "residual"),
    )
    style: Any = STYLE | {"svg.hashsalt": title}
    with rc_context(style):
        figure = Figure(figsize=(10.5, 10.0), layout="constrained")
        axes = figure.subplots(len(rows), len(PUBLISHED), sharex=True, sharey="row")
        figure.suptitle(title)
        for (k, (label, E, what)), (m, method) in product(enumerate(rows), enumerate(PUBLISHED)):
            ax = axes[k][m]
            for epsilon, colour in zip(EPSILONS, PALETTE, strict=False):
                curve = getattr(of(method, f"{epsilon:g} an answer", E), what).mean(axis=0)
                ax.plot(np.arange(1, curve.size + 1), curve, color=colour, lw=1.1, label=f"ε {epsilon:g}")
            if what != "noise":
                curve = getattr(of("no privacy", "", E), what).mean(axis=0)
                ax.plot(np.arange(1, curve.size + 1), curve, color="#8793a0", lw=1.0, ls=(0, (4, 2)), label="none")
            ax.set_yscale("log")
            if k == 0:
                ax.set_title(method)
            if m == 0:
                ax.set_ylabel(label)
            if k == len(rows) - 1:
                ax.set_xlabel("round")
        axes[1][0].legend(title="an answer")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": COMMAND})
    return out.getvalue()


# --- the whole ---

TITLES = {
    "figure3": "Figure 3 again: case14, three zones",
    "figure4": "Figure 4 again: case118, three zones",
}


def study(figure: str, chosen: Iterable[Setting], seeds: int, rounds: int | None = None) -> list[Line]:
    """The lines of one figure, in order, on two processes."""
    source = SOURCES / f"{figure}.yaml"
    if not source.is_file():
        raise InputError(f"{source}: no such file, expected `{COMMAND}` to run where scenarios/ is")
    tasks = [(source, setting, seeds, rounds) for setting in chosen]
    lines = []
    with multiprocessing.get_context("spawn").Pool(min(2, os.cpu_count() or 1)) as pool:
        for line in pool.imap(measure, tasks):
            lines.append(line)
            s = line.setting
            said = f"{s.method} {s.asked} E = {s.local_updates}: {line.objective[:, -LAST:].mean():.3g}"
            print(f"{figure} {len(lines)}/{len(tasks)} {said} ({line.wall_s:.0f} s)", file=sys.stderr, flush=True)
    return lines


def figures(seeds: dict[str, int] | None = None, rounds: int | None = None, target: Path = TARGET) -> None:
    """Both figures, to files."""
    target.mkdir(parents=True, exist_ok=True)
    for figure, count in (seeds or SEEDS).items():
        began = time.perf_counter()
        lines = study(figure, settings(), count, rounds)
        about = heading(figure, lines, time.perf_counter() - began)
        (target / f"{figure}.csv").write_text(as_csv(about, lines))
        (target / f"{figure}.md").write_text(as_markdown(TITLES[figure], about, lines))
        (target / f"{figure}.svg").write_text(chart(TITLES[figure], lines))
        print("\n".join(str(target / f"{figure}.{kind}") for kind in ("csv", "md", "svg")))
