"""Marks of peers only rise: whatever is born, joins, dies, is put back, restarted or lied about."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.node.peer_marks import MOST_LEDGERS, ROUNDING, PeerMarks, empty, lacking
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.marks import MOST_LOST, above, highest, missing
from hushgrid.node.wire import CLAIMS, Mark, decode_state, encode
from tests.support import examples

FIRST, SECOND, THIRD = (Mark(id_, no, price) for id_, no, price in ((b"1", 9, 3.0), (b"2", 4, 4.0), (b"3", 2, 1.0)))
NAME = "z1"


def price(marks):
    """(epsilon, mu^2) that a ledger which knows nothing has to count."""
    if any(mark.nonprivate for mark in marks):
        return inf, inf
    return sum(mark.epsilon for mark in marks), sum(mark.mu2 for mark in marks)


def remembered(*marks):
    kept = PeerMarks()
    for mark in marks:
        kept.spent(NAME, mark)
    return kept


def test_a_birth_of_another_ledger_adds_no_mark_and_takes_none_away():
    kept = remembered(FIRST)
    kept.born(NAME, Mark(b"2", 0))
    kept.born(NAME, SECOND)
    assert kept.marks(NAME, b"2") == (FIRST,)


def test_a_birth_raises_the_mark_of_its_own_ledger():
    kept = remembered(FIRST)
    kept.born(NAME, Mark(b"1", 10, 2.0))
    assert kept.marks(NAME) == (Mark(b"1", 10, 3.0),)


def test_a_card_on_which_nothing_was_spent_leaves_no_mark():
    kept = PeerMarks()
    kept.born(NAME, Mark(b"0", 0))
    kept.born(NAME, FIRST)
    assert kept.marks(NAME, b"2") == (FIRST,)


def test_a_ledger_that_joins_and_has_accepted_stands_alone_and_its_price_holds_the_others():
    kept = remembered(FIRST)
    assert kept.lacking(NAME, Mark(b"2", 1, 3.0), ()) == (FIRST,)
    assert kept.lacking(NAME, Mark(b"2", 1, 3.0), (FIRST,)) == ()
    kept.joined(NAME, Mark(b"2", 1, 3.0), (FIRST,))
    assert kept.marks(NAME) == (Mark(b"2", 1, 3.0),)
    assert kept.mark(NAME, b"1") == FIRST  # what a third party says of it is known already
    kept.spent(NAME, FIRST)
    assert kept.marks(NAME) == (Mark(b"2", 1, 3.0),)


def test_a_ledger_that_accepts_for_less_than_it_was_told_stands_beside():
    kept = remembered(FIRST)
    kept.joined(NAME, Mark(b"2", 1, 2.9), (FIRST,))
    assert kept.marks(NAME) == (Mark(b"2", 1, 2.9), FIRST)


def test_a_ledger_of_a_program_that_says_nothing_stands_beside():
    kept = remembered(FIRST)
    assert kept.lacking(NAME, SECOND, None) == ()
    kept.joined(NAME, SECOND, None)
    assert kept.marks(NAME, b"2") == (SECOND, FIRST)


def test_a_mark_that_rises_after_it_was_accepted_is_told_again():
    kept = remembered(FIRST)
    kept.joined(NAME, Mark(b"2", 1, 3.0), (FIRST,))
    kept.spent(NAME, Mark(b"1", 13, 4.0))
    assert kept.marks(NAME, b"2") == (Mark(b"2", 1, 3.0), Mark(b"1", 13, 4.0))
    assert kept.lacking(NAME, Mark(b"2", 1, 3.0), (FIRST,)) == (Mark(b"1", 13, 4.0),)


def test_two_boxes_that_were_replaced_one_after_the_other_are_paid_for_once():
    kept = remembered(FIRST)
    kept.joined(NAME, Mark(b"2", 1, 3.0), (FIRST,))
    kept.spent(NAME, SECOND)  # of which 3 are those of the first
    assert kept.marks(NAME, b"3") == (SECOND,)
    kept.joined(NAME, Mark(b"3", 1, 4.0), (SECOND,))
    assert price(kept.marks(NAME)) == (4.0, 0.0)


def test_an_old_card_that_is_put_back_is_told_of_the_one_after_it():
    kept = remembered(FIRST)
    kept.joined(NAME, SECOND, (FIRST,))
    assert kept.marks(NAME, b"1") == (FIRST, SECOND)


def test_of_more_ledgers_than_are_kept_the_cheapest_are_added_up():
    kept = PeerMarks()
    for k in range(40):
        kept.spent(NAME, Mark(b"%d" % k, 1, 1.0, 0.5))
    assert len(kept.marks(NAME)) == 1 + MOST_LEDGERS
    assert price(kept.marks(NAME)) == (40.0, 20.0)


@pytest.mark.parametrize("no", [MOST_LOST + 1, 1 << 40])
def test_a_mark_that_no_ledger_can_have_is_no_mark(no):
    kept = PeerMarks()
    for takes in (kept.born, kept.spent):
        takes(NAME, Mark(b"1", no, 1.0))
    assert kept.peers == {}


def test_a_witness_says_what_a_plan_does_not_and_no_more_than_fits():
    kept = remembered(FIRST)
    assert kept.ahead([NAME], {NAME: (FIRST,)}) == ()
    assert kept.ahead([NAME], {NAME: (Mark(b"1", 8, 3.0),)}) == ((NAME, FIRST),)
    assert kept.ahead(["z2"], {}) == ()
    many = PeerMarks()
    for k in range(2 * CLAIMS):
        many.spent(f"n{k}", FIRST)
    assert len(many.ahead(list(many.peers), {})) == CLAIMS


# --- in a ledger ---


def test_what_a_peer_has_spent_is_stored_with_the_step_that_its_message_made(tmp_path):
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.join(b"r" * 16, b"plan")
    ledger.peer_marks.spent("n1", FIRST)
    ledger.commit(
        b"r" * 16, state=b"state", spends=[Spend(1, "laplace", 0.5, 0.1, 0.2, 0.1, "bounded-change 0.01", "x")]
    )
    ledger.peer_marks.spent("n2", SECOND)
    ledger._give_up()  # as a kill: what was not committed is gone
    again = Ledger(tmp_path / "n0.ledger", "n0")
    assert (again.peer_marks.marks("n1"), again.peer_marks.marks("n2")) == ((FIRST,), ())
    again.peer_marks.spent("n2", SECOND)
    again.close()
    again = Ledger(tmp_path / "n0.ledger", "n0")
    assert again.peer_marks.marks("n2") == (SECOND,)
    again.close()


def test_a_ledger_of_before_has_one_mark_of_each_peer_and_that_program_reads_the_one_that_stands(tmp_path):
    ledger = Ledger(tmp_path / "c.ledger", "coordinator")
    with ledger._transaction():
        ledger.db.execute("INSERT INTO peer VALUES ('z1', ?)", (encode(FIRST),))
    ledger.close()
    again = Ledger(tmp_path / "c.ledger", "coordinator")
    assert again.peer_marks.marks("z1") == (FIRST,)
    again.peer_marks.joined("z1", SECOND, None)
    again.remember_peers()
    (blob,) = again.db.execute("SELECT mark FROM peer").fetchone()
    assert decode_state(Mark, blob) == SECOND
    again.close()
    last = Ledger(tmp_path / "c.ledger", "coordinator")
    assert last.peer_marks.marks("z1") == (SECOND, FIRST)
    last.close()


# --- the property ---


class Box:
    """One ledger, as far as marks go: the device's own rules, without its file."""

    def __init__(self, id_):
        self.id, self.no, self.epsilon, self.counted, self.told = id_, 0, 0.0, {}, {}

    def copied(self):
        copy = Box(self.id)
        copy.no, copy.epsilon, copy.counted = self.no, self.epsilon, dict(self.counted)
        return copy

    @property
    def mark(self):
        return Mark(self.id, self.no, self.epsilon)

    def level(self, ledger):
        return self.mark if ledger == self.id else self.counted.get(ledger, Mark(ledger, 0))

    def hears(self, marks):
        for mark in marks:
            if above(mark, self.level(mark.ledger)):
                self.told[mark.ledger] = highest(self.told.get(mark.ledger), mark)

    @property
    def behind(self):
        return [mark for mark in self.told.values() if above(mark, self.level(mark.ledger))]

    def accepts(self):
        for mark in self.behind:
            self.epsilon += missing(mark.epsilon, self.level(mark.ledger).epsilon)
            if mark.ledger == self.id:
                self.no = max(self.no, mark.no)
            else:
                self.no += 1
                self.counted[mark.ledger] = highest(self.counted.get(mark.ledger), mark)
        self.told = {}


