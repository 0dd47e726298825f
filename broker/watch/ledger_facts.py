"""What a ledger says: what was spent, by run and in all, and what is left. Reading changes nothing, not even a time."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushgrid.kernels.errors import InputError, printable
from hushgrid.kernels.privacy.accounting import fixed_epsilon, total_epsilon
from hushgrid.kernels.types import Document
from hushgrid.node import wire
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.budget import BudgetCheck, spent_in, worth_alone
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_file import snapshot
from hushgrid.node.privacy.ledger_rows import relation, size
from hushgrid.node.privacy.renewal import Renewal, budget_status
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.schema.durations import date
from hushgrid.node.schema.sections import Adjacency, Allow, Budget, ReplaceOneRecord

#: Of a run that was refused: its plan is not kept, or cannot be read.
_NOTHING = {"name": "?", "algorithm": None, "adjacency": None, "answers": 0, "epsilon": 0.0, "delta": 0.0}


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
                    if not one.marks.marked and not mark.exists():
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


def behind(ledger: Ledger, where: Source) -> str | None:
    """What the opened copy says it is behind, in the words of its source."""
    sentence = ledger.marks.behind_in_words
    return sentence and sentence.replace(str(ledger.path.with_name("mark")), str(where.mark))


Latest = dict[str, tuple[bytes, RunPlan, Terms]]  #: by relation: the last run under it, its plan, and how it is counted


def _runs(ledger: Ledger) -> tuple[list[Document], Latest]:
    """A row for each run, and the last run of each relation."""
    runs, last = list[Document](), Latest()
    for run in ledger.runs.all():
        plan = _plan(ledger.node, run.plan)
        row: Document = {"run": run.id.hex(), "status": run.status, "started": run.started}
        if plan is None:
            runs.append(row | _NOTHING)
            continue
        planned = plan.terms_of(ledger.node)
        counted = ledger.spends.honest(run.id), ledger.spends.honest(run.id, at_site=True)
        t = planned.counted_at(*counted) if planned else None  # as its answers are counted
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
    """All that `hushgrid ledger show` says of an opened ledger. delta: as there."""
    ahead = ledger.marks.ahead()
    runs, last = _runs(ledger)
    totals = []
    for adjacency in _counted(ledger, where.budget):
        budget = where.budget if where.budget and str(where.budget.adjacency) == adjacency else None
        known = last.get(relation(adjacency))
        at_delta = delta if delta is not None else (budget.delta or 0.0) if budget else known[2].delta if known else 0.0
        epsilon = total_epsilon(ledger.spends.totals(adjacency), at_delta)
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
        kinds = ledger.spends.kinds(adjacency)
        gaps = kinds.pop("gap", 0)
        totals.append(
            {
                "adjacency": adjacency,
                "answers": sum(kinds.values()),
                "gaps": gaps,
                "mechanisms": sorted(kinds),
                "epsilon": _finite(epsilon),
                "epsilon_fixed": _finite(min(epsilon, fixed_epsilon(ledger.spends.totals(adjacency), at_delta))),
                "delta": at_delta,
                "budget": budget.epsilon if budget else None,
                "left": renewal.left if renewal else max(budget.epsilon - epsilon, 0.0) if budget else None,
                "window": _window(renewal, known[1].every if known else None) if renewal else None,
                **_shares(ledger, adjacency, at_delta),
                **_readings(ledger, adjacency, at_delta),
            }
        )
    return {
        "file": str(where.path),
        "node": ledger.node,
        "ledger": ledger.id.hex(),
        "session": ledger.runs.session,
        "spends": ledger.spends.answers(),
        "mark": ledger.spends.no,
        "behind": ahead.no if ahead else None,
        "refuses": behind(ledger, where),
        "data_version": ledger.data_version,
        "exposed": ledger.runs.exposed,
        "totals": totals,
        "runs": runs,
        "peers": {name: peer.no for name, peer in ledger.marks.peers.peers.items()},
    }


def _masked(t: Terms | None, planned: Terms | None, answers: int) -> Document:
    """Of a masked run: what its shares are worth alone, of how many honest ones each is counted,
    and of how many by the plan.
    """
    if t is None or t.masked is None or planned is None or planned.masked is None:
        return {}
    row = {"alone": _finite(t.alone(answers)), "honest": t.masked.honest, "honest_of_plan": planned.masked.honest}
    if t.masked.sites is not None:
        row |= {"at_site": _finite(t.at_site(answers)), "honest_at_site": t.masked.site}
    return row


def _shares(ledger: Ledger, adjacency: str, delta: float) -> Document:
    """What all shares of masked sums are worth to everybody else together, and those of sites to the own site's
    coordinator; accepted gaps as if they were some. {} without any.
    """
    shares, lost = ledger.spends.shares(adjacency)
    of_site, _ = ledger.spends.shares(adjacency, at_site=True)
    at_site = {"at_site": _finite(worth_alone(of_site + lost, delta))} if of_site else {}
    return {"alone": _finite(worth_alone(shares + lost, delta))} | at_site if shares else {}


def _readings(ledger: Ledger, adjacency: str, delta: float) -> Document:
    """What one reading costs over all answers that it has entered, of the day that costs most; {} without any."""
    about = ledger.spends.about_days(adjacency)
    costs = {day: total_epsilon(totals, delta) for day, totals in ledger.spends.readings(adjacency).items()}
    if not costs:
        return {}
    day = max(costs, key=lambda each: (costs[each], each))
    undated = ledger.spends.undated(adjacency)
    return {
        "reading": {
            "day": date(day),
            "epsilon": _finite(costs[day]),
            "answers": {f"1/{n}": t.laplace + t.gaussian for n, t in sorted(about[day].items())},
            "days": len(costs),
            "first": date(min(costs)),
            "last": date(max(costs)),
            "undated": undated.laplace + undated.gaussian,
            "epsilon_undated": _finite(total_epsilon(undated, delta)),
        }
    }


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
    adjacencies = {relation(a): a for a in sorted(ledger.spends.adjacencies, key=size)}
    for name, largest in (("bounded-change", ledger.spends.unit), ("replace-one-record", ledger.spends.records)):
        if name in adjacencies:
            adjacencies[name] = max(adjacencies[name], f"{name} {largest!r}", key=size)
    if not adjacencies and ledger.spends.no:
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
