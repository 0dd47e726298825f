"""kill -9 and an empty card at every step of a run, of every pattern: refused until the owner accepts, nothing forgotten."""

import pytest

from hushgrid.kernels.errors import Refused, Stopped
from hushgrid.node.runtime.witness import Witness
from hushgrid.node.wire import COORDINATOR, Envelope, Join, encode
from tests.support import examples
from tests.support.runs.emptied_card import MOMENTS, PATTERNS, SILENT_S, Fleet, star, steps

VICTIMS = {"zones": "z1"}
CASES = [(pattern, moment) for pattern in PATTERNS for moment in MOMENTS]


def emptied_at(place, pattern, moment, step):
    """How often the device refused until it had counted all that it had told, in the runs after that step."""
    victim = VICTIMS.get(pattern, "n1")
    place.mkdir()
    fleet = Fleet(place, PATTERNS[pattern](place), victim)
    fleet.hub.step, fleet.hub.moment = step, moment
    fleet.runs(coordinator=False)
    fleet.hub.step, new = 0, fleet.ledgers[victim].id
    spent, refusals = any(mark.no for mark in fleet.hub.told.values() if mark.ledger != new), 0
    while isinstance(error := fleet.runs(), Refused):
        assert f"{victim}: its ledger is behind its mark of another ledger" in str(error)
        assert fleet.ledgers[victim].answers() == fleet.ledgers[victim].kinds("").get("gap", 0)  # no answer was given
        fleet.accepts()
        refusals += 1
        assert refusals <= 2, "it is told all at once"
    assert error is None
    assert bool(refusals) == spent
    assert fleet.forgotten() == []
    assert fleet.runs() is None  # and so it goes on: nothing is told that it does not count
    fleet.close()
    return refusals


@pytest.mark.runs
@pytest.mark.parametrize(("pattern", "moment"), examples.few(CASES, [(p, "published") for p in PATTERNS]))
def test_an_empty_card_at_every_step_is_refused_until_its_owner_accepts_and_nothing_is_forgotten(
    tmp_path, pattern, moment
):
    victim = VICTIMS.get(pattern, "n1")
    (tmp_path / "first").mkdir()
    last = steps(tmp_path / "first", pattern, victim)
    found = [emptied_at(tmp_path / str(step), pattern, moment, step) for step in range(1, last + 1)]
    assert any(found)


@pytest.mark.parametrize("pattern", ["token", "neighbours"])
def test_if_the_coordinator_has_lost_its_memory_too_the_neighbours_remember(tmp_path, pattern):
    fleet = Fleet(tmp_path, PATTERNS[pattern](tmp_path), "n1")
    assert fleet.runs(coordinator=False) is None
    told = dict(fleet.hub.told)
    fleet.forgets("n1")
    fleet.forgets(COORDINATOR)
    assert "n1: its ledger is behind its mark of another ledger" in str(fleet.runs())
    fleet.accepts()
    assert fleet.runs() is None
    spent = max(mark.no for mark in told.values())
    (lost,) = told
    known = [fleet.ledgers[name].peer_marks.mark("n1", lost) for name in ("n0", "n2")]
    assert spent - 1 <= max(mark.no for mark in known if mark) <= spent  # a walk's last answer goes to nobody
    fleet.close()


def test_in_masked_runs_all_members_remember_what_a_signed_introduction_has_said(tmp_path):
    fleet = Fleet(tmp_path, PATTERNS["masked"](tmp_path), "n1")
    assert fleet.runs() is None
    first = fleet.ledgers["n1"].mark
    assert fleet.runs() is None  # its introductions say what the first run has cost
    assert {fleet.ledgers[name].peer_marks.mark("n1", first.ledger) for name in ("n0", "n2")} == {first}
    fleet.forgets("n1")
    fleet.forgets(COORDINATOR)
    assert "n1: its ledger is behind its mark of another ledger" in str(fleet.runs())
    fleet.close()


@pytest.mark.runs
def test_a_second_box_is_told_what_the_first_two_have_spent_and_pays_for_it_once(tmp_path):
    fleet = Fleet(tmp_path, PATTERNS["zones"](tmp_path), "z1")
    assert fleet.runs(coordinator=False) is None
    for boxes in (2, 3):
        fleet.forgets("z1")
        assert isinstance(fleet.runs(), Refused)
        fleet.accepts()
        assert fleet.runs() is None
        own = [mark.epsilon for mark in fleet.hub.told.values()]
        assert fleet.ledgers["z1"].mark.epsilon == pytest.approx(boxes * own[0])
    assert [len(ledger.peer_marks.marks("z1")) for ledger in (fleet.ledgers[COORDINATOR],)] == [1]
    fleet.close()


# --- a stopped run ---


def stopped(tmp_path, setup):
    """A run that stopped, because a box in it was replaced, and a coordinator that goes on with it."""
    fleet = Fleet(tmp_path, setup, "n1")
    fleet.hub.step, fleet.hub.moment = 3, "published"
    assert "n1 silent" in str(fleet.runs(coordinator=False))
    fleet.resumes, fleet.hub.step = True, 0
    return fleet


def remembers_nothing(fleet):
    """Its coordinator, as one of the release before, which stored marks at the beginning and the end of a run alone."""
    with fleet.ledgers[COORDINATOR]._transaction():
        fleet.ledgers[COORDINATOR].db.execute("DELETE FROM peer")
    return fleet


def test_a_stopped_run_that_a_box_without_state_joins_is_given_over_at_once_in_one_line(tmp_path):
    fleet = remembers_nothing(stopped(tmp_path, star(tmp_path)))
    began = fleet.hub.now
    assert fleet.runs() is None
    assert fleet.hub.now - began < SILENT_S
    (line,) = [line for line in fleet.logs[COORDINATOR] if "is given up" in line]
    assert "n1 has lost its state: it stands at the beginning of the run, expected message 2; a new run begins" in line
    fleet.close()


def test_a_stopped_run_with_another_ledger_in_it_is_given_over_before_anybody_is_asked(tmp_path):
    fleet = stopped(tmp_path, star(tmp_path))
    assert isinstance(fleet.runs(), Refused)  # the new run's: the box has not counted what the one before it has spent
    (line,) = [line for line in fleet.logs[COORDINATOR] if "is given up" in line]
    assert "n1 has lost its state: its ledger is another one; a new run begins" in line
    fleet.close()


def test_a_box_of_the_release_before_that_answers_every_question_with_a_join_is_not_heard(tmp_path, monkeypatch):
    fleet = remembers_nothing(stopped(tmp_path, star(tmp_path)))
    monkeypatch.setattr(
        Witness, "join", lambda self, run, warm, _: encode(Envelope(run, 0, 0, self.ledger.mark, Join(warm)))
    )
    began, error = fleet.hub.now, fleet.runs()
    assert type(error) is Stopped  # for good: it is silent at the same point again
    assert "n1 silent" in str(error)
    assert fleet.hub.now - began < 4 * SILENT_S
    fleet.close()
