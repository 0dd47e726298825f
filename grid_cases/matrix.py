"""Sparse matrices in numpy alone: what a zone's device needs of scipy, which would take 20 MB of its memory.

Sums run in the order of the columns, then of the rows, as scipy's do, and so give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hushgrid.grid_cases.case import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Entries by column (CSC), rows ascending in each, every entry once. Arrays are to be read, never written.

    Names and form are those of scipy's csc_matrix that Clarabel asks for. Raises ValueError if the arrays do not fit.
    """

    data: Floats  #: (entries,)
    indices: Ints  #: (entries,) the row of each
    indptr: Ints  #: (columns + 1,) where each column begins
    shape: tuple[int, int]
    columns: Ints = field(init=False)  #: (entries,) the column of each
    has_canonical_format: ClassVar[bool] = True

    def __post_init__(self) -> None:
        (m, n), counts = self.shape, np.diff(self.indptr)
        if not (self.indptr.shape == (n + 1,) and self.indptr[0] == 0 and np.all(counts >= 0)):
            raise ValueError(f"columns that begin at {self.indptr[:3]}...")
        if not self.data.shape == self.indices.shape == (self.indptr[-1],):
            raise ValueError(f"{self.data.size} entries in {self.indices.size} rows")
        columns = np.repeat(np.arange(n), counts)
        rising = np.diff(columns * m + self.indices) > 0
        if not (np.all(self.indices >= 0) and np.all(self.indices < m) and np.all(rising)):
            raise ValueError("rows that do not ascend in their column")
        object.__setattr__(self, "columns", columns)

    @classmethod
    def from_entries(cls, shape: tuple[int, int], rows: Ints, columns: Ints, data: Floats) -> Matrix:
        """From its entries in any order, each once; one that is zero stays an entry."""
        order = np.lexsort((rows, columns))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=shape[1]))])
        return cls(np.asarray(data, np.float64)[order], rows[order].astype(np.int64), indptr.astype(np.int64), shape)

    def __matmul__(self, x: Floats) -> Floats:
        """The product with a vector, shape (columns,) -> (rows,)."""
        return np.bincount(self.indices, self.data * x[self.columns], self.shape[0]).astype(np.float64, copy=False)

    @property
    def T(self) -> Matrix:
        return Matrix.from_entries((self.shape[1], self.shape[0]), self.columns, self.indices, self.data)

    def gram(self) -> Floats:
        """A A^T, dense, shape (rows, rows)."""
        counts = np.diff(self.indptr)[self.columns]  # each entry meets every entry of its column
        first = np.repeat(np.arange(self.data.size), counts)
        second = (
            np.arange(first.size) - np.repeat(np.cumsum(counts) - counts, counts) + self.indptr[self.columns[first]]
        )
        m = self.shape[0]
        places = self.indices[first] * m + self.indices[second]
        return (
            np.bincount(places, self.data[first] * self.data[second], m * m)
            .astype(np.float64, copy=False)
            .reshape(m, m)
        )

    def toarray(self) -> Floats:
        dense = np.zeros(self.shape)
        dense[self.indices, self.columns] = self.data
        return dense

    def scipy(self) -> Any:
        """As scipy's csc_array, where more is to be done with it than a device does."""
        from scipy import sparse

        return sparse.csc_array((self.data, self.indices, self.indptr), shape=self.shape)
