"""Rows that are made up, of a shape that is declared: what `hushgrid plan` plays runs on in place of data.

What is assumed of the rows, because no public number says it:

 - spread: before they are normalised, row a = m + sum_k k^(-1/2) xi_k e_k, xi standard normal, over the q features in a
   random order, m a random direction with as much square length as the rest. Counts, classes coded by ones and sensors'
   readings have such a mean and such a decay; rows without a mean and alike in all directions are easier.
 - length: unit rows where the scenario normalises; else the longest row made is as long as `row_bound`.
 - labels: of a linear model whose weights fall as the spread does, its margins scaled to a standard deviation of 2
   (logistic) or 4 (softmax, each class'), which gets about one row in five wrong; least squares: model and noise vary
   alike, 1 in all.
 - nodes: all draw from one source: alike shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.problems.losses import Kind
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.node.problems.records.data import unit_rows
from hushgrid.node.problems.records.files import Shard

MARGIN = {"logistic": 2.0, "softmax": 4.0, "least-squares": 0.5**0.5}  #: standard deviation of a model's margins
WORDS = (
    "rows with a mean as large as their spread, which falls as k^(-1/2) over directions k",
    "labels of one linear model with noise, which gets about one row in five wrong (least squares: half the variance)",
    "all nodes draw from one source: alike shards",
)


class Source(NamedTuple):
    """One made-up population."""

    seed: int
    kind: Kind
    R: float  #: no row is longer
    mean: Vector  #: (q,)
    spread: Vector  #: (q,)
    model: Matrix  #: (q, C); C = 1 but for softmax
    length: float  #: that of a row which is then R long; 0: every row is

    def raw(self, m: int, draw: np.random.Generator) -> Matrix:
        """m rows before they have their length."""
        A: Matrix = self.mean + draw.normal(size=(m, self.mean.size)) * self.spread
        return A

    def rows(self, m: int, stream: str) -> Shard:
        """m rows of a stream of their own."""
        draw = counter_generator(self.seed, f"made up {stream}", 0)
        A = self.raw(m, draw)
        if self.length:  # the few that are longer than the longest of the first are shortened
            A /= np.maximum(np.linalg.norm(A, axis=1, keepdims=True), self.length)
        else:
            A = unit_rows(A)
        A *= self.R * (1 - 2.0**-30)  # a norm is known to its own rounding
        t = A @ self.model
        if self.kind == "least-squares":
            b = t[:, 0] + 0.5**0.5 * draw.normal(size=m)
        elif self.kind == "logistic":
            b = np.where(draw.random(m) * (1 + np.exp(-t[:, 0])) < 1, 1.0, -1.0)
        else:  # the largest of t + Gumbel noise is softmax distributed
            b = np.argmax(t + draw.gumbel(size=t.shape), axis=1).astype(np.float64)
        return Shard(A, b)


def source(seed: int, kind: Kind, features: int, classes: int, R: float, unit: bool) -> Source:
    """A population of rows of `features` entries, at most R long; `unit`: all alike, of length 1."""
    q, draw = features, counter_generator(seed, "made up", 0)
    spread = draw.permutation(np.arange(1, q + 1) ** -0.5)
    mean = draw.normal(size=q)
    mean *= np.sqrt(np.sum(spread**2)) / np.linalg.norm(mean)
    model = spread[:, None] * draw.normal(size=(q, classes if kind == "softmax" else 1))
    population = Source(seed, kind, min(R, 1.0) if unit else R, mean, spread, model, 0.0)
    if not unit:
        first = population.raw(1000, counter_generator(seed, "made up length", 0))
        population = population._replace(length=float(np.max(np.linalg.norm(first, axis=1))))
    margins = population.rows(1000, "margins").A @ model
    return population._replace(model=model * (MARGIN[kind] / np.std(margins)))


def shards(population: Source, rows: Sequence[int]) -> list[Shard]:
    """Each node's rows."""
    return [population.rows(m, f"n{i}") for i, m in enumerate(rows)]
