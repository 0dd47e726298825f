"""One end's side of all its edges: it seals what leaves, and hands on only what its peers have sealed in this session.

Two ends agree on keys by hellos, at most three: each signs the key that it has made for its session, and the other's as
an echo. An echo of our key proves that the peer is there now, so nothing of an earlier session of either end passes:
no message, no plan, no hello. What waits for a hello is held, or sent again by its sender.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Literal, Protocol, cast

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import Malformed
from hushgrid.node import frames, wire
from hushgrid.node.frames import Broadcast, Hello, Sealed, Signed
from hushgrid.node.masks.identity import Identity, Trust, proves
from hushgrid.node.trust.keys import EdgeKey, SessionKey, hello_statement, statement
from hushgrid.node.wire import COORDINATOR, Death, Publication, Topics

HELD = 16  #: messages that wait for one peer's hello, at most; a later one may say all that an earlier one did
LEDGERS = 16  #: of one name in a session of ours, at most
ASK_S = (0.4, 60.0)  #: first and longest wait before a peer is asked for its hello again, s


class Credentials(Protocol):
    """Who an end is, and whom its owner trusts: as they are now."""

    @property
    def identity(self) -> Identity: ...
    @property
    def trust(self) -> Trust:
        """Raises InputError if that cannot be known."""
        ...


@dataclass
class Peer:
    """One of the others, in its session of now."""

    hello: Hello
    outward: EdgeKey  #: of what is sent to it
    inward: EdgeKey  #: of what it sends
    highest: dict[str, int] = field(default_factory=dict)  #: number of the last message taken, by kind of topic

    def stand(self, hello: Hello) -> None:
        """No signed message before those that a hello names counts any more. Its certificate may be renewed."""
        self.hello = hello
        for kind, number in hello.standing.items():
            self.highest[kind] = max(number, self.highest.get(kind, 0))


@dataclass
class Wait:
    """For the hello of a peer."""

    due: float  #: when it is asked again, s
    seconds: float = ASK_S[0]


class Guard:
    """Of the end `name` in one session. `refuse` counts what is not taken. It reads no clock: `now` is told.

    `peers`: the names of those whose messages this end needs now.
    """

    def __init__(
        self,
        name: str,
        topics: Topics,
        session: tuple[bytes, int],
        credentials: Credentials,
        refuse: Callable[[str], object],
        peers: Callable[[], Collection[str]],
    ) -> None:
        """`session`: the ledger's id, and its number of the session."""
        self.name, self.topics, self.session, self.credentials = name, topics, session, credentials
        self.identity, self.refuse, self.names = credentials.identity, refuse, peers
        self.key = SessionKey()
        self.peers: dict[str, Peer] = {}
        self.now = 0.0
        self._former: dict[str, Peer] = {}  #: whose certificates do not count any more, in the same sessions
        self._sessions: dict[str, dict[bytes, int]] = {}  #: by peer and ledger: the latest that was met
        self._numbers: Counter[str] = Counter()  #: of what was sent, by topic
        self._waits: dict[str, Wait] = {}
        self._trust = credentials.trust  #: by which the peers were judged last
        self._leaving: dict[str, deque[tuple[str, bytes]]] = {}  #: what waits for a peer's hello
        self._arrived: dict[str, tuple[str, bytes]] = {}  #: topic: (peer, signed message) that waits for its hello
        self._verified: dict[str, bytes] = {}  #: the last hello of each peer whose signature was checked
        self._replies: dict[str, tuple[Hello, Publication]] = {}  #: the last hello sent to each: what it says, encoded
        self._statements: dict[str, tuple[bytes, bytes]] = {}  #: topic: what was signed last, and the frame

    # --- what leaves ---

    def seal(self, publications: Iterable[tuple[str, bytes, bool]]) -> list[Publication]:
        """The same, for the broker. What waits for a hello is left out, and what asks for the hello is there."""
        out: list[Publication] = []
        for topic, payload, retain in publications:
            kind, _, dst = self.topics.parse(topic)
            if not payload or kind in wire.WATCHED:
                out.append(Publication(topic, payload, retain))
            elif kind == "edge":
                out += self._to(dst, topic, payload)
            elif kind == "all" and self.name != COORDINATOR:
                out += self._broadcast(topic, payload, self.names())
            else:
                out.append(Publication(topic, self._signed(topic, payload), retain))
        return out

    def _to(self, dst: str, topic: str, payload: bytes) -> list[Publication]:
        if (peer := self.peers.get(dst)) is None:
            return self._hold(dst, topic, payload)
        number = self._next(topic)
        return [Publication(topic, frames.encode(Sealed(number, peer.outward.tag(topic, number, payload), payload)))]

    def _broadcast(self, topic: str, payload: bytes, names: Iterable[str]) -> list[Publication]:
        names = [name for name in names if name != COORDINATOR]
        known = {name: self.peers[name].outward for name in names if name in self.peers}
        out = [p for name in names if name not in known for p in self._hold(name, topic, payload)]
        if not known:
            return out
        number = self._next(topic)
        tags = {name: key.tag(topic, number, payload) for name, key in known.items()}
        return [*out, Publication(topic, frames.encode(Broadcast(number, tags, payload)))]

    def _signed(self, topic: str, payload: bytes) -> bytes:
        """The same bytes as long as the message and the certificate are the same."""
        self._renewed()
        last, frame = self._statements.get(topic, (b"", b""))
        if last != payload or not frame:
            number, key = self._next(topic), self.key.public
            signature = self.identity.sign(statement(topic, number, key, payload))
            frame = frames.encode(Signed(number, key, signature, payload))
            self._statements[topic] = payload, frame
        return frame

    def _next(self, topic: str) -> int:
        self._numbers[topic] += 1
        return self._numbers[topic]

    def _hold(self, dst: str, topic: str, payload: bytes) -> list[Publication]:
        waiting = self._leaving.setdefault(dst, deque(maxlen=HELD))
        if (topic, payload) not in waiting:
            waiting.append((topic, payload))
        return self._ask(dst)

    # --- what arrives ---

    def open(self, topic: str, payload: bytes) -> tuple[list[tuple[str, bytes]], list[Publication]]:
        """(what is handed on, what is sent about it). What no end of this fleet has sealed is refused."""
        try:
            kind, src, dst = self.topics.parse(topic)
        except Malformed:
            return [(topic, payload)], []  # it is dropped there
        if not payload or kind in wire.WATCHED:
            return [(topic, payload)], []
        try:
            frame = frames.decode(payload)
        except Malformed:
            if kind == "state" and _is_death(payload):  # the broker has it from the start, and says it when it likes
                # That of this name says nothing here: whoever goes on in its place signs that.
                return [(topic, payload)] if src != self.name else [], []
            return self._refused(f"unsealed: a message on {topic}")
        match frame:
            case Hello() if kind == "edge" and dst == self.name != src:
                return self._greeted(src, frame, payload)
            case Sealed(number, proof, message) if kind == "edge" and dst == self.name:
                return self._sealed(src, kind, topic, number, proof, message)
            case Broadcast(number, tags, message) if kind == "all":
                # One without a tag for us is for neighbours that were met later.
                if (tag := tags.get(self.name)) is None:
                    return [], []
                return self._sealed(src, kind, topic, number, tag, message)
            case Signed(message=message) if kind != "edge" and len(message) <= _limit(kind, src):
                return self._stated(src, kind, topic, frame, payload)
        return self._refused(f"unsealed: a {type(frame).__name__} on {topic}")

    def _sealed(
        self, src: str, kind: str, topic: str, number: int, proof: bytes, message: bytes
    ) -> tuple[list[tuple[str, bytes]], list[Publication]]:
        peer = self.peers.get(src)
        if peer is None or not peer.inward.made(proof):  # one of us has started again; it will say it again
            self.refuse(_outdated(topic))
            return [], self._ask(src) if src in self.names() else []
        if not peer.inward.matches(topic, number, message, proof):
            return self._refused(f"forged: a message of {src} on {topic}")
        if number <= peer.highest.get(kind, 0):
            return self._refused(f"repeated: message {number} of {src} on {topic}")
        peer.highest[kind] = number
        return [(topic, message)], []

    def _stated(
        self, src: str, kind: str, topic: str, frame: Signed, payload: bytes
    ) -> tuple[list[tuple[str, bytes]], list[Publication]]:
        """A signed message, to all that hear the topic. `payload`: its frame; b"": its sender's last hello is known."""
        signed = statement(topic, frame.number, frame.key, frame.message)
        if src == self.name:  # another coordinator of this fleet, or this one's own word
            certificate = self.identity.certificate
            if proves(certificate, frame.signature, signed):
                return [(topic, frame.message)], []
            return self._refused(f"forged: a message of {src} on {topic}")
        if src not in self.names():
            return self._refused(f"unsealed: a message of {src}, who is no peer")
        self._review()  # sessions may be long; a plan and a birth are always by whom the owner trusts now
        peer = self.peers.get(src)
        same = peer is not None and frame.key == peer.hello.key
        if peer is None or not same or not proves(peer.hello.certificate, frame.signature, signed):
            if not payload:
                return self._refused(f"forged: a message of {src} on {topic}" if same else _outdated(topic))
            self._arrived[topic] = src, payload  # another session, or a renewed certificate: its hello will say
            return [], self._ask(src)
        if frame.number < peer.highest.get(kind, 0):
            return self._refused(f"repeated: message {frame.number} of {src} on {topic}")
        peer.highest[kind] = frame.number
        return [(topic, frame.message)], []

    def _refused(self, why: str) -> tuple[list[tuple[str, bytes]], list[Publication]]:
        self.refuse(why)
        return [], []

    # --- hellos ---

    def _greeted(self, src: str, hello: Hello, payload: bytes) -> tuple[list[tuple[str, bytes]], list[Publication]]:
        if (why := self._review()) is not None:
            return self._refused(f"unsealed: the hello of {src} is not judged: {why}")
        if self._verified.get(src) != payload:
            signed = hello_statement(self.topics.fleet, src, self.name, hello)
            wrong = self._trust.wrong(src, hello.certificate, hello.signature, signed)
            if wrong is not None or hello.key == self.key.public:
                return self._refused(f"forged: the hello of {src}: {wrong or 'found this end´s key'}")
            self._verified[src] = payload
        echoed = hello.echo == self.key.public
        if echoed and not self._meet(src, hello):
            return self._refused(f"repeated: the hello of an earlier session of {src}")
        met = src in self.peers and self.peers[src].hello.key == hello.key
        if met and echoed:
            self._waits.pop(src, None)
            self.peers[src].stand(hello)
        out = [self._hello(src, hello.key, wants=not met)] if hello.wants or not echoed else []
        return self._released(src, out) if met else ([], out)

    def _meet(self, src: str, hello: Hello) -> bool:
        """The peer is there now, with this key. False if it has had a later session, or too many ledgers."""
        if (former := self._former.get(src)) is not None and former.hello.key == hello.key:
            self.peers[src] = self._former.pop(src)  # by another certificate, or its owner trusts it again
        if src in self.peers and self.peers[src].hello.key == hello.key:
            return True
        sessions = self._sessions.setdefault(src, {})
        if hello.session <= sessions.get(hello.ledger, -1) or len({*sessions, hello.ledger}) > LEDGERS:
            return False
        fleet = self.topics.fleet
        try:
            outward = self.key.edge(fleet, self.name, src, hello.key, outward=True)
            inward = self.key.edge(fleet, src, self.name, hello.key, outward=False)
        except ValueError:
            return False
        sessions[hello.ledger] = hello.session
        self._former.pop(src, None)
        self.peers[src] = Peer(hello, outward, inward)
        return True

    def _review(self) -> str | None:
        """Peers whose certificates do not count any more are none. Why nobody can be judged, in words; else None."""
        try:
            trust = self.credentials.trust
        except InputError as error:
            return str(error)
        if trust is not self._trust:
            self._trust, self._verified = trust, {}
            for name, peer in list(self.peers.items()):
                if (why := trust.untrusted(name, peer.hello.certificate)) is not None:
                    self._former[name] = self.peers.pop(name)
                    self.refuse(f"unsealed: {name} is no peer any more: {why}")
        return None

    def _released(self, src: str, out: list[Publication]) -> tuple[list[tuple[str, bytes]], list[Publication]]:
        """What has waited for this peer's hello: after `out`, which may be the hello that it lacks itself."""
        for topic, payload in self._leaving.pop(src, ()):
            kind, _, _ = self.topics.parse(topic)
            out += self._to(src, topic, payload) if kind == "edge" else self._broadcast(topic, payload, [src])
        opened: list[tuple[str, bytes]] = []
        for topic, (sender, payload) in list(self._arrived.items()):
            if sender == src:
                del self._arrived[topic]
                kind, _, _ = self.topics.parse(topic)
                more, answers = self._stated(src, kind, topic, cast(Signed, frames.decode(payload)), b"")
                opened, out = opened + more, out + answers
        return opened, out

    def _hello(self, dst: str, echo: bytes, *, wants: bool) -> Publication:
        self._renewed()
        ledger, session = self.session
        state = self.topics.state(self.name)
        standing: dict[Literal["all", "state"], int] = {
            "state" if topic == state else "all": self._numbers[topic] for topic in self._statements
        }
        greeting = Hello(self.key.public, self.identity.certificate, ledger, session, echo, wants, standing, b"")
        last = self._replies.get(dst)
        if last is None or last[0] != greeting:
            signature = self.identity.sign(hello_statement(self.topics.fleet, self.name, dst, greeting))
            payload = frames.encode(replace(greeting, signature=signature))
            last = self._replies[dst] = greeting, Publication(self.topics.edge(self.name, dst), payload)
        return last[1]

    def _ask(self, name: str) -> list[Publication]:
        if name in self._waits:
            return []
        self._waits[name] = Wait(self.now + ASK_S[0])
        return [self._request(name)]

    def _request(self, name: str) -> Publication:
        peer = self.peers.get(name)
        return self._hello(name, peer.hello.key if peer else b"", wants=True)

    # --- time ---

    def tick(self, now: float) -> list[Publication]:
        """Some time has passed: peers are asked again for the hellos that something waits for."""
        self.now, out = now, []
        for name, wait in list(self._waits.items()):
            if wait.due > now:
                continue
            if name not in self._leaving and all(src != name for src, _ in self._arrived.values()):
                del self._waits[name]  # it is asked again when it says something
                continue
            wait.seconds = min(2 * wait.seconds, ASK_S[1])
            wait.due = now + wait.seconds
            out.append(self._request(name))
        return out

    def connected(self) -> list[Publication]:
        """The connection was made again: what is lacked is asked for at once; peers learn of a renewed certificate."""
        self._review()
        for wait in self._waits.values():
            wait.due, wait.seconds = self.now, ASK_S[0]
        if not self._renewed():
            return []
        return [self._hello(name, peer.hello.key, wants=False) for name, peer in self.peers.items()]

    def _renewed(self) -> bool:
        """Whether this end has another certificate now. All that it signs from here on is by that one."""
        if (identity := self.credentials.identity) is self.identity:
            return False
        self.identity, self._replies, self._statements = identity, {}, dict.fromkeys(self._statements, (b"", b""))
        return True

    @property
    def due(self) -> float:
        """When `tick` must be called at the latest, s."""
        return min((wait.due for wait in self._waits.values()), default=inf)


def _outdated(topic: str) -> str:
    return f"outdated: a message of another session on {topic}"


def _limit(kind: str, src: str) -> int:
    """The bytes of the largest signed message: a plan, or a presence."""
    return wire.PLAN_LIMIT if (kind, src) == ("all", COORDINATOR) else wire.SMALL


def _is_death(payload: bytes) -> bool:
    try:
        return isinstance(wire.decode_presence(payload), Death)
    except Malformed:
        return False
