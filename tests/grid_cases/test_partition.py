"""Zones are connected, balanced, cheap to cut, and the same on every machine."""

import hashlib
import json

import networkx as nx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hushgrid.grid_cases import load
from hushgrid.grid_cases.multilevel import distances, split
from hushgrid.grid_cases.partition import explicit, partition, tie_lines, without_generator
from hushgrid.kernels.errors import InputError
from tests.support import examples

SPLITS = [("case5", 2), ("case14", 1), ("case14", 3), ("case14", 14), ("case30", 4), ("case39", 5), ("case57", 3)]
SPLITS += [("case118", 3), ("case118", 8), ("case300", 6)]
PAPER_14 = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]
PAPER_118 = [[*range(1, 33), 113, 114, 115, 117], [*range(33, 68)], [*range(68, 113), 116, 118]]


@pytest.mark.runs
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


# The fewest that METIS cuts in 1,000 runs (k-way and recursive, 100 seeds, five tolerances) among its splits that
# keep this program's rule, a fifth of the mean size and connected zones.
METIS = [("case14", 3, 5), ("case30", 4, 9), ("case39", 5, 9), ("case57", 3, 8), ("case57", 4, 12), ("case118", 3, 7)]
METIS += [("case118", 4, 12), ("case118", 8, 30), ("case300", 4, 13), ("case300", 6, 21), ("case300", 8, 23)]


@pytest.mark.runs
@pytest.mark.parametrize(("name", "zones", "lines"), METIS)
def test_no_more_lines_are_cut_than_metis_cuts(name, zones, lines):
    case = load(name)
    assert len(tie_lines(case, partition(case, zones))) <= lines


@pytest.mark.runs
@pytest.mark.parametrize(("zones", "name"), [(PAPER_14, "case14"), (PAPER_118, "case118")])
def test_no_more_lines_are_cut_than_in_the_zones_of_the_examples(zones, name):
    case = load(name)
    assert len(tie_lines(case, partition(case, 3))) <= len(tie_lines(case, explicit(case, zones)))


def test_tie_lines_are_the_rows_of_the_lines_between_zones():
    case = load("case14")
    assert tie_lines(case, explicit(case, PAPER_14)).tolist() == [7, 8, 9, 17, 19]
    assert tie_lines(case, partition(case, 1)).tolist() == []


@pytest.mark.runs
def test_the_partition_is_the_same_on_every_machine():
    # Integer arithmetic only: these zones are part of what devices agree on without sending it.
    assert partition(load("case14"), 3) == {"z1": (1, 2, 3, 4, 5), "z2": (6, 11, 12, 13, 14), "z3": (7, 8, 9, 10)}
    large = json.dumps(partition(load("case300"), 4)).encode()
    assert hashlib.sha256(large).hexdigest()[:16] == "9c65fc1565cc9157"


@st.composite
def networks(draw) -> list[dict[int, int]]:
    """A connected network: a tree, from a star to a path, and some lines more, some of them parallel."""
    n, reach = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    pairs = [(v, max(0, v - draw(st.integers(1, reach)))) for v in range(1, n)]
    bus = st.integers(0, n - 1)
    pairs += [(u, v) for u, v in draw(st.lists(st.tuples(bus, bus), max_size=2 * n)) if u != v]
    lines: list[dict[int, int]] = [{} for _ in range(n)]
    for u, v in pairs:
        lines[u][v] = lines[v][u] = lines[u].get(v, 0) + 1
    return [dict(sorted(neighbours.items())) for neighbours in lines]


@pytest.mark.runs
@examples.of(60, suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.integers(1, 40))
def test_the_parts_of_any_network_are_connected_and_numbered_by_their_first_bus(lines, parts):
    parts = min(parts, len(lines))
    of = split(lines, parts)
    assert list(dict.fromkeys(of)) == list(range(parts))
    for part in range(parts):
        members = {v for v in range(len(lines)) if of[v] == part}
        reached = distances(lines, min(members), members)
        assert all(reached[v] >= 0 for v in members)


def test_zones_without_a_generator_are_named():
    case = load("case14")  # its generators stand at the buses 1, 2, 3, 6 and 8
    assert without_generator(case, explicit(case, PAPER_14)) == []
    lists = [[1, 2, 3, 4, 5], [7, 8], [6, 11, 12, 13], [9, 10, 14]]
    assert without_generator(case, explicit(case, lists)) == ["z4"]


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
