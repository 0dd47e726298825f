"""kill -9 of anything, at any instant: the answer keeps its bits, and no ledger shows less than what has left.

And what cannot go on ends: said in one line, in bounded time, with nothing left behind.
"""

import os
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from hushgrid.broker.simulation import processes, run
from hushgrid.broker.simulation.processes import Child, deal
from hushgrid.kernels.errors import InputError
from hushgrid.node import wire
from tests.support.devices.zone_fleet import World, setup
from tests.support.scenarios.record_scenarios import sensors


def test_births_that_were_lost_are_called_for(tmp_path):
    undisturbed, deaf = (World(tmp_path / name, setup()) for name in ("undisturbed", "deaf"))
    undisturbed.run()
    undisturbed.close()
    lost = []

    def lose(world):  # the first time: all that is on its way, and what the broker has retained
        if not lost:
            lost.extend(world.hub.queue)
            world.hub.queue.clear()
            world.hub.retained.clear()

    deaf.run(lose)
    deaf.close()
    assert {d.topic for d in lost if d.dst == "coordinator"} == {
        "hushgrid/1/world/state/z1",
        "hushgrid/1/world/state/z2",
    }
    assert deaf.final == undisturbed.final


def test_a_birth_that_is_overtaken_by_the_next_is_forgotten(tmp_path):
    world = World(tmp_path, setup())
    topic, first, _ = world["z1"].connected()[0]
    _, second, _ = world.build("z1").connected()[0]
    world.centre.on_message(topic, second)
    world.centre.on_message(topic, first)
    assert world.centre.births["z1"].session == wire.decode_presence(second).session
    world.close()


# --- How a run over a broker shares its nodes among processes ---


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


@pytest.mark.parametrize(("options", "seconds"), [([], 10.0), ([processes.AGAIN], 45.0)], ids=["begun", "again"])
def test_a_child_that_comes_back_waits_for_the_broker_as_long_as_for_a_node(tmp_path, monkeypatch, options, seconds):
    waited = []
    monkeypatch.setattr(processes, "reach", lambda link, asked, seconds: waited.append(seconds))
    monkeypatch.setattr(processes, "_seat", lambda child: nullcontext((None, None)))
    common = {"client_id": "", "fleet": "", "broker": "", "state": "", "trace": ""}
    child = Child(role="node", name="n0", silent_s=45.0, **common)
    (tmp_path / "n0.json").write_bytes(msgspec.json.encode([child]))
    assert processes.main([*options, str(tmp_path / "n0.json")]) == 0
    assert waited == [seconds]


def test_a_child_that_was_killed_is_told_that_it_comes_back(tmp_path, monkeypatch):
    """Whichever was killed, the coordinator too; and the file stays the last word of the command."""
    started = []

    class Process:
        """n0 and the coordinator are killed once each; then the coordinator ends."""

        stdin = None

        def __init__(self, command, **_):
            self.name = Path(command[-1]).stem
            self.before = sum(Path(c[-1]).stem == self.name for c in started)
            started.append(command)

        def poll(self):
            if not self.before:
                return -9
            return 0 if self.name == "coordinator" else None

    monkeypatch.setattr(processes.subprocess, "Popen", Process)
    fleet = processes.Fleet(tmp_path)
    common = {"client_id": "", "fleet": "", "broker": "", "state": "", "trace": ""}
    for name, role in (("n0", "node"), ("coordinator", "coordinator")):
        fleet.add(name, Child(role=role, name=name, **common))
    assert fleet.watch(lambda: False, lambda: None) == 0
    again = [(Path(command[-1]).stem, processes.AGAIN in command) for command in started]
    assert again == [("n0", False), ("coordinator", False), ("n0", True), ("coordinator", True)]
