"""An endpoint behind its guard: a loop drives it like any other endpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.served import Served, Ticking
from hushgrid.node.trust.guard import Credentials, Guard
from hushgrid.node.wire import Publication, Topics


class End(Served, Protocol):
    """A member or a coordinator, as far as a guard knows it."""

    name: str
    topics: Topics
    ledger: Ledger
    session: int

    @property
    def will(self) -> tuple[str, bytes]: ...
    def forged(self, why: str) -> None: ...


class Guarded:
    """What goes in and out of `end` passes its guard, and nothing else does."""

    def __init__(self, end: End, credentials: Credentials, peers: Callable[[], Collection[str]]) -> None:
        """`peers`: the names of those whose messages it needs now."""
        self.end, self.name = end, end.name
        session = (end.ledger.id, end.session)
        self.guard = Guard(end.name, end.topics, session, credentials, end.forged, peers)
        self.log = end.log
        self.local = False  #: what is handed over as it is has no bytes to seal

    @property
    def clock(self) -> Ticking:
        return self.end.clock

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return self.end.subscriptions

    @property
    def will(self) -> tuple[str, bytes]:
        return self.end.will

    @property
    def due(self) -> float:
        return min(self.end.due, self.guard.due)

    @property
    def patient(self) -> bool:
        return self.end.patient

    def connected(self) -> list[Publication]:
        return [*self.guard.connected(), *self.seal(self.end.connected())]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        opened, out = self.guard.open(topic, payload)
        for where, message in opened:
            out += self.seal(self.end.on_message(where, message))
        return out

    def on_tick(self, now: float) -> list[Publication]:
        return [*self.guard.tick(now), *self.seal(self.end.on_tick(now))]

    def idle(self) -> None:
        self.end.idle()

    def refused(self, topic: str, reason: str) -> list[Publication]:
        return self.seal(self.end.refused(topic, reason))

    def seal(self, publications: Iterable[tuple[str, bytes, bool]]) -> list[Publication]:
        """What the end sends, for the broker."""
        return self.guard.seal(publications)
