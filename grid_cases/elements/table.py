"""Columns of one length, read-only: what a case is made of."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of one length: read-only arrays, one entry per element."""

    def __post_init__(self) -> None:
        lengths = set()
        for column in fields(self):
            kind = np.int64 if column.type == "Ints" else np.float64
            values = np.array(getattr(self, column.name), kind)
            values.flags.writeable = False
            object.__setattr__(self, column.name, values)
            lengths.add(values.shape[0])
        if len(lengths) != 1:
            raise InputError(f"{type(self).__name__}: found columns of lengths {sorted(lengths)}, expected one length")

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))


T = TypeVar("T", bound=Table)


def rows_but(table: T, without: NDArray[np.bool_]) -> T:
    """The table without these rows, a mask."""
    return replace(table, **{column.name: getattr(table, column.name)[~without] for column in fields(table)})
