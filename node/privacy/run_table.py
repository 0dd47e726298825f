"""The runs a device has taken part in, and how its data have changed: rows of its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hushgrid.kernels.errors import Refused
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.privacy.ledger_schema import KINDS
from hushgrid.node.privacy.spend_table import CHUNK, VERSION, SpendTable, boottime

OPEN = "status IN ('joined', 'running')"
ENDED = ("done", "refused", "stopped")
OVER = ("owed", "done", "refused")  #: no such run goes on
#: Any run under way ends.
STOP = f"UPDATE run SET status = 'stopped' WHERE {OPEN}"
#: Ended runs without a spend that are remembered, each by its last message.
KEPT = 200
#: Ended runs with a spend whose plan, rows of spends and rounds are kept, unless the device's file says another number.
KEEP = 100


class RunTable(SpendTable):
    """The part of a ledger that is about runs. `keep`: how many ended runs with a spend are kept with all their rows."""

    def __init__(
        self,
        path: Path,
        node: str | None,
        durable: bool,
        clock: Callable[[], float] = boottime,
        keep: int = KEEP,
    ) -> None:
        self.keep = keep
        super().__init__(path, node, durable, clock)

    @property
    def session(self) -> int:
        """Starts of the device so far."""
        return int(self._meta("session"))

    def new_session(self) -> int:
        """One more start of the device, counted for ever; the number is part of every run it joins."""
        session = self.session + 1
        with self._transaction():
            self._set(session=session)
            self.db.execute("DELETE FROM known WHERE session < ?", (session,))
        return session

    # --- runs ---

    def join(self, run: bytes, plan: bytes, status: str = "joined") -> None:
        """Store a plan: from here on the run is known. Any other run under way is stopped if this one is joined."""
        with self._transaction():
            if status == "joined":
                self.db.execute(STOP)
                self._erase_keys("run != ?", run)
            self.db.execute(
                "INSERT OR IGNORE INTO run (id, plan, status, started, session, first) VALUES (?,?,?,?,?,?)",
                (run, plan, status, self.now(), self.session, self.no + 1),
            )
            self._compact()

    def drop(self, run: bytes) -> None:
        """Forget a run that has never begun: joined, and without a step."""
        with self._transaction():
            self.db.execute("DELETE FROM run WHERE id = ? AND status = 'joined' AND state IS NULL", (run,))
            self._erase_keys("run NOT IN (SELECT id FROM run)")

    def abandon(self) -> None:
        """Whatever run is under way is stopped; what it has spent stays, and a masked one is not gone on with."""
        with self._transaction():
            self.db.execute(STOP)
            self._erase_keys()
            self._compact()

    def reopen(self, run: bytes, plan: bytes = b"") -> bool:
        """A stopped run goes on with what was paid for; any other under way is stopped. False if it was not stopped.

        `plan`: its bytes again, in case the ledger has kept none because nothing was spent.
        """
        with self._transaction():
            if not self.db.execute("SELECT 1 FROM run WHERE id = ? AND status = 'stopped'", (run,)).fetchone():
                return False
            self.db.execute(STOP)
            self._erase_keys("run != ?", run)
            self.db.execute(
                "UPDATE run SET status = iif(state IS NULL, 'joined', 'running'), last = NULL, "
                "plan = iif(length(plan), plan, ?) WHERE id = ?",
                (plan, run),
            )
        return True

    def _compact(self) -> None:
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
            self._condense(below, max(CHUNK, 2 * largest))

    def run(self, run: bytes) -> StoredRun | None:
        found = next(iter(self.runs("WHERE id = ?", run)), None)
        if found is None and self._ask("SELECT 1 FROM known WHERE run = ?", (run,)):
            return StoredRun(run, b"", "past", None, None, "")
        return found

    def open_run(self) -> StoredRun | None:
        """The run under way when the process ended, if any."""
        return next(iter(self.runs(f"WHERE {OPEN}")), None)

    def owed(self) -> list[StoredRun]:
        """Runs that are done, and whose outcome is not on the disk yet."""
        return self.runs("WHERE status = 'owed' ORDER BY rowid")

    def last_run(self) -> StoredRun | None:
        """The run joined last."""
        return next(iter(self.runs("ORDER BY rowid DESC LIMIT 1")), None)

    def runs(self, which: str = "ORDER BY rowid", *values: bytes) -> list[StoredRun]:
        """Every run known, in the order of joining; or those that a clause of SQL chooses."""
        rows = self._ask(f"SELECT id, plan, status, state, last, started, spends FROM run {which}", values)
        return [StoredRun(*row) for row in rows]

    def answer(self, key: bytes) -> bytes | None:
        """A gate answer that is to be repeated (mode input), by its key."""
        return next((value for (value,) in self._ask("SELECT value FROM answer WHERE key = ?", (key,))), None)

    def history(self, run: bytes) -> list[tuple[int, float, int, int]]:
        """(round, consensus residual, messages, bytes) a round."""
        return self._ask("SELECT round, residual, messages, bytes FROM history WHERE run = ? ORDER BY round", (run,))

    # --- the key of a masked run ---

    def run_key(self, run: bytes, make: Callable[[], bytes]) -> bytes:
        """The key of a run under way: made once, on the disk before it is returned, and the same until it is erased.

        It is erased when the run is over, and when another run is joined or gone on with although this one could be resumed:
        so a ledger holds one key at most. It never stands in the append log. Raises Refused if the run is not under way, or
        if its key is erased.
        """
        row = f"SELECT key, keyed FROM run LEFT JOIN secret ON run = id WHERE id = ? AND {OPEN}"
        for key, keyed in self._ask(row, (run,)):
            if key is not None:
                return bytes(key)
            if not keyed:
                made = make()
                with self._transaction():
                    self.db.execute("UPDATE run SET keyed = 1 WHERE id = ?", (run,))
                    self.db.execute("INSERT INTO secret VALUES (?, ?)", (run, made))
                return made
        raise Refused(f"{self.node}: found no key of run {run.hex()[:8]}, expected a new run: the key is erased")

    def lacks_key(self, run: bytes) -> bool:
        """Whether a run that is not over has had a key which is erased, so that it cannot go on."""
        row = (
            f"SELECT 1 FROM run WHERE id = ? AND keyed AND status NOT IN {OVER} AND id NOT IN (SELECT run FROM secret)"
        )
        return bool(self._ask(row, (run,)))

    def _erase_keys(self, which: str = "TRUE", *values: bytes) -> None:
        """Inside a transaction; after it no file of the ledger holds them (`LedgerFile._scrub`)."""
        if self.db.execute(f"DELETE FROM secret WHERE {which}", values).rowcount:
            self._erased = True

    # --- notes ---

    def keep_note(self, key: str, value: bytes) -> None:
        """Remembers a few bytes under a name, durably, in place of those before."""
        with self._transaction():
            self._set(**{f"note {key}": value})

    def note(self, key: str) -> bytes | None:
        """What was remembered last under a name."""
        value: bytes | None = self._meta(f"note {key}")
        return value

    # --- what it was born with ---

    @property
    def kinds_at_birth(self) -> tuple[str, ...] | None:
        """The kinds of questions that there were at its birth; None of a ledger that no device has used yet.

        One of before, which says nothing of them, has those of its time.
        """
        stored = self._meta("kinds")
        return KINDS if stored is None else tuple(stored.split()) or None

    def born_with(self, kinds: Sequence[str]) -> None:
        """Notes which kinds of questions there are, durably, in a ledger that no device has used yet."""
        if self.kinds_at_birth is None:
            with self._transaction():
                self._set(kinds=" ".join(kinds))

    # --- the data ---

    def new_data(self) -> int:
        """The owner's word that the data are new. Returns their version."""
        with self._transaction():
            version = self._raise_version()
        self._forget(VERSION)
        self.data_version = version
        return version

    def _raise_version(self) -> int:
        """Inside a transaction. An answer about an earlier version is repeated no more, so it takes no room."""
        self._set(data_version=self.data_version + 1)
        self.db.execute("DELETE FROM answer")
        self.db.execute("DELETE FROM total WHERE scope = ?", (VERSION,))
        return self.data_version + 1

    def saw_data(self, stamp: str) -> bool:
        """Notes how the data's file looks from outside (inode, size, time). True, and a new version, if it was replaced.

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
        found: str | None = self._meta("public")
        return found

    def _saw(self, key: str, stamp: str, known: bool = False) -> bool:
        before = self._meta(key)
        if stamp == before:
            return False
        rises = before is not None and not known
        with self._transaction():
            self._set(**{key: stamp})
            version = self._raise_version() if rises else self.data_version
        if rises:
            self._forget(VERSION)
            self.data_version = version
        return rises
