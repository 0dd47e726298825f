"""What a device asks of its transport, whichever carries its messages.

The transport's promises are small, because the endpoints above it resend whatever has no answer: a message that is handed
over is whole and comes from a topic that was asked for; it may come twice, late, out of order or never.
To add a transport: a module with a function that makes a `Link`, registered under its URL scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from hushgrid.node.schema.sections import Tls


class Message(NamedTuple):
    """As received. `retained`: it was waiting at the broker when we subscribed."""

    topic: str
    payload: bytes
    retained: bool


class Party(NamedTuple):
    """Who wants a connection."""

    name: str  #: its identity towards the broker
    will: tuple[str, bytes] | None = None  #: topic and payload that the broker retains when the connection breaks
    subscriptions: Sequence[str] = ()  #: topics it hears; `+` stands for one level, `#` for all that follow
    tls: Tls | None = None
    persistent: bool = True  #: the broker is to keep what comes while the connection is broken


class Link(Protocol):
    """One party's connection to a broker, reconnected for as long as it takes. No threads: its owner drives it.

    The owner waits on `sock` for `events` until `due`, then calls `turn`, and `send` with the answers.
    """

    due: float  #: when to take the next `turn` at the latest, of time.monotonic()
    connects: int  #: how often the connection has come to stand
    refused: list[tuple[str, str]]  #: (topic, reason) of what the broker does not let it publish or hear, each once

    @property
    def connected(self) -> bool:
        """The broker has accepted the connection and answered every subscription, and is not known to be gone."""

    @property
    def waiting(self) -> bool:
        """An attempt has failed or the connection is gone (see `why`), and the next attempt is not yet due."""

    @property
    def owing(self) -> float:
        """Seconds for which the broker has owed an acknowledgement and sent nothing; 0 if it owes none."""

    @property
    def mute(self) -> bool:
        """The connection stands, but the broker has owed an acknowledgement for so long that it is not there."""

    @property
    def why(self) -> str:
        """Why the broker is not there, or was not when it was last away."""

    @property
    def sock(self) -> Any:
        """The socket of now to wait on, or None. It is another one after a reconnect."""

    @property
    def events(self) -> int:
        """What to wait for on it: select.POLLIN, select.POLLOUT."""

    def open(self) -> None:
        """Begins to connect, and returns at once."""

    def connect(self, timeout: float, asked: Callable[[], bool] = lambda: False) -> bool:
        """True when connected, False when `asked` to end meanwhile. Stopped if no broker is there within `timeout` s."""

    def turn(self, ready: bool) -> list[Message]:
        """Does what is due, and what `sock` was waited for if it is `ready`; never waits. Returns what has come."""

    def send(self, publications: Iterable[tuple[str, bytes, bool]]) -> None:
        """Publishes (topic, payload, retain) now or never, and acknowledges what `turn` has handed over."""

    def follow(self, subscriptions: Sequence[str]) -> None:
        """Hears these topics from now on."""

    def close(self, clear: Sequence[str] = (), forget: bool = True) -> None:
        """Clears the retained messages on `clear` and leaves without the will; with `forget` nothing is kept for it."""


Maker = Callable[[str, Party], Link]

MAKERS: dict[str, Maker] = {}  #: what makes a link to a URL, by its scheme


def register(*schemes: str) -> Callable[[Maker], Maker]:
    """`@register("mqtt", "mqtts")` before the function that makes a link to such a URL."""

    def registered(make: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(schemes, make))
        return make

    return registered
