"""Where random bits come from: the operating system, or a counter generator, the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

Entropy = Callable[[int], bytes]  #: n -> n uniform bytes
WORD = 2**64 - 1


def counter_generator(seed: int, node: str, answer: int) -> np.random.Generator:
    """The generator of one answer of one node: Philox keyed by SHA-256 of (seed, node), its counter set by the answer.

    The same in every process; streams of different answers lie 2^128 blocks apart and never meet. Repeatable, and
    therefore private to nobody who knows the seed.
    """
    key = np.frombuffer(hashlib.sha256(f"{seed}:{node}".encode()).digest()[:16], "<u8")
    counter = np.array([0, 0, answer & WORD, answer >> 64], dtype=np.uint64)  # answer 2^128, the lowest word first
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
