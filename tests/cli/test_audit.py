"""`hushgrid audit` as a person meets it. What it finds is tested in tests/broker/audit."""

import json

import pytest
import yaml

from tests.support.scenarios.record_scenarios import scenario


@pytest.fixture
def file(tmp_path):
    raw = scenario({"algorithm": {"name": "dgd", "rounds": 1, "step_size": 0.1}, "privacy.epsilon": 3.0, "seed": 1})
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


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


def test_json_has_the_figures(file, hushgrid):
    said = json.loads(hushgrid("audit", file, "--games", 2000, "--json", "--quiet").out)
    assert said["claimed"] == {"epsilon": 3.0, "delta": 0.0}
    assert 2 < said["measured"]["epsilon_lower"] <= said["power"] <= 3
    assert said["measured"]["mu_lower"] is None
    assert said["at"]["0.99"]["epsilon_lower"] < said["measured"]["epsilon_lower"]
    assert (said["games"], said["above"], said["canary"]["from_data"]) == (2000, False, False)
    assert said["seconds"] > 0


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
