"""`hushgrid attack`: what an eavesdropper on every edge recovers from a run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN_DIR", type=Path, help="the directory of a run with a transcript (run.record)"
    )
    parser.add_argument(
        "--truth",
        metavar="DIR",
        type=Path,
        help="the true rows, n0.npz, n1.npz, ... of A and b: scores what was recovered",
    )
    parser.add_argument("--shape", metavar="HxW", help="height and width of rows as images [the square of their width]")
    parser.add_argument("--json", action="store_true", help="print what was recovered as JSON, and nothing else")


def main(options: argparse.Namespace) -> int:
    from hushgrid.lab.attacks.attack import attack
    from hushgrid.lab.attacks.page import verdict

    summary = attack(options.run, options.truth, options.shape)
    if options.json:
        print(json.dumps(summary, indent=2))
        return 0
    print(f"{summary['name']}: {summary['algorithm']}, variant {summary['variant']}")
    for line in verdict(summary):
        print(f"  {line}")
    if scores := summary["scores"]:
        numbers = {key: value for key, value in scores.items() if isinstance(value, float)}
        print("  against the truth: " + ", ".join(f"{key} {value:.4g}" for key, value in numbers.items()))
    print(options.run / "attack/attack.html")
    return 0
