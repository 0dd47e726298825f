"""The arrays of the mathematics, by the number of their axes. Sizes stand in the docstrings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  #: one axis
Matrix = NDArray[np.float64]  #: two
Tensor = NDArray[np.float64]  #: three or more
Index = NDArray[np.int64]  #: whole numbers: positions, counts
