"""The device's memory of what it has revealed: one SQLite file, one transaction for spends, state and sends.

Events are stored, and costs are computed from them. A step's spends, the machine's state (from which its messages
follow) and what the gate must repeat are committed together, durably, before any of it is published. So the ledger
never shows less than what has left the device. A mark of how far the ledger has come is kept in two other places:
`marks.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from pathlib import Path

import msgspec

from hushgrid.kernels.privacy.accounting import Event, Totals, grouped
from hushgrid.node.privacy import marks
from hushgrid.node.privacy.ledger_file import LedgerFailed
from hushgrid.node.privacy.ledger_rows import Spend, StoredSpend, events_of, relation, steps
from hushgrid.node.privacy.marks import MarkFile, NoMark, Price
from hushgrid.node.privacy.run_table import ENDED, RunTable
from hushgrid.node.wire import Mark

__all__ = ["Ledger", "LedgerFailed"]


class Ledger(RunTable):
    """An open ledger; one process holds it.

    `node` must be the name in the file (None: any name). If there is no file, a new ledger is made. `mark` is the path
    of the mark file. `durable=False` is for ledgers that end with the run: a power cut may take what was committed.
    Raises InputError if the file is no whole ledger, LedgerFailed if the disk fails.
    """

    def __init__(self, path: Path, node: str | None, mark: Path | None = None, *, durable: bool = True) -> None:
        self._mark_file = MarkFile(mark, durable) if mark else None
        super().__init__(path, node, durable)
        try:
            if self.refusal is None:
                self._write_mark()
        except LedgerFailed:
            self._give_up()
            raise

    def _load(self) -> None:
        self.id: bytes = self._meta("ledger")
        self.unit: float = self._meta("unit") or 0.0
        self.no: int = self._ask("SELECT coalesce(max(no), 0) FROM spend")[0][0]
        #: number of the last answer; a gap that the owner has accepted since is none
        self.answered: int = self._ask("SELECT coalesce(max(no), 0) FROM spend WHERE kind != 'gap'")[0][0]
        self._totals: dict[str, Totals] = {}
        for row in self._rows():
            self._count(*row)
        self._price = self._priced()

    # --- what a device has spent ---

    def _rows(self) -> list[tuple[str, float, float, str]]:
        return self._ask("SELECT kind, value, mu2, adjacency FROM spend ORDER BY no")

    def _count(self, kind: str, value: float, mu2: float, adjacency: str) -> None:
        totals = self._totals.setdefault(adjacency, Totals())
        for event in events_of(kind, value, mu2):
            totals.add(event)

    def _priced(self) -> Price:
        price = Price()
        for kind, value, mu2, adjacency in self._rows():
            price = price.plus(kind, value, mu2, self._steps(adjacency))
        return price

    def _steps(self, adjacency: str) -> int:
        return steps(adjacency, f"bounded-change {self.unit!r}") if self.unit else 1

    def count_at(self, adjacency: str) -> None:
        """A budget counts at the unit of `adjacency`. Marks are priced at the largest unit that was ever used.

        So no price is too small. Otherwise answers of a small unit that were lost with an old copy would be accepted at
        a fraction of what they cost.
        """
        unit = float(adjacency.partition(" ")[2]) if relation(adjacency) == "bounded-change" else 0.0
        if unit > self.unit:
            with self._transaction():
                self._set(unit=unit)
            self.unit = unit
            self._price = self._priced()

    def totals(self, adjacency: str) -> Totals:
        """What was spent under the relation of `adjacency` or under every relation, at the unit of `adjacency`."""
        totals = Totals()
        for stored, counted in self._totals.items():
            if stored == "" or relation(stored) == relation(adjacency):
                totals.include(counted, steps(stored, adjacency) if stored else 1)
        return totals

    def events(self, adjacency: str, but: bytes) -> list[Event]:
        """The events that `totals` counts, at the unit of `adjacency`, of all runs but the run `but`."""
        rows = self._ask("SELECT kind, value, mu2, adjacency FROM spend WHERE run IS NOT ? ORDER BY no", (but,))
        return [
            grouped(event, steps(stored, adjacency) if stored else 1)
            for kind, value, mu2, stored in rows
            if stored == "" or relation(stored) == relation(adjacency)
            for event in events_of(kind, value, mu2)
        ]

    @property
    def adjacencies(self) -> list[str]:
        """Every adjacency under which something was spent, in words, sorted."""
        return sorted(a for a in self._totals if a)

    # --- marks ---

    @property
    def marked(self) -> bool:
        """Whether the ledger has ever written its mark file. If so and the file is absent, the mark is lost."""
        return self._meta("marked") is not None

    @property
    def mark(self) -> Mark:
        """How far the ledger has come: its id, the number of its last spend, and the price of all spends."""
        return self._price.mark(self.id, self.no)

    def mark_after(self, spends: Iterable[Spend]) -> Mark:
        """The mark after these spends, which are not committed yet."""
        spends = list(spends)
        return self._price_after(spends).mark(self.id, self.no + len(spends))

    def _price_after(self, spends: Iterable[Spend]) -> Price:
        price = self._price
        for s in spends:
            price = price.plus(s.kind, s.value, s.mu2, self._steps(s.adjacency))
        return price

    def _counted(self, ledger: bytes) -> Mark:
        """How far this ledger has counted the ledger of this id: itself, or one whose spends its owner has accepted."""
        if ledger == self.id:
            return self.mark
        return next((m for m in self._marks("accepted") if m.ledger == ledger), Mark(ledger, 0))

    def _marks(self, key: str) -> list[Mark]:
        blob = self._meta(key)
        return msgspec.msgpack.decode(blob, type=list[Mark]) if blob else []

    def behind(self, mark: Mark) -> bool:
        """Whether this mark, which another place remembers, is ahead of the ledger."""
        counted = self._counted(mark.ledger)
        return marks.plausible(mark, counted) and marks.above(mark, counted)

    def tell(self, mark: Mark) -> bool:
        """A peer says that it remembers this mark. True if the ledger is behind it: then it is kept for `accept`."""
        mark = marks.bounded(mark)
        if not self.behind(mark):
            return False
        known = {m.ledger: m for m in self._marks("told")}
        higher = marks.highest(known.get(mark.ledger), mark)
        if higher != known.get(mark.ledger) and (mark.ledger in known or len(known) < marks.MOST_TOLD):
            known[mark.ledger] = higher
            with self._transaction():
                self._set(told=msgspec.msgpack.encode(list(known.values())))
        return True

    def told(self) -> Mark | None:
        """A mark that this ledger is behind, one of its own id before another ledger's; None if there is none."""
        return next(iter(self._ahead()), None)

    def _ahead(self) -> list[Mark]:
        """The marks that this ledger is behind: for each ledger id the highest that a peer or the mark file states."""
        heard = self._marks("told")
        with suppress(NoMark):
            heard += self._outside()
        highest: dict[bytes, Mark] = {}
        for mark in heard:
            highest[mark.ledger] = marks.highest(highest.get(mark.ledger), mark)
        return sorted((m for m in highest.values() if self.behind(m)), key=lambda m: m.ledger != self.id)

    def _outside(self) -> list[Mark]:
        """The mark in the mark file; empty before the first one is written.

        Raises NoMark if the file is gone, cannot be read, or states a mark that no ledger can have.
        """
        if self._mark_file is None:
            return []
        mark = self._mark_file.read()
        if mark is None:
            if self.marked:
                raise NoMark(f"{self._mark_file.path} is gone")
            return []
        if not marks.plausible(mark, self._counted(mark.ledger)):
            raise NoMark(f"{self._mark_file.path} cannot be right (spend {mark.no})")
        return [mark]

    @property
    def lost_mark(self) -> str | None:
        """Why the mark file cannot be read although it was written once; None if it can. Its disk may come back."""
        try:
            self._outside()
        except NoMark as why:
            return f"without its mark: {why}"
        return None

    @property
    def behind_in_words(self) -> str | None:
        """What the ledger is behind, or lacks, in words; None if it is behind nothing and lacks nothing."""
        if lost := self.lost_mark:
            return lost
        if self.torn:
            return "without what was committed last: copied without its -wal, or that was removed"
        if (mark := self.told()) is None:
            return None
        whose = "" if mark.ledger == self.id else f" of another ledger ({mark.ledger.hex()[:8]})"
        return f"behind its mark{whose}: {marks.ahead_in_words(mark, self._counted(mark.ledger))}"

    @property
    def refusal(self) -> str | None:
        """Why this ledger lets no run spend, in one line with what its owner can do; None if runs may spend."""
        words = self.behind_in_words
        mark = f" --mark {self._mark_file.path}" if self._mark_file else ""
        return words and f"its ledger is {words}; its owner runs 'hushgrid ledger accept {self.path}{mark}'"

    def accept(self) -> list[Mark]:
        """The owner records as spent what others remember. Returns the marks that the ledger was behind.

        What is recorded is the maximum of every component over the mark file, all marks of peers, and the ledger
        itself, so it never gives budget back. A mark does not say under which adjacency it was spent, so such a gap
        counts under every adjacency. A mark file that was gone or could not be read is written again. Raises
        LedgerFailed if the disk does not take it.
        """
        ahead = self._ahead()
        accepted = {m.ledger: m for m in self._marks("accepted")}
        no, rows = self.no, []
        for mark in ahead:
            counted = self._counted(mark.ledger)
            no = max(mark.no, no + 1) if mark.ledger == self.id else no + 1
            value = marks.missing(mark.epsilon, counted.epsilon)
            if mark.nonprivate and not counted.nonprivate:
                value = inf
            rows.append((no, value, marks.missing(mark.mu2, counted.mu2), self.now()))
            if mark.ledger != self.id:
                accepted[mark.ledger] = marks.highest(counted, mark)
        with self._transaction():
            self.db.executemany(
                "INSERT INTO spend (no, kind, value, mu2, adjacency, sampler, at) "
                "VALUES (?1, 'gap', ?2, ?3, '', '', ?4)",
                rows,
            )
            self._set(accepted=msgspec.msgpack.encode(list(accepted.values())), told=msgspec.msgpack.encode([]))
            self.db.execute("DELETE FROM meta WHERE key = 'torn'")
        for no, value, mu2, _ in rows:
            self.no, self._price = no, self._price.plus("gap", value, mu2)
            self._count("gap", value, mu2, "")
        self._write_mark()
        return ahead

    def _sync_mark(self) -> None:
        """Writes the mark after the commit it stands for: after a power cut it may lag behind, it is never ahead.

        Raises LedgerFailed if the mark cannot be written.
        """
        try:
            self._outside()
            if not self._ahead():  # a mark that is ahead stays until it is accepted
                self._write_mark()
        except NoMark as why:
            raise LedgerFailed(f"{self.path}: its mark {why}, expected to write it: nothing was released") from None

    def _write_mark(self) -> None:
        file = self._mark_file
        if file is None:
            return
        try:
            with suppress(NoMark):
                if file.read() == self.mark and self.marked:
                    return
            if not self.marked:
                file.path.parent.mkdir(parents=True, exist_ok=True)
            file.write(self.mark)
        except OSError as error:
            raise LedgerFailed(
                f"{file.path}: {error.strerror}, expected to write the mark: nothing was released"
            ) from None
        if not self.marked:
            with self._transaction():
                self._set(marked=1)

    def remember_peers(self, highest: dict[str, Mark]) -> None:
        """Stores the highest mark that was seen of each peer, by its name, durably."""
        with self._transaction():
            rows = [(node, msgspec.msgpack.encode(mark)) for node, mark in highest.items()]
            self.db.executemany("INSERT OR REPLACE INTO peer VALUES (?, ?)", rows)

    def peers(self) -> dict[str, Mark]:
        """The highest mark that was seen of each peer, by its name."""
        return {n: msgspec.msgpack.decode(mark, type=Mark) for n, mark in self._ask("SELECT node, mark FROM peer")}

    # --- the one transaction ---

    def commit(
        self,
        run: bytes,
        *,
        spends: Iterable[Spend] = (),
        state: bytes | None = None,
        status: str | None = None,
        last: bytes | None = None,
        answers: Iterable[tuple[bytes, bytes]] = (),
        history: tuple[int, float | None, int, int] | None = None,
    ) -> None:
        """Stores everything that a step did, durably. Nothing of it may be published before this returns.

        `state`: of the machine and the gate. `last`: the message to repeat once the run has ended. `answers`: what the
        gate must repeat, as (question, answer). `history`: (round, residual, messages, bytes). Raises LedgerFailed if
        the disk does not take it.
        """
        spends, at = list(spends), self.now()
        rows = [
            (no, run, s.answer, s.kind, s.value, s.sensitivity, s.scale, s.grid, s.adjacency, s.sampler, s.mu2, at)
            for no, s in enumerate(spends, start=self.no + 1)
        ]
        with self._transaction():
            if rows:
                self.db.executemany("INSERT INTO spend VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows)
            self.db.execute(
                "UPDATE run SET state = coalesce(?, state), status = coalesce(?, status), last = coalesce(?, last), "
                "spends = spends + ? WHERE id = ?",
                (state, status, last, len(rows), run),
            )
            if answers := list(answers):
                self.db.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers)
            if history:
                self.db.execute("INSERT OR REPLACE INTO history VALUES (?,?,?,?,?)", (run, *history))
            if status in ENDED:
                self._compact()
        self.no, self._price = self.no + len(rows), self._price_after(spends)
        for s in spends:
            self._count(s.kind, s.value, s.mu2, s.adjacency)
        if rows:
            self.answered = self.no
            self._sync_mark()

    def spends(self, run: bytes | None = None) -> list[StoredSpend]:
        """What has been spent, in order, in the run `run` or in all (None)."""
        rows = self._ask(
            f"SELECT {', '.join(StoredSpend._fields)} FROM spend WHERE ?1 IS NULL OR run = ?1 ORDER BY no", (run,)
        )
        return [StoredSpend(*row) for row in rows]

    # --- what an owner does with the file ---

    def verify(self) -> list[str]:
        """What is wrong with this ledger, one line a problem; empty if it is whole."""
        try:
            wrong = [f"integrity: {row[0]}" for row in self.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        except sqlite3.DatabaseError as error:
            return [f"integrity: {error}"]
        if wrong:
            return wrong
        previous, gaps = 0, dict(self.db.execute("SELECT no, no FROM spend WHERE kind = 'gap'").fetchall())
        for (no,) in self.db.execute("SELECT no FROM spend ORDER BY no"):
            if no != previous + 1 and no not in gaps:
                wrong.append(f"spends {previous + 1} to {no - 1} are missing")
            previous = no
        if words := self.behind_in_words:
            wrong.append(words)
        return wrong
