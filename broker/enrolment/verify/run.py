"""Connects as each identity, tries what it may and may not do, and sees what arrives where."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hushgrid.broker.enrolment.authority import Authority
from hushgrid.broker.enrolment.lists.access import Access, Rights
from hushgrid.broker.enrolment.lists.choose import BrokerKind
from hushgrid.broker.enrolment.verify.judge import Seen, Verdict, judge
from hushgrid.broker.enrolment.verify.probe import ENDED, TAKEN, Entry, Outcome, Probe, Try, attempt, subscribing
from hushgrid.broker.enrolment.verify.topics import Holders, Tried, beside, foreign_will, retained, tried_by
from hushgrid.broker.watch.nodes import fleet
from hushgrid.kernels.errors import Stopped
from hushgrid.node.transport.connect import Address, parse_urls, tls_context
from hushgrid.node.wire import Topics

LIFETIME = timedelta(minutes=10)  #: of the certificates: a fleet of 200 takes minutes
ARRIVAL_S = 3.0  #: for what is needed to arrive
QUIET_S = 0.4  #: for anything else to arrive after that
AT_ONCE = 8  #: identities that try at the same time


class Run:
    """One verification. `tried`: the identities that try all; their neighbours only listen and publish by right."""

    def __init__(self, access: Access, entries: dict[str, Entry], only: Sequence[str]) -> None:
        self.access, self.entries = access, entries
        self.nonce = secrets.token_hex(4)
        names = list(only) or access.names
        self.tried: dict[str, Tried] = {name: tried_by(access, name, self.nonce) for name in names}
        listening = {other for name in names for other in beside(access, name)}
        self.among = [name for name in access.names if name in listening]
        self.readers = Holders(access, self.among, "read")
        writers, topics = (
            Holders(access, self.among, "publish"),
            {t: None for one in self.tried.values() for t in one.topics},
        )
        self.by_right: dict[str, list[str]] = {name: [] for name in self.among}
        for topic in topics:
            for name in writers(topic):
                self.by_right[name].append(topic)
        self.seen = Seen()
        self.probes: dict[str, Probe] = {}
        self._received: dict[str, list[tuple[str, bytes]]] = {name: [] for name in self.among}

    def all(self) -> Seen:
        """Tries everything. Raises Stopped if the broker refuses an identity."""
        try:
            self._each(self.among, self._listen)
            self._each(self.among, self._publish_by_right)
            self._settle()
            for name in self.tried:
                self._publish_forbidden(name)
            self._last_wills()
            self._client_ids()
            self._settle()
            self._gather()
            self._each(self.among, self._come_late)
        finally:
            self._clear()
        return self.seen

    # -- connections

    def _connect(self, name: str) -> Probe:
        probe = Probe(self.entries[name])
        try:
            accepted = probe.open()
        except OSError as error:
            raise _away(self.entries[name], error) from None
        if not accepted:
            raise Stopped(f"broker: refuses {name}: {probe.refusal or 'no answer'}")
        return probe

    def _each(self, names: Iterable[str], act: Callable[[str], None]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(act, names))

    def _payload(self, name: str, what: str) -> bytes:
        return f"hushgrid verify {self.nonce} {name} {what}".encode()

    # -- what is tried

    def _listen(self, name: str) -> None:
        """Every subscription; those that were granted stand at the end."""
        rights = self.access.rights_of(name)
        mine = self.tried.get(name)
        needed = [Try(topic) for topic in rights.subscribe]
        others = [Try(t) for t in (*mine.topics, *mine.filters) if _decided(rights, t)] if mine else []
        probe, outcomes = attempt(self._connect(name), needed, subscribing(1), lambda: self._connect(name))
        probe, answers = attempt(probe, others, subscribing(0), lambda: self._connect(name))
        outcomes |= answers
        self._receive(name, probe)
        if ENDED in outcomes.values():  # what was granted before is gone with its connection
            granted = [one for one, outcome in outcomes.items() if outcome.kind == "taken"]
            probe.subscribe([one for one in granted if one in needed], 1)
            probe.subscribe([one for one in granted if one not in needed], 0)
        self.seen.subscribed |= {(name, one.topic): outcome for one, outcome in outcomes.items()}
        self.probes[name] = probe

    def _publish_by_right(self, name: str) -> None:
        payload = self._payload(name, "publishes")
        tries = [Try(topic, payload, retained(topic)) for topic in self.by_right[name]]
        self._publish(name, tries)

    def _publish_forbidden(self, name: str) -> None:
        rights, payload = self.access.rights_of(name), self._payload(name, "publishes")
        topics = [topic for topic in self.tried[name].topics if not rights.may_publish(topic)]
        self._publish(name, [Try(topic, payload, retained(topic)) for topic in topics])

    def _publish(self, name: str, tries: list[Try]) -> None:
        probe, outcomes = attempt(self.probes[name], tries, Probe.publish, lambda: self._connect(name))
        self.seen.published |= {(name, one.topic): outcome for one, outcome in outcomes.items()}
        if probe is not self.probes[name]:
            self._receive(name, self.probes[name])
            granted = [
                t for (who, t), outcome in self.seen.subscribed.items() if who == name and outcome.kind == "taken"
            ]
            probe.subscribe([Try(topic) for topic in granted], 1)
            self.probes[name] = probe

    def _last_wills(self) -> None:
        """A will on its own state, and one on a foreign topic, each by a connection that breaks."""
        for name in self.tried:
            rights = self.access.rights_of(name)
            state = Topics(self.access.fleet).state(name)
            wills = [state] if rights.may_publish(state) else []
            if (topic := foreign_will(rights, self.tried[name], self.readers)) is not None:
                wills.append(topic)
            self._receive(name, self.probes[name])
            self.probes[name].close()
            for topic in wills:
                probe = Probe(self.entries[name], will=(topic, self._payload(name, "leaves")))
                accepted = probe.open()
                self.seen.wills[name, topic] = TAKEN if accepted else Outcome("refused", f"connection: {probe.refusal}")
                probe.abort()
            self.probes[name] = self._connect(name)
            granted = [
                t for (who, t), outcome in self.seen.subscribed.items() if who == name and outcome.kind == "taken"
            ]
            self.probes[name].subscribe([Try(topic) for topic in granted], 1)

    def _client_ids(self) -> None:
        """Connects with the client id of another who is connected."""
        for name in self.tried:
            victim = self.among[(self.among.index(name) + 1) % len(self.among)]
            if victim == name:
                continue
            probe = Probe(self.entries[name], client_id=victim)
            accepted = probe.open()
            stands = self.probes[victim].alive(self.access.rights_of(victim).subscribe[0])
            reason = "taken by name, the other stays" if accepted else f"refused: {probe.refusal or 'no answer'}"
            self.seen.taken_over[name, victim] = (
                Outcome("refused", reason) if stands else Outcome("taken", "the other is disconnected")
            )
            probe.close()
            for one in (name, victim):
                if not self.probes[one].alive(self.access.rights_of(one).subscribe[0]):
                    self._receive(one, self.probes[one])
                    self.probes[one] = self._connect(one)

    # -- what arrives

    def _settle(self) -> None:
        """Waits until all that is needed has arrived, or it takes too long; then a moment for what must not."""
        deadline = time.monotonic() + ARRIVAL_S
        needed: dict[str, set[tuple[str, bytes]]] = {reader: set() for reader in self.among}
        for name, topics in self.by_right.items():
            for topic in topics:
                if self.seen.published[name, topic].kind == "taken":
                    for reader in {*self.readers(topic)} - {name}:
                        needed[reader].add((topic, self._payload(name, "publishes")))
        for reader in self.among:
            self._await(reader, needed[reader], deadline)
        quiet = [len(probe.received) for probe in self.probes.values()]
        while True:
            time.sleep(QUIET_S)
            before, quiet = quiet, [len(probe.received) for probe in self.probes.values()]
            if quiet == before:
                return

    def _await(self, reader: str, needed: set[tuple[str, bytes]], deadline: float) -> None:
        """Until what `reader` may read has arrived there."""
        probe, earlier = self.probes[reader], {*self._received[reader]}
        rest = max(0.0, deadline - time.monotonic())
        probe.wait(lambda: needed <= earlier | {(m.topic, m.payload) for m in probe.received}, rest)

    def _receive(self, name: str, probe: Probe) -> None:
        """Keeps what a connection that is given up has received."""
        self._received[name] += [(m.topic, m.payload) for m in probe.received]

    def _gather(self) -> None:
        for name, probe in self.probes.items():
            self._receive(name, probe)
            for topic, payload in self._received[name]:
                self._arrived(self.seen.arrived, name, topic, payload)

    def _arrived(self, places: set[tuple[str, str, str]], reader: str, topic: str, payload: bytes) -> None:
        parts = payload.decode(errors="replace").split()
        if topic.startswith("$"):
            self.seen.inside.add((reader, topic))
        elif parts[:3] == ["hushgrid", "verify", self.nonce] and len(parts) == 5:
            places.add((reader, topic, parts[3]))

    def _come_late(self, name: str) -> None:
        """Subscribes once more, to see what the broker has retained."""
        shown = (topic for some in self.by_right.values() for topic in some if retained(topic))
        topics = [topic for topic in shown if name in self.readers(topic)]
        topics += [t for (who, t), outcome in self.seen.subscribed.items() if who == name and outcome.kind == "taken"]
        refused = {t for (who, t), outcome in self.seen.subscribed.items() if who == name and outcome.kind != "taken"}
        granted = [topic for topic in dict.fromkeys(topics) if retained(topic) and topic not in refused]
        self.probes[name].close()
        probe = self.probes[name] = self._connect(name)
        probe.subscribe([Try(topic) for topic in granted], 1)
        expected = {t for reader, t, _ in self.seen.arrived if reader == name and retained(t)}
        probe.wait(lambda: expected <= {m.topic for m in probe.received}, ARRIVAL_S)
        for message in probe.received:
            self._arrived(self.seen.late, name, message.topic, message.payload)

    def _clear(self) -> None:
        """Takes back what it has retained, and disconnects."""
        for name, probe in self.probes.items():
            topics = [
                topic
                for (who, topic), outcome in self.seen.published.items()
                if who == name and outcome.kind == "taken" and retained(topic)
            ]
            if not probe.ended:
                probe.publish([Try(topic, b"", True) for topic in topics if self._may_clear(name, topic)])
            probe.close()

    def _may_clear(self, name: str, topic: str) -> bool:
        landed = any(t == topic and who == name for _, t, who in self.seen.late | self.seen.arrived)
        return landed or self.access.rights_of(name).may_publish(topic)


def _decided(rights: Rights, topic: str) -> bool:
    """Whether a subscription is a right or forbidden: one within a filter that its program asks for is neither."""
    return topic not in rights.subscribe and (rights.may_read(topic) or not rights.may_subscribe(topic))


def verify(
    access: Access,
    authority: Authority,
    url: str,
    kind: BrokerKind,
    only: Sequence[str] = (),
    interrupt: bool = False,
) -> Verdict:
    """Tries the lists at the broker at `url`, whose certificate the same authority has signed.

    Raises Stopped if somebody of the fleet is connected, unless `interrupt`, or the broker is not there.
    """
    names = {other for name in (only or access.names) for other in beside(access, name)}
    with entries(sorted(names), authority, parse_urls(url)[0], five=speaks_five(kind)) as made:
        if not interrupt:
            _refuse_if_alive(access, made)
        run = Run(access, made, only)
        seen = run.all()
        return judge(access, run.tried, run.among, seen, kind)


def speaks_five(kind: BrokerKind) -> bool:
    """Whether a kind of broker speaks MQTT 5, in the versions that are supported."""
    return kind not in ("nats", "rabbitmq")


@contextmanager
def entries(names: Sequence[str], authority: Authority, address: Address, five: bool) -> Iterator[dict[str, Entry]]:
    """Each identity with a certificate of its own, made for this; their files are gone afterwards."""
    with TemporaryDirectory(prefix="hushgrid-") as folder:
        made = {name: tls_context(address, authority.passing(name, Path(folder), LIFETIME)) for name in names}
        yield {name: Entry(address, name, context, five) for name, context in made.items() if context is not None}


def _away(entry: Entry, error: OSError) -> Stopped:
    place = f"mqtts://{entry.address.host}:{entry.address.port}"
    return Stopped(f"{place}: {error.strerror or error}, expected the fleet's broker")


def _refuse_if_alive(access: Access, entries: dict[str, Entry]) -> None:
    """Raises Stopped if retained messages show that somebody is connected."""
    topics = Topics(access.fleet)
    public = [each(name) for name in access.names for each in (topics.state, topics.status)]
    reader = max(entries, key=lambda name: sum(map(access.rights_of(name).may_read, public)))
    probe = Probe(entries[reader])
    try:
        if not probe.open():
            raise Stopped(f"broker: refuses {reader}: {probe.refusal or 'no answer'}")
        probe.subscribe([Try(topic) for topic in public if access.rights_of(reader).may_read(topic)], 0)
        probe.wait(lambda: False, QUIET_S)
    except OSError as error:
        raise _away(entries[reader], error) from None
    finally:
        probe.close()
    nodes = fleet(topics, {message.topic: message.payload for message in probe.received})
    alive = [name for name, node in nodes.items() if node.there]
    if alive:
        names = ", ".join(alive[:5]) + (f" and {len(alive) - 5} more" if len(alive) > 5 else "")
        raise Stopped(
            f"found {names} connected, expected nobody: verify connects in each name, which ends its connection "
            "(--interrupt does so all the same)"
        )
