"""`hushgrid run`: a scenario with simulated nodes."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.simulation.interrupts import EndedInALine, Interrupts
from hushgrid.cli.completion import plug_algorithms, scenario_argument
from hushgrid.kernels.errors import InputError
from hushgrid.scenarios import find

if TYPE_CHECKING:
    from hushgrid.node.config.scenario import Scenario


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    scenario_argument(parser)
    add(
        "--transport",
        choices=("memory", "mqtt"),
        default="memory",
        help="memory: all nodes in this process; mqtt: each node a process of its own [memory]",
    )
    add(
        "--broker",
        metavar="BROKER",
        help="for mqtt: auto (mosquitto if installed, else embedded), embedded, mosquitto, mqtt://host:port or "
        "mqtts://host:port, of a cluster several with commas between them [auto]",
    )
    add("--out", metavar="DIR", type=Path, help="the run directory, which must not exist yet [runs/<name>-<UTC time>]")
    add(
        "--state",
        metavar="DIR",
        type=Path,
        help="a directory of ledgers that count over several runs [ledgers of this run only]",
    )
    add(
        "--days",
        metavar="N",
        type=int,
        help="run N days of a scenario with problem.horizon, each with new data; storage goes on where it was, and "
        "{day} in the name of the profiles' file is the day, from 1",
    )
    add("--seed", type=int, help="seed of noise and walk: bit-identical runs, which are not private")
    add(
        "--set",
        metavar="path.to.key=value",
        action="append",
        default=[],
        help="replace a value of the scenario; may be repeated",
    )
    add("--quiet", action="store_true", help="show no progress on stderr")
    add("--json", action="store_true", help="print result.json, or a list of the days, and nothing else")


def main(options: argparse.Namespace) -> int:
    from hushgrid.broker.report import summary
    from hushgrid.broker.simulation import results
    from hushgrid.broker.simulation.fleet import run_fleet
    from hushgrid.broker.simulation.progress import Progress
    from hushgrid.node.config.scenario import load_scenario

    o = options
    with EndedInALine(o.program) as interrupts:
        if o.broker not in (None, "auto") and o.transport != "mqtt":
            raise InputError(f"--broker: found {o.broker} with --transport {o.transport}, expected --transport mqtt")
        plug_algorithms(o)
        file = find(o.scenario)
        scenario = load_scenario(file, {"seed": o.seed} if o.seed is not None else None, o.set)
        out = o.out or results.default_out(scenario.name)
        if o.days is not None:
            _days(o, scenario, str(file), out, interrupts)
            return 0
        with Progress(quiet=o.quiet or o.json) as progress:
            result = run_fleet(
                scenario,
                str(file),
                o.transport,
                out,
                o.state,
                broker=o.broker or "auto",
                progress=progress,
                interrupts=interrupts,
            )
        with interrupts.held():  # the run is done, whatever comes now
            if o.json:
                sys.stdout.write((out / "result.json").read_text(encoding="utf-8"))
            else:
                print(summary.text(result, scenario))
    return 0


def _days(o: argparse.Namespace, scenario: Scenario, file: str, out: Path, interrupts: Interrupts) -> None:
    """Several days; those that are done are shown, however the others end."""
    from hushgrid.broker.simulation.days import DayFigures, run_days, text
    from hushgrid.broker.simulation.progress import Progress

    done = list[DayFigures]()
    try:
        with Progress(quiet=o.quiet or o.json) as progress:
            each = run_days(
                scenario,
                file,
                o.days,
                out,
                o.state,
                transport=o.transport,
                broker=o.broker or "auto",
                progress=progress,
                interrupts=interrupts,
            )
            for one in each:
                done.append(one)
    finally:
        if done:
            print(json.dumps([asdict(one) for one in done], indent=2) if o.json else text(done, out, o.state))
