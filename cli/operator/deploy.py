"""`hushgrid deploy DIR`: the installer, the units, the broker's files and the example fleets, out of the program."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="a directory that does not exist yet")


def main(options: argparse.Namespace) -> int:
    from hushgrid.deploy import write

    made = write(options.directory)
    print(f"{options.directory}: {len(made)} files\nnext: sh {options.directory}/install.sh, which says how it is used")
    return 0
