"""One select loop for one endpoint or hundreds, each on its own connection: no threads.

It sleeps until a message comes, a signal, or what an endpoint or its connection says is due. An idle device wakes a few
times a minute: for its keepalive, for the watchdog, and once in LONGEST_S.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterable
from contextlib import closing
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import printable
from hushgrid.node import system
from hushgrid.node.log import Warned
from hushgrid.node.runtime.endpoint import LINE, Endpoint
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import notify
from hushgrid.node.runtime.wakeup import Wakeup
from hushgrid.node.served import Served
from hushgrid.node.system import Poller
from hushgrid.node.transport.link import KEEPALIVE_S, Link, Message, Party
from hushgrid.node.transport.schemes import link_to

if TYPE_CHECKING:
    from hushgrid.node.schema.sections import Tls

POLL_S = 0.25  #: how often an endpoint is told the time while something may be due, or is owed by the broker
LONGEST_S = 30.0  #: how often it is told the time though nothing is due
OWED_S = 0.5  #: time in which the broker owes us an acknowledgement for longer is not counted as a peer's silence
REACH_S = 10.0  #: for the broker to be there at the start; whoever restarts us tries again


def link_for(
    endpoint: Endpoint, url: str, tls: Tls | None = None, passing_id: str = "", keepalive: int = KEEPALIVE_S
) -> Link:
    """The endpoint's own connection: its name is its identity towards the broker, its last will its death.

    `passing_id`: that of a simulated endpoint, which leaves no session on the broker however it ends.
    """
    name, persistent = passing_id or endpoint.name, not passing_id
    return link_to(url, Party(name, endpoint.will, endpoint.subscriptions, tls, persistent, keepalive))


def reach(link: Link, signals: Callable[[], bool] | Signals = lambda: False, seconds: float = REACH_S) -> bool:
    """Connect; False where somebody has asked to end meanwhile. Raises Stopped: no broker within `seconds`."""
    stop: Callable[[], bool] = signals.__bool__ if isinstance(signals, Signals) else signals
    return link.connect(seconds, stop) and not stop()


def serve(
    endpoint: Served,
    link: Link,
    until: Callable[[], bool],
    signals: Callable[[], bool] | Signals = lambda: False,
    wait: Callable[[], float] = lambda: POLL_S,
) -> None:
    """Drive an endpoint until `until()`, or until somebody asked it to end. `wait`: as in `serve_all`."""
    serve_all([(endpoint, link)], until, signals, wait)


def serve_all(
    pairs: Iterable[tuple[Served, Link]],
    until: Callable[[], bool],
    signals: Callable[[], bool] | Signals = lambda: False,
    wait: Callable[[], float] = lambda: POLL_S,
) -> None:
    """Drive endpoints (none, or hundreds), each on its own connection, from one select loop, as `serve` does one.

    A message costs the same among hundreds as alone, if `until` does. Links that are not connected are opened here
    and tried for as long as it takes. `until` and `signals` are looked at after each message, each signal, and at least
    `wait()` seconds later: inf if nothing but messages, signals and the connection change them.
    """
    stop: Callable[[], bool] = signals.__bool__ if isinstance(signals, Signals) else signals
    watchdog = float(os.environ.get("WATCHDOG_USEC", 0)) / 3e6 or inf
    fed = 0.0
    with closing(system.machine.poller()) as poller, Wakeup() as wakeup:
        poller.register(wakeup.fd, select.EPOLLIN)
        loop = _Loop([_Connection(endpoint, link, no) for no, (endpoint, link) in enumerate(pairs)], poller, wakeup)
        now = system.machine.monotonic()
        while not until() and not stop():
            now = loop.turn(min(now + wait(), fed + watchdog))
            if now - fed >= watchdog:
                notify("WATCHDOG=1")
                fed = now


class _Connection:
    """An endpoint and its connection in the loop."""

    def __init__(self, endpoint: Served, link: Link, no: int) -> None:
        self.endpoint, self.link, self.no = endpoint, link, no
        self.generation = -1  # `connects` when the endpoint last heard of it
        self.topics = endpoint.subscriptions
        self.away = False
        self.refused = 0
        self.tick = self.due = 0.0  #: when `rest` is due; when it or the link is, as the heap knows it
        self.ticked = -inf  #: when the endpoint was last told the time
        self.life = -1  #: `connects` then: if it is another now, the broker could not be heard meanwhile
        self.sock: socket.socket | None = None  # with fd and events: as the poller knows them
        self.fd = self.events = 0
        endpoint.on_tick(endpoint.clock.time)  # it is told the time before anything happens; nothing is due yet
        link.open()

    def on_readable(self, ready: bool) -> None:
        """What has come, and the answers."""
        link, endpoint = self.link, self.endpoint
        link.patient = not link.connected and endpoint.patient
        messages = link.turn(ready)
        answers, news = bool(messages), False
        if (link.waiting or link.mute) and not self.away:
            self.away = news = True
            endpoint.log(Warned(f"the broker is away: {printable(link.why, LINE)}"))
        if link.connected and not link.mute and (self.away or link.connects != self.generation):
            self.generation, news = link.connects, True
            link.send(endpoint.connected())
            if self.away:
                self.away = False
                endpoint.log("the broker is back")
        if messages:
            self._answer(messages)
        topics = endpoint.subscriptions
        if topics is not self.topics:
            self.topics = topics
            link.follow(topics)
        if news or len(link.refused) > self.refused:
            self.on_idle()
        elif answers:
            self.tick = min(self.tick, self._next(self.ticked))

    def _answer(self, messages: list[Message]) -> None:
        link, endpoint = self.link, self.endpoint
        began = system.machine.monotonic()
        if began - self.ticked > POLL_S:  # it has slept: it learns the time first
            self._tell(began)
            began = system.machine.monotonic()
        messages.reverse()
        while messages:
            topic, payload, _ = messages.pop()  # a large one is not kept longer than it takes
            # An empty one says nothing: what was retained is cleared, or somebody tries whether a topic is allowed.
            if payload and (publications := endpoint.on_message(topic, payload)):
                link.send(publications)
        link.send(())  # those without an answer are acknowledged too
        endpoint.idle()
        endpoint.clock.worked(system.machine.monotonic() - began)

    def on_idle(self) -> None:
        """What may wait for a moment."""
        link, endpoint = self.link, self.endpoint
        now = system.machine.monotonic()
        self._tell(now)
        endpoint.idle()
        for topic, reason in link.refused[self.refused :]:
            self.refused += 1
            link.send(endpoint.refused(topic, reason))
        self.tick = self._next(now)
        endpoint.clock.sleeps_until = self.tick

    def _tell(self, now: float) -> None:
        """Tells the endpoint the time."""
        link, endpoint = self.link, self.endpoint
        hears = link.connected and link.owing < OWED_S and link.connects == self.life
        self.ticked, self.life = now, link.connects
        if publications := endpoint.on_tick(endpoint.clock.time_at(now, hears)):
            link.send(publications)
            endpoint.clock.worked(system.machine.monotonic() - now)

    def _next(self, now: float) -> float:
        """When the endpoint must be told the time again. Its clock stands still while the broker cannot be heard."""
        link, endpoint = self.link, self.endpoint
        wait = endpoint.due - endpoint.clock.time if link.connected else inf
        if link.owing:  # it may turn out that nothing is acknowledged
            wait = min(wait, POLL_S)
        return now + max(1e-3, min(wait, LONGEST_S))


class _Loop:
    """Whoever has a message goes first, then whoever is due by the clock."""

    def __init__(self, connections: list[_Connection], poller: Poller, wakeup: Wakeup) -> None:
        self.connections, self.poller, self.wakeup = connections, poller, wakeup
        self.by_fd: dict[int, _Connection] = {}  # by file descriptor
        self.heap = [
            (0.0, connection.no) for connection in connections
        ]  # (due, number); void where the connection's `due` is another

    def turn(self, longest: float) -> float:
        """Wait until something is due, at most until `longest` of time.monotonic(), and do it. Returns the time."""
        first = self.heap[0][0] if self.heap else system.machine.monotonic() + LONGEST_S
        wait = min(first, longest) - system.machine.monotonic()
        for fd, _ in self.poller.poll(max(0.0, wait)):
            if fd == self.wakeup.fd:
                self.wakeup.clear()
            else:
                connection = self.by_fd[fd]
                connection.on_readable(True)
                self._follow(connection)
        now = system.machine.monotonic()
        while self.heap and self.heap[0][0] <= now:
            due, no = heappop(self.heap)
            connection = self.connections[no]
            if due != connection.due:
                continue
            connection.due = inf
            connection.on_readable(False)
            if connection.tick <= now:
                connection.on_idle()
            self._follow(connection)
        return now

    def _follow(self, connection: _Connection) -> None:
        """The poller knows the socket of now, and what is waited for; the heap the next time."""
        sock, events = connection.link.sock, connection.link.events
        if sock is not connection.sock:
            if connection.sock is not None:
                del self.by_fd[connection.fd]  # closed: the system has forgotten it, and may have given its number away
            if sock is not None:
                connection.fd = sock.fileno()
                self.by_fd[connection.fd] = connection
                try:
                    self.poller.register(connection.fd, events)
                except FileExistsError:  # the same connection, now in TLS
                    self.poller.modify(connection.fd, events)
        elif events != connection.events:
            self.poller.modify(connection.fd, events)
        connection.sock, connection.events = sock, events
        due = min(connection.link.due, connection.tick)
        if due < connection.due:
            connection.due = due
            heappush(self.heap, (due, connection.no))
