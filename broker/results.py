"""What a run leaves: history, solution, set-points and result.json, computed from the traces of its nodes.

A trace row is a function of gate answers, except its noise cell. What is computed from raw data or from the noise is
filled only where the run is not private; of an upheld run nothing here has ever read a load.
"""

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
from typing import Any

import msgspec
import numpy as np
import yaml

from hushgrid.broker.prepare import Setup
from hushgrid.broker.report import build
from hushgrid.broker.traces import coordinator_rows, member_rows
from hushgrid.grid_cases.zone import ZoneModel, objective, setpoints, violation
from hushgrid.kernels.errors import InputError
from hushgrid.node.plan import Terms, findings


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
    transcript: list[dict[str, Any]] | None

    @property
    def rounds_done(self) -> int:
        return max((r[0] for r in self.travelled), default=0)


def collect(f: Finished) -> Result:
    """Everything of RUN_DIR, from the traces."""
    setup, T = f.setup, f.rounds_done
    plan, t, models, nodes = setup.plan, setup.terms, setup.models, setup.plan.nodes
    w = coordinator_rows(f.trace, len(setup.keys_w), T)
    z, lam, drawn = {}, {}, {}
    for p in nodes:
        z[p], lam[p], drawn[p] = member_rows(f.trace, models[p], T)
    gap = sum(np.sum((w[:, setup.position[p]] - z[p][:, models[p].shared]) ** 2, axis=1) for p in nodes)
    residual = np.sqrt(gap)
    worst = [max(violation(models[p], z[p][k]) for p in nodes) for k in range(T)]
    objectives: list[float | None] = [None] * T
    noise: list[float | None] = [None] * T
    if setup.reveal:
        d = {p: setup.loads(p) for p in nodes}
        objectives = [sum(objective(models[p].A, z[p][k], d[p]) for p in nodes) for k in range(T)]
        if t is not None:
            noise = [float(v) if np.isfinite(v := sum(drawn[p][k] for p in nodes)) else None for k in range(T)]
    answers = [
        0 if t is None else 1 if t.mode == "input" else k * plan.algorithm.local_updates for k in range(1, T + 1)
    ]
    expected: list[float | None] = [None] * T
    if t is not None and setup.expected_l1 is not None:
        each = setup.expected_l1 * (1 if t.mode == "input" else plan.algorithm.local_updates)
        expected = [each if k == 0 or t.mode != "input" else 0.0 for k in range(T)]
    so_far = {r[0]: r for r in f.travelled}
    messages = [so_far.get(k, (k, 0.0, 0, 0))[2] for k in range(T + 1)]
    size = [so_far.get(k, (k, 0.0, 0, 0))[3] for k in range(T + 1)]
    history: dict[str, list[float | int | None]] = {
        "round": list(range(1, T + 1)),
        "objective": list(objectives),
        "consensus_residual": [float(v) for v in residual],
        "max_violation": list(worst),
        "noise_l1": list(noise),
        "noise_l1_expected": list(expected),
        "messages": [messages[k] - messages[k - 1] for k in range(1, T + 1)],
        "bytes": [size[k] - size[k - 1] for k in range(1, T + 1)],
    }
    if t is not None:
        for p in nodes:
            true = honest(t, models[p])
            costs = {k: true.cost(k) if true else None for k in set(answers)}
            history[f"epsilon_{p}"] = [costs[k] for k in answers]
    final = objectives[-1] if T else None
    optimum = setup.optimum() if setup.reveal and final is not None else None
    summary: dict[str, Any] = {
        "name": plan.name, "algorithm": plan.algorithm.name, "variant": plan.algorithm.variant, "transport": f.transport,
        "broker": f.broker, "nodes": len(nodes), "rounds_done": T, "stopped_because": f.stopped_because,
        "objective": final, "optimality_gap": final - optimum if final is not None and optimum is not None else None,
        "relative_error": None, "consensus_residual": float(residual[-1]) if T else None,
        "max_violation": worst[-1] if T else None, "messages": messages[T], "bytes": size[T], "wall_s": round(f.wall_s, 3),
        "privacy": _privacy(f), "versions": versions(),
    }  # fmt: skip
    solution = {"w": w[-1] if T else np.zeros(len(setup.keys_w)), "keys_w": np.array(setup.keys_w)}
    for p in nodes:
        solution[f"z_{p}"] = z[p][-1] if T else models[p].start
        solution[f"keys_{p}"] = np.array(models[p].keys)
    trajectory = None
    if setup.scenario.run.record == "trajectory":
        trajectory = {"w": w} | {f"z_{p}": z[p] for p in nodes} | {f"lam_{p}": lam[p] for p in nodes}
    points = [(p, *row) for p in nodes for row in setpoints(models[p], solution[f"z_{p}"], setup.case.base_mva)]
    return Result(summary, history, solution, points, trajectory, f.transcript)


def honest(t: Terms, model: ZoneModel) -> Terms | None:
    """The terms at what an answer really costs: the paper's noise at 2 beta |a_i|; None where (3.4) has no bound."""
    if not t.published:
        return t
    row = model.row_l1 if t.mechanism == "laplace" else model.row_l2
    return None if t.mode.startswith("output") else msgspec.structs.replace(t, per_answer=t.per_answer * row)


def _privacy(f: Finished) -> dict[str, Any]:
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
        "capped": plan.nodes if t.capped else [],
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
    resolved["problem"] |= {"zones": [list(b) for b in setup.zones.values()]}
    return resolved


def _csv(path: Path, header: list[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([["" if v is None else repr(v) if isinstance(v, float) else v for v in row] for row in rows])
