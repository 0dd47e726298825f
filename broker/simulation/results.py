"""How a run directory is written. `problems/` computes what is in it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from hushgrid.broker.report.build import build
from hushgrid.broker.report.result import Result
from hushgrid.grid_cases.setpoints import COLUMNS
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import DocumentView


def default_out(name: str) -> Path:
    """runs/<name>-<UTC time>, numbered where there are several within a second."""
    path = Path("runs") / f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    again = (path.with_name(f"{path.name}-{k}") for k in range(2, 1000))
    return path if not path.exists() else next(other for other in again if not other.exists())


def check_out(out: Path) -> None:
    """Before anything runs: raises InputError if the path exists, or no directory can be made there."""
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: found an existing path, expected a new run directory (--out)")
    check_place(out, "--out")


def check_place(path: Path, option: str) -> None:
    """Raises InputError unless `path` is a directory to write to, or can be made one."""
    nearest = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "not writable" if nearest.is_dir() else "not a directory"
        raise InputError(f"{option} {path}: found that {nearest} is {what}, expected a place for a directory")


def write(result: Result, scenario: DocumentView, copies: Sequence[Path], out: Path) -> None:
    """The run directory, complete or not at all: it is built beside its place, then renamed into it.

    scenario: the resolved one. copies: ledgers, and files that the scenario names. Raises InputError if `out` exists,
    or cannot be written.
    """
    check_out(out)
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        (partial / "result.json").write_text(json.dumps(result.summary, indent=2) + "\n")
        _csv(partial / "history.csv", list(result.history), list(zip(*result.history.values(), strict=True)))
        np.savez(partial / "solution.npz", allow_pickle=False, **result.solution)
        _csv(partial / "setpoints.csv", ["node", *COLUMNS], result.setpoints)
        for name, (columns, rows) in result.tables.items():
            _csv(partial / f"{name}.csv", list(columns), rows)
        (partial / "scenario.yaml").write_text(
            yaml.safe_dump(dict(scenario), sort_keys=False, default_flow_style=None, width=100)
        )
        if result.trajectory is not None:
            np.savez(partial / "trajectory.npz", allow_pickle=False, **result.trajectory)
        if result.transcript is not None:
            with (partial / "transcript.jsonl").open("w") as file:
                file.writelines(json.dumps(line) + "\n" for line in result.transcript)
        (partial / "ledger").mkdir()
        for copy in copies:
            shutil.copy2(copy, partial / "ledger" / copy.name if copy.suffix == ".ledger" else partial / copy.name)
        build(partial)
        check_out(out)
        partial.rename(out)
    except OSError as error:
        raise InputError(f"{error.filename or out}: {error.strerror or error}, expected a writable place") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    result.path = out


def _csv(path: Path, header: list[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows])
