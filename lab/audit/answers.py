"""A gate's answers in bulk: its own values for either of two data sets, its own sampler, its own release.

A gate is asked once about each data set, and what it would release without noise is noted. Noise is then drawn for many
games at once by the same `Lattice.sample` and added by the same `Lattice.release` as the gate's
(kernels/privacy/noise.py), a hundred thousand games in a second. Coordinates on which the two data sets agree carry the
same noise about either, independent of the others: they tell nothing, and are drawn only where a test looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import Any, Protocol

import numpy as np

from hushgrid.kernels.privacy.noise import Kind, Lattice, simulated
from hushgrid.kernels.privacy.perturbation import Perturbation
from hushgrid.kernels.randomness import Entropy
from hushgrid.kernels.types import Index, Matrix, Vector
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.noise_source import NoiseSource, Purpose


class Likely(Protocol):
    """One answer in games."""

    @property
    def kind(self) -> Kind: ...
    @property
    def values(self) -> tuple[Vector, Vector]:
        """(w,) about either data set, before noise."""
        ...

    @property
    def apart(self) -> Index:
        """The coordinates that tell the data sets apart."""
        ...

    def drawn(self, games: int, world: int, where: Index, entropy: Entropy) -> Matrix:
        """(games, where.size): answers about one of the data sets, at some coordinates."""
        ...

    def ratio(self, y: Matrix, where: Index) -> Vector:
        """(games,): log of how much likelier answers are about the first data set."""
        ...


Ask = Callable[[Any], object]  #: a question to a gate


class Quiet(NoiseSource):
    """No noise: a gate that has it answers with its value on the grid. It notes what law a paper's noise would have."""

    sampler = source = "none"

    def __init__(self) -> None:
        self.queries: list[tuple[Kind, float]] = []

    def entropy(self, purpose: Purpose, number: int) -> Entropy:
        return bytes

    def generator(self, purpose: Purpose, number: int) -> np.random.Generator:
        raise NotImplementedError(f"{purpose}: a gate was asked for what is no answer")

    def take(self, lattice: Lattice, size: int, answer: int) -> Index:
        return np.zeros(size, dtype=np.int64)

    def perturbation(self, p: Perturbation, size: int, answer: int) -> tuple[Vector, Vector, Index]:
        return np.zeros(size), np.zeros(1), np.zeros(size, dtype=np.int64)

    def of_paper(self, kind: Kind, scale: float, size: int, answer: int) -> Vector:
        self.queries.append((kind, scale))
        return np.zeros(size)


@dataclass(frozen=True)
class Answer:
    """One answer of a gate, as who knows both data sets sees it."""

    kind: Kind
    values: tuple[Vector, Vector]  #: (w,) about either data set, before grid and noise
    scale: float  #: of the noise, in the values' unit
    lattice: Lattice | None  #: None: noise in floating point, of a paper
    shares: int = (
        1  #: h of a masked run: what is seen is a sum in which so many devices have added noise from the lattice
    )

    @property
    def apart(self) -> Index:
        """The coordinates on which the data sets differ."""
        one, other = self.values
        if self.lattice is None:
            return np.flatnonzero(one != other)
        return np.flatnonzero(np.rint(one / self.lattice.g) != np.rint(other / self.lattice.g))

    def of_shares(self, h: int) -> Answer:
        """The same of a masked run, as who sees a sum of h shares sees it."""
        assert self.lattice is not None
        return replace(self, scale=self.lattice.scale * sqrt(h), shares=h)

    @property
    def distance(self) -> float:
        """In the mechanism's norm: L1 (laplace) or L2, of what is released without noise."""
        one, other = self.values
        return float(np.linalg.norm(one - other, 1 if self.kind == "laplace" else 2))

    def drawn(self, games: int, world: int, where: Index, entropy: Entropy) -> Matrix:
        """(games, where.size): answers about one of the data sets, at some coordinates."""
        v = self.values[world][where]
        if self.lattice is None:
            dice = np.random.Generator(np.random.Philox(key=int.from_bytes(entropy(8), "little")))
            noise = simulated(self.kind, self.scale, games * v.size, dice)
            return v + noise.reshape(games, v.size)
        n = np.sum([self.lattice.sample(games * v.size, entropy) for _ in range(self.shares)], axis=0)
        return self.lattice.release(np.tile(v, games), n).reshape(games, v.size)

    def on_grid(self, world: int) -> Vector:
        """What is released without noise."""
        v, g = self.values[world], self.lattice.g if self.lattice else 0.0
        return np.rint(v / g) * g if g else v

    def ratio(self, y: Matrix, where: Index) -> Vector:
        """(games,) log of how much likelier answers are about the first data set, by the law that the gate claims.

        On the grid: of Laplace noise exactly; of Gaussian noise that of the continuous law, 1/(24 t^2) from the rounded
        one's.
        """
        one, other = self.on_grid(0)[where], self.on_grid(1)[where]
        if self.kind == "laplace":
            ratio: Vector = np.sum(np.abs(y - other) - np.abs(y - one), axis=1) / self.scale
            return ratio
        return (y - (one + other) / 2) @ (one - other) / self.scale**2


def releases_of(gate: Gate, ask: Ask) -> list[tuple[Lattice, Vector]]:
    """What a gate without noise releases on a question: (lattice, value before the grid) of each answer.

    Raises ValueError if the gate has no noise of its own.
    """
    releases: list[tuple[Lattice, Vector]] = []
    if gate.lattice is None:
        raise ValueError("found a gate without noise of its own")
    known = lattice = gate.lattice

    class Noting(Lattice):
        def release(self, v: Vector, n: Index) -> Vector:
            releases.append((known, np.array(v)))
            return super().release(v, n)

    gate.lattice = Noting(**asdict(lattice))
    try:
        ask(gate)
    finally:
        gate.lattice = lattice
    return releases


def honest_sum(gates: Sequence[Any], x: Vector) -> Answer:
    """What a point makes two gates of a masked run release, with the shares of the other honest devices: their values
    are known.
    """
    lattice, h = gates[0].masked.lattice, gates[0].masked.honest
    one, other = (gate.share(x, b"") * lattice.g for gate in gates)
    return Answer("gaussian", (one, other), lattice.scale * sqrt(h), lattice, h)


def answers_of(gates: Sequence[Gate], ask: Ask) -> list[Answer]:
    """What a question makes two gates release, which have Quiet noise and either data set.

    Raises ValueError if one answers more often than the other.
    """
    if gates[0].lattice is not None:
        (one, other) = (releases_of(gate, ask) for gate in gates)
        if len(one) != len(other):
            raise ValueError("found two gates that answer differently often")
        return [
            Answer(lattice.kind, (v, w), lattice.scale, lattice)
            for (lattice, v), (_, w) in zip(one, other, strict=True)
        ]
    values = [np.asarray(ask(gate)) for gate in gates]
    quiet = gates[0].noise
    assert isinstance(quiet, Quiet)
    kind, scale = quiet.queries[-1]
    return [Answer(kind, (values[0], values[1]), scale, None)]
