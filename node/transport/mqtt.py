"""One MQTT connection after the other, driven by its owner's loop: no threads, and no queue that outlives a connection.

The endpoints send again what has no answer, so this link promises little and hides nothing. `connected` says whether
the broker has accepted connection and subscriptions, `connects` and `disconnects` count, and `refused` lists what the
broker did not accept. Each connection is a new `Session`; what the old one had not delivered is dropped.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import inf

import paho.mqtt.client as paho

from hushgrid.kernels.errors import Stopped
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.attempts import Attempts
from hushgrid.node.transport.connect import Dial, Trust, parse_urls
from hushgrid.node.transport.link import KEEPALIVE_S, Link, Message, Party, register
from hushgrid.node.transport.mqtt_session import CLOSE_S, Client, Session

ATTEMPT_S = 10.0  #: from dialling to the answer to SUBSCRIBE, s; a small device's TLS handshake takes 1 s
PROBE_S = 2.0  #: for the answer to a first CONNECT of MQTT 5, s: amqtt never gives one
ELECTS_S = 60.0  #: for one server of several to take us, s: while a cluster elects a leader, all refuse or are silent
ANSWER_S = 2.0  #: for an acknowledgement, s: a broker that gives none is not there, although the connection is up
ROOM = 0x20000  #: the most bytes of a packet besides its payload: the topic, properties
ASKED_S = 0.25  #: how often `connect` looks whether it was asked to end, s
BURST = 1024  #: messages handed over at once, approximately
USUAL = 256  #: characters of a topic, at most: of such a one it is remembered whether it matches
NOT_YET = "not connected yet"
_matches = lru_cache(maxsize=1024)(paho.topic_matches_sub)


class _Stage(enum.Enum):
    CLOSED = enum.auto()  # by its owner
    DOWN = enum.auto()  # waiting for the next attempt
    DIALLING = enum.auto()  # TCP and TLS
    JOINING = enum.auto()  # CONNECT and SUBSCRIBE are sent
    UP = enum.auto()


class MqttLink:
    """A `Link` to the broker at `url` as `client_id`, with a retained last will, subscribed at QoS 1.

    `url`: of a cluster, those of its servers with commas between them; they are tried in turn.

    It speaks MQTT 5 if the broker does, else 3.1.1. It hands over only messages whose topic matches `subscriptions`,
    and none with a payload above `payload_limit` bytes. `persistent` asks the broker to keep the session when the
    connection is lost, and a cluster always does: where one server holds what another's client has subscribed to, only
    a kept session outlives that server. User and password default to the environment's <secrets>_USER and
    <secrets>_PASSWORD.

    Its owner either calls `poll`, or waits on `sock` for `events` until `due`, and then calls `turn`, and `send` with
    the answers. If neither runs within 1.5 `keepalive` seconds, the broker takes us for dead and publishes the will.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        *,
        will: tuple[str, bytes] | None = None,
        subscriptions: Sequence[str] = (),
        username: str | None = None,
        password: str | None = None,
        tls: Tls | None = None,
        keepalive: int = KEEPALIVE_S,
        persistent: bool = True,
        payload_limit: int = 8 << 20,
        secrets: str = "HUSHGRID_MQTT",
    ) -> None:
        self.url = url
        username = os.environ.get(f"{secrets}_USER") if username is None else username
        password = os.environ.get(f"{secrets}_PASSWORD") if password is None else password
        if password is None and tls is not None and tls.cert is not None:
            username = None  # the certificate says who it is; RabbitMQ refuses a name beside it without a password
        addresses = parse_urls(url)
        cluster = len(addresses) > 1
        kept, largest = persistent or cluster, payload_limit + ROOM
        self._as = Client(addresses[0], client_id, will, username, password, keepalive, kept, largest, cluster)
        self._hear(subscriptions)
        self._trust = Trust(addresses[0], tls)
        self._limit = payload_limit
        self._afresh = False  # the broker is to forget the session: else it sends again what we do not read

        self.connects = 0
        self.disconnects = 0
        self.session_present = False  #: whether the broker had kept our session, at the last connect
        self.refused: list[tuple[str, str]] = []  #: (topic, reason), each pair once
        self.oversize = 0  #: messages above `payload_limit`: not handed over; far above it, not even read
        self.foreign = 0  #: messages received on topics we did not subscribe to, not handed over
        self.dropped = 0  #: publications that did not reach a broker's acknowledgement
        self.patient = False  #: nothing waits for the broker: attempts to reach it may be far apart
        self.due = inf  #: when `turn` must be called at the latest, of time.monotonic()
        self.readable: list[int] = []  #: those of `fds` that ended the last `poll`

        self._why = NOT_YET
        self._stage = _Stage.CLOSED
        self._inbox: list[Message] = []
        self._dial: Dial | None = None  # while dialling
        self._session: Session | None = None  # from then on
        self._attempts = Attempts(addresses)

    # -- what the owner calls

    @property
    def connected(self) -> bool:
        return self._stage is _Stage.UP and self._session is not None and self._session.connected

    @property
    def owing(self) -> float:
        return self._session.owing if self._session is not None else 0.0

    @property
    def backlog(self) -> int:
        """Bytes published and not yet acknowledged."""
        return self._session.backlog if self._session is not None else 0

    @property
    def mute(self) -> bool:
        return self.owing > ANSWER_S

    @property
    def why(self) -> str:
        return "it acknowledges nothing" if self.mute else self._why

    @property
    def waiting(self) -> bool:
        return self._stage is _Stage.DOWN and self._attempts.lookup is None

    @property
    def sock(self) -> socket.socket | None:
        if self._session is not None:
            return self._session.stream.sock
        return self._dial.sock if self._dial is not None else None

    @property
    def events(self) -> int:
        if self._session is not None:
            return select.POLLIN | select.POLLOUT if self._session.stream.unsent else select.POLLIN
        return self._dial.want if self._dial is not None else 0

    @property
    def protocol(self) -> str:
        """The version that is spoken, in words."""
        return "MQTT 5" if self._attempts.server.protocol == paho.MQTTv5 else "MQTT 3.1.1"

    def open(self) -> None:
        """Begins to connect. `turn` or `poll` go on with it, as long as it takes."""
        if self._stage is _Stage.CLOSED:
            self._stage, self.due = _Stage.DOWN, 0.0
            self._attempts.begin()

    def connect(self, timeout: float, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Waits for the connection. True if it is made, False if `stopping` says to end meanwhile.

        Raises Stopped if the broker is not there within `timeout` seconds, or refuses us.
        """
        if len(self._attempts.servers) > 1:
            timeout = max(timeout, ELECTS_S)
        deadline = time.monotonic() + timeout
        self.open()
        while not self.connected:
            if stopping():
                return False
            remaining = deadline - time.monotonic()
            if self._attempts.fatal or remaining <= 0:
                why = self._why if self._attempts.fatal else f"{self._why} (tried for {timeout:g} s)"
                self._end()
                raise Stopped(f"broker {self.url}: {why}")
            self._wait(min(remaining, ASKED_S))
        return True

    def publish(self, topic: str, payload: bytes, retain: bool = False, expiry: int | None = None) -> bool:
        """Sends now, at QoS 1. False if it is dropped: no connection, too much unacknowledged, or above the limit.

        `expiry`: seconds after which a broker of MQTT 5 forgets it, retained or not.
        """
        return self._put(topic, payload, retain, expiry) and self._flush()

    def send(self, publications: Iterable[tuple[str, bytes, bool]]) -> None:
        """Publishes all of them and acknowledges the messages that `turn` returned, in one write."""
        for topic, payload, retain in publications:
            self._put(topic, payload, retain)
        if self._session is not None:
            self._session.flush()

    def poll(self, timeout: float, fds: Sequence[int] = ()) -> list[Message]:
        """Waits at most `timeout` seconds and does all that is due; also reconnects.

        Returns early with messages, when one of `fds` is readable (see `readable`), or when the connection has come
        or gone (see `connects`, `disconnects`).
        """
        deadline = time.monotonic() + timeout
        before = self.connects, self.disconnects
        while True:
            self._wait(0.0 if self._inbox else deadline - time.monotonic(), fds)
            if (
                self._inbox
                or self.readable
                or (self.connects, self.disconnects) != before
                or time.monotonic() >= deadline
            ):
                return self._take()

    def follow(self, subscriptions: Sequence[str]) -> None:
        """Hears these topics, and no others, from now on. A connection subscribes to new ones at once."""
        new = tuple(topic for topic in subscriptions if topic not in self.subscriptions)
        if new or len(subscriptions) != len(self.subscriptions):
            self._hear(subscriptions)
        if new and self._session is not None and self.connected:
            self._session.subscribe(new)
            self._flush()

    def turn(self, ready: bool) -> list[Message]:
        """Does what is due, and reads and writes `sock` if it is `ready`; never waits. Returns the messages received.

        They are acknowledged with the `send` that follows, in one write with the answers: a message that was not acted
        upon comes again.
        """
        self._step(ready)
        if not self._inbox:
            self._flush()
        return self._take()

    def close(self, clear: Sequence[str] = (), forget: bool = True) -> None:
        """Clears the retained messages on `clear`, waits until the broker has acknowledged all, and disconnects.

        The will is not published. With `forget` the broker keeps no session of ours. A link that is down just closes.
        """
        if self.connected:
            self._wait(0.0)  # learns whether the broker has gone meanwhile
        self.send((topic, b"", True) for topic in clear if self.connected)
        deadline = time.monotonic() + CLOSE_S
        while self.connected and self.backlog and (remaining := deadline - time.monotonic()) > 0:
            self._wait(remaining)
            self._inbox.clear()
        session = self._session if self.connected else None
        if session is not None:
            session.goodbye(forget)
        self._end()
        self._why = "closed"
        if session is not None and forget and self._as.persistent and not session.five:
            # In 3.1.1 only a clean connect ends a session that was not begun clean.
            who = self._as
            eraser = MqttLink(self.url, who.name, username=who.username, password=who.password)
            eraser._as = who._replace(will=None, persistent=False)
            eraser._trust, eraser._attempts = self._trust, self._attempts.alone()
            with contextlib.suppress(Stopped):
                eraser.connect(CLOSE_S)
                eraser.close()

    def _wait(self, timeout: float, fds: Sequence[int] = ()) -> None:
        """Waits until something is to be done, at most `timeout` seconds, and does it."""
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        socket_fd = -1
        if self.sock is not None:
            socket_fd = self.sock.fileno()
            poller.register(socket_fd, self.events)
        ready = [fd for fd, _ in poller.poll(max(0.0, min(timeout, self.due - time.monotonic())) * 1000)]
        self.readable = [fd for fd in ready if fd != socket_fd]
        self._step(socket_fd in ready)
        self._flush()

    def _step(self, ready: bool) -> None:
        session = self._session
        if session is not None:
            alive = session.turn(ready, lambda: len(self._inbox) >= BURST)
            self._attempts.server.known |= session.accepted
            if session.joined and self._stage is _Stage.JOINING:
                self._rise(session)
            if not alive:
                self._lose(session)
        elif ready and self._dial is not None:
            self._advance(self._dial)
        now = time.monotonic()
        while now >= self.due:
            self._on_time(now)
        if self._session is not None and self._session.stream.more:
            self.due = now
        elif self._session is not None and self._session.unacked:  # it may turn out that nobody acknowledges it
            self.due = min(self.due, self._session.due)

    def _on_time(self, now: float) -> None:
        if self._stage is _Stage.DOWN:
            self._redial(now)
        elif self._stage is not _Stage.UP or self._session is None:
            self._drop("no answer")
        elif not self._session.keep_alive():
            self._lose(self._session)
        else:
            self.due = max(self._session.due, now + 1e-3)

    def _take(self) -> list[Message]:
        messages, self._inbox = self._inbox, []
        return messages

    def _put(self, topic: str, payload: bytes, retain: bool, expiry: int | None = None) -> bool:
        if self._session is None:
            self.dropped += 1
            return False
        return self._session.put(topic, payload, retain, expiry)

    def _flush(self) -> bool:
        """Sends what is queued. False if there is no connection."""
        if self._session is not None:
            self._session.flush()
        return self.connected

    def _redial(self, now: float) -> None:
        if self._why == NOT_YET:  # a later reason stays: an attempt that is cut short says less
            self._why = "no answer"
        self.due = now + ATTEMPT_S
        try:
            target = self._attempts.target()
            if self._attempts.lookup is not None:
                self.due = now + self._attempts.lookup.wait
                return
            assert target is not None
            self._dial = Dial(target, self._attempts.server.address.host, self._trust.context)
            self._stage = _Stage.DIALLING
        except OSError as error:
            self._drop(error.strerror or str(error))

    def _advance(self, dial: Dial) -> None:
        try:
            if dial.advance():
                self._greet(dial.sock)
        except ssl.SSLCertVerificationError as error:
            self._attempts.server.fatal = True
            self._drop(f"its certificate is not accepted: {error.verify_message}")
        except OSError as error:
            self._drop(error.strerror or str(error))

    def _greet(self, sock: socket.socket) -> None:
        server = self._attempts.server
        five = server.protocol == paho.MQTTv5
        if five and not server.known:
            self.due = time.monotonic() + PROBE_S
        self._session = Session(sock, self._as._replace(address=server.address), self, five=five, afresh=self._afresh)
        self._dial, self._stage = None, _Stage.JOINING

    def _rise(self, session: Session) -> None:
        self._stage, self._afresh, self.session_present = _Stage.UP, False, session.present
        self.due = time.monotonic()
        self._attempts.succeeded(self.due)
        self.connects += 1

    def _hear(self, subscriptions: Sequence[str]) -> None:
        self.subscriptions = tuple(subscriptions)
        self._exact = frozenset(t for t in subscriptions if "+" not in t and "#" not in t)
        self._wild = tuple(t for t in subscriptions if t not in self._exact)

    def on_received(self, topic: str, payload: bytes, retained: bool) -> None:
        matches = _matches if len(topic) <= USUAL else paho.topic_matches_sub
        if topic not in self._exact and not any(matches(t, topic) for t in self._wild):
            self.foreign += 1
        elif len(payload) > self._limit:
            self.oversize += 1
        else:
            self._inbox.append(Message(topic, payload, retained))

    def refuse(self, topic: str, reason: str) -> None:
        if (topic, reason) not in self.refused:
            self.refused.append((topic, reason))

    def _lose(self, session: Session) -> None:
        if session.stream.excess:
            self.oversize += 1
            self._afresh = True
        self._drop(session.why_lost())

    def _drop(self, why: str) -> None:
        """Ends this connection or attempt, and sets when the next one begins."""
        up, session, now = self._stage is _Stage.UP, self._session, time.monotonic()
        refusal = session.refusal if session is not None else None
        self._shut()
        self._stage = _Stage.DOWN
        self.disconnects += up
        if up:
            self._attempts.lost(now)
        elif session is not None and not session.accepted and self._attempts.answered(refusal):
            self.due = now  # by the other version; that this one is not spoken there is no reason
            return
        self._why = why
        self.due = self._attempts.next(now, self.patient)

    def _end(self) -> None:
        self._shut()
        self._attempts.close()
        self._stage, self.due = _Stage.CLOSED, inf

    def _shut(self) -> None:
        """Closes the socket and forgets the dial or session that held it."""
        if self._dial is not None:
            self._dial.close()
        if self._session is not None:
            self._session.close()
        self._dial = self._session = None


@register("mqtt", "mqtts")
def link(url: str, party: Party) -> Link:
    """A link to an MQTT broker; mqtts:// speaks TLS. Raises InputError if the URL or the certificates are wrong."""
    settings = party._asdict()
    return MqttLink(url, settings.pop("name"), **settings)
