"""What is said in a masked run, and how a sum is decoded of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.types import Vector


class KeyRequest(Struct, tag="masked.meet", frozen=True):
    """Centre to member: introduce yourself."""


class Introduced(Struct, tag="masked.introduced", frozen=True):
    """Centre to member: these are all that take part."""

    introductions: dict[str, Introduction]


class KeysAck(Struct, tag="masked.met", frozen=True):
    """Member to centre: it knows them all."""


class Draw(Struct, tag="masked.draw", frozen=True):
    """Centre to member: pick your neighbours in the set of all members but these, names sorted."""

    absent: tuple[str, ...]


class Picks(Struct, tag="masked.picks", frozen=True):
    """Member to centre: whom it has picked, names sorted."""

    names: tuple[str, ...]


class Edges(Struct, tag="masked.edges", frozen=True):
    """Centre to member: its neighbours and itself, and of each neighbour the digest of its own neighbours."""

    introductions: dict[str, Introduction]
    digests: dict[str, bytes]


class Ask(Struct, tag="masked.ask", frozen=True):
    """Centre to member: the share at x, masked among these, names sorted; none named: the set that was drawn for.

    One (round, attempt) is asked once.
    """

    round: int
    attempt: int
    among: tuple[str, ...]
    x: np.ndarray


class Masked(Struct, tag="masked.share", frozen=True, omit_defaults=True):
    """Member to centre: d words of 64 bits, little-endian. Without all others of its set they are uniform."""

    share: bytes = msgspec.field(name="words")
    among: tuple[str, ...] = ()  #: of a site: the devices whose sum it is, names sorted


class Result(Struct, tag="masked.told", frozen=True):
    """Centre to member: what came of the run."""

    x: np.ndarray


class ResultAck(Struct, tag="masked.kept", frozen=True):
    """Member to centre: it is stored."""


Message = KeyRequest | Introduction | Introduced | Draw | Picks | Edges | KeysAck | Ask | Masked | Result | ResultAck
Answer = Introduction | Picks | KeysAck | Masked | ResultAck


def digest(neighbours: Iterable[str]) -> bytes:
    """Of a device's neighbours, (16,)."""
    return sha256(repr(sorted(neighbours)).encode()).digest()[:16]


def added(messages: Sequence[bytes]) -> NDArray[np.uint64]:
    """(d,) the words of these messages, added modulo 2^64."""
    total = np.zeros(len(messages[0]) // 8, dtype=np.uint64)
    for message in messages:
        total += np.frombuffer(message, dtype="<u8")
    return total


def decoded(messages: Sequence[bytes], g: float) -> Vector:
    """(d,) the sum of the values behind these messages, in their unit: right if they are those of one whole set."""
    values: Vector = added(messages).view(np.int64).astype(np.float64) * g
    return values
