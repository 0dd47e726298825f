"""A scenario made ready to run on one machine: `prepare`."""

from __future__ import annotations

from importlib import import_module

from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.records.data import Arrays


def setup_of(kind: Kind) -> type[Setup]:
    """How runs of a kind of problem are simulated: `SETUP` of the file here that is called like the kind's folder."""
    setup: type[Setup] = import_module(f"hushgrid.broker.simulation.problems.{kind.folder}").SETUP
    return setup


def prepare(scenario: Scenario, file: str = "scenario", arrays: Arrays | None = None) -> Setup:
    """A scenario made ready. Raises InputError, which names `file` and the key.

    arrays: the nodes' rows, if they were given in Python.
    """
    rows = () if arrays is None else (arrays,)  # of a kind with rows only: the scenario's section has seen to it
    return setup_of(scenario.kind)(scenario, file, *rows)  # type: ignore[arg-type]
