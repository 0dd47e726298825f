"""What a run leaves: result.json, and how a run directory is written. `zone_runs` and `row_runs` compute what is in it."""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import yaml

from hushgrid.broker.report import build
from hushgrid.kernels.errors import InputError
from hushgrid.node.plan import findings

if TYPE_CHECKING:
    from hushgrid.broker.prepare import Setup


@dataclass
class Result:
    """A finished run: result.json's fields as attributes of `summary`, and the arrays of CONTRACT's files."""

    summary: dict[str, Any]
    history: dict[str, list[float | int | None]]
    solution: dict[str, np.ndarray]
    setpoints: list[tuple[str, str, str, float, str]]
    trajectory: dict[str, np.ndarray] | None = None
    transcript: list[dict[str, Any]] | None = None
    path: Path | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["summary"][name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Finished:
    """What the transport hands over: where the traces are, how the run ended, what travelled."""

    setup: Setup
    trace: Path
    stopped_because: str
    travelled: list[tuple[int, float, int, int]]  #: (round, residual, messages, bytes) so far
    transport: str
    broker: str
    wall_s: float
    ledgers_kept: bool
    per_node: dict[str, dict[str, Any]]
    centre: bytes | None  #: the coordinator's last state, as its ledger has it
    transcript: list[dict[str, Any]] | None


def summarise(f: Finished, **found: Any) -> dict[str, Any]:
    """result.json: `found` is what the kind of problem gives; what it does not give is null."""
    plan = f.setup.plan
    figures = ("objective", "optimality_gap", "relative_error", "consensus_residual", "max_violation")
    return {
        "name": plan.name, "algorithm": plan.algorithm.name, "variant": plan.algorithm.variant, "transport": f.transport,
        "broker": f.broker, "nodes": len(plan.nodes), "lost": found.get("lost"), "walk": found.get("walk"),
        "rounds_done": found["rounds_done"],
        "stopped_because": f.stopped_because, **{key: found.get(key) for key in figures},
        "messages": found["messages"], "bytes": found["bytes"], "wall_s": round(f.wall_s, 3),
        "privacy": _privacy(f, found["capped"]), "versions": versions(),
    }  # fmt: skip


def _privacy(f: Finished, capped: list[str]) -> dict[str, Any]:
    t, plan = f.setup.terms, f.setup.plan
    common = {
        "per_node": f.per_node,
        "upheld": f.setup.upheld,
        "findings": findings(plan),
        "ledgers": "kept" if f.ledgers_kept else "run",
    }
    if t is None or plan.privacy is None:
        return common | dict.fromkeys(
            ("claimed", "spent", "adjacency", "mechanism", "accountant", "sampler", "answers", "capped")
        )
    return {
        "claimed": {"epsilon": t.epsilon, "delta": t.delta},
        "spent": _most(f.per_node),
        "adjacency": _drop_none(plan.privacy.adjacency),
        "mechanism": t.mechanism, "accountant": t.accountant, "sampler": f.setup.sampler, "answers": t.answers,
        "capped": capped,
    } | common  # fmt: skip


def _most(per_node: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the node that has spent most has spent; epsilon None where that is unbounded."""
    spent: list[dict[str, Any]] = [node["spent"] for node in per_node.values()]
    return max(spent, key=lambda s: inf if s["epsilon"] is None else s["epsilon"])


def _drop_none(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {k: _drop_none(v) for k, v in value.items() if v is not None}
    return [_drop_none(v) for v in value] if isinstance(value, list) else value


def versions() -> dict[str, str]:
    """What computed this run."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("hushgrid", "numpy", "scipy", "clarabel", "msgspec", "paho-mqtt"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def default_out(name: str) -> Path:
    """runs/<name>-<UTC time>, numbered where there are several within a second."""
    path = Path("runs") / f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    again = (path.with_name(f"{path.name}-{k}") for k in range(2, 1000))
    return path if not path.exists() else next(other for other in again if not other.exists())


def check_out(out: Path) -> None:
    """An existing path, or one where no directory can be made, is refused before anything runs."""
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: found an existing path, expected a new run directory (--out)")
    check_place(out, "--out")


def check_place(path: Path, option: str) -> None:
    """InputError unless `path` is a directory to write to, or can be made one."""
    nearest = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "not writable" if nearest.is_dir() else "not a directory"
        raise InputError(f"{option} {path}: found that {nearest} is {what}, expected a place for a directory")


def write(result: Result, setup: Setup, ledgers: Sequence[Path], out: Path) -> None:
    """The run directory, complete or not at all: built beside its place, then renamed into it."""
    check_out(out)
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        (partial / "result.json").write_text(json.dumps(result.summary, indent=2) + "\n")
        _csv(partial / "history.csv", list(result.history), list(zip(*result.history.values(), strict=True)))
        np.savez(partial / "solution.npz", allow_pickle=False, **result.solution)
        _csv(partial / "setpoints.csv", ["node", "quantity", "element", "value", "unit"], result.setpoints)
        (partial / "scenario.yaml").write_text(yaml.safe_dump(as_yaml(setup), sort_keys=False))
        if result.trajectory is not None:
            np.savez(partial / "trajectory.npz", allow_pickle=False, **result.trajectory)
        if result.transcript is not None:
            with (partial / "transcript.jsonl").open("w") as file:
                file.writelines(json.dumps(line) + "\n" for line in result.transcript)
        (partial / "ledger").mkdir()
        for ledger in ledgers:
            shutil.copy2(ledger, partial / "ledger" / ledger.name)
        build(partial)
        check_out(out)
        partial.rename(out)
    except OSError as error:
        raise InputError(f"{error.filename or out}: {error.strerror or error}, expected a writable place") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    result.path = out


def as_yaml(setup: Setup) -> dict[str, Any]:
    """The resolved scenario: every default and every zone written out."""
    resolved: dict[str, Any] = _drop_none(setup.scenario)
    return setup.written_out(resolved)


def _csv(path: Path, header: list[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows])
