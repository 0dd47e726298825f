"""Virtual time: processes that wait take turns by the clock, and one that is killed goes no further."""

from pathlib import Path

import pytest

from hushgrid.lab.simulate.machine import Machine
from hushgrid.lab.simulate.world import MOST, World
from hushgrid.node import system


@pytest.fixture
def world():
    return World(1)


def machine(world: World, tmp_path: Path, name: str, main):
    made = Machine(world, name, tmp_path / name, main)
    world.schedule(0.0, made.boot)
    return made


def test_two_processes_wait_and_take_turns_by_their_dates(world, tmp_path):
    turns = []

    def sleeper(name, seconds):
        def main(signals):
            for _ in range(3):
                system.machine.sleep(seconds)
                turns.append((round(world.now, 3), name))
            return 0

        return main

    machine(world, tmp_path, "a", sleeper("a", 2.0))
    machine(world, tmp_path, "b", sleeper("b", 3.0))
    world.run(100.0)
    assert turns == [(2.0, "a"), (3.0, "b"), (4.0, "a"), (6.0, "b"), (6.0, "a"), (9.0, "b")]


def test_no_time_passes_while_a_process_computes_and_its_clock_runs_with_the_worlds(world, tmp_path):
    read = []

    def main(signals):
        first = system.machine.monotonic()
        read.append(system.machine.monotonic() - first)
        system.machine.sleep(5.0)
        read.append(system.machine.monotonic() - first)
        return 0

    machine(world, tmp_path, "a", main)
    world.run(10.0)
    assert read == pytest.approx([0.0, 5.0])


def test_a_process_that_is_killed_at_a_system_call_does_nothing_after_it(world, tmp_path):
    done = []

    def main(signals):
        for number in range(10):
            system.machine.sleep(1.0)
            done.append(number)
        return 0

    one = machine(world, tmp_path, "a", main)
    world.schedule(0.5, lambda: setattr(one, "dies_in", 2))
    world.run(4.0)
    assert done == [0, 1]
    assert [e["e"] for e in world.history] == ["start", "kill"]


def test_a_service_that_was_killed_starts_again_and_one_that_has_ended_well_does_not(world, tmp_path):
    codes = iter([1, 0])
    machine(world, tmp_path, "a", lambda signals: next(codes))
    world.run(100.0)
    assert [(e["e"], e.get("code")) for e in world.history] == [
        ("start", None), ("exit", 1), ("start", None), ("exit", 0),
    ]  # fmt: skip


def test_a_world_whose_time_stands_still_says_so(world):
    def again():
        world.schedule(world.now, again)

    world.schedule(1.0, again)
    with pytest.raises(RuntimeError, match="time stands still at 1 s"):
        world.run(2.0)
    assert world.steps > MOST


def test_messages_without_end_are_an_error_though_time_goes_on(world):
    def answered():
        world.schedule(world.now + 0.001, answered)

    world.schedule(0.0, answered)
    world.run(0.0995, 100)
    with pytest.raises(RuntimeError, match=r"more than 100 steps before .* messages without end"):
        world.run(1.0, 100)
