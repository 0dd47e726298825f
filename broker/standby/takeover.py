"""`hushgrid coordinator FILE --standby`: waits for the coordinator's death, then takes its place and its run.

Where there is a standby each start takes the place and the run, that of a coordinator that died too: the other may have
gone on meanwhile, and its own ledger be behind.

The one that takes over connects as the coordinator, which ends the other's connection if there still is one, and says
that it is a later one: the other ends when it reads that. Only then the run is read that is gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

from hushgrid.broker.standby.replica import QUIET_S, STANDBY, UNSIGNED, Word, notes_topic, restore, topic
from hushgrid.broker.standby.watcher import LATEST, Watcher
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import Malformed
from hushgrid.node import system, wire
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.event_loop import serve_all
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.schema.durations import seconds
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.connect import split
from hushgrid.node.transport.link import Party
from hushgrid.node.transport.schemes import link_to
from hushgrid.node.wire import COORDINATOR, Instance, Progress, Publication

AWAY_S = 10.0  #: for one server of a cluster to be there, when the run is looked for


def take_over(
    config: CoordinatorConfig,
    path: str,
    ledger: Ledger,
    signals: Signals,
    log: Callable[[str], None],
    *,
    at_once: bool,
    keys: Collection[str] = (),
    word: Word = UNSIGNED,
) -> float | None:
    """Waits until the coordinator of the file is dead for as long as `standby` says (`at_once`: for nothing).

    Returns when this one begins, s since 1970; its ledger has the last run, and what the other's noted under `keys`.
    `word`: how the two know each other's messages.
    None: somebody asked it to end.
    Raises InputError if the file says nothing of a standby.
    """
    if config.standby is None:
        raise InputError(f"{path}: standby: missing, expected a duration (30s) in the files of both coordinators")
    watcher = Watcher(config.fleet, seconds(config.standby), log, word)
    if not at_once:
        log(f"stands by for the coordinator of fleet {config.fleet} on {config.broker}")
        link = link_to(config.broker, Party(STANDBY, None, watcher.subscriptions, _certificate(config.tls), False))
        try:
            serve_all([(watcher, link)], lambda: watcher.takes_over, signals)
        finally:
            # A server of a cluster may be away. RabbitMQ 3.10 lets nobody in by a session that was deleted meanwhile.
            link.close(forget=bool(signals))
        if signals:
            return None
        log("takes over")
    began = watcher.later(system.machine.wall())
    claim = Claim(config.fleet, Instance(ledger.id, ledger.runs.new_session(), began), log, word)
    claim.replica, claim.noted = watcher.replica, watcher.noted
    link = link_to(config.broker, Party(COORDINATOR, claim.will, claim.subscriptions, config.tls, False))
    try:
        serve_all([(claim, link)], lambda: claim.quiet, signals)
    finally:
        link.close(forget=False)
    _read_elsewhere(config, claim, signals)
    if signals:
        return None
    notes = {key: note for key, note in claim.noted.notes.items() if key in keys} if claim.noted else None
    restore(ledger, claim.replica, claim.last or watcher.last, notes)
    if claim.replica is not None and claim.replica.status == "running":
        log(f"goes on with run {claim.replica.run.hex()[:8]}")
    return claim.instance.began


def _read_elsewhere(config: CoordinatorConfig, claim: Claim, signals: Signals) -> None:
    """Reads the run at each server of a cluster, too: one of RabbitMQ retains only what was said there. The newest
    counts.
    """
    servers = split(config.broker)
    for server in servers if len(servers) > 1 else ():
        reader = Reader(config.fleet, claim.instance, lambda _: None, claim.word)
        reader.replica, reader.noted = claim.replica, claim.noted
        link = link_to(server, Party(COORDINATOR, None, reader.subscriptions, config.tls, False))
        try:
            serve_all([(reader, link)], partial(reader.over, system.machine.monotonic() + AWAY_S), signals)
        finally:
            link.close(forget=False)
        claim.replica, claim.noted = reader.replica, reader.noted


def _certificate(tls: Tls | None) -> Tls | None:
    """That of the identity `standby`, beside the coordinator's."""
    if tls is None or tls.cert is None:
        return tls
    cert, key = (Path(tls.cert).with_name(f"{STANDBY}.{end}") for end in ("crt", "key"))
    if not cert.exists():
        raise InputError(f"{cert}: No such file or directory, expected the certificate of the identity {STANDBY}")
    return Tls(ca=tls.ca, cert=str(cert), key=str(key))


class Claim(Watcher):
    """Says that this coordinator is the later one, and reads the run of the other."""

    def __init__(
        self,
        fleet: str,
        instance: Instance,
        log: Callable[[str], None],
        word: Word = UNSIGNED,
    ) -> None:
        super().__init__(fleet, 0.0, log, word)
        t = self.topics
        self.subscriptions = (t.state(COORDINATOR), topic(fleet), notes_topic(fleet))
        self.instance = instance
        self._heard: float | None = None  # s of `clock`: when somebody was heard last; None: not connected yet

    @property
    def will(self) -> tuple[str, bytes]:
        """Signed, too: it takes the claim's place at the broker if the other one takes the connection again, and says
        as well who began later.
        """
        topic, death = self.topics.state(COORDINATOR), wire.Death(self.instance.session, self.instance)
        return topic, self.word.sign(topic, wire.encode(death))

    @property
    def quiet(self) -> bool:
        """Whether nobody else has written for a while."""
        return self._heard is not None and self.clock.time - self._heard >= QUIET_S

    @property
    def due(self) -> float:
        return (self.clock.time if self._heard is None else self._heard) + QUIET_S

    def connected(self) -> list[Publication]:
        self._heard = self.clock.time
        topic, claim = self.topics.state(COORDINATOR), Progress(b"", 0, "gathering", self.instance)
        return [Publication(topic, self.word.sign(topic, wire.encode(claim)), True)]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        with suppress(Malformed):
            if self._take(topic, payload):
                self._heard = self.clock.time
                return []
            presence = self._presence(topic, payload)
            by = None if isinstance(presence, wire.Birth) else presence.by
            if by is None or by.ledger == self.instance.ledger:
                return []
            self.last = by
            if isinstance(presence, Progress) and by.replaces(self.instance):
                later = min(by.began, LATEST) + 1.0  # of one that was not heard of, or that a broker has planted
                self.instance = Instance(self.instance.ledger, self.instance.session, later)
                return self.connected()
        return []


class Reader(Claim):
    """Says nothing, and reads the run alone."""

    def over(self, end: float) -> bool:
        """Whether it has read it, or the server is not there by `end` of time.monotonic()."""
        return self.quiet or system.machine.monotonic() >= end

    def connected(self) -> list[Publication]:
        self._heard = self.clock.time
        return []

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        with suppress(Malformed):
            self._take(topic, payload)
        return []


class Seat(Claim):
    """The place of a coordinator that waits for the next run, so that a standby hears of its death.

    `read`: what another one says of itself.
    """

    def __init__(
        self,
        fleet: str,
        instance: Instance,
        log: Callable[[str], None],
        read: Callable[[bytes], list[Publication]],
        word: Word = UNSIGNED,
    ) -> None:
        super().__init__(fleet, instance, log, word)
        self.subscriptions = (self.topics.state(COORDINATOR),)
        self._read = read

    @property
    def due(self) -> float:
        return inf

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        with suppress(Malformed):
            return self._read(self.word.open(topic, payload))
        return []
