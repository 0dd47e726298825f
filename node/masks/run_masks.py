"""The keys and masks of one device in one masked run (docs/attack-model.md, keys of a masked run).

Each member makes an X25519 key for this run and shows it, signed. Two members i and j then have a key in common that
nobody else has, and of it for each question a stream of words m_ij. The one whose name sorts first adds it,
the other one subtracts it: in a sum over all who were told the same, modulo 2^64, every mask cancels,
and what one member sends looks uniform to whoever lacks one of its keys. As in K. Bonawitz et al.,
Practical secure aggregation for privacy-preserving machine learning, 2017,
without their recovery of members that drop out: no mask is ever revealed.

A question is all that was asked: round, attempt, set and point. So the answers to two of them have two pads,
whatever a device remembers: one that was set back within a run, by an old copy of its ledger,
and is asked for something else under a number that it has used, gives no difference away.
The same question again is answered with the same bytes: the machine stores what it sends,
and the gate's note the noise. And members that were told different points, or sets, have nothing to add up.
"""

from __future__ import annotations

import hmac
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from msgspec import Struct

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.patterns.masked_messages import digest
from hushgrid.kernels.privacy.mask_graphs import chosen
from hushgrid.kernels.types import Vector
from hushgrid.node import system
from hushgrid.node.masks.identity import Identity, Trust, fingerprint, framed, statement
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.wire import Mark, decode_state, encode

WORDS = b"hushgrid mask"
PICKS = b"hushgrid picks"
SPARE = 64  #: words beyond one a pick: each is passed over once in 2^50 times
ROUNDS, ATTEMPTS = 1 << 64, 1 << 32  #: that a question can name
SIZE = 1 << 35  #: entries of a pad: 2^32 blocks of 64 bytes, beyond which the counter would wrap

Pad = np.ndarray[tuple[int], np.dtype[np.uint64]]


class Side(Struct, frozen=True, order=True):
    """What is public of one end of a pair."""

    fingerprint: str
    key: bytes  #: X25519, (32,)


def pair_key(private: X25519PrivateKey, run: bytes, side: Side, peer: Side) -> bytes:
    """k_ij (32,), the same at both ends: HKDF-SHA256 (RFC 5869) of the X25519 secret (RFC 7748), without a salt.

    It is bound to the run and to both ends, the smaller fingerprint first.
    Raises ValueError if the peer's key is a point of low order, for which the secret would be the same whatever our key
    is.
    """
    secret = private.exchange(X25519PublicKey.from_public_bytes(peer.key))
    first, second = sorted((side, peer))
    ends = (first.fingerprint.encode(), second.fingerprint.encode(), first.key, second.key)
    return _expand(extract(secret), framed(WORDS, run, *ends))


def extract(secret: bytes) -> bytes:
    """The first half of HKDF-SHA256 (RFC 5869), (32,), without a salt: the same for all that a secret is used for."""
    return hmac.digest(bytes(32), secret, "sha256")


def _expand(extracted: bytes, info: bytes) -> bytes:
    """The second half, (32,): for so few bytes it is one HMAC."""
    return hmac.digest(extracted, info + b"\x01", "sha256")


def question(round: int, attempt: int, among: Sequence[str], x: Vector) -> bytes:
    """What a pad is named by: the round, the attempt, and the digests of set and point as all members were told them.
    x: (d,).
    """
    point = sha256(np.ascontiguousarray(x, dtype="<f8").tobytes()).digest()
    return framed(b"pad", struct.pack("<QI", round, attempt), _digest_of(tuple(among)), point)


@lru_cache(maxsize=8)  # a set is asked again and again
def _digest_of(among: tuple[str, ...]) -> bytes:
    return sha256(b"".join(_parts(among)[1])).digest()


