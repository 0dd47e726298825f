"""`hushgrid bench`: the benchmarks."""

from __future__ import annotations

import argparse

from hushgrid.kernels.errors import InputError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one benchmark [all]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def main(options: argparse.Namespace) -> int:
    from hushgrid.lab.studies.catalogue import STUDIES

    if options.name in STUDIES:
        raise InputError(f"bench: found {options.name!r}, a study, expected 'hushgrid study {options.name}'")
    from hushgrid.lab.benchmarks import bench

    return bench.main(options.name, options.json)
