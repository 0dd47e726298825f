"""The arrays of the mathematics, by the number of their axes (sizes stand in the docstrings), and documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  #: one axis
Matrix = NDArray[np.float64]  #: two
Tensor = NDArray[np.float64]  #: three or more
AnyArray = NDArray[Any]  #: of any type of number, any number of axes
Index = NDArray[np.int64]  #: whole numbers: positions, counts
Document = dict[str, Any]  #: of JSON or YAML, as it was read or is to be written: by its keys, of any depth
DocumentView = Mapping[str, Any]  #: one that is only read
