"""`hushgrid case day`: from a network of pandapower or SimBench to the files of a scenario over one day."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from hushgrid.grid_cases.pandapower import LICENCE, SIMBENCH
from hushgrid.kernels.errors import InputError
from hushgrid.lab.day_files import Wanted, write


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("case", metavar="CASE", help="a pandapower .json file, or a code of SimBench: simbench:1-MV-rural--0-sw")
    add("--out", metavar="DIR", type=Path, required=True, help="the directory to write")
    add("--day", metavar="N", type=int, default=0, help="which day of the time series, from 0 [0]")
    add("--days", metavar="N", type=int, default=1, help="so many days, each with profiles of its own [1]")
    add("--periods", metavar="T", type=int, default=24, help="periods that the day is cut into [24]")
    add("--zones", metavar="N", type=int, default=4, help="the number of zones [4]")
    add(
        "--storage",
        metavar="N,MW,MWH",
        help="more storage: so many units a zone, at its largest mean loads, each of this power and energy [none]",
    )
    add("--voltage", metavar="LOW,HIGH", help="limits of every bus, p.u. [the network's own]")
    add(
        "--cost",
        metavar="C1,C2",
        help="$/MWh and $/MW²h of generators without a cost [50, and 12 $/MWh more at the day's highest load]",
    )
    add("--no-iron", action="store_true", help="leave out what transformers lose without a load, as MATPOWER files do")


def day(options: argparse.Namespace) -> str:
    """Write the directory of a scenario; what it holds, in words. Raises InputError before anything is written."""
    from hushgrid.broker.simulation.days import MOST

    name, T, out = options.case, options.periods, options.out
    if not (name.startswith(SIMBENCH) or name.endswith(".json")):
        raise InputError(f"case: found {name!r}, expected a pandapower .json file or {SIMBENCH}CODE")
    for key, value, low, high in (
        ("day", options.day, 0, 10**6),
        ("days", options.days, 1, MOST),
        ("periods", T, 1, 200),
        ("zones", options.zones, 1, 10**4),
    ):
        if not low <= value <= high:
            raise InputError(f"--{key}: found {value}, expected {low} to {high}")
    if (out / "scenario.yaml").exists():
        raise InputError(f"--out {out}: found a scenario in it, expected another directory")
    more = _numbers("--storage", options.storage, 3)
    limits, cost = _numbers("--voltage", options.voltage, 2), _numbers("--cost", options.cost, 2)
    wanted = Wanted(options.day, options.days, T, options.zones, more, limits, cost, iron=not options.no_iron)
    made = write(name, wanted, out)
    several = f" --days {options.days}" if options.days > 1 else ""
    lines = [
        f"wrote {out}: {made.case.name}, {len(made.case.buses)} buses in {len(made.zones)} zones, "
        f"{T} periods of {24 / T:g} h" + (f", {options.days} days" if several else ""),
        f"  load less generation that nobody controls: {made.served.min():.3g} to {made.served.max():.3g} MW",
        f"  storage: {len(made.units)} units of {sum(float(unit[3]) for unit in made.units):.3g} MWh",
        *(["  no time series: all periods are alike"] if made.still else []),
        *(f"  left out: {what}" for what in made.case.omitted),
        *([f"  data: {LICENCE}"] if name.startswith(SIMBENCH) else []),
        f"  hushgrid run {out / 'scenario.yaml'}{several}",
    ]
    return "\n".join(lines)


def _numbers(option: str, text: str | None, count: int) -> list[float]:
    if text is None:
        return []
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or not all(math.isfinite(value) and value >= 0 for value in values):
        raise InputError(f"{option}: found {text[:40]!r}, expected {count} numbers >= 0 with commas between")
    return values
