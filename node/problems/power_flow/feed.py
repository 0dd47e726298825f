"""A zone's loads from the programs of its site: a table or a document of its buses, or a topic for each of them.

By a rule they are the mean of its readings of the last days, hour by hour: a forecast that the device makes itself.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.node import system
from hushgrid.node.problems.feed import Part, Readings, Slot, Times, Values, document_of, number_of, value_at
from hushgrid.node.problems.kind import DeviceFile
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.files import read_loads, zone_of
from hushgrid.node.problems.power_flow.question import LOAD_BOUND
from hushgrid.node.schema.durations import UNITS, date
from hushgrid.node.schema.site import RULES, LoadPaths, Source

QUANTITIES = ("p_mw", "q_mvar")
READINGS = ("time", "bus", *QUANTITIES)
DAY_S = UNITS["d"]
LATE_S = 300.0  #: so early by its own clock a device takes it for the next day: the coordinator's may be ahead
NO_PLACES = np.zeros(0, np.int64)


class ZoneFeed:
    """`values["d"]` (2 nb,): p of each bus in order, then q, p.u. Each entry is a reading of its own."""

    most = 1 << 20
    rows = 0
    days = 0

    def __init__(self, owner: DeviceFile, path: str) -> None:
        """Builds the zone. Raises InputError if the device's file is wrong."""
        self.zone = zone_of(owner.node, owner.data, path, owner.budget.adjacency, owner.allow.loads, loaded=False)
        self.buses, self.base = self.zone.model.buses, self.zone.case.base_mva
        self.loads, source = owner.data.loads, owner.source
        self.names: Sequence[str] = [f"{bus} {quantity}" for quantity in QUANTITIES for bus in self.buses]
        self.path = source.mqtt.path if source and source.mqtt else None
        self.nothing = {"d": np.full(2 * len(self.buses), np.nan)}
        self.low, self.high = _bounds(source, len(self.buses), self.base)

    @property
    def declared(self) -> Values | None:
        if self.loads is None or not Path(self.loads).exists():
            return None
        return {"d": self._clamped(np.array(read_loads(Path(self.loads), self.buses, self.base)))}

    @cached_property
    def typical(self) -> NDArray[np.float64]:
        """(2 nb,) p.u.: what stands in for an entry that counts no more, public. Zero if the device's file names no
        loads.
        """
        declared = self.declared
        return np.zeros(2 * len(self.buses)) if declared is None else declared["d"]

    def first(self, now: float) -> Readings | None:
        declared = self.declared
        if declared is None:
            return None
        size = declared["d"].size
        return Readings(declared, np.full(size, np.nan), np.full(size, np.inf))

    def read(self, content: bytes, place: str) -> Part:
        if content.lstrip()[:1] == b"{":
            return self._document(document_of(content, place), place)
        rows, wrong = _table(content, place, ("bus", *QUANTITIES))
        table: dict[str, dict[str, str]] = {}
        for line, row in enumerate(rows, 2):
            bus = row[0].strip() if row else ""
            if row and (len(row) != 3 or bus in table):
                wrong = wrong or f"{place}:{line}: found a malformed row or a bus again, expected bus,p_mw,q_mvar"
                table[bus] = {}  # which of two rows is right is not known
            elif row:
                table[bus] = dict(zip(QUANTITIES, row[1:], strict=True))
        return self._document(table, place, wrong)

    def merged(self, before: Readings | None, values: Values, read: Times, until: Times) -> Readings:
        d, never = values["d"], self.nothing["d"]
        old = before or Readings(self.nothing, never, never)
        new = np.isfinite(d)
        return Readings(
            {"d": np.where(new, d, old.values["d"])}, np.where(new, read, old.read), np.where(new, until, old.until)
        )

    def slots(self, topic: str) -> Mapping[str, Slot]:
        if "{bus}" not in topic:
            return {topic: ()}
        each = QUANTITIES if "{quantity}" in topic else ("",)
        return {
            topic.replace("{bus}", str(bus)).replace("{quantity}", quantity): (str(bus), *filter(None, [quantity]))
            for bus in self.buses
            for quantity in each
        }

    def receive(self, slot: Slot, document: Any, place: str) -> Part:
        path = self.path
        if not slot:
            return self._document(value_at(document, path if isinstance(path, str) else None, place), place)
        paths = {q: getattr(path, q) for q in QUANTITIES} if isinstance(path, LoadPaths) else dict.fromkeys(QUANTITIES)
        if len(slot) == 1 and not isinstance(path, LoadPaths):
            document = value_at(document, path, place)
            paths = {q: q for q in QUANTITIES}
        elif not isinstance(path, LoadPaths):
            paths = dict.fromkeys(QUANTITIES, path)
        k = self.buses.index(int(slot[0]))
        entries = (
            (k + QUANTITIES.index(q) * len(self.buses), document, paths[q], place) for q in slot[1:] or QUANTITIES
        )
        return self._filled(entries)

    @property
    def public(self) -> Zone:
        return self.zone

    def device(self, values: Values, until: Times | None = None) -> Zone:
        return self.zone.holding(values["d"]) if until is None else self.zone.expiring(values["d"], until, self.typical)

    def values_of(self, device: Zone) -> Values:
        if device.model.buses != self.buses:
            raise InputError(
                f"data.zone: found {list(self.buses)}, expected {list(device.model.buses)} as at the start"
            )
        return {"d": self._clamped(device.d)}

    def _document(self, document: Any, place: str, wrong: str = "") -> Part:
        """{bus: {p_mw, q_mvar}}; a bus of another zone counts nothing here, and one that is missing is only itself
        missing.
        """
        if not isinstance(document, dict):
            raise InputError(f"{place}: found no document of buses, expected {{bus: {{p_mw, q_mvar}}}}")
        entries = (
            (k, document.get(str(bus)), quantity, f"{place}: bus {bus}")
            for k, (quantity, bus) in enumerate((q, b) for q in QUANTITIES for b in self.buses)
        )
        return self._filled(entries, wrong)

    def _filled(self, entries: Iterable[tuple[int, Any, str | None, str]], wrong: str = "") -> Part:
        """Numbers at (entry, document, path in it, its name). Raises InputError if none of them is one."""
        d = np.full(2 * len(self.buses), np.nan)
        for k, document, path, place in entries:
            try:
                d[k] = number_of(value_at(document, path, place), place) / self.base
            except InputError as error:
                wrong = wrong or str(error)
        if np.isnan(d).all():
            raise InputError(wrong)
        return Part({"d": self._clamped(d)}, NO_PLACES, wrong=wrong)

    def _clamped(self, d: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(d, self.low, self.high)


class ReadingsFeed:
    """The forecast of a day, by a rule: the mean of the last n days, hour by hour.

    `values["d"]` (n T 2 nb,) p.u.: the readings of each day, the oldest first, as a device's profile has them;
    `values["day"]` (1,): the last of the days, counted from 1970. A reading that is missing counts as the public load
    of its period, so that each has the weight 1/n, however many there are.
    """

    most = 1 << 24
    rows = 0
    clock: Callable[[], float] = staticmethod(system.wall)

    def __init__(self, owner: DeviceFile, path: str) -> None:
        """Builds the zone with its public profile. Raises InputError if the device's file is wrong."""
        self.source = owner.source
        assert self.source is not None
        assert self.source.rule is not None
        self.zone = zone_of(owner.node, owner.data, path, owner.budget.adjacency, owner.allow.loads)
        self.days, self.begins = RULES[self.source.rule], self.source.day_begins
        self.zone.days, self.zone.begins = self.days, self.begins
        self.buses, self.base = self.zone.model.buses, self.zone.case.base_mva
        self.periods = self.zone.periods
        self.names: Sequence[str] = ()
        self.low, self.high = _bounds(self.source, len(self.buses), self.base)
        self.typical: NDArray[np.float64] = np.tile(self.zone.d, self.days)

    @property
    def nothing(self) -> Values:
        """No reading of the days before today."""
        day = (self.clock() + LATE_S - self.begins) // DAY_S - 1
        return {"day": np.full(1, day), "d": np.full(self.typical.size, np.nan)}

    @property
    def declared(self) -> Values | None:
        return self.nothing | {"d": self.typical}

    def first(self, now: float) -> Readings | None:
        return None

    def read(self, content: bytes, place: str) -> Part:
        rows, wrong = _table(content, place, READINGS)
        values = self.nothing
        first = int(values["day"][0]) - self.days + 1
        d = values["d"].reshape(self.days, self.periods, 2, len(self.buses))
        at, seen, columns = (
            {str(bus): k for k, bus in enumerate(self.buses)},
            set[tuple[int, int, int]](),
            len(READINGS),
        )
        for line, row in enumerate(rows, 2):
            try:
                (moment, bus, *numbers), several = row, len(row) != columns
                k = at.get(bus.strip())
                if k is None and not several:
                    continue
                day, period = self._place(moment)
                if several or k is None:
                    raise ValueError
            except ValueError:
                wrong = wrong or (
                    f"{place}:{line}: found a malformed row, or a time at which no period begins, expected a row of "
                    f"{','.join(READINGS)} at each {DAY_S / self.periods / 60:g} min"
                )
                continue
            if not 0 <= day - first < self.days:
                continue
            here = d[day - first, period, :, k]
            if (day, period, k) in seen:  # which of two rows is right is not known
                wrong = wrong or f"{place}:{line}: found a time and bus again, expected each once"
                here[:] = np.nan
                continue
            seen.add((day, period, k))
            for q, number in enumerate(numbers):
                try:
                    here[q] = number_of(number, f"{place}:{line}") / self.base
                except InputError as error:
                    wrong = wrong or str(error)
        last = int(np.isfinite(d[-1]).sum())
        if last < d[-1].size:
            wrong = wrong or f"{place}: found {last} values of {date(first + self.days - 1)}, expected {d[-1].size}"
        each = np.clip(d.reshape(-1, self.low.size), self.low, self.high)
        return Part({**values, "d": each.ravel()}, NO_PLACES, wrong=wrong)

    def merged(self, before: Readings | None, values: Values, read: Times, until: Times) -> Readings:
        """What was read before of the same days stays. Days never go back: a clock that does is told by its owner."""
        d, at = values["d"], np.full(self.typical.size, np.nan)
        held = self.typical.copy()
        if before is not None:
            moved = int(values["day"][0] - before.values["day"][0])
            if moved < 0:
                return before
            rest = max(self.days - moved, 0) * (d.size // self.days)
            if rest:
                held[:rest], at[:rest] = before.values["d"][-rest:], before.read[-rest:]
            held = np.where(np.isnan(at), self.typical, held)  # the public load may be another since
        new = np.isfinite(d)
        return Readings(
            {"day": values["day"], "d": np.where(new, d, held)},
            np.where(new, read, at),
            np.full(d.size, np.inf),
        )

    def slots(self, topic: str) -> Mapping[str, Slot]:
        return {}

    def receive(self, slot: Slot, document: object, place: str) -> Part:
        raise InputError(f"{place}: found a message, expected a table of {','.join(READINGS)}")

    @property
    def public(self) -> Zone:
        return self.zone

    def device(self, values: Values, until: Times | None = None) -> Zone:
        """Its loads are the mean, summed in one order."""
        total = np.zeros(self.zone.d.size)
        for day in values["d"].reshape(self.days, -1):
            total += day
        return self.zone.holding(total / self.days)

    def values_of(self, device: Zone) -> Values:
        """Nothing of a device that has other data: a profile is no reading."""
        if device.model.buses != self.buses:
            raise InputError(
                f"data.zone: found {list(self.buses)}, expected {list(device.model.buses)} as at the start"
            )
        return self.nothing | {"d": self.typical}

    def _place(self, moment: str) -> tuple[int, int]:
        """Day and period, from 0, that begins at a time, ISO 8601, UTC if it does not say. Raises ValueError."""
        at = datetime.fromisoformat(moment.strip())
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - self.begins
        day, rest = divmod(seconds, DAY_S)
        period, late = divmod(rest * self.periods, DAY_S)
        if late:
            raise ValueError
        return int(day), int(period)


def _bounds(source: Source | None, buses: int, base: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between which each load is moved: (2 nb,) each, p.u."""
    most = LOAD_BOUND * base
    bounds = source.bounds if source else None
    ends = [(bounds and getattr(bounds, quantity)) or (-most, most) for quantity in QUANTITIES]
    low, high = (np.repeat([np.clip(end[k], -most, most) for end in ends], buses) / base for k in (0, 1))
    return low, high


def _table(content: bytes, place: str, columns: Sequence[str]) -> tuple[list[list[str]], str]:
    """The rows of a CSV text below its header, and what of it is none. Raises InputError."""
    expected = ",".join(columns)
    lines, end, half = content.rpartition(b"\n")  # a line without its end is still being written
    wrong = f"{place}: found a last line without its end, expected a whole table of {expected}" if half else ""
    try:
        rows = list(csv.reader(io.StringIO((lines + end).decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{place}: found no CSV text, expected a table of {expected}") from None
    if not rows or [c.strip() for c in rows[0]] != list(columns):
        raise InputError(f"{place}:1: found another header, expected {expected}")
    return rows[1:], wrong
