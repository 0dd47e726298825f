"""One MQTT connection, driven from its owner's loop: no threads, nothing queued across a broken connection.

The application above resends whatever has no answer, so this link promises little and hides nothing: `connected` says
whether the broker has accepted connection and subscriptions, `connects` and `disconnects` count, `refused` lists what
the broker would not take. Each connection gets a new paho client: what the old one had not delivered is dropped.
"""

from __future__ import annotations

import contextlib
import enum
import os
import random
import select
import ssl
import time
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from hushgrid.kernels.errors import Stopped
from hushgrid.node.dial import Dial, parse_url, resolve, tls_context
from hushgrid.node.stream import Stream

if TYPE_CHECKING:
    from hushgrid.node.config import Tls

ATTEMPT_S = 10.0  #: from dialling to the answer to SUBSCRIBE; a small device's TLS handshake takes a second
FIRST_DELAY_S, LAST_DELAY_S = 0.05, 5.0  #: between attempts, doubling, each shortened at random by up to a half
PROBE_S = 2.0  #: for the answer to a first CONNECT of MQTT 5: amqtt never gives one
CLOSE_S = 2.0  #: for the last acknowledgements, and again for the broker to take the goodbye
SESSION_S = 3600  #: a persistent session outlives its connection this long (MQTT 5)
QUEUE, QUEUE_BYTES = 4096, 64 << 20  #: published and not yet acknowledged; beyond it `publish` drops
BURST = 1024  #: messages handed over at once, about
PASSING = {136, 137, 151, 159}  #: refusals that pass: server unavailable or busy, quota, connection rate
UNSUPPORTED_VERSION = 132


class Message(NamedTuple):
    """As received. `retained`: it was waiting at the broker when we subscribed."""

    topic: str
    payload: bytes
    retained: bool


class _Stage(enum.Enum):
    CLOSED = enum.auto()  # by its owner
    DOWN = enum.auto()  # waiting for the next attempt
    DIALLING = enum.auto()  # TCP and TLS
    GREETING = enum.auto()  # CONNECT is sent
    JOINING = enum.auto()  # SUBSCRIBE is sent
    UP = enum.auto()


