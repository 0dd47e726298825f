"""`hushgrid ledger`: what a device has spent, on what, and what is left. Reading changes nothing, not even a time."""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushgrid.kernels.errors import InputError, printable
from hushgrid.kernels.privacy.accounting import fixed_epsilon, total_epsilon
from hushgrid.kernels.types import Document
from hushgrid.node import wire
from hushgrid.node.columns import columns
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.budget import BudgetCheck, spent_in, worth_alone
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_file import held, snapshot
from hushgrid.node.privacy.ledger_rows import Counted, StoredSpend, relation, size
from hushgrid.node.privacy.renewal import Renewal, budget_status
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.schema.durations import in_words
from hushgrid.node.schema.sections import Adjacency, Allow, Budget, ReplaceOneRecord

DELTA = 1e-5  #: at which Gaussian answers are stated in epsilon, if no budget says another
#: Of a run that was refused: its plan is not kept, or cannot be read.
_NOTHING = {"name": "?", "algorithm": None, "adjacency": None, "answers": 0, "epsilon": 0.0, "delta": 0.0}


def arguments(parser: argparse.ArgumentParser) -> None:
    does = parser.add_subparsers(metavar="WHAT", dest="what", required=True)
    for name, text in (
        ("show", "Show what was spent, by run and in all; if FILE is the device's file, also what is left."),
        (
            "verify",
            "Say whether the ledger is whole and not behind its mark; else a line a problem, exit code 2.",
        ),
        ("accept", "As the device's owner, record as spent what a ledger behind its mark has lost."),
        ("new-data", "As the device's owner, declare that the data are new: no answer about the old data is repeated."),
    ):
        add = does.add_parser(name, help=text, description=text).add_argument
        add("file", metavar="FILE", type=Path, help="a ledger, or the device's file")
        if name == "show":
            add("--delta", type=float, help="state epsilon at this delta [that of each run, or of the budget]")
            add("--json", action="store_true", help="print JSON instead of text")
        add("--mark", metavar="FILE", type=Path, help="the mark file [the one that the device's file names]")


def main(options: argparse.Namespace) -> int:
    match options.what:
        case "show":
            print(show(options.file, options.mark, options.delta, options.json))
        case "verify":
            print(verify(options.file, options.mark))
        case "accept":
            print(accept(options.file, options.mark))
        case "new-data":
            print(new_data(options.file, options.mark))
    return 0


class Source(NamedTuple):
    """A ledger's place, and what its device's configuration adds."""

    path: Path
    mark: Path | None = None
    budget: Budget | None = None
    expiring: bool = False  #: whether the readings of its data expire within a window


def source(file: Path, mark: Path | None) -> Source:
    """`file` is a ledger, or the configuration of the device it belongs to."""
    if file.suffix in (".yaml", ".yml"):
        config = load_device(file)
        high_water = Path(config.mark) if config.mark else None
        return Source(Path(config.state) / f"{config.node}.ledger", mark or high_water, config.budget, config.expiring)
    return Source(file, mark)


@contextmanager
def reading(where: Source) -> Iterator[Ledger]:
    """A copy of the ledger, opened: opening a database, even to read it, would write beside it. InputError, one line.

    Beside a running device it is the ledger of a moment ago, with what is only in its log.
    """
    path = where.path
    with tempfile.TemporaryDirectory(prefix="hushgrid-ledger-") as scratch:
        copy, mark = Path(scratch) / "copy.ledger", Path(scratch) / "mark"
        try:
            if where.mark is not None:  # before the ledger, so that it is not ahead of it
                with suppress(FileNotFoundError):
                    shutil.copyfile(where.mark, mark)
        except OSError as error:
            raise InputError(f"{where.mark}: {error.strerror}, expected the mark of {path}") from None
        try:
            with path.open("rb") as file:
                if file.read(16) != b"SQLite format 3\0":
                    raise InputError(f"{path}: found no SQLite file, expected a ledger")
            snapshot(path, copy)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}, expected a ledger") from None
        try:
            if where.mark is not None:
                with closing(Ledger(copy, None, durable=False)) as one:
                    if not one.marked and not mark.exists():
                        raise InputError(f"{where.mark}: No such file or directory, expected the mark of {path}")
            ledger = Ledger(copy, None, mark if where.mark else None, durable=False)
        except OSError as error:
            raise InputError(f"{where.mark}: {error.strerror}, expected the mark of {path}") from None
        except InputError as error:
            raise InputError(str(error).replace(str(copy), str(path)).replace(str(mark), str(where.mark))) from None
        try:
            yield ledger
        finally:
            ledger.close()


