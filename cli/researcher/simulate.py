"""`hushgrid simulate`: a whole fleet under one seed, in which everything goes wrong that can."""

from __future__ import annotations

import argparse
from pathlib import Path

INTERRUPTED = 130  #: exit code of a program that SIGINT has ended


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        nargs="*",
        type=Path,
        help="scenarios with a section privacy, whose nodes become devices [small fleets of each pattern]",
    )
    faults = "how many, at the least, in all fleets together [%(default)s]"
    parser.add_argument("--faults", metavar="N", type=int, default=1000, help=faults)
    parser.add_argument("--seed", metavar="S", type=int, default=1, help="of the first life of a fleet [%(default)s]")
    parser.add_argument("--days", metavar="D", type=int, help="of each life, an interval an hour [15 intervals]")
    parser.add_argument("--jobs", metavar="N", type=int, help="processes [one a core]")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="live the life of a finding again")
    history = "write the history of the first life, or of that of --replay"
    parser.add_argument("--history", metavar="FILE", type=Path, help=history)
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path(), help="where findings are written [.]")


def main(options: argparse.Namespace) -> int:
    from hushgrid.lab.simulate import front

    if options.replay is not None:
        findings = front.replay(options.replay, options.history)
        for finding in findings:
            print(finding)
        print(f"{len(findings)} findings")
        return 1 if findings else 0
    reports = front.simulate(
        options.scenario,
        faults=options.faults,
        seed=options.seed,
        days=options.days,
        jobs=options.jobs,
        history=options.history,
        out=options.out,
        say=print,
    )
    if any(report.broken for report in reports):
        return 1
    return 0 if sum(report.faults for report in reports) >= options.faults else INTERRUPTED
