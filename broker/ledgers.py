"""`hushgrid ledger`: what a device has spent, on what, and what is left. Reading changes nothing, not even a time."""

from __future__ import annotations

import fcntl
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hushgrid.broker.summary import columns
from hushgrid.kernels.accounting import total_epsilon
from hushgrid.kernels.errors import InputError
from hushgrid.node import wire
from hushgrid.node.allowance import Allowance
from hushgrid.node.config import Allow, Budget, load_device
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import RunPlan, Terms, decode_plan

#: Of a run that was refused: its plan is not kept, or cannot be read.
_NOTHING = {"name": "?", "algorithm": None, "adjacency": None, "answers": 0, "epsilon": 0.0, "delta": 0.0}
_LOCKED = (0x40000000, 512)  #: SQLite's lock bytes (PENDING_BYTE, RESERVED and SHARED), first and number


class Source(NamedTuple):
    """A ledger's place, and what its device's configuration adds."""

    path: Path
    mark: Path | None = None
    budget: Budget | None = None


def source(file: Path, mark: Path | None) -> Source:
    """`file` is a ledger, or the configuration of the device it belongs to."""
    if file.suffix in (".yaml", ".yml"):
        config = load_device(file)
        kept = Path(config.mark) if config.mark else None
        return Source(Path(config.state) / f"{config.node}.ledger", mark or kept, config.budget)
    return Source(file, mark)


@contextmanager
def reading(where: Source) -> Iterator[Ledger]:
    """A copy of the ledger, opened: opening a database, even to read it, would write beside it. InputError, one line.

    A ledger held by a process is none to be read: what is committed may not be in its files yet.
    """
    path = where.path
    with tempfile.TemporaryDirectory(prefix="hushgrid-ledger-") as scratch:
        copy, mark = Path(scratch) / "copy.ledger", Path(scratch) / "mark"
        try:
            with path.open("rb") as file:
                if file.read(16) != b"SQLite format 3\0":
                    raise InputError(f"{path}: found no SQLite file, expected a ledger")
                try:
                    fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, _LOCKED[1], _LOCKED[0])
                except OSError:
                    raise InputError(
                        f"{path}: held by another process, expected one process per ledger (stop the device first)"
                    ) from None
                shutil.copyfile(path, copy)
                log = path.with_name(path.name + "-wal")
                with suppress(FileNotFoundError):
                    shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}, expected a ledger") from None
        if where.mark is not None:
            try:
                shutil.copyfile(where.mark, mark)
            except OSError as error:
                raise InputError(f"{where.mark}: {error.strerror}, expected the mark of {path}") from None
        try:
            ledger = Ledger(copy, _owner(copy), mark if where.mark else None)
        except InputError as error:
            raise InputError(str(error).replace(str(copy), str(path)).replace(str(mark), str(where.mark))) from None
        try:
            yield ledger
        finally:
            ledger.close()


