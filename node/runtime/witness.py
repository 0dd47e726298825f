"""What a device hears from others about its own ledgers, and what it says about theirs."""

from __future__ import annotations

from typing import NamedTuple

from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import Envelope, Finished, Join, Mark, Plan, Seen, encode


class Simulated(NamedTuple):
    """Settings that only `hushgrid run` can give a node; no message can."""

    seed: int | None = None


class Witness:
    """Of device `name`. What it remembers of its peers is in its ledger (`peer_marks`), noted by its driver."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name, self.ledger = name, ledger
        self._plan: Plan | None = None  #: the one announced last, with what the coordinator remembers of everybody

    def behind(self, plan: Plan) -> bool:
        """Takes what a plan says of this device's ledgers. Whether its ledger is behind any of it: then it joins
        nothing.
        """
        self._plan = plan
        return bool(sum(self.ledger.marks.tell(mark) for mark in plan.marks_of(self.name)))

    def join(self, run: bytes, warm: bool, stands: int) -> bytes:
        """That the plan is stored, by a ledger that has counted these marks of the device's earlier ones as its own."""
        named: tuple[Mark, ...] = self._plan.marks_of(self.name) if self._plan else ()
        join = Join(warm, stands, self.ledger.marks.accepted([mark.ledger for mark in named]), self._seen())
        return encode(Envelope(run, 0, 0, self.ledger.mark, join))

    def finished(self, run: bytes) -> bytes:
        """That the run is over here."""
        return encode(Envelope(run, 0, 0, self.ledger.mark, Finished(self._seen())))

    def _seen(self) -> Seen:
        """What is remembered of peers beyond what the last plan says: its coordinator was told less, or has lost it."""
        remembered, plan = self.ledger.marks.peers, self._plan
        names = [name for name in remembered.peers if plan is None or name in plan.members]
        return remembered.ahead(names, {name: plan.marks_of(name) for name in names} if plan else {})
