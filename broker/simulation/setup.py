"""A scenario made ready to run on one machine: `prepare`."""

from __future__ import annotations

from importlib import import_module

from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.records.data import Arrays
from hushgrid.node.problems.rolling import Point


def setup_of(kind: Kind) -> type[Setup]:
    """How runs of a kind of problem are simulated: `SETUP` of the file here that is called like the kind's folder."""
    setup: type[Setup] = import_module(f"hushgrid.broker.simulation.problems.{kind.folder}").SETUP
    return setup


def prepare(
    scenario: Scenario, file: str = "scenario", arrays: Arrays | None = None, before: Point | None = None
) -> Setup:
    """A scenario made ready. Raises InputError, which names `file` and the key.

    arrays: the nodes' rows, if they were given in Python. before: where a day begins, if another went before.
    """
    # Rows are of a kind with rows only, and a day of zones only: the scenario's section has seen to it.
    given = tuple(part for part in (arrays, before) if part is not None)
    return setup_of(scenario.kind)(scenario, file, *given)  # type: ignore[arg-type]
