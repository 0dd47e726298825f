"""A process that dies within a step has paid for what it drew; asked the same again, it answers the same."""

import os

import numpy as np
import pytest

from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import Device, budget, plan

ONE, OTHER = np.ones(4), np.full(4, 2.0)


def begin(directory, **over):
    """A device in a run, and the gate of it, noting what it draws."""
    device = Device(directory, budget(2.0))
    return device, with_note(device, device.start(plan(rounds=4, **over)))


def with_note(device, gate):
    gate.journal, gate.run = NoiseJournal(device.ledger.path.with_suffix(".drawn"), device.ledger), device.run
    return gate


def again(device, **over):
    """The next start: the process has died, its files are as they are."""
    device.ledger.close()
    restarted = Device(device.ledger.path.parent, budget(2.0))
    restarted.run = device.run
    return restarted, with_note(restarted, restarted.gate(plan(rounds=4, **over)))


@pytest.mark.parametrize("over", [{"at": "gradient"}, {}, {"mode": "input"}], ids=str)
def test_what_was_drawn_before_a_death_is_paid_at_the_next_start_and_repeated_to_the_same_question(tmp_path, over):
    device, gate = begin(tmp_path, **over)
    lost = gate.gradient(ONE)
    assert device.ledger.spends() == []
    device, gate = again(device, **over)
    assert [s.answer for s in device.ledger.spends(device.run)] == [1]
    assert np.array_equal(gate.gradient(ONE), lost)
    device.commit(gate)
    assert len(device.ledger.spends()) == 1
    gate.gradient(OTHER)
    device.commit(gate)
    assert [s.answer for s in device.ledger.spends()] == ([1] if over.get("mode") == "input" else [1, 2])


def test_another_question_after_a_death_is_another_answer_and_another_spend(tmp_path):
    device, gate = begin(tmp_path, at="gradient")
    gate.gradient(ONE)
    device, gate = again(device, at="gradient")
    gate.gradient(OTHER)
    device.commit(gate)
    assert [s.answer for s in device.ledger.spends()] == [1, 1]


def test_another_data_version_after_a_death_is_another_answer_and_another_spend(tmp_path):
    device, gate = begin(tmp_path)
    gate.gradient(ONE)
    device.ledger.close()
    device = Device(tmp_path, budget(2.0))
    device.ledger.new_data()
    device.run = gate.run
    gate = with_note(device, device.gate(plan(rounds=4)))
    gate.gradient(ONE)
    device.commit(gate)
    assert len(device.ledger.spends()) == 2


def test_what_was_drawn_before_a_death_is_paid_as_of_the_version_that_it_was_drawn_for(tmp_path):
    device, gate = begin(tmp_path)
    gate.gradient(ONE)
    device.ledger.new_data()  # a file that is replaced while the device is off
    device, gate = again(device)
    assert [(s.answer, s.version) for s in device.ledger.spends()] == [(1, 1)]
    gate.gradient(ONE)
    device.commit(gate)
    assert [(s.answer, s.version) for s in device.ledger.spends()] == [(1, 1), (1, 2)]


def test_any_number_of_deaths_in_one_step_cost_one_spend_while_the_question_is_the_same(tmp_path):
    device, gate = begin(tmp_path, at="gradient")
    first = gate.gradient(ONE)
    for _ in range(5):
        device, gate = again(device, at="gradient")  # dies before it is asked
    for _ in range(5):
        assert np.array_equal(gate.gradient(ONE), first)  # dies in the very step
        device, gate = again(device, at="gradient")
    assert len(device.ledger.spends()) == 1


def test_a_step_of_several_answers_is_paid_whole(tmp_path):
    device, gate = begin(tmp_path, local_updates=2, at="gradient")
    lost = [gate.gradient(ONE), gate.gradient(OTHER)]
    device, gate = again(device, local_updates=2, at="gradient")
    assert [s.answer for s in device.ledger.spends()] == [1, 2]
    assert np.array_equal(lost, [gate.gradient(ONE), gate.gradient(OTHER)])
    assert gate.spends == []


