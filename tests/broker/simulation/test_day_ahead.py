"""A day ahead on case14: the least cost of the plan, its limits in every period, its AC dispatch and its tables."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

import hushgrid
from hushgrid.broker.coordinator.daemon import prepare
from hushgrid.cli.owner.check import check
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.problems.power_flow.horizon import read_profiles
from hushgrid.node.schema.yaml_file import read_yaml
from tests.support.paths import ROOT
from tests.support.runs import background_run

pytestmark = pytest.mark.runs

SCENARIO = ROOT / "scenarios" / "day14.yaml"
UNITS, GENERATORS = "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\n", "period,gen,value\n"
NONE = {"algorithm.variant": "none", "privacy": None}
#: $ of the day, with storage and ramps, without storage, and without ramps; rounds: DAYAHEAD's own reference code.
REFERENCE, WITHOUT_STORAGE, WITHOUT_RAMPS, ROUNDS = 41_908.66, 42_838.09, 41_837.56, 46


def rows(run, table):
    columns, lines = run.tables[table]
    return [dict(zip(columns, line, strict=True)) for line in lines]


@pytest.fixture(scope="module")
def day():
    return hushgrid.run(SCENARIO, set=NONE)


def test_the_plan_costs_what_a_central_computer_would_pay_and_the_gap_is_proven(day):
    assert day.objective == pytest.approx(REFERENCE, rel=1e-4)
    assert abs(day.optimality_gap) <= 1e-4 * REFERENCE
    assert day.bound <= day.ac.objective
    assert (day.objective - day.bound) / day.bound <= 1e-4
    assert day.rounds_done <= 1.3 * ROUNDS
    assert day.disagreement_mw <= 0.3


@pytest.mark.parametrize(
    ("left_out", "expected"), [("storage", WITHOUT_STORAGE), ("ramps", WITHOUT_RAMPS)], ids=["no storage", "no ramps"]
)
def test_without_storage_or_ramps_it_costs_what_the_reference_pays(left_out, expected):
    run = hushgrid.run(SCENARIO, set=NONE | {f"problem.horizon.{left_out}": None, "problem.ac": "none"})
    assert run.objective == pytest.approx(expected, rel=1e-4)


def test_in_every_period_generation_less_losses_is_what_is_served_and_what_storage_takes(day):
    for t in range(1, 25):
        balance = [row for row in rows(day, "balance") if row["period"] == t]
        total = {key: sum(row[key] for row in balance) for key in balance[0] if key.endswith("_mw")}
        taken = total["charge_mw"] - total["discharge_mw"]
        assert total["generation_mw"] - total["losses_mw"] == pytest.approx(total["served_mw"] + taken, abs=0.02)


def test_storage_keeps_its_energy_equation_and_ends_as_full_as_it_must(day):
    with (SCENARIO.parent / "data/day14/storage.csv").open(newline="") as file:
        units = {row["name"]: {k: float(v) for k, v in row.items() if k != "name"} for row in csv.DictReader(file)}
    for name, unit in units.items():
        path = [row for row in rows(day, "storage") if row["storage"] == name]
        before = unit["e_start"]
        for row in path:
            gained = unit["eta"] * row["charge_mw"] - row["discharge_mw"] / unit["eta"]
            assert row["energy_mwh"] == pytest.approx(before + gained, abs=5e-6)
            assert -1e-6 <= row["energy_mwh"] <= unit["e_mwh"] + 1e-6
            before = row["energy_mwh"]
        assert before >= unit["e_end"] - 1e-6


def test_generators_keep_their_ramps_in_the_plan_and_in_the_ac_dispatch(day):
    power = np.array([[row["p_mw"] for row in rows(day, "generation") if row["period"] == t] for t in range(1, 25)])
    most = np.array([row["p_max"] for row in rows(day, "generation") if row["period"] == 1])
    assert {row["source"] for row in rows(day, "generation")} == {"ac"}
    assert np.all(np.abs(np.diff(power, axis=0)) <= 0.05 * most + 2e-3)  # of three decimals each


def test_every_period_has_an_ac_dispatch_and_its_own_rows(day):
    assert day.ac.status == "solved"
    assert day.ac.failed == []
    for table, each in (("generation", 5), ("buses", 14), ("lines", 20), ("storage", 3)):
        periods = [row["period"] for row in rows(day, table)]
        assert periods == sorted(periods)
        assert {t: periods.count(t) for t in periods} == dict.fromkeys(range(1, 25), each)
    assert len(day.prices["14"]) == 24
    assert day.price_min[0] <= day.prices["14"][0] <= day.price_max[0]


def test_each_period_is_checked_with_each_line_out():
    run = hushgrid.run(SCENARIO, set=NONE | {"problem.contingencies": True, "problem.ac": "none"})
    table = rows(run, "contingencies")
    assert [(row["period"], row["branch"]) for row in table] == [(t, k) for t in range(1, 25) for k in range(1, 21)]
    assert {row["branch"] for row in table if row["outcome"] == "island"} == {14}
    assert max(row["loading_percent"] for row in table if row["branch"] == 1 and row["outcome"] == "solved") > 150


def test_prices_are_those_of_the_whole_plan(day):
    """$/MWh at bus 4 in the first periods, where ramps and storage leave no choice of multipliers: the reference's."""
    assert day.prices["4"][:4] == pytest.approx([8.463, 8.431, 8.422, 8.419], rel=1e-3)
    assert max(day.price_max) < 12  # an AC step of one period alone asks generator 2's 23 $/MWh wherever a ramp binds


