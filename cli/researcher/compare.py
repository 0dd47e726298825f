"""`hushgrid compare`: finished runs beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN_DIR", type=Path, nargs="+", help="the directories of two runs or more")
    parser.add_argument("--out", metavar="FILE", type=Path, help="also write a page with curves to this file (HTML)")


def main(options: argparse.Namespace) -> int:
    from hushgrid.kernels.errors import InputError
    from hushgrid.lab.comparison.runs import Compared

    compared = Compared(options.runs)
    print(compared.text())
    if options.out is not None:
        try:
            options.out.write_text(compared.page(), encoding="utf-8")
        except OSError as error:
            raise InputError(f"--out {options.out}: {error.strerror}, expected a place for a file") from None
        print(f"page: {options.out}")
    return 0
