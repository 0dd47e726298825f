"""A zone whose step fails: its own log says which round and why, the history stays, and its one answer serves the next
run.
"""

import json

import pytest

from hushgrid.grid_cases.zone.conic import ClarabelSolver, StepFailed
from tests.support.runs.continuous_fleet import Fleet, record, scenario

pytestmark = pytest.mark.runs


AT = 5  #: the round whose step fails


def test_a_step_that_fails_is_told_on_the_device_and_costs_the_next_run_nothing(tmp_path, monkeypatch):
    solve, calls = ClarabelSolver.solve, []

    def failing(self, P, q):
        if self.label == "zone z2":
            calls.append(1)
            if len(calls) == AT:
                raise StepFailed("zone z2: the solver ended InsufficientProgress, expected Solved")
        return solve(self, P, q)

    monkeypatch.setattr(ClarabelSolver, "solve", failing)
    fleet = Fleet(tmp_path, scenario("consensus-admm", 200, 5.0))
    row = fleet.interval()
    assert row["outcome"] == "missed"
    (line,) = [line for line in fleet.logs["z2"] if "ended here" in line]
    assert line.endswith(f"ended here: in round {AT}: zone z2: the solver ended InsufficientProgress, expected Solved")
    kept = record(fleet, row)
    assert [entry["round"] for entry in kept["history"]] == list(range(1, AT))
    assert "InsufficientProgress" not in json.dumps(kept)  # nobody else learns how it failed
    answered = {zone: fleet.ledgers[zone].spends.answers() for zone in fleet.zones}
    assert set(answered.values()) == {1}
    assert fleet.interval()["outcome"] == "answer"
    assert {zone: fleet.ledgers[zone].spends.answers() for zone in fleet.zones} == answered
