"""The sparse matrix of a zone's device against scipy's, bit for bit."""

import numpy as np
import pytest
from scipy import sparse

from hushgrid.grid_cases.matrix import Matrix

DICE = np.random.default_rng(4)


def drawn(rows, columns, density=0.4):
    """Entries in no order, one of them zero, and some rows and columns empty."""
    at = np.flatnonzero(DICE.random(rows * columns) < density)
    DICE.shuffle(at)
    data = DICE.normal(size=at.size)
    data[:1] = 0.0
    return (rows, columns), at // columns, at % columns, data


@pytest.mark.parametrize("shape", [(30, 17), (17, 30), (1, 5), (5, 1), (200, 90)])
def test_products_are_those_of_scipy_bit_for_bit(shape):
    (m, n), rows, columns, data = drawn(*shape)
    ours, theirs = (
        Matrix.from_entries((m, n), rows, columns, data),
        sparse.csr_array((data, (rows, columns)), shape=shape),
    )
    theirs.sort_indices()
    for _ in range(5):
        x, y = DICE.normal(size=n), DICE.normal(size=m)
        assert (ours @ x).tobytes() == (theirs @ x).tobytes() == (sparse.csc_array(theirs) @ x).tobytes()
        assert (ours.T @ y).tobytes() == (theirs.T @ y).tobytes()
    assert ours.gram().tobytes() == (theirs @ theirs.T).toarray().tobytes()
    assert ours.toarray().tobytes() == theirs.toarray().tobytes()
    assert (ours.scipy() != theirs).nnz == 0


def test_an_entry_that_is_zero_stays_an_entry_and_a_matrix_may_have_none():
    (m, n), rows, columns, data = drawn(6, 6)
    assert Matrix.from_entries((m, n), rows, columns, data).data.size == data.size
    none = np.zeros(0, np.int64)
    empty = Matrix.from_entries((3, 2), none, none, np.zeros(0))
    assert (empty @ np.ones(2)).tolist() == [0.0] * 3
    assert (empty @ np.ones(2)).dtype == empty.gram().dtype == np.float64
    assert empty.T.shape == (2, 3)


@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([0, 2], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([1, 0], [0, 2, 2]), ([0, 0], [0, 2, 2]), ([0, 1], [0, 1]),
     ([0, 1], [0, 2, 1]), ([0, 1], [1, 1, 2]), ([0, 1], [0, 1, 3])],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_refused(indices, indptr):
    with pytest.raises(ValueError, match=r"begin|rows"):
        Matrix(np.ones(2), np.array(indices), np.array(indptr), (2, 2))
