"""What a coordinator keeps of a run that is over: files that its operator reads."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.kernels.errors import Stopped
from hushgrid.node import system


def keep(
    coordinator: Coordinator, directory: Path, began: time.struct_time, more: dict[str, Any] | None = None
) -> Path:
    """What a coordinator knows of a run that is over, as <name>-<UTC time>.json: nothing a member has not sent it.

    The tables of a dispatch stand beside it, as <name>-<UTC time>-<table>.csv. `more`: what else the record says.
    """
    history = coordinator.ledger.runs.history(coordinator.run)
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
        "solved": coordinator.solved,
        **(more or {}),
        "rounds_done": rounds,
        "consensus_residual": residual,
        "messages": messages,
        "bytes": size,
        **figures,
        "began": _utc(began),
        "ended": _utc(system.gmtime()),
    }
    stamp = time.strftime("%Y%m%dT%H%M%SZ", began)
    path = directory / f"{coordinator.plan.name}-{stamp}-{coordinator.run.hex()[:8]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (columns, rows) in tables.items():
            text = io.StringIO(newline="")
            csv.writer(text).writerows([columns, *rows])
            _replace(path.with_name(f"{path.stem}-{name}.csv"), text.getvalue())
        _replace(path, _text(record, history))
    except OSError as fault:
        raise Stopped(f"{path}: {fault.strerror}, expected to write what the run has shown") from None
    return path


def _text(record: dict[str, Any], history: list[tuple[int, float, int, int]]) -> str:
    """JSON, with a line for each round: there may be hundreds, and nearly a thousand such records."""
    named = (dict(zip(("round", "consensus_residual", "messages", "bytes"), row, strict=True)) for row in history)
    rounds = ",\n    ".join(map(json.dumps, named))
    return json.dumps(record, indent=2).removesuffix("\n}") + f',\n  "history": [\n    {rounds}\n  ]\n}}\n'


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    system.machine.replace(temporary, path)


def _utc(moment: time.struct_time) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)


def summary(coordinator: Coordinator) -> str:
    """A run in a few words."""
    history = coordinator.ledger.runs.history(coordinator.run)
    rounds, residual, messages, _ = history[-1] if history else (0, None, 0, 0)
    # The coordinator of a walk sees no iterate.
    return f"{rounds} rounds" + ("" if residual is None else f", residual {residual:.3g}, {messages} messages")
