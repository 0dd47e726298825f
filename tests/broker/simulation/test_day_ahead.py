"""A day ahead on case14: the least cost of the plan, its limits in every period, its AC dispatch and its tables."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

import hushgrid
from hushgrid.broker.coordinator.daemon import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.problems.power_flow.horizon import read_profiles
from tests.support.paths import ROOT
from tests.support.runs import background_run

pytestmark = pytest.mark.runs

SCENARIO = ROOT / "scenarios" / "day14.yaml"
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
        ({"problem.horizon.periods": 12}, "found a row again, of another zone's bus, of no period"),
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
        ("storage", "name,bus,p_mw,e_mwh,eta,cost,e_start,e_end\ns,99,1,9,0.95,0,0,0\n", "found bus 99"),
        ("storage", "name,bus\n", ":1: found another header"),
        (
            "availability",
            "period,gen,value\n" + "".join(f"{t},1,1.5\n" for t in range(1, 25)),
            "found 1.5, expected 0 to 1",
        ),
        ("availability", "period,gen,value\n1,1,1\n", "found no period 2 of gen 1"),
        ("price", "period,gen,value\n" + "".join(f"{t},9,1\n" for t in range(1, 25)), "found gen 9"),
        ("ramps", "gen,per_hour\n1,x\n", ":2: found 'x'"),
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
    with pytest.raises(InputError, match=line):
        hushgrid.run(SCENARIO, set=overrides)


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
    with pytest.raises(InputError, match=r"own\.csv:3: found a row again, of another zone's bus"):
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
