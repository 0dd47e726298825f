"""Zones are connected, balanced, cheap to cut, and the same on every machine."""

import networkx as nx
import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.partition import explicit, partition, tie_lines
from hushgrid.kernels.errors import InputError

SPLITS = [("case5", 2), ("case14", 1), ("case14", 3), ("case14", 14), ("case30", 4), ("case39", 5), ("case57", 3)]
SPLITS += [("case118", 3), ("case118", 8), ("case300", 6)]
PAPER_14 = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]


@pytest.mark.parametrize(("name", "zones"), SPLITS)
def test_every_bus_is_in_one_connected_zone_within_a_fifth_of_the_mean_size(name, zones):
    case = load(name)
    split = partition(case, zones)
    assert list(split) == [f"z{k + 1}" for k in range(zones)]
    assert sorted(bus for buses in split.values() for bus in buses) == case.buses.numbers.tolist()
    network = nx.Graph(list(zip(case.lines.from_bus.tolist(), case.lines.to_bus.tolist(), strict=True)))
    assert all(nx.is_connected(network.subgraph(buses)) for buses in split.values())
    mean = len(case.buses) / zones
    assert all(0.8 * mean - 1 < len(buses) < 1.2 * mean + 1 for buses in split.values())
    assert explicit(case, list(split.values())) == split


@pytest.mark.parametrize(("name", "zones", "lines"), [("case14", 3, 5), ("case118", 3, 8)])
def test_no_more_lines_are_cut_than_in_the_zones_of_the_published_figures(name, zones, lines):
    case = load(name)
    assert len(tie_lines(case, partition(case, zones))) <= lines


def test_tie_lines_are_the_rows_of_the_lines_between_zones():
    case = load("case14")
    assert tie_lines(case, explicit(case, PAPER_14)).tolist() == [7, 8, 9, 17, 19]
    assert tie_lines(case, partition(case, 1)).tolist() == []


def test_the_partition_is_the_same_on_every_machine():
    # Integer arithmetic only: these zones are part of what devices agree on without sending it.
    assert partition(load("case14"), 3) == {"z1": (1, 2, 3, 4, 5), "z2": (6, 11, 12, 13, 14), "z3": (7, 8, 9, 10)}


@pytest.mark.parametrize("zones", [0, -1, 15, 2.0, True, "3", None])
def test_an_impossible_number_of_zones_is_refused(zones):
    with pytest.raises(InputError, match=r"zones: found .* expected a whole number from 1 to 14"):
        partition(load("case14"), zones)


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ([[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 15]], "zones.z3: found bus 15"),
        ([[1, 2, 3, 4, 5], [5, 7, 8, 9, 10, 14], [6, 11, 12, 13]], "zones.z2: found bus 5, already in z1"),
        ([[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12]], "zones: bus 13 of case14 is in no zone"),
        ([list(range(1, 15)), []], "zones.z2: found no bus"),
        ([[1, 2, 3, 4, 14], [7, 8, 9, 10, 5], [6, 11, 12, 13]], "zones.z1: bus 14 is not connected to bus 1"),
        ([[k] for k in range(15)], "zones: found 15 lists, expected 1 to 14"),
        ([], "zones: found 0 lists, expected 1 to 14"),
        ([list(range(1, 14)), "14"], "zones.z2: found '14', expected a list of bus numbers"),
        ([list(range(1, 14)), ["14"]], "zones.z2: found bus '14', expected a bus number of case14"),
        ([list(range(1, 14)), [True]], "zones.z2: found bus True"),
        ({"z1": [1], "north": [2]}, "zones: found names z1, north, expected z1, z2"),
    ],
)
def test_wrong_lists_are_refused_in_one_line_naming_zone_and_bus(lists, said):
    with pytest.raises(InputError) as error:
        explicit(load("case14"), lists)
    assert said in str(error.value)


def test_named_lists_keep_their_names_and_every_list_is_sorted():
    case = load("case14")
    named = {"z2": [14, 7, 9, 8, 10], "z1": PAPER_14[0], "z3": PAPER_14[2]}
    assert explicit(case, named) == explicit(case, PAPER_14)
    assert explicit(case, named)["z2"] == (7, 8, 9, 10, 14)