def test_a_gap_that_is_accepted_between_a_death_and_the_next_start_hides_no_answer(tmp_path):
    device, gate = begin(tmp_path, at="gradient")
    lost = gate.gradient(ONE)
    device.ledger.tell(Mark(device.ledger.id, 7, epsilon=0.25))
    device.ledger.accept()
    device, gate = again(device, at="gradient")
    assert [s.kind for s in device.ledger.spends()] == ["gap", "laplace"]
    assert np.array_equal(gate.gradient(ONE), lost)
    assert gate.spends == []


def test_what_is_committed_is_not_paid_twice(tmp_path):
    device, gate = begin(tmp_path)
    device.answer(gate, 3)
    device, gate = again(device)
    assert len(device.ledger.spends()) == 3


@pytest.mark.parametrize("cut", range(1, 200, 13))
def test_a_death_within_the_note_itself_costs_nothing_since_its_noise_was_never_used(tmp_path, cut):
    device, gate = begin(tmp_path, at="gradient")
    gate.gradient(ONE)
    path = tmp_path / "n0.drawn"
    path.write_bytes(path.read_bytes()[:-cut])
    device, gate = again(device, at="gradient")
    assert device.ledger.spends() == []


def test_a_death_within_a_step_of_several_answers_pays_for_those_whose_noise_may_have_been_used(tmp_path):
    """The note of the second one breaks off: its noise was never used, the first one's was."""
    device, gate = begin(tmp_path, local_updates=2, at="gradient")
    first = gate.gradient(ONE)
    gate.gradient(OTHER)
    path = tmp_path / "n0.drawn"
    path.write_bytes(path.read_bytes()[:-50])
    device, gate = again(device, local_updates=2, at="gradient")
    assert [s.answer for s in device.ledger.spends()] == [1]
    assert np.array_equal(gate.gradient(ONE), first)


def test_two_deaths_in_a_step_of_two_answers_cost_two_spends(tmp_path):
    over = {"local_updates": 2, "at": "gradient"}
    device, gate = begin(tmp_path, **over)
    first = gate.gradient(ONE)
    device, gate = again(device, **over)  # died between the two
    lost = [gate.gradient(ONE), gate.gradient(OTHER)]
    device, gate = again(device, **over)  # died before the commit
    assert np.array_equal([gate.gradient(ONE), gate.gradient(OTHER)], lost)
    assert np.array_equal(lost[0], first)
    device.commit(gate)
    assert len(device.ledger.spends()) == 2


def test_an_orderly_end_leaves_no_note(tmp_path):
    device, gate = begin(tmp_path)
    device.answer(gate, 1)
    gate.journal.close()
    assert not (tmp_path / "n0.drawn").exists()


def test_an_answer_that_cannot_be_noted_is_not_drawn(tmp_path):
    _, gate = begin(tmp_path)
    gate.journal._file = -1
    with pytest.raises(LedgerFailed, match=r"n0.drawn: .*, expected to note what is drawn"):
        gate.gradient(ONE)


def test_an_answer_whose_note_is_cut_short_by_a_full_disk_is_not_drawn(tmp_path, monkeypatch):
    device, gate = begin(tmp_path, at="gradient")
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, blob, at: pwrite(fd, blob[:20], at))
    with pytest.raises(LedgerFailed, match=r"n0.drawn: No space left on device, expected to note what is drawn"):
        gate.gradient(ONE)
    monkeypatch.undo()
    device, gate = again(device, at="gradient")
    assert device.ledger.spends() == []


def test_a_note_of_another_ledger_is_none_of_ours(tmp_path):
    _, gate = begin(tmp_path)
    gate.gradient(ONE)
    other = Ledger(tmp_path / "other.ledger", "n0")
    NoiseJournal(tmp_path / "n0.drawn", other)
    assert other.spends() == []
