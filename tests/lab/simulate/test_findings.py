"""What simulations have found (docs/reliability.md): the mistake, put back, is found in its life; without it, none is.

A life stands here by what goes wrong in it, for a seed alone means another life once anything is drawn differently.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from hushgrid.lab.simulate.faults import Fault
from hushgrid.lab.simulate.fleet import HOUR_S
from hushgrid.lab.simulate.manner import USUAL, Manner
from hushgrid.lab.simulate.patterns import SCENARIOS, made
from hushgrid.lab.simulate.search import Life, live, quiet
from hushgrid.lab.simulate.simulation import switched_on
from hushgrid.lab.simulate.world import World
from hushgrid.node.privacy.ledger_marks import Marks
from hushgrid.node.privacy.spend_table import VERSION, SpendTable
from hushgrid.node.problems.kind import Device
from hushgrid.node.site.data_source import Agree, DataSource, FileDataSource
from hushgrid.node.wire import COORDINATOR
from tests.support.scenarios.simulated_mistakes import interval_without_a_line, sums_read_after_the_record

SEED = 1
FIRST = switched_on(World(SEED), COORDINATOR)  #: when intervals begin, s after each hour


def mark_written_where_it_was() -> AbstractContextManager[Any]:
    def accepted_now(self: Marks) -> None:
        self._stated = False
        self.write()

    return patch.object(Marks, "accepted_now", accepted_now)


def sums_of_a_version_kept() -> AbstractContextManager[Any]:
    def begin_version(self: SpendTable, version: int) -> None:
        if VERSION in self._loaded:
            self._forget(VERSION)
        self._days.clear()
        self.data_version, self.declared = version, self.tables.meta("declared")

    return patch.object(SpendTable, "begin_version", begin_version)


def half_a_file_taken() -> AbstractContextManager[Any]:
    def taken(self: FileDataSource, affordable: bool, agree: Agree, fits: object) -> Device:
        agree(self.ledger.data_version + self._replaced())
        self.look()
        return self.device

    return patch.multiple(FileDataSource, __call__=taken, fitting=DataSource.fitting)


def half_a_file_read_at_a_start() -> AbstractContextManager[Any]:
    return patch.object(FileDataSource, "fitting", DataSource.fitting)


class Found(NamedTuple):
    """One finding: its mistake, the promise that it broke, and its life."""

    mistake: Callable[[], AbstractContextManager[Any]]
    promise: str
    fleet: str
    intervals: int
    faults: list[Fault]
    manner: Manner = USUAL


SECOND, COPIED = FIRST + HOUR_S, FIRST + 30.0
FINDINGS = (
    Found(sums_read_after_the_record, "marks", "token", 4, [Fault(SECOND, "kill", ("n1",), call=3, how="sync")]),
    Found(interval_without_a_line, "record", "star", 4,
          [Fault(SECOND - 0.02, "kill", (COORDINATOR,), call=2, how="committed")]),
    Found(mark_written_where_it_was, "answered", "star", 2,
          [Fault(COPIED + k * 30.0, "card", ("n0",), how="put back") for k in range(2)]),
    Found(sums_of_a_version_kept, "whole", "star", 5, [], Manner(fed=True)),
    Found(half_a_file_taken, "answered", "day", 6,
          [Fault(SECOND - 10.0, "source", ("z2",), seconds=90.0, amount=0.438, how="half")]),
    Found(half_a_file_read_at_a_start, "answered", "day", 6,
          [Fault(SECOND - 10.0, "source", ("z2",), seconds=90.0, amount=0.438, how="half"),
           Fault(SECOND - 8.0, "kill", ("z2",))]),
)  # fmt: skip


@pytest.mark.runs
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.mistake.__name__)
def test_it_is_found_again_and_is_mended(finding):
    fleet = made(finding.fleet)
    life = Life(SCENARIOS[finding.fleet], SEED, finding.intervals, finding.faults, finding.manner)
    expected = quiet(fleet, SEED, finding.manner)
    with finding.mistake():
        assert finding.promise in {broken.promise for broken in live(fleet, life, expected)[1]}
    assert live(fleet, life, expected)[1] == []
