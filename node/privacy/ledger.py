"""The device's memory of what it has revealed: spends, state and sends of a step are stored together, or none of them.

Events are stored, and costs are computed from them. A step's spends, the machine's state (from which its messages
follow) and what the gate must repeat are committed together, durably, before any of it is published: as one record of a
log, or in one transaction of SQLite (`ledger_log.py`). So the ledger never shows less than what has left. A mark of how
far the ledger has come is kept in two other places: `marks.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

import msgspec

from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.node import system
from hushgrid.node.pieces import Pieces
from hushgrid.node.privacy import marks
from hushgrid.node.privacy.ledger_file import LedgerFailed, unusable
from hushgrid.node.privacy.ledger_log import Behind, Record, Round, Tables
from hushgrid.node.privacy.ledger_marks import Marks
from hushgrid.node.privacy.ledger_rows import Cost, Counted, ReadingDays, Spend, costs_of
from hushgrid.node.privacy.marks import LaterMark, MarkFile, NoMark
from hushgrid.node.privacy.run_table import ENDED, KEEP, OVER, RunTable
from hushgrid.node.privacy.spend_table import ALL, VERSION, SpendTable, unpacked
from hushgrid.node.wire import Mark

__all__ = ["Ledger", "LedgerFailed"]


class Ledger:
    """An open ledger; one process holds it. It has tables of spends and of runs, and marks.

    `node` must be the name in the file (None: any name). If there is no file, a new ledger is made. `mark` is the path
    of the mark file. `durable=False` is for ledgers that end with the run: a power cut may take what was committed.
    `buffered` is for those that end with this object: there is no file, and `close` does nothing.
    Raises InputError if the file is no whole ledger. Every method raises LedgerFailed if the disk fails.
    """

    def __init__(
        self,
        path: Path,
        node: str | None,
        mark: Path | None = None,
        *,
        durable: bool = True,
        buffered: bool = False,
        clock: Callable[[], float] = system.boottime,
        keep: int = KEEP,
    ) -> None:
        self.path, self.tables = path, Tables(path, durable, buffered and not durable)
        try:
            self.tables.open(node)
            self.id, self.node = self.tables.id, self.tables.file.node
            self.spends = SpendTable(self.tables, clock)
            self.runs = RunTable(self.tables, self.spends, keep)
            self.marks = Marks(self.tables, self.spends, MarkFile(mark, durable) if mark else None)
            self.tables.parts = [self.spends, self.runs, self.marks]
            self._recover()
            self.tables.file.opened = True
            if self.refusal is None:
                self.marks.write()
        except HushgridError:
            self._give_up()
            raise
        except (sqlite3.Error, OSError, TypeError, ValueError, msgspec.MsgspecError) as error:
            self._give_up()
            raise unusable(path, error) from None

    def _recover(self) -> None:
        """Brings what the log holds into the tables; if they are older than the log, it stays, and `torn` says so."""
        try:
            for record in self.tables.unapplied():
                if record.spends and record.no != self.spends.no + 1:
                    raise Behind
                self._take(record)
        except Behind:
            self.tables.tear()
            self.spends.load()
            return
        if self.tables.waiting:
            with self.tables.transaction():
                pass

    def _take(self, record: Record) -> None:
        """A record is durable: what is kept in memory follows."""
        self.spends.take(record)
        self.tables.waiting.append(record)

    def __del__(self) -> None:
        # Ending without `close` loses nothing (kill -9 does the same); only the file handle must not outlive us.
        self._give_up()

    def _give_up(self) -> None:
        self._note_running()
        self.tables.give_up()

    def _note_running(self) -> None:
        if self.tables.file.locked and self.tables.file.held:
            with suppress(AttributeError, sqlite3.Error, LedgerFailed):
                self.spends.note_running()

    def close(self) -> None:
        """Orderly: what is in the log goes into the main file, which is then a whole copy by itself."""
        if self.tables.file.held:
            with suppress(LedgerFailed):
                self.marks.remember_peers()
        self._note_running()
        self.tables.close()
        if self.marks.file:
            self.marks.file.close()

    def checkpoint(self) -> None:
        """Brings what is only in the log into the tables."""
        self.tables.checkpoint()

    def copy_to(self, path: Path) -> None:
        """As `LedgerFile.copy_to`."""
        self.tables.checkpoint()
        self.tables.file.copy_to(path)

    # --- marks ---

    @property
    def mark(self) -> Mark:
        """The high-water mark: how far the ledger has come."""
        return self.marks.high_water

    @property
    def refusal(self) -> str | None:
        """Why this ledger lets no run spend, in one line with what its owner can do; None if runs may spend."""
        return self.marks.refusal

    def accept(self) -> list[Mark]:
        """The owner records as spent what others remember. Returns the marks that the ledger was behind.

        What is recorded is the maximum of every component over the mark file, all marks of peers, and the ledger
        itself, so it never gives budget back. A mark does not say under which adjacency it was spent, so such a gap
        counts under every adjacency. A masked run does not go on. A mark file that was gone or could not be read is
        written again. Raises InputError if a later program wrote the mark.
        """
        try:
            self.marks.outside()
        except LaterMark as why:
            raise InputError(f"{why}: accept with that program, which can read it") from None
        except NoMark:
            pass
        ahead, spends = self.marks.all_ahead(), self.spends
        no, rows, costs = spends.no, [], []
        for mark in ahead:
            counted = self.marks.counted(mark.ledger)
            no = max(mark.no, no + 1) if mark.ledger == self.id else no + 1
            value = marks.missing(mark.epsilon, counted.epsilon)
            if mark.nonprivate and not counted.nonprivate:
                value = inf
            costs.append(Cost("gap", value, marks.missing(mark.mu2, counted.mu2), ""))
            rows.append((no, *costs[-1][1:3], self.tables.now(), spends.running, spends.data_version))
        sums, price = spends.after(costs, None, spends.data_version)
        with self.tables.transaction():
            self.tables.db.executemany(
                "INSERT INTO spend (no, kind, value, mu2, adjacency, sampler, at, ran, version) "
                "VALUES (?1, 'gap', ?2, ?3, '', '', ?4, ?5, ?6)",
                rows,
            )
            spends.write_sums(sums, price)
            self.marks.accept(ahead)
            self.runs.erase_keys()  # what a lost branch has masked with its key is not known
            self.tables.new_branch()
        self.tables.branched()
        spends.counted(sums, price, costs)
        spends.no = no
        self.marks.accepted_now()
        return ahead

    # --- the one transaction ---

    def join(self, run: bytes, plan: bytes, status: str = "joined") -> None:
        """Stores a plan: from here on the run is known. Any other run under way is stopped if this one is joined."""
        self.runs.join(run, plan, status)
        if status == "joined":
            self.tables.prepare_log()

    def commit(
        self,
        run: bytes,
        *,
        spends: Iterable[Spend] = (),
        state: bytes | Callable[[], bytes | Pieces] | None = None,
        status: str | None = None,
        last: bytes | None = None,
        answers: Iterable[tuple[bytes, bytes]] = (),
        history: Round | None = None,
        version: int | None = None,
    ) -> None:
        """Stores everything that a step did, durably. Nothing of it may be published before this returns.

        What has risen of the marks of peers goes with it. `state`: of the machine and the gate; a buffered ledger asks
        for it when it writes. `last`: the message to repeat once the run has ended. `answers`: what the gate must
        repeat, as (question, answer). `version`: of the data that the spends are about [that of now].
        """
        spends, answers = list(spends), list(answers)
        version = self.data_version if version is None else min(version, self.data_version)
        when = self.tables.now(), self.spends.running, version
        logged = last is None and not answers and status in (None, "running")
        if spends:
            self.spends.scopes(run, version)  # from here on nothing asks the tables until the record waits for them
        risen = self.marks.risen()
        later = state if callable(state) and logged and self.tables.buffered else None
        now = None if later else state() if callable(state) else state
        wide = now if isinstance(now, Pieces) else None  # no log takes it
        narrow = None if isinstance(now, Pieces) else now
        record = Record(run, narrow, status, self.spends.no + 1, spends, *when, history, risen)
        if logged and wide is None and self.tables.append(record):
            if later:
                self.runs.states[run] = later
            self._take(record)
        else:
            self._store(record, wide, last, answers)
        self.marks.peers.changed.clear()
        if spends:
            self.marks.sync()

    def _store(
        self, record: Record, wide: Pieces | None, last: bytes | None, answers: list[tuple[bytes, bytes]]
    ) -> None:
        """A step that does not fit into the log, or ends a run: in the tables at once. `wide`: its state, if it is."""
        run, spends = record.run, record.spends
        costs = costs_of(spends)
        sums, price = self.spends.after(costs, run, record.version)
        with self.tables.transaction():
            if spends:
                self.spends.insert(run, record.no, spends, (record.at, record.ran, record.version))
                self.spends.write_sums(sums, price)
            self.runs.update(run, wide or record.state, record.status, last, len(spends))
            if answers:
                self.tables.db.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers)
            if record.history:
                self.runs.add_rounds(run, [record.history])
            self.marks.write_peers(record.peers)
            if record.status in OVER:
                self.runs.erase_keys("run = ?", run)
            if record.status in ENDED:
                self.runs.compact()
        self.spends.counted(sums, price, costs)

    # --- what is remembered beside runs and spends ---

    def keep_note(self, key: str, value: bytes) -> None:
        """Remembers a few bytes under a name, durably, in place of those before."""
        with self.tables.transaction():
            self.tables.set(**{f"note {key}": value})

    def note(self, key: str) -> bytes | None:
        """What was remembered last under a name."""
        value: bytes | None = self.tables.meta(f"note {key}")
        return value

    def answer(self, key: bytes) -> bytes | None:
        """A gate answer that is to be repeated (mode input), by its key."""
        return next((value for (value,) in self.tables.ask("SELECT value FROM answer WHERE key = ?", (key,))), None)

    @property
    def kinds_at_birth(self) -> tuple[str, ...] | None:
        """The kinds of questions that there were at its birth; None of a ledger that no device has used yet."""
        return tuple(self.tables.meta("kinds").split()) or None

    def born_with(self, kinds: Sequence[str]) -> None:
        """Notes which kinds of questions there are, durably, in a ledger that no device has used yet."""
        if self.kinds_at_birth is None:
            with self.tables.transaction():
                self.tables.set(kinds=" ".join(kinds))

    # --- the data ---

    @property
    def data_version(self) -> int:
        """Which of its owner's data the device holds: a gate repeats an answer for the same version only."""
        return self.spends.data_version

    @property
    def data_age(self) -> float | None:
        """Running time since that version was declared, s; None if that is not known. No function of the data."""
        declared = self.spends.declared
        return None if declared is None else max(self.spends.running - declared, 0.0)

    def new_data(self, days: ReadingDays | None = None) -> int:
        """The owner's word that the data are new. Returns their version. `days`: of which they are the mean."""
        with self.tables.transaction():
            version = self.spends.new_version(days)
        self.spends.begin_version(version)
        return version

    def saw_data(self, stamp: str) -> bool:
        """Notes how the data's file looks from outside (inode, size, time). True, and a new version, if it was
        replaced.

        The first stamp is only remembered: what was answered before it was seen was answered from this file.
        """
        return self._saw("data", stamp)

    def saw_public(self, digest: str, *, known: bool = False) -> bool:
        """Notes what is public of the data: case, zone, features. True, and a new version, if it is another.

        `known`: the version has risen for this already. The first digest is only remembered.
        """
        return self._saw("public", digest, known)

    @property
    def public(self) -> str | None:
        """The digest that `saw_public` has noted last."""
        digest: str | None = self.tables.meta("public")
        return digest

    def _saw(self, key: str, stamp: str, known: bool = False) -> bool:
        before = self.tables.meta(key)
        if stamp == before:
            return False
        rises = before is not None and not known
        with self.tables.transaction():
            self.tables.set(**{key: stamp})
            version = self.spends.new_version() if rises else self.data_version
        if rises:
            self.spends.begin_version(version)
        return rises

    # --- what an owner does with the file ---

    def verify(self) -> list[str]:
        """What is wrong with this ledger, one line a problem; empty if it is whole."""
        self.checkpoint()
        try:
            integrity = self.tables.db.execute("PRAGMA integrity_check").fetchall()
        except sqlite3.DatabaseError as error:
            return [f"integrity: {error}"]
        if wrong := [f"integrity: {line}" for (line,) in integrity if line != "ok"]:
            return wrong
        wrong = self._missing() or self._miscounted()
        if sentence := self.marks.behind_in_words:
            wrong.append(sentence)
        return wrong

    def _missing(self) -> list[str]:
        """Numbers that no row stands for, in words."""
        wrong, previous = [], 0
        gaps = {no for (no,) in self.tables.ask("SELECT no FROM spend WHERE kind = 'gap'")}
        rows = self.tables.ask("SELECT first, no, sums FROM past UNION ALL SELECT no, no, NULL FROM spend ORDER BY no")
        for first, no, sums in rows:
            in_gap = no in gaps or (sums and any("gap" in c.kinds for c in unpacked(sums).values()))
            if first != previous + 1 and not in_gap:
                wrong.append(f"spends {previous + 1} to {first - 1} are missing")
            previous = no
        return wrong

    def _miscounted(self) -> list[str]:
        """Whether the sums of all spends, and of those about the data of now, are those of the rows, in words."""
        version, spends = self.data_version, self.spends
        wrong = ["the sums of its spends are not those of its rows"] if self._recount(0) != spends.sums(ALL) else []
        mixed = self.tables.ask("SELECT no FROM past WHERE version >= ? LIMIT 1", (version,))  # with earlier versions
        if not (wrong or mixed) and self._recount(version) != spends.sums(VERSION):
            wrong.append("the sums of its spends about the data of now are not those of its rows")
        return wrong

    def _recount(self, version: int) -> dict[str, Counted]:
        """The sums of the rows about this version of the data, or a later one, by adjacency."""
        counts: dict[str, Counted] = {}
        row = "adjacency, kind, value, mu2"
        rows = self.tables.ask(
            f"SELECT {row}, count(*), honest FROM spend WHERE version >= ? GROUP BY {row}, honest", (version,)
        )
        for adjacency, *equal in rows:
            counts[adjacency] = counts.get(adjacency, Counted()).plus(*equal)
        for (blob,) in self.tables.ask("SELECT sums FROM past WHERE version >= ?", (version,)):
            for adjacency, sums in unpacked(blob).items():
                counts[adjacency] = counts.get(adjacency, Counted()).with_all(sums)
        return counts
