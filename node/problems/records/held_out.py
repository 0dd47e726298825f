"""`problem.test`: how good models are on rows that no node has learned from.

These rows are public: nothing protects them. A model is a function of gate answers, so its error on them is, too, and
may be stated of a private run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from hushgrid.kernels.types import Document, Vector
from hushgrid.node.problems.records.data import load_test
from hushgrid.node.problems.records.section import DataProblem

KEY = "test_error"  #: of the common model, in history and result; that of node i is KEY_<node>
AT_ONCE = 1 << 24  #: margins that are computed at once


class HeldOut:
    """The rows that models of q features and C classes are tested on: `problem.test`. Raises InputError."""

    def __init__(self, problem: DataProblem, features: int, classes: int) -> None:
        assert problem.test is not None
        self.kind, self.classes = problem.kind, classes
        self.path = Path(problem.test)
        self.A, self.b = load_test(problem.data, self.path, problem.kind, features)

    @property
    def description(self) -> Document:
        """`test` of result.json."""
        measure = "root mean squared error" if self.kind == "least-squares" else "share of rows that are wrong"
        return {"file": self.path.name, "rows": len(self.b), "measure": measure, "trivial": self.trivial}

    @property
    def sentence(self) -> str:
        return f"tested on the {len(self.b):,} rows of {self.path.name}, which are public: nothing protects them"

    @cached_property
    def trivial(self) -> float:
        """The error of the best model that does not look at a row: the commonest label, or the labels' mean."""
        if self.kind == "least-squares":
            return float(np.std(self.b))
        return float(1 - np.unique(self.b, return_counts=True)[1].max() / len(self.b))

    def errors(self, X: np.ndarray) -> list[float | None]:
        """Of each model in X, shape (T, d): the share of rows that it gets wrong; of least squares the root of the mean

        squared error. None if the model is not finite.
        """
        at_once = max(1, AT_ONCE // (len(self.b) * self.classes))
        return [
            float(e) if np.isfinite(e) else None
            for k in range(0, len(X), at_once)
            for e in self._errors(X[k : k + at_once])
        ]

    def _errors(self, X: np.ndarray) -> Vector:
        with np.errstate(over="ignore", invalid="ignore"):
            margins = self.A @ X.reshape(len(X) * self.classes, -1).T  # (m, T C), class by class of each model
            if self.kind == "least-squares":
                errors: Vector = np.sqrt(np.mean((margins - self.b[:, None]) ** 2, axis=0))
                return errors
            labels: Vector = self._labels(margins.reshape(len(self.b), len(X), self.classes))
        wrong: Vector = np.mean(labels != self.b[:, None], axis=0)
        wrong[~np.isfinite(X).all(axis=1)] = np.nan
        return wrong

    def _labels(self, margins: np.ndarray) -> np.ndarray:
        """What each model says of each row. margins: (m, T, C)."""
        if self.kind == "softmax":
            classes: np.ndarray = np.argmax(margins, axis=2)
            return classes
        return np.where(margins[:, :, 0] > 0, 1.0, -1.0)

    def columns(
        self, common: np.ndarray, node_iterates: Mapping[str, np.ndarray], last: int
    ) -> dict[str, list[float | None]]:
        """Columns of the history, (T,) each, of the `last` rounds; of the others None. common: (T, d).
        own: by node, (T, d), or (1, d) at the end only.
        """
        T = len(common)
        columns = {}
        for key, x in {KEY: common, **{f"{KEY}_{name}": x for name, x in node_iterates.items()}}.items():
            known = x[-min(T, last) :] if T else x[:0]
            unknown: list[float | None] = [None] * (T - len(known))
            columns[key] = unknown + self.errors(known)
        return columns
