"""A broker and the connections to it, in virtual time: messages are late, lost, doubled, overtaken; the broker dies.

Of MQTT it has what hushgrid relies on, and what brokers do beside it: retained messages, last wills, sessions that keep
messages while their party is away, a second connection of one name that ends the first.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from math import inf

from paho.mqtt.client import topic_matches_sub

from hushgrid.lab.simulate.machine import Machine
from hushgrid.lab.simulate.world import World
from hushgrid.node import system
from hushgrid.node.transport.link import Message, Party

LATENCY_S = (0.001, 0.02)  #: of a message, without faults
RETRY_S = (0.05, 5.0)  #: between attempts to reach the broker: the first, the longest
QUEUED = 1000  #: messages that a session keeps while its party is away
Heard = Callable[[str, str, bytes, bool], None]  #: (from whom, topic, payload, retain)


@dataclass
class Weather:
    """What happens to messages. Shares of them, but for `late`, s."""

    loss: float = 0.0
    double: float = 0.0
    overtake: float = 0.0
    late: float = 0.0


@dataclass
class Session:
    """What the broker knows of a party."""

    party: Party
    link: SimulatedLink | None
    topics: tuple[str, ...] = ()
    queue: deque[Message] = field(default_factory=lambda: deque(maxlen=QUEUED))
    last: float = 0.0  #: when the message sent last arrives


matches = lru_cache(maxsize=100_000)(topic_matches_sub)  #: whether a subscription hears a topic


class Broker:
    """One broker, or a cluster that looks like one. `counts`: faults of messages so far, by kind."""

    def __init__(self, world: World, received: Heard) -> None:
        self.world, self.received = world, received
        self.up = True
        self.weather = Weather()
        self.apart: set[str] = set()  #: parties that cannot reach it
        self.bridged: dict[str, float] = {}  #: parties behind two bridges: how much later the second copy comes, s
        self._elected, self._lost = -inf, 0.0  #: when another node was elected, and how much was lost, s before
        self._before: deque[tuple[float, str, bytes | None]] = deque(maxlen=QUEUED)  #: retained until then
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, bytes] = {}
        self.counts = {"lost": 0, "doubled": 0, "overtaken": 0, "late": 0}
        self._chance = world.chance("network")
        self._numbers = count(1000)

    def number(self) -> int:
        """Of a connection's descriptor."""
        return next(self._numbers)

    # --- of a connection ---

    def attach(self, link: SimulatedLink) -> None:
        """A party connects."""
        party, session = link.party, self.sessions.get(link.party.name)
        if session is not None and session.link is not None and session.link is not link:
            session.link.broken("another connection of this name")
        if session is None or not party.persistent:
            session = self.sessions[party.name] = Session(party, link)
        session.party, session.link, session.topics = party, link, ()
        copied, session.queue = session.queue, deque(maxlen=QUEUED)
        for message in copied:
            self._send(session, message)
        self.follow(link, link.topics)

    def follow(self, link: SimulatedLink, topics: Sequence[str]) -> None:
        """A party hears these topics: what is retained on those that are new comes first."""
        session = self.sessions[link.party.name]
        new, session.topics = [t for t in topics if t not in session.topics], tuple(topics)
        for topic, payload in list(self.retained.items()):
            if any(matches(pattern, topic) for pattern in new):
                self._send(session, Message(topic, payload, True))

    def publish(self, source: str, topic: str, payload: bytes, retain: bool) -> None:
        """A message of a party, or its last will."""
        self.received(source, topic, payload, retain)
        if retain:
            self._before.append((self.world.now, topic, self.retained.get(topic)))
            if payload:
                self.retained[topic] = payload
            else:
                self.retained.pop(topic, None)
        for session in list(self.sessions.values()):
            if any(matches(pattern, topic) for pattern in session.topics):
                self._send(session, Message(topic, payload, False))

    def detach(self, link: SimulatedLink, *, will: bool, forget: bool = False) -> None:
        """A connection has ended; `will`: without a word."""
        session = self.sessions.get(link.party.name)
        if session is None or session.link is not link:
            return
        session.link = None
        if forget or not link.party.persistent:
            del self.sessions[link.party.name]
        if will and link.party.will is not None:
            topic, payload = link.party.will
            self.publish(link.party.name, topic, payload, True)

    # --- what happens to it ---

    def stop(self, *, forget: bool) -> None:
        """It ends, and every connection with it. `forget`: it has kept nothing on a disk."""
        self.up = False
        for session in list(self.sessions.values()):
            if session.link is not None:
                link, session.link = session.link, None
                link.broken("the broker has ended")
        if forget:
            self.sessions.clear()
            self.retained.clear()

    def start(self) -> None:
        self.up = True

    def elect(self, seconds: float) -> None:
        """Another node of its cluster goes on: what the one before has taken in so many seconds is lost."""
        self._elected, self._lost = self.world.now, seconds
        while self._before and self._before[-1][0] >= self.world.now - seconds:
            _, topic, payload = self._before.pop()
            if payload is None:
                self.retained.pop(topic, None)
            else:
                self.retained[topic] = payload
        self.stop(forget=False)

    def forget_sessions(self) -> None:
        """It has lost what it knew of parties, and keeps what is retained."""
        self.stop(forget=False)
        self.sessions.clear()

    def bridge(self, names: Iterable[str], late: float, seconds: float) -> None:
        """These parties hear everything twice for so long, by two bridges."""
        self.bridged.update(dict.fromkeys(names, late))

        def over() -> None:
            for name in names:
                self.bridged.pop(name, None)

        self.world.schedule(self.world.now + seconds, over)

    def part(self, names: Iterable[str], seconds: float) -> None:
        """These parties cannot reach it for so long; it takes them for dead after a while."""
        for name in names:
            self.apart.add(name)
            session = self.sessions.get(name)
            if session is not None and session.link is not None:
                session.link.broken("the network is away")
                self.lose(session.link)
        self.world.schedule(self.world.now + seconds, lambda: self.apart.difference_update(names))

    def lose(self, link: SimulatedLink) -> None:
        """Nothing comes from a connection any more: it is taken for dead once its keepalive is over."""
        self.world.schedule(self.world.now + 1.5 * link.party.keepalive, lambda: self._dead(link))

    def _dead(self, link: SimulatedLink) -> None:
        session = self.sessions.get(link.party.name)
        if session is not None and session.link is link and not link.connected:
            self.detach(link, will=True)

    # --- inside ---

    def _send(self, session: Session, message: Message) -> None:
        """On its way to a party, as the weather is."""
        weather, chance, counts = self.weather, self._chance, self.counts
        if weather.loss and chance.random() < weather.loss:
            counts["lost"] += 1
            return
        copies = 1
        if weather.double and chance.random() < weather.double:
            counts["doubled"] += 1
            copies = 2
        if session.party.name in self.bridged:
            counts["doubled"] += 1
            late = float(chance.uniform(0.0, self.bridged[session.party.name]))
            self.world.schedule(self.world.now + late, self._arrival(session, message))
        for _ in range(copies):
            arrives = self.world.now + float(chance.uniform(*LATENCY_S))
            if weather.late and chance.random() < 0.1:
                counts["late"] += 1
                arrives += float(chance.uniform(0.0, weather.late))
            if weather.overtake and chance.random() < weather.overtake:
                counts["overtaken"] += 1
            else:
                arrives = session.last = max(arrives, session.last)
            self.world.schedule(arrives, self._arrival(session, message))

    def _arrival(self, session: Session, message: Message) -> Callable[[], None]:
        sent = self.world.now

        def arrives() -> None:
            if not self._elected - self._lost <= sent <= self._elected:
                self._arrive(session, message)

        return arrives

    def _arrive(self, session: Session, message: Message) -> None:
        link = session.link
        if link is not None and link.connected:
            link.take(message)
        elif session.party.persistent and self.sessions.get(session.party.name) is session:
            session.queue.append(message)


