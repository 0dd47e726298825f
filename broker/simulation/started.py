"""A run under way: what it is made from, where its ledgers are, and where it writes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hushgrid.broker.simulation.eavesdropper import Eavesdropper
from hushgrid.broker.simulation.interrupts import Interrupts
from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.progress import Progress
from hushgrid.kernels.types import Document
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import COORDINATOR

Transcript = list[Document] | None  #: every message, as the scenario asks for it


class Ledgers(NamedTuple):
    """Where a run's ledgers are. Those that nobody keeps need not survive a power cut."""

    state: Path
    durable: bool
    in_memory: dict[str, Ledger]  #: those without a file

    def path(self, node: str) -> Path:
        return self.state / f"{node}.ledger"

    def open(self, node: str, *, buffered: bool = False, file: str = "") -> Ledger:
        """`file`: its name, if it is not the node's."""
        file = file or node
        if file not in self.in_memory and buffered and not self.durable:
            self.in_memory[file] = Ledger(self.path(file), node, durable=False, buffered=True)
        return self.in_memory.get(file) or Ledger(self.path(file), node, durable=self.durable)

    def exist(self, node: str) -> bool:
        return node in self.in_memory or self.path(node).exists()


class Started(NamedTuple):
    """A run under way: what it is made from, and where it writes."""

    setup: Setup
    ledgers: Ledgers
    place: Path  #: a directory of its own, for as long as it lasts
    progress: Progress
    signals: Interrupts
    seconds: dict[str, float]  #: that answering took in one process, by the fleet

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all that have a ledger."""
        return (*self.setup.plan.nodes, COORDINATOR)

    @property
    def eavesdropper(self) -> Eavesdropper | None:
        """Who takes down every message, if the scenario asks for it."""
        scenario = self.setup.scenario
        return Eavesdropper(scenario.fleet) if scenario.run.record == "transcript" else None
