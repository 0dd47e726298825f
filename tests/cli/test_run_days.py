"""`hushgrid run --days`: one run a day, storage that goes on from day to day, and what the ledgers say in the end."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hushgrid.grid_cases import load
from tests.support.command_line import tree, write
from tests.support.runs.day_fleet import SHAPE, UNITS, storage

pytestmark = pytest.mark.runs

RAMP, SPENT = 0.3, 1e-3  #: the share of an epsilon that a noise of whole steps costs less than was asked


def scenario(directory: Path, privacy: dict[str, Any] | None = None, **horizon: Any) -> Path:
    """case5 in two zones, four hours a day, with storage and ramps."""
    day = {"periods": 4, "hours": 1, "storage": storage(directory), "ramps": RAMP} | horizon
    raw = {
        "hushgrid": 1,
        "name": "small-day",
        "problem": {
            "kind": "zones",
            "case": "case5",
            "zones": [[1, 2, 5], [3, 4]],
            "objective": "cost",
            "ac": "none",
            "horizon": day,
        },
        "algorithm": {"name": "consensus-admm", "rounds": 300},
        "privacy": {"adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}}, "epsilon": 1} | (privacy or {}),
        "run": {"stop": {"tolerance": 1.0e-4, "patience": 3}},
    }
    file = directory / "small.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def profiles(path: Path, factor: float) -> None:
    """Loads of case5 over four hours."""
    buses = load("case5").buses
    rows = [
        f"{t},{bus},{p * 100 * share * factor},{q * 100 * share * factor}"
        for t, share in enumerate(SHAPE, 1)
        for bus, p, q in zip(buses.numbers.tolist(), buses.p_d.tolist(), buses.q_d.tolist(), strict=True)
    ]
    path.write_text("\n".join(["period,bus,p_mw,q_mvar", *rows]) + "\n")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def spent(hushgrid, ledger: Path) -> float:
    """As `hushgrid ledger show` says it."""
    (total,) = json.loads(hushgrid("ledger", "show", ledger, "--json").out)["totals"]
    return float(total["epsilon"])


@pytest.fixture
def days(hushgrid, tmp_path):
    """Three days, their loads the same."""
    said = hushgrid("run", scenario(tmp_path), "--days", 3, "--out", "week", "--quiet")
    assert said.code == 0, said.err
    return said, tmp_path / "week"


def test_each_day_leaves_a_run_directory_and_a_row_and_is_charged_once(days, hushgrid):
    said, week = days
    assert sorted(path.name for path in week.iterdir()) == ["day-1", "day-2", "day-3", "days.csv"]
    rows = table(week / "days.csv")
    assert [row["day"] for row in rows] == ["1", "2", "3"]
    for day, row in enumerate(rows, 1):
        result = json.loads((week / f"day-{day}" / "result.json").read_text())
        assert (week / f"day-{day}" / "report.html").is_file()
        assert float(row["objective"]) == result["objective"]
        assert float(row["price_max"]) == max(result["price_max"])
        assert row["rounds"] == str(result["rounds_done"])
        for zone in ("z1", "z2"):
            assert float(row[f"epsilon_{zone}"]) == spent(hushgrid, week / f"day-{day}" / "ledger" / f"{zone}.ledger")
            assert float(row[f"epsilon_{zone}"]) == pytest.approx(day, rel=SPENT)
    assert "3 days: " in said.out
    assert f"epsilon by ledger: z1 {float(rows[-1]['epsilon_z1']):.6g}, z2 " in said.out
    assert "of these days only (--state keeps them)" in said.out


def test_storage_and_generators_begin_a_day_where_the_last_one_ended(days):
    _, week = days
    units, most = {name: start for name, _, _, _, start, _ in UNITS}, load("case5").generators.p_max * 100
    power: list[float] = []
    for day in (1, 2, 3):
        rows = table(week / f"day-{day}" / "storage.csv")
        for name, before in units.items():
            first = next(row for row in rows if row["storage"] == name)
            gained = 0.95 * float(first["charge_mw"]) - float(first["discharge_mw"]) / 0.95
            assert float(first["energy_mwh"]) == pytest.approx(before + gained, abs=1e-5)
        units = {row["storage"]: float(row["energy_mwh"]) for row in rows}
        generation = table(week / f"day-{day}" / "generation.csv")
        now = [float(row["p_mw"]) for row in generation if row["period"] == "1"]
        assert all(abs(p - q) <= RAMP * high + 2e-3 for p, q, high in zip(power, now, most, strict=False))
        power = [float(row["p_mw"]) for row in generation if row["period"] == "4"]
    assert units["s4"] >= 40 - 1e-5  # it began with 10: a day that began anew would not go on from here


def test_the_rounds_of_a_day_begin_where_those_of_the_last_one_ended(days):
    _, week = days
    resolved = yaml.safe_load((week / "day-2" / "scenario.yaml").read_text())
    assert resolved["run"]["warm_start"] == str(week / "day-1")
    first, *others = (int(row["rounds"]) for row in table(week / "days.csv"))
    assert all(rounds < first for rounds in others)


def test_each_day_has_noise_of_its_own(days):
    _, week = days
    loads = [json.loads((week / f"day-{day}" / "result.json").read_text())["load_mw"] for day in (1, 2, 3)]
    assert len({tuple(each) for each in loads}) == 3


def test_days_with_a_seed_are_the_same_bits_again(hushgrid, tmp_path):
    file = scenario(tmp_path)
    for out in ("one", "two"):
        assert hushgrid("run", file, "--days", 2, "--seed", 5, "--out", out, "--quiet").code == 0
    assert (tmp_path / "one" / "days.csv").read_bytes() == (tmp_path / "two" / "days.csv").read_bytes()
    first, second = table(tmp_path / "one" / "days.csv")
    assert first["objective"] != second["objective"]


def test_a_budget_of_three_answers_ends_the_days_after_the_third(hushgrid, tmp_path):
    file = scenario(tmp_path, {"budget": {"epsilon": 3.0}})
    said = hushgrid("run", file, "--days", 7, "--out", "week", "--state", "st", "--quiet")
    assert (said.code, said.err.count("\n")) == (3, 1)
    assert "budget 3" in said.err
    assert "3 days: " in said.out
    assert sorted(path.name for path in (tmp_path / "week").iterdir()) == ["day-1", "day-2", "day-3", "days.csv"]
    assert len(table(tmp_path / "week" / "days.csv")) == 3
    assert spent(hushgrid, tmp_path / "st" / "z1.ledger") == pytest.approx(3, rel=SPENT)


def test_ledgers_under_state_count_the_days_of_all_weeks(hushgrid, tmp_path):
    file = scenario(tmp_path)
    for out, total in (("one", 2), ("two", 4)):
        said = hushgrid("run", file, "--days", 2, "--out", out, "--state", "st", "--quiet", "--json")
        last = json.loads(said.out)[-1]
        assert last["epsilon"]["z1"] == pytest.approx(total, rel=SPENT)
        assert last["epsilon"]["z1"] == spent(hushgrid, tmp_path / "st" / "z1.ledger")


def test_each_day_has_the_profiles_that_are_called_after_it(hushgrid, tmp_path):
    for day in (1, 2):
        profiles(tmp_path / f"profiles-{day}.csv", 1 - 0.1 * day)
    file = scenario(tmp_path, profiles="profiles-{day}.csv")
    options = ["--out", "two", "--quiet", "--set", "algorithm.variant=none", "--set", "privacy=null"]
    assert hushgrid("run", file, "--days", 2, *options).code == 0
    total = float(load("case5").buses.p_d.sum() * 100)
    for day in (1, 2):
        result = json.loads((tmp_path / "two" / f"day-{day}" / "result.json").read_text())
        assert result["load_mw"] == pytest.approx([total * share * (1 - 0.1 * day) for share in SHAPE], abs=1e-4)


def test_a_day_whose_profiles_are_missing_is_named_before_the_first_day_runs(hushgrid, tmp_path):
    profiles(tmp_path / "profiles-1.csv", 1.0)
    file = scenario(tmp_path, profiles="profiles-{day}.csv")
    said = hushgrid("run", file, "--days", 2, "--out", "two", "--quiet")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "profiles-2.csv: No such file" in said.err
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("days", [0, -1, 367])
def test_a_number_of_days_is_1_to_366(hushgrid, tmp_path, days):
    said = hushgrid("run", scenario(tmp_path), "--days", days, "--quiet")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert f"--days: found {days}, expected 1 to 366" in said.err


def test_days_are_of_a_scenario_with_a_horizon(hushgrid, tmp_path):
    for file in (write(tmp_path / "s.yaml"), "air"):
        said = hushgrid("run", file, "--days", 2, "--quiet")
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert "problem.horizon: found none, expected a section (--days)" in said.err
    assert tree(tmp_path) == ["s.yaml"]


def test_a_directory_that_is_there_is_left_alone(hushgrid, tmp_path):
    (tmp_path / "week").mkdir()
    said = hushgrid("run", scenario(tmp_path), "--days", 2, "--out", "week", "--quiet")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "week: found an existing path" in said.err
    assert not list((tmp_path / "week").iterdir())