def test_a_private_day_is_planned_on_noisy_loads_and_costs_one_answer():
    run = hushgrid.run(SCENARIO, set={"problem.ac": "none"}, seed=1)
    assert {account.spent.epsilon for account in run.privacy.per_node.values()} == {1.0}
    assert run.objective == pytest.approx(REFERENCE, rel=0.01)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            {"privacy.adjacency": {"bounded-change": 0.01}},
            "expected day: {energy_mwh, power_factor} .*24 times as large",
        ),
        ({"problem.horizon.periods": 96, "problem.horizon.hours": 2}, "expected at most 48 hours in all"),
        ({"problem.horizon.periods": 25}, "found no period 25"),
        ({"problem.horizon.periods": 12}, "found a period that is none of 1 to 12"),
        ({"problem.horizon": None}, "expected bounded-change"),
        (
            {"algorithm": {"name": "ladmm", "rounds": 3, "rho": 1.0}, "problem.objective": "shedding"},
            "horizon: found a",
        ),
        ({"problem.contingencies": True, "problem.horizon": None}, "problem.contingencies: found true, expected false"),
        ({"problem.margins": True}, "problem.margins: found true, expected false .problem.horizon"),
    ],
)
def test_what_no_horizon_can_be_is_said_in_one_line(overrides, line):
    with pytest.raises(InputError, match=line) as caught:
        hushgrid.run(SCENARIO, set=overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("storage", "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\ns,3,1,9,0.95,0,0,9\n", None),
        (
            "storage",
            "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\ns,3,.1,9,0.95,0,0,9\n",
            "found e_end 9, expected at most",
        ),
        (
            "storage",
            UNITS + "s,3,1,-9,0.95,0,0,0\n",
            r"problem.horizon.storage: \S+csv:2: e_mwh: found '-9', expected 0 to",
        ),
        ("storage", UNITS + "s,3,1,9,0,0,0,0\n", ":2: eta: found '0', expected above 0, at most 1"),
        ("storage", UNITS + "s,3,1,9,1.2,0,0,0\n", ":2: eta: found '1.2'"),
        ("storage", UNITS + "s,3,inf,9,1,0,0,0\n", ":2: p_mw: found 'inf'"),
        ("storage", UNITS + "s,3.5,1,9,1,0,0,0\n", ":2: bus: found '3.5', expected a whole number"),
        ("storage", UNITS + "s,3,1,9,1,0,0,0\ns,3,1,9,1,0,0,0\n", ":3: name: found 's', expected one a unit"),
        ("storage", "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\ns,99,1,9,0.95,0,0,0\n", "found bus 99"),
        ("storage", "name,bus\n", ":1: found another header"),
        (
            "availability",
            GENERATORS + "".join(f"{t},1,1.5\n" for t in range(1, 25)),
            ":2: availability: found '1.5', expected 0 to 1",
        ),
        ("availability", "period,gen,value\n1,1,1\n", "found no period 2 of gen 1"),
        ("price", "period,gen,value\n" + "".join(f"{t},9,1\n" for t in range(1, 25)), "found gen 9"),
        ("price", GENERATORS + "1,1,nan\n", ":2: price: found 'nan', expected -10000 to 10000"),
        ("price", GENERATORS + "1,x,1\n", ":2: gen: found 'x', expected a whole number"),
        ("price", GENERATORS + "1.5,1,1\n", ":2: found period 1.5 of gen 1, expected 1 to 24, once"),
        ("ramps", "gen,per_hour\n1,x\n", ":2: per_hour: found 'x', expected above 0, at most 1000"),
        ("ramps", "gen,per_hour\n1,0\n", ":2: per_hour: found '0'"),
        ("ramps", "gen,per_hour\n1,.1\n1,.2\n", ":3: found gen 1 again"),
        ("ramps", "gen,per_hour\n1.5,.1\n", ":2: gen: found '1.5', expected a whole number"),
        ("ramps", "", ":1: found another header, expected gen,per_hour"),
        ("reserve", "period,zone,mw\n1,z1,-3\n", ":2: mw: found '-3', expected 0 to"),
        ("reserve", "period,zone,mw\n" + "".join(f"{t},z9,1\n" for t in range(1, 25)), "found zone z9"),
    ],
)
def test_a_table_that_is_wrong_is_named_with_its_line(tmp_path: Path, key, text, line):
    (tmp_path / "table.csv").write_text(text)
    overrides = NONE | {
        f"problem.horizon.{key}": str(tmp_path / "table.csv"),
        "problem.ac": "none",
        "algorithm.rounds": 1,
    }
    if line is None:
        hushgrid.run(SCENARIO, set=overrides)
        return
    with pytest.raises(InputError, match=line) as caught:
        hushgrid.run(SCENARIO, set=overrides)
    assert "\n" not in str(caught.value)


