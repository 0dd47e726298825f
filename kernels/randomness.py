"""Where random bits come from: the operating system, or a counter generator, the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

Entropy = Callable[[int], bytes]  #: n -> n uniform bytes
WORD = 2**64 - 1
#: Of Philox4x64-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def counter_generator(seed: int, node: str, answer: int) -> np.random.Generator:
    """The generator of one answer of one node: Philox keyed by SHA-256 of (seed, node), its counter set by the answer.

    The same in every process; streams of different answers lie 2^128 blocks apart and never meet. Repeatable, and
    therefore private to nobody who knows the seed.
    """
    key = np.array(_key(seed, node), dtype=np.uint64)
    counter = np.array([0, 0, answer & WORD, answer >> 64], dtype=np.uint64)  # answer 2^128, the lowest word first
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def counter_word(seed: int, node: str, answer: int) -> int:
    """The first 8 bytes of that generator, as a little-endian number.

    A device that needs no more than this does not load numpy's generators, which take 3 MB.
    """
    key, c = _key(seed, node), (1, 0, answer & WORD, answer >> 64)
    for k in range(10):
        high, low = zip(*(divmod(m * x, WORD + 1) for m, x in zip(MULTIPLIERS, c[::2], strict=True)), strict=True)
        bumped = [(one + k * step) & WORD for one, step in zip(key, WEYL, strict=True)]
        c = (high[1] ^ c[1] ^ bumped[0], low[1], high[0] ^ c[3] ^ bumped[1], low[0])
    return c[0]


def _key(seed: int, node: str) -> tuple[int, int]:
    digest = hashlib.sha256(f"{seed}:{node}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
