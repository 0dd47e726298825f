"""`hushgrid report`: the report of a run, built again."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="the directory of a run")


def main(options: argparse.Namespace) -> int:
    from hushgrid.broker.report.build import build

    print(build(options.run_dir))
    return 0
