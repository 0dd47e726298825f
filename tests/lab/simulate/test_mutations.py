"""The simulation has teeth: what breaks a promise of the stack is found, by which promise, within how long.

Each mutation is a patch of one method, not of a text, so that its process is this one: `tests/mutations.py` asks the
same of the unit tests, which need no fleet. `pytest -s -m long` shows the last table of docs/reliability.md.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.membership import Membership
from hushgrid.lab.simulate.patterns import SCENARIOS, made
from hushgrid.lab.simulate.search import Broken, expected_of, live, search
from hushgrid.node import durable, wire
from hushgrid.node.peer_marks import peer
from hushgrid.node.privacy import ledger_log
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_log import LedgerLog
from hushgrid.node.privacy.ledger_marks import Marks
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.problems.feed import Readings
from hushgrid.node.runtime.driver import Driver, Stored
from hushgrid.node.runtime.endpoint import Endpoint
from hushgrid.node.runtime.outcomes import Outcomes
from hushgrid.node.site import value_store
from tests.support.scenarios.simulated_mistakes import (
    interval_without_a_line,
    state_not_stored,
    sums_read_after_the_record,
)

MINUTE = 60.0  #: s
MOST = 60_000  #: faults
LONGEST = 30  #: events of a trace, which is not cut


def birth_forgets() -> AbstractContextManager[Any]:
    """A birth in a running phase erases the only outside memory of a ledger: the line of before, in today's words."""
    on_presence = Coordinator._on_presence

    def mutated(self: Coordinator, member: str, presence: Any) -> Any:
        phase, out = self.phase, on_presence(self, member, presence)
        if isinstance(presence, wire.Birth) and phase in ("running", "finishing"):
            known = self.membership.marks.peers.get(member)
            if known and known.ledger != presence.mark.ledger:
                self.membership.marks._set(member, peer(presence.mark))
        return out

    return patch.object(Coordinator, "_on_presence", mutated)


def publish_before_commit() -> AbstractContextManager[Any]:
    commit, tick, owed = Driver._commit, Driver.tick, {}

    def later(self: Driver, *step: Any) -> None:
        if self in owed:
            commit(self, *owed.pop(self))
        owed[self] = step
        if step[0].done is not None:
            commit(self, *owed.pop(self))

    def ticked(self: Driver, *more: Any) -> Any:
        if self in owed:
            commit(self, *owed.pop(self))
        return tick(self, *more)

    return _all(patch.object(Driver, "_commit", later), patch.object(Driver, "tick", ticked))


def log_not_synced() -> AbstractContextManager[Any]:
    append = LedgerLog.append

    def mutated(self: LedgerLog, record: bytes, seq: int) -> None:
        synced, self.sync = self.sync, False
        append(self, record, seq)
        self.sync = synced

    return patch.object(LedgerLog, "append", mutated)


def checksum_ignored() -> AbstractContextManager[Any]:
    return patch.object(ledger_log, "zlib", SimpleNamespace(crc32=lambda blob: 1))


def journal_not_paid() -> AbstractContextManager[Any]:
    read = NoiseJournal._read
    return patch.object(NoiseJournal, "_read", lambda self: [note for note in read(self) if note.paid])


def fresh_resend() -> AbstractContextManager[Any]:
    tick = Driver.tick

    def mutated(self: Driver, *more: Any) -> Any:
        return [(dst, _nudged(payload)) for dst, payload in tick(self, *more)]

    return patch.object(Driver, "tick", mutated)


def gate_forgets() -> AbstractContextManager[Any]:
    restore = Driver._restore

    def mutated(self: Driver, blob: bytes) -> None:
        restore(self, msgspec.msgpack.encode(msgspec.structs.replace(wire.decode_state(Stored, blob), gate=None)))

    return patch.object(Driver, "_restore", mutated)


def mark_not_read() -> AbstractContextManager[Any]:
    return patch.object(Marks, "outside", lambda self: [])


def mark_before_ledger() -> AbstractContextManager[Any]:
    commit = Ledger.commit

    def mutated(self: Ledger, run: bytes, *, spends: Any = (), **more: Any) -> None:
        spends = list(spends)
        if spends and self.marks.file:
            self.marks.file.write(self.marks.after(spends))
        commit(self, run, spends=spends, **more)

    return patch.object(Ledger, "commit", mutated)


def outcome_done_before_it_is_written() -> AbstractContextManager[Any]:
    commit = Ledger.commit

    def mutated(self: Ledger, run: bytes, *, status: str | None = None, **more: Any) -> None:
        commit(self, run, status="done" if status == "owed" else status, **more)

    return patch.object(Ledger, "commit", mutated)


def outcome_never_settled() -> AbstractContextManager[Any]:
    return patch.object(Outcomes, "settle", lambda self, stored, remade: None)


def never_again() -> AbstractContextManager[Any]:
    return patch.object(Driver, "tick", lambda self, *more: [])


def never_due() -> AbstractContextManager[Any]:
    return patch.object(Endpoint, "_due_at", lambda self, now, longest=0.0: False)


