"""Cells of a trace that may wait in memory stand in the file as if each had been written at once."""

import numpy as np
import pytest

from hushgrid.broker.simulation.recorders.base import Cells

#: (first cell, cells): in order, with a gap, back to one that is written, a row longer than what may wait
WRITES = [(0, 2), (2, 3), (9, 1), (1, 2), (10, 40), (50, 1)]


@pytest.mark.parametrize("behind", [0, 16, 100, 1 << 16])
def test_the_last_write_of_every_cell_stands_in_the_file(tmp_path, behind):
    expected, cells = np.zeros(51), Cells(tmp_path / "trace", behind)
    for number, (first, count) in enumerate(WRITES, 1):
        cells.write(first, np.full(count, float(number)))
        expected[first : first + count] = number
    cells.close()
    assert np.fromfile(tmp_path / "trace").tolist() == expected.tolist()


def test_whether_a_cell_is_written_counts_what_waits(tmp_path):
    cells = Cells(tmp_path / "trace", 1 << 16)
    cells.write(3, np.ones(1))
    assert [cells.written(cell) for cell in range(5)] == [False, False, False, True, False]
    cells.close()
