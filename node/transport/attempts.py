"""Attempts to reach an MQTT broker: which server and address is next, in which version, and how long to wait."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import paho.mqtt.client as paho

from hushgrid.node.transport.connect import Address, AddressInfo
from hushgrid.node.transport.lookup import Lookup, numeric

if TYPE_CHECKING:
    from paho.mqtt.reasoncodes import ReasonCode

FIRST_DELAY_S, LAST_DELAY_S = 0.05, 5.0  #: waits, s: they double; each is shortened at random by up to a half
PATIENT_S = 15.0  #: the longest wait while nothing waits for the broker
PASSING = {136, 137, 151, 159}  #: reason codes that may pass: server unavailable or busy, quota, connection rate
UNSUPPORTED_VERSION = 132  #: reason code: the broker does not speak this version


@dataclass
class Server:
    """What is known of one server of the broker."""

    address: Address
    protocol: int = paho.MQTTv5
    known: bool = False  #: whether it has spoken `protocol` to us
    five: bool = True  #: whether MQTT 5 may be asked of it: it has not said that it does not speak it
    fatal: bool = False  #: whether it has refused for good


class Attempts:
    """What is known from the attempts so far. The servers are tried in turn; after a turn without success we wait."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.servers = [Server(address) for address in addresses]
        self.server = self.servers[0]  #: which is tried, or connected
        self.delay = 0.0  #: the last wait, s
        self._tried = 0  # servers in this turn that have failed
        self._up_at = 0.0
        self._addresses: list[AddressInfo] = []  #: of the server, those that are not tried yet
        self.lookup: Lookup | None = None  #: while its name is looked up

    @property
    def fatal(self) -> bool:
        """Whether every server has refused for good."""
        return all(server.fatal for server in self.servers)

    def alone(self) -> Attempts:
        """Attempts at the server of now, and at no other."""
        alone = Attempts([self.server.address])
        alone.servers[0] = alone.server = self.server
        return alone

    def begin(self) -> None:
        """Nobody has refused yet, and the first attempt is at once."""
        self.delay = 0.0
        for server in self.servers:
            server.fatal = False

    def target(self) -> AddressInfo | None:
        """The socket address to dial now; None while its name is looked up. Raises OSError if it cannot be."""
        self._addresses = self._addresses or list(numeric(self.server.address))
        if not self._addresses:
            self.lookup = self.lookup or Lookup(self.server.address)
            try:
                self._addresses = list(self.lookup.answer() or ())
            except OSError:
                self.lookup = None
                raise
            if not self._addresses:
                return None
            self.lookup = None
        return self._addresses.pop(0)

    def close(self) -> None:
        """Nothing is looked up any more."""
        if self.lookup is not None:
            self.lookup.close()
            self.lookup = None

    def succeeded(self, now: float) -> None:
        """The connection is up."""
        self._up_at, self._addresses = now, []
        self.server.fatal = False

    def lost(self, now: float) -> None:
        """A connection is lost. If it was up for long, the waits begin anew. The next server is tried after one."""
        if now - self._up_at > LAST_DELAY_S:
            self.delay = 0.0
        self._tried = len(self.servers) - 1

    def answered(self, refusal: ReasonCode | None) -> bool:
        """The server refused an attempt (None: without a reason). True if the next begins at once, with MQTT 3.1.1.

        One of MQTT 3.1.1 says that 5 is unsupported, and is not asked again; or it just closes the connection,
        as one does that cannot serve anybody now (a cluster that elects): then both versions are tried in turn.
        """
        server, before = self.server, self.server.protocol
        if refusal is not None and refusal.value == UNSUPPORTED_VERSION:
            server.five &= before != paho.MQTTv5
        elif refusal is not None:
            server.fatal |= refusal.value not in PASSING
            return False
        elif server.known:
            return False
        server.protocol = paho.MQTTv5 if server.five and before != paho.MQTTv5 else paho.MQTTv311
        return bool(before == paho.MQTTv5)

    def next(self, now: float, patient: bool) -> float:
        """When the next attempt begins, of time.monotonic(): at once if there is another address, or another server.

        `patient`: nothing waits for the broker.
        """
        if self._addresses:
            return now
        self._tried += 1
        self.server = self.servers[(self.servers.index(self.server) + 1) % len(self.servers)]
        if self._tried < len(self.servers):
            return now
        self._tried = 0
        self.delay = min(PATIENT_S if patient else LAST_DELAY_S, max(FIRST_DELAY_S, 2 * self.delay))
        return now + self.delay * random.uniform(0.5, 1.0)
