"""Mistakes that the simulation and the storm find: some the stack once had, and they are put back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hushgrid.broker.coordinator.intervals import Intervals
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.spend_table import SpendTable
from hushgrid.node.runtime.driver import Driver


def interval_without_a_line() -> AbstractContextManager[Any]:
    return patch.object(Intervals, "_cut_off", lambda self: None)


def sums_read_after_the_record() -> AbstractContextManager[Any]:
    """What this simulation found first: the log began anew between a record and its place among those that wait."""
    scopes, commit = SpendTable.scopes, Ledger.commit

    def late(self: Ledger, run: bytes, **more: Any) -> None:
        with patch.object(SpendTable, "scopes", _but_the_first(scopes)):
            commit(self, run, **more)

    return patch.object(Ledger, "commit", late)


def state_not_stored() -> AbstractContextManager[Any]:
    """A step's spends are committed, and where its run stands is not."""
    return patch.object(Driver, "_stored", lambda self: None)


def nothing_but_spends_stored() -> AbstractContextManager[Any]:
    """Nor are the answers that a gate must repeat."""
    commit = Ledger.commit

    def mutated(self: Ledger, run: bytes, **more: Any) -> None:
        commit(self, run, **more | {"state": None, "answers": ()})

    return patch.object(Ledger, "commit", mutated)


def _but_the_first(scopes: Callable[..., Any]) -> Callable[..., Any]:
    calls = []

    def called(self: SpendTable, *which: Any) -> Any:
        calls.append(which)
        return scopes(self, *which) if len(calls) > 1 else ()

    return called
