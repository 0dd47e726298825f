"""Marks: whoever remembers more of a ledger than it does itself stops it, and `accept` never gives budget back."""

import shutil
from math import inf, nextafter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.marks import LARGEST, MOST_LOST, MOST_TOLD, highest, missing
from hushgrid.node.wire import Mark
from tests.support import examples
from tests.support.devices.gated_device import WORDS, spend
from tests.support.devices.ledgers import marked

RUN = b"r" * 16


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "mark" / "n0.mark")
    yield opened
    opened.close()


def mark_of(ledger):
    return ledger.path.parent / "mark" / "n0.mark"


def reopened(ledger):
    ledger.close()
    return Ledger(ledger.path, "n0", mark_of(ledger))


def fill(ledger, answers, run=RUN, **over):
    ledger.join(run, b"plan")
    for k in range(answers):
        ledger.commit(run, spends=[spend(k + 1, **over)], state=b"state %d" % k)


def restored(ledger, spends_lost):
    """An older copy of the ledger in its place, its mark file being ahead."""
    fill(ledger, 2)
    ledger.close()
    old = ledger.path.with_name("old")
    shutil.copy(ledger.path, old)
    newer = Ledger(ledger.path, "n0", mark_of(ledger))
    fill(newer, spends_lost, b"later", epsilon=0.75)
    newer.close()
    shutil.copy(old, ledger.path)
    return Ledger(ledger.path, "n0", mark_of(ledger))


# --- what is told, and what is accepted ---


def test_the_mark_file_follows_every_spend(ledger):
    fill(ledger, 2)
    assert marked(mark_of(ledger)) == ledger.mark
    assert ledger.mark == Mark(ledger.id, 2, epsilon=1.0)


def test_a_restored_old_ledger_is_behind_its_mark_file(ledger):
    old = restored(ledger, 3)
    assert old.marks.ahead() == Mark(old.id, 5, epsilon=1.0 + 3 * 0.75)
    assert old.verify() == ["behind its mark: spend 2, the mark says 5"]
    again = reopened(old)  # opening it changes nothing
    assert again.refusal == (
        "its ledger is behind its mark: spend 2, the mark says 5; "
        f"its owner runs 'hushgrid ledger accept {ledger.path} --mark {mark_of(ledger)}'"
    )


def test_accept_records_the_gap_at_the_marks_price(ledger):
    old = restored(ledger, 3)
    assert [m.no for m in old.accept()] == [5]
    assert old.spends.totals(WORDS).epsilon == 1.0 + 3 * 0.75
    assert (old.marks.ahead(), old.refusal, old.verify()) == (None, None, [])
    assert old.accept() == []  # there is no gap any more
    fill(old, 1, b"next")
    assert [row.no for row in old.spends.rows()] == [1, 2, 5, 6]
    assert reopened(old).marks.ahead() is None


def test_deleted_last_rows_are_found_by_the_mark_and_by_the_sums_and_give_no_budget_back(ledger):
    fill(ledger, 5)
    ledger.checkpoint()
    ledger.tables.db.execute("DELETE FROM spend WHERE no > 3")
    again = reopened(ledger)
    sums = "the sums of its spends are not those of its rows"
    assert again.verify() == [sums, "behind its mark: spend 3, the mark says 5"]
    assert again.spends.totals(WORDS).epsilon == 5 * 0.5
    again.close()
    assert Ledger(again.path, "n0").verify() == [sums]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"no": 3}, "spend 2, the mark says 3"),
        ({"epsilon": 1.5}, "epsilon 1, the mark says 1.5"),
        ({"mu2": 0.25}, "mu^2 0, the mark says 0.25"),
        ({"nonprivate": True}, "all it gave was private, the mark says not all"),
    ],
)
def test_a_ledger_is_behind_if_any_component_is(ledger, told, words):
    fill(ledger, 2)
    assert not ledger.marks.tell(ledger.mark)
    assert ledger.marks.tell(msgspec.structs.replace(ledger.mark, **told))
    assert ledger.marks.behind_in_words == f"behind its mark: {words}"
    ledger.accept()
    assert ledger.refusal is None
    mine = ledger.mark
    assert all(getattr(mine, name) >= value for name, value in told.items())


