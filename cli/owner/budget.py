"""`hushgrid budget plan FILE`: the error that a budget buys, from public numbers alone. No data file is opened."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise, product
from math import ceil, floor, hypot, pi, sqrt
from pathlib import Path
from typing import Literal, NamedTuple

from hushgrid.grid_cases import load
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.limits import mu_max
from hushgrid.kernels.types import Document
from hushgrid.node.columns import columns
from hushgrid.node.config.consent import YEAR, renews
from hushgrid.node.config.device import DeviceConfig, load_device
from hushgrid.node.problems.power_flow.section import ZoneData
from hushgrid.node.schema.durations import PATTERN, in_words, seconds
from hushgrid.node.schema.sections import Budget

FRESH = (1, 4, 24, 96)  #: answers a window that are compared, unless the file or the caller says which


class Unit(NamedTuple):
    """What one change is: how far it moves the data in both norms, and in which unit errors are said."""

    l1: float
    l2: float
    name: str


class Drift(NamedTuple):
    """How far a load moves, as everybody knows: its variance over age, linear between the points and from 0."""

    ages: tuple[float, ...]  #: s, rising
    moved: tuple[float, ...]  #: rms change of a load of this age
    walk: bool  #: a random walk through the one point; else a load moves no farther than it has at the last one
    text: str

    @classmethod
    def parsed(cls, option: str) -> Drift:
        """`X`, the change in an hour, or `AGE=X,...`. Raises InputError."""
        walk = "=" not in option
        pairs = (
            [("1h", option)] if walk else [(age, x) for age, _, x in (one.partition("=") for one in option.split(","))]
        )
        ages = tuple(_time("--drift", age) for age, _ in pairs)
        moved = tuple(_numbers("--drift", ",".join(x for _, x in pairs), 0, 1e9))
        if any(a >= b for a, b in pairwise(ages)):
            raise InputError(f"--drift: found {option[:60]!r}, expected rising ages: 15min=8,1h=12")
        return cls(ages, moved, walk, option)

    def stale(self, oldest: float, every: float | None) -> float:
        """Rms change of a load since it was answered, over all ages from 0 to `oldest`, s, a run each `every`."""
        steps = max(1, round(oldest / every)) if every else 1000
        return sqrt(sum(self.variance(oldest * k / steps) for k in range(steps + 1)) / (steps + 1))

    def variance(self, age: float) -> float:
        if self.walk:
            return self.moved[0] ** 2 * age / self.ages[0]
        before, low = 0.0, 0.0
        for point, x in zip(self.ages, self.moved, strict=True):
            if age <= point:
                return low + (x**2 - low) * (age - before) / (point - before)
            before, low = point, x**2
        return low

    def in_words(self, unit: str) -> str:
        if self.walk:
            return f"a load moves by {float(self.text):g} {unit} in an hour (rms, as a random walk does)"
        changes = ", ".join(f"{x:g} in {in_words(age)}" for age, x in zip(self.ages, self.moved, strict=True))
        return f"a load moves by {changes} ({unit} rms), and no farther"


class Row(NamedTuple):
    """What one choice buys."""

    epsilon: float  #: of a window
    mechanism: Literal["laplace", "gaussian"]
    fresh: int  #: K, answers a window; each is repeated until the next
    rounds: int  #: gate answers of one run: 1 in mode input, whatever the rounds; else one a round
    run: float  #: epsilon of one run, by itself, at the budget's delta: what a scenario's privacy.epsilon may be
    answer: float  #: rms error of one gate answer, of one load
    noise: float  #: rms error of one load after the run: of the mean of its gate answers
    age: float  #: s, of the oldest answer in use
    stale: float | None  #: rms change of one load since it was answered, by --drift; None without it
    total: float  #: root of the sum of squares of noise and stale


def arguments(parser: argparse.ArgumentParser) -> None:
    does = parser.add_subparsers(metavar="WHAT", dest="what", required=True)
    text = "Print the error that each choice buys, and mark the best row."
    add = does.add_parser("plan", help=text, description=text).add_argument
    add("file", metavar="FILE", type=Path, help="a device's file")
    add("--epsilon", metavar="E,...", help="epsilon a window [the file's]")
    add("--fresh", metavar="K,...", help="answers a window [the file's, or 1,4,24,96]")
    add("--mechanism", metavar="NAME", choices=("laplace", "gaussian"), help="laplace or gaussian [both]")
    add("--rounds", metavar="R,...", help="gate answers of a run: 1 in mode input, else one a round [1]")
    add("--every", metavar="TIME", help="time between runs, such as 15min: no answer is fresh more often")
    text = "how far a load moves in an hour, rms, MW, or by its age, 15min=8,1h=12: public knowledge [unknown]"
    add("--drift", metavar="X", help=text)
    add("--json", action="store_true", help="print JSON instead of text")


def main(options: argparse.Namespace) -> int:
    print(plan(options))
    return 0


def plan(options: argparse.Namespace) -> str:
    """The table, or JSON. Raises InputError if the file is no device's, or an option is no number in its range."""
    config = load_device(options.file)
    budget, unit = config.budget, unit_of(config)
    span = budget.span
    every = None if options.every is None else _time("--every", options.every)
    epsilons = _numbers("--epsilon", options.epsilon, 1e-9, 1e9) or [budget.epsilon]
    most = floor(span / every * (1 + 1e-9)) if span and every else None
    fresh = [int(k) for k in _numbers("--fresh", options.fresh, 1, 1e7, integers=True)]
    fresh = fresh or ([config.fresh] if config.fresh else sorted({*FRESH, *([most] if most else [])}))
    fresh = [k for k in fresh if most is None or k <= most]
    if not fresh:
        raise InputError(f"--fresh: found more answers than runs, expected at most {most} a window (--every)")
    drift = None if options.drift is None else Drift.parsed(options.drift)
    if options.mechanism == "gaussian" and not budget.delta:
        raise InputError(f"{options.file}: budget.delta: missing, expected a value (--mechanism gaussian)")
    mechanisms = [options.mechanism] if options.mechanism else ["laplace", "gaussian"] if budget.delta else ["laplace"]
    rounds = [int(r) for r in _numbers("--rounds", options.rounds, 1, 1e7, integers=True)] or [1]
    rows = [
        bought(budget, unit, mechanism, (epsilon, k, r), every, drift)
        for epsilon, k, mechanism, r in product(epsilons, fresh, mechanisms, rounds)
    ]
    best = best_of(rows, drift)
    return _json(config, unit, rows, best) if options.json else "\n".join(_text(config, unit, rows, best, drift))


