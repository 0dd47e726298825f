"""A zone's loads from the programs of its site: a table or a document of its buses, or a topic for each of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.feed import Part, Readings, Slot, Times, Values, document_of, number_of, value_at
from hushgrid.node.problems.kind import DeviceFile
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.files import read_loads, zone_of
from hushgrid.node.problems.power_flow.question import LOAD_BOUND
from hushgrid.node.schema.site import LoadPaths

QUANTITIES = ("p_mw", "q_mvar")
NO_PLACES = np.zeros(0, np.int64)


class ZoneFeed:
    """`values["d"]` (2 nb,): p of each bus in order, then q, p.u. Each entry is a reading of its own."""

    most = 1 << 20
    rows = 0

    def __init__(self, owner: DeviceFile, path: str) -> None:
        """Builds the zone. Raises InputError if the device's file is wrong."""
        self.zone = zone_of(owner.node, owner.data, path, owner.budget.adjacency, owner.allow.loads, loaded=False)
        self.buses, self.base = self.zone.model.buses, self.zone.case.base_mva
        self.loads, source = owner.data.loads, owner.source
        self.names: Sequence[str] = [f"{bus} {quantity}" for quantity in QUANTITIES for bus in self.buses]
        self.path = source.mqtt.path if source and source.mqtt else None
        self.nothing = {"d": np.full(2 * len(self.buses), np.nan)}
        most = LOAD_BOUND * self.base
        bounds = source.bounds if source else None
        ends = [(bounds and getattr(bounds, quantity)) or (-most, most) for quantity in QUANTITIES]
        #: (2 nb,) each, p.u.
        self.low, self.high = (
            np.repeat([np.clip(end[k], -most, most) for end in ends], len(self.buses)) / self.base for k in (0, 1)
        )

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
        lines, end, half = content.rpartition(b"\n")  # a line without its end is still being written
        wrong = f"{place}: found a last line without its end, expected a whole table of bus,p_mw,q_mvar" if half else ""
        try:
            rows = list(csv.reader(io.StringIO((lines + end).decode("utf-8"), newline="")))
        except (UnicodeDecodeError, csv.Error):
            raise InputError(f"{place}: found no CSV text, expected a table of bus,p_mw,q_mvar") from None
        if not rows or tuple(c.strip() for c in rows[0]) != ("bus", *QUANTITIES):
            raise InputError(f"{place}:1: found another header, expected bus,p_mw,q_mvar")
        table: dict[str, dict[str, str]] = {}
        for line, row in enumerate(rows[1:], 2):
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