class SimulatedLink:
    """One party's connection (`node/transport/link.py` (`Link`))."""

    def __init__(self, broker: Broker, party: Party) -> None:
        machine = system.machine
        assert isinstance(machine, Machine)
        self.broker, self.party, self.machine = broker, party, machine
        self.topics = tuple(party.subscriptions)
        self.patient, self.connects, self.refused = False, 0, list[tuple[str, str]]()
        self.due = 0.0
        self.connected = self.waiting = self.mute = False
        self.owing, self.why = 0.0, ""
        self.events = select.POLLIN
        self.ready = False
        self._inbox: list[Message] = []
        self._fd = -1
        self._delay = 0.0

    def fileno(self) -> int:
        return self._fd

    @property
    def sock(self) -> SimulatedLink | None:
        return self if self._fd >= 0 else None

    def open(self) -> None:
        self.machine.crossing("connect")
        self._fd, self.due, self.waiting = self.broker.number(), inf, False
        self.machine.links[self._fd] = self
        fd, world = self._fd, self.broker.world
        world.schedule(world.now + 0.01, lambda: self._reached(fd))

    def connect(self, timeout: float, stopping: Callable[[], bool] = lambda: False) -> bool:
        raise NotImplementedError("a daemon waits for its broker in its loop")

    def turn(self, ready: bool) -> list[Message]:
        self.machine.crossing("receive")
        if self._fd < 0 and self.machine.monotonic() >= self.due:
            self.open()
        self.ready = False
        if not self.connected and self._fd >= 0 and self.waiting:
            self._away()
        messages, self._inbox = self._inbox, []
        return messages

    def send(self, publications: Iterable[tuple[str, bytes, bool]]) -> None:
        for topic, payload, retain in publications:
            self.machine.crossing("send")
            if self.connected:
                self.broker.publish(self.party.name, topic, payload, retain)

    def follow(self, subscriptions: Sequence[str]) -> None:
        self.topics = tuple(subscriptions)
        if self.connected:
            self.broker.follow(self, self.topics)

    def close(self, clear: Sequence[str] = (), forget: bool = True) -> None:
        if self.connected:
            self.send([(topic, b"", True) for topic in clear])
            self.connected = False
            self.broker.detach(self, will=False, forget=forget)
        self._gone()

    # --- what the broker and the machine do to it ---

    def take(self, message: Message) -> None:
        """A message has come."""
        self._inbox.append(message)
        self._rouse()

    def broken(self, why: str) -> None:
        """The connection is lost."""
        self.connected, self.waiting, self.why = False, True, why
        self._inbox = []
        self._rouse()

    def died(self, *, noticed: bool) -> None:
        """Its process has ended without a word; `noticed`: the broker sees it at once, by the machine's own reset."""
        self.connected = False
        self._gone()
        if noticed:
            self.broker.detach(self, will=True)
        else:
            self.broker.lose(self)

    # --- inside ---

    def _reached(self, fd: int) -> None:
        """An attempt has come to its end."""
        if fd != self._fd:
            return
        if self.broker.up and self.party.name not in self.broker.apart:
            self.connected, self.waiting = True, False
            self.connects += 1
            self._delay = 0.0
            self.broker.attach(self)
        else:
            self.waiting, self.why = True, "Connection refused"
        self._rouse()

    def _away(self) -> None:
        """The next attempt is due after a while."""
        self._gone()
        self._delay = min(max(2 * self._delay, RETRY_S[0]), RETRY_S[1])
        self.due = self.machine.monotonic() + self._delay * (0.5 + 0.5 * self.machine.share())

    def _gone(self) -> None:
        self.machine.links.pop(self._fd, None)
        self._fd = -1

    def _rouse(self) -> None:
        if not self.ready:
            self.ready = True
            self.machine.process.rouse()
