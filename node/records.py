"""What stands in a ledger: its tables, their rows by name, and the events that its spends are priced by."""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

from msgspec import Struct

from hushgrid.kernels.accounting import Event, Gaussian, Laplace, NonPrivate

FORMAT = 1
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE spend (no INTEGER PRIMARY KEY, run BLOB, answer INTEGER, kind TEXT NOT NULL, value REAL NOT NULL,
                    sensitivity REAL, scale REAL, grid REAL, adjacency TEXT NOT NULL, sampler TEXT NOT NULL,
                    mu2 REAL NOT NULL, at TEXT NOT NULL);
CREATE TABLE run (id BLOB PRIMARY KEY, plan BLOB NOT NULL, status TEXT NOT NULL, state BLOB, last BLOB,
                  started TEXT NOT NULL);
CREATE TABLE answer (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE history (run BLOB, round INTEGER, residual REAL, messages INTEGER, bytes INTEGER, PRIMARY KEY (run, round));
CREATE TABLE peer (node TEXT PRIMARY KEY, mark BLOB NOT NULL);
"""

Kind = Literal["laplace", "gaussian", "nonprivate", "gap"]


class Spend(Struct, frozen=True):
    """One gate answer, as the gate itself reports it."""

    answer: int
    kind: Kind
    value: float  #: laplace: epsilon; gaussian: mu; nonprivate: infinity
    sensitivity: float
    scale: float
    grid: float
    adjacency: str
    sampler: str

    @property
    def event(self) -> Event:
        return event_of(self.kind, self.value)


def event_of(kind: str, value: float) -> Event:
    if kind == "laplace":
        return Laplace(value)
    return Gaussian(value) if kind == "gaussian" else NonPrivate()


def events_of(kind: str, value: float, mu2: float) -> list[Event]:
    """A row as events. A gap's price is at least what its lost spends cost, under every accountant."""
    if kind != "gap" or value == inf:
        return [event_of(kind, value)]
    pure: list[Event] = [Laplace(value)] if value else []
    return [*pure, Gaussian(mu2**0.5)] if mu2 else pure


class StoredRun(NamedTuple):
    """A row of `run`."""

    id: bytes
    plan: bytes
    status: str  #: joined | running | done | refused | stopped
    state: bytes | None
    last: bytes | None  #: the last message, repeated for ever once the run is over
    started: str  #: UTC


class StoredSpend(NamedTuple):
    """A row of `spend`; of a gap (what was lost with an old copy) only number, kind, price and time are known."""

    no: int
    run: bytes | None
    answer: int | None
    kind: Kind
    value: float
    sensitivity: float | None
    scale: float | None
    grid: float | None
    adjacency: str
    sampler: str
    at: str  #: UTC
