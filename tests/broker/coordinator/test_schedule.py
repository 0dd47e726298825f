"""A fleet's next run is due every so often: no bursts, no stalls, whatever restarts and clocks do. Virtual clocks."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hushgrid.broker.coordinator.schedule import Clocks, Schedule

EVERY, JITTER = 900.0, 10.0


class Machine:
    """A machine that sleeps, boots, and has its clock set."""

    def __init__(self):
        self.boot, self.wall, self.boots = 50.0, 1.8e9, 1
        self.clocks = Clocks(lambda: self.boot, lambda: self.wall, lambda: f"boot {self.boots}")
        self.real = 0.0  #: s since the beginning
        self.awake = 0.0  #: of them, since the coordinator last began to wait without a reboot or a clock that was set

    def passes(self, s):
        self.boot, self.wall, self.real = self.boot + s, self.wall + s, self.real + s

    def reboots(self, off):
        self.boots, self.boot = self.boots + 1, 20.0
        self.wall, self.real = self.wall + off, self.real + off


def schedule(machine, remembered=None, share=lambda: 0.5):
    return Schedule(EVERY, JITTER, remembered, machine.clocks, share)


def test_runs_begin_on_a_beat_and_jitter_does_not_add_up():
    machine = Machine()
    draws = iter([0.9, 0.1, 0.5, 0.99, 0.0, 0.3] * 20)
    s = schedule(machine, share=lambda: next(draws))
    began = []
    for _ in range(96):
        machine.passes(s.left)
        began.append(machine.real)
        s.begin()
    for k, at in enumerate(began):
        assert k * EVERY <= at + 1e-6 <= k * EVERY + JITTER + 1e-6
    assert s.number == 96


def test_after_a_sleep_one_run_is_due_and_the_next_an_interval_later():
    machine = Machine()
    s = schedule(machine)
    s.begin()
    machine.passes(5.3 * EVERY)
    assert s.left == 0
    s.begin()
    assert EVERY <= s.left <= EVERY + JITTER


def test_a_restart_waits_for_what_was_due_however_the_wall_clock_was_set():
    machine = Machine()
    first = schedule(machine)
    kept = first.begin()
    machine.passes(300.0)
    for jump in (-3.2e8, 0.0, 3.2e8):
        machine.wall += jump
        again = schedule(machine, kept)
        assert again.left == first.left == EVERY + JITTER / 2 - 300.0
        assert again.number == 1


def test_another_interval_holds_at_once_where_it_is_shorter_and_from_the_next_run_on_where_it_is_longer():
    machine = Machine()
    s = schedule(machine)
    s.begin()
    s.declare(60.0, 0.0)
    assert s.left == 60.0
    machine.passes(60.0)
    s.begin()
    s.declare(3600.0, JITTER)
    assert s.left == 60.0
    machine.passes(s.left)
    s.begin()
    assert 3600.0 <= s.left <= 3600.0 + JITTER


def test_across_a_boot_the_wall_clock_counts_and_at_most_for_an_interval():
    machine = Machine()
    kept = schedule(machine).begin()
    machine.reboots(200.0)
    assert abs(schedule(machine, kept).left - (EVERY + JITTER / 2 - 200.0)) < 1e-3
    machine.wall = 0.0  # a clock of 1970
    assert schedule(machine, kept).left == EVERY + JITTER
    machine.wall = 4e9
    assert schedule(machine, kept).left == 0


@pytest.mark.parametrize("late", [1.0, 1.5, 1.999, 2.0, 2.5])
def test_no_run_is_due_at_once_after_one_that_began_late(late):
    """Two intervals would be paid at one moment."""
    machine = Machine()
    s = schedule(machine, share=iter([0.5, 0.0]).__next__)
    s.begin()
    machine.passes(late * EVERY)
    s.begin()
    assert s.left >= (EVERY - JITTER) / 2


def test_a_run_a_little_behind_its_beat_keeps_it_and_one_far_behind_begins_a_new_one():
    machine = Machine()
    s = schedule(machine, share=lambda: 0.0)
    s.begin()
    machine.passes(1.25 * EVERY)
    s.begin()
    assert s.left == 0.75 * EVERY
    machine.passes(1.75 * EVERY)
    s.begin()
    assert s.left == EVERY


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("waits"), st.floats(0, 5 * EVERY)),
        st.tuples(st.just("restarts"), st.floats(0, EVERY)),
        st.tuples(st.just("clock"), st.floats(-3.2e8, 3.2e8)),
    ),
    max_size=40,
)


@given(happenings, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5))
@example([("waits", 1800.0)], [0.5, 0.0])
@example([("waits", 1799.0), ("waits", 1.0)], [0.9, 0.0])
def test_within_a_boot_no_two_runs_are_closer_than_a_beat_and_none_is_waited_for_longer(events, shares):
    machine, turn = Machine(), iter(shares * 1000)
    s = schedule(machine, share=lambda: next(turn))
    kept, began = s.begin(), [0.0]
    due = s.due
    for what, much in events:
        if what == "clock":
            machine.wall += much
        elif what == "restarts":
            machine.passes(much)
            s = schedule(machine, kept, share=lambda: next(turn))
        else:
            machine.passes(much)
        assert s.left <= EVERY + JITTER + 1e-6
        assert s.due <= max(due, machine.boot) + 1e-6
        if s.left == 0:
            kept = s.begin()
            due = s.due
            assert kept.number == len(began) + 1
            began.append(machine.real)
            assert s.left >= (EVERY - JITTER) / 2 - 1e-6
    # Nothing is made up for: each of two runs is behind its beat by less than the middle between jitter and beat.
    for i in range(len(began)):
        for j in range(i + 1, len(began)):
            assert j - i <= (began[j] - began[i] + (JITTER + EVERY) / 2) / EVERY + 1e-6