def _owner(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as db:
            return str(db.execute("SELECT value FROM meta WHERE key = 'node'").fetchone()[0])
    except (sqlite3.DatabaseError, TypeError) as error:
        what = "no owner" if isinstance(error, TypeError) else str(error)
        raise InputError(f"{path}: found {what}, expected a ledger") from None


def show(file: Path, mark: Path | None, delta: float | None, as_json: bool) -> str:
    """What has been spent, by run and in all. delta: at which epsilon is stated, else each run's (the budget's) own."""
    if delta is not None and not 0 <= delta < 1:
        raise InputError(f"--delta: found {delta}, expected a number in [0, 1)")
    where = source(file, mark)
    with reading(where) as ledger:
        seen = facts(ledger, where, delta)
    return json.dumps(seen, indent=2) if as_json else _text(seen)


def facts(ledger: Ledger, where: Source, delta: float | None = None) -> dict[str, Any]:
    """All that `show` says."""
    told, spends = ledger.told(), ledger.spends()
    runs, last = [], dict[str, tuple[bytes, RunPlan, Terms]]()
    for run in ledger.runs():
        plan = _plan(ledger.node, run.plan)
        row: dict[str, Any] = {"run": run.id.hex(), "status": run.status, "started": run.started}
        if plan is None:
            runs.append(row | _NOTHING)
            continue
        t = plan.terms
        answers = sum(s.run == run.id for s in spends)
        runs.append(
            row | {
                "name": plan.name, "algorithm": plan.algorithm.name, "adjacency": t.adjacency if t else None,
                "answers": answers, "epsilon": _finite(t.cost(answers)) if t else None, "delta": t.delta if t else None,
            }
        )  # fmt: skip
        if t is not None:
            last[t.adjacency] = (run.id, plan, t)
    totals = []
    for adjacency in ledger.adjacencies:
        budget = where.budget if where.budget and str(where.budget.adjacency) == adjacency else None
        known = last.get(adjacency)
        at = delta if delta is not None else (budget.delta or 0.0) if budget else known[2].delta if known else 0.0
        epsilon = total_epsilon(ledger.totals(adjacency), at)
        if known and (budget is None or delta is None):
            counted = budget or Budget(epsilon=1.0, delta=at or None)  # at this delta; how much it allows is not asked
            epsilon = Allowance(ledger.node, ledger, *known, counted, Allow(), simulated=False).spent
        own = [s for s in spends if s.adjacency in (adjacency, "")]
        totals.append(
            {
                "adjacency": adjacency, "answers": sum(s.kind != "gap" for s in own),
                "gaps": sum(s.kind == "gap" for s in own), "mechanisms": sorted({s.kind for s in own} - {"gap"}),
                "epsilon": _finite(epsilon), "delta": at, "budget": budget.epsilon if budget else None,
                "left": max(budget.epsilon - epsilon, 0.0) if budget else None,
            }
        )  # fmt: skip
    return {
        "file": str(where.path), "node": ledger.node, "ledger": ledger.id.hex(), "session": ledger.session,
        "spends": len(spends), "mark": ledger.no, "behind": told.no if told else None, "totals": totals, "runs": runs,
        "peers": {name: peer.no for name, peer in ledger.peers().items()},
    }  # fmt: skip


def _plan(node: str, blob: bytes) -> RunPlan | None:
    """The plan of a run; None of one that was refused because it cannot be read."""
    try:
        return decode_plan(wire.decode_state(wire.Plan, blob).plan if node == wire.COORDINATOR else blob)
    except (InputError, msgspec.DecodeError):
        return None


def _finite(value: float) -> float | None:
    return value if value != inf else None


def _text(seen: dict[str, Any]) -> str:
    behind = "" if seen["behind"] is None else f", BEHIND its mark {seen['behind']}: see 'hushgrid ledger accept'"
    lines = [
        f"{seen['file']}: ledger {seen['ledger'][:8]} of {seen['node']}, session {seen['session']}, "
        f"{seen['spends']} spends, mark {seen['mark']}{behind}"
    ]
    for total in seen["totals"]:
        budget = "" if total["budget"] is None else f"; budget {total['budget']:g}, left {total['left']:.6g}"
        gaps = f" and {total['gaps']} accepted gaps" if total["gaps"] else ""
        lines.append(
            f"adjacency {total['adjacency']}: spent {_epsilon(total)} in {total['answers']} "
            f"{', '.join(total['mechanisms'])} answers{gaps}{budget}"
        )
    if not seen["totals"]:
        lines.append("nothing spent")
    if seen["runs"]:
        rows = [
            (r["started"], r["run"][:8], r["name"], r["status"], r["answers"], _epsilon(r), r["adjacency"] or "-")
            for r in seen["runs"]
        ]
        lines.append(columns(rows, ("started", "run", "name", "status", "answers", "spent", "adjacency"), indent=2))
    if seen["peers"]:
        lines.append("marks of others: " + ", ".join(f"{name} {no}" for name, no in seen["peers"].items()))
    return "\n".join(lines)


def _epsilon(row: dict[str, Any]) -> str:
    if row["delta"] is None:
        return "everything (no privacy)"
    epsilon = "unbounded epsilon" if row["epsilon"] is None else f"epsilon {row['epsilon']:.6g}"
    return epsilon + (f", delta {row['delta']:g}" if row["delta"] else "")


def verify(file: Path, mark: Path | None) -> str:
    """One line where the ledger is whole; else InputError, after a line on stdout for each problem."""
    where = source(file, mark)
    with reading(where) as ledger:
        wrong = ledger.verify()
        no = ledger.no
    for problem in wrong:
        print(problem)
    if wrong:
        raise InputError(f"{where.path}: found {len(wrong)} problem{'s' * (len(wrong) > 1)}, expected a whole ledger")
    return f"ok: {where.path}: {no} spends, whole" + ("" if where.mark is None else f", not behind {where.mark}")


def accept(file: Path, mark: Path | None) -> str:
    """The owner's word: what was lost between the ledger and its mark counts as spent."""
    where = source(file, mark)
    with reading(where) as copy:
        node, before, behind = copy.node, copy.no, copy.told()
    if behind is None:
        return f"{where.path}: not behind its mark, nothing to accept"
    with closing(Ledger(where.path, node, where.mark)) as ledger:
        ledger.accept()
        gap = ledger.spends()[-1]
    price = "unbounded epsilon" if gap.value == inf else f"epsilon {gap.value:g}"
    return f"{where.path}: spends {before + 1} to {gap.no} recorded as lost and spent: {price}, under every adjacency"