def test_a_gap_of_gaussian_answers_is_priced_by_mu_squared_and_of_bare_ones_by_infinity(ledger):
    ledger.marks.tell(Mark(ledger.id, 4, epsilon=0.0, mu2=0.25))
    ledger.accept()
    assert ledger.spends.totals(WORDS).mu == 0.5
    assert not ledger.spends.totals(WORDS).nonprivate
    ledger.marks.tell(Mark(ledger.id, 5, epsilon=0.0, mu2=0.25, nonprivate=True))
    ledger.accept()
    assert ledger.spends.totals(WORDS).nonprivate
    ledger.marks.tell(Mark(ledger.id, 6, epsilon=inf, mu2=inf, nonprivate=True))
    ledger.accept()
    assert reopened(ledger).spends.totals(WORDS).nonprivate


def test_a_gaps_mu_is_never_less_than_the_root_of_what_was_told(ledger):
    mu2 = nextafter(2.0, 3.0)
    ledger.marks.tell(Mark(ledger.id, 1, mu2=mu2))
    ledger.accept()
    assert ledger.spends.totals(WORDS).mu ** 2 >= mu2


def test_told_by_a_peer_it_is_behind_until_its_owner_accepts(ledger):
    fill(ledger, 2)
    assert ledger.marks.tell(Mark(ledger.id, 7, epsilon=2.0))
    again = reopened(ledger)
    assert again.marks.ahead().no == 7
    again.accept()
    assert (again.spends.no, again.spends.totals(WORDS).epsilon) == (7, 2.0)


def test_of_two_marks_each_component_counts_and_the_order_does_not(ledger):
    ledger.marks.tell(Mark(ledger.id, 7, epsilon=2.0))
    assert ledger.marks.tell(Mark(ledger.id, 3, epsilon=9.0, mu2=1.0))
    assert ledger.marks.tell(Mark(ledger.id, 4, epsilon=1.0))
    assert ledger.accept() == [Mark(ledger.id, 7, epsilon=9.0, mu2=1.0)]
    assert (ledger.spends.totals(WORDS).epsilon, ledger.spends.totals(WORDS).mu) == (9.0, 1.0)


def test_a_mark_that_is_told_low_does_not_lower_what_the_file_says(ledger):
    """Accepted by its peer's word alone, an old copy would spend twice what the mark file knows to be spent."""
    old = restored(ledger, 3)
    assert old.marks.tell(Mark(old.id, 5, epsilon=1.0))
    old.accept()
    assert old.spends.totals(WORDS).epsilon == 1.0 + 3 * 0.75


def test_what_is_lost_at_a_small_unit_comes_back_at_the_budgets(ledger):
    """A coordinator asks at a hundredth of the unit, so that a restored copy would remember a hundredth of the
    price.
    """
    ledger.spends.count_at(WORDS)
    fill(ledger, 1, adjacency="bounded-change 0.0001")
    told = ledger.mark
    assert told.epsilon == 100 * 0.5
    lost = Ledger(ledger.path.with_name("new card"), "n0")
    lost.marks.tell(told)
    lost.accept()
    assert lost.spends.totals(WORDS).epsilon == 100 * 0.5
    assert reopened(ledger).mark == told


def test_another_ledgers_mark_is_accepted_once_and_again_if_it_is_told_higher(ledger):
    lost = Mark(b"another card id!", 9, epsilon=3.0)
    fill(ledger, 2)
    assert ledger.marks.tell(lost)
    assert ledger.marks.behind_in_words.startswith("behind its mark of another ledger (616e6f74): spend 0")
    assert ledger.accept() == [lost]
    assert ledger.spends.totals(WORDS).epsilon == 1.0 + 3.0
    assert ledger.spends.no == 3  # a gap is one row: another ledger's numbers are not used up
    again = reopened(ledger)
    assert not again.marks.tell(lost)
    assert again.marks.tell(msgspec.structs.replace(lost, epsilon=4.0))
    again.accept()
    assert again.spends.totals(WORDS).epsilon == 1.0 + 4.0
    assert again.verify() == []


def test_a_new_ledger_beside_an_old_ones_mark_is_behind_it(ledger):
    fill(ledger, 2)
    ledger.close()
    ledger.path.unlink()
    new = Ledger(ledger.path, "n0", mark_of(ledger))
    assert new.marks.ahead() == ledger.mark
    fill(new, 1)
    assert new.marks.ahead() == ledger.mark  # nor does it overwrite the mark
    new.accept()
    assert new.spends.totals(WORDS).epsilon == 1.0 + 0.5
    assert new.refusal is None
    assert marked(mark_of(new)) == new.mark
    new.close()


