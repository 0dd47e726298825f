"""The last run of a coordinator on the topic of its standby: after every commit, before what is sent after it. On
another, before anything of an interval, what its ledger notes: which interval it is, when the next one is due, where
the last one has ended.

The broker delivers in order, so whatever a member has of the run, the topic has its state. It holds what the broker
sees anyway. To go on with a run from here is to start again on one's own ledger: nothing is asked twice. How a run has
ended stands there too: it is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import count
from math import inf
from typing import Literal, Protocol

import msgspec

from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver, Stored
from hushgrid.node.runtime.endpoint import Endpoint
from hushgrid.node.served import Served, Ticking
from hushgrid.node.wire import COORDINATOR, PLAN_LIMIT, Finish, Instance, Plan, Publication, Topics

QUIET_S = 2.0  #: connected without a word, after which nobody else writes the run
STANDBY = "standby"  #: an identity that reads what the coordinator says of itself
Notes = dict[str, bytes]
Standing = Literal["running", "done", "stopped"]
_said = count(1)  # of this process
OVER: dict[str, Standing] = {"done": "done", "stopped": "stopped"}  #: of a ledger's words for a run


class Word(Protocol):
    """How the coordinators of a fleet know each other's messages (`node/trust/stated.py`)."""

    def sign(self, topic: str, payload: bytes) -> bytes: ...
    def open(self, topic: str, payload: bytes) -> bytes:
        """Raises Malformed."""
        ...


class Unsigned:
    """The broker says whose they are."""

    def sign(self, topic: str, payload: bytes) -> bytes:
        return payload

    def open(self, topic: str, payload: bytes) -> bytes:
        return payload


UNSIGNED = Unsigned()


class Replica(msgspec.Struct, frozen=True):
    """The last run that has begun its rounds, as a coordinator's ledger has it."""

    run: bytes
    plan: bytes
    state: bytes
    began: float = 0.0  #: of the coordinator that says it, s since 1970
    no: int = 0  #: how often it has said anything here: RabbitMQ retains an older one on another server of a cluster
    status: Standing = "running"
    last: bytes = b""  #: its farewell, once that is decided

    @property
    def when(self) -> tuple[float, int]:
        """The later is the larger."""
        return self.began, self.no


class Noted(msgspec.Struct, frozen=True):
    """What a coordinator's ledger notes, and when it has said so, as of a `Replica`."""

    notes: Notes
    began: float
    no: int

    @property
    def when(self) -> tuple[float, int]:
        """The later is the larger."""
        return self.began, self.no


def topic(fleet: str) -> str:
    """Where a fleet's replica stands, retained."""
    return Topics(fleet).edge(COORDINATOR, STANDBY)


def notes_topic(fleet: str) -> str:
    """Where what its ledger notes stands, retained."""
    return Topics(fleet).edge(COORDINATOR, f"{STANDBY}-notes")


def decode_notes(payload: bytes) -> Noted:
    """Raises Malformed. Who reads a note looks at what is in it."""
    try:
        return msgspec.msgpack.decode(payload, type=Noted)
    except msgspec.MsgspecError as error:
        raise Malformed(f"no notes: {error}") from None


def decode(payload: bytes) -> Replica:
    """Raises Malformed: what is taken into a ledger would else end its coordinator at each start."""
    try:
        replica = msgspec.msgpack.decode(payload, type=Replica)
        plan = wire.decode_state(Plan, replica.plan)
        wire.decode_state(Stored, replica.state)
        farewell = wire.decode_envelope(replica.last, PLAN_LIMIT) if replica.last else None
    except (msgspec.MsgspecError, ValueError, Malformed) as error:
        raise Malformed(f"no replica: {error}") from None
    if replica.run != wire.run_id(plan.plan, plan.nonce, plan.members):
        raise Malformed("no replica: its run is of another plan")
    if farewell is not None and (farewell.run != replica.run or not isinstance(farewell.body, Finish)):
        raise Malformed("no replica: its farewell is another message")
    return replica


