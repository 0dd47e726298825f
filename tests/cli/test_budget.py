"""`hushgrid budget plan DEVICE`: what an epsilon a window buys, from public numbers alone."""

from __future__ import annotations

import json
import re
import shutil
from math import hypot, sqrt

import pytest
import yaml

from hushgrid.cli import main as program
from hushgrid.kernels.privacy.accounting import Gaussian, Laplace
from hushgrid.kernels.privacy.limits import Charge, charge_of, limit, mu_max
from tests.support.paths import DEPLOY

DELTA = 1e-5
DAY = {"epsilon": 5.0, "delta": DELTA, "window": "24h", "adjacency": {"bounded-change": 0.01}}


@pytest.fixture
def zone(tmp_path):
    """The example's zone, of which no data file is there."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    place = tmp_path / "deploy" / "nodes" / "z1.yaml"
    for loads in place.parent.glob("*.csv"):
        loads.unlink()
    return place


@pytest.fixture
def planned(zone, capsys):
    def run(budget, *options):
        raw = yaml.safe_load(zone.read_text())
        zone.write_text(yaml.safe_dump(raw | {"budget": budget}))
        code = program.main(["budget", "plan", str(zone), *options])
        said = capsys.readouterr()
        return said.out if code == 0 else (code, said.err)

    return run


def rows(text):
    return {(r["mechanism"], r["fresh"], r["rounds"], r["epsilon"]): r for r in json.loads(text)["rows"]}


def test_a_day_on_case14_costs_the_noise_that_its_formulas_say(planned):
    found = rows(planned(DAY, "--json"))
    for fresh in (1, 4, 24, 96):
        assert found["gaussian", fresh, 1, 5.0]["noise"] == pytest.approx(sqrt(fresh) / mu_max(5.0, DELTA))
    assert found["gaussian", 24, 1, 5.0]["noise"] == pytest.approx(4.37, abs=0.01)
    assert found["gaussian", 96, 1, 5.0]["noise"] == pytest.approx(8.74, abs=0.01)
    without = rows(planned({k: v for k, v in DAY.items() if k != "delta"}, "--json"))
    assert without["laplace", 96, 1, 5.0]["noise"] == pytest.approx(sqrt(2) * 96 / 5)  # 27 MW
    assert rows(planned(DAY, "--json", "--epsilon", "20"))["gaussian", 96, 1, 20.0]["noise"] == pytest.approx(
        2.84, abs=0.01
    )


def test_what_a_row_promises_fits_into_the_window_to_its_last_answer(planned):
    found = rows(planned(DAY, "--json", "--rounds", "1,7"))
    for (mechanism, fresh, rounds, epsilon), row in found.items():
        event = Gaussian(1 / row["answer"]) if mechanism == "gaussian" else Laplace(sqrt(2) / row["answer"])
        for share, fits in ((1 - 1e-6, True), (1 + 1e-6, False)):
            one = type(event)(next(iter(vars_of(event))) * share)
            assert limit(epsilon, DELTA).holds(Charge().plus(charge_of(one), fresh * rounds)) is fits


def vars_of(event):
    return [event.epsilon] if isinstance(event, Laplace) else [event.mu]


def test_with_a_drift_the_best_row_has_the_least_of_noise_and_age(planned):
    """24 answers a day beside 96 runs: each is up to 45 minutes old, which a random walk of 8.8 MW an hour makes
    5.4.
    """
    options = ["--every", "15min", "--drift", "8.8"]
    found = rows(planned(DAY, "--json", *options))
    hourly = found["gaussian", 24, 1, 5.0]
    assert (hourly["age"], hourly["best"]) == (2700.0, True)
    assert hourly["stale"] == pytest.approx(8.8 * sqrt(0.375))
    assert hourly["total"] == pytest.approx(hypot(hourly["noise"], hourly["stale"]))
    assert sum(row["best"] for row in found.values()) == 1
    text = planned(DAY, *options)
    assert [line.split()[:4] for line in text.splitlines() if line.lstrip().startswith("* ")] == [
        ["*", "5", "gaussian", "24"]
    ]


def test_a_drift_by_age_is_averaged_over_the_ages_in_use_and_ends_at_its_last(planned):
    """Four runs an answer, whose loads are 0, 15, 30 and 45 minutes old;
    between 15 and 30 minutes the variance is linear.
    """
    found = rows(planned(DAY, "--json", "--every", "15min", "--fresh", "24,48,96", "--drift", "15min=12,30min=16"))
    assert found["gaussian", 24, 1, 5.0]["stale"] == pytest.approx(sqrt((0 + 144 + 256 + 256) / 4))
    assert found["gaussian", 48, 1, 5.0]["stale"] == pytest.approx(sqrt(144 / 2))
    assert found["gaussian", 96, 1, 5.0]["stale"] == 0


def test_without_a_drift_the_best_row_is_the_least_noise_of_the_freshest_for_each_epsilon(planned):
    found = rows(planned(DAY, "--json", "--epsilon", "1,5", "--fresh", "4,96"))
    assert {key for key, row in found.items() if row["best"]} == {("gaussian", 96, 1, 1.0), ("gaussian", 96, 1, 5.0)}


def test_rounds_cost_gaussian_noise_nothing_on_average_and_laplace_their_root_without_a_delta(planned):
    pure = {k: v for k, v in DAY.items() if k != "delta"}
    found = rows(planned(pure, "--json", "--rounds", "1,16", "--fresh", "24"))
    assert found["laplace", 24, 16, 5.0]["noise"] == pytest.approx(4 * found["laplace", 24, 1, 5.0]["noise"])
    found = rows(planned(DAY, "--json", "--rounds", "1,16", "--fresh", "24", "--mechanism", "gaussian"))
    assert found["gaussian", 24, 16, 5.0]["noise"] == pytest.approx(found["gaussian", 24, 1, 5.0]["noise"])


def test_a_pair_moves_both_entries(planned):
    pair = DAY | {"adjacency": {"bounded-change": {"pair": 0.01, "power_factor": 0.95}}}
    found = rows(planned(pair, "--json", "--fresh", "1"))
    assert found["gaussian", 1, 1, 5.0]["noise"] == pytest.approx(1 / 0.95 / mu_max(5.0, DELTA))


def test_the_text_says_window_life_and_what_a_year_tells(planned):
    text = planned(DAY | {"lifetime": 2000.0})
    assert text.startswith(
        "node z1: budget epsilon 5, delta 1e-05 in any 24h of running time, epsilon 2000 over its life\n"
        "rms error of one load in MW: noise only, from public numbers; "
    )
    assert "someone present for a year has told 365 times the epsilon (pure)" in text


def test_a_device_s_file_is_planned_as_it_ships(zone, capsys):
    assert program.main(["budget", "plan", str(zone)]) == 0
    assert (
        "epsilon 20, no delta (so no gaussian noise) over the life of the ledger (no window)" in capsys.readouterr().out
    )


@pytest.mark.runs
def test_the_table_of_the_page_is_what_the_command_prints(planned):
    page = (DEPLOY.parent / "docs" / "accounting.md").read_text()
    shown = re.search(r"^\$ hushgrid budget plan z1.yaml (.*)\n((?:.*\n)*?)```$", page, re.M)
    assert planned(DAY | {"lifetime": 2000.0}, *shown[1].split()).startswith(shown[2])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--fresh", "0"], "--fresh: found '0', expected whole numbers from 1 to 1e+07"),
        (["--fresh", "2.5"], "--fresh: found '2.5', expected whole numbers"),
        (["--epsilon", "a"], "--epsilon: found 'a', expected numbers from 1e-09 to 1e+09"),
        (["--every", "soon"], "--every: found 'soon', expected a length of time above 0s"),
        (["--every", "1h", "--fresh", "96"], "--fresh: found more answers than runs, expected at most 24 a window"),
        (["--drift", "-1"], "--drift: found '-1', expected numbers from 0 to 1e+09, with commas between"),
        (["--drift", "soon=3"], "--drift: found 'soon', expected a length of time above 0s: 30s, 15min or 24h"),
        (["--drift", "1h=3,1h=4"], "--drift: found '1h=3,1h=4', expected rising ages: 15min=8,1h=12"),
    ],
)
def test_what_is_no_choice_is_one_line(planned, options, line):
    code, said = planned(DAY, *options)
    assert code == 2
    assert line in said


def test_gaussian_noise_needs_a_delta(planned):
    code, said = planned({k: v for k, v in DAY.items() if k != "delta"}, "--mechanism", "gaussian")
    assert code == 2
    assert "budget.delta: missing, expected a value (--mechanism gaussian)" in said