# --- the mark file itself ---


def test_a_mark_file_that_is_gone_stops_the_ledger_until_it_is_accepted(ledger):
    fill(ledger, 2)
    ledger.close()
    mark_of(ledger).unlink()
    again = Ledger(ledger.path, "n0", mark_of(ledger))
    assert f"without its mark: {mark_of(ledger)} is gone; its owner runs" in again.refusal
    assert not mark_of(ledger).exists()  # opening it does not put the mark back
    assert again.accept() == []
    assert again.refusal is None
    assert reopened(again).refusal is None


def test_a_mark_whose_folder_is_gone_is_written_again_once_its_owner_accepts(ledger):
    fill(ledger, 3)
    ledger.close()
    shutil.rmtree(mark_of(ledger).parent)
    again = Ledger(ledger.path, "n0", mark_of(ledger))
    assert "is gone" in again.refusal
    assert not mark_of(ledger).parent.exists()  # its disk may come back
    again.accept()
    assert again.refusal is None
    assert marked(mark_of(again)) == again.mark


@pytest.mark.parametrize(
    "content",
    [b"", b"\xc1", b"\x93\x01", msgspec.msgpack.encode({"no": 3}), msgspec.msgpack.encode([b"x", 1, float("nan")])],
)
def test_a_mark_file_that_cannot_be_read_stops_the_ledger_and_is_mended_by_accept(ledger, content):
    fill(ledger, 2)
    ledger.close()
    mark_of(ledger).write_bytes(content)
    again = Ledger(ledger.path, "n0", mark_of(ledger))
    assert f"cannot be read ({len(content)} bytes that are no mark)" in again.refusal
    assert again.verify() == [again.marks.behind_in_words]
    again.marks.tell(Mark(again.id, 3, epsilon=2.0))  # what else is known still counts
    again.accept()
    assert again.refusal is None
    assert again.spends.totals(WORDS).epsilon == 2.0
    assert marked(mark_of(again)) == again.mark


def test_a_mark_file_that_goes_while_the_device_runs_stops_it_before_it_publishes(ledger):
    fill(ledger, 1)
    mark_of(ledger).unlink()
    with pytest.raises(LedgerFailed, match=r"its mark .*n0.mark is gone, .*: nothing was released"):
        ledger.commit(RUN, spends=[spend(2)])
    assert ledger.spends.no == 2  # it is paid, though nobody was given it


def test_a_ledger_in_a_marks_place_can_be_written_to_by_nobody_and_stays_unlocked(tmp_path):
    (tmp_path / "file").write_text("")
    ledger = Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "file" / "m")
    assert "cannot be read (Not a directory)" in ledger.refusal
    with pytest.raises(LedgerFailed, match="expected to write the mark"):
        ledger.accept()
    ledger.close()
    (tmp_path / "folder").mkdir()
    Ledger(tmp_path / "n0.ledger", "n0", tmp_path / "folder" / "m").close()


# --- a peer that lies ---


@pytest.mark.parametrize("no", [MOST_LOST + 1, 1 << 40, 1 << 48])
def test_a_mark_that_no_ledger_can_have_reached_is_dropped(ledger, no):
    assert not ledger.marks.tell(Mark(ledger.id, no, epsilon=1.0))
    assert ledger.refusal is None


def test_the_highest_mark_that_is_believed_leaves_numbers_for_as_many_spends_as_ever(ledger):
    for _ in range(20):
        assert ledger.marks.tell(Mark(ledger.id, ledger.spends.no + MOST_LOST, epsilon=0.0))
        ledger.accept()
    fill(ledger, 1)
    again = reopened(ledger)
    assert again.refusal is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(again.mark), type=Mark) == again.mark


@pytest.mark.parametrize("price", [LARGEST * 2, 1e308, inf])
def test_a_price_beyond_all_bounds_counts_as_no_privacy_and_stays_readable(ledger, price):
    for k, told in enumerate((Mark(ledger.id, 3, epsilon=price), Mark(b"another", 3, mu2=price))):
        assert ledger.marks.tell(told)
        ledger.accept()
        assert ledger.refusal is None
        fill(ledger, 1, b"run %d" % k)
    again = reopened(ledger)
    assert again.spends.totals(WORDS).nonprivate
    assert again.mark.epsilon <= LARGEST
    assert again.mark.mu2 <= LARGEST
    assert again.refusal is None


