"""What travelled, and what ledgers say was paid for it: every answer on the wire must stand in its device's ledger as a
spend.

Answers are counted from the transcript and the plan alone: how many messages of a node carried one. A ledger may hold
more, for an answer is paid when it is drawn and a message may be lost; never fewer, and never at a lower price than the
plan's.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from hushgrid.broker.report import run_directory
from hushgrid.kernels.algorithms.base import Rounds, Star, answers_in
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.patterns.masked import KeysAck, ResultAck
from hushgrid.kernels.patterns.token import Token
from hushgrid.kernels.privacy.accounting import Totals, spent_epsilon
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.attacks.transcript import announced, envelopes
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_file import snapshot
from hushgrid.node.privacy.ledger_rows import StoredSpend, event_of
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.masking import noise_shares
from hushgrid.node.problems.plan import RunPlan, decode_plan

GRID = 2.0**-9  #: a grid makes an answer cheaper by at most this share
ROUNDING = 1e-9


class Comparison(NamedTuple):
    """One run of one device."""

    node: str
    run: str  #: its id, in hex
    travelled: int  #: answers that were heard
    paid: int  #: spends in the ledger, of this run (of a repeated answer: of any)
    cap: int
    epsilon: float | None  #: of these spends, by the run's accountant; None: none can be stated
    claimed: float
    wrong: tuple[str, ...]  #: what does not fit


def compared(transcript: Path, ledgers: Sequence[Path]) -> list[Comparison]:
    """Every run of the transcript beside every ledger of its devices. Raises InputError, one line."""
    lines = run_directory.transcript(transcript)
    if lines is None:
        raise InputError(f"{transcript}: found no such file, expected a transcript (run.record: transcript)")
    runs = list(travelled(lines, str(transcript)))
    comparisons: list[Comparison] = []
    missing = {node for plan, _, counts in runs for node in counts if plan.terms_of(node) is not None}
    for path in ledgers:
        with opened(path) as ledger:
            mine = [(plan, run, counts[ledger.node]) for plan, run, counts in runs if ledger.node in counts]
            if not mine and ledger.node != wire.COORDINATOR:
                raise InputError(f"{path}: found the ledger of {ledger.node}, expected one of a node that was heard")
            missing.discard(ledger.node)
            for plan, run, count in mine:
                comparisons.append(compare(ledger, plan, run, count))
    comparisons += [
        Comparison(node, run.hex(), counts[node], 0, 0, None, 0.0, ("no ledger of it was given",))
        for plan, run, counts in runs
        for node in counts
        if node in missing
    ]
    if not comparisons:
        raise InputError(f"{transcript}: found no run that claims an epsilon, expected a private one")
    return comparisons


# --- the wire ---


def travelled(lines: Iterable[DocumentView], file: str) -> Iterator[tuple[RunPlan, bytes, dict[str, int]]]:
    """(plan, id, answers that were heard of each node) of every run."""
    plans: dict[bytes, RunPlan] = {}
    numbers: dict[tuple[bytes, str], set[tuple[int, int]]] = defaultdict(set)
    for src, _, envelope in envelopes(lines, file):
        body = envelope.body
        if (plan_bytes := announced(envelope)) is not None:
            plans[envelope.run] = decode_plan(plan_bytes)
        elif (
            isinstance(body, wire.Iterate)
            and not isinstance(body, Introduction | KeysAck | ResultAck)
            and not recounted(body)
        ):
            numbers[envelope.run, src].add((envelope.epoch, envelope.seq))
    for run, plan in plans.items():
        if plan.terms is not None:
            # Of two levels each site has a run of its own, and the one above asks no gate.
            nodes = [node for node in plan.nodes if not plan.sites or numbers[run, node]]
            yield plan, run, {node: answers(plan, node, len(numbers[run, node])) for node in nodes}


def recounted(body: object) -> bool:
    """Whether a token goes around to be counted anew, which asks no gate."""
    return isinstance(body, Token) and body.leg.recount is True


def answers(plan: RunPlan, node: str, messages: int) -> int:
    """How many answers so many messages of a node have carried."""
    t, algorithm = plan.terms_of(node), plan.running
    if t is None or not messages:
        return 0
    if t.mode == "input":
        return 1
    if algorithm.pattern == "token":
        return min(messages, t.answers)
    if isinstance(algorithm, Rounds):
        rounds = min(messages // algorithm.messages, algorithm.rounds) - algorithm.asks_after
        return min(answers_in(algorithm, rounds), t.answers) if rounds > 0 else 0
    assert isinstance(algorithm, Star)
    return min(messages * algorithm.per_round, t.answers)


# --- the ledgers ---


@contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """A copy of a ledger: opening a database, even to read it, would write beside it.

    Raises InputError if there is no ledger at `path`.
    """
    with tempfile.TemporaryDirectory(prefix="hushgrid-audit-") as scratch:
        copy = Path(scratch) / "copy.ledger"
        try:
            with path.open("rb") as file:
                if file.read(16) != b"SQLite format 3\0":
                    raise InputError(f"{path}: found no SQLite file, expected a ledger")
            snapshot(path, copy)
            ledger = Ledger(copy, None, durable=False)
        except InputError as error:
            raise InputError(str(error).replace(str(copy), str(path))) from None
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}, expected a ledger") from None
        with closing(ledger):
            yield ledger


def compare(ledger: Ledger, plan: RunPlan, run: bytes, count: int) -> Comparison:
    """One run beside its device's ledger."""
    planned = plan.terms_of(ledger.node)
    assert planned is not None
    # An owner who believes in fewer honest ones counts more than the plan.
    t = planned.counted_at(ledger.spends.honest(run), ledger.spends.honest(run, at_site=True))
    of_run = ledger.spends.rows(run)
    repeats = t.mode == "input" and not of_run
    priced = [s for s in ledger.spends.rows() if s.adjacency == t.adjacency][-1:] if repeats else of_run
    wrong = [*ledger.verify()]
    if len(priced) < count:
        wrong.append(f"{count} answers travelled, {len(priced)} stand in the ledger")
    if len(of_run) > t.answers:
        wrong.append(f"{len(of_run)} spends, the plan's cap is {t.answers}")
    share = noise_shares(plan)[plan.nodes.index(ledger.node)].relying_on(t.masked.honest).mu if t.masked else None
    wrong += [fault for s in priced if (fault := price(s, t, share))][:3]
    totals = Totals()
    for s in priced:
        totals.add(event_of(s.kind, s.value))
    epsilon = None if totals.nonprivate else spent_epsilon(t.accountant, totals, t.delta)
    if epsilon is None or epsilon > t.epsilon * (1 + ROUNDING):
        wrong.append(
            f"spends of {'unbounded epsilon' if epsilon is None else f'epsilon {epsilon:.6g}'}, claimed {t.epsilon:.6g}"
        )
    return Comparison(ledger.node, run.hex(), count, len(priced), t.answers, epsilon, t.epsilon, tuple(wrong))


def price(s: StoredSpend, t: Terms, share: float | None = None) -> str:
    """What is wrong with the price of a spend; "" if nothing is. share: of a masked run, what the node's share of a sum
    costs.
    """
    if s.kind != t.mechanism:
        return f"spend {s.no}: {s.kind}, the plan's mechanism is {t.mechanism}"
    if s.adjacency != t.adjacency:
        return f"spend {s.no}: about {s.adjacency}, the plan's adjacency is {t.adjacency}"
    planned = t.price(s.answer or 1) if share is None else share
    if not planned * (1 - GRID) <= s.value <= planned * (1 + ROUNDING):
        return f"spend {s.no}: {s.value:.6g}, an answer of the plan costs {planned:.6g}"
    return ""
