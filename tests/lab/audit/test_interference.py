"""`hushgrid audit --interference`: the standing test on a scenario of one's own.
That it finds nothing in any of the program's algorithms is tests/broker/simulation/test_noninterference.py."""

import pytest
import yaml

from hushgrid.lab.audit.interference import interference
from hushgrid.node.problems.records.gate import RowsGate
from tests.support.runs.masked_runs import masked
from tests.support.scenarios.guarded_scenarios import CASES

pytestmark = pytest.mark.runs


@pytest.mark.parametrize("case", ["ladmm, mode input", "dgd"])
def test_only_the_answers_tell_of_the_data(case):
    found = interference(CASES[case])
    assert [one.differs for one in found.compared] == [[]] * 4
    assert "transcript" in found.control
    assert found.messages > 10


def test_of_a_masked_run_too(tmp_path):
    """Its shares are held still, and keys and certificates, which are drawn anew for each run."""
    found = interference(masked(tmp_path))
    assert [one.differs for one in found.compared] == [[]] * 4
    assert "transcript" in found.control


def test_a_second_way_from_the_data_to_the_wire_is_found(monkeypatch):
    """A gate that adds the data to an answer after its noise."""
    honest = RowsGate.gradient
    monkeypatch.setattr(
        RowsGate, "gradient", lambda gate, x: honest(gate, x) + 1e-9 * (gate.loss.A.sum() + gate.loss.b.sum())
    )
    found = interference(CASES["dgd"])
    assert all("transcript" in one.differs for one in found.compared)


def test_loads_beyond_the_public_mask_stay_as_they_are():
    """That some are not zero is said to their owner."""
    raw = CASES["ladmm, mode input"]
    found = interference(raw | {"problem": raw["problem"] | {"loads": {"nonzero": "case"}}})
    assert [one.differs for one in found.compared] == [[]] * 4


def test_as_a_person_meets_it(tmp_path, hushgrid):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(CASES["dgd"]))
    ended = hushgrid("audit", path, "--interference", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count("the same") == 4
    assert "the comparison can fail" in ended.out
