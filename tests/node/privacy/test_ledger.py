"""The ledger: durable before anything is published, never less than what left, and honest about what it cannot know."""

import stat
from math import inf

import pytest

from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.ledger_rows import Spend, empty
from hushgrid.node.privacy.run_table import KEPT
from hushgrid.node.schema.sections import Adjacency, ReplaceOneRecord
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import WORDS, spend
from tests.support.devices.ledgers import RUN, fill, reopened


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0")
    yield opened
    opened.close()


# --- one durable transaction ---


def test_it_is_kept_by_a_write_ahead_log_with_full_sync_by_one_process_readable_by_its_owner(ledger):
    ask = ledger.db.execute
    assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ask("PRAGMA synchronous").fetchone() == (2,)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_a_step_is_committed_whole_or_not_at_all(ledger):
    fill(ledger, 1)
    before = (ledger.spends(), ledger.run(RUN), ledger.mark, ledger.totals(WORDS))
    ledger.db.execute("DROP TABLE history")  # so that the last statement of the next transaction fails
    with pytest.raises(
        LedgerFailed, match="no such table: history, expected to write the ledger: nothing was released"
    ):
        ledger.commit(RUN, spends=[spend(2)], state=b"new", answers=[(b"key", b"value")], history=(1, 0.0, 1, 1))
    assert ledger.answer(b"key") is None
    assert (ledger.spends(), ledger.run(RUN), ledger.mark, ledger.totals(WORDS)) == before


def test_what_was_committed_is_there_after_a_restart(ledger):
    fill(ledger, 3)
    ledger.commit(RUN, answers=[(b"key", b"value")], history=(2, 0.25, 10, 999), last=b"bye", status="done")
    ledger.peer_marks.spent("n1", Mark(b"x", 4, 1.0))
    ledger.remember_peers()
    kept = (ledger.spends(), ledger.mark, ledger.run(RUN), ledger.totals(WORDS), ledger.id)
    again = reopened(ledger)
    assert (again.spends(), again.mark, again.run(RUN), again.totals(WORDS), again.id) == kept
    assert again.answer(b"key") == b"value"
    assert again.history(RUN) == [(2, 0.25, 10, 999)]
    assert again.peer_marks.marks("n1") == (Mark(b"x", 4, 1.0),)
    assert again.verify() == []


def test_a_session_number_is_never_given_twice(ledger):
    assert [ledger.new_session(), ledger.new_session()] == [1, 2]
    assert reopened(ledger).new_session() == 3


def test_one_run_at_a_time_is_under_way(ledger):
    fill(ledger, 1)
    ledger.join(b"second", b"plan 2")
    assert ledger.run(RUN).status == "stopped"
    assert ledger.open_run().id == b"second"
    ledger.join(b"second", b"another plan")
    assert ledger.run(b"second").plan == b"plan 2"  # a stored plan is never replaced
    ledger.abandon()
    assert ledger.open_run() is None
    assert ledger.last_run().id == b"second"


def test_two_runs_events_are_kept_apart_and_counted_together(ledger):
    fill(ledger, 2, RUN)
    fill(ledger, 3, b"second", epsilon=0.25)
    assert len(ledger.spends(RUN)) == 2
    assert ledger.totals(WORDS, but=RUN).epsilon == 3 * 0.25
    assert (ledger.answers(), ledger.answers(RUN), ledger.answers(b"second")) == (5, 2, 3)
    assert ledger.totals(WORDS).epsilon == 2 * 0.5 + 3 * 0.25
    assert ledger.totals("replace-one-record").epsilon == 0.0
    assert ledger.adjacencies == [WORDS]


def test_one_relation_is_one_number_whatever_the_clip_and_the_unit(ledger):
    replaced = str(Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0)))
    assert replaced == str(Adjacency(replace_one_record=ReplaceOneRecord(clip=1.001)))
    ledger.join(RUN, b"plan")
    ledger.commit(RUN, spends=[spend(1, epsilon=0.5), spend(2, epsilon=0.5, adjacency=replaced)])
    ledger.commit(RUN, spends=[spend(3, epsilon=0.125, adjacency="bounded-change 0.002")])
    assert ledger.totals("bounded-change 0.01").epsilon == 0.5 + 5 * 0.125  # 5 steps of 0.002 make 0.01
    assert ledger.totals("bounded-change 0.002").epsilon == 0.5 + 0.125  # who hides 0.01 hides 0.002
    assert ledger.totals("bounded-change 0.011").epsilon == 2 * 0.5 + 6 * 0.125
    assert ledger.totals(replaced).epsilon == 0.5
    assert empty(ledger.totals("bounded-change 0.01", but=RUN))


def test_group_privacy_multiplies_mu_too(ledger):
    ledger.join(RUN, b"plan")
    ledger.commit(RUN, spends=[Spend(1, "gaussian", 0.25, 0.1, 0.2, 0.1, "bounded-change 0.01", "x")])
    assert ledger.totals("bounded-change 0.07").mu == 7 * 0.25  # seven steps, though 7 * 0.01 is not 0.07 in binary


