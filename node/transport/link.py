"""What a device asks of its transport, whatever carries its messages.

A transport promises little, because the endpoints send again what has no answer. A message that is handed over is whole
and comes from a topic that was asked for. It may come twice, late, out of order or never. To add a transport, write a
module with a function that makes a `Link`, and register the function under its URL scheme.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from hushgrid.node.schema.sections import Tls

KEEPALIVE_S = 60  #: a connection over which nothing goes wakes its device twice in that time, for a ping


class Message(NamedTuple):
    """A received message. `retained`: the broker had kept it before we subscribed."""

    topic: str
    payload: bytes
    retained: bool


class Party(NamedTuple):
    """What a connection is made for."""

    name: str  #: the party's identity at the broker
    will: tuple[str, bytes] | None = None  #: (topic, payload) that the broker retains if the connection breaks
    subscriptions: Sequence[str] = ()  #: topics it hears; `+` stands for one level, `#` for all that follow
    tls: Tls | None = None  #: certificates; None: those of the system
    persistent: bool = True  #: whether the broker keeps messages while the connection is broken
    keepalive: int = (
        KEEPALIVE_S  #: seconds; the broker takes it for dead when it has sent nothing for 1.5 times as long
    )


class Link(Protocol):
    """One party's connection to a broker, which is made again whenever it is lost. No threads: its owner drives it.

    The owner waits on `sock` for `events` until `due`, then calls `turn`, and `send` with the answers.
    """

    due: float  #: when `turn` must be called at the latest, of time.monotonic()
    patient: bool  #: set by the owner: nothing waits for the broker, so attempts to reach it may be far apart
    connects: int  #: how often the connection was made
    refused: list[tuple[str, str]]  #: (topic, reason) of each topic that the broker lets it neither publish nor hear

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted the connection, answered every subscription, and is not known to be gone."""

    @property
    def waiting(self) -> bool:
        """Whether an attempt has failed or the connection is lost (see `why`), and the next attempt is not yet due."""

    @property
    def owing(self) -> float:
        """How long an acknowledgement is outstanding while the broker has sent nothing, s; 0 if none is."""

    @property
    def mute(self) -> bool:
        """Whether the connection is up, but an acknowledgement has been outstanding for too long."""

    @property
    def why(self) -> str:
        """Why the broker is not there, or why it was not there the last time."""

    @property
    def sock(self) -> socket.socket | None:
        """The socket to wait on now, or None. After a reconnect it is another one."""

    @property
    def events(self) -> int:
        """What to wait for on `sock`: select.POLLIN, select.POLLOUT."""

    def open(self) -> None:
        """Begins to connect and returns at once."""

    def connect(self, timeout: float, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Waits for the connection. True if it is made, False if `stopping` says to end meanwhile.

        Raises Stopped if no broker is there within `timeout` seconds.
        """

    def turn(self, ready: bool) -> list[Message]:
        """Does what is due, and reads and writes `sock` if it is `ready`; never waits. Returns what it received."""

    def send(self, publications: Iterable[tuple[str, bytes, bool]]) -> None:
        """Publishes each (topic, payload, retain) now or never, and acknowledges the messages that `turn` returned."""

    def follow(self, subscriptions: Sequence[str]) -> None:
        """Hears these topics, and no others, from now on."""

    def close(self, clear: Sequence[str] = (), forget: bool = True) -> None:
        """Clears the retained messages on the topics `clear` and disconnects without publishing the will.

        With `forget` the broker keeps nothing for this party.
        """


Maker = Callable[[str, Party], Link]

MAKERS: dict[str, Maker] = {}  #: the function that makes a link, by URL scheme


def register(*schemes: str) -> Callable[[Maker], Maker]:
    """A decorator for the function that makes a link: `@register("mqtt", "mqtts")` registers it under these schemes."""

    def registered(make: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(schemes, make))
        return make

    return registered