class Life:
    """A member, its boxes one after the other, its coordinator, and a neighbour that receives what it spends."""

    def __init__(self):
        self.made, self.box = 1, Box(b"1")
        self.old, self.spends = [], {}  #: copies of boxes; by ledger what it has spent itself in (epsilon)
        self.centre, self.witness = PeerMarks(), PeerMarks()
        self.stored = {}
        self.joined = False
        self.dearest = (0.0, 0.0)  #: what was told
        self.received = {}  #: of `spends`, what the coordinator remembers durably

    def tells(self):
        """A plan: stored before it is said."""
        self.stored, self.joined = dict(self.centre.peers), False
        now = price(self.centre.marks(NAME))
        assert all(after >= before / ROUNDING**8 for after, before in zip(now, self.dearest, strict=True)), (
            self.dearest, now,
        )  # fmt: skip
        self.dearest = now
        self.box.hears(self.centre.marks(NAME, self.box.id))

    def joins(self):
        """As the coordinator does it: a ledger that lacks something is told again."""
        self.tells()
        if self.box.behind or self.centre.lacking(NAME, self.box.mark, tuple(self.box.counted.values())):
            return
        self.centre.joined(NAME, self.box.mark, tuple(self.box.counted.values()))
        self.stored, self.joined = dict(self.centre.peers), True
        # nothing forgotten: it has counted all that anybody remembers of what its ledgers have spent
        assert self.box.epsilon >= sum(self.received.values()) / ROUNDING**8

    def spent(self, count, hears, witnessed):
        if not self.joined:
            return
        for _ in range(count):
            self.box.no, self.box.epsilon = self.box.no + 1, self.box.epsilon + 0.1
            self.spends[self.box.id] = self.spends.get(self.box.id, 0.0) + 0.1
        if hears:
            self.centre.spent(NAME, self.box.mark)
            self.stored = dict(self.centre.peers)
            self.received[self.box.id] = max(self.received.get(self.box.id, 0.0), self.spends[self.box.id])
        if witnessed:
            self.witness.spent(NAME, self.box.mark)

    def does(self, what, value):
        match what:
            case "birth":
                self.centre.born(NAME, self.box.mark, tuple(self.box.counted.values()))
            case "plan":
                self.tells()
            case "join":
                self.joins()
            case "spend":
                self.spent(*value)
            case "accept":
                self.box.accepts()
                self.joined = False
            case "copy":
                self.old.append((self.box.copied(), dict(self.spends)))
            case "lost":
                self.made, self.joined = self.made + 1, False
                self.box = Box(b"%d" % self.made)
            case "back" if self.old:
                box, spends = self.old[value % len(self.old)]
                self.box, self.joined = box.copied(), False
                self.spends = self.spends | {box.id: spends.get(box.id, 0.0)}
            case "restart":
                self.centre, self.joined = PeerMarks(self.stored), False
            case "claim":
                for name, mark in self.witness.ahead([NAME], {NAME: self.centre.marks(NAME)}):
                    self.centre.spent(name, mark)
            case "lie":
                self.centre.spent(NAME, Mark(*value))
            case "old join":
                if self.joined:
                    self.centre.joined(NAME, self.box.mark, None)