def test_the_mark_after_some_spends_is_the_mark_once_they_are_committed(ledger):
    fill(ledger, 1)
    more = [
        spend(2),
        Spend(3, "gaussian", 0.3, 0.1, 0.2, 0.1, WORDS, "x"),
        Spend(4, "nonprivate", inf, inf, 0, 0, "", "none"),
    ]
    ledger.count_at("bounded-change 0.03")  # marks are priced at the budget's unit
    promised = ledger.mark_after(more)
    ledger.commit(RUN, spends=more)
    assert promised == ledger.mark == reopened(ledger).mark
    assert promised.no == 4
    assert promised.nonprivate
    assert promised.epsilon == 3 * 2 * 0.5
    assert promised.mu2 == 9 * 0.3**2


# --- how a run ends ---


def test_a_run_that_is_done_owes_its_outcome_until_it_is_said_to_be_on_the_disk(ledger):
    fill(ledger, 1)
    ledger.commit(RUN, status="owed", last=b"bye")
    again = reopened(ledger)
    assert again.open_run() is None
    assert [(run.id, run.state) for run in again.owed()] == [(RUN, b"state 0")]
    fill(again, 1, b"next")
    assert again.owed()  # another run changes nothing about it
    again.commit(RUN, status="done")
    assert again.owed() == []


def test_a_stopped_run_goes_on_and_any_other_stops(ledger):
    fill(ledger, 2)
    ledger.commit(RUN, last=b"bye")
    fill(ledger, 1, b"next")
    assert ledger.reopen(RUN)
    assert (ledger.run(RUN).status, ledger.run(RUN).state, ledger.run(RUN).last) == ("running", b"state 1", None)
    assert ledger.run(b"next").status == "stopped"
    assert ledger.open_run().id == RUN


def test_a_run_that_was_stopped_before_its_first_step_is_joined_again_by_its_plan(ledger):
    ledger.join(RUN, b"plan")
    ledger.join(b"next", b"plan 2")
    assert ledger.run(RUN).plan == b""  # it cost nothing, and is not the latest
    assert ledger.reopen(RUN, b"plan")
    assert (ledger.run(RUN).status, ledger.run(RUN).plan) == ("joined", b"plan")


@pytest.mark.parametrize("status", ["done", "refused", "owed", "running", "joined"])
def test_only_a_stopped_run_is_reopened(ledger, status):
    fill(ledger, 1)
    ledger.commit(RUN, status=status)
    assert not ledger.reopen(RUN)
    assert ledger.run(RUN).status == status
    assert not ledger.reopen(b"unknown")


@pytest.mark.runs
def test_runs_that_cost_nothing_take_no_room(tmp_path):
    ledger = Ledger(tmp_path / "n0.ledger", "n0", durable=False)
    fill(ledger, 1)
    ledger.commit(RUN, status="done")
    sizes = []
    for k in range(5000):
        run = b"%16d" % k
        ledger.join(run, b"" if k % 2 else bytes(3000), "refused" if k % 2 else "joined")  # refused at once, or stopped
        ledger.commit(run, status="refused" if k % 2 else "stopped", last=b"no" * 200)
        sizes.append(sum(p.stat().st_size for p in tmp_path.iterdir()))
    assert max(sizes) < 5 << 20  # SQLite moves its log of 1000 pages into the main file, and uses it again
    assert max(sizes[3000:]) <= max(sizes[:3000])  # room that was freed is used again
    kept = ledger.runs()
    assert len(kept) == KEPT + 1
    assert (kept[0].id, kept[0].plan) == (RUN, b"plan")  # something was spent by it
    assert {run.plan for run in kept[1:-1]} == {b""}
    assert {run.last for run in kept[1:]} == {b"no" * 200}  # each is still answered
    ledger.close()


# --- the data ---


def test_the_data_version_is_raised_by_its_owners_word(ledger):
    assert (ledger.data_version, ledger.new_data(), ledger.new_data()) == (1, 2, 3)
    assert reopened(ledger).data_version == 3


def test_a_replaced_file_is_new_data_and_the_first_that_is_seen_is_not(ledger):
    fill(ledger, 1)
    assert not ledger.saw_data("7 100 1")
    assert not ledger.saw_data("7 100 1")
    assert ledger.data_version == 1
    assert ledger.saw_data("8 100 1")
    assert ledger.saw_data("7 100 1")  # the first again: what it holds is not looked at
    again = reopened(ledger)
    assert not again.saw_data("7 100 1")
    assert again.data_version == 3


# --- verify and copies ---


def test_verify_finds_a_deleted_row(ledger):
    fill(ledger, 5)
    ledger.checkpoint()
    ledger.db.execute("DELETE FROM spend WHERE no IN (2, 3)")
    assert ledger.verify() == ["spends 2 to 3 are missing"]


def test_verify_finds_a_row_that_costs_another_price_than_was_counted(ledger):
    fill(ledger, 5)
    ledger.checkpoint()
    ledger.db.execute("UPDATE spend SET value = 0.25 WHERE no = 2")
    assert ledger.verify() == ["the sums of its spends are not those of its rows"]


def test_a_copy_is_whole_but_for_running_times_and_leaves_the_ledger_as_it_was(ledger, tmp_path):
    fill(ledger, 3)
    ledger.copy_to(tmp_path / "copy.ledger")
    copied = Ledger(tmp_path / "copy.ledger", "n0")
    untimed = [row._replace(ran=0.0) for row in ledger.spends()]
    assert (copied.spends(), copied.id, copied.verify()) == (untimed, ledger.id, [])
    fill(ledger, 1, b"next")
    assert ledger.no == 4
