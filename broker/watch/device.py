"""The device of this machine, from its own files alone: what it was asked, what that cost, what is left, what it does.

It needs no broker and disturbs nobody: the ledger is read from a copy.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock

from hushgrid.broker.watch.ledger_facts import facts, reading, source
from hushgrid.broker.watch.rows import seconds
from hushgrid.kernels.errors import HushgridError, printable
from hushgrid.kernels.types import Document
from hushgrid.node.config.consent import consent
from hushgrid.node.config.device import DeviceConfig, load_device
from hushgrid.node.site.data_source import device_of
from hushgrid.node.site.standing import last_standing
from hushgrid.node.status import moment

RUNS = 50  #: the last runs that are shown
ROWS = 200  #: of set-points that are shown
UNITS = ("MW", "MVAr", "p.u.", "MWh")  #: their columns
FACTS_S = 2.0  #: for which facts count


class DeviceFile:
    """A device by its file. Raises InputError if the file is wrong."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = path, clock
        self.config = load_device(path)
        self.consent = [printable(line) for line in consent(self.config, device_of(self.config, str(path)))]
        self._lock = Lock()
        self._facts: Document = {}
        self._read_at = 0.0

    def facts(self) -> Document:
        """What the page shows; read again once it is FACTS_S old."""
        with self._lock:
            if not self._facts or not 0 <= self.clock() - self._read_at < FACTS_S:
                self._read_at = self.clock()
                self._facts = self._read()
            return self._facts | {"now": round(self.clock(), 1)}

    def changes(self, stopping: Event, every: float) -> Iterator[Document]:
        """The time, every so many seconds, and a version that rises when the facts are others."""
        version = 0
        before: Document = {}
        while not stopping.is_set():
            document = self.facts()
            now = document.pop("now")
            version += document != before
            before = document
            yield {"version": version, "now": now}
            stopping.wait(every)

    def _read(self) -> Document:
        config = self.config
        document: Document = {
            "node": config.node,
            "fleet": config.fleet,
            "file": str(self.path),
            "consent": self.consent,
            "problem": None,
            "ledger": None,
            "runs": [],
            "totals": [],
            "setpoints": setpoints(config),
        }
        where = source(self.path, None)
        if not where.path.exists():
            return document | {"problem": "It has no ledger yet: nobody has asked it anything."}
        try:
            with reading(where) as ledger:
                known = facts(ledger, where)
        except HushgridError as error:
            return document | {"problem": str(error)}
        return document | {
            "problem": known["refuses"],
            "ledger": {key: known[key] for key in ("ledger", "session", "spends", "mark", "data_version")},
            "runs": [_run(run) for run in known["runs"][-RUNS:][::-1]],
            "totals": known["totals"],
        }


def _run(run: Document) -> Document:
    return run | {"run": run["run"][:8]}


def setpoints(config: DeviceConfig) -> Document | None:
    """What the device does now, by the last run that had an answer: its rows, since when, until when it is good."""
    file = Path(config.state) / f"{config.node}.setpoints.csv"
    standing = last_standing(config)
    document = standing.document if standing else {}
    places: dict[str, dict[str, float]] = {}
    at = seconds(document.get("time"))
    with suppress(OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError):
        at = at or file.stat().st_mtime
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                units = places.setdefault(printable(_place(row), 60), {})
                units[row["unit"]] = units.get(row["unit"], 0.0) + float(row["value"])
    if not at:
        return None
    return {
        "time": moment(at),
        "at": round(at, 1),
        "valid_until": document.get("valid_until"),
        "state": document.get("state") or "in force",
        "reason": printable(str(document.get("reason") or ""), 200),
        "units": [unit for unit in UNITS if any(unit in units for units in places.values())],
        "places": dict(list(places.items())[:ROWS]),
        "many": len(places),
    }


def _place(row: dict[str, str]) -> str:
    """What a set-point is of: a bus, with the sum of its generators; an end of a line; storage."""
    quantity = row["quantity"]
    if quantity in ("p_g", "q_g", "v"):
        return f"bus {row['bus']}"
    if row["from"]:
        end = row["from" if quantity.upper().endswith("F") else "to"]
        return f"line {row['from']}–{row['to']}, at {end}"
    return f"{quantity} of {row['element']}"
