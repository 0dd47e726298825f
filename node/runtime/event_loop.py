"""One select loop for one endpoint or hundreds, each on its own connection: no threads."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from hushgrid.kernels.errors import printable
from hushgrid.node.log import Warned
from hushgrid.node.runtime.endpoint import LINE, Endpoint
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import notify
from hushgrid.node.transport.link import Link, Party
from hushgrid.node.transport.schemes import link_to

if TYPE_CHECKING:
    from hushgrid.node.schema.sections import Tls

POLL_S = 0.25
OWED_S = 0.5  #: time in which the broker owes us an acknowledgement for longer is not counted as a peer's silence
REACH_S = 10.0  #: for the broker to be there at the start; whoever restarts us tries again


def link_for(endpoint: Endpoint, url: str, tls: Tls | None = None, passing_id: str = "") -> Link:
    """The endpoint's own connection: its name is its identity towards the broker, its last will its death.

    `passing_id`: that of a simulated endpoint, which leaves no session on the broker however it ends.
    """
    name, persistent = passing_id or endpoint.name, not passing_id
    return link_to(url, Party(name, endpoint.will, endpoint.subscriptions, tls, persistent))


def reach(link: Link, asked: Callable[[], bool] | Signals = lambda: False, seconds: float = REACH_S) -> bool:
    """Connect; False where somebody has asked to end meanwhile. Stopped: no broker within `seconds`."""
    stop: Callable[[], bool] = asked.__bool__ if isinstance(asked, Signals) else asked
    return link.connect(seconds, stop) and not stop()


def serve(
    endpoint: Endpoint, link: Link, until: Callable[[], bool], asked: Callable[[], bool] | Signals = lambda: False
) -> None:
    """Drive an endpoint until `until()`, or until somebody asked it to end."""
    serve_all([(endpoint, link)], until, asked)


def serve_all(
    pairs: Iterable[tuple[Served, Link]],
    until: Callable[[], bool],
    asked: Callable[[], bool] | Signals = lambda: False,
) -> None:
    """Drive endpoints (one or more), each on its own connection, from one select loop, as `serve` does one.

    A message costs the same among hundreds as alone, if `until` does. Links that are not connected are opened here
    and tried for as long as it takes.
    """
    stop: Callable[[], bool] = asked.__bool__ if isinstance(asked, Signals) else asked
    watchdog = float(os.environ.get("WATCHDOG_USEC", 0)) / 3e6
    fed = 0.0
    with select.epoll() as poller:
        loop = _Loop([_Seat(endpoint, link, no) for no, (endpoint, link) in enumerate(pairs)], poller)
        while not until() and not stop():
            loop.turn()
            now = time.monotonic()
            if watchdog and now - fed > watchdog:
                notify("WATCHDOG=1")
                fed = now


class Ticking(Protocol):
    """An end's own time, in seconds."""

    time: float

    def at(self, now: float, hears: bool) -> float: ...


class Served(Protocol):
    """What the loop drives: an `Endpoint` of the fleet, or an end of a local connection."""

    log: Callable[[str], None]

    @property
    def clock(self) -> Ticking: ...
    @property
    def subscriptions(self) -> tuple[str, ...]: ...
    def connected(self) -> Sequence[tuple[str, bytes, bool]]: ...
    def on_message(self, topic: str, payload: bytes) -> Sequence[tuple[str, bytes, bool]]: ...
    def on_tick(self, now: float) -> Sequence[tuple[str, bytes, bool]]: ...
    def idle(self) -> None: ...
    def refused(self, topic: str, reason: str) -> Sequence[tuple[str, bytes, bool]]: ...


