"""The report's charts: one restrained style, drawn by matplotlib as SVG elements that stand in the page as they are.

Every function returns an <svg> string; the same figures give the same bytes. matplotlib is imported when one is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.broker.report.drawings.gridmap import INK, PALETTE
from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

GRID = "#d8dee4"
DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
SIZE = (4.7, 2.75)  # inches; half the page's width
STYLE: dict[str, object] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and copied
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8793a0",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
}


def _whole(axes: Axes) -> None:
    """Rounds and activations are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def _svg(figure: Figure, name: str, label: str) -> str:
    """The figure as an <svg> element: no date, ids unique to `name`, no style rule that reaches beyond it."""
    text = io.StringIO()
    undated = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=undated)
    body = text.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r"\n\s*", "\n", body).strip()
    return body.replace("<svg", f'<svg class="chart" role="img" aria-label="{escape(label)}"', 1)


def _drawn(name: str, label: str, draw: Callable[[Axes], None], height: float = SIZE[1]) -> str:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("report: found no matplotlib, expected it installed: pip install 'hushgrid[laptop]'") from None
    style: Any = {**STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(SIZE[0], height), layout="constrained")
        draw(figure.add_subplot())
        return _svg(figure, name, label)


def grouped(series: Mapping[str, Array]) -> dict[str, Array]:
    """Curves that coincide drawn as one, under all their names."""
    groups: list[tuple[list[str], Array]] = []
    for name, values in series.items():
        for names, known in groups:
            if np.array_equal(known, values, equal_nan=True):
                names.append(name)
                break
        else:
            groups.append(([name], values))
    return {_names(names): values for names, values in groups}


def _names(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} nodes)"


def lines(
    name: str,
    label: str,
    rounds: Array,
    series: Mapping[str, Array],
    *,
    xlabel: str = "round",
    ylabel: str,
    log: bool = False,
    levels: Mapping[str, float] | None = None,
    from_zero: bool = False,
    each: str = "nodes",
) -> str:
    """Curves over rounds; `levels` are horizontal lines with their name. Values that are not finite leave a gap.

    each: what the curves are of, in the legend of many.
    log: a logarithmic axis where a positive value exists to stand on it; zeros are then not drawn.
    """

    def draw(axes: Axes) -> None:
        curves = grouped(series)
        positive = any(bool(np.any(v[np.isfinite(v)] > 0)) for v in curves.values())
        crowded = len(curves) > len(PALETTE)
        for i, (key, values) in enumerate(curves.items()):
            drawable = np.where(np.isfinite(values) & ((values > 0) | (not (log and positive))), values, np.nan)
            colour = "#8793a0" if crowded else PALETTE[i % len(PALETTE)]
            title = None if crowded else key
            if crowded and i == 0:
                title = f"each of {len(curves)} {each}"
            few = int(np.isfinite(drawable).sum()) <= 2  # a curve of one point is not visible as a line
            axes.plot(
                rounds,
                drawable,
                color=colour,
                linestyle=DASHES[i % len(DASHES)],
                label=title,
                marker="o" if few else None,
            )
        for i, (text, level) in enumerate((levels or {}).items()):
            if np.isfinite(level):
                axes.axhline(level, color=INK, linewidth=1.1, linestyle=DASHES[1 + i % 3], label=text)
        if log and positive:
            axes.set_yscale("log")
        elif from_zero:
            axes.set_ylim(bottom=0.0)
            axes.set_ylim(top=max(axes.get_ylim()[1], 1e-12) * 1.06)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        _whole(axes)
        if len(curves) + len(levels or {}) > 1:
            axes.legend(loc="best", handlelength=2.4)

    return _drawn(name, label, draw)


def stacked(
    name: str,
    label: str,
    rounds: Array,
    series: Mapping[str, Array],
    levels: Mapping[str, Array],
    *,
    xlabel: str,
    ylabel: str,
) -> str:
    """What adds up, one on the other, each for the length of its period, and what is negative below zero; `levels` are
    lines over all of it.
    """
    edges = np.append(rounds - 0.5, rounds[-1] + 0.5)

    def draw(axes: Axes) -> None:
        above, below = np.zeros(rounds.size), np.zeros(rounds.size)
        for i, (key, values) in enumerate(series.items()):
            base = np.where(values < 0, below, above)
            colour = PALETTE[i % len(PALETTE)]
            axes.stairs(
                base + values, edges, baseline=base, fill=True, color=colour, alpha=0.55, linewidth=0, label=key
            )
            above, below = above + np.maximum(values, 0.0), below + np.minimum(values, 0.0)
        for i, (key, values) in enumerate(levels.items()):
            dash = DASHES[i % len(DASHES)]
            axes.stairs(values, edges, baseline=None, color=INK, linewidth=1.3, linestyle=dash, label=key)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        _whole(axes)
        _legend_below(axes, [*series, *levels])

    return _drawn(name, label, draw, SIZE[1] + 0.17 * _lines([*series, *levels]))