class Replicated:
    """A coordinator as an event loop drives it. After a commit, and on each connection, its run goes out first; on each
    connection its ledger's notes under `keys`, too.

    Who connects again may have been replaced meanwhile, by another one that goes on with the run. So it says nothing
    before it has read what the broker retains of the fleet's coordinator, or has waited for that for QUIET_S.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        fleet: str,
        ending: Callable[[], bool],
        replaced: Callable[[], bool],
        keys: Collection[str] = (),
        served: Served | None = None,
        word: Word = UNSIGNED,
        *,
        again: bool = False,
    ) -> None:
        """`ending`: whether it is in the ledger how the run ends. `replaced`: whether a later one has spoken. `served`:
        the coordinator behind its guard. `again`: this process was connected before.
        """
        self._state, self._states = Topics(fleet).state(COORDINATOR), Topics(fleet).state("")
        self._replaced = replaced
        self._met, self._served, self._word = again, served or endpoint, word
        self._silent_until = -inf  # s of `clock`: it says nothing until then
        self._births: dict[str, bytes] = {}  # meanwhile: the last of each topic that is retained
        self.endpoint, self.topic, self.notes_topic, self.keys = endpoint, topic(fleet), notes_topic(fleet), keys
        self.log = endpoint.log
        self._driver: Driver | None = None  # of the run
        self._news = False  # whether the topic has something else than it is to have
        self._is_ending, self._ending = ending, False  # of the run; whether the topic has its farewell

    def observe(self, driver: Driver, _: bool) -> None:
        """A step of the run is in the ledger."""
        self._driver, self._news = driver, True

    # --- what the event loop calls ---

    @property
    def clock(self) -> Ticking:
        return self._served.clock

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return self._served.subscriptions

    @property
    def due(self) -> float:
        return self._silent_until if self._silent else self._served.due

    @property
    def patient(self) -> bool:
        return self._served.patient

    def connected(self) -> list[Publication]:
        if self._met:
            self._silent_until, self._births = self.clock.time + QUIET_S, {}
            return []
        self._met = True
        return self._greeting()

    def _greeting(self) -> list[Publication]:
        self._news = True
        ledger = self.endpoint.ledger
        notes = {key: note for key in self.keys if (note := ledger.note(key)) is not None}
        first = [self._publication(self.notes_topic, Noted(notes, *self._when()))] if notes else []
        return [*first, *self._first(self._served.connected())]

    def _publication(self, topic: str, body: msgspec.Struct) -> Publication:
        return Publication(topic, self._word.sign(topic, wire.encode(body)), True)

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        if not self._silent:
            return self._first(self._served.on_message(topic, payload))
        if topic == self._state:
            self._served.on_message(topic, payload)
            return self._speaks()
        if topic.startswith(self._states):
            self._births[topic] = payload
        return []  # what a member sends in a run it sends again

    def on_tick(self, now: float) -> list[Publication]:
        if not self._silent:
            return self._first(self._served.on_tick(now))
        return self._speaks() if now >= self._silent_until else []

    def idle(self) -> None:
        self._served.idle()

    def refused(self, topic: str, reason: str) -> list[Publication]:
        return [] if self._silent else self._first(self._served.refused(topic, reason))

    def concluded(self) -> list[Publication]:
        """The run is over in the ledger."""
        self._news = True
        return [] if self._silent else self._first([])

    # --- inside ---

    @property
    def _silent(self) -> bool:
        return self._silent_until > -inf

    def _speaks(self) -> list[Publication]:
        """It goes on, unless another one does: with its birth, and with what it has heard meanwhile."""
        if self._replaced():
            return []
        births, self._births, self._silent_until = self._births, {}, -inf
        out = self._greeting()
        for topic, payload in births.items():
            out += self._first(self._served.on_message(topic, payload))
        return out

    def _when(self) -> tuple[float, int]:
        return self.endpoint.instance.began if self.endpoint.instance else 0.0, next(_said)

    def _first(self, sent: Iterable[tuple[str, bytes, bool]]) -> list[Publication]:
        out = [Publication(*one) for one in sent]
        if not self._ending and self._is_ending():
            self._ending = self._news = True
        if not self._news:
            return out
        self._news = False
        stored = self.endpoint.ledger.runs.find(self._driver.run) if self._driver is not None else None
        if stored is None or stored.state is None:
            return out
        replica = Replica(
            stored.id, stored.plan, stored.state, *self._when(), OVER.get(stored.status, "running"), stored.last or b""
        )
        return [self._publication(self.topic, replica), *out]


def restore(
    ledger: Ledger, replica: Replica | None, before: Instance | None = None, notes: Notes | None = None
) -> None:
    """The last run of this ledger is that of the topic, as in the ledger of the coordinator `before` this one, and so
    are its notes.

    Without one on the topic, or if that one is over here too, a run of this ledger is over unless it is the last one's.
    """
    for key, note in (notes or {}).items():
        ledger.keep_note(key, note)
    same_ledger = before is None or before.ledger == ledger.id
    known = ledger.runs.find(replica.run) if replica is not None else None
    if replica is None or (known is not None and known.status in OVER and known.status in (replica.status, "done")):
        if not same_ledger:  # what has begun here since then was another's to end
            ledger.runs.abandon()
        return
    if known is None or known.status in OVER:
        ledger.runs.abandon()
        if known is None:
            ledger.join(replica.run, replica.plan)
        else:
            ledger.runs.reopen(replica.run, replica.plan)
    ledger.commit(replica.run, state=replica.state, status=replica.status, last=replica.last or None)
