"""What a member and the coordinator share on the wire: a session, a last will, patience, and what they do not take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from hushgrid.node import wire
from hushgrid.node.ledger import Ledger
from hushgrid.node.wire import Death, Publication, Topics

RETRY_S = (0.4, 5.0)  #: first and longest wait before a message whose receipt is not proven is sent again


class Endpoint(ABC):
    """One end of a fleet's edges. Pure of sockets and clocks: a transport calls it, and publishes what it returns."""

    def __init__(self, name: str, fleet: str, ledger: Ledger, log: Callable[[str], None] = lambda _: None) -> None:
        self.name, self.topics, self.ledger, self.log = name, Topics(fleet), ledger, log
        self.session = ledger.new_session()
        self.dropped: Counter[str] = Counter()
        self._retry, self._due = RETRY_S[0], 0.0

    @property
    @abstractmethod
    def subscriptions(self) -> tuple[str, ...]:
        """The topics it hears: the same object for as long as they are the same."""

    @property
    def will(self) -> tuple[str, bytes]:
        """What the broker is to retain for it when its connection breaks: topic and payload."""
        return self.topics.state(self.name), wire.encode(Death(self.session))

    @property
    def retained(self) -> tuple[str, ...]:
        """Topics to clear when leaving for good."""
        return (self.topics.state(self.name),)

    @property
    @abstractmethod
    def finished(self) -> bool:
        """A run has ended since the start, and there is nothing more to say about it."""

    @abstractmethod
    def connected(self) -> list[Publication]:
        """The connection stands (again): who this is, then whatever is not proven."""

    @abstractmethod
    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        """One delivery. Whatever it is, it raises nothing and, unless it belongs here, changes nothing."""

    @abstractmethod
    def on_tick(self, now: float) -> list[Publication]:
        """Time passes; `now` in seconds, of any origin."""

    @abstractmethod
    def idle(self) -> None:
        """Nothing waits: time for what must not delay an answer."""

    def _soon(self) -> None:
        """What is said now is said again within the first wait, unless it is answered. What is due is never put off."""
        if self._retry > RETRY_S[0]:
            self._retry, self._due = RETRY_S[0], 0.0

    def _due_at(self, now: float) -> bool:
        """Whether what is not proven is to be sent again now; less and less often."""
        if self._due == 0.0:
            self._due = now + self._retry
        if now < self._due:
            return False
        self._retry = min(2 * self._retry, RETRY_S[1])
        self._due = now + self._retry
        return True

    def _drop(self, why: str) -> list[Publication]:
        kind = why.split(":")[0]
        if not self.dropped[kind]:
            self.log(f"dropped a message: {why}")  # once a kind: a hostile peer fills no disk
        self.dropped[kind] += 1
        return []
