"""What was told of each reading of a device's source: recounted from its ledger, its log of readings, and what
travelled.

For each reading the costs of all answers are added up that were stored while it counted: from when it was read until it
expired, or until another took its place. The largest sum stands beside what the device claims for any window. Nothing
here asks how the device itself counts windows or data versions: rows are read from the tables as they stand, and
whatever travelled and is not in them counts for every reading.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from hushgrid.broker.report import run_directory
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.accounting import HALF_PI, UNIT, gdp_epsilon, root_up, rounded_up, units
from hushgrid.lab.audit.ledgers import opened, travelled
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Counted, relation, steps

HOUR_S = 3600.0  #: running time of which the ledger keeps one row, of spends that are old
ROUNDING = 1e-9


class Claim(Struct, frozen=True):
    """What a device says it keeps: in any window of running time epsilon, at delta, for changes of `adjacency`."""

    node: str
    ledger: str  #: its id, in hex
    epsilon: float
    delta: float
    window: float | None  #: s; None: over the life of the ledger
    adjacency: str
    retention: float | None  #: s
    rows: int  #: that it holds at once; 0: its data have entries


class IntakeLine(Struct, frozen=True):
    """A line of the log: a claim; or readings that were read together. Times are running time, s."""

    claim: Claim | None = None
    taken: float = 0.0  #: when they began to count
    read: float = 0.0
    until: float | None = None  #: None: for ever
    entries: tuple[str, ...] = ()  #: of a zone: their names
    rows: tuple[tuple[int, int], ...] = ()  #: of rows: the first and the last number


class Counts(NamedTuple):
    """A reading, and when it counted."""

    name: str
    first: float
    last: float


class Cost(NamedTuple):
    """What answers cost, summed: epsilon and its square of pure ones, mu^2, in units of 2^-256; and how many were
    neither.
    """

    epsilon: int = 0
    epsilon2: int = 0
    mu2: int = 0
    gaussian: int = 0
    nonprivate: int = 0

    def plus(self, other: Cost, sign: int = 1) -> Cost:
        return Cost(*(a + sign * b for a, b in zip(self, other, strict=True)))

    def stated(self, delta: float) -> float:
        """The smallest epsilon that these answers are known to keep at this delta."""
        if self.nonprivate:
            return inf
        pure = inf if self.gaussian else rounded_up(self.epsilon, 1 << UNIT)
        return min(pure, self.bound(delta)) if delta else pure

    def bound(self, delta: float) -> float:
        """The same by Gaussian DP alone, or without a delta by their sum."""
        return gdp_epsilon(root_up(self.order[1]), delta) if delta else rounded_up(self.epsilon, 1 << UNIT)

    @property
    def order(self) -> tuple[int, int, int]:
        """By it costs ascend as `bound` does: without privacy, mu^2 with pure answers as Gaussian ones, epsilon."""
        a, b = HALF_PI
        return self.nonprivate, self.mu2 - (-a * self.epsilon2 // b), self.epsilon


class WorstReading(NamedTuple):
    """The reading of which most was told."""

    node: str
    claim: Claim
    reading: str
    epsilon: float
    readings: int  #: how many were looked at
    answers: int  #: of the ledger
    missing: int  #: answers that travelled and stand in no ledger

    @property
    def above(self) -> bool:
        return self.epsilon > self.claim.epsilon * (1 + ROUNDING)


def events(state: Path, transcript: Path) -> list[WorstReading]:
    """Of each device whose state stands in the folder `state`. Raises InputError, one line."""
    logs = sorted(state.glob("*.readings"))
    if not logs:
        raise InputError(f"{state}: found no log of readings, expected the state of a device with a source")
    file = transcript / "transcript.jsonl" if transcript.is_dir() else transcript
    lines = run_directory.transcript(file)
    if lines is None:
        raise InputError(f"{file}: found no such file, expected a transcript")
    runs, devices = list(travelled(lines, str(file))), []
    for log in logs:
        with opened(log.with_suffix(".ledger")) as ledger:
            claim, readings = counted(log, ledger.id.hex())
            spends = list(answers(ledger, claim))
            extra, missing = Cost(), 0
            for plan, run, counts in runs:
                t = plan.terms_of(claim.node) if claim.node in counts else None
                if t is not None and (lost := _missing(ledger, run, counts[claim.node], t.mode == "input")):
                    one = _cost(t.mechanism, t.per_answer, 0.0, steps(t.adjacency, claim.adjacency))
                    extra, missing = Cost(*(a + lost * b for a, b in zip(extra, one, strict=True))), missing + lost
        devices.append(_largest(claim, readings, spends, extra, missing))
    return devices


def counted(log: Path, ledger: str) -> tuple[Claim, list[Counts]]:
    """The claim of now, with the largest epsilon that was ever claimed, and when each reading counted.

    Raises InputError if `log` is no log of readings, or has no claim of this ledger.
    """
    claims: list[Claim] = []
    lines: list[IntakeLine] = []
    try:
        for blob in log.read_bytes().splitlines():
            line = msgspec.json.decode(blob, type=IntakeLine)
            if line.claim is not None:
                claims.append(line.claim)
            elif claims and claims[-1].ledger == ledger:
                lines.append(line)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{log}: {getattr(error, 'strerror', None) or error}, expected a log of readings") from None
    claimed = [claim for claim in claims if claim.ledger == ledger]
    if not claimed:
        raise InputError(f"{log}: found no claim of the ledger beside it, expected one")
    claim = msgspec.structs.replace(claimed[-1], epsilon=max(one.epsilon for one in claimed))
    return claim, [*_entries(lines), *_rows(lines, claim.rows)]


def _entries(lines: list[IntakeLine]) -> Iterator[Counts]:
    """An entry counts until another value takes its place, if it has not expired."""
    open_: dict[str, IntakeLine] = {}
    for line in lines:
        for name in line.entries:
            if (before := open_.get(name)) is not None:
                yield _counts(name, before, line.taken)
            open_[name] = line
    for name, line in open_.items():
        yield _counts(name, line, inf)


def _rows(lines: list[IntakeLine], most: int) -> Iterator[Counts]:
    """A row counts until as many others have come as the device holds, if it has not expired."""
    taken = [(last, line.taken) for line in lines for _, last in line.rows]
    numbers = list(accumulate((last for last, _ in taken), max))
    for line in lines:
        for first, last in line.rows:
            for number in range(first, last + 1):
                k = bisect_left(numbers, number + most)
                yield _counts(f"row {number}", line, taken[k][1] if k < len(taken) else inf)


def _counts(name: str, line: IntakeLine, replaced: float) -> Counts:
    until = inf if line.until is None else line.until
    last = min(until, replaced) if replaced >= line.read else until  # running time that a crash has set back
    return Counts(f"{name}, read at {line.read:.6g} s", line.read, last)


# --- the ledger ---


def answers(ledger: Ledger, claim: Claim) -> Iterator[tuple[float, float, Cost]]:
    """(earliest and latest running time, cost at the claim's unit) of each answer, or of an hour of old ones."""
    ledger.checkpoint()
    rows = ledger.tables.db.execute("SELECT ran, adjacency, kind, value, mu2 FROM spend").fetchall()
    for ran, adjacency, kind, value, mu2 in rows:
        if (k := _steps(adjacency, claim.adjacency)) is not None:
            yield ran, ran, _cost(kind, value, mu2, k)
    for ran, blob in ledger.tables.db.execute("SELECT ran, sums FROM past").fetchall():
        for adjacency, packed in msgspec.msgpack.decode(blob, type=dict[str, bytes]).items():
            if (k := _steps(adjacency, claim.adjacency)) is not None:
                totals = Counted.unpacked(packed).totals
                epsilon, epsilon2, mu2 = totals.sums
                sums = (k * epsilon, k * k * epsilon2, k * k * mu2, totals.gaussian, int(totals.nonprivate))
                yield ran - ran % HOUR_S, ran, Cost(*sums)


def _steps(adjacency: str, unit: str) -> int | None:
    if adjacency == "":
        return 1  # an accepted gap counts under every relation
    return steps(adjacency, unit) if relation(adjacency) == relation(unit) else None


def _cost(kind: str, value: float, mu2: float, k: int) -> Cost:
    if kind == "nonprivate" or value == inf:
        return Cost(nonprivate=1)
    if kind == "gaussian":
        return Cost(mu2=k * k * units(value, 2), gaussian=1)
    gap = Cost(mu2=units(mu2, 1), gaussian=1) if kind == "gap" and mu2 else Cost()
    return Cost(k * units(value, 1), k * k * units(value, 2)).plus(gap)


def _missing(ledger: Ledger, run: bytes, travelled: int, once: bool) -> int:
    """Answers of a run that travelled and were never paid. `once`: it has one, which may repeat that of another run."""
    stored = ledger.runs.find(run)
    paid = max(ledger.spends.answers(run), stored.spends if stored else 0)
    if once and ledger.spends.answers():
        return 0
    condensed = ledger.tables.db.execute("SELECT count(*) FROM past").fetchone()[0]
    return max(travelled - paid, 0) if stored or not condensed else 0


# --- the largest ---


def _largest(
    claim: Claim, readings: list[Counts], spends: list[tuple[float, float, Cost]], extra: Cost, missing: int
) -> WorstReading:
    """Sums over closed intervals: all that began by the reading's end, without those that had ended before it was
    read.
    """
    sums = []
    for key in (0, 1):
        order = sorted(spends, key=lambda spend: spend[key])
        sums.append(([s[key] for s in order], list(accumulate((s[2] for s in order), Cost.plus, initial=Cost()))))
    (begins, begun), (ends, ended) = sums
    costs: dict[Cost, str] = {}
    for reading in readings:
        cost = begun[bisect_right(begins, reading.last)].plus(ended[bisect_left(ends, reading.first)], -1)
        costs.setdefault(cost, reading.name)
    epsilon, name = 0.0, ""
    for cost in sorted(costs, key=lambda cost: cost.order, reverse=True):
        if epsilon and cost.plus(extra).bound(claim.delta) <= epsilon:
            break  # so are all that follow
        if (stated := cost.plus(extra).stated(claim.delta)) > epsilon:
            epsilon, name = stated, costs[cost]
    return WorstReading(claim.node, claim, name, epsilon, len(readings), len(spends), missing)
