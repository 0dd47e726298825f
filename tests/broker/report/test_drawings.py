"""Numbers, curves and the map of a grid, as a report draws them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from typing import Any

import networkx as nx
import numpy as np
import pytest

from hushgrid.broker.report.drawings import gridmap, numbers, plots
from hushgrid.grid_cases import load
from hushgrid.grid_cases.partition import partition
from tests.support import examples

# Numbers and curves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (0, "0"),
        (0.0, "0"),
        (1234567, "1\u202f234\u202f567"),
        (-5, "−5"),
        (0.0051749, "0.00517"),
        (0.3, "0.3"),
        (999.9, "1\u202f000"),
        (42000.0, "42\u202f000"),
        (1.23456e-10, "1.23 × 10⁻¹⁰"),
        (-2.0e7, "−2 × 10⁷"),
        ("given", "given"),
    ],
)
def test_numbers_are_written_for_reading(value: Any, text: str) -> None:
    assert numbers.number(value) == text


def test_curves_that_coincide_are_drawn_once_under_all_names() -> None:
    one, other = np.array([1.0, np.nan]), np.array([1.0, 2.0])
    assert list(plots.grouped({"z1": one, "z2": other, "z3": one.copy()})) == ["z1, z3", "z2"]


# The drawing of the grid --------------------------------------------------------------------------------------------


def test_path_lengths_agree_with_networkx() -> None:
    graph = nx.gnm_random_graph(30, 45, seed=4)
    ends = np.array(graph.edges)
    lengths = 1.0 + np.arange(len(ends)) % 3
    for (a, b), length in zip(ends, lengths, strict=True):
        graph[a][b]["weight"] = length
    expected = dict(nx.all_pairs_dijkstra_path_length(graph))
    found = gridmap.distances(30, ends, lengths)
    joined = [(a, b) for a in expected for b in expected[a]]
    assert all(found[a, b] == expected[a][b] for a, b in joined)
    apart = np.ones((30, 30), bool)
    apart[tuple(np.transpose(joined))] = False
    assert apart.any()
    assert np.all(found[apart] == found[~apart].max() + 2.0)


def test_a_path_is_drawn_straight_with_equal_steps() -> None:
    """Its path lengths are distances on a line, so stress zero is reached up to how far 300 steps get."""
    n = 6
    ends = np.array([(i, i + 1) for i in range(n - 1)])
    position = gridmap.layout(gridmap.distances(n, ends, np.ones(n - 1)))
    np.testing.assert_allclose(np.diff(position[:, 0]), 1.0, atol=1e-3)
    np.testing.assert_allclose(position[:, 1], 0.0, atol=1e-3)


def test_crossings_are_counted_without_common_ends() -> None:
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    sides = [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert gridmap.crossings(square, np.array(sides)) == 0
    assert gridmap.crossings(square, np.array([*sides, (0, 2), (1, 3)])) == 1


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "count"), examples.few([("case14", 3), ("case118", 3), ("case300", 6)], [("case14", 3), ("case118", 3)])
)
def test_every_bus_is_inside_the_picture_and_none_covers_another(name: str, count: int) -> None:
    case = load(name)
    groups = {zone: [str(bus) for bus in members] for zone, members in partition(case, count).items()}
    edges = tuple((str(a), str(b)) for a, b in zip(case.lines.from_bus, case.lines.to_bus, strict=True))
    network = gridmap.Network(tuple(str(b) for b in case.buses.numbers), edges, groups)
    drawing = gridmap.svg(network, name)
    root = ElementTree.fromstring(drawing)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    svg = "{http://www.w3.org/2000/svg}"
    buses = [c for c in root.iter(f"{svg}circle") if c.find(f"{svg}title") is not None]
    at = np.array([(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in buses])
    radius = float(buses[0].attrib["r"])
    assert len(buses) == len(case.buses)
    assert np.all((at > radius) & (at < np.array([width, height]) - radius))
    gap = np.linalg.norm(at[:, None] - at[None], axis=2) + np.diag(np.full(len(at), np.inf))
    assert gap.min() > radius  # a bus may touch its neighbour's rim, never its centre
    dashed = root.findall(f"{svg}g[@stroke-dasharray]/{svg}line")
    assert len(dashed) == len(network.ties()) > 0


def test_marks_go_where_no_line_leaves() -> None:
    half = math.pi / 2
    assert gridmap._free_angles([0.0, half, -half], 1) == [pytest.approx(math.pi)]
    assert gridmap._free_angles([], 1) == [half]