def unit_of(config: DeviceConfig) -> Unit:
    """The owner's unit of change. Of zones errors are in MW (MVAr); of rows,
    in multiples of the answer's sensitivity.
    """
    adjacency = config.budget.adjacency
    assert adjacency is not None  # load_device has seen to it
    change = adjacency.of_loads
    if not isinstance(config.data, ZoneData):
        return Unit(1.0, 1.0, "x sensitivity")
    if change is not None and change.relative is not None:
        return Unit(100 * change.relative, 100 * change.relative, "% of capacity")
    base = load(config.data.case).base_mva
    if change is not None and change.pair is not None:
        return Unit(base * (change.pair + change.reactive), base * hypot(change.pair, change.reactive), "MW")
    return Unit(base * adjacency.beta, base * adjacency.beta, "MW")


def bought(
    budget: Budget,
    unit: Unit,
    mechanism: Literal["laplace", "gaussian"],
    choice: tuple[float, int, int],
    every: float | None,
    drift: Drift | None,
) -> Row:
    """`choice`: epsilon a window, fresh answers a window, gate answers a run. docs/accounting.md has the formulas."""
    epsilon, fresh, rounds = choice
    delta, answers = budget.delta or 0.0, fresh * rounds
    if mechanism == "gaussian":
        mu = mu_max(epsilon, delta) / sqrt(answers)
        answer = unit.l2 / mu
        run = _alone(mu * sqrt(rounds), delta)
    else:
        by_gdp = sqrt(2 / pi) * mu_max(epsilon, delta) / sqrt(answers) if delta else 0.0
        each = max(epsilon / answers, by_gdp)
        answer, run = sqrt(2) * unit.l1 / each, each * rounds
    noise = answer / sqrt(rounds)
    age = max(budget.span / fresh - (every or 0.0), 0.0) if budget.span else 0.0
    stale = None if drift is None else drift.stale(age, every)
    return Row(epsilon, mechanism, fresh, rounds, run, answer, noise, age, stale, hypot(noise, stale or 0.0))


