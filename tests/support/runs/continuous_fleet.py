"""Intervals in this process, and what the machines are left with."""

from __future__ import annotations

import functools

from hushgrid.benchmarks import continuous
from hushgrid.node import wire
from hushgrid.node.runtime.driver import Stored

scenario = functools.cache(continuous.scenario)


class Fleet(continuous.Fleet):
    """A fleet whose runs are seeded, so that two can be compared bit for bit."""

    def states(self) -> dict[str, bytes]:
        """The last state of every machine."""
        found = {}
        for name, ledger in self.ledgers.items():
            last = ledger.last_run()
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
