"""One MQTT connection that tries things, and how the broker answers each: taken, refused, or the connection ended."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol, cast

import paho.mqtt.client as paho
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hushgrid.node.transport.connect import Address

CONNECT_S = 30.0  #: for TCP, TLS and the answer to CONNECT: brokers are slow just after they start
ANSWER_S = 15.0  #: for any other answer of the broker
BATCH = 50  #: attempts that are under way at once, while none has ended the connection


class Outcome(NamedTuple):
    """How the broker answered one attempt."""

    kind: Literal["taken", "refused", "ended"]
    reason: str  #: as it is printed


TAKEN = Outcome("taken", "acknowledged")
ENDED = Outcome("ended", "connection ended")
SILENT = Outcome("refused", "no answer")


class Try(NamedTuple):
    """One publication, or with `qos` one subscription."""

    topic: str
    payload: bytes = b""
    retain: bool = False


class Received(NamedTuple):
    """A message that has arrived."""

    topic: str
    payload: bytes
    retained: bool


class Entry(NamedTuple):
    """How an identity connects. `five`: by MQTT 5, else 3.1.1."""

    address: Address
    name: str
    context: ssl.SSLContext
    five: bool = True


class Reason(Protocol):
    """What paho hands over as a reason code."""

    is_failure: bool


class Probe:
    """A connection of `entry` as `client_id` [its name], which begins with nothing kept."""

    def __init__(self, entry: Entry, client_id: str = "", will: tuple[str, bytes] | None = None) -> None:
        self.entry, self.client_id = entry, client_id or entry.name
        self.received: list[Received] = []
        self.ended = False  #: whether the broker has ended the connection, or refused it
        self.refusal = ""  #: why it refused it
        self._changed = threading.Condition()
        self._answers: dict[int, Outcome] = {}
        self._accepted = False
        self._client = self._greeted(will)

    def _greeted(self, will: tuple[str, bytes] | None) -> paho.Client:
        entry = self.entry
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            protocol=paho.MQTTv5 if entry.five else paho.MQTTv311,
            clean_session=None if entry.five else True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_S
        client.max_inflight_messages_set(BATCH)
        client.tls_set_context(entry.context)
        if will is not None:
            client.will_set(*will, qos=1)
        client.on_socket_open = _undelayed
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_subscribe, client.on_publish = self._on_subscribe, self._on_publish
        client.on_message = self._on_message
        return client

    def open(self) -> bool:
        """Whether the broker accepts the connection. Raises OSError if nobody is there."""
        host, port, _ = self.entry.address
        try:
            self._client.connect(host, port, keepalive=60, **({"clean_start": True} if self.entry.five else {}))
        except ssl.SSLError as error:
            self.ended, self.refusal = True, str(error.reason or error)
            return False
        self._client.loop_start()
        self._wait(lambda: self._accepted or self.ended, CONNECT_S)
        if not self._accepted:
            self.ended = True
            self.close()
        return self._accepted

    def publish(self, tries: Iterable[Try]) -> dict[Try, Outcome]:
        """The answer to each publication of QoS 1; those without one, because the connection ended, are left out."""
        return self._all({one: self._client.publish(one.topic, one.payload, 1, one.retain).mid for one in tries})

    def subscribe(self, tries: Iterable[Try], qos: int = 1) -> dict[Try, Outcome]:
        """The answer to each subscription, each in a packet of its own."""
        numbers: dict[Try, int] = {}
        for one in tries:
            number = self._client.subscribe(one.topic, qos)[1]
            if number is not None:
                numbers[one] = number
        return self._all(numbers)

    def _all(self, numbers: dict[Try, int]) -> dict[Try, Outcome]:
        self._wait(lambda: self.ended or all(number in self._answers for number in numbers.values()))
        with self._changed:
            answers = {one: self._answers.get(number, SILENT) for one, number in numbers.items()}
            return {one: answer for one, answer in answers.items() if answer is not SILENT or not self.ended}

    def alive(self, topic: str) -> bool:
        """Whether the connection stands: a subscription to `topic`, which it may have, is answered."""
        return not self.ended and bool(self.subscribe([Try(topic)], 0)) and not self.ended

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Waits until `done`, which looks at what was received."""
        return self._wait(done, seconds)

    def abort(self) -> None:
        """Breaks the connection without a goodbye, so that its will is published."""
        sock = self._client.socket()
        if sock is not None:
            with suppress(OSError):
                cast(socket.socket, sock).shutdown(socket.SHUT_RDWR)
        self._wait(lambda: self.ended)
        self.close()

    def close(self) -> None:
        """Disconnects in order, if it is connected."""
        if not self.ended:
            self._client.disconnect()
        self._client.loop_stop()
        self._client._reset_sockets()  # paho would leave that to the garbage collector

    def _wait(self, done: Callable[[], bool], seconds: float = ANSWER_S) -> bool:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (reached := done()) and (rest := deadline - time.monotonic()) > 0:
                self._changed.wait(rest)
        return reached

    # -- paho's thread

    def _on_connect(self, _: paho.Client, __: object, ___: object, reason: Reason, ____: Properties | None) -> None:
        with self._changed:
            self._accepted = not reason.is_failure
            self.ended |= not self._accepted
            self.refusal = "" if self._accepted else str(reason)
            self._changed.notify_all()

    def _on_disconnect(self, _: paho.Client, __: object, ___: object, reason: Reason, ____: Properties | None) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _on_subscribe(
        self, _: paho.Client, __: object, number: int, reasons: Sequence[ReasonCode], ___: Properties | None
    ) -> None:
        self._answered(number, reasons[0])

    def _on_publish(self, _: paho.Client, __: object, number: int, reason: ReasonCode, ___: Properties | None) -> None:
        self._answered(number, reason)

    def _answered(self, number: int, reason: ReasonCode) -> None:
        with self._changed:
            self._answers[number] = Outcome("refused", str(reason)) if reason.is_failure else TAKEN
            self._changed.notify_all()

    def _on_message(self, _: paho.Client, __: object, message: paho.MQTTMessage) -> None:
        with self._changed:
            self.received.append(Received(message.topic, bytes(message.payload), bool(message.retain)))
            self._changed.notify_all()


def _undelayed(client: object, _: object, sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


Act = Callable[[Probe, Sequence[Try]], "dict[Try, Outcome]"]


def subscribing(qos: int) -> Act:
    """Tries as subscriptions of this quality of service."""
    return lambda probe, tries: probe.subscribe(tries, qos)


def attempt(
    probe: Probe, tries: Sequence[Try], act: Act, again: Callable[[], Probe]
) -> tuple[Probe, dict[Try, Outcome]]:
    """How the broker answers each attempt, and the connection at the end, which `again` has made anew after one ended.

    Many are under way at once, until one has ended the connection: then one after the other, so that each is known.
    """
    outcomes: dict[Try, Outcome] = {}
    pending, size = list(tries), BATCH
    while pending:
        if probe.ended:
            probe.close()
            probe = again()
        batch = pending[:size]
        outcomes |= act(probe, batch)
        if probe.ended and size == 1:
            outcomes.setdefault(batch[0], ENDED)
        elif probe.ended:
            size = 1
        pending = [one for one in pending if one not in outcomes]
    if probe.ended:
        probe.close()
        probe = again()
    return probe, outcomes
