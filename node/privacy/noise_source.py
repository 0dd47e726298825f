"""The one place where a device draws: the noise of its gate's answers, and a node's own random numbers.

`SystemNoise` is what a device uses: the exact samplers of kernels/privacy/noise.py, fed by the operating system's entropy. The
noise of the next answers is drawn ahead into a pool, after the last publish, because the time a sampler takes tells
about the noise. `SeededNoise` is for simulation: the same samplers, fed by a counter generator, give the same bits in
every process and are private to nobody who knows the seed. A paper's own noise (variant `published`) and a node's own
random numbers are floating point, and part of no guarantee.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from hushgrid.kernels.privacy.noise import Kind, Lattice, simulated
from hushgrid.kernels.privacy.perturbation import Perturbation, spherical
from hushgrid.kernels.randomness import Entropy, counter_generator
from hushgrid.kernels.types import Index, Vector

#: What numbers are drawn for. Each purpose has a stream of its own: bits used twice would be two answers to one noise.
Purpose = Literal["answer", "minimizer", "published", "draws"]

PAPER_SAMPLER = "numpy (simulation)"  #: of a paper's own noise: floating point, numpy's generator


class NoiseSource(ABC):
    """All that is random on one node in one run. Answers count from 1."""

    sampler: str  #: how the noise of an answer is drawn, as the ledger and the report say it
    source: str  #: part of what an answer is kept under: an answer of known noise is never repeated as private

    @abstractmethod
    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        """Uniform bytes for the exact samplers, from the start of one number's stream."""

    @abstractmethod
    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        """One number's stream in floating point: for what is no part of a guarantee."""

    # --- the noise of a gate's answers ---

    def take(self, lattice: Lattice, size: int, answer: int) -> Index:
        """The exact noise of one answer, in grid steps. Shape (size,)."""
        return lattice.sample(size, self.entropy("answer", answer))

    def refill(self, lattice: Lattice, size: int, answers: int) -> None:
        """Draw for this many coming answers, where noise is drawn ahead; called when nothing waits for it."""
        return

    def perturbation(self, p: Perturbation, size: int, answer: int) -> tuple[Vector, Vector, Index]:
        """The noise of a private minimiser: eps (size,), a bound of its rounding in L2 (1,), xi in grid steps (size,).

        It depends on what is asked, so it is drawn when it is asked for.
        """
        entropy, eps, rounded = self.entropy("minimizer", answer), np.zeros(size), 0.0
        if p.alpha:
            eps, rounded = spherical(size, p.alpha, entropy)
        return eps, np.array([rounded]), p.lattice.sample(size, entropy)

    # --- floating point ---

    def of_paper(self, kind: Kind, scale: float, size: int, answer: int) -> Vector:
        """The noise of one answer as a paper has it. `scale`: Laplace's b, or sigma. Shape (size,)."""
        return simulated(kind, scale, size, self.generator("answer", answer))

    def of_message(self, scale: float, size: int, number: int) -> Vector:
        """A paper's Laplace noise on a node's message, of a scale of its own; zeros if it is 0. Shape (size,)."""
        return simulated("laplace", scale, size, self.generator("published", number)) if scale else np.zeros(size)

    def draws(self, number: int) -> np.random.Generator:
        """A node's own random numbers, no noise of its gate: its start (0), what PI-ADMM draws (1, 2, ...)."""
        return self.generator("draws", number)


class SystemNoise(NoiseSource):
    """Production: the operating system's entropy. One pool, hence one lattice and one size, for each object."""

    sampler = "exact, operating-system entropy"
    source = "entropy"

    def __init__(self) -> None:
        self.pool: list[Index] = []  #: noise of answers to come

    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        return os.urandom

    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        return np.random.default_rng()

    def take(self, lattice: Lattice, size: int, answer: int) -> Index:
        if not self.pool:
            self.refill(lattice, size, 1)
        return self.pool.pop()

    def refill(self, lattice: Lattice, size: int, answers: int) -> None:
        if len(self.pool) <= answers // 2:
            self.pool.extend(lattice.sample(answers * size).reshape(answers, size))


class SeededNoise(NoiseSource):
    """Simulation: a counter generator keyed by (seed, node and purpose, number), so that nothing is drawn ahead."""

    sampler = "exact, seeded (simulation: not private)"

    def __init__(self, seed: int, node: str) -> None:
        self.seed, self.node, self.source = seed, node, f"seed {seed}"

    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        return self.generator(purpose, number).bytes

    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        return counter_generator(self.seed, self.node if purpose == "answer" else f"{self.node} {purpose}", number)


def noise_source(seed: int | None, node: str) -> NoiseSource:
    """The operating system's entropy, or where a seed is given the seeded noise of a node."""
    return SystemNoise() if seed is None else SeededNoise(seed, node)
