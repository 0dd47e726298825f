"""The run of a coordinator on the topic of its standby: after every commit, before what is sent after it.

The broker delivers in order, so whatever a member has of the run, the topic has its state. It holds what the broker
sees anyway. To go on with a run from here is to start again on one's own ledger: nothing is asked twice.
"""

from __future__ import annotations

import msgspec

from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver, Stored
from hushgrid.node.runtime.endpoint import Clock, Endpoint
from hushgrid.node.wire import COORDINATOR, Instance, Plan, Publication, Topics

STANDBY = "standby"  #: an identity that reads what the coordinator says of itself


class Replica(msgspec.Struct, frozen=True):
    """A run under way, as a coordinator's ledger has it."""

    run: bytes
    plan: bytes
    state: bytes


def topic(fleet: str) -> str:
    """Where a fleet's replica stands, retained."""
    return Topics(fleet).edge(COORDINATOR, STANDBY)


def decode(payload: bytes) -> Replica:
    """Raises Malformed: what is taken into a ledger would else end its coordinator at each start."""
    try:
        replica = msgspec.msgpack.decode(payload, type=Replica)
        plan = wire.decode_state(Plan, replica.plan)
        wire.decode_state(Stored, replica.state)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Malformed(f"no replica: {error}") from None
    if replica.run != wire.run_id(plan.plan, plan.nonce, plan.members):
        raise Malformed("no replica: its run is of another plan")
    return replica


class Replicated:
    """A coordinator as an event loop drives it. After a commit, and on each connection, its run goes out first."""

    def __init__(self, endpoint: Endpoint, fleet: str) -> None:
        self.endpoint, self.topic = endpoint, topic(fleet)
        self.log = endpoint.log
        self._driver: Driver | None = None  # of the run
        self._news = False  # whether the topic has something else than it is to have

    def observe(self, driver: Driver, _: bool) -> None:
        """A step of the run is in the ledger."""
        self._driver, self._news = driver, True

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
        self._news = True
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
        if self._driver is not None and self.endpoint.finished:
            self._driver, self._news = None, True
        if not self._news:
            return out
        self._news = False
        return [Publication(self.topic, self._replica(), True), *out]

    def _replica(self) -> bytes:
        """Empty, which clears the topic, if no run is in its rounds."""
        stored = self._driver.ledger.runs.find(self._driver.run) if self._driver is not None else None
        if stored is None or stored.state is None:
            return b""
        return wire.encode(Replica(stored.id, stored.plan, stored.state))


def restore(ledger: Ledger, replica: Replica | None, before: Instance | None = None) -> None:
    """The run under way in this ledger is that of the topic, as in the ledger of the coordinator `before` this one.

    Without one on the topic a run of this ledger is over, unless it was the last one's.
    """
    if replica is None:
        if before is not None and before.ledger != ledger.id:
            ledger.runs.abandon()
        return
    known = ledger.runs.under_way()
    if known is None or known.id != replica.run:
        ledger.runs.abandon()
        if ledger.runs.find(replica.run) is None:
            ledger.join(replica.run, replica.plan)
        else:
            ledger.runs.reopen(replica.run, replica.plan)
    ledger.commit(replica.run, state=replica.state, status="running")
