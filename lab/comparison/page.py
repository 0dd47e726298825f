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


def qualities(found: DataFrame) -> list[str]:
    """What the runs of a sweep are compared by: of QUALITIES, and what was measured beside them."""
    mine = [name for name in found if name not in (*FIGURES, *TEXT, *WHOLE, *found.attrs["over"])]
    some = [name for name in (*QUALITIES, *mine) if name in found and found[name].dtype != "str"]
    known = [str(name) for name in some if numbers(found, name)[found["status"] == "done"].size]
    known = [name for name in known if median(numbers(found, name)).n]
    return [name for name in known if name != "objective" or "optimality_gap" not in known]


def medians_of(found: DataFrame) -> DataFrame:
    """A row a point: medians and their standard errors of what it is compared by, and of what it costs."""
    return medians(found, [*qualities(found), *COSTS])


class _Points:
    """The points of a sweep, as the page names them."""

    def __init__(self, found: DataFrame) -> None:
        self.found, self.over = found, [str(key) for key in found.attrs["over"]]
        self.done = found[found["status"] == "done"]
        self.done.attrs["over"] = self.over
        self.axes = [key for key in self.over if found[key].nunique() > 1]
        self.kinds = sorted({*self.done["dp"]} - {"none"})
        numeric = [key for key in self.axes if found[key].dtype.kind in "if"]
        self.along = sorted(numeric, key=lambda key: -found[key].nunique())  # stable: the first of the longest

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
        of: dict[str, list[tuple[float, Median]]] = {}
        for values, runs in groups(self.done):
            at = median(numbers(runs, name))
            if at.n:
                of.setdefault(self.named(values, runs, along), []).append((float(str(values[along])), at))
        return {key: _band(sorted(at)) for key, at in of.items()}

    def rivals(self, name: str) -> list[tuple[str, list[tuple[str, DataFrame, Median]]]]:
        """Points that promise the same, with the best one first, by what they promise; none of those that have no rival."""
        of: dict[str, list[tuple[str, DataFrame, Median]]] = {}
        for values, runs in groups(self.done):
            at = median(numbers(runs, name))
            if at.n:
                of.setdefault(_promise(runs), []).append((self.named(values, runs), runs, at))
        return [(where, sorted(points, key=lambda p: p[2].value)) for where, points in of.items() if len(points) > 1]


def _promise(runs: DataFrame) -> str:
    """What runs of one point claim."""
    kind, epsilon, delta = runs[["dp", "epsilon", "delta"]].iloc[0]
    if kind == "none":
        return "no ε"
    return f"ε {number(epsilon)}, " + {"pure": "pure", "not upheld": "not upheld"}.get(kind, f"δ {delta:g}")


def _plain(value: object) -> Any:
    return value.item() if hasattr(value, "item") else value


def _band(points: list[tuple[float, Median]]) -> plots.Band:
    rows = np.array([(x, at.value, at.low, at.high) for x, at in points])
    return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]


def of_sweep(found: DataFrame, scenario: Mapping[str, Any]) -> str:
    """The page of a sweep. found: a row a run, as `sweep` returns it; scenario: what was swept."""
    of, name = _Points(found), str(scenario.get("name", "sweep"))
    shown = qualities(found)
    body = [
        f'<header><p class="kind">hushgrid · comparison of a sweep</p><h1>{escape(name)}</h1>'
        f'<p class="verdict">{escape(_about(of))}</p></header>' + _banner(of),
        section("Medians and bands", _charts(of, shown)),
        section("Every point", _table(of, shown)),
        *(_pairs(of, shown[0]) if shown else []),
        *_refused(of),
        section("What was swept", _scenario(of, scenario)),
    ]
    return document(f"{name} – hushgrid comparison", "\n".join(body))


def _about(of: _Points) -> str:
    counts = of.found["status"].value_counts()
    axes = [f"{of.found[key].nunique()} values of {key}" for key in of.over]
    by = " × ".join([*axes, f"{of.found['seed'].nunique()} seeds"])
    failed = [f"{counts[status]} {status}" for status in ("refused", "stopped", "defect") if counts.get(status, 0)]
    return f"{len(of.found)} runs ({by}): " + ", ".join([f"{counts.get('done', 0)} done", *failed]) + "."


def _banner(of: _Points) -> str:
    words = [
        "Every run has a seed. So runs of one seed share their noise, errors may be computed from raw data, and none of "
        "these runs is private. An ε here is the total that a node of the same run claims without the seed."
    ]
    if {"pure", "approximate"} <= {*of.kinds}:
        words.append(
            "Two kinds of ε are on this page: pure (δ = 0) and approximate (with the δ in its row). They are not the same "
            "promise, and a smaller error at the same number is no proof of a better method."
        )
    if "not upheld" in of.kinds:
        words.append("An ε that is not upheld is a paper's own claim; the run may reveal more.")
    if {*of.kinds} == {"approximate"}:
        deltas = sorted({*of.done["delta"].dropna()})
        words.append(f"Every ε on this page is approximate, with δ = {' or '.join(f'{d:g}' for d in deltas)}.")
    more = "".join(f"<p>{escape(text)}</p>" for text in words[1:])
    return (
        '<section class="banner not-private" aria-label="Privacy"><p class="word">Not private</p>'
        f'<div><p class="headline">{escape(words[0])}</p>{more}</div></section>'
    )


