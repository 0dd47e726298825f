"""What stands around a message in a fleet with `trust:`: who sends it, and the proof. As MessagePack of tagged structs.

Nothing here proves anything: that is `node/trust/`. So a program that only looks at a fleet can read what is inside.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from hushgrid.kernels.machine import Malformed

KEY = 32  #: bytes of a public key, X25519
KEY_ID = 4  #: bytes that say which key a tag is made with
TAG = 16  #: bytes of a keyed BLAKE2b

Key = Annotated[bytes, Meta(min_length=KEY, max_length=KEY)]
Tag = Annotated[bytes, Meta(min_length=KEY_ID + TAG, max_length=KEY_ID + TAG)]
Number = Annotated[int, Meta(ge=1, le=1 << 62)]  #: of a message on its topic, in its sender's session
Signature = Annotated[bytes, Meta(max_length=1024)]


class Hello(Struct, tag="hello", array_like=True, frozen=True):
    """On an edge: its sender's key of this session, signed. It holds for one receiver."""

    key: Key
    certificate: Annotated[bytes, Meta(max_length=8192)]  #: X.509 in DER; its common name is the sender's
    ledger: Annotated[bytes, Meta(max_length=16)]
    session: Annotated[int, Meta(ge=0, le=1 << 62)]  #: of that ledger: a later one replaces it
    echo: Annotated[bytes, Meta(max_length=KEY)]  #: the receiver's key, as far as the sender knows; empty: it does not
    wants: bool  #: whether the sender still lacks the receiver's hello to this key
    #: number of its last signed message on its topic of each kind: an earlier one does not stand any more
    standing: dict[Literal["all", "state"], Number]
    signature: Signature


class Sealed(Struct, tag="sealed", array_like=True, frozen=True):
    """On an edge: a message with a tag that only its two ends can make."""

    number: Number
    tag: Tag
    message: bytes


class Broadcast(Struct, tag="broadcast", array_like=True, frozen=True):
    """To all neighbours: a message with such a tag for each of them."""

    number: Number
    tags: dict[str, Tag]
    message: bytes


class Signed(Struct, tag="signed", array_like=True, frozen=True):
    """To whoever hears the topic: a birth, the coordinator's state, a plan. Signed by its sender's certificate."""

    number: Number
    key: Key  #: the sender's of this session
    signature: Signature
    message: bytes


Frame = Hello | Sealed | Broadcast | Signed
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
encode = msgspec.msgpack.Encoder().encode


def decode(payload: bytes) -> Frame:
    """The frame in `payload`. Raises Malformed on anything else."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError) as error:
        raise Malformed(str(error)[:200]) from None


def unproven(payload: bytes) -> bytes:
    """The message inside a signed frame, whoever made it; `payload` itself if it is no frame."""
    try:
        frame = decode(payload)
    except Malformed:
        return payload
    return frame.message if isinstance(frame, Signed) else payload
