"""`hushgrid sweep`: a scenario at every point of a grid, under the same seeds."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hushgrid.broker.simulation.interrupts import EndedInALine
from hushgrid.cli.completion import plug_algorithms, scenario_argument
from hushgrid.kernels.errors import InputError
from hushgrid.scenarios import find


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    scenario_argument(parser)
    add(
        "--over",
        metavar="KEY=v1,v2,...",
        action="append",
        default=[],
        help="a key of the scenario and the values it takes, as YAML, whole sections too; repeated: every combination",
    )
    add(
        "--seeds",
        metavar="N",
        default="20",
        help="number of seeds from 0, or first-last, for every point [20]",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", metavar="N", type=int, help="processes of this machine [one a core]")
    where.add_argument("--dask", metavar="URL", help="tcp://host:port of a dask scheduler: its workers make the runs")
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="the sweep's directory, which must not exist yet [runs/<name>-sweep-<UTC time>]",
    )
    add(
        "--resume",
        action="store_true",
        help="continue the sweep in --out: runs with a row there are not repeated",
    )
    add(
        "--set",
        metavar="path.to.key=value",
        action="append",
        default=[],
        help="replace a value in all runs; may be repeated",
    )
    add("--quiet", action="store_true", help="show no progress on stderr")


def main(options: argparse.Namespace) -> int:
    with EndedInALine(options.program, lambda: f"; {_again(options)}"):
        return _sweep(options)


def _again(o: argparse.Namespace) -> str:
    """How to go on."""
    made = o.out is not None and (o.out / "runs.csv").is_file()
    return f"what has ended is in {o.out}: --out {o.out} --resume goes on" if made else "nothing was begun"


def _sweep(o: argparse.Namespace) -> int:
    from hushgrid.broker.simulation import results
    from hushgrid.broker.simulation.progress import Progress
    from hushgrid.lab.comparison.words import summary
    from hushgrid.lab.sweep.grid import axes_of, seeds_of
    from hushgrid.lab.sweep.sweeps import sweep
    from hushgrid.node.schema.yaml_file import assigned, read_yaml

    if o.resume and o.out is None:
        raise InputError("--resume: found no --out, expected the directory of the sweep to go on with")
    plug_algorithms(o)
    if not o.over:
        raise InputError("--over: found none, expected KEY=v1,v2,... at least once")
    over, seeds, file = axes_of(o.over), seeds_of(o.seeds), find(o.scenario)
    laid = dict(map(assigned, o.set))
    if o.out is None:
        o.out = results.default_out(f"{read_yaml(file).get('name', 'sweep')}-sweep")
    workers = None if o.dask else o.workers if o.workers is not None else os.cpu_count() or 1
    with Progress(quiet=o.quiet) as progress:
        table = sweep(
            file, over, seeds, set=laid, out=o.out, resume=o.resume, workers=workers, dask=o.dask, progress=progress
        )
    print(summary(table, o.out))
    return 0
