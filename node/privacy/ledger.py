"""The device's memory of what it has revealed: spends, state and sends of a step are stored together, or none of them.

Events are stored, and costs are computed from them. A step's spends, the machine's state (from which its messages
follow) and what the gate must repeat are committed together, durably, before any of it is published: as one record of a
log, or in one transaction of SQLite (`ledger_log.py`). So the ledger never shows less than what has left. A mark of how far the ledger has come is kept in two other places:
`marks.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.node.peer_marks import Peer, PeerMarks
from hushgrid.node.privacy import marks
from hushgrid.node.privacy.ledger_file import LedgerFailed
from hushgrid.node.privacy.ledger_log import LoggedTables, Record
from hushgrid.node.privacy.ledger_rows import Counted, Spend
from hushgrid.node.privacy.marks import LaterMark, MarkFile, NoMark
from hushgrid.node.privacy.run_table import ENDED, KEEP, OVER
from hushgrid.node.privacy.spend_table import ALL, Cost, boottime, costs_of, unpacked
from hushgrid.node.wire import CLAIMS, Mark

__all__ = ["Ledger", "LedgerFailed"]


#: Of a main file that lacks what stood beside it.
TORN = "without what was committed last: copied without its -wal and its -log, or one of them was removed"


class Ledger(LoggedTables):
    """An open ledger; one process holds it.

    `node` must be the name in the file (None: any name). If there is no file, a new ledger is made. `mark` is the path
    of the mark file. `durable=False` is for ledgers that end with the run: a power cut may take what was committed.
    Raises InputError if the file is no whole ledger, LedgerFailed if the disk fails.
    """

    def __init__(
        self,
        path: Path,
        node: str | None,
        mark: Path | None = None,
        *,
        durable: bool = True,
        clock: Callable[[], float] = boottime,
        keep: int = KEEP,
    ) -> None:
        self._mark_file = MarkFile(mark, durable) if mark else None
        super().__init__(path, node, durable, clock, keep)
        try:
            if self.refusal is None:
                self._write_mark()
        except LedgerFailed:
            self._give_up()
            raise

    def _load(self) -> None:
        super()._load()
        self._heard = bool(self._marks("told"))  #: whether peers remember marks that nobody has accepted
        #: what this node remembers of the ledgers of others: stored with the next commit
        self.peer_marks = PeerMarks(
            {n: msgspec.msgpack.decode(marks, type=Peer) for n, marks in self._ask("SELECT node, mark FROM peer")}
        )

    def close(self) -> None:
        if self._held:
            with suppress(LedgerFailed):
                self.remember_peers()
        super().close()
        if self._mark_file:
            self._mark_file.close()

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
        costs = costs_of(spends)
        return self._price_after(costs).mark(self.id, self.no + len(costs))

    def _counted(self, ledger: bytes) -> Mark:
        """How far this ledger has counted the ledger of this id: itself, or one whose spends its owner has accepted."""
        if ledger == self.id:
            return self.mark
        return next((m for m in self._marks("accepted") if m.ledger == ledger), Mark(ledger, 0))

    def _marks(self, key: str) -> list[Mark]:
        blob = self._meta(key)
        return msgspec.msgpack.decode(blob, type=list[Mark]) if blob else []

    def missed(self, mark: Mark) -> int:
        """How many spends a mark knows that this ledger has not counted."""
        return max(mark.no - self._counted(mark.ledger).no, 0)

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
            self._heard = True
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
            return TORN
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
        counts under every adjacency. A masked run does not go on. A mark file that was gone or could not be read is written
        again. Raises LedgerFailed if the disk does not take it, InputError if a later program wrote the mark.
        """
        try:
            self._outside()
        except LaterMark as why:
            raise InputError(f"{why}: accept with that program, which can read it") from None
        except NoMark:
            pass
        ahead = self._ahead()
        accepted = {m.ledger: m for m in self._marks("accepted")}
        no, rows, costs = self.no, [], []
        for mark in ahead:
            counted = self._counted(mark.ledger)
            no = max(mark.no, no + 1) if mark.ledger == self.id else no + 1
            value = marks.missing(mark.epsilon, counted.epsilon)
            if mark.nonprivate and not counted.nonprivate:
                value = inf
            costs.append(Cost("gap", value, marks.missing(mark.mu2, counted.mu2), ""))
            rows.append((no, *costs[-1][1:3], self.now(), self.running, self.data_version))
            if mark.ledger != self.id:
                accepted[mark.ledger] = marks.highest(counted, mark)
        sums, price = self._sums_after(costs, None, self.data_version), self._price_after(costs)
        with self._transaction():
            self.db.executemany(
                "INSERT INTO spend (no, kind, value, mu2, adjacency, sampler, at, ran, version) "
                "VALUES (?1, 'gap', ?2, ?3, '', '', ?4, ?5, ?6)",
                rows,
            )
            self._write_sums(sums, price)
            self._set(accepted=msgspec.msgpack.encode(list(accepted.values())), told=msgspec.msgpack.encode([]))
            self._erase_keys()  # what a lost branch has masked with its key is not known
            self._new_branch()
        self._branched()
        self._counted_now(sums, price, costs)
        self.no, self._heard = no, False
        self._write_mark()
        return ahead

    def _sync_mark(self) -> None:
        """Writes the mark after the commit it stands for: after a power cut it may lag behind, it is never ahead.

        Raises LedgerFailed if the mark cannot be written.
        """
        file = self._mark_file
        if file is None:
            return
        if not self._heard and file.untouched():
            with self._marking(file):
                file.write(self.mark)
            return
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
        with self._marking(file):
            with suppress(NoMark):
                if file.read() == self.mark and self.marked:
                    return
            if not self.marked:
                file.path.parent.mkdir(parents=True, exist_ok=True)
            file.write(self.mark)
        if not self.marked:
            with self._transaction():
                self._set(marked=1)

    @contextmanager
    def _marking(self, file: MarkFile) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerFailed(
                f"{file.path}: {error.strerror}, expected to write the mark: nothing was released"
            ) from None

    def accepted(self, first: Collection[bytes] = ()) -> tuple[Mark, ...]:
        """The marks of other ledgers that this one has counted as its own: CLAIMS of them, those of these ids first."""
        return tuple(sorted(self._marks("accepted"), key=lambda mark: mark.ledger in first)[-CLAIMS:])

    def remember_peers(self) -> None:
        """Stores what is remembered of peers now, durably, if any of it has changed."""
        if self.peer_marks.changed:
            with self._transaction():
                self._write_peers(self._risen())
            self.peer_marks.changed.clear()

    def _risen(self) -> tuple[tuple[str, Peer], ...]:
        return tuple((name, self.peer_marks.peers[name]) for name in sorted(self.peer_marks.changed))

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
        version: int | None = None,
    ) -> None:
        """Stores everything that a step did, durably. Nothing of it may be published before this returns.

        What has risen of the marks of peers goes with it. `state`: of the machine and the gate. `last`: the message to repeat once the run has ended. `answers`: what the
        gate must repeat, as (question, answer). `history`: (round, residual, messages, bytes). `version`: of the data
        that the spends are about [that of now]. Raises LedgerFailed if the disk does not take it.
        """
        spends, answers = list(spends), list(answers)
        version = self.data_version if version is None else min(version, self.data_version)
        when = self.now(), self.running, version
        logged = last is None and not answers and status in (None, "running")
        risen = self._risen()
        if not (logged and self._log_step(Record(run, state, status, self.no + 1, spends, *when, history, risen))):
            costs = costs_of(spends)
            sums, price = self._sums_after(costs, run, version), self._price_after(costs)
            with self._transaction():
                if spends:
                    self._insert(run, self.no + 1, spends, when)
                    self._write_sums(sums, price)
                self.db.execute(
                    "UPDATE run SET state = coalesce(?, state), status = coalesce(?, status), last = coalesce(?, last), "
                    "spends = spends + ? WHERE id = ?",
                    (state, status, last, len(spends), run),
                )
                if answers:
                    self.db.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers)
                if history:
                    self.db.execute("INSERT OR REPLACE INTO history VALUES (?,?,?,?,?)", (run, *history))
                self._write_peers(risen)
                if status in OVER:
                    self._erase_keys("run = ?", run)
                if status in ENDED:
                    self._compact()
            self._counted_now(sums, price, costs)
        self.peer_marks.changed.clear()
        if spends:
            self._sync_mark()

    # --- what an owner does with the file ---

    def verify(self) -> list[str]:
        """What is wrong with this ledger, one line a problem; empty if it is whole."""
        self.checkpoint()
        try:
            wrong = [f"integrity: {row[0]}" for row in self.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        except sqlite3.DatabaseError as error:
            return [f"integrity: {error}"]
        if wrong:
            return wrong
        wrong = self._missing() or self._miscounted()
        if words := self.behind_in_words:
            wrong.append(words)
        return wrong

    def _missing(self) -> list[str]:
        """Numbers that no row stands for, in words."""
        wrong, previous = [], 0
        gaps = {no for (no,) in self.db.execute("SELECT no FROM spend WHERE kind = 'gap'")}
        for first, no, sums in self.db.execute(
            "SELECT first, no, sums FROM past UNION ALL SELECT no, no, NULL FROM spend ORDER BY no"
        ):
            if (
                first != previous + 1
                and no not in gaps
                and not (sums and any("gap" in c.kinds for c in unpacked(sums).values()))
            ):
                wrong.append(f"spends {previous + 1} to {first - 1} are missing")
            previous = no
        return wrong

    def _miscounted(self) -> list[str]:
        """Whether the sums of all spends are those of the rows, in words."""
        found: dict[str, Counted] = {}
        row = "adjacency, kind, value, mu2"
        for adjacency, *equal in self.db.execute(f"SELECT {row}, count(*), honest FROM spend GROUP BY {row}, honest"):
            found[adjacency] = found.get(adjacency, Counted()).plus(*equal)
        for (blob,) in self.db.execute("SELECT sums FROM past"):
            for adjacency, sums in unpacked(blob).items():
                found[adjacency] = found.get(adjacency, Counted()).with_all(sums)
        return ["the sums of its spends are not those of its rows"] if found != self._of(ALL) else []