def test_many_ledgers_that_never_were_take_no_room(ledger):
    for k in range(3 * MOST_TOLD):
        assert ledger.marks.tell(Mark(b"%16d" % k, 1, epsilon=1.0))
    assert len(ledger.accept()) == MOST_TOLD
    assert ledger.refusal is None


def test_a_marks_file_of_a_liar_is_no_mark(ledger):
    ledger.close()
    mark_of(ledger).write_bytes(msgspec.msgpack.encode(Mark(ledger.id, 1 << 48)))
    again = Ledger(ledger.path, "n0", mark_of(ledger))
    assert "cannot be right (spend 281474976710656)" in again.refusal
    again.accept()
    assert (again.refusal, again.spends.no) == (None, 0)
    again.close()


# --- whatever is told, in whatever order ---

prices = st.floats(0.0, 100.0) | st.sampled_from([0.0, 0.1, 1e-300, 5e-324, LARGEST, 1e300, inf])
ids = st.sampled_from([b"", b"lost card", b"another card"])  # empty: this ledger's own
told = st.tuples(ids, st.integers(0, 9) | st.integers(0, 1 << 48), prices, prices, st.booleans())
actions = st.lists(
    st.tuples(st.just("tell"), told)
    | st.tuples(st.just("file"), told)
    | st.tuples(st.just("spend"), st.sampled_from(["laplace", "gaussian"]))
    | st.tuples(st.sampled_from(["accept", "reopen", "lose"]), st.none()),
    max_size=12,
)


def price(ledger):
    totals = ledger.spends.totals(WORDS)
    return (inf, inf) if totals.nonprivate else (totals.epsilon, totals.mu**2)


@pytest.mark.runs
@examples.of(300)
@given(actions)
def test_accept_never_gives_budget_back(tmp_path_factory, actions):
    """The price never falls, and once accepted is what each teller said at least: but for the sums' own rounding."""
    place = tmp_path_factory.mktemp("ledger")
    path, file = place / "n0.ledger", place / "n0.mark"
    ledger = Ledger(path, "n0", file, durable=False)
    ledger.join(RUN, b"plan")
    before, said = price(ledger), {}
    # A sum of n terms is off by less than n units in its last place, and the square of a root by a few.
    slack = 1 - (len(actions) + 8) * 2.0**-52
    for what, value in actions:
        if what in ("tell", "file"):
            owner, no, epsilon, mu2, nonprivate = value
            mark = Mark(owner or ledger.id, no, epsilon, mu2, nonprivate)
            if what == "file":
                file.write_bytes(msgspec.msgpack.encode(mark))
                continue
            ledger.marks.tell(mark)
            if no <= MOST_LOST:  # else it is no ledger's
                said[mark.ledger] = highest(said.get(mark.ledger), mark)
        elif what == "spend":
            kind = Spend(1, value, 0.3, 0.1, 0.2, 0.1, WORDS, "x")
            try:
                ledger.commit(RUN, spends=[kind])
            except LedgerFailed:
                assert "cannot be right" in ledger.refusal or "is gone" in ledger.refusal
        elif what == "lose":
            file.unlink(missing_ok=True)
        elif what == "reopen":
            mark = ledger.mark
            ledger.close()
            ledger = Ledger(path, "n0", file, durable=False)
            assert ledger.mark == mark
        else:
            if file.exists() and (outside := marked(file)).no <= MOST_LOST:
                said[outside.ledger] = highest(said.get(outside.ledger), outside)
            ledger.accept()
            assert ledger.refusal is None
            counted = price(ledger)
            for mark in said.values():
                assert counted[0] >= min(mark.epsilon, LARGEST) * slack
                assert counted[1] >= min(mark.mu2, LARGEST) * slack
                assert max(counted) >= LARGEST * slack or not mark.nonprivate  # such a price is none at all
        now = price(ledger)
        assert now[0] >= before[0]
        assert now[1] >= before[1] * slack
        before = now
    ledger.close()


@given(st.floats(0, LARGEST), st.floats(0, LARGEST))
def test_what_is_missing_brings_a_sum_to_what_was_told(told, own):
    assert own + missing(told, own) >= told
    assert missing(told, own) == 0.0 or own < told