def bars(name: str, label: str, rounds: Array, values: Array, *, xlabel: str = "round", ylabel: str) -> str:
    """Counts per round as a filled step: zero is always in sight."""

    def draw(axes: Axes) -> None:
        heights = np.where(np.isfinite(values), values, 0.0)
        axes.fill_between(rounds, heights, step="mid", color=PALETTE[0], alpha=0.3, linewidth=0)
        axes.step(rounds, heights, where="mid", color=PALETTE[0], linewidth=1.2)
        axes.set_ylim(0.0, max(float(heights.max(initial=0.0)) * 1.12, 1.0))
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        _whole(axes)

    return _drawn(name, label, draw)


#: A figure at some points of a sweep: where they are, the medians there, and both ends of the band. Shape (k,) each.
Band = tuple[Array, Array, Array, Array]


def bands(name: str, label: str, curves: Mapping[str, Band], *, xlabel: str, ylabel: str, linear: bool = False) -> str:
    """Medians over what was swept, each between its quartiles.

    An axis is logarithmic if its values span a decade, unless both are to be `linear`.
    Values that are not positive keep the axis linear, so that none is left out.
    """

    def wide(values: Sequence[Array]) -> bool:
        every = np.concatenate(values) if values and not linear else np.zeros(0)
        every = every[np.isfinite(every)]
        return bool(every.size and every.min() > 0 and every.max() >= 10 * every.min())

    def draw(axes: Axes) -> None:
        for i, (key, (x, middle, low, high)) in enumerate(curves.items()):
            colour, dash = PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)]
            axes.plot(x, middle, color=colour, linestyle=dash, marker="o", markersize=3.2, label=key)
            axes.fill_between(x, low, high, color=colour, alpha=0.16 if len(curves) < 7 else 0.07, linewidth=0)
        if wide([x for x, *_ in curves.values()]):
            axes.set_xscale("log")
        if wide([part for _, *rest in curves.values() for part in rest]):
            axes.set_yscale("log")
            _few_decades(axes)
        places = sorted({float(v) for x, *_ in curves.values() for v in x})
        if len(places) <= 8:
            axes.set_xticks(places, [f"{v:g}" for v in places])
            axes.minorticks_off()
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        if len(curves) > 1:
            _legend_below(axes, list(curves))

    return _drawn(name, label, draw, SIZE[1] + 0.17 * _lines(list(curves)))


def points(name: str, label: str, values: Mapping[str, tuple[float, float, float]], *, xlabel: str) -> str:
    """A line a point of a sweep: its median and, as a bar, its quartiles (median, low, high)."""

    def draw(axes: Axes) -> None:
        middle, low, high = np.array(list(values.values())).T
        positions = np.arange(len(values))
        axes.hlines(positions, low, high, color=PALETTE[0], alpha=0.35, linewidth=5)
        axes.plot(middle, positions, "o", color=PALETTE[0], markersize=4)
        finite = np.array([middle, low, high])[:, np.isfinite(middle)]
        if finite.size and finite.min() > 0 and finite.max() >= 10 * finite.min():
            axes.set_xscale("log")
        axes.set_yticks(positions, list(values))
        axes.set_ylim(len(values) - 0.5, -0.5)
        axes.set_xlabel(xlabel)

    return _drawn(name, label, draw, 0.9 + 0.26 * len(values))


def _few_decades(axes: Axes) -> None:
    """A logarithmic axis over fewer than three powers of ten has names between them."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axes.get_ylim()
    if high < 1e3 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(LogLocator(subs=()))


def _columns(names: Sequence[str]) -> int:
    """Of a legend below a chart."""
    widest = max(map(len, names))
    return 1 if widest > 30 else 2 if widest > 16 else 3


def _lines(names: Sequence[str]) -> int:
    return -(-len(names) // _columns(names)) if len(names) > 1 else 0


def _legend_below(axes: Axes, names: Sequence[str]) -> None:
    axes.figure.legend(loc="outside lower center", ncols=_columns(names), handlelength=2.4)
