"""What a member and the coordinator have in common on the wire: session, last will, resending, dropped messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import printable
from hushgrid.node import wire
from hushgrid.node.log import Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import Death, Publication, Topics

if TYPE_CHECKING:
    from hushgrid.node.runtime.driver import Address, Driver

RETRY_S = (0.4, 5.0)  #: first and longest wait before a message whose receipt is not proven is sent again
REJOIN_S = 5.0  #: for a peer to return once the broker is back: the longest wait of node/transport/attempts.py
TICK_S = 0.25  #: how often the time is told to an endpoint that does not say when something is due
LINE = 400  #: the most characters from outside that a line of the log may have
STEP_S = 1.0  #: the longest time that passes at once on an endpoint's clock, unless its owner meant to sleep for longer


class Clock:
    """An endpoint's own time, in seconds. It stands still while the broker cannot be heard or the process does not run.

    Only this time counts for the silence of a peer, and for sending again what has no answer. If the process was
    stopped or the machine slept, at most STEP_S of that time counts, or the time until which its owner meant to sleep.
    The endpoint's own work does not count: what it sends after a long computation could not be answered before.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self.sleeps_until = -inf  #: its owner does not mean to call `at` before, of time.monotonic()
        self._last: float | None = None

    def time_at(self, now: float, hears: bool) -> float:
        """This clock's time, s, at `now` of time.monotonic(). `hears`: whether the broker could be heard until then."""
        if hears and self._last is not None:
            self.time += min(now - self._last, max(STEP_S, self.sleeps_until - self._last))
        self._last = now
        return self.time

    def worked(self, seconds: float) -> None:
        """The endpoint has computed for so long since `at`, and heard nothing."""
        if self._last is not None:
            self._last += seconds


class Endpoint(ABC):
    """One end of a fleet's edges, without sockets and clocks: an event loop calls it and publishes its answers."""

    def __init__(self, name: str, fleet: str, ledger: Ledger, log: Callable[[str], None] = lambda _: None) -> None:
        self.name, self.topics, self.ledger, self.log = name, Topics(fleet), ledger, log
        self.session = ledger.runs.new_session()
        self.instance: wire.Instance | None = None  #: of a coordinator of devices, beside which there may be another
        self.local = False  #: whether all its peers are in this process, and messages are handed over as they are
        self.dropped: Counter[str] = Counter()  #: messages that were dropped, by reason
        self.forgeries = 0  #: messages that its guard has refused
        self.clock = Clock()
        self._retry, self._due = RETRY_S[0], 0.0
        self._older: frozenset[Address] = (
            frozenset()
        )  #: a star's messages without a proven receipt when this wait began

    @property
    @abstractmethod
    def subscriptions(self) -> tuple[str, ...]:
        """The topics it hears. The same object is returned as long as they do not change."""

    @property
    def will(self) -> tuple[str, bytes]:
        """The topic and payload that the broker publishes, retained, if the connection breaks."""
        return self.topics.state(self.name), wire.encode(Death(self.session, self.instance))

    @property
    def retained(self) -> tuple[str, ...]:
        """The topics whose retained messages are cleared when the endpoint leaves for good."""
        return (self.topics.state(self.name),)

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether a run has ended since the start, and nothing more is to be sent about it."""

    @abstractmethod
    def connected(self) -> list[Publication]:
        """The connection is up (again): returns the birth, then every message whose receipt is not proven."""

    @abstractmethod
    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        """The answers to one message. It raises nothing; a message that does not belong here changes nothing."""

    @abstractmethod
    def on_tick(self, now: float) -> list[Publication]:
        """Some time has passed: returns what is due. `now`: seconds of `clock`."""

    @property
    def due(self) -> float:
        """When `on_tick` must be called at the latest, s of `clock`; inf if nothing is due before something happens."""
        return self.clock.time + TICK_S

    @property
    def patient(self) -> bool:
        """Whether nothing waits for the broker if it is away now: attempts to reach it may be far apart."""
        return self.due == inf

    def idle(self) -> None:  # noqa: B027
        """The answers are sent: does the work that must not delay them, if there is any."""

    def refused(self, topic: str, reason: str) -> list[Publication]:
        """The broker does not let this endpoint publish on a topic, or hear it. Returns what to send about it."""
        self.log(Warned(f"the broker refuses {topic}: {printable(reason, LINE)}"))
        return []

    def forged(self, why: str) -> None:
        """Counts a message that its guard does not let pass (`node/trust/guard.py`). An honest broker may repeat one,
        and be late.
        """
        self.forgeries += not why.startswith(("repeated", "outdated"))
        self._drop(why)

    @property
    def _seal(self) -> Callable[[wire.Envelope], bytes]:
        return wire.hand_over if self.local else wire.encode

    def _soon(self) -> None:
        """Makes the next resend come after the first wait. A resend that is due is never put off."""
        if self._retry > RETRY_S[0]:
            self._retry, self._due = RETRY_S[0], 0.0

    def _due_at(self, now: float, longest: float = RETRY_S[1]) -> bool:
        """Whether messages without a proven receipt are to be sent again now. The waits grow up to `longest`, s."""
        if self._due == 0.0:
            self._due, self._older = now + self._retry, self._unproven()
        if now < self._due:
            return False
        self._retry = min(2 * self._retry, longest)
        self._due = now + self._retry
        return True

    def _overdue(self, now: float) -> frozenset[Address]:
        """A star's messages that have waited for their receipt for a whole wait: a younger one has a wait of its own.

        To be asked when `_due_at` says so; the next wait begins.
        """
        older, self._older = self._older, self._unproven()
        if self._older - older:
            self._retry, self._due = RETRY_S[0], now + RETRY_S[0]
        return older

    def _unproven(self) -> frozenset[Address]:
        """A star's messages of its run without a proven receipt."""
        driver: Driver | None = getattr(self, "driver", None)
        return driver.unproven() if driver and driver.started else frozenset()

    def _drop(self, why: str) -> list[Publication]:
        kind = why.split(":")[0]
        if not self.dropped[kind]:  # one line a kind, so that a hostile peer cannot fill the disk
            self.log(Warned(f"dropped a message: {printable(why, LINE)}"))
        self.dropped[kind] += 1
        return []
