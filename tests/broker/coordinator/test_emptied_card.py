"""kill -9 and an empty card at every step of a run, of every pattern: refused until the owner accepts, nothing forgotten."""

import pytest

from hushgrid.kernels.errors import Refused
from tests.support import examples
from tests.support.runs.emptied_card import MOMENTS, PATTERNS, Fleet, steps

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


@pytest.mark.parametrize(("pattern", "moment"), examples.few(CASES, [(p, "published") for p in PATTERNS]))
def test_an_empty_card_at_every_step_is_refused_until_its_owner_accepts_and_nothing_is_forgotten(
    tmp_path, pattern, moment
):
    victim = VICTIMS.get(pattern, "n1")
    (tmp_path / "first").mkdir()
    last = steps(tmp_path / "first", pattern, victim)
    found = [emptied_at(tmp_path / str(step), pattern, moment, step) for step in range(1, last + 1)]
    assert any(found)
