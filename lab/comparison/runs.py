"""Finished runs beside each other: `hushgrid compare`, from their directories alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from hushgrid.broker.report.drawings import plots
from hushgrid.broker.report.drawings.numbers import MISSING, number
from hushgrid.broker.report.drawings.page import document, figure, paragraphs, section, table
from hushgrid.broker.report.result import Result
from hushgrid.broker.report.run_directory import mapping
from hushgrid.broker.report.summary import size
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.comparison.rows import figures
from hushgrid.node.columns import columns

#: Columns of a run that are shown if one of the runs has a value, and their words.
SHOWN = {
    "quality": "the answer is",
    "test_error": "error on test rows",
    "relative_error": "relative error of x",
    "optimality_gap": "gap to the optimum",
    "objective": "objective",
    "served_mw": "served, MW",
    "unserved_mw": "not served, MW",
    "consensus_residual": "consensus residual",
}
COSTS = {"rounds_done": "rounds or activations", "messages": "messages"}
DRAWN = {"consensus_residual": "Consensus residual", "objective": "Objective"}
LONG = 60  #: characters of a value that is written out
DASH = "A dash: not known of this run, or withheld because it is private."


class Compared:
    """Runs with their names, in the order given."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises InputError if a directory is not one of a run, or there is only one."""
        if len(paths) < 2:
            raise InputError(f"compare: found {len(paths)} run, expected at least two")
        self.results = [Result.load(path) for path in paths]
        short = [path.resolve().name for path in paths]
        self.names = [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
        self.scenarios = [flat(mapping(path / "scenario.yaml", yaml.safe_load)) for path in paths]
        self.rows = [figures(result) for result in self.results]

    def differences(self) -> list[tuple[str, list[str]]]:
        """The keys of the resolved scenarios that are not the same in all runs, with their values."""
        keys = dict.fromkeys(key for scenario in self.scenarios for key in scenario)
        rows = [(key, [scenario.get(key, MISSING) for scenario in self.scenarios]) for key in keys]
        return [(key, values) for key, values in rows if len({*values}) > 1]

    @property
    def warnings(self) -> list[str]:
        """What keeps these runs from being compared by one number."""
        lines = []
        other = [key for key, _ in self.differences() if key.partition(".")[0] == "problem"]
        if other:
            lines.append(f"The runs do not solve the same problem: {', '.join(other[:4])} differ.")
        kinds = {row["dp"] for row in self.rows}
        if {"pure", "approximate"} <= kinds:
            lines.append("Pure and approximate epsilons stand in columns of their own: they are not the same promise.")
        if "not upheld" in kinds:
            lines.append("A claim that is not upheld is a paper's own; the run may reveal more.")
        return lines

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: a run each, what it reached, what it promises, what it costs."""
        head, cells = (
            ["run", "algorithm"],
            [[name, row["algorithm"]] for name, row in zip(self.names, self.rows, strict=True)],
        )

        def add(title: str, values: Sequence[str]) -> None:
            if any(value != MISSING for value in values):
                head.append(title)
                for cell, value in zip(cells, values, strict=True):
                    cell.append(value)

        for name, title in SHOWN.items():
            add(title, [number(row.get(name), 4) for row in self.rows])
        for kind, title in (("pure", "ε, pure"), ("approximate", "ε, with δ"), ("not upheld", "ε, not upheld")):
            add(title, [_promise(row) if row["dp"] == kind else MISSING for row in self.rows])
        add("privacy", [_standing(result) for result in self.results])
        for name, title in COSTS.items():
            add(title, [number(row[name]) for row in self.rows])
        add("sent", [size(row["bytes"]) for row in self.rows])
        add("wall, s", [number(row["wall_s"]) for row in self.rows])
        return head, cells

    def text(self) -> str:
        """For a terminal."""
        head, rows = self.table()
        parts = [columns(rows, head), *self.warnings]
        if differing := self.differences():
            parts += ["", columns([[key, *map(_short, values)] for key, values in differing], ["differs", *self.names])]
        return "\n".join(parts)

    def page(self) -> str:
        """A self-contained page of HTML."""
        head, rows = self.table()
        body = [
            f'<header><p class="kind">hushgrid · comparison</p><h1>{len(rows)} runs</h1></header>',
            paragraphs(self.warnings),
            section("What they reached, promise and cost", table(head, rows, DASH)),
            section("Round by round", self._charts()),
        ]
        if differing := self.differences():
            lines = [[key, *map(_short, values)] for key, values in differing]
            differences = table(["key", *self.names], lines, "Keys of the resolved scenarios that differ.")
            body.append(section("What differs", differences))
        return document("hushgrid comparison", "\n".join(body))

    def _charts(self) -> str:
        longest = max(len(result.history["round"]) for result in self.results)
        drawn = []
        for k, (name, title) in enumerate(DRAWN.items()):
            curves = {}
            for run, result in zip(self.names, self.results, strict=True):
                values = np.full(longest, np.nan)
                curve = np.array(result.history.get(name, []), float)
                values[: len(curve)] = curve
                if np.isfinite(values).any():
                    curves[run] = values
            if curves:
                rounds = np.arange(1.0, longest + 1)
                chart = plots.lines(f"c{k}", title, rounds, curves, ylabel=title.lower(), log=True)
                caption = "Over rounds; of a run with a token, over blocks of n activations."
                drawn.append(figure(title, chart, caption))
        return f'<div class="charts">{"".join(drawn)}</div>' if drawn else paragraphs(["No round was completed."])


def _promise(row: DocumentView) -> str:
    return number(row["epsilon"]) + (f", δ {row['delta']:g}" if row["delta"] else "")


def _standing(result: Result) -> str:
    upheld = result.privacy.upheld
    return upheld if isinstance(upheld, str) else "upheld" if upheld else "not upheld"


def _short(value: str) -> str:
    return value if len(value) <= LONG else f"{value[: LONG - 3]}..."


def flat(section: DocumentView, above: str = "") -> dict[str, str]:
    """A mapping's values as text, by dotted key."""
    leaves: dict[str, str] = {}
    for key, value in section.items():
        path = f"{above}{key}"
        leaves |= flat(value, f"{path}.") if isinstance(value, Mapping) else {path: str(value)}
    return leaves