PROFILES_OF_DAY = Path(SCENARIO).parent / "data" / "day14" / "profiles.csv"


def test_tables_of_a_spreadsheet_are_read(tmp_path: Path):
    """With a mark of UTF-8, lines that end by two characters, rows in any order, blanks around cells, empty rows."""
    head, *rows = PROFILES_OF_DAY.read_text().splitlines()
    (tmp_path / "table.csv").write_bytes(("\r\n\r\n".join([head, *rows[::-1]]).replace(",", " , ")).encode("utf-8-sig"))
    buses = tuple(range(1, 15))
    for_spreadsheet, plain = (
        read_profiles(path, buses, 100.0, 24) for path in (tmp_path / "table.csv", PROFILES_OF_DAY)
    )
    assert for_spreadsheet.tolist() == plain.tolist()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda rows: [row for row in rows if not row.startswith("7,")],
            "found no period 7 of bus 1, expected 1 to 24",
        ),
        (lambda rows: [*rows, "1,99,1,1"], ":338: found a bus that is none"),
        (lambda rows: [*rows, rows[1]], ":338: found the same period and bus again"),
        (lambda rows: [rows[0], "1,1,nan,1", *rows[2:]], ":2: found no number"),
        (lambda rows: [rows[0].replace("p_mw", "p_kw"), *rows[1:]], ":1: found another header"),
        (lambda rows: [], ":1: found another header"),
        (lambda rows: rows[:1], "found no period 1 of bus 1"),
    ],
)
def test_wrong_profiles_are_said_by_check_and_by_run(tmp_path: Path, change, line):
    scenario = read_yaml(Path(SCENARIO))
    data = PROFILES_OF_DAY.parent
    (tmp_path / "storage.csv").write_text((data / "storage.csv").read_text())
    (tmp_path / "profiles.csv").write_text("\n".join(change(PROFILES_OF_DAY.read_text().splitlines())))
    scenario["problem"]["horizon"] |= {"profiles": "profiles.csv", "storage": "storage.csv"}
    (tmp_path / "day.yaml").write_text(yaml.safe_dump(scenario))
    for command in (check, hushgrid.run):
        with pytest.raises(InputError, match=line) as caught:
            command(tmp_path / "day.yaml")
        assert "\n" not in str(caught.value)


