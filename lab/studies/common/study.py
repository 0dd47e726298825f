"""What the studies of the token papers share: agents without a gate, tables as CSV and Markdown, charts as SVG."""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from math import inf, isnan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hushgrid.broker.report.gridmap import PALETTE
from hushgrid.broker.report.plots import DASHES, STYLE
from hushgrid.kernels.errors import Refused
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.jit import MODE
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Vector
from hushgrid.lab.benchmarks.common.measure import footer
from hushgrid.lab.in_process import Hop as Hop
from hushgrid.lab.in_process import Willing as Willing
from hushgrid.lab.in_process import handed as handed
from hushgrid.lab.in_process import stepped as stepped

TARGET = Path("docs/studies")
Task = TypeVar("Task")
Found = TypeVar("Found")


class Exact:
    """The oracle of one agent without privacy: f_i as it is. What promises privacy is refused."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.minimize = loss, Minimizer(loss)

    def exact_gradient(self, x: Vector) -> Vector:
        return self.loss.gradient(x)

    def exact_minimizer(self, linear: Vector, quadratic: float) -> Vector:
        """argmin f_i(x) + <linear, x> + quadratic/2 |x|^2; least squares by the spectrum alone, without its certificate."""
        o = self.loss.objective
        if o.kind != "least-squares" or o.lam:
            return self.minimize(linear, quadratic).x
        e, V, h = self.minimize.spectrum
        x: Vector = V @ ((h - V.T @ linear) / (e + quadratic + o.l2))
        return x

    def gradient(self, x: Vector) -> Vector:
        raise Refused("exact oracle: found a question for a private gradient, expected variant none")

    def perturb(self, x: Vector) -> Vector:
        raise Refused("exact oracle: found a question for noise, expected variant none")

    def minimizer(self, linear: Vector, quadratic: float) -> Vector:
        raise Refused("exact oracle: found a question for a private minimiser, expected variant none")


def nowhere(*_: object) -> str:
    """The route of agents that `handed` moves: they send nothing."""
    return ""


def random_walk(graph: Graph, activations: int, seed: int) -> list[int]:
    """The active agent of each activation, from 0, P_ij = 1/deg(i); one stream of random numbers for all hops."""
    walk = [0]
    for share in counter_generator(seed, "study walk", 0).random(activations - 1).tolist():
        near = graph.neighbours[walk[-1]]
        walk.append(near[int(share * len(near))])
    return walk


def on_two(work: Callable[[Task], Found], tasks: Sequence[Task], name: Callable[[Task], str]) -> list[Found]:
    """work(task) of every task, in order, on two processes; each is named on stderr when it is done."""
    found = []
    with multiprocessing.get_context("spawn").Pool(min(2, os.cpu_count() or 1)) as pool:
        for task, result in zip(tasks, pool.imap(work, tasks), strict=True):
            found.append(result)
            print(f"{len(found)}/{len(tasks)} {name(task)}", file=sys.stderr, flush=True)
    return found


# --- tables ---


class Table(NamedTuple):
    """A study's figures: what `columns` say, a row a setting."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]


def shown(value: str | float) -> str:
    """Three digits; nothing where there is no such figure."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    return "" if isnan(value) else "unbounded" if value == inf else f"{value:.3g}"


def write(name: str, command: str, wall_s: float | None, tables: Sequence[Table], chart: str, target: Path) -> None:
    """name.md (all tables), one CSV a table, name.svg; each says how it came to be. wall_s: None if it was made in parts."""
    took = "" if wall_s is None else f", {wall_s:.0f} s on two processes"
    about = [f"{command}, kernels {MODE}{took}", *footer().splitlines()]
    target.mkdir(parents=True, exist_ok=True)
    text = [f"<!-- {a} -->" for a in about]
    for number, table in enumerate(tables, 1):
        rows = [[shown(v) for v in row] for row in table.rows]
        text += ["", f"## {table.title}", "", f"| {' | '.join(table.columns)} |", "|" + "---|" * len(table.columns)]
        text += [f"| {' | '.join(row)} |" for row in rows]
        out = io.StringIO()
        out.writelines(f"# {a}\n" for a in (*about, table.title))
        csv.writer(out, lineterminator="\n").writerows([table.columns, *rows])
        (target / f"{name}-{number}.csv").write_text(out.getvalue())
    (target / f"{name}.md").write_text("\n".join([*text, ""]))
    (target / f"{name}.svg").write_text(chart)
    print("\n".join(str(target / f"{name}{end}") for end in (".md", ".svg")))


# --- charts ---


class Panel(NamedTuple):
    """One picture of a chart: curves by name, each (x, y)."""

    title: str
    xlabel: str
    ylabel: str
    curves: dict[str, tuple[Vector, Vector]]
    xlog: bool = False
    marks: bool = False  #: few points, joined, and the ticks
    ranges: dict[str, tuple[Vector, Vector]] = {}  # noqa: RUF012  #: shaded around a curve: (lowest, highest)
    linear: float = (
        0.0  #: y is linear around zero up to here, for figures that may be zero or negative; inf: all of it, from 0
    )


def chart(title: str, command: str, panels: Sequence[Sequence[Panel]]) -> str:
    """Rows of panels, y common to a row and logarithmic unless they say otherwise, one legend below for all; an SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    order = list(dict.fromkeys(name for row in panels for panel in row for name in panel.curves))
    style: Any = STYLE | {"svg.hashsalt": title}
    with rc_context(style):
        wide, high = max(len(row) for row in panels), len(panels)
        figure = Figure(figsize=(3.5 * wide, 2.6 * high + 0.9), layout="constrained")
        figure.suptitle(title)
        drawn: dict[str, Any] = {}
        for across, row in zip(figure.subplots(high, wide, squeeze=False, sharey="row"), panels, strict=True):
            across[0].set_ylabel(row[0].ylabel)
            for ax in across[len(row) :]:
                ax.remove()
            for ax, panel in zip(across, row, strict=False):
                _draw(ax, panel, order, drawn)
        columns = 2 * wide if max(map(len, drawn)) < 20 else wide
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=columns, handlelength=3)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": command})
    return out.getvalue()


def _draw(ax: Any, panel: Panel, order: list[str], drawn: dict[str, Any]) -> None:
    """The panel's curves, each in the colour and dashes of its place in `order`; noted in `drawn` for the legend."""
    look = {"marker": "o", "ms": 3.0} if panel.marks else {}
    for name, (x, y) in panel.curves.items():
        k = order.index(name)
        drawn[name] = ax.plot(x, y, color=PALETTE[k % len(PALETTE)], ls=DASHES[k % len(DASHES)], lw=1.2, **look)[0]
        if name in panel.ranges:
            ax.fill_between(x, *panel.ranges[name], color=PALETTE[k % len(PALETTE)], alpha=0.15, lw=0)
    ax.set_title(panel.title)
    ax.set_xlabel(panel.xlabel)
    if panel.linear == inf:
        ax.set_ylim(0.0, 1.1 * max(float(np.nanmax(y)) for _, y in panel.curves.values()))
    elif panel.linear:
        ax.set_yscale("symlog", linthresh=panel.linear)
        ax.axhline(0.0, color="0.6", lw=0.6, zorder=0)
    else:
        ax.set_yscale("log")
    if panel.xlog:
        ax.set_xscale("log")
    if panel.marks:
        places = sorted({float(v) for x, _ in panel.curves.values() for v in x})
        ax.set_xticks(places, [f"{v:g}" for v in places])
        ax.minorticks_off()
