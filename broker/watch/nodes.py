"""A fleet as its broker shows it to the identity `watch`: the births and statuses that stand there."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.machine import Malformed
from hushgrid.node import frames, status, wire
from hushgrid.node.config.watch import WATCH, WatchConfig
from hushgrid.node.status import Status
from hushgrid.node.transport.connect import split
from hushgrid.node.transport.link import Message
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, Birth, Death, Progress, Topics

REACH_S = 10.0  #: for the broker to take us
QUIET_S = 0.5  #: without a further message, after which everything that stands there has come
LONGEST_S = 10.0  #: for all of it


class FleetNode(NamedTuple):
    """One node, as the broker shows it."""

    name: str
    birth: Birth | None  #: None: it is not connected, or says nothing that this program reads
    dead: bool  #: its connection has broken
    status: Status | None
    progress: Progress | None  #: the coordinator's
    gone: str | None  #: since when it is not connected, if somebody knows

    @property
    def there(self) -> bool:
        """Whether it is connected. A coordinator has no birth: it has said something, and not that it has ended."""
        if self.name == COORDINATOR:
            return self.status is not None and self.status.state != "off" and not self.dead
        return self.birth is not None


def presences(config: WatchConfig) -> list[str]:
    """Where each node says that it is there, and how it stands."""
    topics = Topics(config.fleet)
    names = ("+", *((*config.members, COORDINATOR) if config.members else ()))
    return [topic(name) for name in names for topic in (topics.state, topics.status)]


def look(config: WatchConfig, quiet_s: float = QUIET_S) -> dict[str, FleetNode]:
    """Every node of a fleet, by name; the coordinator too. Raises Stopped if the broker is not there,
    or refuses `watch`.
    """
    return fleet(Topics(config.fleet), standing(config, presences(config), quiet_s))


def retains_apart(config: WatchConfig) -> bool:
    """Whether the broker is a cluster of which each server retains what was said there: RabbitMQ."""
    return len(split(config.broker)) > 1 and bool(config.members)


def standing(config: WatchConfig, subscriptions: list[str], quiet_s: float = QUIET_S) -> dict[str, bytes]:
    """What is retained, by topic. Raises as `look`."""
    if not retains_apart(config):
        return _at(config, config.broker, subscriptions, quiet_s)
    seen, away = list[dict[str, bytes]](), list[Stopped]()
    for server in split(config.broker):  # one after the other: they know each other's clients, and this is one
        try:
            seen.append(_at(config, server, subscriptions, quiet_s))
        except Stopped as error:
            away.append(error)
    if not seen:
        raise away[0]
    return newest(Topics(config.fleet), seen)


def newest(topics: Topics, servers: list[dict[str, bytes]]) -> dict[str, bytes]:
    """What stands on the topics of each node at that server which has its newest status: what it said at another,
    before it went there, stands there still.
    """
    latest: dict[str, tuple[tuple[int, str], dict[str, bytes]]] = {}
    for payloads in servers:
        nodes: dict[str, dict[str, bytes]] = {}
        for topic, payload in payloads.items():
            with suppress(Malformed):
                nodes.setdefault(topics.parse(topic)[1], {})[topic] = payload
        for name, messages in nodes.items():
            when = _when(messages.get(topics.status(name), b""))
            if name not in latest or when > latest[name][0]:
                latest[name] = when, messages
    return {topic: payload for _, messages in latest.values() for topic, payload in messages.items()}


def _when(payload: bytes) -> tuple[int, str]:
    """How new a status is."""
    with suppress(Malformed):
        report = status.decode(payload)
        return report.session, report.at
    return -1, ""


def _at(config: WatchConfig, broker: str, subscriptions: list[str], quiet_s: float) -> dict[str, bytes]:
    """What stands at a broker, by topic. Raises Stopped if it is not there, or refuses `watch`."""
    link = MqttLink(
        broker,
        WATCH,
        username=WATCH,
        tls=config.tls,
        subscriptions=subscriptions,
        persistent=False,
    )
    link.connect(REACH_S)
    try:
        payloads = _gathered(link.poll, quiet_s)
        if link.refused:
            topic, reason = link.refused[0]
            raise Stopped(f"broker {broker}: refuses {topic} to {WATCH}: {reason}")
    finally:
        link.close()
    return payloads


def _gathered(poll: Callable[[float], list[Message]], quiet_s: float) -> dict[str, bytes]:
    """The last payload on each topic, until nothing more comes."""
    payloads: dict[str, bytes] = {}
    end = time.monotonic() + LONGEST_S
    quiet = time.monotonic() + quiet_s
    while (now := time.monotonic()) < min(quiet, end):
        for message in poll(min(quiet, end) - now):
            quiet = time.monotonic() + quiet_s
            payloads[message.topic] = message.payload
    return payloads


def fleet(topics: Topics, payloads: dict[str, bytes]) -> dict[str, FleetNode]:
    """What stands on the topics of a fleet, by node. What does not decode, or speaks for another, is left out."""
    reports = Reports()
    for topic, payload in payloads.items():
        with suppress(Malformed):
            kind, name, _ = topics.parse(topic)
            reports.take(kind, name, payload)
    return reports.nodes()


class Reports:
    """The last presence and status of every node, as they come in."""

    def __init__(self) -> None:
        self.presences: dict[str, wire.Presence] = {}
        self.statuses: dict[str, Status] = {}

    def take(self, kind: str, name: str, payload: bytes, *, retained: bool = False) -> None:
        """What has come on the topic `kind`/`name`; nothing: it stands there no longer. Raises Malformed.

        `retained`: it may be older than what is known, where it comes from another server of a cluster.
        """
        if kind == "state":
            if payload:
                presence, known = wire.decode_presence(frames.unproven(payload)), self.presences.get(name)
                if not (retained and _is_older(presence, known)):
                    self.presences[name] = presence
            else:
                self.presences.pop(name, None)
        elif not payload:
            self.statuses.pop(name, None)
        elif (report := status.decode(payload)).node == name:
            before = self.statuses.get(name)
            if not (retained and before and (report.session, report.at) < (before.session, before.at)):
                self.statuses[name] = report
        else:
            raise Malformed(f"a status of {report.node} on the topic of {name}")

    def nodes(self) -> dict[str, FleetNode]:
        """Every node that somebody has named, by name."""
        centre = self.statuses.get(COORDINATOR)
        known = sorted({*self.presences, *self.statuses} | set(centre.waits_for if centre else ()))
        return {name: _seen(name, self.presences.get(name), self.statuses.get(name), centre) for name in known}


def _is_older(presence: wire.Presence, known: wire.Presence | None) -> bool:
    """Whether it is of an earlier session than what is known."""
    if isinstance(presence, Progress) or not isinstance(known, Birth):
        return False
    same = not isinstance(presence, Birth) or presence.mark.ledger == known.mark.ledger
    return same and presence.session < known.session


def _seen(name: str, presence: wire.Presence | None, report: Status | None, centre: Status | None) -> FleetNode:
    birth = presence if isinstance(presence, Birth) else None
    if birth and report and report.session < birth.session:
        report = None  # of an earlier start
    gone = None
    if birth is None:
        gone = centre.gone.get(name) if centre else None
        gone = report.at if report and report.state == "off" else gone
    progress = presence if isinstance(presence, Progress) else None
    dead = isinstance(presence, Death) and (report is None or report.session <= presence.session)
    return FleetNode(name, birth, dead, report, progress, gone)