class MqttLink:
    """A connection to the broker at `url` as `client_id`, with a retained last will, subscribed at QoS 1.

    Speaks MQTT 5 where the broker does, else 3.1.1. Only topics that match `subscriptions` are handed over, none with
    a payload above `payload_limit` bytes. `persistent` asks the broker to keep the session over a lost connection.
    User and password default to HUSHGRID_MQTT_USER and HUSHGRID_MQTT_PASSWORD.

    Its owner either calls `poll`, or waits itself on `sock` for `events`, until `due`, and then calls `turn`, and `send`
    with the answers. One of them must run within 1.5 `keepalive` seconds, or the broker takes us for dead and publishes
    the will.
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
        keepalive: int = 30,
        persistent: bool = True,
        payload_limit: int = 8 << 20,
    ) -> None:
        self.url = url
        self._address = parse_url(url)
        self._id = client_id
        self._will = will
        self._hear(subscriptions)
        self._asked: dict[int, tuple[str, ...]] = {}  # subscriptions without an answer yet, by message id
        self._username = os.environ.get("HUSHGRID_MQTT_USER") if username is None else username
        self._password = os.environ.get("HUSHGRID_MQTT_PASSWORD") if password is None else password
        self._ssl = tls_context(self._address, tls)
        self._keepalive = keepalive
        self._persistent = persistent
        self._limit = payload_limit

        self.connects = 0
        self.disconnects = 0
        self.session_present = False  #: the broker had kept our session, at the last connect
        self.refused: list[tuple[str, str]] = []  #: (topic, reason), each pair once
        self.oversize = 0  #: messages received above `payload_limit`, not handed over
        self.foreign = 0  #: messages received on topics we did not subscribe to, not handed over
        self.dropped = 0  #: publications that did not reach a broker's acknowledgement
        self.due = inf  #: when to take the next `turn` at the latest, of time.monotonic()
        self.readable: list[int] = []  #: those of `fds` that ended the last `poll`
        self.why = "not connected yet"  #: why the link is or was last down

        self._stage = _Stage.CLOSED
        self._inbox: list[Message] = []
        self._dial: Dial | None = None  # while dialling
        self._client: Any = None  # paho, from then on, and its socket
        self._stream: Any = None
        self._addresses: list[Any] = []
        self._protocol = paho.MQTTv5
        self._known = False  # a broker has spoken self._protocol to us
        self._refusal: Any = None
        self._fatal = False
        self._unacked: dict[int, tuple[str, int]] = {}
        self._queue: deque[tuple[str, bytes, bool]] = deque()
        self._backlog = 0  # bytes in both
        self._receive_maximum = 65535
        self._packet_limit: int | None = None
        self._delay = self._up_at = 0.0

    # -- what the owner calls

    @property
    def connected(self) -> bool:
        """The broker has accepted the connection and answered every subscription, and is not known to be gone."""
        return self._stage is _Stage.UP and not self._stream.ended

    @property
    def waiting(self) -> bool:
        """An attempt has failed or the connection is gone (see `why`), and the next attempt is not yet due."""
        return self._stage is _Stage.DOWN

    @property
    def sock(self) -> Any:
        """The socket of now to wait on, or None. It is another one after a reconnect."""
        return self._stream.sock if self._stream is not None else self._dial.sock if self._dial is not None else None

    @property
    def events(self) -> int:
        """What to wait for on it: select.POLLIN, select.POLLOUT."""
        if self._stream is not None:
            return select.POLLIN | select.POLLOUT if self._stream.unsent else select.POLLIN
        return self._dial.want if self._dial is not None else 0

    @property
    def protocol(self) -> str:
        return "MQTT 5" if self._protocol == paho.MQTTv5 else "MQTT 3.1.1"

    def open(self) -> None:
        """Begins to connect; `turn` or `poll` go on with it, for as long as it takes."""
        if self._stage is _Stage.CLOSED:
            self._stage, self._delay, self.due = _Stage.DOWN, 0.0, 0.0

    def connect(self, timeout: float) -> None:
        """Returns when connected; Stopped when the broker is not there within `timeout` seconds, or refuses us."""
        deadline = time.monotonic() + timeout
        self.open()
        self._fatal = False
        while not self.connected:
            left = deadline - time.monotonic()
            if self._fatal or left <= 0:
                why = self.why if self._fatal else f"{self.why} (tried for {timeout:g} s)"
                self._end()
                raise Stopped(f"broker {self.url}: {why}")
            self._wait(left)

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> bool:
        """Sends now, at QoS 1. False: dropped (no connection, too much unacknowledged, or above the broker's limit)."""
        return self._put(topic, payload, retain) and self._flush()

    def send(self, publications: Iterable[tuple[str, bytes, bool]]) -> None:
        """Publishes them all, and acknowledges what `turn` has handed over, in one write."""
        for topic, payload, retain in publications:
            self._put(topic, payload, retain)
        self._flush()

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
        """Hears these topics from now on; what is new is asked for at once where there is a connection."""
        new = tuple(topic for topic in subscriptions if topic not in self._subscriptions)
        if new or len(subscriptions) != len(self._subscriptions):
            self._hear(subscriptions)
        if new and self.connected:
            self._ask(self._client, new)
            self._flush()

    def turn(self, ready: bool) -> list[Message]:
        """Does what is due, and what `sock` was waited for when it is `ready`; never waits.

        Returns what has come. It is acknowledged with the `send` that follows, in one write with the answer: what
        nobody has acted upon comes again.
        """
        self._step(ready)
        if self._inbox:
            return self._take()
        self._flush()
        return []

    def close(self, clear: Sequence[str] = (), forget: bool = True) -> None:
        """Clears the retained messages on `clear`, waits for the broker to have taken all, says goodbye (no will).

        With `forget` the broker keeps no session of ours. A link that is down just closes: nobody is there to tell.
        """
        if self.connected:
            self._wait(0.0)  # learns whether the broker has gone meanwhile
        gone = not self.connected
        if not gone:
            for topic in clear:
                self.publish(topic, b"", retain=True)
            deadline = time.monotonic() + CLOSE_S
            while self.connected and self._backlog and (left := deadline - time.monotonic()) > 0:
                self._wait(left)
                self._inbox.clear()
            self._goodbye(forget)
        self._end()
        self.why = "closed"
        if forget and self._persistent and not gone and self._protocol == paho.MQTTv311:
            # In 3.1.1 only a clean connect ends a session that was not begun clean.
            eraser = MqttLink(self.url, self._id, username=self._username, password=self._password, persistent=False)
            eraser._ssl, eraser._protocol, eraser._known = self._ssl, self._protocol, True
            with contextlib.suppress(Stopped):
                eraser.connect(CLOSE_S)
                eraser.close()

    # -- one turn of the loop

    def _wait(self, timeout: float, fds: Sequence[int] = ()) -> None:
        """Until something is to be done, at most `timeout` seconds; and does it."""
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        own = -1
        if self.sock is not None:
            own = self.sock.fileno()
            poller.register(own, self.events)
        ready = [fd for fd, _ in poller.poll(max(0.0, min(timeout, self.due - time.monotonic())) * 1000)]
        self.readable = [fd for fd in ready if fd != own]
        self._step(own in ready)
        self._flush()

    def _step(self, ready: bool) -> None:
        client = self._client
        if client is not None:
            if ready:
                self._stream.fill()
            while self._stream.more and client.socket() is not None and len(self._inbox) < BURST:
                client.loop_read()
            if client.want_write():
                client.loop_write()  # what paho queued while it read
            if client.socket() is None:
                self._drop(self._lost())
        elif ready and self._dial is not None:
            self._advance(self._dial)
        now = time.monotonic()
        while now >= self.due:
            self._on_time(now)
        if self._stream is not None and self._stream.more:
            self.due = now

    def _on_time(self, now: float) -> None:
        if self._stage is _Stage.DOWN:
            self._redial(now)
        elif self._stage is not _Stage.UP:
            self._drop("no answer")
        else:
            self._client.loop_misc()
            self.due = now + min(1.0, self._keepalive / 4)
            if self._client.socket() is None:
                self._drop(self._lost())

    def _take(self) -> list[Message]:
        messages, self._inbox = self._inbox, []
        return messages

    def _put(self, topic: str, payload: bytes, retain: bool) -> bool:
        size = len(topic.encode()) + len(payload) + 16
        if self._packet_limit is not None and size > self._packet_limit:
            self._refuse(topic, f"{len(payload)} bytes, above the broker's limit of {self._packet_limit}")
            return False
        if (
            not self.connected
            or len(self._unacked) + len(self._queue) >= QUEUE
            or (self._backlog and self._backlog + size > QUEUE_BYTES)
        ):
            self.dropped += 1
            return False
        self._backlog += size
        self._queue.append((topic, payload, retain))
        return True

    def _flush(self) -> bool:
        """Sends what is queued, within what the broker is ready to receive unacknowledged. False: no connection."""
        while self._queue and self.connected and len(self._unacked) < self._receive_maximum:
            topic, payload, retain = self._queue.popleft()
            info = self._client.publish(topic, payload, qos=1, retain=retain)
            self._unacked[info.mid] = topic, len(topic.encode()) + len(payload) + 16
        if self._stream is not None:
            self._stream.flush()
        return self.connected

    # -- coming up

    def _redial(self, now: float) -> None:
        self._refusal, self.why = None, "no answer"
        self.due = now + ATTEMPT_S
        try:
            if not self._addresses:
                self._addresses = resolve(self._address)
            self._dial = Dial(self._addresses.pop(0), self._address.host, self._ssl)
            self._stage = _Stage.DIALLING
        except OSError as error:
            self._drop(error.strerror or str(error))

    def _advance(self, dial: Dial) -> None:
        try:
            if dial.advance():
                self._greet(dial.sock)
        except ssl.SSLCertVerificationError as error:
            self._fatal = True
            self._drop(f"its certificate is not accepted: {error.verify_message}")
        except OSError as error:
            self._drop(error.strerror or str(error))

    def _greet(self, sock: Any) -> None:
        five = self._protocol == paho.MQTTv5
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=self._id,
            protocol=self._protocol,
            clean_session=None if five else not self._persistent,
            reconnect_on_failure=False,
        )
        client.max_inflight_messages_set(0)  # we count ourselves: paho ignores the broker's Receive Maximum
        if self._username is not None:
            client.username_pw_set(self._username, self._password)
        if self._will is not None:
            client.will_set(self._will[0], self._will[1], qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        # paho would block in connecting; it gets a socket that is connected already.
        stream = Stream(sock)
        client._create_socket = lambda: stream
        self._dial, self._client, self._stream, self._stage = None, client, stream, _Stage.GREETING
        host, port, _ = self._address
        if five:
            if not self._known:
                self.due = time.monotonic() + PROBE_S
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = SESSION_S if self._persistent else 0
            properties.MaximumPacketSize = self._limit + 0x20000  # far above the limit: not even read
            client.connect(host, port, self._keepalive, clean_start=not self._persistent, properties=properties)
        else:
            client.connect(host, port, self._keepalive)

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refusal = reason
            return
        self._known = True
        self.session_present = flags.session_present
        self._receive_maximum = getattr(properties, "ReceiveMaximum", 65535)
        self._packet_limit = getattr(properties, "MaximumPacketSize", None)
        self._stage = _Stage.JOINING
        self._asked.clear()
        if self._subscriptions:
            self._ask(client, self._subscriptions)
        else:
            self._rise()

    def _hear(self, subscriptions: Sequence[str]) -> None:
        self._subscriptions = tuple(subscriptions)
        self._exact = frozenset(t for t in subscriptions if "+" not in t and "#" not in t)
        self._wild = tuple(t for t in subscriptions if t not in self._exact)

    def _ask(self, client: Any, topics: tuple[str, ...]) -> None:
        five = self._protocol == paho.MQTTv5
        _, mid = client.subscribe([(topic, SubscribeOptions(qos=1) if five else 1) for topic in topics])
        self._asked[mid] = topics

    def _on_subscribe(self, client: Any, _: Any, mid: int, reasons: Any, properties: Any) -> None:
        for topic, reason in zip(self._asked.pop(mid, ()), reasons, strict=False):
            if reason.is_failure:
                self._refuse(topic, str(reason))
        if self._stage is _Stage.JOINING:
            self._rise()

    def _rise(self) -> None:
        self._stage = _Stage.UP
        self._up_at = self.due = time.monotonic()
        self._addresses = []
        self.connects += 1

    # -- while up

    def _on_message(self, client: Any, _: Any, message: Any) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        if topic not in self._exact and not any(paho.topic_matches_sub(t, topic) for t in self._wild):
            self.foreign += 1
        elif len(message.payload) > self._limit:
            self.oversize += 1
        else:
            self._inbox.append(Message(topic, bytes(message.payload), bool(message.retain)))

    def _on_publish(self, client: Any, _: Any, mid: int, reason: Any, properties: Any) -> None:
        topic, size = self._unacked.pop(mid)
        self._backlog -= size
        if reason.is_failure:
            self._refuse(topic, str(reason))

    def _refuse(self, topic: str, reason: str) -> None:
        if (topic, reason) not in self.refused:
            self.refused.append((topic, reason))

    # -- going down

    def _on_disconnect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._refusal = reason

    def _lost(self) -> str:
        if self._refusal is not None:
            return f"refused: {self._refusal}"
        if self._stage is _Stage.GREETING:
            # In TLS 1.3 our certificate is judged after the handshake, and the alert seldom survives the close.
            doubt = "" if self._ssl is None else ": it may not accept our certificate"
            return f"closed the connection without an answer{doubt}"
        return "connection lost"

    def _drop(self, why: str) -> None:
        """This connection or attempt is over; arranges the next."""
        stage, refusal, now = self._stage, self._refusal, time.monotonic()
        self._shut()
        self._stage = _Stage.DOWN
        self.why = why
        if stage is _Stage.UP:
            self.disconnects += 1
            if now - self._up_at > LAST_DELAY_S:
                self._delay = 0.0
        if stage is _Stage.GREETING:
            unsupported = refusal is not None and refusal.value == UNSUPPORTED_VERSION
            if unsupported or (refusal is None and not self._known):
                # Brokers of 3.1.1 say so, or just close the connection.
                self._protocol = paho.MQTTv311 if self._protocol == paho.MQTTv5 else paho.MQTTv5
                if self._protocol == paho.MQTTv311:
                    self.due = now
                    return
            elif refusal is not None and refusal.value not in PASSING:
                self._fatal = True
        if self._addresses:
            self.due = now
            return
        self._delay = min(LAST_DELAY_S, max(FIRST_DELAY_S, 2 * self._delay))
        self.due = now + self._delay * random.uniform(0.5, 1.0)

    def _goodbye(self, forget: bool) -> None:
        client = self._client
        client.on_socket_close = lambda client, userdata, stream: stream.finish(CLOSE_S)
        properties = None
        if forget and self._protocol == paho.MQTTv5:
            properties = Properties(PacketTypes.DISCONNECT)
            properties.SessionExpiryInterval = 0
        client.disconnect(properties=properties)

    def _end(self) -> None:
        self._shut()
        self._stage, self.due = _Stage.CLOSED, inf

    def _shut(self) -> None:
        """Closes the socket, whoever holds it, and forgets what was under way."""
        self.dropped += len(self._unacked) + len(self._queue)
        self._unacked.clear()
        self._queue.clear()
        self._backlog = 0
        if self._dial is not None:
            self._dial.close()
        if self._stream is not None:
            self._stream.close()
        self._dial = self._client = self._stream = None
