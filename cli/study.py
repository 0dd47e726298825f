"""`hushgrid study`: the studies of the papers."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the study to repeat")


def main(options: argparse.Namespace) -> int:
    from hushgrid.lab.studies import catalogue

    if options.name is None:
        print(catalogue.listing())
    else:
        catalogue.run(options.name)
    return 0
