"""One connection to an MQTT broker over a socket that is connected already, and what is not acknowledged on it yet.

A session greets the broker, subscribes, publishes at QoS 1, and ends with its socket. `mqtt.py` (`MqttLink`) keeps what
outlives a connection. paho speaks where it is seldom done: CONNECT, SUBSCRIBE, DISCONNECT. PUBLISH, PUBACK and PINGREQ
are `packets.py`'s, at a tenth of the time.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from hushgrid.node.transport import packets
from hushgrid.node.transport.attempts import LAST_DELAY_S
from hushgrid.node.transport.buffered_socket import Stream
from hushgrid.node.transport.connect import Address

CLOSE_S = 2.0  #: for the last acknowledgements, s, and again for the broker to read the goodbye
SESSION_S = 3600  #: how long a persistent session outlives its connection, s (MQTT 5)
#: How long the broker waits with the last will, s (MQTT 5): a device in a run tries again within that time, and a
#: connection that is made again is no death. A session that nobody keeps ends at once, and the will is published then.
WILL_S = round(LAST_DELAY_S)
#: How long the broker keeps a message for a receiver that is away, s (MQTT 5), unless its sender says;
#: what it retains, for ever. Whoever needs an answer sends again every five seconds (`RETRY_S` of
#: node/runtime/endpoint.py), so an older copy serves nobody.
EXPIRY_S = 60
#: First and longest wait before a cluster is asked again for what it has refused, s: while it elects a leader, it
#: refuses subscriptions for no reason. What it has refused for ELECTION_S is reported.
ASK_S, ELECTION_S = (1.0, 64.0), 15.0
#: For an acknowledgement of a cluster that answers pings, s: the server that owed it may have gone out, and then nobody
#: owes it any more.
LOST_S = 20.0
QUEUE, QUEUE_BYTES = 4096, 64 << 20  #: the most messages and bytes without acknowledgement; beyond that `put` refuses
HEAD = 16  #: bytes of a published packet besides its topic and payload, at most
QUIET = 0.75  #: of `keepalive`: so long nothing is sent before the broker is asked whether it is there
ANSWERS = 0.5  #: of `keepalive`, for its answer: we notice before the broker would, at 1.5, that the other is gone


class Client(NamedTuple):
    """What all connections of one link have in common."""

    address: Address
    name: str  #: the client id
    will: tuple[str, bytes] | None  #: topic and payload of the last will, which the broker retains
    username: str | None
    password: str | None
    keepalive: int  #: seconds
    persistent: bool  #: whether the broker keeps the session when the connection is lost
    largest: int  #: the most bytes of a packet: stated to a broker of MQTT 5, and checked with every broker
    cluster: bool = False  #: whether the broker has several servers


class Listener(Protocol):
    """What a session reports to: its link."""

    subscriptions: tuple[str, ...]  #: the topics to ask for
    dropped: int  #: publications that did not reach a broker's acknowledgement
    due: float  #: when it looks again, of time.monotonic()

    def on_received(self, topic: str, payload: bytes, retained: bool) -> None:
        """A message has arrived."""

    def refuse(self, topic: str, reason: str) -> None:
        """The broker does not let us publish on this topic, or hear it."""


class Session:
    """One connection. `five`: it speaks MQTT 5, else 3.1.1. `afresh`: the broker forgets what it has kept for us.

    Methods raise OSError if the socket fails.
    """

    def __init__(self, sock: socket.socket, client: Client, listener: Listener, *, five: bool, afresh: bool) -> None:
        self.stream = Stream(sock, client.largest)
        self.listener, self.five, self.tls = listener, five, client.address.tls
        self.accepted = False  #: whether the broker has accepted CONNECT
        self.joined = False  #: whether it has answered the subscriptions too
        self.present = False  #: whether it had kept our session
        self.refusal: ReasonCode | None = None  #: its reason code for a refusal or a goodbye
        self.backlog = 0  #: bytes published and not yet acknowledged
        self.unacked: dict[int, tuple[str, int, float]] = {}  #: (topic, bytes, when it was sent), the oldest first
        #: (topic, the same encoded, payload, retain, expiry)
        self._queue: deque[tuple[str, bytes, bytes, bool, int | None]] = deque()
        self._number = 0  # of the last packet that is to be acknowledged
        self._invalid = ""  # what the broker has sent that no broker may
        self._keepalive = client.keepalive
        self._sent_at = time.monotonic()  # when anything was sent
        self._asked_at = inf  # when PINGREQ was sent, while it has no answer
        self.unacknowledged: dict[int, tuple[str, ...]] = {}  #: subscriptions without an answer yet, by message id
        self._heard_at = 0.0  # when the broker last sent anything
        self._cluster = client.cluster
        self._denied: list[str] = []  # subscriptions that a cluster is asked for again at `_ask_at`
        self._ask_at, self._ask_s = inf, ASK_S[0]
        self._receive_maximum = 65535
        self._packet_limit: int | None = None
        self._paho = self._greet(client, afresh)

    # -- what the link asks

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted connection and subscriptions, and is not known to be gone."""
        return self.joined and not self.stream.ended

    @property
    def owing(self) -> float:
        """How long an acknowledgement is outstanding while the broker has sent nothing, s; 0 if none is."""
        return time.monotonic() - max(self._oldest, self._heard_at) if self.unacked else 0.0

    @property
    def _oldest(self) -> float:
        """When the oldest message without an acknowledgement was sent."""
        *_, sent = next(iter(self.unacked.values()))
        return sent

    @property
    def _lost_at(self) -> float:
        """When a cluster that has not acknowledged the oldest message never will."""
        return self._oldest + LOST_S if self._cluster and self.unacked else inf

    @property
    def due(self) -> float:
        """When `keep_alive` must be called at the latest, of time.monotonic()."""
        if not self._keepalive:
            return inf
        quiet, answer = self._sent_at + QUIET * self._keepalive, self._asked_at + ANSWERS * self._keepalive
        return min(quiet, answer, self._ask_at, self._lost_at)

    def turn(self, ready: bool, full: Callable[[], bool]) -> bool:
        """Reads what has arrived if the socket is `ready`, until `full`. False if the connection is lost."""
        stream = self.stream
        if ready:
            stream.fill()
            self._heard_at = time.monotonic()
        try:
            going = self.alive
            while going and not full() and (packet := stream.packet()) is not None:
                going = self._take(*packet)
        except packets.Invalid as invalid:
            self._invalid = str(invalid)
        if stream.ended and self.alive and not full():
            self._paho.loop_read()  # paho notices that it is the end
        return self.alive

    @property
    def alive(self) -> bool:
        """Whether the connection is not known to be lost."""
        return not self._invalid and self._paho.socket() is not None

    def keep_alive(self) -> bool:
        """Sends a PINGREQ, and asks again for subscriptions, when it is time to. False if the last one has no answer:
        the connection is lost.
        """
        now = time.monotonic()
        if now >= self._ask_at:
            topics, self._denied = tuple(self._denied), []
            self._ask_at, self._ask_s = inf, min(2 * self._ask_s, ASK_S[1])
            self.subscribe(topics)
        if now >= self._asked_at + ANSWERS * self._keepalive:
            return False
        if now >= self._lost_at:
            return False
        if self._asked_at == inf and now >= self._sent_at + QUIET * self._keepalive:
            self.stream.send(packets.PINGREQ)
            self._sent_at = self._asked_at = now
        return True

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribes to these topics at QoS 1."""
        _, mid = self._paho.subscribe([(topic, SubscribeOptions(qos=1) if self.five else 1) for topic in topics])
        self.unacknowledged[mid] = topics

    def put(self, topic: str, payload: bytes, retain: bool, expiry: int | None = None) -> bool:
        """Queues a message for the next `flush`. `expiry`: s after which the broker forgets it (MQTT 5).

        False if it is above the broker's limit, there is no connection, or too much is not acknowledged yet.
        """
        name = topic.encode()
        size = len(name) + len(payload) + HEAD
        if self._packet_limit is not None and size > self._packet_limit:
            self.listener.refuse(topic, f"{len(payload)} bytes, above the broker's limit of {self._packet_limit}")
            return False
        if (
            not self.connected
            or len(self.unacked) + len(self._queue) >= QUEUE
            or (self.backlog and self.backlog + size > QUEUE_BYTES)
            or len(name) > packets.LONGEST_TOPIC
            or size > packets.LARGEST
        ):
            self.listener.dropped += 1
            return False
        self.backlog += size
        self._queue.append((topic, name, payload, retain, EXPIRY_S if expiry is None and not retain else expiry))
        return True

    def flush(self) -> None:
        """Sends what is queued, as long as the broker accepts more messages without acknowledging (Receive Maximum)."""
        queue, stream = self._queue, self.stream
        if queue and self.connected and len(self.unacked) < self._receive_maximum:
            self._sent_at = time.monotonic()
            while queue and len(self.unacked) < self._receive_maximum:
                topic, name, payload, retain, expiry = queue.popleft()
                number, size = self._next_number(), len(payload)
                stream.send(packets.publish(name, size, number, retain=retain, five=self.five, expiry=expiry))
                stream.send(payload)
                self.unacked[number] = topic, len(name) + size + HEAD, self._sent_at
        stream.flush()

    def why_lost(self) -> str:
        """Why the connection is lost, as far as that is known."""
        if self.stream.excess:
            return f"it sent {self.stream.excess} bytes at once, at most {self.stream.limit} expected"
        if self._invalid:
            return f"it sent {self._invalid}"
        if self.refusal is not None:
            return f"refused: {self.refusal}"
        if not self.accepted:
            # In TLS 1.3 the broker checks our certificate after the handshake, and its alert is seldom read in time.
            doubt = ": it may not accept our certificate" if self.tls else ""
            return f"closed the connection without an answer{doubt}"
        return "connection lost"

    def goodbye(self, forget: bool) -> None:
        """An orderly end: the will is not published. `forget`: the broker keeps no session of ours (MQTT 5)."""
        client = self._paho
        client.on_socket_close = lambda client, userdata, stream: stream.finish(CLOSE_S)
        properties = None
        if forget and self.five:
            properties = Properties(PacketTypes.DISCONNECT)
            properties.SessionExpiryInterval = 0
        client.disconnect(properties=properties)

    def close(self) -> None:
        """Closes the socket. Messages that are not acknowledged count as dropped."""
        self.listener.dropped += len(self.unacked) + len(self._queue)
        self.stream.close()

    # -- PUBLISH and PUBACK

    def _take(self, first: int, body: bytes | memoryview) -> bool:
        """One packet from the broker. False if the connection is lost with it. Raises Invalid."""
        kind = first & 0xF0
        if kind == packets.PUBLISH:
            topic, payload, retained, number = packets.published(first, body, self.five)
            self.listener.on_received(topic, payload, retained)
            if number:
                self.stream.send(packets.acknowledgement(number))
        elif kind == packets.PUBACK:
            self._acknowledged(*packets.acknowledged(body, self.five))
        elif kind == packets.PINGRESP:
            self._asked_at = inf
        else:
            client = self._paho
            self.stream.leave(first, body)
            client.loop_read()
            if client.want_write():
                client.loop_write()  # what paho queued while it read
            return self.alive
        return True

    def _acknowledged(self, number: int, reason: int) -> None:
        topic, size, _ = self.unacked.pop(number, ("", 0, 0.0))
        self.backlog -= size
        if reason >= packets.FAILURE and topic:
            self.listener.refuse(topic, _name(reason))

    def _next_number(self) -> int:
        """A number for a packet that is to be acknowledged, ours or paho's: none that still waits for its answer."""
        while True:
            self._number = self._number % 0xFFFF + 1
            if self._number not in self.unacked and self._number not in self.unacknowledged:
                return self._number

    # -- paho

    def _greet(self, client: Client, afresh: bool) -> paho.Client:
        clean = afresh or not client.persistent
        speaker = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client.name,
            protocol=paho.MQTTv5 if self.five else paho.MQTTv311,
            clean_session=None if self.five else clean,
            reconnect_on_failure=False,
        )
        if client.username is not None:
            speaker.username_pw_set(client.username, client.password)
        if client.will is not None:
            delay = None
            if self.five and client.persistent:
                delay = Properties(PacketTypes.WILLMESSAGE)
                delay.WillDelayInterval = WILL_S
            speaker.will_set(*client.will, qos=1, retain=True, properties=delay)
        speaker.on_connect, speaker.on_disconnect = self._on_connect, self._on_disconnect
        speaker.on_subscribe = self._on_subscribe
        # paho would block in connecting; it gets a socket that is connected already.
        speaker._create_socket = lambda: self.stream
        speaker._mid_generate = self._next_number
        host, port, _ = client.address
        if self.five:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = SESSION_S if client.persistent else 0
            properties.MaximumPacketSize = client.largest
            speaker.connect(host, port, client.keepalive, clean_start=clean, properties=properties)
        else:
            speaker.connect(host, port, client.keepalive)
        return speaker

    def _on_connect(
        self, client: paho.Client, _: object, flags: paho.ConnectFlags, reason: ReasonCode, properties: Properties
    ) -> None:
        if reason.is_failure:
            self.refusal = reason
            return
        self.accepted, self.present = True, flags.session_present
        self._receive_maximum = getattr(properties, "ReceiveMaximum", 65535)
        self._packet_limit = getattr(properties, "MaximumPacketSize", None)
        self._keepalive = getattr(properties, "ServerKeepAlive", self._keepalive)
        if self.listener.subscriptions:
            self.subscribe(self.listener.subscriptions)
        else:
            self.joined = True

    def _on_subscribe(
        self, client: paho.Client, _: object, mid: int, reasons: list[ReasonCode], properties: Properties
    ) -> None:
        for topic, reason in zip(self.unacknowledged.pop(mid, ()), reasons, strict=False):
            if not reason.is_failure:
                continue
            if self._cluster:
                self._denied.append(topic)
                self._ask_at = time.monotonic() + self._ask_s
                self.listener.due = min(self.listener.due, self._ask_at)
            if not self._cluster or self._ask_s > ELECTION_S:
                self.listener.refuse(topic, str(reason))
        self.joined = True

    def _on_disconnect(
        self, client: paho.Client, _: object, flags: paho.DisconnectFlags, reason: ReasonCode, properties: Properties
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self.refusal = reason


def _name(reason: int) -> str:
    """The words of a reason code of PUBACK."""
    try:
        return str(ReasonCode(PacketTypes.PUBACK, identifier=reason))
    except Exception:  # one that the standard does not know; paho raises what it likes
        return f"reason code {reason:#04x}"
