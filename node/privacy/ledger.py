"""The device's memory of what it has revealed: one SQLite file, one transaction for spends, state and sends.

Events are stored, costs are computed from them. A step's spends, the machine's state (from which its messages follow)
and what the gate must repeat are committed together, durably, before anything of them is published: the ledger never
shows less than what has left the device. A mark of how far it has come is kept outside twice, see `marks.py`.
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

    `node` is checked against the file's (None: whoever's it is), and a new ledger is made if there is no file. `mark` is
    the file outside. `durable=False` is for ledgers that end with the run: a power cut may take what was committed.
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
        """A budget counts at this unit: marks are priced at the largest there ever was, so that no price is too small.

        Otherwise answers of a small unit, lost with an old copy, would come back at a fraction of what they cost.
        """
        unit = float(adjacency.partition(" ")[2]) if relation(adjacency) == "bounded-change" else 0.0
        if unit > self.unit:
            with self._transaction():
                self._set(unit=unit)
            self.unit = unit
            self._price = self._priced()

    def totals(self, adjacency: str) -> Totals:
        """Everything spent under one relation, counted at the unit of `adjacency`, with what counts under every one."""
        totals = Totals()
        for own, counted in self._totals.items():
            if own == "" or relation(own) == relation(adjacency):
                totals.include(counted, steps(own, adjacency) if own else 1)
        return totals

    def events(self, adjacency: str, but: bytes) -> list[Event]:
        """The events under one relation at the unit of `adjacency`, or under every one, of all runs but one."""
        rows = self._ask("SELECT kind, value, mu2, adjacency FROM spend WHERE run IS NOT ? ORDER BY no", (but,))
        return [
            grouped(event, steps(own, adjacency) if own else 1)
            for kind, value, mu2, own in rows
            if own == "" or relation(own) == relation(adjacency)
            for event in events_of(kind, value, mu2)
        ]

    @property
    def adjacencies(self) -> list[str]:
        return sorted(a for a in self._totals if a)

    # --- marks ---

    @property
    def marked(self) -> bool:
        """Whether it has ever written its mark outside: if so, a mark that is not there is lost."""
        return self._meta("marked") is not None

    @property
    def mark(self) -> Mark:
        return self._price.mark(self.id, self.no)

    def mark_after(self, spends: Iterable[Spend]) -> Mark:
        """The mark as it will be once these spends are committed."""
        spends = list(spends)
        return self._price_after(spends).mark(self.id, self.no + len(spends))

    def _price_after(self, spends: Iterable[Spend]) -> Price:
        price = self._price
        for s in spends:
            price = price.plus(s.kind, s.value, s.mu2, self._steps(s.adjacency))
        return price

    def _own(self, ledger: bytes) -> Mark:
        """How far this ledger has counted one: itself, or another one whose spends its owner has accepted."""
        if ledger == self.id:
            return self.mark
        return next((m for m in self._marks("accepted") if m.ledger == ledger), Mark(ledger, 0))

    def _marks(self, key: str) -> list[Mark]:
        blob = self._meta(key)
        return msgspec.msgpack.decode(blob, type=list[Mark]) if blob else []

    def behind(self, told: Mark) -> bool:
        """Whether somebody remembers more of this device than the ledger does."""
        own = self._own(told.ledger)
        return marks.plausible(told, own) and marks.above(told, own)

    def tell(self, told: Mark) -> bool:
        """A peer's memory of this device. True, and kept for `accept`, if the ledger is behind it."""
        told = marks.bounded(told)
        if not self.behind(told):
            return False
        known = {m.ledger: m for m in self._marks("told")}
        higher = marks.highest(known.get(told.ledger), told)
        if higher != known.get(told.ledger) and (told.ledger in known or len(known) < marks.MOST_TOLD):
            known[told.ledger] = higher
            with self._transaction():
                self._set(told=msgspec.msgpack.encode(list(known.values())))
        return True

    def told(self) -> Mark | None:
        """A mark this ledger is behind, its own before another ledger's; None if there is none."""
        return next(iter(self._ahead()), None)

    def _ahead(self) -> list[Mark]:
        """What this ledger is behind: of each ledger the highest mark that its peers and its file have told."""
        heard = self._marks("told")
        with suppress(NoMark):
            heard += self._outside()
        told: dict[bytes, Mark] = {}
        for mark in heard:
            told[mark.ledger] = marks.highest(told.get(mark.ledger), mark)
        return sorted((m for m in told.values() if self.behind(m)), key=lambda m: m.ledger != self.id)

    def _outside(self) -> list[Mark]:
        """The mark in its file; none before the first. NoMark if it is gone, cannot be read, or is no ledger's."""
        if self._mark_file is None:
            return []
        mark = self._mark_file.read()
        if mark is None:
            if self.marked:
                raise NoMark(f"{self._mark_file.path} is gone")
            return []
        if not marks.plausible(mark, self._own(mark.ledger)):
            raise NoMark(f"{self._mark_file.path} cannot be right (spend {mark.no})")
        return [mark]

    @property
    def lost_mark(self) -> str | None:
        """Why the mark outside cannot be had, although it was written once: its disk may come back. None if it can."""
        try:
            self._outside()
        except NoMark as why:
            return f"without its mark: {why}"
        return None

    @property
    def behind_in_words(self) -> str | None:
        """Which memory is ahead of this ledger, or lost; None if it is behind nothing."""
        if lost := self.lost_mark:
            return lost
        if self.torn:
            return "without what was committed last: copied without its -wal, or that was removed"
        if (told := self.told()) is None:
            return None
        whose = "" if told.ledger == self.id else f" of another ledger ({told.ledger.hex()[:8]})"
        return f"behind its mark{whose}: {marks.ahead_in_words(told, self._own(told.ledger))}"

    @property
    def refusal(self) -> str | None:
        """Why this ledger lets no run spend, in one line that says what its owner can do; None if it does."""
        words = self.behind_in_words
        mark = f" --mark {self._mark_file.path}" if self._mark_file else ""
        return words and f"its ledger is {words}; its owner runs 'hushgrid ledger accept {self.path}{mark}'"

    def accept(self) -> list[Mark]:
        """The owner records what others remember as spent. Returns the marks the ledger was behind. LedgerFailed.

        The maximum of every component over the mark file, all that peers have told, and the ledger itself: it never gives
        budget back. A mark does not say under which adjacency it was spent, so a gap counts under every one. A mark file
        that was gone or could not be read is written again.
        """
        ahead = self._ahead()
        accepted = {m.ledger: m for m in self._marks("accepted")}
        no, rows = self.no, []
        for told in ahead:
            own = self._own(told.ledger)
            no = max(told.no, no + 1) if told.ledger == self.id else no + 1
            value = marks.missing(told.epsilon, own.epsilon)
            if told.nonprivate and not own.nonprivate:
                value = inf
            rows.append((no, value, marks.missing(told.mu2, own.mu2), self.now()))
            if told.ledger != self.id:
                accepted[told.ledger] = marks.highest(own, told)
        with self._transaction():
            self.db.executemany(
                "INSERT INTO spend (no, kind, value, mu2, adjacency, sampler, at) VALUES (?1, 'gap', ?2, ?3, '', '', ?4)",
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
        """The mark follows the commit it stands for: it may lag a power cut, never run ahead. LedgerFailed."""
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

    def remember_peers(self, of: dict[str, Mark]) -> None:
        """The highest marks seen of others, durable."""
        with self._transaction():
            rows = [(node, msgspec.msgpack.encode(mark)) for node, mark in of.items()]
            self.db.executemany("INSERT OR REPLACE INTO peer VALUES (?, ?)", rows)

    def peers(self) -> dict[str, Mark]:
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
        """Everything a step did, durable when this returns. Nothing of it may be published before."""
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
        """What has been spent, in order, in one run or in all."""
        rows = self._ask(
            f"SELECT {', '.join(StoredSpend._fields)} FROM spend WHERE ?1 IS NULL OR run = ?1 ORDER BY no", (run,)
        )
        return [StoredSpend(*row) for row in rows]

    # --- what an owner does with the file ---

    def verify(self) -> list[str]:
        """What is wrong with this ledger, a line each; nothing if it is whole."""
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
