"""A zone's loads from the programs of its site: a table or a document of its buses, or a topic for each of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.feed import Slot, Values, at, document_of, number_of
from hushgrid.node.problems.kind import Owner
from hushgrid.node.problems.power_flow.device import Zone
from hushgrid.node.problems.power_flow.files import read_loads, zone_of
from hushgrid.node.problems.power_flow.question import LOAD_BOUND
from hushgrid.node.schema.site import LoadPaths

QUANTITIES = ("p_mw", "q_mvar")


class ZoneFeed:
    """`values["d"]` (2 nb,): p of each bus in order, then q, p.u."""

    most = 1 << 20
    accumulates = False

    def __init__(self, owner: Owner, path: str) -> None:
        """Builds the zone. Raises InputError if the device's file is wrong."""
        self.zone = zone_of(owner.node, owner.data, path, owner.budget.adjacency, owner.allow.loads, loaded=False)
        self.buses, self.base = self.zone.model.buses, self.zone.case.base_mva
        self.loads, source = owner.data.loads, owner.source
        self.path = source.mqtt.path if source and source.mqtt else None
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

    def read(self, content: bytes, place: str) -> Values:
        if content.lstrip()[:1] == b"{":
            return self._document(document_of(content, place), place)
        if not content.endswith(b"\n"):
            raise InputError(f"{place}: found a last line without its end, expected a whole table of bus,p_mw,q_mvar")
        try:
            rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
        except (UnicodeDecodeError, csv.Error):
            raise InputError(f"{place}: found no CSV text, expected a table of bus,p_mw,q_mvar") from None
        if not rows or tuple(c.strip() for c in rows[0]) != ("bus", *QUANTITIES):
            raise InputError(f"{place}:1: found another header, expected bus,p_mw,q_mvar")
        found: dict[str, dict[str, str]] = {}
        for line, row in enumerate(rows[1:], 2):
            if len(row) not in (0, 3) or (row and row[0].strip() in found):
                raise InputError(f"{place}:{line}: found a malformed row or a bus again, expected bus,p_mw,q_mvar")
            if row:
                found[row[0].strip()] = dict(zip(QUANTITIES, row[1:], strict=True))
        return self._document(found, place)

    def joined(self, parts: Sequence[Values]) -> Values:
        return parts[-1]

    def slots(self, topic: str) -> Mapping[str, Slot]:
        if "{bus}" not in topic:
            return {topic: ()}
        each = QUANTITIES if "{quantity}" in topic else ("",)
        return {
            topic.replace("{bus}", str(bus)).replace("{quantity}", quantity): (str(bus), *filter(None, [quantity]))
            for bus in self.buses
            for quantity in each
        }

    def heard(self, before: Values | None, slot: Slot, document: Any, place: str) -> Values:
        path = self.path
        if not slot:
            return self._document(at(document, path if isinstance(path, str) else None, place), place)
        paths = {q: getattr(path, q) for q in QUANTITIES} if isinstance(path, LoadPaths) else dict.fromkeys(QUANTITIES)
        if len(slot) == 1 and not isinstance(path, LoadPaths):
            document = at(document, path, place)
            paths = {q: q for q in QUANTITIES}
        elif not isinstance(path, LoadPaths):
            paths = dict.fromkeys(QUANTITIES, path)
        d = np.full(2 * len(self.buses), np.nan) if before is None else before["d"].copy()
        k = self.buses.index(int(slot[0]))
        for quantity in slot[1:] or QUANTITIES:
            i = k + QUANTITIES.index(quantity) * len(self.buses)
            value = number_of(at(document, paths[quantity], place), place) / self.base
            d[i] = np.clip(value, self.low[i], self.high[i])
        return {"d": d}

    @property
    def public(self) -> Zone:
        return self.zone

    def device(self, values: Values) -> Zone:
        return self.zone.holding(values["d"])

    def values_of(self, device: Zone) -> Values:
        if device.model.buses != self.buses:
            raise InputError(
                f"data.zone: found {list(self.buses)}, expected {list(device.model.buses)} as at the start"
            )
        return {"d": self._clamped(device.d)}

    def _document(self, document: Any, place: str) -> Values:
        """{bus: {p_mw, q_mvar}}; a bus of another zone counts nothing here."""
        if not isinstance(document, dict):
            raise InputError(f"{place}: found no document of buses, expected {{bus: {{p_mw, q_mvar}}}}")
        d = []
        for quantity in QUANTITIES:
            for bus in self.buses:
                where = f"{place}: bus {bus}"
                d.append(number_of(at(document.get(str(bus)), quantity, where), where) / self.base)
        return {"d": self._clamped(np.array(d))}

    def _clamped(self, d: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(d, self.low, self.high)
