"""The page on size says what its module computes."""

import pytest

from hushgrid.kernels.privacy.mask_graphs import MaskGraph, exposure
from hushgrid.lab.planning import size


@pytest.mark.runs
def test_the_tables_of_the_page_are_those_that_are_computed():
    text = size.PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- table {name} -->" in text for name in size.TABLES)
    assert size.written(text) == text


def test_a_line_of_neighbours_keeps_its_delta():
    graph = MaskGraph(1000, 1000, 200, size.neighbours(1000, 0.2))
    assert exposure(graph, 760) <= 1e-9 < exposure(graph._replace(neighbours=graph.neighbours - 1), 760)


def test_an_announcement_to_all_grows_as_the_square_of_their_number():
    assert 200 * size.announcement(200) / (100 * size.announcement(100)) == pytest.approx(4, rel=0.1)
