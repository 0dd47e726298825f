"""Attempts to reach a broker of MQTT: which address is next, which version is spoken, and how long to wait."""

from __future__ import annotations

import random
from typing import Any

import paho.mqtt.client as paho

from hushgrid.node.transport.connect import Address, resolve

FIRST_DELAY_S, LAST_DELAY_S = 0.05, 5.0  #: between attempts, doubling, each shortened at random by up to a half
PASSING = {136, 137, 151, 159}  #: refusals that pass: server unavailable or busy, quota, connection rate
UNSUPPORTED_VERSION = 132


class Attempts:
    """What the attempts so far have taught. `fatal`: the broker has refused for good."""

    def __init__(self, protocol: Any = paho.MQTTv5, *, known: bool = False) -> None:
        self.protocol = protocol
        self.known = known  #: a broker has spoken `protocol` to us
        self.fatal = False
        self.delay = 0.0
        self._up_at = 0.0
        self._addresses: list[Any] = []  #: not tried yet

    def target(self, address: Address) -> Any:
        """The socket address to dial now. Raises OSError if the name cannot be resolved."""
        self._addresses = self._addresses or resolve(address)
        return self._addresses.pop(0)

    def succeeded(self, now: float) -> None:
        """The connection stands."""
        self._up_at, self._addresses = now, []

    def lost(self, now: float) -> None:
        """A connection that stood is gone: if it stood for long, the waits begin anew."""
        if now - self._up_at > LAST_DELAY_S:
            self.delay = 0.0

    def answered(self, refusal: Any) -> bool:
        """The broker refused an attempt (None: it gave no reason). True if the next one begins at once, with 3.1.1."""
        unsupported = refusal is not None and refusal.value == UNSUPPORTED_VERSION
        if unsupported or (refusal is None and not self.known):
            # Brokers of 3.1.1 say so, or just close the connection.
            self.protocol = paho.MQTTv311 if self.protocol == paho.MQTTv5 else paho.MQTTv5
            return bool(self.protocol == paho.MQTTv311)
        if refusal is not None and refusal.value not in PASSING:
            self.fatal = True
        return False

    def next(self, now: float) -> float:
        """When the next attempt begins: at once if there is another address of this broker."""
        if self._addresses:
            return now
        self.delay = min(LAST_DELAY_S, max(FIRST_DELAY_S, 2 * self.delay))
        return now + self.delay * random.uniform(0.5, 1.0)
