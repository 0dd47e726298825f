"""The keys of a session: X25519 for each pair of ends, of it a key for each direction, and the tag of a message."""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hushgrid.node import system
from hushgrid.node.frames import KEY_ID, TAG, Hello
from hushgrid.node.masks.identity import framed

HELLO, EDGE, STATEMENT = b"hushgrid hello", b"hushgrid edge", b"hushgrid statement"


class SessionKey:
    """The private key of one end. It is in memory alone, and ends with the process."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.from_private_bytes(system.machine.entropy(32))
        self.public = self._private.public_key().public_bytes_raw()

    def edge(self, fleet: str, src: str, dst: str, peer: bytes, *, outward: bool) -> EdgeKey:
        """That of the messages from `src` to `dst`: HKDF-SHA256 of the X25519 secret, without a salt.

        `outward`: we are `src`. Raises ValueError if the peer's key is a point of low order.
        """
        secret = self._private.exchange(X25519PublicKey.from_public_bytes(peer))
        ends = (self.public, peer) if outward else (peer, self.public)
        info = framed(EDGE, fleet.encode(), src.encode(), dst.encode(), *ends)
        return EdgeKey(HKDF(SHA256(), 32, None, info).derive(secret))


class EdgeKey:
    """The key of the messages in one direction of an edge, for one session of each of its ends."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = blake2b(b"id", key=key, digest_size=KEY_ID).digest()

    def tag(self, topic: str, number: int, message: bytes) -> bytes:
        """The key's id, and keyed BLAKE2b (16,) over topic, number and message, which has its run and epoch."""
        place = topic.encode()
        head = len(place).to_bytes(4, "little") + place + number.to_bytes(8, "little")
        digest = blake2b(head, key=self._key, digest_size=TAG)
        digest.update(message)
        return self.id + digest.digest()

    def made(self, proof: bytes) -> bool:
        """Whether a tag says that it is of this key."""
        return proof[:KEY_ID] == self.id

    def matches(self, topic: str, number: int, message: bytes, proof: bytes) -> bool:
        """Whether a tag is this message's."""
        return compare_digest(self.tag(topic, number, message), proof)


def hello_statement(fleet: str, src: str, dst: str, hello: Hello) -> bytes:
    """What the sender of a hello signs: all that it says, and to whom."""
    names = (fleet.encode(), src.encode(), dst.encode())
    session = hello.session.to_bytes(8, "little", signed=True)
    standing = framed(*(f"{kind} {number}".encode() for kind, number in sorted(hello.standing.items())))
    return framed(HELLO, *names, hello.key, hello.ledger, session, hello.echo, bytes([hello.wants]), standing)


def statement(topic: str, number: int, key: bytes, message: bytes) -> bytes:
    """What is signed of a message to everybody."""
    return framed(STATEMENT, topic.encode(), number.to_bytes(8, "little"), key, message)
