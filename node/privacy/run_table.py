"""The runs a device has taken part in, each with its rounds and its key: rows of its ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from math import inf, nextafter

from hushgrid.kernels.errors import Refused
from hushgrid.node.pieces import Pieces
from hushgrid.node.privacy.ledger_log import Record, Round, Tables
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.privacy.spend_table import CHUNK, SpendTable

OPEN = "status IN ('joined', 'running')"
ENDED = ("done", "refused", "stopped")
OVER = ("owed", "done", "refused")  #: no such run goes on
#: Any run under way ends.
STOP = f"UPDATE run SET status = 'stopped' WHERE {OPEN}"
#: Ended runs without a spend that are remembered, each by its last message.
KEPT = 200
#: Ended runs with a spend whose plan, rows of spends and rounds are kept, unless the device's file says another number.
KEEP = 100


class RunTable:
    """The part of a ledger that is about runs. `keep`: how many ended runs with a spend are kept with all their
    rows.
    """

    def __init__(self, tables: Tables, spends: SpendTable, keep: int = KEEP) -> None:
        self.tables, self.spends, self.keep = tables, spends, keep
        self.states: dict[bytes, Callable[[], bytes | Pieces]] = {}  #: of runs whose waiting records have none yet

    @property
    def db(self) -> sqlite3.Connection:
        """For statements inside a transaction."""
        return self.tables.db

    @property
    def session(self) -> int:
        """Starts of the device so far."""
        return int(self.tables.meta("session"))

    def new_session(self) -> int:
        """One more start of the device, counted for ever; the number is part of every run it joins."""
        session = self.session + 1
        with self.tables.transaction():
            self.tables.set(session=session)
            self.db.execute("DELETE FROM known WHERE session < ?", (session,))
        return session

    # --- runs ---

    def join(self, run: bytes, plan: bytes, status: str = "joined") -> None:
        """Store a plan: from here on the run is known. Any other run under way is stopped if this one is joined."""
        with self.tables.transaction():
            if status == "joined":
                self.db.execute(STOP)
                self.erase_keys("run != ?", run)
            self.db.execute(
                "INSERT OR IGNORE INTO run (id, plan, status, started, session, first) VALUES (?,?,?,?,?,?)",
                (run, plan, status, self.tables.now(), self.session, self.spends.no + 1),
            )
            self.compact()

    def drop(self, run: bytes) -> None:
        """Forget a run that has never begun: joined, and without a step."""
        with self.tables.transaction():
            self.db.execute("DELETE FROM run WHERE id = ? AND status = 'joined' AND state IS NULL", (run,))
            self.erase_keys("run NOT IN (SELECT id FROM run)")

    def abandon(self) -> None:
        """Whatever run is under way is stopped; what it has spent stays, and a masked one is not gone on with."""
        with self.tables.transaction():
            self.db.execute(STOP)
            self.erase_keys()
            self.compact()

    def reopen(self, run: bytes, plan: bytes = b"") -> bool:
        """A stopped run goes on with what was paid for; any other under way is stopped. False if it was not stopped.

        `plan`: its bytes again, in case the ledger has kept none because nothing was spent.
        """
        with self.tables.transaction():
            if not self.db.execute("SELECT 1 FROM run WHERE id = ? AND status = 'stopped'", (run,)).fetchone():
                return False
            self.db.execute(STOP)
            self.erase_keys("run != ?", run)
            self.db.execute(
                "UPDATE run SET status = iif(state IS NULL, 'joined', 'running'), last = NULL, "
                "plan = iif(length(plan), plan, ?) WHERE id = ?",
                (plan, run),
            )
        return True

    def compact(self) -> None:
        """Runs that cost nothing take no room: a coordinator may begin as many as it likes.

        A state is kept while its run is under way or may go on; a plan, if something was spent by it. The latest run
        keeps both. Of those without a spend the last KEPT are known by name. To answer an older one afresh harms
        nobody: in an earlier session it can no longer be joined (`Member._on_plan` compares sessions), in this one it
        never cost anything. Of those with a spend the last `keep` are kept whole; an older one of this session is known
        by its id, so that it is not answered afresh.
        """
        old, free = "rowid < (SELECT max(rowid) FROM run)", f"status IN {ENDED} AND spends = 0"
        self.db.execute(f"UPDATE run SET plan = x'', state = NULL WHERE {free} AND {old} AND length(plan)")
        self.db.execute(f"UPDATE run SET state = NULL WHERE status IN ('done', 'refused') AND {old} AND state NOT NULL")
        cut = f"SELECT rowid FROM run WHERE {free} ORDER BY rowid DESC LIMIT 1 OFFSET {KEPT}"
        if self.db.execute(f"DELETE FROM run WHERE {free} AND rowid <= ({cut})").rowcount:
            self.db.execute("DELETE FROM history WHERE run NOT IN (SELECT id FROM run)")
        paid = f"status IN {ENDED} AND spends > 0"
        cut = f"SELECT rowid FROM run WHERE {paid} ORDER BY rowid DESC LIMIT 1 OFFSET {self.keep:d}"
        past = self.db.execute(
            f"SELECT id, session FROM run WHERE {paid} AND rowid <= ({cut}) ORDER BY rowid LIMIT {CHUNK}"
        ).fetchall()
        for run, session in past:
            if session == self.session:
                self.db.execute("INSERT INTO known VALUES (?, ?)", (run, session))
            self.db.execute("DELETE FROM run WHERE id = ?", (run,))
            self.db.execute("DELETE FROM history WHERE run = ?", (run,))
            self.db.execute("DELETE FROM total WHERE scope = ?", (run,))
        (below, largest, paid_runs) = self.db.execute(
            f"SELECT min(first), max(spends), sum(spends > 0) FROM run WHERE spends > 0 OR status NOT IN {ENDED}"
        ).fetchone()
        if below is not None and paid_runs >= self.keep:  # until then nothing is old, a gap no more than a spend
            self.spends.condense(below, max(CHUNK, 2 * largest))

    def find(self, run: bytes) -> StoredRun | None:
        """A run by its id; None if it is not known."""
        stored = next(iter(self.all("WHERE id = ?", run)), None)
        if stored is None and self.tables.ask("SELECT 1 FROM known WHERE run = ?", (run,)):
            return StoredRun(run, b"", "past", None, None, "")
        return stored

    def under_way(self) -> StoredRun | None:
        """The run under way when the process ended, if any."""
        return next(iter(self.all(f"WHERE {OPEN}")), None)

    def running(self) -> bytes:
        """The id of the run under way; b"": there is none."""
        return next((run for (run,) in self.tables.ask(f"SELECT id FROM run WHERE {OPEN}")), b"")

    def owed(self) -> list[StoredRun]:
        """Runs that are done, and whose outcome is not on the disk yet."""
        return self.all("WHERE status = 'owed' ORDER BY rowid")

    def last(self, *, state: bool = True) -> StoredRun | None:
        """The run joined last. `state`: with its state, which may be large."""
        return next(iter(self.all("ORDER BY rowid DESC LIMIT 1", state=state)), None)

    def all(self, which: str = "ORDER BY rowid", *values: bytes, state: bool = True) -> list[StoredRun]:
        """Every run known, in the order of joining; or those that a clause of SQL chooses."""
        columns = f"id, plan, status, {'state' if state else 'NULL'}, last, started, spends"
        return [StoredRun(*row) for row in self.tables.ask(f"SELECT {columns} FROM run {which}", values)]

    def history(self, run: bytes) -> list[tuple[int, float, int, int]]:
        """(round, consensus residual, messages, bytes) a round."""
        return self.tables.ask(
            "SELECT round, residual, messages, bytes FROM history WHERE run = ? ORDER BY round", (run,)
        )

    # --- what a step did ---

    def apply(self, waiting: list[Record]) -> None:
        """Inside a transaction: of each run the last state and status, its number of spends, and its rounds."""
        for run in dict.fromkeys(record.run for record in waiting):
            of_run = [record for record in waiting if record.run == run]
            state, status = (
                next((getattr(r, name) for r in reversed(of_run) if getattr(r, name) is not None), None)
                for name in ("state", "status")
            )
            if run in self.states:
                state = self.states.pop(run)()
            self.update(run, state, status, None, sum(len(record.spends) for record in of_run))
            self.add_rounds(run, {r.history[0]: r.history for r in of_run if r.history}.values())

    def update(
        self, run: bytes, state: bytes | Pieces | None, status: str | None, last: bytes | None, spends: int
    ) -> None:
        """Inside a transaction: what is not None is another now, and so many more answers are paid in the run."""
        others = "status = coalesce(?, status), last = coalesce(?, last), spends = spends + ? WHERE id = ?"
        if not isinstance(state, Pieces):
            state_and = "UPDATE run SET state = coalesce(?, state), "
            self.db.execute(state_and + others, (state, status, last, spends, run))
            return
        # Room for it first, then its pieces: bound as a whole it would stand in memory once more beside the row.
        self.db.execute("UPDATE run SET state = zeroblob(?), " + others, (len(state), status, last, spends, run))
        for (row,) in self.db.execute("SELECT rowid FROM run WHERE id = ?", (run,)).fetchall():
            with self.db.blobopen("run", "state", row) as blob:
                for piece in state.parts:
                    blob.write(piece)

    def add_rounds(self, run: bytes, rounds: Iterable[Round]) -> None:
        """Inside a transaction."""
        rows = [(run, *row) for row in rounds]
        self.db.executemany("INSERT OR REPLACE INTO history VALUES (?,?,?,?,?)", rows)

    # --- the key of a masked run ---

    def key(self, run: bytes, make: Callable[[], bytes], exposed: float = 0.0) -> bytes:
        """The key of a run under way: made once, on the disk before it is returned, and the same until it is erased.

        It is erased when the run is over, and when another run is joined or gone on with although this one could be
        resumed: so a ledger holds one key at most. It never stands in the append log. Raises Refused if the run is not
        under way, or if its key is erased. `exposed`: what its graphs of masks add to delta, which is booked with it.
        """
        row = f"SELECT key, keyed FROM run LEFT JOIN secret ON run = id WHERE id = ? AND {OPEN}"
        for key, keyed in self.tables.ask(row, (run,)):
            if key is not None:
                return bytes(key)
            if not keyed:
                made = make()
                with self.tables.transaction():
                    self.db.execute("UPDATE run SET keyed = 1 WHERE id = ?", (run,))
                    self.db.execute("INSERT INTO secret VALUES (?, ?)", (run, made))
                    if exposed:
                        self.tables.set(exposed=nextafter(self.exposed + exposed, inf))
                return made
        raise Refused(
            f"{self.tables.file.node}: found no key of run {run.hex()[:8]}, expected a new run: the key is erased"
        )

    @property
    def exposed(self) -> float:
        """What graphs of masks have added to delta over the life of the ledger, a bound."""
        return float(self.tables.meta("exposed") or 0.0)

    def has_key(self, run: bytes) -> bool:
        """Whether a run has ever had a key."""
        return bool(self.tables.ask("SELECT 1 FROM run WHERE id = ? AND keyed", (run,)))

    def lacks_key(self, run: bytes) -> bool:
        """Whether a run that is not over has had a key which is erased, so that it cannot go on."""
        row = (
            f"SELECT 1 FROM run WHERE id = ? AND keyed AND status NOT IN {OVER} AND id NOT IN (SELECT run FROM secret)"
        )
        return bool(self.tables.ask(row, (run,)))

    def erase_keys(self, which: str = "TRUE", *values: bytes) -> None:
        """Inside a transaction; after it no file of the ledger holds them (`LedgerFile._scrub`)."""
        if self.db.execute(f"DELETE FROM secret WHERE {which}", values).rowcount:
            self.tables.file.erased = True