def _behind(ledger: Ledger, where: Source) -> str | None:
    """What the opened copy says it is behind, in the words of its source."""
    sentence = ledger.behind_in_words
    return sentence and sentence.replace(str(ledger.path.with_name("mark")), str(where.mark))


def show(file: Path, mark: Path | None, delta: float | None, as_json: bool) -> str:
    """What has been spent, by run and in all. delta: at which epsilon is stated, else each run's (the budget's) own."""
    if delta is not None and not 0 <= delta < 1:
        raise InputError(f"--delta: found {delta}, expected a number in [0, 1)")
    where = source(file, mark)
    with reading(where) as ledger:
        seen = facts(ledger, where, delta)
    return json.dumps(seen, indent=2) if as_json else _text(seen)


Latest = dict[str, tuple[bytes, RunPlan, Terms]]  #: by relation: the last run under it, its plan, and how it is counted


def _runs(ledger: Ledger) -> tuple[list[Document], Latest]:
    """A row for each run, and the last run of each relation."""
    runs, last = list[Document](), Latest()
    for run in ledger.runs():
        plan = _plan(ledger.node, run.plan)
        row: Document = {"run": run.id.hex(), "status": run.status, "started": run.started}
        if plan is None:
            runs.append(row | _NOTHING)
            continue
        planned = plan.terms_of(ledger.node)
        t = planned.relying_on(ledger.honest(run.id)) if planned else None  # as its answers are counted
        runs.append(
            row
            | {
                "name": printable(plan.name, 64),
                "algorithm": plan.algorithm.name,
                "adjacency": t.adjacency if t else None,
                "answers": run.spends,
                "epsilon": _finite(spent_in(ledger, run.id, t)) if t else None,
                "delta": t.delta if t else None,
            }
            | _masked(t, planned, run.spends)
        )
        if t is not None:
            last[relation(t.adjacency)] = (run.id, plan, t)
    return runs, last


def facts(ledger: Ledger, where: Source, delta: float | None = None) -> Document:
    """All that `show` says."""
    ahead = ledger.told()
    runs, last = _runs(ledger)
    totals = []
    for adjacency in _counted(ledger, where.budget):
        budget = where.budget if where.budget and str(where.budget.adjacency) == adjacency else None
        known = last.get(relation(adjacency))
        at_delta = delta if delta is not None else (budget.delta or 0.0) if budget else known[2].delta if known else 0.0
        epsilon = total_epsilon(ledger.totals(adjacency), at_delta)
        renewal = (
            Renewal(ledger, budget, adjacency, at_delta, expiring=where.expiring) if budget and budget.span else None
        )
        if renewal:
            epsilon = renewal.spent_in_life
        elif known and (budget is None or delta is None):
            run_id, ledger_of_run, t = known
            # At this delta and unit; how much it allows is not asked.
            counts = budget or Budget(epsilon=1.0, delta=at_delta or None, adjacency=_as_section(adjacency))
            epsilon = BudgetCheck(
                ledger.node, ledger, run_id, ledger_of_run.algorithm, t, counts, Allow(), simulated=False
            ).spent
        kinds = ledger.kinds(adjacency)
        gaps = kinds.pop("gap", 0)
        totals.append(
            {
                "adjacency": adjacency,
                "answers": sum(kinds.values()),
                "gaps": gaps,
                "mechanisms": sorted(kinds),
                "epsilon": _finite(epsilon),
                "epsilon_fixed": _finite(min(epsilon, fixed_epsilon(ledger.totals(adjacency), at_delta))),
                "delta": at_delta,
                "budget": budget.epsilon if budget else None,
                "left": renewal.left if renewal else max(budget.epsilon - epsilon, 0.0) if budget else None,
                "window": _window(renewal, known[1].every if known else None) if renewal else None,
                **_shares(ledger, adjacency, at_delta),
            }
        )
    return {
        "file": str(where.path),
        "node": ledger.node,
        "ledger": ledger.id.hex(),
        "session": ledger.session,
        "spends": ledger.answers(),
        "mark": ledger.no,
        "behind": ahead.no if ahead else None,
        "refuses": _behind(ledger, where),
        "data_version": ledger.data_version,
        "totals": totals,
        "runs": runs,
        "peers": {name: peer.no for name, peer in ledger.peer_marks.peers.items()},
    }