class _Seat:
    """An endpoint and its connection in the loop."""

    def __init__(self, endpoint: Served, link: Link, no: int) -> None:
        self.endpoint, self.link, self.no = endpoint, link, no
        self.lives = -1  # `connects` when the endpoint last heard of it
        self.topics = endpoint.subscriptions
        self.away = False
        self.refused = 0
        self.tick = self.due = 0.0
        self.sock: Any = None  # with fd and events: as the poller knows them
        self.fd = self.events = 0
        endpoint.on_tick(endpoint.clock.time)  # it is told the time before anything happens; nothing is due yet
        link.open()

    def hear(self, ready: bool) -> None:
        """What has come, and the answers."""
        link, endpoint = self.link, self.endpoint
        messages = link.turn(ready)
        if (link.waiting or link.mute) and not self.away:
            self.away = True
            endpoint.log(Warned(f"the broker is away: {printable(link.why, LINE)}"))
        if link.connected and not link.mute and (self.away or link.connects != self.lives):
            self.lives = link.connects
            link.send(endpoint.connected())
            if self.away:
                self.away = False
                endpoint.log("the broker is back")
        for message in messages:
            # An empty one says nothing: what was retained is cleared, or somebody tries whether a topic is allowed.
            link.send(endpoint.on_message(message.topic, message.payload) if message.payload else [])
        if endpoint.subscriptions is not self.topics:
            self.topics = endpoint.subscriptions
            link.follow(self.topics)

    def rest(self) -> None:
        """What may wait until nobody else does."""
        now = time.monotonic()
        self.tick = now + POLL_S
        link, endpoint = self.link, self.endpoint
        if publications := endpoint.on_tick(endpoint.clock.at(now, link.connected and link.owing < OWED_S)):
            link.send(publications)
        endpoint.idle()
        for topic, reason in link.refused[self.refused :]:
            self.refused += 1
            link.send(endpoint.refused(topic, reason))


class _Loop:
    """Whoever has a message goes first, then who has answered one, then by the clock."""

    def __init__(self, seats: list[_Seat], poller: select.epoll) -> None:
        self.seats, self.poller = seats, poller
        self.of: dict[int, _Seat] = {}  # by file descriptor
        self.restless: dict[int, _Seat] = {}  # by number: they have heard something
        self.heap = [(0.0, seat.no) for seat in seats]  # (due, number); void where the seat's `due` is another

    def turn(self) -> None:
        """Wait, and do what is due."""
        wait = 0.0 if self.restless else max(0.0, self.heap[0][0] - time.monotonic())
        ready = self.poller.poll(wait)
        for fd, _ in ready:
            seat = self.of[fd]
            self._hear(seat, True)
            self.restless[seat.no] = seat
        if self.restless and not ready:
            self._rest(self.restless.popitem()[1])
        now = time.monotonic()
        while self.heap[0][0] <= now:
            due, no = heappop(self.heap)
            seat = self.seats[no]
            if due != seat.due:
                continue
            seat.due = inf
            self._hear(seat, False)
            if seat.tick <= now:
                self._rest(seat)
            self._follow(seat)

    def _hear(self, seat: _Seat, ready: bool) -> None:
        seat.hear(ready)
        self._follow(seat)

    def _rest(self, seat: _Seat) -> None:
        self.restless.pop(seat.no, None)
        seat.rest()
        self._follow(seat)

    def _follow(self, seat: _Seat) -> None:
        """The poller knows the socket of now, and what is waited for; the heap the next time."""
        sock, events = seat.link.sock, seat.link.events
        if sock is not seat.sock:
            if seat.sock is not None:
                del self.of[seat.fd]  # closed: the system has forgotten it, and may have given its number away
            if sock is not None:
                seat.fd = sock.fileno()
                self.of[seat.fd] = seat
                try:
                    self.poller.register(seat.fd, events)
                except FileExistsError:  # the same connection, now in TLS
                    self.poller.modify(seat.fd, events)
        elif events != seat.events:
            self.poller.modify(seat.fd, events)
        seat.sock, seat.events = sock, events
        due = min(seat.link.due, seat.tick)
        if due < seat.due:
            seat.due = due
            heappush(self.heap, (due, seat.no))
