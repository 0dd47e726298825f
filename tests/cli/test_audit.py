"""`hushgrid audit` as a person meets it. What it finds is tested in tests/lab/audit."""

import json

import pytest
import yaml

from hushgrid.kernels.privacy.noise import Lattice
from tests.support.scenarios.record_scenarios import GAUSSIAN, scenario


@pytest.fixture
def file(tmp_path):
    raw = scenario({"algorithm": {"name": "dgd", "rounds": 1, "step_size": 0.1}, "privacy.epsilon": 3.0, "seed": 1})
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


@pytest.mark.runs
def test_what_is_claimed_measured_and_could_have_been_shown(file, hushgrid):
    ended = hushgrid("audit", file, "--games", 2000, "--quiet")
    assert (ended.code, ended.err) == (0, "")
    for said in (
        "claimed     epsilon 3, over the run",
        "measured    epsilon at least 2.",
        "power       epsilon 2.9",
        "the worst pair",
    ):
        assert said in ended.out
    assert "verified" not in ended.out
    assert "computed from data" in ended.out


@pytest.mark.runs
def test_json_has_the_figures(file, hushgrid):
    said = json.loads(hushgrid("audit", file, "--games", 2000, "--json", "--quiet").out)
    assert said["claimed"] == {"epsilon": 3.0, "delta": 0.0}
    assert 2 < said["measured"]["epsilon_lower"] <= said["power"] <= 3
    assert said["measured"]["mu_lower"] is None
    assert said["at"]["0.95"]["epsilon_lower"] > said["measured"]["epsilon_lower"]
    assert said["confidence"] == 0.999
    assert (said["games"], said["above"], said["canary"]["from_data"]) == (2000, False, False)
    assert said["seconds"] > 0


@pytest.fixture
def gaussian(tmp_path):
    """One exact Gaussian mechanism, whose games one audit in twenty would call above at 95 %: with seed 3 they do."""
    over = GAUSSIAN | {"privacy.accountant": "gdp", "algorithm": {"name": "dgd", "rounds": 1, "step_size": 0.1}}
    path = tmp_path / "g.yaml"
    path.write_text(yaml.safe_dump(scenario(over | {"privacy.epsilon": 1.0, "seed": 3})))
    return path


@pytest.mark.runs
def test_an_exact_mechanism_is_not_called_above_by_one_audit_in_twenty(gaussian, hushgrid):
    ended = hushgrid("audit", gaussian, "--games", 500, "--json", "--quiet")
    found = json.loads(ended.out)
    assert found["at"]["0.95"]["epsilon_lower"] > found["claimed"]["epsilon"]
    assert (ended.code, ended.err, found["above"]) == (0, "", False)
    assert "ABOVE" not in hushgrid("audit", gaussian, "--games", 500, "--quiet").out


#: One run of six Gaussian answers; the last one reaches nobody.
ONE_RUN = ["--one-run", "--canaries", 400, "--transport", "memory", "--set", "algorithm.rounds=6"]


@pytest.mark.runs
@pytest.mark.parametrize("arguments", [["--games", 2000], ONE_RUN], ids=["games", "one run"])
def test_a_refuted_claim_is_a_line_and_exit_code_1_and_the_figures_stay(arguments, gaussian, hushgrid, monkeypatch):
    sample = Lattice.sample
    monkeypatch.setattr(Lattice, "sample", lambda self, *given: sample(self, *given) // 1000)
    for more in ([], ["--json"]):
        ended = hushgrid("audit", gaussian, *arguments, *more, "--quiet")
        assert ended.code == 1
        assert ended.err.count("\n") == 1
        assert ": the claim is refuted: found epsilon at least " in ended.err
        assert ended.err.endswith(" with confidence 0.999, expected at most the claimed 1\n")
    assert json.loads(ended.out)["above"] is True


@pytest.mark.runs
def test_one_run_says_what_share_of_the_claim_it_can_show(gaussian, hushgrid):
    arguments = [*ONE_RUN, "--quiet", "--set", "privacy.epsilon=8", "--set", "problem.kind=least-squares"]
    ended = hushgrid("audit", gaussian, *arguments)
    assert (ended.code, ended.err) == (0, "")
    assert "0.38 of the claim's mu: a perfect attack on exactly the claimed noise shows no more with 400" in ended.out
    assert json.loads(hushgrid("audit", gaussian, *arguments, "--json").out)["share"] == pytest.approx(0.38, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--games", "5"], "--games: found 5, expected 100 to 100000000"),
        (["--confidence", "1"], "--confidence: found 1, expected a number from 0.5 to below 1"),
        (["--node", "n9"], "--node: found n9, expected one of n0..n3"),
        (["--set", "algorithm.variant=none", "--set", "privacy=null"], "expected a run that claims an epsilon"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, said, file, hushgrid):
    ended = hushgrid("audit", file, "--quiet", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_scenario_is_asked_for(hushgrid):
    assert hushgrid("audit", "--quiet").err == "hushgrid: SCENARIO: found none, expected a scenario file or a name\n"