lies = st.tuples(
    st.sampled_from([b"1", b"2", b"3", b"4", b"9"]), st.integers(0, 30), st.floats(0, 9), st.floats(0, 9), st.booleans()
)
actions = st.lists(
    st.tuples(
        st.sampled_from(["birth", "plan", "join", "accept", "copy", "lost", "restart", "claim", "old join"]), st.none()
    )
    | st.tuples(st.just("spend"), st.tuples(st.integers(1, 5), st.booleans(), st.booleans()))
    | st.tuples(st.sampled_from(["join", "accept", "lost"]), st.none())
    | st.tuples(st.just("back"), st.integers(0, 5))
    | st.tuples(st.just("lie"), lies),
    max_size=30,
)


def lives(sequence):
    life = Life()
    for what, value in sequence:
        life.does(what, value)
    life.tells()


@pytest.mark.runs
@examples.of(1500)
@given(actions)
def test_the_price_that_is_told_never_falls_and_nothing_that_was_received_is_forgotten(sequence):
    lives(sequence)


@pytest.mark.long
@settings(max_examples=100_000, deadline=None)
@given(actions)
def test_in_a_hundred_thousand_lives_the_price_that_is_told_never_falls(sequence):
    lives(sequence)


def test_lacking_compares_every_component():
    assert lacking([FIRST], Mark(b"2", 0), [Mark(b"1", 9, 2.0)]) == (FIRST,)
    assert lacking([FIRST], FIRST, []) == ()
    assert empty(Mark(b"1", 0))
