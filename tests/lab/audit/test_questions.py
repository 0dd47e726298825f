"""`hushgrid audit --questions`: what a device answers and refuses, in its own words, whatever its data are."""

import json

import pytest
import yaml

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.lab.audit.questions import questions
from hushgrid.node.problems.records.device import Rows
from tests.support.runs.masked_runs import masked
from tests.support.scenarios.guarded_scenarios import CASES, of_a_day


@pytest.mark.runs
@pytest.mark.parametrize("case", ["admm", "recal, bounded change", "ladmm, mode input"])
def test_lies_are_refused_by_public_numbers_alone(case):
    found = questions(CASES[case])
    assert all(q.same for q in found)
    plans = {q.what: q.answered for q in found if q.where == "plan"}
    assert plans.pop("the scenario's own")
    plans.pop("with another clip", None)  # a clip is within what the owner consents to
    assert not any(plans.values())
    gates = {q.what: q for q in found if q.where == "gate"}
    for what in ("exact_gradient at the start", "one answer more than the cap", "perturb at the start"):
        assert not gates[what].answered
    assert gates["gradient at the start"].answered
    assert "sensitivity" in gates["gradient at the start"].reply


@pytest.mark.runs
def test_over_a_horizon_a_zone_answers_with_its_loads_once_and_no_gradient():
    found = questions(of_a_day())
    assert all(q.same for q in found)
    assert [q.what for q in found if q.answered] == ["the scenario's own", "data"]
    assert {"gradient at the start", "exact_gradient at the start"} <= {
        q.what for q in found if "a gradient was asked for over a horizon" in q.reply
    }


@pytest.mark.runs
def test_the_owner_of_a_masked_run_allows_what_its_scenario_claims_and_no_more(tmp_path):
    found = {q.what: q for q in questions(masked(tmp_path))}
    assert found["the scenario's own"].answered
    for what, words in (
        ("that relies on fewer honest members", "2 honest contributors, its owner asks for at least 3"),
        ("for twice the budget", "against everybody else, its owner allows"),
        ("gradient at the start", "an answer by itself was asked for in a masked run"),
    ):
        assert not found[what].answered
        assert words in found[what].reply


@pytest.mark.runs
def test_a_refusal_that_tells_of_the_data_is_found(monkeypatch):
    honest = Rows.check

    def telling(self, plan):
        honest(self, plan)
        if self.shard.b.sum() > 1:
            raise Refused(f"{self.name}: too many labels are 1")

    monkeypatch.setattr(Rows, "check", telling)
    assert not all(q.same for q in questions(CASES["dgd"]))


@pytest.mark.runs
def test_as_a_person_meets_it(tmp_path, hushgrid):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(CASES["dgd"]))
    ended = hushgrid("audit", path, "--questions", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert "without privacy" in ended.out
    assert "the same words for each" in ended.out
    assert json.loads(hushgrid("audit", path, "--questions", "--json", "--quiet").out)["same"] is True


def test_a_run_without_privacy_has_no_questions():
    raw = CASES["dgd"]
    with pytest.raises(InputError, match=r"expected guarded \(--questions\)"):
        questions(raw | {"algorithm": raw["algorithm"] | {"variant": "none"}, "privacy": None})
