"""Intervals in this process, and what the machines are left with."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from hushgrid.lab.benchmarks import continuous
from hushgrid.node import wire
from hushgrid.node.runtime.driver import Stored

scenario = functools.cache(continuous.scenario)


class Fleet(continuous.Fleet):
    """A fleet whose runs are seeded, so that two can be compared bit for bit."""

    def states(self) -> dict[str, bytes]:
        """The last state of every machine."""
        found = {}
        for name, ledger in self.ledgers.items():
            last = ledger.runs.last()
            assert last is not None
            assert last.state is not None
            found[name] = wire.decode_state(Stored, last.state).machine
        return found


class Again:
    """`who` starts again before the message `at` of an interval."""

    def __init__(self, at: int, who: str) -> None:
        self.at, self.who, self.first = at, who, -1

    def __call__(self, fleet: continuous.Fleet) -> None:
        self.first = fleet.hub.delivered if self.first < 0 else self.first
        if self.at and fleet.hub.delivered - self.first >= self.at:
            self.at = 0
            fleet.restarts(self.who)


GONE = "z2"  #: the zone that is held
ROUNDS = {"consensus-admm": 200, "ladmm": 10}


def held_fleet(
    directory: Path, name: str = "consensus-admm", moved: float = 1.0, gone: str = GONE, ac: str = "none", **keys: Any
) -> tuple[Fleet, dict[str, Any]]:
    """A fleet after an interval of all and one without `gone`, the others' loads `moved` in between; and the last line."""
    fleet = Fleet(directory, scenario(name, ROUNDS[name], None, ac=ac), **{"quorum": 2, "hold": "1h"} | keys)
    assert fleet.interval()["outcome"] == "answer"
    fleet.goes(gone)
    fleet.draws({z: moved * d for z, d in fleet.loads.items() if z != gone})
    return fleet, fleet.interval()


def record(fleet: Fleet, row: dict[str, Any]) -> dict[str, Any]:
    """The record of the run of a line."""
    return json.loads(next((fleet.directory / "runs").glob(f"*{row['run'][:8]}.json")).read_text())
