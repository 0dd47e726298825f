"""What is recovered of a node: its gradients, and the rows behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.types import Matrix, Vector

What = Literal["gradient", "noisy answer"]
Method = Literal["rank-one", "class-sums", "matching", "none"]


@dataclass(frozen=True, eq=False)
class Gradients:
    """What one node's messages say of its gradients: V points and the gradients there, in order. NaN where hidden."""

    points: Matrix  #: (V, d)
    g: Matrix  #: (V, d)
    when: NDArray[np.int64]  #: (V,) the activation, from 0, or the round, from 1
    what: What

    @property
    def complete(self) -> NDArray[np.bool_]:
        """(V,) whether no coordinate of the point or of the gradient is hidden."""
        return np.array(np.isfinite(np.hstack([self.points, self.g])).all(axis=1), dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that stand behind gradients. An attack that has failed says so itself: `consistent`."""

    rows: Matrix  #: (r, q)
    labels: Vector  #: (r,)
    method: Method
    #: rank one: sigma_2/sigma_1; else |G(rows) - G|/|G| over all gradients used; NaN if nothing is left to check with
    residual: float

    @property
    def consistent(self) -> bool:
        """Whether the rows explain the gradients to 1e-6, and there was more to explain than unknowns to fit."""
        return bool(self.residual <= CONSISTENT)


CONSISTENT = 1e-6  #: of a residual
#: no rows
NONE = Rows(np.zeros((0, 0)), np.zeros(0), "none", np.nan)


def gradients_of(exchanges: dict[str, list[tuple[int, Vector, Vector]]], what: What, size: int) -> dict[str, Gradients]:
    """From (when, point, gradient) of each node, in order. size: d."""

    def stacked(vectors: Sequence[Vector]) -> Matrix:
        return np.array(vectors, dtype=np.float64).reshape(len(vectors), size)

    return {
        node: Gradients(
            stacked([point for _, point, _ in each]),
            stacked([g for *_, g in each]),
            np.array([when for when, *_ in each], dtype=np.int64),
            what,
        )
        for node, each in exchanges.items()
    }
