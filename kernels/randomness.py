"""Where random bits come from: the operating system, or a counter generator, the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

Entropy = Callable[[int], bytes]  #: n -> n uniform bytes


def counter_generator(seed: int, node: str, answer: int) -> np.random.Generator:
    """The generator of one answer of one node: Philox keyed by SHA-256 of (seed, node), its counter set by the answer.

    The same in every process; streams of different answers lie 2^128 blocks apart and never meet. Repeatable, and
    therefore private to nobody who knows the seed.
    """
    key = int.from_bytes(hashlib.sha256(f"{seed}:{node}".encode()).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key, counter=answer << 128))
