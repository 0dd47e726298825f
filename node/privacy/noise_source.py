"""The one place where a device draws random numbers: the noise of its gate's answers, and a node's own random numbers.

`SystemNoise` is what a device uses: the exact samplers of kernels/privacy/noise.py, fed by the operating system's
entropy. The time that a sampler takes depends on the noise, so noise for the next answers is drawn ahead into a pool,
after the last publish. `SeededNoise` is for simulation: the same samplers, fed by a counter generator, give the same
bits in every process, and are private only from those that do not know the seed. A paper's own noise (variant
`published`) and a node's own random numbers are in floating point, and part of no guarantee.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from hushgrid.kernels.privacy.noise import Kind, Lattice, simulated
from hushgrid.kernels.privacy.perturbation import Perturbation, spherical
from hushgrid.kernels.randomness import Entropy, counter_generator
from hushgrid.kernels.types import Index, Vector
from hushgrid.node import system

#: What random numbers are for. Each purpose has its own stream, so that two answers never get the same noise.
Purpose = Literal["answer", "minimizer", "published", "draws"]

PAPER_SAMPLER = "numpy (simulation)"  #: the sampler of a paper's own noise, in floating point


class NoiseSource(ABC):
    """The random numbers of one node in one run. Answers are numbered from 1."""

    sampler: str  #: how the noise of an answer is drawn, in the words of the ledger and the report
    source: str  #: part of an answer's key: an answer whose noise is known by a seed is never repeated as private

    @abstractmethod
    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        """Uniform random bytes for the exact samplers, from the start of the stream (purpose, number)."""

    @abstractmethod
    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        """The stream (purpose, number) in floating point, for what is no part of a guarantee."""

    # --- the noise of a gate's answers ---

    def take(self, lattice: Lattice, size: int, answer: int) -> Index:
        """The exact noise of one answer, in grid steps. Shape (size,)."""
        return lattice.sample(size, self.entropy("answer", answer))

    def refill(self, lattice: Lattice, size: int, answers: int) -> None:
        """Draws noise for the next `answers` answers, if noise is drawn ahead. Called when no answer is waited for."""
        return

    def perturbation(self, p: Perturbation, size: int, answer: int) -> tuple[Vector, Vector, Index]:
        """The noise of a private minimiser's answer, drawn when it is asked because it depends on the question.

        Returns the random linear term eps (size,), a bound on its rounding error in the L2 norm (1,), and the noise of
        the output xi (size,), in grid steps.
        """
        entropy, eps, rounded = self.entropy("minimizer", answer), np.zeros(size), 0.0
        if p.alpha:
            eps, rounded = spherical(size, p.alpha, entropy)
        return eps, np.array([rounded]), p.lattice.sample(size, entropy)

    # --- floating point ---

    def of_paper(self, kind: Kind, scale: float, size: int, answer: int) -> Vector:
        """The noise of one answer as a paper draws it, shape (size,). `scale`: Laplace's b, or the Gaussian's sigma."""
        return simulated(kind, scale, size, self.generator("answer", answer))

    def of_message(self, scale: float, size: int, number: int) -> Vector:
        """A paper's Laplace noise on a node's message, shape (size,), of scale b = `scale`; zeros if it is 0."""
        return simulated("laplace", scale, size, self.generator("published", number)) if scale else np.zeros(size)

    def draws(self, number: int) -> np.random.Generator:
        """A node's own random numbers, no noise of its gate: its start point (0), the draws of PI-ADMM (1, 2, ...)."""
        return self.generator("draws", number)


class SystemNoise(NoiseSource):
    """For devices: the operating system's entropy. An object's pool is of one size."""

    sampler = "exact, operating-system entropy"
    source = "entropy"

    def __init__(self) -> None:
        self.pool: dict[Lattice, list[Index]] = {}  #: noise of later answers, each (size,) in grid steps

    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        return system.machine.entropy

    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        return np.random.default_rng()

    def take(self, lattice: Lattice, size: int, answer: int) -> Index:
        if not (ahead := self.pool.get(lattice, [])):
            self.refill(lattice, size, 1)
            ahead = self.pool[lattice]
        n = ahead.pop()
        if not ahead:
            del self.pool[lattice]
        return n

    def refill(self, lattice: Lattice, size: int, answers: int) -> None:
        ahead = self.pool.get(lattice, [])
        if answers > 0 and len(ahead) <= answers // 2:
            self.pool[lattice] = ahead
            ahead.extend(lattice.sample(answers * size).reshape(answers, size))


class SeededNoise(NoiseSource):
    """For simulation: a counter generator keyed by (seed, node and purpose, number). Nothing is drawn ahead."""

    sampler = "exact, seeded (simulation: not private)"

    def __init__(self, seed: int, node: str) -> None:
        self.seed, self.node, self.source = seed, node, f"seed {seed}"

    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        return self.generator(purpose, number).bytes

    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        return counter_generator(self.seed, self.node if purpose == "answer" else f"{self.node} {purpose}", number)


def noise_source(seed: int | None, node: str) -> NoiseSource:
    """The seeded noise of a node if there is a seed, else noise from the operating system's entropy."""
    seed = system.machine.seed if seed is None else seed
    return SystemNoise() if seed is None else SeededNoise(seed, node)
