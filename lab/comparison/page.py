"""`comparison.html` of a sweep: medians over seeds with their bands, and what differs under the same noise.

Like the report of a run it is self-contained, loads nothing and needs no script.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from hushgrid.broker.report.drawings import plots
from hushgrid.broker.report.drawings.numbers import number
from hushgrid.broker.report.drawings.page import document, facts, figure, paragraphs, section, table
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.comparison.medians import Median, differences, groups, median, medians, numbers
from hushgrid.lab.comparison.rows import FIGURES, TEXT, WHOLE

if TYPE_CHECKING:
    from pandas import DataFrame

#: What runs are compared by, where it is known, the first of them before all; and in what words.
QUALITIES = {
    "test_error": "error on test rows",
    "relative_error": "relative error of x",
    "optimality_gap": "gap to the optimum",
    "objective": "objective",
    "unserved_mw": "load not served, MW",
    "consensus_residual": "consensus residual",
    "disagreement_mw": "disagreement between zones, MW",
}
COSTS = ("epsilon_spent", "answers", "rounds_done", "messages", "bytes", "wall_s")
DRAWN = 6  #: charts at most
CURVES = 24  #: in one chart at most
LISTED = 40  #: rows of a table of what was refused


def qualities(runs: DataFrame) -> list[str]:
    """What the runs of a sweep are compared by: of QUALITIES, and what was measured beside them."""
    mine = [name for name in runs if name not in (*FIGURES, *TEXT, *WHOLE, *runs.attrs["over"])]
    some = [name for name in (*QUALITIES, *mine) if name in runs and runs[name].dtype != "str"]
    known = [str(name) for name in some if numbers(runs, name)[runs["status"] == "done"].size]
    known = [name for name in known if median(numbers(runs, name)).n]
    return [name for name in known if name != "objective" or "optimality_gap" not in known]


def medians_of(runs: DataFrame) -> DataFrame:
    """A row a point: medians and their standard errors of what it is compared by, and of what it costs."""
    return medians(runs, [*qualities(runs), *COSTS])


class _Points:
    """The points of a sweep, as the page names them."""

    def __init__(self, runs: DataFrame) -> None:
        self.runs, self.over = runs, [str(key) for key in runs.attrs["over"]]
        self.done = runs[runs["status"] == "done"]
        self.done.attrs["over"] = self.over
        self.axes = [key for key in self.over if runs[key].nunique() > 1]
        self.kinds = sorted({*self.done["dp"]} - {"none"})
        numeric = [key for key in self.axes if runs[key].dtype.kind in "if"]
        self.along = sorted(numeric, key=lambda key: -runs[key].nunique())  # stable: the first of the longest

    def named(self, values: Mapping[str, object], runs: DataFrame, but: str = "") -> str:
        """A point in words, without one of its values; of which kind its epsilon is, if there are several kinds."""
        parts = []
        for key in self.axes:
            if key != but:
                value, last = values[key], key.rpartition(".")[2]
                parts.append(str(value) if isinstance(value, str) else f"{last} {number(_plain(value))}")
        if len(self.kinds) > 1:
            parts += [f"ε {word}" for word in sorted({*runs["dp"]}) if word != "none"]
        return ", ".join(parts)

    def curves(self, name: str, along: str) -> dict[str, plots.Band]:
        """Medians and quartiles of a figure along an axis, by the other values of the points."""
        by_name: dict[str, list[tuple[float, Median]]] = {}
        for values, runs in groups(self.done):
            middle = median(numbers(runs, name))
            if middle.n:
                by_name.setdefault(self.named(values, runs, along), []).append((float(str(values[along])), middle))
        return {key: _band(sorted(middle)) for key, middle in by_name.items()}

    def rivals(self, name: str) -> list[tuple[str, list[tuple[str, DataFrame, Median]]]]:
        """Points that promise the same, with the best one first, by what they promise; none of those that have no
        rival.
        """
        by_point: dict[str, list[tuple[str, DataFrame, Median]]] = {}
        for values, runs in groups(self.done):
            middle = median(numbers(runs, name))
            if middle.n:
                by_point.setdefault(_promise(runs), []).append((self.named(values, runs), runs, middle))
        return [
            (where, sorted(points, key=lambda p: p[2].value)) for where, points in by_point.items() if len(points) > 1
        ]


def _promise(runs: DataFrame) -> str:
    """What runs of one point claim."""
    kind, epsilon, delta = runs[["dp", "epsilon", "delta"]].iloc[0]
    if kind == "none":
        return "no ε"
    return f"ε {number(epsilon)}, " + {"pure": "pure", "not upheld": "not upheld"}.get(kind, f"δ {delta:g}")


def _plain(value: object) -> Any:
    return value.item() if hasattr(value, "item") else value


def _band(points: list[tuple[float, Median]]) -> plots.Band:
    rows = np.array([(x, middle.value, middle.low, middle.high) for x, middle in points])
    return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]


def of_sweep(runs: DataFrame, scenario: DocumentView) -> str:
    """The page of a sweep. runs: a row a run, as `sweep` returns it; scenario: what was swept."""
    points, name = _Points(runs), str(scenario.get("name", "sweep"))
    names = qualities(runs)
    body = [
        f'<header><p class="kind">hushgrid · comparison of a sweep</p><h1>{escape(name)}</h1>'
        f'<p class="verdict">{escape(_about(points))}</p></header>' + _banner(points),
        section("Medians and bands", _charts(points, names)),
        section("Every point", _table(points, names)),
        *(_pairs(points, names[0]) if names else []),
        *_refused(points),
        section("What was swept", _scenario(points, scenario)),
    ]
    return document(f"{name} – hushgrid comparison", "\n".join(body))


def _about(points: _Points) -> str:
    counts = points.runs["status"].value_counts()
    axes = [f"{points.runs[key].nunique()} values of {key}" for key in points.over]
    by = " × ".join([*axes, f"{points.runs['seed'].nunique()} seeds"])
    failed = [f"{counts[status]} {status}" for status in ("refused", "stopped", "defect") if counts.get(status, 0)]
    return f"{len(points.runs)} runs ({by}): " + ", ".join([f"{counts.get('done', 0)} done", *failed]) + "."


def _banner(points: _Points) -> str:
    phrases = [
        "Every run has a seed. So runs of one seed share their noise, errors may be computed from raw data, and none "
        "of these runs is private. An ε here is the total that a node of the same run claims without the seed."
    ]
    if {"pure", "approximate"} <= {*points.kinds}:
        phrases.append(
            "Two kinds of ε are on this page: pure (δ = 0) and approximate (with the δ in its row). They are not the "
            "same promise, and a smaller error at the same number is no proof of a better method."
        )
    if "not upheld" in points.kinds:
        phrases.append("An ε that is not upheld is a paper's own claim; the run may reveal more.")
    if {*points.kinds} == {"approximate"}:
        deltas = sorted({*points.done["delta"].dropna()})
        phrases.append(f"Every ε on this page is approximate, with δ = {' or '.join(f'{d:g}' for d in deltas)}.")
    more = "".join(f"<p>{escape(text)}</p>" for text in phrases[1:])
    return (
        '<section class="banner not-private" aria-label="Privacy"><p class="word">Not private</p>'
        f'<div><p class="headline">{escape(phrases[0])}</p>{more}</div></section>'
    )


def _charts(points: _Points, names: list[str]) -> str:
    drawn: list[str] = []
    wanted = [(name, along) for name in names[:1] for along in points.along]
    wanted += [(name, points.along[0]) for name in names[1:] if points.along]
    for name, along in wanted[:DRAWN]:
        quality, curves = QUALITIES.get(name, name), points.curves(name, along)
        if not 0 < len(curves) <= CURVES:
            continue
        title = f"{quality[0].upper()}{quality[1:]} over {along}"
        chart = plots.bands(f"c{len(drawn)}", title, curves, xlabel=along, ylabel=quality)
        drawn.append(figure(title, chart, "Medians over seeds; the band is from the first to the third quartile."))
    if not points.along:
        drawn = [_bars(points, name, k) for k, name in enumerate(names[:DRAWN])]
    if not drawn:
        return paragraphs(["There is nothing to draw: no figure is known of any run, or too many points differ."])
    return f'<div class="charts">{"".join(drawn)}</div>'


def _bars(points: _Points, name: str, k: int) -> str:
    quality, values = QUALITIES.get(name, name), {}
    for point, runs in groups(points.done):
        if (middle := median(numbers(runs, name))).n:
            values[points.named(point, runs) or "all runs"] = (middle.value, middle.low, middle.high)
    title = f"{quality[0].upper()}{quality[1:]}"
    chart = plots.points(f"c{k}", title, values, xlabel=quality)
    return figure(title, chart, "Medians over seeds; the bar is from the first to the third quartile.")


def _said(middle: Median) -> str:
    """A median with its standard error."""
    if not middle.n:
        return number(None)
    return number(middle.value) + (f" ± {number(middle.error, 2)}" if middle.error > 0 else "")


def _table(points: _Points, qualities: list[str]) -> str:
    """A row a point. Its epsilon stands in the column of its kind."""
    kinds = [kind for kind in ("pure", "approximate", "not upheld") if kind in points.kinds]
    heads = {"pure": "ε, pure", "approximate": "ε, with δ", "not upheld": "ε, not upheld"}
    names = [*qualities, "messages", "wall_s"]
    rows = []
    for values, runs in groups(points.runs):
        done = runs[runs["status"] == "done"]
        cells = [number(_plain(values[key])) for key in points.over] or ["all"]
        for kind in kinds:
            claims = done[done["dp"] == kind]
            claimed = [
                f"{number(e)}" + (f", δ {d:g}" if d else "")
                for e, d in zip(claims["epsilon"], claims["delta"], strict=True)
            ]
            cells.append(" or ".join(dict.fromkeys(claimed)) or number(None))
        cells.append(f"{len(done)} of {len(runs)}")
        cells += [_said(median(numbers(done, name))) for name in names]
        verdicts = done["quality"].value_counts()
        cells.append(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()) or number(None))
        rows.append(cells)
    head = [*(points.over or ["point"]), *(heads[kind] for kind in kinds), "done"]
    head += [{"messages": "messages", "wall_s": "wall, s"}.get(name, QUALITIES.get(name, name)) for name in names]
    caption = "Medians over seeds ± their standard error (Maritz and Jarrett 1978). ε: total of each node over the run."
    return table([*head, "answers are"], rows, caption)


def _pairs(points: _Points, name: str) -> list[str]:
    """How far each point is from the best of those that promise the same, seed by seed."""
    quality, rows = QUALITIES.get(name, name), []
    for where, (best, *others) in points.rivals(name):
        rows.append([where, best[0], _said(best[2]), "the least median", ""])
        for title, runs, middle in others:
            gaps = differences(runs, best[1], name)
            gap = median(gaps)
            rows.append(["", title, _said(middle), _said(gap), f"{(gaps > 0).sum()} of {gap.n}"])
    if not rows:
        return []
    caption = (
        f"By {quality}: runs of one seed share their noise up to its scale, so a difference seed by seed is surer "
        "than that of two medians. The best is chosen by the seeds it is shown on: part of its lead is luck."
    )
    head = ["at the same promise", "point", quality, "more than the best", "seeds in which it is more"]
    return [section("Under the same noise", table(head, rows, caption))]


def _refused(points: _Points) -> list[str]:
    failed = points.runs[points.runs["status"] != "done"]
    if failed.empty:
        return []
    rows = []
    for (point, status, error), runs in failed.groupby(["point", "status", "error"], sort=True):
        first = points.runs[points.runs["point"] == point].iloc[0]
        place = ", ".join(f"{key} {number(_plain(first[key]))}" for key in points.over)
        rows.append([place or "all", str(len(runs)), str(status), str(error)])
    more = f" The first {LISTED} of {len(rows)} are shown; runs.csv has all." if len(rows) > LISTED else ""
    listed = table(["point", "runs", "how they ended", "why"], rows[:LISTED], "Runs without an answer." + more)
    return [section("What has no answer", listed)]


def _scenario(points: _Points, scenario: DocumentView) -> str:
    pairs = [(key, ", ".join(dict.fromkeys(number(_plain(v)) for v in points.runs[key]))) for key in points.over]
    seeds = sorted({*points.runs["seed"]})
    even = [*range(int(seeds[0]), int(seeds[-1]) + 1)] == [int(s) for s in seeds]
    pairs.append(("seeds", f"{seeds[0]} to {seeds[-1]}" if even else ", ".join(map(str, seeds))))
    text = yaml.safe_dump(dict(scenario), sort_keys=False)
    return (
        facts(pairs, wide=True)
        + f"<h3>Scenario, before the values above are laid over it</h3><pre>{escape(text)}</pre>"
    )