def _charts(of: _Points, shown: list[str]) -> str:
    drawn: list[str] = []
    wanted = [(name, along) for name in shown[:1] for along in of.along]
    wanted += [(name, of.along[0]) for name in shown[1:] if of.along]
    for name, along in wanted[:DRAWN]:
        words, curves = QUALITIES.get(name, name), of.curves(name, along)
        if not 0 < len(curves) <= CURVES:
            continue
        title = f"{words[0].upper()}{words[1:]} over {along}"
        chart = plots.bands(f"c{len(drawn)}", title, curves, xlabel=along, ylabel=words)
        drawn.append(figure(title, chart, "Medians over seeds; the band is from the first to the third quartile."))
    if not of.along:
        drawn = [_bars(of, name, k) for k, name in enumerate(shown[:DRAWN])]
    if not drawn:
        return paragraphs(["There is nothing to draw: no figure is known of any run, or too many points differ."])
    return f'<div class="charts">{"".join(drawn)}</div>'


def _bars(of: _Points, name: str, k: int) -> str:
    words, values = QUALITIES.get(name, name), {}
    for point, runs in groups(of.done):
        if (at := median(numbers(runs, name))).n:
            values[of.named(point, runs) or "all runs"] = (at.value, at.low, at.high)
    title = f"{words[0].upper()}{words[1:]}"
    chart = plots.points(f"c{k}", title, values, xlabel=words)
    return figure(title, chart, "Medians over seeds; the bar is from the first to the third quartile.")


def _said(at: Median) -> str:
    """A median with its standard error."""
    if not at.n:
        return number(None)
    return number(at.value) + (f" ± {number(at.error, 2)}" if at.error > 0 else "")


def _table(of: _Points, shown: list[str]) -> str:
    """A row a point. Its epsilon stands in the column of its kind."""
    kinds = [kind for kind in ("pure", "approximate", "not upheld") if kind in of.kinds]
    heads = {"pure": "ε, pure", "approximate": "ε, with δ", "not upheld": "ε, not upheld"}
    names = [*shown, "messages", "wall_s"]
    rows = []
    for values, runs in groups(of.found):
        done = runs[runs["status"] == "done"]
        cells = [number(_plain(values[key])) for key in of.over] or ["all"]
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
    head = [*(of.over or ["point"]), *(heads[kind] for kind in kinds), "done"]
    head += [{"messages": "messages", "wall_s": "wall, s"}.get(name, QUALITIES.get(name, name)) for name in names]
    caption = "Medians over seeds ± their standard error (Maritz and Jarrett 1978). ε: total of each node over the run."
    return table([*head, "answers are"], rows, caption)


def _pairs(of: _Points, name: str) -> list[str]:
    """How far each point is from the best of those that promise the same, seed by seed."""
    words, rows = QUALITIES.get(name, name), []
    for where, (best, *others) in of.rivals(name):
        rows.append([where, best[0], _said(best[2]), "the least median", ""])
        for title, runs, at in others:
            gaps = differences(runs, best[1], name)
            gap = median(gaps)
            rows.append(["", title, _said(at), _said(gap), f"{(gaps > 0).sum()} of {gap.n}"])
    if not rows:
        return []
    caption = (
        f"By {words}: runs of one seed share their noise up to its scale, so a difference seed by seed is surer than that "
        "of two medians. The best is chosen by the seeds it is shown on: part of its lead is luck."
    )
    head = ["at the same promise", "point", words, "more than the best", "seeds in which it is more"]
    return [section("Under the same noise", table(head, rows, caption))]


def _refused(of: _Points) -> list[str]:
    failed = of.found[of.found["status"] != "done"]
    if failed.empty:
        return []
    rows = []
    for (point, status, error), runs in failed.groupby(["point", "status", "error"], sort=True):
        first = of.found[of.found["point"] == point].iloc[0]
        at = ", ".join(f"{key} {number(_plain(first[key]))}" for key in of.over)
        rows.append([at or "all", str(len(runs)), str(status), str(error)])
    more = f" The first {LISTED} of {len(rows)} are shown; runs.csv has all." if len(rows) > LISTED else ""
    shown = table(["point", "runs", "how they ended", "why"], rows[:LISTED], "Runs without an answer." + more)
    return [section("What has no answer", shown)]


def _scenario(of: _Points, scenario: Mapping[str, Any]) -> str:
    pairs = [(key, ", ".join(dict.fromkeys(number(_plain(v)) for v in of.found[key]))) for key in of.over]
    seeds = sorted({*of.found["seed"]})
    even = [*range(int(seeds[0]), int(seeds[-1]) + 1)] == [int(s) for s in seeds]
    pairs.append(("seeds", f"{seeds[0]} to {seeds[-1]}" if even else ", ".join(map(str, seeds))))
    text = yaml.safe_dump(dict(scenario), sort_keys=False)
    return (
        facts(pairs, wide=True)
        + f"<h3>Scenario, before the values above are laid over it</h3><pre>{escape(text)}</pre>"
    )
