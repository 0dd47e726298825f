"""Attempts to reach an MQTT broker: which address is next, which version is spoken, and how long to wait."""

from __future__ import annotations

import random
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


class Attempts:
    """What is known from the attempts so far. `fatal`: the broker has refused for good."""

    def __init__(self, protocol: int = paho.MQTTv5, *, known: bool = False) -> None:
        self.protocol = protocol
        self.known = known  #: whether a broker has spoken `protocol` to us
        self.five = True  #: whether MQTT 5 may be asked of this URL: no broker there has said that it does not speak it
        self.fatal = False
        self.delay = 0.0  #: the last wait, s
        self._up_at = 0.0
        self._addresses: list[AddressInfo] = []  #: addresses that are not tried yet
        self.lookup: Lookup | None = None  #: while its name is looked up

    def target(self, address: Address) -> AddressInfo | None:
        """The socket address to dial now; None while its name is looked up. Raises OSError if it cannot be."""
        self._addresses = self._addresses or list(numeric(address))
        if not self._addresses:
            self.lookup = self.lookup or Lookup(address)
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

    def lost(self, now: float) -> None:
        """A connection is lost. If it was up for long, the waits begin anew."""
        if now - self._up_at > LAST_DELAY_S:
            self.delay = 0.0

    def answered(self, refusal: ReasonCode | None) -> bool:
        """The broker refused an attempt (None: without a reason). True if the next begins at once, with MQTT 3.1.1.

        One of MQTT 3.1.1 says that 5 is unsupported, and is not asked again; or it just closes the connection,
        as one does that cannot serve anybody now (a cluster that elects): then both versions are tried in turn.
        """
        before = self.protocol
        if refusal is not None and refusal.value == UNSUPPORTED_VERSION:
            self.five &= before != paho.MQTTv5
        elif refusal is not None:
            self.fatal |= refusal.value not in PASSING
            return False
        elif self.known:
            return False
        self.protocol = paho.MQTTv5 if self.five and before != paho.MQTTv5 else paho.MQTTv311
        return bool(before == paho.MQTTv5)

    def next(self, now: float, patient: bool) -> float:
        """When the next attempt begins, of time.monotonic(): at once if the broker has another address.

        `patient`: nothing waits for the broker.
        """
        if self._addresses:
            return now
        self.delay = min(PATIENT_S if patient else LAST_DELAY_S, max(FIRST_DELAY_S, 2 * self.delay))
        return now + self.delay * random.uniform(0.5, 1.0)
