"""`hushgrid ledger`: what a device has spent, on what, and what is left. Reading changes nothing, not even a time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hushgrid.broker.watch.ledger_facts import Source, behind, facts, reading, source
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import total_epsilon
from hushgrid.kernels.types import Document
from hushgrid.node.columns import columns
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_file import held
from hushgrid.node.privacy.ledger_rows import Counted, StoredSpend
from hushgrid.node.schema.durations import in_words

DELTA = 1e-5  #: at which Gaussian answers are stated in epsilon, if no budget says another


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


def show(file: Path, mark: Path | None, delta: float | None, as_json: bool) -> str:
    """What has been spent, by run and in all. delta: at which epsilon is stated, else each run's (the budget's) own.

    Raises InputError if delta is not in [0, 1), or the file is no ledger.
    """
    if delta is not None and not 0 <= delta < 1:
        raise InputError(f"--delta: found {delta}, expected a number in [0, 1)")
    where = source(file, mark)
    with reading(where) as ledger:
        seen = facts(ledger, where, delta)
    return json.dumps(seen, indent=2) if as_json else _text(seen)


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
        if "reading" in total:
            lines.append(f"  {_reading(total['reading'])}")
    if not seen["totals"]:
        lines.append("nothing spent")
    if seen["exposed"]:
        lost = ", beside what was lost" if any(total["gaps"] for total in seen["totals"]) else ""
        lines.append(f"graphs of masks have added at most {seen['exposed']:.4g} to delta, over its life{lost}")
    if seen["runs"]:
        rows = [
            (r["started"], r["run"][:8], r["name"], r["status"], r["answers"], _epsilon(r), r["adjacency"] or "-")
            for r in seen["runs"]
        ]
        lines.append(columns(rows, ("started", "run", "name", "status", "answers", "spent", "adjacency"), indent=2))
    if seen["peers"]:
        lines.append("marks of others: " + ", ".join(f"{name} {no}" for name, no in seen["peers"].items()))
    return "\n".join(lines)


def _reading(reading: Document) -> str:
    """What one reading costs, over all answers about means that it has entered."""
    entered = " and ".join(f"{answers} by {share} each" for share, answers in reading["answers"].items())
    beside = ""
    if reading["undated"]:
        beside = f", beside {reading['undated']} answers about other data (epsilon {reading['epsilon_undated']:.6g})"
    epsilon = "unbounded epsilon" if reading["epsilon"] is None else f"epsilon {reading['epsilon']:.6g}"
    return (
        f"one day of readings: at most {epsilon} over all answers it enters ({reading['day']}: {entered}), of "
        f"{reading['days']} days, {reading['first']} to {reading['last']}{beside}"
    )


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
    spent, alone, at_site = (
        "unbounded epsilon" if epsilon is None else f"epsilon {epsilon:.6g}"
        for epsilon in (row["epsilon"], row.get("alone"), row.get("at_site"))
    )
    seen = f" (its site's coordinator sees{gaps_of(row)}: {at_site})" if row.get("at_site") else ""
    gaps = gaps_of(row)
    fewer = row.get("honest") != row.get("honest_of_plan")
    return (
        spent
        + (f", delta {row['delta']:g}" if row["delta"] else "")
        + (f" at {row['honest']} honest, where the plan says {row['honest_of_plan']}" if fewer else "")
        + seen
        + (f" (its shares alone{gaps}: {alone})" if row.get("alone") != 0 and "alone" in row else "")
    )


def gaps_of(row: Document) -> str:
    return ", gaps as if they were some," if row.get("gaps") else ""


def verify(file: Path, mark: Path | None) -> str:
    """One line if the ledger is whole. Raises InputError if it is not, after a line on stdout for each problem."""
    where = source(file, mark)
    with reading(where) as ledger:
        wrong = [
            line.replace(ledger.marks.behind_in_words or "\0", behind(ledger, where) or "") for line in ledger.verify()
        ]
        no = ledger.spends.no
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
        before, lag, torn = copy.spends.no, behind(copy, where), copy.tables.torn
        if lag is None:
            return f"{where.path}: not behind its mark, nothing to accept"
        with closing(Ledger(where.path, None, where.mark)) as ledger:
            ahead = ledger.accept()
            gaps, after = ledger.spends.rows(after=before), ledger.spends.no
        answers = sum(copy.marks.missed(mark) for mark in ahead)
    if not gaps:
        lost = "what was lost, nobody knows" if torn else "nothing was lost, the mark is written again"
        return f"{where.path}: was {lag}; {lost}"
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
