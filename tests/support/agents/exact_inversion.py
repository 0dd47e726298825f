"""Samplers by arbitrary-precision inversion, and lattices to try them on."""

from __future__ import annotations

import numpy as np


class Stream:
    """Uniform words from a seed, given ones first; remembers how much was asked for."""

    def __init__(self, seed: int, first: list[int] | None = None, then: list[int] | None = None) -> None:
        self.generator = np.random.Generator(np.random.Philox(seed))
        self.waiting = list(first or []) + list(then or [])
        self.words = 0

    def __call__(self, size: int) -> bytes:
        count = size // 8
        self.words += count
        given_words, self.waiting = self.waiting[:count], self.waiting[count:]
        return b"".join(w.to_bytes(8, "little") for w in given_words) + self.generator.bytes(
            8 * (count - len(given_words))
        )