def test_ramps_that_are_too_tight_leave_load_unserved_and_the_run_says_in_which_periods():
    tight = {"problem.horizon.ramps": 1e-4, "problem.horizon.storage": None, "problem.ac": "none"}
    run = hushgrid.run(SCENARIO, set=NONE | tight)
    assert len(run.unserved_mw) == 24
    peak, night = max(run.unserved_mw), run.unserved_mw[4]
    assert peak > 10 > night
    assert run.unserved_mw.index(peak) in (17, 18, 19)  # the evening's peak


def test_a_mask_of_loads_holds_in_every_period():
    run = hushgrid.run(SCENARIO, set={"problem.loads": {"nonzero": "case"}, "problem.ac": "none"}, seed=1)
    assert {account.spent.epsilon for account in run.privacy.per_node.values()} == {1.0}
    assert run.objective == pytest.approx(REFERENCE, rel=0.01)


def test_profiles_of_a_device_hold_its_own_buses_alone(tmp_path: Path):
    file = tmp_path / "own.csv"
    file.write_text("period,bus,p_mw,q_mvar\n1,4,1,0\n1,9,2,0\n")
    with pytest.raises(InputError, match=r"own\.csv:3: found a bus of another zone, expected a row for each"):
        read_profiles(file, (4, 5), 100.0, None)
    file.write_text("period,bus,p_mw,q_mvar\n1,4,1,0\n1,5,1,0\n2,4,1,0\n")
    with pytest.raises(InputError, match=r"own\.csv: found no period 2 of bus 5, expected 1 to 2"):
        read_profiles(file, (4, 5), 100.0, None)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("run: {every: 15min}", "run.every: found 15min, expected 1h, a period of the horizon"),
        ("run: {every: 1h}\n  quorum: 2", "quorum: found 2, expected none: a day is planned by all its zones"),
        ("run: {every: 60min}", None),
    ],
)
def test_a_schedule_beside_a_horizon_is_of_its_periods_and_of_all_zones(tmp_path: Path, keys, line):
    path = tmp_path / "coordinator.yaml"
    path.write_text(
        f"coordinator:\n  fleet: demo\n  broker: mqtt://127.0.0.1:1\n  scenario: {SCENARIO}\n  state: {tmp_path}\n"
        f"  {keys}\n"
    )
    if line is None:
        prepare(load_coordinator(path), str(path))
        return
    with pytest.raises(InputError, match=line) as caught:
        prepare(load_coordinator(path), str(path))
    assert "\n" not in str(caught.value)


SMALL = {
    "hushgrid": 1,
    "name": "small",
    "seed": 5,
    "problem": {
        **{"kind": "zones", "case": "case5", "zones": [[1, 2], [3, 4], [5]], "objective": "cost", "ac": "none"},
        "horizon": {"periods": 4, "ramps": 0.3},
    },
    "algorithm": {"name": "consensus-admm", "rounds": 8},
    "privacy": {"mode": "input", "adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}}, "epsilon": 1},
    "run": {"record": "transcript"},
}


def test_zones_that_compute_at_a_time_send_the_same_messages_in_the_same_order(monkeypatch):
    runs = []
    for cores in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        runs.append(hushgrid.run(SMALL))
    one, other = runs
    background_run.assert_same_bits(one, other)
    assert [line["topic"] for line in one.transcript] == [line["topic"] for line in other.transcript]


def test_zones_that_compute_one_after_the_other_because_of_faults_plan_the_same_day():
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.03, "seed": 1}
    background_run.assert_same_bits(hushgrid.run(SMALL), hushgrid.run(SMALL | {"run": {"faults": faults}}))
