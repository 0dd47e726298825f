"""The run of a coordinator on the topic of its standby: after every commit, before what is sent after it.

The broker delivers in order, so whatever a member has of the run, the topic has its state. It holds what the broker
sees anyway. To go on with a run from here is to start again on one's own ledger: nothing is asked twice.
"""

from __future__ import annotations

import msgspec

from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.endpoint import Clock, Endpoint
from hushgrid.node.wire import COORDINATOR, Publication, Topics

STANDBY = "standby"  #: an identity that reads what the coordinator says of itself, and its run


class Replica(msgspec.Struct, frozen=True):
    """A run under way, as a coordinator's ledger has it."""

    run: bytes
    plan: bytes
    state: bytes


def topic(fleet: str) -> str:
    """Where a fleet's replica stands, retained."""
    return Topics(fleet).edge(COORDINATOR, STANDBY)


def decode(payload: bytes) -> Replica:
    """Raises Malformed."""
    try:
        return msgspec.msgpack.decode(payload, type=Replica)
    except msgspec.MsgspecError as error:
        raise Malformed(f"no replica: {error}") from None


class Replicated:
    """A coordinator as an event loop drives it. After a commit, and on each connection, its run goes out first."""

    def __init__(self, endpoint: Endpoint, fleet: str) -> None:
        self.endpoint, self.topic = endpoint, topic(fleet)
        self.log = endpoint.log
        self._driver: Driver | None = None  # of the run
        self._committed = False

    def observe(self, driver: Driver, _: bool) -> None:
        """A step of the run is in the ledger."""
        self._driver, self._committed = driver, True

    @property
    def over(self) -> Publication | None:
        """What clears the topic, once a run is over; None: nothing stands there."""
        if self._driver is None:
            return None
        self._driver, self._committed = None, False
        return Publication(self.topic, b"", True)

    # --- what the event loop calls ---

    @property
    def clock(self) -> Clock:
        return self.endpoint.clock

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return self.endpoint.subscriptions

    @property
    def due(self) -> float:
        return self.endpoint.due

    @property
    def patient(self) -> bool:
        return self.endpoint.patient

    def connected(self) -> list[Publication]:
        self._committed = True
        return self._first(self.endpoint.connected())

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        return self._first(self.endpoint.on_message(topic, payload))

    def on_tick(self, now: float) -> list[Publication]:
        return self._first(self.endpoint.on_tick(now))

    def idle(self) -> None:
        self.endpoint.idle()

    def refused(self, topic: str, reason: str) -> list[Publication]:
        return self._first(self.endpoint.refused(topic, reason))

    # --- inside ---

    def _first(self, out: list[Publication]) -> list[Publication]:
        driver, committed, self._committed = self._driver, self._committed, False
        stored = driver.ledger.runs.find(driver.run) if driver is not None and committed else None
        if stored is None or stored.state is None:
            return out
        return [Publication(self.topic, wire.encode(Replica(stored.id, stored.plan, stored.state)), True), *out]


def restore(ledger: Ledger, replica: Replica) -> None:
    """The run is under way in this ledger, as in the other one."""
    known = ledger.runs.under_way()
    if known is None or known.id != replica.run:
        ledger.runs.abandon()
        if ledger.runs.find(replica.run) is None:
            ledger.join(replica.run, replica.plan)
        else:
            ledger.runs.reopen(replica.run, replica.plan)
    ledger.commit(replica.run, state=replica.state, status="running")
