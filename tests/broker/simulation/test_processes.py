"""How a run over a broker shares its nodes among processes."""

import os

import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.processes import Child, deal
from hushgrid.kernels.errors import InputError
from tests.support.scenarios.record_scenarios import sensors


def dealt(count, processes):
    """The names of the nodes in each process, by its name."""
    common = {"role": "node", "client_id": "", "fleet": "", "broker": "", "state": "", "trace": ""}
    hands = deal([Child(name=f"n{i}", **common) for i in range(count)], processes)
    return {name: [child.name for child in hand] for name, hand in hands.items()}


def test_a_few_nodes_have_a_process_each_which_is_called_after_its_node():
    assert dealt(3, None) == {"n0": ["n0"], "n1": ["n1"], "n2": ["n2"]}
    assert len(dealt(16, None)) == 16


def test_many_nodes_are_dealt_to_a_process_a_core():
    hands = dealt(200, None)
    assert len(hands) == os.cpu_count()
    assert sorted(n for hand in hands.values() for n in hand) == sorted(f"n{i}" for i in range(200))


def test_a_scenario_says_how_many_processes_there_are_and_none_is_without_a_node():
    assert dealt(5, 2) == {"n0-and-2": ["n0", "n2", "n4"], "n1-and-1": ["n1", "n3"]}
    assert dealt(5, 1) == {"n0-and-4": ["n0", "n1", "n2", "n3", "n4"]}
    assert len(dealt(2, 7)) == 2


def test_no_processes_at_all_are_refused():
    with pytest.raises(InputError, match=r"run\.processes: .*>= 1"):
        run(sensors(3, 5, processes=0))
