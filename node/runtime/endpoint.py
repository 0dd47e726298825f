"""What a member and the coordinator share on the wire: a session, a last will, patience, and what they do not take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from hushgrid.kernels.errors import printable
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import Death, Publication, Topics

RETRY_S = (0.4, 5.0)  #: first and longest wait before a message whose receipt is not proven is sent again
REJOIN_S = (
    5.0  #: for a peer to be back once the broker is: the longest wait of node/transport/mqtt.py between two attempts
)
LINE = 400  #: characters of what comes from outside that a line of a log may have
STEP_S = 1.0  #: the most that passes at once on an endpoint's clock


class Clock:
    """An endpoint's own time, in seconds: it stands while the broker cannot be heard, or the process does not run.

    By it alone a peer is silent. A process that was stopped, or a machine that slept, loses at most STEP_S.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self._last: float | None = None

    def at(self, now: float, hears: bool) -> float:
        """Its time at `now`, of time.monotonic(); `hears`: whether the broker could be heard until then."""
        if hears and self._last is not None:
            self.time += min(now - self._last, STEP_S)
        self._last = now
        return self.time


class Endpoint(ABC):
    """One end of a fleet's edges. Pure of sockets and clocks: a transport calls it, and publishes what it returns."""

    def __init__(self, name: str, fleet: str, ledger: Ledger, log: Callable[[str], None] = lambda _: None) -> None:
        self.name, self.topics, self.ledger, self.log = name, Topics(fleet), ledger, log
        self.session = ledger.new_session()
        self.dropped: Counter[str] = Counter()
        self.clock = Clock()
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
        """Time passes; `now` in seconds, of any origin, as of `clock`."""

    @abstractmethod
    def idle(self) -> None:
        """Nothing waits: time for what must not delay an answer."""

    def refused(self, topic: str, reason: str) -> list[Publication]:
        """The broker does not let this endpoint publish on a topic, or hear it."""
        self.log(f"the broker refuses {topic}: {printable(reason, LINE)}")
        return []

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
            self.log(f"dropped a message: {printable(why, LINE)}")  # once a kind: a hostile peer fills no disk
        self.dropped[kind] += 1
        return []
