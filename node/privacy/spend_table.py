"""What a device has spent, on what, and when: rows of its ledger, and their sums, which stand in the same transaction.

Neither opening nor joining reads the whole past: sums are kept for all spends, for those of the data version of now,
and for each run whose rows are kept. The rows of old runs are condensed to sums by the hour (`RunTable` says which).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

import msgspec

from hushgrid.kernels.privacy.accounting import UNIT, Totals, rounded_up
from hushgrid.kernels.ranges import MOST_MASKED
from hushgrid.node import system
from hushgrid.node.privacy.ledger_log import Record, Tables
from hushgrid.node.privacy.ledger_rows import (
    DAY,
    Cost,
    Counted,
    ReadingDays,
    Recent,
    Spend,
    StoredSpend,
    Window,
    costs_of,
    most_steps,
    relation,
    size,
    steps,
    without,
)
from hushgrid.node.privacy.marks import Price

HOUR_S = 3600.0  #: running time whose old spends are condensed to one row
CHUNK = 1000  #: rows that are read, or condensed, at once
#: Scopes of sums, beside the ids of runs and `ReadingDays.scopes`; DATED: about data versions whose days are noted.
ALL, VERSION, DATED = "all", "version", "dated"

Scope = str | bytes
Sums = dict[tuple[Scope, str], Counted]  #: by scope and adjacency


class SpendTable:
    """The part of a ledger that is about spends. `clock` counts seconds; only its differences matter."""

    def __init__(self, tables: Tables, clock: Callable[[], float] = system.boottime) -> None:
        self.tables, self._clock = tables, clock
        self._window: Window | None = None
        self.load()

    @property
    def db(self) -> sqlite3.Connection:
        """For statements inside a transaction."""
        return self.tables.db

    def load(self) -> None:
        """Reads what is kept in memory."""
        tables = self.tables
        #: the largest change that a budget was ever counted at: a bounded change's, and of how many records
        self.unit: float = tables.meta("unit") or 0.0
        self.records: int = tables.meta("records") or 1
        (last,) = tables.ask("SELECT max(no), max(ran) FROM (SELECT no, ran FROM spend ORDER BY no DESC LIMIT 1)")
        (past,) = tables.ask("SELECT max(no), max(ran) FROM (SELECT no, ran FROM past ORDER BY no DESC LIMIT 1)")
        self.no: int = max(last[0] or 0, past[0] or 0)  #: of the last spend
        #: number of the last answer; a gap that the owner has accepted since is none
        self.answered: int = self._last_answer()
        self._counted: Sums = {}
        self._pending: dict[tuple[Cost, tuple[Scope, ...]], int] = {}  #: equal rows that `_sums` is yet to count
        self._changed: set[tuple[Scope, str]] = set()  #: sums that waiting records have changed
        self._loaded: set[Scope] = set()
        self._days: dict[int, ReadingDays | None] = {}
        for scope in (ALL, VERSION):
            self._need(scope)
        self.price = Price.unpacked(tables.meta("price"))  #: of all spends
        self._after: tuple[Price, list[Cost], Price] = self.price, [], self.price  #: what `price_after` said last
        #: which of its owner's data the device holds: a gate repeats an answer for the same version only
        self.data_version: int = int(tables.meta("data_version"))
        #: running time, s, when it was declared; None: a release that did not note it has declared it
        self.declared: float | None = 0.0 if self.data_version == 1 else tables.meta("declared")
        self._ran: float = max(tables.meta("ran"), last[1] or 0.0, past[1] or 0.0)
        self._began = self._clock()

    def _last_answer(self) -> int:
        rows = self.tables.ask("SELECT no FROM spend WHERE kind != 'gap' ORDER BY no DESC LIMIT 1")
        return int(rows[0][0]) if rows else int(self.tables.meta("answered") or 0)

    # --- time ---

    @property
    def running(self) -> float:
        """Running time, s: how long this device has run, over all sessions; never less than what was stored before.

        The time in which the device was off does not count, and no setting of a clock changes it. It is stored with
        each spend and at an orderly end. After a crash it goes on from there: too little, never too much.
        """
        now = self._clock()
        self._ran += max(now - self._began, 0.0)
        self._began = now
        return self._ran

    def note_running(self) -> None:
        """Stores the running time, at an orderly end."""
        self.tables.checkpoint()
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('ran', ?)", (self.running,))

    # --- sums ---

    @property
    def _sums(self) -> Sums:
        """The sums of all scopes in memory. They are integers, so that equal rows are counted at once."""
        for (cost, scopes), times in self._pending.items():
            for key in ((scope, cost.adjacency) for scope in scopes):
                self._counted.setdefault(key, Counted()).add(cost.kind, cost.value, cost.mu2, times, cost.honest)
                self._changed.add(key)
        self._pending.clear()
        return self._counted

    def _need(self, scope: Scope) -> None:
        """Reads the sums of a scope, unless they are in memory. Of runs, only the last that was asked for stays
        there.
        """
        if scope in self._loaded:
            return
        stored = self.tables.ask("SELECT adjacency, sums FROM total WHERE scope = ?", (scope,))
        if isinstance(scope, bytes) and not self.tables.waiting:
            for other in [s for s in self._loaded if isinstance(s, bytes)]:
                self._forget(other)
        for adjacency, blob in stored:
            self._counted[scope, adjacency] = Counted.unpacked(blob)
        self._loaded.add(scope)

    def _forget(self, scope: Scope) -> None:
        self._loaded.discard(scope)
        self._counted = {key: counted for key, counted in self._sums.items() if key[0] != scope}

    def sums(self, scope: Scope) -> dict[str, Counted]:
        """The sums of a scope, by adjacency."""
        self._need(scope)
        return {adjacency: counted for (key, adjacency), counted in self._sums.items() if key == scope}

    def after(self, costs: Iterable[Cost], run: bytes | None, version: int) -> tuple[Sums, Price]:
        """The sums that these rows change, and the price, as they are after them. `version`: of the data they are
        about.
        """
        costs = list(costs)
        changed: Sums = {}
        for kind, value, mu2, adjacency, honest in costs:
            # What a gap was about is not known: `readings` counts it for every day.
            for scope in (*self._scopes(run, version), *(self._day_scopes(version) if kind != "gap" else ())):
                key = scope, adjacency
                counted = changed.get(key) or self._sums.get(key) or Counted()
                changed[key] = counted.plus(kind, value, mu2, honest=honest)
        return changed, self.price_after(costs)

    def take(self, record: Record) -> None:
        """A record is durable, though the tables do not have it yet: what is kept in memory follows."""
        costs = costs_of(record.spends)
        price = self.price_after(costs)
        scopes = self.scopes(record.run, record.version) if costs else ()
        if not self.tables.waiting:
            self._changed = set()
        for cost in costs:
            self._pending[cost, scopes] = self._pending.get((cost, scopes), 0) + 1
        self._ran = max(self._ran, record.ran)
        self.counted({}, price, costs)

    def apply(self, waiting: list[Record]) -> None:
        """Inside a transaction: the rows of records that only the log has, and the sums that they have changed."""
        for record in waiting:
            self.insert(record.run, record.no, record.spends, (record.at, record.ran, record.version))
        sums = self._sums
        self.write_sums({key: sums[key] for key in self._changed if key in sums}, self.price)
        self.tables.set(ran=self._ran)

    def scopes(self, run: bytes | None, version: int) -> tuple[Scope, ...]:
        """All scopes that an answer of this run, about this version of the data, counts in. May bring into the tables
        what waits, so it is asked before a record goes into the log: the log begins anew then.
        """
        return (*self._scopes(run, version), *self._day_scopes(version))

    def _scopes(self, run: bytes | None, version: int) -> tuple[Scope, ...]:
        """The scopes that a row of this run, about this version of the data, counts in."""
        both = (ALL, VERSION) if version == self.data_version else (ALL,)
        if run is None:
            return both
        self._need(run)
        return (*both, run)

    def days(self, version: int) -> ReadingDays | None:
        """The days of whose readings a data version is the mean; None of a version of anything else."""
        if version not in self._days:
            noted: str | None = self.tables.meta(f"days {version}")
            self._days[version] = ReadingDays.unpacked(noted) if noted else None
        return self._days[version]

    def _day_scopes(self, version: int) -> tuple[str, ...]:
        if (days := self.days(version)) is None:
            return ()
        for scope in (DATED, *days.scopes):
            self._need(scope)
        return (DATED, *days.scopes)

    def write_sums(self, sums: Sums, price: Price) -> None:
        """Inside a transaction."""
        self.db.executemany(
            "INSERT OR REPLACE INTO total VALUES (?, ?, ?)", [(*key, counted.packed()) for key, counted in sums.items()]
        )
        self.tables.set(price=price.packed())

    def counted(self, sums: Sums, price: Price, costs: list[Cost]) -> None:
        """These rows are durable: sums, price and numbers follow, and the window holds them from now on."""
        self._counted |= sums
        self.price = price
        self.no += len(costs)
        if any(cost.kind != "gap" for cost in costs):
            self.answered = self.no
        self._fill_window(costs)

    def totals(self, adjacency: str, but: bytes | None = None) -> Totals:
        """What was spent under the relation of `adjacency` or under every relation, at the unit of `adjacency`.

        `but`: a run whose spends are left out.
        """
        totals = self._in_unit(self.sums(ALL), adjacency)
        return without(totals, self._in_unit(self.sums(but), adjacency)) if but is not None else totals

    def run_totals(self, run: bytes, adjacency: str) -> Totals:
        """Of `totals`, what was spent in one run."""
        return self._in_unit(self.sums(run), adjacency)

    def version_totals(self, adjacency: str) -> Totals:
        """Of `totals`, what was spent in the data version of now, however long ago."""
        return self._in_unit(self.sums(VERSION), adjacency)

    def totals_about(self, version: int, adjacency: str) -> Totals:
        """Of `totals`, what was spent about the data of an earlier version: by the rows, and never too little.

        Rows that are condensed count from the hour in which the version may have been that of now.
        """
        sums: dict[str, Counted] = {}
        for stored, *equal in self.tables.ask(
            "SELECT adjacency, kind, value, mu2, count(*) FROM spend WHERE version = ? GROUP BY 1, 2, 3, 4", (version,)
        ):
            sums[stored] = sums.get(stored, Counted()).plus(*equal)
        for (blob,) in self.tables.ask("SELECT sums FROM past WHERE version >= ?", (version,)):
            for stored, counted in unpacked(blob).items():
                sums[stored] = sums.get(stored, Counted()).with_all(counted)
        return self._in_unit(sums, adjacency)

    def window(self, span: float, adjacency: str) -> Window:
        """What was spent in the last `span` s of running time, at the unit of `adjacency`, now and from here on."""
        window = self._window
        if window is None or (window.span, window.adjacency) != (span, adjacency):
            window = self._window = Window(span, adjacency, self.recent(self.running - span))
        return window

    def _fill_window(self, costs: Iterable[Cost]) -> None:
        """These rows are committed: the window holds them from now on."""
        if self._window is not None:
            for kind, value, mu2, adjacency, _ in costs:
                self._window.add(self._ran, adjacency, kind, value, mu2)

    @staticmethod
    def _in_unit(sums: dict[str, Counted], adjacency: str) -> Totals:
        totals = Totals()
        for stored, counted in sums.items():
            if stored == "" or relation(stored) == relation(adjacency):
                totals.include(counted.totals, steps(stored, adjacency) if stored else 1)
        return totals

    def about_days(self, adjacency: str, days: Iterable[int] = ()) -> dict[int, dict[int, Totals]]:
        """What was answered about each day [that has entered an answer], by the number n of days that the answer was a
        mean of, at the unit of `adjacency`. It moves by an n-th of what a reading does. Gaps may be about any day.
        """
        about: dict[int, dict[int, Totals]] = {day: {} for day in days}
        some = bool(about)
        for (scope,) in self.tables.ask("SELECT DISTINCT scope FROM total WHERE scope LIKE ?", (f"{DAY} %",)):
            _, day, _, count = scope.split()
            if not some or int(day) in about:
                about.setdefault(int(day), {})[int(count)] = self._in_unit(self.sums(scope), adjacency)
        if gaps := self.sums(ALL).get(""):
            for each in about.values():
                each.setdefault(1, Totals()).include(gaps.totals)
        return about

    def readings(self, adjacency: str) -> dict[int, Totals]:
        """What all answers so far cost one reading, by its day."""
        costs: dict[int, Totals] = {}
        for day, each in self.about_days(adjacency).items():
            costs[day] = Totals()
            for count, totals in each.items():
                costs[day].include(totals.shared(count))
        return costs

    def undated(self, adjacency: str) -> Totals:
        """Of `totals`, what was spent about data whose days are not noted: any reading may have been in them."""
        sums = {stored: counted for stored, counted in self.sums(ALL).items() if stored}
        return without(self._in_unit(sums, adjacency), self._in_unit(self.sums(DATED), adjacency))

    def shares(self, adjacency: str) -> tuple[int, int]:
        """What all shares of masked sums are worth to everybody else together: sums of h mu^2, in units of 2^-256.

        Of the shares themselves, at the unit of `adjacency`; and of accepted gaps, which may have been shares of the
        largest sums.
        """
        shares, lost = 0, 0
        for stored, counted in self.sums(ALL).items():
            if stored == "":
                lost += MOST_MASKED * counted.totals.sums[2]
            elif relation(stored) == relation(adjacency):
                shares += steps(stored, adjacency) ** 2 * counted.shares
        return shares, lost

    def kinds(self, adjacency: str) -> dict[str, int]:
        """How many rows of each kind `totals` counts."""
        kinds: dict[str, int] = {}
        for stored, counted in self.sums(ALL).items():
            if stored == "" or relation(stored) == relation(adjacency):
                for kind, times in counted.kinds.items():
                    kinds[kind] = kinds.get(kind, 0) + times
        return kinds

    def answers(self, run: bytes | None = None) -> int:
        """How many answers were paid in the run `run`, or in all (None), accepted gaps among these."""
        return sum(counted.rows for counted in self.sums(ALL if run is None else run).values())

    @property
    def adjacencies(self) -> list[str]:
        """Every adjacency under which something was spent, in words, sorted."""
        return sorted(a for a in self.sums(ALL) if a)

    # --- the price of a mark ---

    def _steps(self, adjacency: str) -> int:
        return most_steps(adjacency, self.unit, self.records)

    def price_after(self, costs: list[Cost]) -> Price:
        before, same, price = self._after
        if before is self.price and same == costs:  # as for the message before
            return price
        price = self.price
        for kind, value, mu2, adjacency, _ in costs:
            price = price.plus(kind, value, mu2, self._steps(adjacency))
        self._after = self.price, costs, price
        return price

    def count_at(self, adjacency: str) -> None:
        """A budget counts at the unit of `adjacency`. Marks are priced at the largest unit that was ever used.

        So no price is too small. Otherwise answers of a small unit that were lost with an old copy would be accepted at
        a fraction of what they cost.
        """
        before, unit = (self.unit, self.records), size(adjacency)
        if relation(adjacency) == "bounded-change":
            self.unit = max(self.unit, float(unit))
        else:
            self.records = max(self.records, int(unit))
        if before != (self.unit, self.records):
            anew = Totals()
            for stored, counted in self.sums(ALL).items():
                anew.include(counted.totals, self._steps(stored))
            # Sums in another order than that of the spends may be a rounding below the price that others remember.
            price = Price(
                max(anew.epsilon, self.price.epsilon),
                max(rounded_up(anew.sums[2], 1 << UNIT), self.price.mu2),
                anew.nonprivate or self.price.nonprivate,
            )
            try:
                with self.tables.transaction():
                    self.tables.set(unit=self.unit, records=self.records, price=price.packed())
            except BaseException:
                self.unit, self.records = before
                raise
            self.price = price

    # --- the data ---

    def new_version(self, days: ReadingDays | None = None) -> int:
        """Inside a transaction. An answer about an earlier version is repeated no more, so it takes no room.

        `days`: what it is the mean of, noted before anything can be answered about it.
        """
        self.tables.set(data_version=self.data_version + 1, declared=self.running)
        if days:
            self.tables.set(**{f"days {self.data_version + 1}": days.packed()})
        self.db.execute("DELETE FROM answer")
        self.db.execute("DELETE FROM total WHERE scope = ?", (VERSION,))
        return self.data_version + 1

    def begin_version(self, version: int) -> None:
        """After that transaction."""
        for scope in (VERSION, *(s for s in [*self._loaded] if isinstance(s, str) and s.startswith(f"{DAY} "))):
            self._forget(scope)
        self._days.clear()
        self.data_version, self.declared = version, self.tables.meta("declared")

    # --- rows ---

    def rows(self, run: bytes | None = None, after: int = 0) -> list[StoredSpend]:
        """What has been spent, in order, in the run `run` or in all (None), as far as its rows are kept.

        `after`: the number of a spend; those up to it are left out.
        """
        rows = self.tables.ask(
            f"SELECT {', '.join(StoredSpend._fields)} FROM spend WHERE no > ?2 AND (?1 IS NULL OR run = ?1) ORDER BY "
            "no",
            (run, after),
        )
        return [StoredSpend(*row) for row in rows]

    def honest(self, run: bytes) -> int | None:
        """h of a run's shares of masked sums as they are counted, the least of them; None of a run without any."""
        ((least,),) = self.tables.ask("SELECT min(honest) FROM spend WHERE run = ? AND honest", (run,))
        return None if least is None else int(least)

    def recent(self, since: float) -> Iterator[Recent]:
        """What was spent at running time `since` (s) or later, the last first.

        Spends whose rows are condensed come as sums of an hour, with the time and version of the last of them: too
        late, never too early.
        """
        below = self.no + 1
        while True:
            rows = self.tables.ask(
                "SELECT no, ran, version, adjacency, kind, value, mu2 FROM spend WHERE no < ? ORDER BY no DESC LIMIT ?",
                (below, CHUNK),
            )
            for no, ran, version, adjacency, kind, value, mu2 in rows:
                if ran < since:
                    return
                below = no
                yield Recent(ran, version, adjacency, Counted().plus(kind, value, mu2).totals)
            if not rows:
                break
        for ran, version, blob in self.tables.ask(
            "SELECT ran, version, sums FROM past WHERE ran >= ? ORDER BY no DESC", (since,)
        ):
            for adjacency, counted in unpacked(blob).items():
                yield Recent(ran, version, adjacency, counted.totals)

    def insert(self, run: bytes, first: int, spends: list[Spend], when: tuple[str, float, int]) -> None:
        """Inside a transaction. `when`: UTC, running time (s), data version."""
        rows = [
            (
                no,
                run,
                s.answer,
                s.kind,
                s.value,
                s.sensitivity,
                s.scale,
                s.grid,
                s.adjacency,
                s.sampler,
                s.mu2,
                *when,
                s.honest,
            )
            for no, s in enumerate(spends, start=first)
        ]
        self.db.executemany(f"INSERT INTO spend VALUES ({','.join('?' * 15)})", rows)

    def condense(self, below: int, most: int) -> None:
        """Inside a transaction: of the spends with a number less than `below`, the first `most` become sums."""
        hours: dict[float, tuple[int, int, float, int, dict[str, Counted]]] = {}
        last = self.db.execute("SELECT no, first, ran, version, sums FROM past ORDER BY no DESC LIMIT 1").fetchone()
        if last:
            hours[last[2] // HOUR_S] = (*last[:4], unpacked(last[4]))
        rows = self.db.execute(
            "SELECT no, ran, version, adjacency, kind, value, mu2, 1, honest FROM spend WHERE no < ? ORDER BY no "
            "LIMIT ?",
            (below, most),
        ).fetchall()
        for no, ran, version, adjacency, *cost in rows:
            _, first, _, latest, sums = hours.get(ran // HOUR_S, (no, no, ran, version, {}))
            sums[adjacency] = sums.get(adjacency, Counted()).plus(*cost)
            hours[ran // HOUR_S] = no, first, ran, max(version, latest), sums
        if not rows:
            return
        answered = [no for no, _, _, _, kind, *_ in rows if kind != "gap"]
        if answered:
            self.tables.set(answered=answered[-1])
        if last:
            self.db.execute("DELETE FROM past WHERE no = ?", (last[0],))
        self.db.executemany(
            "INSERT INTO past (no, first, ran, version, sums) VALUES (?, ?, ?, ?, ?)",
            [
                (*row, msgspec.msgpack.encode({a: counted.packed() for a, counted in sums.items()}))
                for *row, sums in hours.values()
            ],
        )
        self.db.execute("DELETE FROM spend WHERE no <= ?", (rows[-1][0],))


def unpacked(blob: bytes) -> dict[str, Counted]:
    """The sums of a row of `past`, by adjacency."""
    return {a: Counted.unpacked(sums) for a, sums in msgspec.msgpack.decode(blob, type=dict[str, bytes]).items()}