def _alone(mu: float, delta: float) -> float:
    from hushgrid.kernels.privacy.accounting import gdp_epsilon

    return gdp_epsilon(mu, delta)


def best_of(rows: list[Row], drift: Drift | None) -> list[Row]:
    """For each epsilon: with a drift, the least error in all; without one, the least noise of the freshest rows."""
    freshest = max(row.fresh for row in rows)
    open_to = [row for row in rows if drift is not None or row.fresh == freshest]
    return [
        min((row for row in open_to if row.epsilon == epsilon), key=lambda row: row.total)
        for epsilon in dict.fromkeys(row.epsilon for row in rows)
    ]


def _time(option: str, text: str) -> float:
    import re

    if not re.match(PATTERN, text) or not (length := seconds(text)):
        raise InputError(f"{option}: found {text[:60]!r}, expected a length of time above 0s: 30s, 15min or 24h")
    return length


def _numbers(option: str, option_text: str | None, low: float, high: float, *, integers: bool = False) -> list[float]:
    """The numbers of an option, none if it is not given. InputError names the first that is out of its range."""
    values = []
    for text in option_text.split(",") if option_text is not None else ():
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high or (integers and value != int(value)):
            kind = "whole numbers" if integers else "numbers"
            raise InputError(
                f"{option}: found {text[:60]!r}, expected {kind} from {low:g} to {high:g}, with commas between"
            )
        values.append(value)
    return values


def _json(config: DeviceConfig, unit: Unit, rows: list[Row], best: list[Row]) -> str:
    budget = config.budget
    facts: Document = {
        "node": config.node,
        "delta": budget.delta or 0.0,
        "window_s": budget.span,
        "lifetime": budget.lifetime,
        "unit": unit.name,
        "rows": [row._asdict() | {"best": row in best} for row in rows],
    }
    return json.dumps(facts, indent=2)


def _text(config: DeviceConfig, unit: Unit, rows: list[Row], best: list[Row], drift: Drift | None) -> Iterator[str]:
    budget = config.budget
    delta = f", delta {budget.delta:g}" if budget.delta else ", no delta (so no gaussian noise)"
    counted = renews(budget) or " over the life of the ledger (no window)"
    yield f"node {config.node}: budget epsilon {budget.epsilon:g}{delta}{counted}"
    yield (
        f"rms error of one load in {unit.name}: noise only, from public numbers; "
        f"what a load does meanwhile is not in it"
    )
    header = ["", "epsilon", "mechanism", "fresh", "rounds", "epsilon a run", "one answer", "a run", "age up to"]
    table: list[list[object]] = []
    for row in rows:
        cells: list[object] = [
            "*" if row in best else "",
            f"{row.epsilon:g}",
            row.mechanism,
            row.fresh,
            row.rounds,
            f"{row.run:.4g}",
        ]
        cells += [f"{row.answer:.3g}", f"{row.noise:.3g}", in_words(row.age) if budget.span else "-"]
        table.append(cells if drift is None else [*cells, f"{row.stale:.3g}", f"{row.total:.3g}"])
    yield columns(table, header if drift is None else [*header, "stale", "in all"], indent=2)
    if drift is None:
        yield (
            "*: the least noise of the freshest; --drift X says how far a load moves in an hour, "
            "and finds the least of both"
        )
    else:
        yield f"*: the least in all, if {drift.in_words(unit.name)}"
    if budget.span:
        times = ceil(YEAR / budget.span)
        yield (
            f"each window of {in_words(budget.span)} begins anew: someone present for a year has told {times} times "
            "the epsilon (pure); the window is closed, so an answer that comes early is refused until the first has "
            "left it"
        )
