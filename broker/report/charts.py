"""The charts of a report: what the history of a run shows, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hushgrid.broker.report import dispatch_page
from hushgrid.broker.report.drawings import plots
from hushgrid.broker.report.drawings.numbers import natural, number
from hushgrid.broker.report.drawings.page import figure, paragraphs
from hushgrid.broker.report.run_directory import Array, Run
from hushgrid.broker.report.statement import Statement
from hushgrid.broker.report.wording import wording_of
from hushgrid.kernels.types import DocumentView

WITHHELD = "withheld: it would be computed from raw data"


class _Charts:
    """The figures of one run, in their order."""

    def __init__(self, run: Run, statement: Statement) -> None:
        self.run, self.statement, self.history = run, statement, run.history
        self.known = {name for name, values in run.history.items() if bool(np.isfinite(values).any())}
        self.rounds, self.xlabel, self.per = run.history["round"], "round", "round"
        if run.walks:  # a row is a block of n activations, the last one perhaps shorter
            n, done = len(run.nodes()), run.result.get("rounds_done")
            self.rounds = np.minimum(self.rounds * n, done if isinstance(done, int) else np.inf)
            self.xlabel, self.per = "activations", f"{n} activations"
        unit = wording_of(run).unit.strip()
        self.unit = f" ({unit})" if unit else ""
        self.out: list[str] = []
        self.said_once: list[str] = []  #: of figures that do not change: in words instead of a chart

    def add(self, title: str, caption: str, series: DocumentView, **how: Any) -> None:
        drawn = plots.lines(f"c{len(self.out)}", title, self.rounds, series, xlabel=self.xlabel, **how)
        self.out.append(figure(title, drawn, caption))

    def agreement(self) -> None:
        """Both residuals of a run at least cost, and what they are worth in MW."""
        rule, both = dispatch_page.tolerance(self.run), {}
        for column, title in (("consensus_residual", "primal: copies apart"), ("dual_residual", "dual: prices apart")):
            if column in self.known:
                both[title] = self.history[column]
        if both:
            caption = (
                "Primal: how far the zones' copies of what they share are from their mean, p.u. Dual: how far their "
                "prices for it are from adding up to nothing, in the algorithm's own scale. Logarithmic."
            )
            levels = {}
            if rule is not None:
                levels["tolerance, primal"] = rule
                caption += " The tolerance is that of the primal residual at the last round; the dual one has its own."
            self.add("Residuals", caption, both, ylabel="residual", log=True, levels=levels)
        if "disagreement_mw" in self.known:
            caption = (
                "The most by which two zones' copies of a flow of a line between them differ, MW or MVAr, logarithmic. "
                "Flows of the relaxation."
            )
            apart = {"disagreement": self.history["disagreement_mw"]}
            self.add("Disagreement on flows between zones", caption, apart, ylabel="MW or MVAr", log=True)

    def residual(self) -> None:
        if self.run.least_cost:
            self.agreement()
            return
        if "consensus_residual" in self.known:
            residual = self.history["consensus_residual"]
            caption = "How far the nodes' own copies are from the common value"
            caption += ", logarithmic scale." if bool(np.any(residual > 0)) else ": they are the same."
            series = {"residual": residual}
            self.add("Consensus residual", caption, series, ylabel="residual" + self.unit, log=True)

    def cost(self) -> None:
        """The objective of a run at least cost; in a private run it is one at the noisy loads."""
        dispatch = dispatch_page.dispatch_of(self.run)
        caption = (
            f"What the zones' own steps cost at the {dispatch.loads}, lost load at its price included. While they "
            "disagree it may be less than any dispatch costs. Relaxed."
        )
        levels = {"proven bound": dispatch.bound} if dispatch.bound is not None else {}
        cost, unit = {"cost": self.history["objective"]}, "$/h" if self.run.periods == 1 else "$ of the day"
        self.add("Cost", caption, cost, ylabel=unit, levels=levels, from_zero=True)

    def objective(self) -> None:
        if "objective" in self.known and self.run.least_cost:
            self.cost()
        elif "objective" in self.known:
            caption = "Computed from the raw data for study; such a run is not private or its claim is not upheld."
            title, values, gap = "Objective", self.history["objective"], self.run.result.get("optimality_gap")
            if not self.run.zones and isinstance(gap, float):
                title, values = "Objective above the optimum", values - (values[-1] - gap)
            self.add(title, caption, {title.lower(): values}, ylabel=title.lower(), log=True)

    def tested(self) -> None:
        """Of many nodes the range alone."""
        if "test_error" not in self.known:
            return
        test, columns = self.run.result["test"], [name for name in self.known if name.startswith("test_error_")]
        series = {"common model": self.history["test_error"]}
        if columns:
            each = np.array([self.history[name] for name in columns])
            series |= {"worst of the nodes' own": each.max(axis=0), "best": each.min(axis=0)}
        caption = (
            f"{test['measure'].capitalize()}, on the {test['rows']:,} rows of {test['file']}, from which no node has "
            "learned. They are public: nothing protects them."
        )
        levels = {"without a model": float(test["trivial"])}
        self.add("Test error", caption, series, ylabel="test error", levels=levels, from_zero=True)

    def violation(self) -> None:
        if "max_violation" in self.known:
            caption = (
                "The largest violation of a public limit by the released values, logarithmic; zeros are not drawn."
            )
            series = {"violation": self.history["max_violation"]}
            self.add("Largest violation of a limit", caption, series, ylabel="p.u.", log=True)

    def noise(self) -> None:
        if "noise_l1" in self.known:
            column, how, caption = "noise_l1", "as drawn", "Sum of the absolute noise values, as drawn in this run."
        elif "noise_l1_expected" in self.known:
            column, how = "noise_l1_expected", "expected"
            caption = "Expected sum of the absolute noise values. What was really drawn is not part of this report."
        else:
            return
        if (self.run.result.get("privacy") or {}).get("masked"):
            caption += " Each device's share counts by itself; in their sum, which alone is seen, they cancel in part."
        series = {how: self.history[column]}
        if steady(self.history[column]):
            first, last = (f"{number(float(self.history[column][k]), 4)}{self.unit}" for k in (0, 1))
            then = "in each" if first == last else f"in the first and {last} in each after it"
            self.said_once.append(f"Noise per {self.per}, {how}, L1 norm: {first} {then}. {caption}")
            return
        self.add(f"Noise per {self.per}, {how}", caption, series, ylabel="L1 norm" + self.unit, from_zero=True)

    def privacy(self) -> None:
        spent = {
            name.removeprefix("epsilon_"): self.history[name]
            for name in sorted(self.known, key=natural)
            if name.startswith("epsilon_")
        }
        if not spent:
            return
        privacy = self.run.result.get("privacy") or {}
        claimed = privacy.get("claimed")
        levels = {"claimed total": claimed.get("epsilon")} if isinstance(claimed, Mapping) else {}
        budget = ((self.run.scenario.get("privacy") or {}).get("budget") or {}).get("epsilon")
        if budget is not None and budget != levels.get("claimed total"):
            levels["budget"] = budget
        lines = {key: float(level) for key, level in levels.items() if isinstance(level, int | float)}
        caption = (
            "ε spent so far by each node, all answers together. The claim is the total, which is fixed beforehand."
        )
        if self.statement.standing != "upheld":
            caption = "ε counted so far by each node. In this run it is not a protection."
        if all(steady(values) and values[0] == values[-1] for values in spent.values()):
            totals = {node: number(float(values[-1]), 4) for node, values in spent.items()}
            same = len(set(totals.values())) == 1
            amounts = (
                f"{next(iter(totals.values()))} each" if same else ", ".join(f"{n} {e}" for n, e in totals.items())
            )
            self.said_once.append(f"Privacy spent, ε: {amounts}, all of it in the first {self.per}.")
            return
        self.add("Privacy spent", caption, spent, ylabel="ε, cumulative", levels=lines, from_zero=True)

    def traffic(self) -> None:
        if self.run.walks:  # one token an activation
            return
        for column, title, label in (
            ("messages", "Messages per round", "messages"),
            ("bytes", "Traffic per round", "kB"),
        ):
            if column in self.known:
                values = self.history[column] / (1000.0 if column == "bytes" else 1.0)
                chart = plots.bars(f"c{len(self.out)}", title, self.rounds, values, ylabel=label)
                self.out.append(figure(title, chart, "Counted over all edges of the network."))

    def notes(self) -> list[str]:
        upheld = self.statement.standing == "upheld"
        notes = [f"The objective is {WITHHELD}."] if upheld else []
        if self.run.least_cost:
            notes = []
        elif self.run.zones and self.run.noisy_loads and upheld:
            notes = ["The objective is told at the end alone, at the gate's noisy loads."]
        if self.run.walks:
            notes.append(
                "An activation is one node's step; it ends with the token handed to a neighbour, the one message "
                "that counts here. Receipts, repeats and what the coordinator is told of the walk carry no iterate "
                "and are not counted."
            )
        return [*notes, *self.said_once]


def steady(values: Array) -> bool:
    """Whether nothing changes from the second round on: there is nothing to draw."""
    return bool(values.size > 1 and np.all(values[1:] == values[1]) and np.isfinite(values).all())


def charts(run: Run, statement: Statement) -> str:
    """The charts as HTML, with what is to be said of them."""
    if not len(run.history["round"]):
        return paragraphs([f"No {'activation' if run.walks else 'round'} was completed, so there is nothing to draw."])
    drawn = _Charts(run, statement)
    for draw in (
        drawn.residual,
        drawn.tested,
        drawn.objective,
        drawn.violation,
        drawn.noise,
        drawn.privacy,
        drawn.traffic,
    ):
        draw()
    notes = "".join(f'<p class="note">{note}</p>' for note in drawn.notes())
    return f'<div class="charts">{"".join(drawn.out)}</div>{notes}'
