"""A connection to the local broker of a site. Whatever that broker does, the fleet's connection beside it goes on.

One loop drives both. So a flood is read only as fast as little time of the loop allows, and a large payload is not read
at all.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from math import inf

from hushgrid.node import system
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.link import Message
from hushgrid.node.transport.mqtt import MqttLink

SECRETS = "HUSHGRID_SITE"  #: the environment's names of user and password begin with it
PAYLOAD = 1 << 18  #: bytes of a message
MANY = 500  #: messages in a second, beyond which the rest waits for the next second
REFUSED_LINES = 4  #: lines of the log about topics that a broker refuses


class LocalLink(MqttLink):
    """A `Link` that takes at most about MANY messages a second."""

    def __init__(
        self,
        url: str,
        name: str,
        subscriptions: Sequence[str] = (),
        will: tuple[str, bytes] | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(
            url, name, will=will, subscriptions=subscriptions, tls=tls, persistent=False, payload_limit=PAYLOAD,
            secrets=SECRETS,
        )  # fmt: skip
        self._since, self._taken = 0.0, 0
        #: takes messages that the broker had kept before we subscribed, which nobody may have sent lately; None: as any
        self.on_retained: Callable[[str, bytes], None] | None = None

    @property
    def full(self) -> bool:
        """Whether this second's messages are taken."""
        return self._taken > MANY and system.machine.monotonic() < self._since + 1.0

    @property
    def events(self) -> int:
        return super().events & ~select.POLLIN if self.full else super().events

    def turn(self, ready: bool) -> list[Message]:
        if self.full and not ready:  # ready all the same: the broker has closed
            self.due = self._since + 1.0
            return []
        messages = super().turn(ready)
        now = system.machine.monotonic()
        if now >= self._since + 1.0:
            self._since, self._taken = now, 0
        self._taken += len(messages) + ready
        if self.full:
            self.due = self._since + 1.0
        return messages

    def on_received(self, topic: str, payload: bytes, retained: bool) -> None:
        if not retained or self.on_retained is None:
            super().on_received(topic, payload, retained)
        elif topic in self.subscriptions and 0 < len(payload) <= PAYLOAD:
            self.on_retained(topic, payload)


class _Clock:
    """The loop's own time: what is done here waits for no peer."""

    time = 0.0
    sleeps_until = 0.0

    def time_at(self, now: float, hears: bool) -> float:
        return now

    def worked(self, seconds: float) -> None:
        """It makes no difference."""


class LocalEnd:
    """One end of a local connection as the event loop drives it. It answers nothing by itself."""

    def __init__(self, link: LocalLink, log: Callable[[str], None]) -> None:
        self.link, self.log = link, log
        self.clock = _Clock()
        self.subscriptions: tuple[str, ...] = link.subscriptions
        self._refusals = 0

    def connected(self) -> list[tuple[str, bytes, bool]]:
        return []

    def on_message(self, topic: str, payload: bytes) -> list[tuple[str, bytes, bool]]:
        return []

    def on_tick(self, now: float) -> list[tuple[str, bytes, bool]]:
        return []

    @property
    def due(self) -> float:
        """Nothing is due before something happens."""
        return inf

    @property
    def patient(self) -> bool:
        return True

    def idle(self) -> None:
        """It has nothing to do beforehand."""

    def refused(self, topic: str, reason: str) -> list[tuple[str, bytes, bool]]:
        self._refusals += 1
        if self._refusals <= REFUSED_LINES:
            self.log(f"the local broker refuses {topic[:200]!a}: {reason[:200]!a}")
        return []
