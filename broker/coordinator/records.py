"""What a coordinator leaves of its runs in its directory: a record of each, and a line of each interval; the last ones."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from pathlib import Path
from typing import Any

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.kernels.errors import Stopped
from hushgrid.node.durable import write_file

#: Of intervals.csv. Times are UTC, by the wall clock.
COLUMNS = (
    *("interval", "began", "ended", "outcome", "cause", "reason", "run", "start", "cold"),
    *("rounds", "residual", "quality", "held", "absent"),
)


def keep(
    coordinator: Coordinator, directory: Path, began: time.struct_time, more: dict[str, Any] | None = None
) -> Path:
    """What a coordinator knows of a run that is over, as <name>-<UTC time>.json: nothing a member has not sent it.

    The tables of a dispatch stand beside it, as <name>-<UTC time>-<table>.csv. `more`: what else the record says.
    """
    history = coordinator.ledger.history(coordinator.run)
    error = coordinator.error
    rounds, residual, messages, size = history[-1] if history else (0, None, 0, 0)
    figures, tables = coordinator.answer()
    record: dict[str, Any] = {
        "name": coordinator.plan.name,
        "run": coordinator.run.hex(),
        "algorithm": coordinator.plan.algorithm.name,
        "members": coordinator.members,
        "outcome": "stopped" if error else "done",
        "stopped_because": str(error) if error else coordinator.reason,
        "exit_code": error.exit_code if error else 0,
        "lost": coordinator.lost,
        **(more or {}),
        "rounds_done": rounds,
        "consensus_residual": residual,
        "messages": messages,
        "bytes": size,
        **figures,
        "began": utc(began),
        "ended": utc(time.gmtime()),
        "history": [
            dict(zip(("round", "consensus_residual", "messages", "bytes"), row, strict=True)) for row in history
        ],
    }
    stamp = time.strftime("%Y%m%dT%H%M%SZ", began)
    path = directory / f"{coordinator.plan.name}-{stamp}-{coordinator.run.hex()[:8]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (columns, rows) in tables.items():
            text = io.StringIO(newline="")
            csv.writer(text).writerows([columns, *rows])
            _replace(path.with_name(f"{path.stem}-{name}.csv"), text.getvalue())
        _replace(path, json.dumps(record, indent=2) + "\n")
    except OSError as fault:
        raise Stopped(f"{path}: {fault.strerror}, expected to write what the run has shown") from None
    return path


def note(path: Path, row: dict[str, Any], most: int) -> None:
    """Adds an interval to the table at `path`, which keeps the last `most`, and now and then up to twice as many.

    An interval whose line is there already, because the process ended meanwhile, gets another line in its place. Raises
    Stopped if the disk does not take it.
    """
    line = _line([row.get(c, "") for c in COLUMNS])
    try:
        lines = path.read_text().splitlines(keepends=True)[1:] if path.exists() else []
        whole = [one for one in lines if one.endswith("\n")]
        again = bool(whole) and whole[-1].split(",")[0] == str(row["interval"])
        if path.exists() and whole == lines and not again and len(whole) < 2 * most:
            with path.open("a") as file:
                file.write(line)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [*(whole[:-1] if again else whole), line][-most:]
        write_file(path, "".join([_line(COLUMNS), *kept]).encode())
    except (OSError, UnicodeDecodeError) as fault:
        raise Stopped(f"{path}: {getattr(fault, 'strerror', fault)}, expected to write how an interval ended") from None


def prune(directory: Path, most: int) -> None:
    """Removes the oldest records, with their tables, beyond the last `most`; one that resists stays."""
    try:
        records = sorted(directory.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        for path in records[: max(len(records) - most, 0)]:
            for table in directory.glob(f"{path.stem}-*.csv"):
                table.unlink()
            path.unlink()
    except OSError:
        return


def _line(values: Any) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow([str(v).replace("\n", " ") for v in values])
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)


def utc(moment: time.struct_time) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
