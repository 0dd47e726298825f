"""What the studies share: agents without a gate, tables as CSV and Markdown, charts as SVG."""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf, isnan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hushgrid.broker.report.drawings.gridmap import PALETTE
from hushgrid.broker.report.drawings.plots import DASHES, STYLE
from hushgrid.kernels.errors import Refused
from hushgrid.kernels.graphs import Graph
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Vector

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


class Exact:
    """The oracle of one agent without privacy: f_i as it is. What promises privacy is refused."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.minimize = loss, Minimizer(loss)

    def exact_gradient(self, x: Vector) -> Vector:
        return self.loss.gradient(x)

    def exact_minimizer(self, linear: Vector, quadratic: float) -> Vector:
        """argmin f_i(x) + <linear, x> + quadratic/2 |x|^2; least squares by the spectrum alone, without its
        certificate.
        """
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
    """The route of agents whose token `rollout.machines.walk` hands on: they send nothing."""
    return ""


def random_walk(graph: Graph, activations: int, seed: int) -> list[int]:
    """The active agent of each activation, from 0, P_ij = 1/deg(i); one stream of random numbers for all hops."""
    walk = [0]
    for share in counter_generator(seed, "study walk", 0).random(activations - 1).tolist():
        neighbours = graph.neighbours[walk[-1]]
        walk.append(neighbours[int(share * len(neighbours))])
    return walk


def on_two(work: Callable[[Task], Outcome], tasks: Sequence[Task], name: Callable[[Task], str]) -> list[Outcome]:
    """work(task) of every task, in order, on two processes; each is named on stderr when it is done."""
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(min(2, os.cpu_count() or 1)) as pool:
        for task, outcome in zip(tasks, pool.imap(work, tasks), strict=True):
            outcomes.append(outcome)
            print(f"{len(outcomes)}/{len(tasks)} {name(task)}", file=sys.stderr, flush=True)
    return outcomes


# --- tables ---


class Table(NamedTuple):
    """A study's figures: what `columns` say, a row a setting."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]


def in_digits(value: str | float) -> str:
    """Three digits; nothing where there is no such figure."""
    if isinstance(value, str | int):
        return str(value)
    return "" if isnan(value) else "unbounded" if value == inf else f"{value:.3g}"


class Page(NamedTuple):
    """What a study makes: tables, and pictures by the names of their files (SVG as text, PNG as bytes)."""

    name: str
    tables: Sequence[Table]
    pictures: Mapping[str, str | bytes]

    def markdown(self) -> str:
        """All tables."""
        lines = []
        for table in self.tables:
            lines += [f"## {table.title}", "", f"| {' | '.join(table.columns)} |", "|" + "---|" * len(table.columns)]
            lines += [*(f"| {' | '.join(map(in_digits, row))} |" for row in table.rows), ""]
        return "\n".join(lines)

    def write(self, folder: Path, origin: Sequence[str]) -> list[Path]:
        """name.md with all tables, one CSV a table, the pictures; each text begins with the lines of `origin`."""
        files: dict[str, str | bytes] = {
            f"{self.name}.md": "".join(f"<!-- {line} -->\n" for line in origin) + "\n" + self.markdown()
        }
        for number, table in enumerate(self.tables, 1):
            out = io.StringIO()
            out.writelines(f"# {line}\n" for line in (*origin, table.title))
            writer = csv.writer(out, lineterminator="\n")
            writer.writerows([table.columns, *(map(in_digits, row) for row in table.rows)])
            files[f"{self.name}-{number}.csv"] = out.getvalue()
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (files | dict(self.pictures)).items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return [folder / name for name in (*files, *self.pictures)]


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
    #: y is linear around zero up to here, for figures that may be zero or negative; inf: all of it, from 0
    linear: float = 0.0


def chart(title: str, panels: Sequence[Sequence[Panel]]) -> str:
    """Rows of panels, y common to a row and logarithmic unless they say otherwise, one legend below for all; an SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, NullLocator

    order = list(dict.fromkeys(name for row in panels for panel in row for name in panel.curves))
    style: Any = STYLE | {"svg.hashsalt": title}
    with rc_context(style):
        width, height = max(len(row) for row in panels), len(panels)
        figure = Figure(figsize=(3.5 * width, 2.6 * height + 0.9), layout="constrained")
        figure.suptitle(title)
        drawn: dict[str, Any] = {}
        axes = figure.subplots(height, width, squeeze=False, sharey="row")
        for row_axes, row in zip(axes, panels, strict=True):
            row_axes[0].set_ylabel(row[0].ylabel)
            for ax in row_axes[len(row) :]:
                ax.remove()
            for ax, panel in zip(row_axes, row, strict=False):
                _draw(ax, panel, order, drawn)
            low, high = row_axes[0].get_ylim()
            if not row[0].linear and high < 10 * low:  # a scale of less than a decade has no number of its own
                row_axes[0].yaxis.set_major_locator(MaxNLocator(5))
                row_axes[0].yaxis.set_major_formatter("{x:g}")
                row_axes[0].yaxis.set_minor_locator(NullLocator())
        columns = 2 * width if max(map(len, drawn)) < 20 else width
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=columns, handlelength=3)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "hushgrid study"})
    return out.getvalue()


def _draw(ax: Any, panel: Panel, order: list[str], drawn: dict[str, Any]) -> None:
    """The panel's curves, each in the colour and dashes of its place in `order`; noted in `drawn` for the legend."""
    from matplotlib.ticker import NullLocator

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
        ax.xaxis.set_minor_locator(NullLocator())
