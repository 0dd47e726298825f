"""The marks of a ledger: its own, those that others remember of it, and those that it remembers of its peers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from hushgrid.node.peer_marks import Peer, PeerMarks
from hushgrid.node.privacy import marks
from hushgrid.node.privacy.ledger_file import LedgerFailed
from hushgrid.node.privacy.ledger_log import Record, Tables
from hushgrid.node.privacy.ledger_rows import Spend, costs_of
from hushgrid.node.privacy.marks import MarkFile, NoMark
from hushgrid.node.privacy.spend_table import SpendTable
from hushgrid.node.wire import CLAIMS, Mark

#: Of a main file that lacks what stood beside it.
TORN = "without what was committed last: copied without its -wal and its -log, or one of them was removed"


class Marks:
    """How far a ledger has come, kept in its mark file (None: it has none) and by every peer.

    Methods raise LedgerFailed if the disk fails.
    """

    def __init__(self, tables: Tables, spends: SpendTable, file: MarkFile | None) -> None:
        self.tables, self.spends, self.file = tables, spends, file
        self._stated = bool(self._stored("told"))  #: whether peers remember marks that nobody has accepted
        #: what this node remembers of the ledgers of others: stored with the next commit
        self.peers = PeerMarks(
            {n: msgspec.msgpack.decode(mark, type=Peer) for n, mark in tables.ask("SELECT node, mark FROM peer")}
        )

    @property
    def high_water(self) -> Mark:
        """The high-water mark: the ledger's id, the number of its last spend, and the price of all spends."""
        return self.spends.price.mark(self.tables.id, self.spends.no)

    def after(self, spends: Iterable[Spend]) -> Mark:
        """The high-water mark after these spends, which are not committed yet."""
        costs = costs_of(spends)
        return self.spends.price_after(costs).mark(self.tables.id, self.spends.no + len(costs))

    # --- what others remember ---

    def counted(self, ledger: bytes) -> Mark:
        """How far this ledger has counted the ledger of this id: itself, or one whose spends its owner has accepted."""
        if ledger == self.tables.id:
            return self.high_water
        return next((m for m in self._stored("accepted") if m.ledger == ledger), Mark(ledger, 0))

    def _stored(self, key: str) -> list[Mark]:
        blob = self.tables.meta(key)
        return msgspec.msgpack.decode(blob, type=list[Mark]) if blob else []

    def missed(self, mark: Mark) -> int:
        """How many spends a mark knows that this ledger has not counted."""
        return max(mark.no - self.counted(mark.ledger).no, 0)

    def behind(self, mark: Mark) -> bool:
        """Whether this mark, which another place remembers, is ahead of the ledger."""
        counted = self.counted(mark.ledger)
        return marks.plausible(mark, counted) and marks.above(mark, counted)

    def tell(self, mark: Mark) -> bool:
        """A peer says that it remembers this mark. True if the ledger is behind it: then it is kept for `accept`."""
        mark = marks.bounded(mark)
        if not self.behind(mark):
            return False
        known = {m.ledger: m for m in self._stored("told")}
        higher = marks.highest(known.get(mark.ledger), mark)
        if higher != known.get(mark.ledger) and (mark.ledger in known or len(known) < marks.MOST_TOLD):
            known[mark.ledger] = higher
            with self.tables.transaction():
                self.tables.set(told=msgspec.msgpack.encode(list(known.values())))
            self._stated = True
        return True

    def ahead(self) -> Mark | None:
        """A mark that this ledger is behind, one of its own id before another ledger's; None if there is none."""
        return next(iter(self.all_ahead()), None)

    def all_ahead(self) -> list[Mark]:
        """The marks that this ledger is behind: for each ledger id the highest that a peer or the mark file states."""
        stated = self._stored("told")
        with suppress(NoMark):
            stated += self.outside()
        highest: dict[bytes, Mark] = {}
        for mark in stated:
            highest[mark.ledger] = marks.highest(highest.get(mark.ledger), mark)
        return sorted((m for m in highest.values() if self.behind(m)), key=lambda m: m.ledger != self.tables.id)

    def accepted(self, first: Collection[bytes] = ()) -> tuple[Mark, ...]:
        """The marks of other ledgers that this one has counted as its own: CLAIMS of them, those of these ids first."""
        return tuple(sorted(self._stored("accepted"), key=lambda mark: mark.ledger in first)[-CLAIMS:])

    def accept(self, ahead: Iterable[Mark]) -> None:
        """Inside a transaction: these are counted from now on, and no peer is known to be ahead."""
        accepted = {m.ledger: m for m in self._stored("accepted")}
        for mark in ahead:
            if mark.ledger != self.tables.id:
                accepted[mark.ledger] = marks.highest(self.counted(mark.ledger), mark)
        self.tables.set(accepted=msgspec.msgpack.encode(list(accepted.values())), told=msgspec.msgpack.encode([]))

    def accepted_now(self) -> None:
        """After that transaction."""
        self._stated = False
        if self.file:
            with self._writing(self.file):  # where it was may be gone with it: its owner does not wait for that
                self.file.path.parent.mkdir(parents=True, exist_ok=True)
        self.write()

    # --- in words ---

    @property
    def lost(self) -> str | None:
        """Why the mark file cannot be read although it was written once; None if it can. Its disk may come back."""
        try:
            self.outside()
        except NoMark as why:
            return f"without its mark: {why}"
        return None

    @property
    def behind_in_words(self) -> str | None:
        """What the ledger is behind, or lacks, in words; None if it is behind nothing and lacks nothing."""
        if lost := self.lost:
            return lost
        if self.tables.torn:
            return TORN
        if (mark := self.ahead()) is None:
            return None
        whose = "" if mark.ledger == self.tables.id else f" of another ledger ({mark.ledger.hex()[:8]})"
        return f"behind its mark{whose}: {marks.ahead_in_words(mark, self.counted(mark.ledger))}"

    @property
    def refusal(self) -> str | None:
        """Why this ledger lets no run spend, in one line with what its owner can do; None if runs may spend."""
        sentence = self.behind_in_words
        mark = f" --mark {self.file.path}" if self.file else ""
        return (
            sentence and f"its ledger is {sentence}; its owner runs 'hushgrid ledger accept {self.tables.path}{mark}'"
        )

    # --- the mark file ---

    @property
    def marked(self) -> bool:
        """Whether the ledger has ever written its mark file. If so and the file is absent, the mark is lost."""
        return self.tables.meta("marked") is not None

    def outside(self) -> list[Mark]:
        """The mark in the mark file; empty before the first one is written.

        Raises NoMark if the file is gone, cannot be read, or states a mark that no ledger can have.
        """
        if self.file is None:
            return []
        mark = self.file.read()
        if mark is None:
            if self.marked:
                raise NoMark(f"{self.file.path} is gone")
            return []
        if not marks.plausible(mark, self.counted(mark.ledger)):
            raise NoMark(f"{self.file.path} cannot be right (spend {mark.no})")
        return [mark]

    def sync(self) -> None:
        """Writes the mark after the commit it stands for: after a power cut it may lag behind, it is never ahead."""
        file = self.file
        if file is None:
            return
        if not self._stated and file.untouched():
            with self._writing(file):
                file.write(self.high_water)
            return
        try:
            self.outside()
            if not self.ahead():  # a mark that is ahead stays until it is accepted
                self.write()
        except NoMark as why:
            raise LedgerFailed(
                f"{self.tables.path}: its mark {why}, expected to write it: nothing was released"
            ) from None

    def write(self) -> None:
        """Writes the mark file, unless it states the mark of now."""
        file = self.file
        if file is None:
            return
        with self._writing(file):
            with suppress(NoMark):
                if file.read() == self.high_water and self.marked:
                    return
            if not self.marked:
                file.path.parent.mkdir(parents=True, exist_ok=True)
            file.write(self.high_water)
        if not self.marked:
            with self.tables.transaction():
                self.tables.set(marked=1)

    @contextmanager
    def _writing(self, file: MarkFile) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerFailed(
                f"{file.path}: {error.strerror}, expected to write the mark: nothing was released"
            ) from None

    # --- of peers ---

    def remember_peers(self) -> None:
        """Stores what is remembered of peers now, durably, if any of it has changed."""
        if self.peers.changed:
            with self.tables.transaction():
                self.write_peers(self.risen())
            self.peers.changed.clear()

    def risen(self) -> tuple[tuple[str, Peer], ...]:
        """The peers whose marks have risen since they were stored."""
        return tuple((name, self.peers.peers[name]) for name in sorted(self.peers.changed))

    def apply(self, waiting: list[Record]) -> None:
        """Inside a transaction: the marks of peers in records that only the log has."""
        self.write_peers(dict(change for record in waiting for change in record.peers).items())

    def write_peers(self, changed: Iterable[tuple[str, Peer]]) -> None:
        """Inside a transaction."""
        rows = [(node, msgspec.msgpack.encode(mark)) for node, mark in changed]
        self.tables.db.executemany("INSERT OR REPLACE INTO peer VALUES (?, ?)", rows)
