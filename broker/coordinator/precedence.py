"""Which of two coordinators of one fleet goes on: the one whose process began later.

They have one certificate, and so end each other's connections for ever, unless one of them ends. A coordinator that
starts again replaces nobody: its ledger is the same.
"""

from __future__ import annotations

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.runtime.endpoint import Endpoint
from hushgrid.node.status import moment
from hushgrid.node.wire import COORDINATOR, Birth, Instance, Publication


class Precedence:
    """What a coordinator has read on its own state topic."""

    def __init__(self) -> None:
        self.instance: Instance | None = None  #: this one; None in a simulation, where there is no other
        self.later: Instance | None = None  #: another one, that began later

    def claim(self, coordinator: Endpoint, began: float) -> Instance:
        """Which coordinator this one is. `began`: its process, s since 1970."""
        self.instance = Instance(coordinator.ledger.id, coordinator.session, began)
        return self.instance

    def read(self, payload: bytes) -> list[Publication]:
        """Something that a coordinator says of itself: this one, or another with the same certificate. Nothing is
        answered.
        """
        try:
            presence = wire.decode_presence(payload)
        except Malformed:
            return []
        if not isinstance(presence, Birth) and presence.by and self.instance and presence.by.replaces(self.instance):
            self.later = presence.by
        return []

    def check(self) -> None:
        """Raises Refused if another one goes on. The run, if there is one, is that one's too."""
        if self.later:
            began = moment(self.later.began)
            raise Refused(f"{COORDINATOR}: another one of this fleet began at {began}, after this one, which ends")
