"""`hushgrid study`: the studies of the papers."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the study to repeat; without it, a list")
    parser.add_argument(
        "--list", action="store_true", help="what of the papers is here: algorithms, theorems, tables and figures"
    )
    parser.add_argument(
        "--set",
        metavar="path.to.key=value",
        action="append",
        default=[],
        help="change a key of a study (federated: images.train, .test, .classes, .nodes, .pool; answers; seeds)",
    )
    parser.add_argument(
        "--pages",
        metavar="DIR",
        nargs="?",
        const="runs/studies",
        type=Path,
        help="write Markdown, CSV and pictures to DIR [runs/studies]; without it, tables on stdout",
    )


def main(options: argparse.Namespace) -> int:
    from hushgrid.lab.studies import catalogue, coverage

    if options.list:
        print(coverage.listing())
    elif options.name is None:
        print(catalogue.listing())
    else:
        catalogue.run(options.name, options.pages, options.set)
    return 0
