"""The processes of a run over a broker: one for each node, or some for many, killed and started again with all of theirs."""

import os
from pathlib import Path

import fleet
import pytest

from hushgrid.broker.processes import Child, deal
from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError


def sensors(nodes, rounds, **over):
    """I-ADMM around a ring of sensors with twenty rows each. `over`: keys of the section `run`."""
    return {
        "hushgrid": 1, "name": "sensors", "seed": 3, "run": over,
        "problem": {
            "kind": "logistic", "row_bound": 1.0, "l2": 0.1,
            "data": {"synthetic": {"rows": 20, "features": 4}, "normalize": "unit-rows"},
        },
        "network": {"kind": "ring", "nodes": nodes},
        "algorithm": {"name": "iadmm", "rounds": rounds, "rho": 1.0},
        "privacy": {"epsilon": 50.0, "adjacency": {"replace-one-record": {"clip": 1.0}}},
    }  # fmt: skip


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


def test_a_process_of_many_nodes_that_is_killed_comes_back_with_all_of_them(any_broker):
    raw = sensors(6, rounds=600, processes=2)
    background = fleet.Background(raw, transport="mqtt", broker=any_broker.url)
    for victim in ("n0-and-2", "n1-and-2", "n0-and-2"):
        before = background.child(victim)
        place = Path(before.cmdline()[-1]).parent
        seen = steps(place)
        background.when(lambda place=place, seen=seen: steps(place) > seen)  # all its nodes are in the run
        before.kill()
    result = background.wait(90)
    fleet.assert_same_bits(run(raw), result)
    assert background.processes() == []
    assert fleet.retained(any_broker.url) == {}


def steps(place):
    """Bytes of the trace: it grows with each activation."""
    return sum(path.stat().st_size for path in place.glob("walk*.trace"))


@pytest.mark.long
@pytest.mark.mosquitto
def test_two_hundred_nodes_in_two_processes_finish_over_one_broker(mosquitto):
    raw = sensors(200, rounds=400, processes=2)
    result = run(raw, transport="mqtt", broker=mosquitto.url, silent_s=120.0)
    assert (result.rounds_done, result.stopped_because) == (400, "rounds")
    fleet.assert_same_bits(run(raw), result)
    assert fleet.retained(mosquitto.url) == {}
