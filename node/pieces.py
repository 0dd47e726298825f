"""An encoding in pieces: wide vectors stay where they are, so that a wide state is stored without a copy of it."""

from __future__ import annotations

from hashlib import sha256
from itertools import zip_longest

import msgspec

from hushgrid.node import wire

WIDE = 1 << 20  #: bytes of an encoding that is kept in pieces; no log takes so wide a record
_MARKER = sha256(b"a wide vector was left out").digest()


class Pieces:
    """The parts of an encoding, in order. They are views: what they show must not change before they are written."""

    def __init__(self, parts: list[bytes | memoryview]) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))

    def __len__(self) -> int:
        return self.size

    def joined(self) -> bytes:
        return b"".join(self.parts)


def in_pieces(value: object) -> Pieces:
    """`wire.encode(value)`, in pieces. What is in pieces already may stand in the value in place of bytes."""
    aside: list[list[bytes | memoryview]] = []

    def set_aside(part: object) -> object:
        encoded = part if isinstance(part, Pieces) else wire.encode_vector(part)
        if isinstance(encoded, bytes):
            return encoded
        aside.append(encoded.parts if isinstance(encoded, Pieces) else [encoded])
        return msgspec.Raw(_head(len(encoded)) + _MARKER)

    text = msgspec.msgpack.encode(wire.stored_form(value), enc_hook=set_aside)
    if not aside:
        return Pieces([text])
    texts = text.split(_MARKER)
    if len(texts) != len(aside) + 1:  # somebody has put it into a narrow part
        return Pieces([msgspec.msgpack.encode(wire.stored_form(value), enc_hook=_whole)])
    return Pieces([part for between, wide in zip_longest(texts, aside, fillvalue=()) for part in (between, *wide)])


def _whole(part: object) -> object:
    return part.joined() if isinstance(part, Pieces) else wire.encode_vector(part)


def _head(size: int) -> bytes:
    """What stands before so many bytes in MessagePack."""
    width = 1 if size < 1 << 8 else 2 if size < 1 << 16 else 4
    return bytes((0xC4 + width // 2,)) + size.to_bytes(width, "big")