def _masked(t: Terms | None, planned: Terms | None, answers: int) -> Document:
    """Of a masked run: what its shares are worth alone, of how many honest ones each is counted,
    and of how many by the plan.
    """
    if t is None or t.masked is None or planned is None or planned.masked is None:
        return {}
    return {"alone": _finite(t.alone(answers)), "honest": t.masked.honest, "honest_of_plan": planned.masked.honest}


def _shares(ledger: Ledger, adjacency: str, delta: float) -> Document:
    """What all shares of masked sums are worth to everybody else together, accepted gaps as if they were some;
    {} without any.
    """
    shares, lost = ledger.shares(adjacency)
    return {"alone": _finite(worth_alone(shares + lost, delta))} if shares else {}


def _window(renewal: Renewal, every: float | None) -> Document:
    """What a budget that renews has spent and left: of its window, and of its life."""
    now = budget_status(renewal.ledger, renewal.budget, expiring=renewal.expiring)
    return {
        "seconds": now.window_s,
        "epsilon": _finite(renewal.spent),
        "left": now.left_window,
        "renews_in": now.renews_s,
        "lifetime": renewal.budget.lifetime,
        "lifetime_left": now.left_life,
        "every": every,
    }


def _counted(ledger: Ledger, budget: Budget | None) -> list[str]:
    """Each relation something was spent under, once: at the budget's unit, else at the largest that was asked for.

    Accepted gaps count under every relation: if there is nothing else, under the budget's, or under one without a name.
    """
    adjacencies = {relation(a): a for a in sorted(ledger.adjacencies, key=size)}
    for name, largest in (("bounded-change", ledger.unit), ("replace-one-record", ledger.records)):
        if name in adjacencies:
            adjacencies[name] = max(adjacencies[name], f"{name} {largest!r}", key=size)
    if not adjacencies and ledger.no:
        adjacencies[relation(str(budget.adjacency)) if budget else ""] = ""
    if budget and (name := relation(str(budget.adjacency))) in adjacencies:
        adjacencies[name] = str(budget.adjacency)
    return sorted(adjacencies.values())


def _as_section(adjacency: str) -> Adjacency | None:
    """What a ledger's words say, as far as a budget can count it."""
    match relation(adjacency):
        case "bounded-change":
            return Adjacency(bounded_change=float(size(adjacency)))
        case "replace-one-record":
            return Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0, records=int(size(adjacency))))
    return None


def _plan(node: str, blob: bytes) -> RunPlan | None:
    """The plan of a run; None of one that was refused because it cannot be read."""
    try:
        return decode_plan(wire.decode_state(wire.Plan, blob).plan if node == wire.COORDINATOR else blob)
    except (InputError, msgspec.DecodeError):
        return None


def _finite(value: float) -> float | None:
    return value if value != inf else None


def _text(seen: Document) -> str:
    refuses = f", {seen['refuses']}: it refuses every run, see 'hushgrid ledger accept'" if seen["refuses"] else ""
    lines = [
        f"{seen['file']}: ledger {seen['ledger'][:8]} of {seen['node']}, session {seen['session']}, "
        f"{seen['spends']} spends, mark {seen['mark']}{refuses}"
    ]
    for total in seen["totals"]:
        budget = (
            _of_window(total)
            if total["window"]
            else ""
            if total["budget"] is None
            else f"; budget {total['budget']:g}, left {total['left']:.6g}"
        )
        under = f"adjacency {total['adjacency']}" if total["adjacency"] else "under every adjacency"
        spent = [f"{total['answers']} {', '.join(total['mechanisms'])} answers"] if total["answers"] else []
        spent += [f"{total['gaps']} accepted gaps"] if total["gaps"] else []
        fixed, stated = total["epsilon_fixed"], total["epsilon"]
        less = f" ({fixed:.6g} if no answer was chosen by earlier ones)" if stated and fixed < 0.99 * stated else ""
        lines.append(f"{under}: spent {_epsilon(total)}{less} in {' and '.join(spent)}{budget}")
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