@lru_cache(maxsize=8)
def _parts(among: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    """The names of a set, sorted, and each as it is framed."""
    names = tuple(sorted({*among}))
    return names, tuple(framed(name.encode()) for name in names)


def stream(extracted: bytes, info: bytes, size: int) -> Pad:
    """m_ij (size,) of a question: ChaCha20 (RFC 8439) from block 0 on under HKDF-SHA256(k_ij, question),
    little-endian words. `extracted`: of k_ij.

    A key serves once, so the nonce is 0.
    """
    once = _expand(extracted, info)
    blocks = Cipher(ChaCha20(once, bytes(16)), None).encryptor().update(bytes(8 * size))
    return np.frombuffer(blocks, dtype="<u8").astype(np.uint64, copy=False)


class Pairs:
    """What a device and one other have in common, as each of them computes it."""

    def key(self, private: X25519PrivateKey, run: bytes, side: Side, peer: Side) -> bytes:
        """Extracted of k_ij. Raises ValueError as `pair_key` does."""
        return extract(pair_key(private, run, side, peer))

    def stream(self, extracted: bytes, info: bytes, size: int) -> Pad:
        """As `stream`."""
        return stream(extracted, info, size)


class SharedPairs(Pairs):
    """Of all devices of one process: what the first end of a pair has computed waits for the second one."""

    def __init__(self) -> None:
        self._keys: dict[tuple[bytes, Side, Side], bytes] = {}
        self._streams: dict[tuple[bytes, bytes, int], Pad] = {}

    def key(self, private: X25519PrivateKey, run: bytes, side: Side, peer: Side) -> bytes:
        ends = (run, side, peer) if side.key < peer.key else (run, peer, side)
        if (key := self._keys.pop(ends, None)) is None:
            key = self._keys[ends] = super().key(private, run, side, peer)
        return key

    def stream(self, extracted: bytes, info: bytes, size: int) -> Pad:
        name = (extracted, info, size)
        if (pad := self._streams.pop(name, None)) is None:
            pad = self._streams[name] = super().stream(extracted, info, size)
        return pad


class _Own(Struct, array_like=True, frozen=True):
    """What the ledger keeps of a run. The private key comes first: `ledger_schema.SCHEMA` says why."""

    private: bytes
    introduction: Introduction

    def __repr__(self) -> str:
        return "a run's key"


class RunMasks:
    """Of device `node` in one run. Nothing is made or read before it is asked for.

    Raises Refused if the run can be gone on with by its ledger, but not by its key, which is erased.
    """

    _pairs: Pairs = Pairs()

    def __init__(
        self,
        node: str,
        run: bytes,
        ledger: Ledger,
        identity: Identity,
        trust: Trust,
        exposed: float = 0.0,
        pairs: Pairs | None = None,
    ) -> None:
        """`exposed`: what its graphs of masks add to delta, booked with its key. `pairs`: of all devices of a process,
        if they share them.
        """
        if ledger.runs.lacks_key(run):
            raise Refused(f"{node}: its key of run {run.hex()[:8]} is erased, expected a new run")
        self.node, self.run = node, run
        self._ledger, self._identity, self._trust, self._exposed = ledger, identity, trust, exposed
        self._pairs = pairs or self._pairs
        self._keys: dict[str, bytes] = {}  #: extracted of k_ij, by the peer's name

    def introduction(self) -> Introduction:
        """What this device shows to the others: made at the first call, and in the ledger before it is returned.

        The same bytes ever after, if its certificate is renewed, too. Call it once the run is joined.
        Raises LedgerFailed, and Refused if the run is not under way.
        """
        return self._own().introduction

    def meet(self, introductions: Mapping[str, Introduction]) -> None:
        """Takes what all members have shown, this device among them, by their names.

        Raises Refused if this device does not accept one of them; then none is met. A restart meets them again.
        """
        side, keys, marks = self._own(), dict[str, bytes](), dict[str, Mark]()
        if introductions.get(self.node) != side.introduction:
            raise Refused(f"the introduction of {self.node}: found another one than it has shown")
        private, us = X25519PrivateKey.from_private_bytes(side.private), _side(side.introduction)
        whose = dict[bytes, str]()
        for node, introduction in sorted(introductions.items()):
            if (first := whose.setdefault(introduction.key, node)) != node:
                raise Refused(f"the introduction of {node}: found the key of {first}, expected its own")
            if node == self.node:
                continue
            self._trust.verify(self.run, node, introduction)
            try:
                keys[node] = self._pairs.key(private, self.run, us, _side(introduction))
            except ValueError:
                raise Refused(f"the introduction of {node}: found a key that is none of X25519's") from None
            if introduction.mark:
                marks[node] = _mark_of(node, introduction)
        self._keys = keys
        for node, mark in marks.items():  # stored with the step that follows
            self._ledger.marks.peers.spent(node, mark)

    def picks(self, among: Sequence[str], k: int) -> tuple[str, ...]:
        """k others of a set, sorted: by this run's private key, so that a restart picks the same ones of the same set,
        and nobody can foresee them.
        """
        names, parts = _parts(tuple(among))
        place = bisect_left(names, self.node)
        after = place + (names[place : place + 1] == (self.node,))
        others, info = names[:place] + names[after:], framed(PICKS, self.run) + b"".join(parts[:place] + parts[after:])
        return chosen(map(int, stream(extract(self._own().private), info, k + SPARE)), others, k)

    def pad(
        self,
        round: int,
        attempt: int,
        among: Sequence[str],
        x: Vector,
        size: int,
        neighbours: Mapping[str, bytes] | None = None,
    ) -> Pad:
        """What this device adds to its answer modulo 2^64, (size,), if all members `among` are told this same question.

        `neighbours`: those whom alone it masks with, each with the digest of its own neighbours [all of `among`].
        Raises Refused if that is nobody but this device, or somebody it has not met, or a number is out of range.
        """
        peers = sorted({*among} - {self.node} if neighbours is None else neighbours)
        if not peers or any(peer not in self._keys for peer in peers):
            strangers = [peer for peer in peers if peer not in self._keys]
            raise Refused(
                f"{self.node}: found {', '.join(strangers) or 'nobody'} to mask with, expected members it has met"
            )
        if not (0 <= round < ROUNDS and 0 <= attempt < ATTEMPTS and 0 < size <= SIZE):
            raise Refused(f"{self.node}: found no mask for {size} entries of round {round}, attempt {attempt}")
        total, info = np.zeros(size, dtype=np.uint64), question(round, attempt, among, x)
        ours = b"" if neighbours is None else digest(peers)
        for peer in peers:
            named = info
            if neighbours is not None:
                ends = (ours, neighbours[peer]) if self.node < peer else (neighbours[peer], ours)
                named = framed(b"edge", info, *ends)
            mask = self._pairs.stream(self._keys[peer], named, size)
            if self.node < peer:
                total += mask
            else:
                total -= mask
        return total

    def _own(self) -> _Own:
        return msgspec.msgpack.decode(self._ledger.runs.key(self.run, self._made, self._exposed), type=_Own)

    def _made(self) -> bytes:
        private = X25519PrivateKey.from_private_bytes(system.machine.entropy(32))
        key = private.public_key().public_bytes_raw()
        identity, mark = self._identity, encode(self._ledger.mark)
        signature = identity.sign(statement(self.run, self.node, key, mark))
        introduction = Introduction(key, identity.certificate, signature, mark)
        return msgspec.msgpack.encode(_Own(private.private_bytes_raw(), introduction))


def _mark_of(node: str, introduction: Introduction) -> Mark:
    """How far its sender's ledger has come. Raises Refused if that is no mark."""
    try:
        return decode_state(Mark, introduction.mark)
    except (msgspec.DecodeError, ValueError):
        raise Refused(f"the introduction of {node}: found a mark that is none") from None


def _side(introduction: Introduction) -> Side:
    return Side(fingerprint(introduction.certificate), introduction.key)
