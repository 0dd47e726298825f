"""Rows that are wide are read back one at a time: with the same bits as all of them together."""

import numpy as np
import pytest

from hushgrid.broker.simulation.recorders.base import MAPPED, read, room
from hushgrid.broker.simulation.recorders.star import WIDE, mean_of, squares


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_the_sums_of_wide_rows_are_those_of_all_rows_together(rounds):
    draw = np.random.default_rng(rounds)
    w, z = draw.normal(size=(rounds, WIDE)), draw.normal(size=(rounds, WIDE + 2))[:, :-2]
    every = np.arange(WIDE)
    assert squares(w, z, every, every).tolist() == np.sum((w[:, every] - z[:, every]) ** 2, axis=1).tolist()


def test_the_mean_of_runs_is_numpys(tmp_path):
    each = list(np.random.default_rng(1).normal(size=(3, 4, 1000)))
    assert mean_of(each, tmp_path).tolist() == np.mean(each, axis=0).tolist()


def test_a_large_file_is_mapped_and_a_small_one_read(tmp_path):
    path = tmp_path / "numbers"
    np.arange(MAPPED + 3.0).tofile(path)
    large, small = read(path, 1, MAPPED), read(path, 5, 7)
    assert isinstance(large, np.memmap)
    assert not isinstance(small, np.memmap)
    assert (large[0], large[-1], large.size, small.tolist()) == (1.0, float(MAPPED), MAPPED, list(range(5, 12)))
    assert read(path, MAPPED, 100).tolist() == [MAPPED, MAPPED + 1, MAPPED + 2]
    assert isinstance(room(tmp_path, 2, MAPPED), np.memmap)