def marks_not_published() -> AbstractContextManager[Any]:
    """A plan says no marks. Members that lack them ask without end, and are asked."""
    return patch.object(Membership, "publish_marks", lambda self: {})


def values_read_anew() -> AbstractContextManager[Any]:
    """A device that is started again reads its source as if it had none of its values."""
    return patch.object(value_store, "last_values", lambda path: None)


def retention_ignored() -> AbstractContextManager[Any]:
    within = Readings.within
    return patch.object(Readings, "within", lambda self, now, retention: within(self, now, None))


def folder_not_synced() -> AbstractContextManager[Any]:
    return _all(
        patch.object(durable, "sync_folder", lambda path: None),
        patch.object(ledger_log, "sync_folder", lambda path: None),
    )


def _nudged(payload: bytes) -> bytes:
    """The same message with other numbers."""
    envelope = wire.decode_envelope(payload, 1 << 24)
    if not isinstance(envelope.body, wire.Iterate):
        return payload
    names = [f for f in envelope.body.__struct_fields__ if hasattr(getattr(envelope.body, f), "dtype")]
    more: dict[str, Any] = {name: getattr(envelope.body, name) + 1.0 for name in names}
    return wire.encode(msgspec.structs.replace(envelope, body=msgspec.structs.replace(envelope.body, **more)))


@contextmanager
def _all(*patches: Any) -> Any:
    with patches[0], patches[1]:
        yield


class Mutation(NamedTuple):
    """What is broken, in which fleet it shows, and which promises of the checker may notice it first."""

    breaks: Callable[[], AbstractContextManager[Any]]
    part: str
    fleet: str
    promises: tuple[str, ...]
    longest: int = LONGEST  #: events of its trace


MUTATIONS = (
    Mutation(birth_forgets, "gathering", "star", ("marks",)),
    Mutation(publish_before_commit, "driver", "star", ("heard",)),
    Mutation(fresh_resend, "driver", "star", ("once",)),
    Mutation(gate_forgets, "driver", "star", ("paid",)),
    Mutation(never_again, "driver", "star", ("answered", "defect")),
    Mutation(state_not_stored, "driver", "star", ("resumed",)),
    Mutation(log_not_synced, "ledger log", "star", ("heard",)),
    # A storm's life of zones takes too long to be shrunk to the end: ten faults are left, and their events.
    Mutation(checksum_ignored, "ledger log", "zones", ("answered", "defect"), 2 * LONGEST),
    Mutation(sums_read_after_the_record, "ledger log", "token", ("marks", "paid")),
    Mutation(folder_not_synced, "durable files", "star", ("marks", "paid", "outcome")),
    Mutation(mark_not_read, "marks", "star", ("marks",)),
    Mutation(mark_before_ledger, "marks", "star", ("marks",)),
    Mutation(journal_not_paid, "noise journal", "star", ("paid",)),
    Mutation(outcome_done_before_it_is_written, "outcomes", "star", ("outcome",)),
    Mutation(outcome_never_settled, "outcomes", "star", ("outcome",)),
    Mutation(never_due, "endpoint", "star", ("answered", "defect")),
    Mutation(marks_not_published, "gathering", "star", ("answered", "marks", "defect")),
    Mutation(values_read_anew, "intake", "star", ("readings",)),
    Mutation(retention_ignored, "intake", "star", ("readings",)),
    Mutation(interval_without_a_line, "intervals", "star", ("record",)),
)


def findings(mutation: Mutation) -> tuple[Broken, float]:
    """What is found first, and after how long, s of the processor. Its shortest life breaks the same promise again, and
    none without the mutation; its trace begins with what went wrong, and ends with what broke.
    """
    fleet, began = made(mutation.fleet), _processor_s()
    with mutation.breaks():
        report = search(SCENARIOS[mutation.fleet], fleet, MOST, 1, jobs=1)
        seconds = _processor_s() - began
        (broken, *_) = report.broken
        _, again = live(fleet, broken.life, expected_of(fleet, broken.life))
    assert str(next(finding for finding in again if finding.promise == broken.promise)) == broken.text
    assert live(fleet, broken.life, expected_of(fleet, broken.life))[1] == []
    assert not broken.life.faults or broken.trace[0]["e"] == "fault"
    cells = (mutation.part, mutation.breaks.__name__, mutation.fleet, broken.promise, f"{report.faults:,}")
    print(f"\n| {' | '.join(cells)} | {seconds:.0f} |")
    return broken, seconds


def _processor_s() -> float:
    """Of this process, and of those of it that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@pytest.mark.long
def test_the_birth_that_erased_the_memory_of_a_ledger_is_found_within_a_minute_with_a_short_trace():
    broken, seconds = findings(MUTATIONS[0])
    assert broken.promise == "marks"
    assert len(broken.trace) <= LONGEST
    assert len(broken.life.faults) <= 3
    assert seconds < MINUTE


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS[1:], ids=lambda mutation: mutation.breaks.__name__)
def test_each_of_these_is_found_within_ten_minutes(mutation):
    broken, seconds = findings(mutation)
    assert broken.promise in mutation.promises
    assert len(broken.trace) <= mutation.longest
    assert seconds < 10 * MINUTE
