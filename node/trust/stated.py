"""What processes with one certificate say to each other: a coordinator to its standby.

A hello proves that its sender is there now. Who reads a topic later, when its writer may be dead, has no such proof: a
signature says by whom a message is, and the message itself how new it is. So a broker can hand over an earlier one,
which is to hold back the later ones, and nothing else.
"""

from __future__ import annotations

from collections import Counter

from hushgrid.kernels.machine import Malformed
from hushgrid.node import frames
from hushgrid.node.frames import Signed
from hushgrid.node.masks.identity import proves
from hushgrid.node.trust.guard import Credentials
from hushgrid.node.trust.keys import SessionKey, statement


class Stated:
    """The word of the end whose `credentials` these are, in one process."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials, self._key, self._numbers = credentials, SessionKey().public, Counter[str]()

    def sign(self, topic: str, payload: bytes) -> bytes:
        """The message in a frame, signed by the certificate of now."""
        self._numbers[topic] += 1
        number = self._numbers[topic]
        signature = self._credentials.identity.sign(statement(topic, number, self._key, payload))
        return frames.encode(Signed(number, self._key, signature, payload))

    def open(self, topic: str, payload: bytes) -> bytes:
        """The message in a frame. Raises Malformed unless the key of this end's certificate has signed it."""
        frame = frames.decode(payload)
        if not isinstance(frame, Signed):
            raise Malformed(f"found no signed message on {topic}")
        signed = statement(topic, frame.number, frame.key, frame.message)
        if not proves(self._credentials.identity.certificate, frame.signature, signed):
            raise Malformed(f"found a message on {topic} that is not signed by this certificate")
        return frame.message
