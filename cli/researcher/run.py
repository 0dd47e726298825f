"""`hushgrid run`: a scenario with simulated nodes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hushgrid.broker.simulation.interrupts import EndedInALine
from hushgrid.cli.completion import plug_algorithms, scenario_argument
from hushgrid.kernels.errors import InputError
from hushgrid.scenarios import find


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
        "mqtts://host:port [auto]",
    )
    add("--out", metavar="DIR", type=Path, help="the run directory, which must not exist yet [runs/<name>-<UTC time>]")
    add(
        "--state",
        metavar="DIR",
        type=Path,
        help="a directory of ledgers that count over several runs [ledgers of this run only]",
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
    add("--json", action="store_true", help="print result.json and nothing else")


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
