"""What a device hears from others about its own ledgers, and what it says about theirs."""

from __future__ import annotations

from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import Finished, Join, Mark, Plan, Seen

MARK_BYTES = 1 << 6  #: bytes in the ledger of a mark that the device is behind


class Witness:
    """Of device `name`. What it remembers of its peers is in its ledger (`peer_marks`), noted by its driver."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name, self.ledger = name, ledger
        self._plan: Plan | None = None  #: the one announced last, with what the coordinator remembers of everybody

    def behind(self, plan: Plan, room: float) -> int:
        """Takes what a plan says of this device's ledgers. Returns how many marks its ledger is behind.

        room: bytes that plans may still write. If there are none, nothing is taken, and the run is not to be joined.
        """
        self._plan = plan
        return sum(self.ledger.tell(mark) for mark in plan.marks_of(self.name)) if room > 0 else 0

    def join(self, warm: bool, stands: int) -> Join:
        """That the plan is stored, by a ledger that has counted these marks of the device's earlier ones as its own."""
        named: tuple[Mark, ...] = self._plan.marks_of(self.name) if self._plan else ()
        return Join(warm, stands, self.ledger.accepted([mark.ledger for mark in named]), self._seen())

    def finished(self) -> Finished:
        """That the run is over here."""
        return Finished(self._seen())

    def _seen(self) -> Seen:
        """What is remembered of peers beyond what the last plan says: its coordinator was told less, or has lost it."""
        remembered, plan = self.ledger.peer_marks, self._plan
        names = [name for name in remembered.peers if plan is None or name in plan.members]
        return remembered.ahead(names, {name: plan.marks_of(name) for name in names} if plan else {})