def _of_window(total: Document) -> str:
    window, spent = total["window"], total["window"]["epsilon"]
    span, every, renews = window["seconds"], window["every"], window["renews_in"]
    life = "no limit over its life" if window["lifetime"] is None else f"lifetime {window['lifetime']:g}"
    life += "" if window["lifetime"] is None else f", left {window['lifetime_left']:.6g}"
    runs = f", a run every {in_words(every)}" if every else ""
    leaves = "" if renews is None else f", the earliest leaves it in {in_words(renews, up=True)} of running time"
    return (
        f"; budget {total['budget']:g} in any {in_words(span)} of running time{runs}: spent there "
        f"{'unbounded epsilon' if spent is None else f'{spent:.6g}'}, left {window['left']:.6g}{leaves}; {life}"
    )


def _epsilon(row: Document) -> str:
    if row["delta"] is None:
        return "everything (no privacy)"
    spent, alone = (
        "unbounded epsilon" if epsilon is None else f"epsilon {epsilon:.6g}"
        for epsilon in (row["epsilon"], row.get("alone"))
    )
    gaps = ", gaps as if they were some," if row.get("gaps") else ""
    fewer = row.get("honest") != row.get("honest_of_plan")
    return (
        spent
        + (f", delta {row['delta']:g}" if row["delta"] else "")
        + (f" at {row['honest']} honest, where the plan says {row['honest_of_plan']}" if fewer else "")
        + (f" (its shares alone{gaps}: {alone})" if row.get("alone") != 0 and "alone" in row else "")
    )


def verify(file: Path, mark: Path | None) -> str:
    """One line where the ledger is whole; else InputError, after a line on stdout for each problem."""
    where = source(file, mark)
    with reading(where) as ledger:
        wrong = [line.replace(ledger.behind_in_words or "\0", _behind(ledger, where) or "") for line in ledger.verify()]
        no = ledger.no
    for problem in wrong:
        print(problem)
    if wrong:
        raise InputError(f"{where.path}: found {len(wrong)} problem{'s' * (len(wrong) > 1)}, expected a whole ledger")
    return f"ok: {where.path}: {no} spends, whole" + ("" if where.mark is None else f", not behind {where.mark}")


def _alone(where: Source) -> None:
    """Raises InputError if a device holds the ledger: what its owner says is said while it is stopped."""
    try:
        if held(where.path):
            raise InputError(
                f"{where.path}: held by another process, expected one process per ledger (stop the device first)"
            )
    except OSError as error:
        raise InputError(f"{where.path}: {error.strerror}, expected a ledger") from None


def accept(file: Path, mark: Path | None) -> str:
    """The owner's word: what was lost between the ledger and what others remember of it counts as spent."""
    where = source(file, mark)
    _alone(where)
    with reading(where) as copy:
        before, behind, torn = copy.no, _behind(copy, where), copy.torn
        if behind is None:
            return f"{where.path}: not behind its mark, nothing to accept"
        with closing(Ledger(where.path, None, where.mark)) as ledger:
            ahead = ledger.accept()
            gaps, after = ledger.spends(after=before), ledger.no
        answers = sum(copy.missed(mark) for mark in ahead)
    if not gaps:
        lost = "what was lost, nobody knows" if torn else "nothing was lost, the mark is written again"
        return f"{where.path}: was {behind}; {lost}"
    many = f"{answers:,} answers" if answers != 1 else "1 answer"
    price = _price(gaps, (where.budget and where.budget.delta) or DELTA)
    return (
        f"{where.path}: spends {before + 1} to {after} recorded as lost and spent: {price} in {many}, "
        f"under every adjacency"
    )


def _price(gaps: Sequence[StoredSpend], delta: float) -> str:
    """What accepted gaps are worth: epsilon, or mu and the epsilon that it is at `delta`."""
    counted = Counted()
    for gap in gaps:
        counted.add(gap.kind, gap.value, gap.mu2)
    if counted.totals.nonprivate:
        return "unbounded epsilon"
    mu = sum(gap.mu2 for gap in gaps) ** 0.5
    if not mu:
        return f"epsilon {sum(gap.value for gap in gaps):g}"
    pure = sum(gap.value for gap in gaps)
    total = f"epsilon {total_epsilon(counted.totals, delta):.4g} at delta {delta:g}"
    return (f"epsilon {pure:g} and " if pure else "") + f"mu {mu:.4g}, {'together ' if pure else ''}{total}"


def new_data(file: Path, mark: Path | None) -> str:
    """The owner's word that the device's data are new: from here on it answers afresh, and is charged for it."""
    where = source(file, mark)
    with closing(Ledger(where.path, None, where.mark)) as ledger:
        return f"{where.path}: its data are version {ledger.new_data()} now; no earlier answer is repeated"
