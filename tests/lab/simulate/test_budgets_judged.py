"""What the checker of simulated histories says of budgets: by its own sums, over windows, cards and accepted gaps."""

import pytest

from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.lab.simulate.checker import check

HOUR = 3600.0


def owner(epsilon=2.0, window_s=2 * HOUR, kind="laplace", value=1.0, t=0.0):
    return {
        "t": t, "e": "owner", "who": "n0", "epsilon": epsilon, "delta": 1e-5, "window_s": window_s,
        "run": [kind, value, 1],
    }  # fmt: skip


def spent(no, hour, value=1.0, kind="laplace", ran=None, ledger="a"):
    ran = hour * HOUR if ran is None else ran
    return {
        "t": hour * HOUR,
        "e": "spent",
        "who": "n0",
        "id": ledger,
        "no": no,
        "kind": kind,
        "value": value,
        "ran": ran,
    }


def unanswered(hour):
    return {"t": hour * HOUR, "e": "unanswered", "who": "coordinator", "text": "missed", "refused": ["n0"]}


def broken(*events):
    return [finding.promise for finding in check(events)]


def test_a_window_that_holds_more_than_its_owner_allows_is_found_and_one_that_has_gone_by_is_not():
    assert broken(owner(), spent(1, 0), spent(2, 1), spent(3, 3)) == []
    assert set(broken(owner(), spent(1, 0), spent(2, 1), spent(3, 1.5))) == {"budget"}


@pytest.mark.parametrize("answers", [3, 7])
def test_gaussian_answers_are_added_up_by_their_own_formula(answers):
    limit = owner(gdp_epsilon(0.5 * answers**0.5, 1e-5), None, "gaussian", 0.5)
    events = [spent(no, no, 0.5, "gaussian") for no in range(1, answers + 2)]
    assert broken(limit, *events[:-1]) == []
    assert set(broken(limit, *events)) == {"budget"}


def test_running_time_that_goes_faster_than_the_worlds_would_empty_windows_early():
    assert "budget" in broken(owner(), spent(1, 0), spent(2, 1), spent(3, 1.5, ran=9 * HOUR))


def test_a_smaller_budget_holds_once_the_device_has_taken_it():
    less, taken = owner(1.5, t=HOUR + 1), {"t": HOUR + 2, "e": "log", "who": "n0", "line": "the budget is epsilon 1.5"}
    assert broken(owner(), spent(1, 1), less, spent(2, 1 + 2 / 3600)) == []
    assert set(broken(owner(), spent(1, 1), less, taken, spent(2, 1.5))) == {"budget"}


def test_what_was_accepted_counts_against_the_window_of_its_ledger():
    gap = {"t": HOUR, "e": "accepted", "who": "n0", "id": "b", "no": 5, "rows": [[5, "gap", 1.5, 0.0, HOUR]]}
    assert "budget" in broken(owner(), gap, spent(6, 1.5, ledger="b"))


def test_what_the_coordinator_remembers_counts_whatever_became_of_the_ledger():
    def life(known):
        card = {"t": HOUR, "e": "card", "who": "n0", "how": "replaced", "known": known}
        accepted = {"t": HOUR, "e": "accepted", "who": "n0", "id": "b", "no": 1, "rows": []}
        return broken(owner(), spent(1, 0.1), spent(2, 0.2), card, accepted, spent(2, 1.2, ran=60.0, ledger="b"))

    assert "budget" in life({"a": 2})
    assert life({}) == []


def test_a_refusal_is_accepted_only_of_a_device_whose_window_may_be_full():
    assert broken(owner(), spent(1, 0), spent(2, 1), unanswered(2)) == []
    assert broken(owner(), spent(1, 0), spent(2, 3), unanswered(4)) == ["answered"]
