"""The tables of a run over a horizon, read back: rows by period and element, and a network of one period."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from hushgrid.broker.report.build import build
from hushgrid.broker.report.result import Result
from hushgrid.grid_cases import load
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.power_flow.day import CONTINGENCIES, FLOWS, STORAGE
from hushgrid.node.schema.yaml_file import read_yaml
from tests.support.runs.dispatch_pages import made_up, write_least_cost, zones_of

PERIODS = 3
DAY = {"day": {"energy_mwh": 0.02, "power_factor": 0.97}}


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """A run directory of three hours with one storage unit, of made-up figures; no physics."""
    write_least_cost(tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    for key in ("generation_mw", "load_mw", "served_mw", "unserved_mw", "spilled_mw", "slack_mvar"):
        result[key] = [result[key]] * PERIODS
    result |= {"horizon": {"periods": PERIODS, "hours": 1.0}, "charge_mw": [1.0, 0.0, 0.0]}
    result |= {"discharge_mw": [0.0, 0.0, 0.9], "price_min": [19.0, 20.0, 21.0], "price_max": [29.0, 30.0, 31.0]}
    result["prices"] = {bus: [19.0, 20.0, price] for bus, price in (("1", 25.0), ("3", 31.0))}
    result["ac"] = {"status": "solved", "objective": 6500.0, "losses_mw": [15.9] * PERIODS, "failed": []}
    (tmp_path / "result.json").write_text(json.dumps(result))
    case = load("case14")
    for name, (columns, rows) in made_up(case, zones_of(case, 3), "ac").tables().items():
        more = (FLOWS, (0.5, 0.0)) if name == "balance" else ((), ())
        each = [(t, *row, *more[1]) for t in range(1, PERIODS + 1) for row in rows]
        write(tmp_path / f"{name}.csv", ("period", *columns, *more[0]), each)
    paths = zip((1.0, 0.0, 0.0), (0.0, 0.0, 0.9), (2.95, 2.95, 2.0), strict=True)
    write(tmp_path / "storage.csv", STORAGE, [(t, "s3", 3, "z1", *path, "ac") for t, path in enumerate(paths, 1)])
    return tmp_path


def write(path: Path, columns, rows) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def amend(day: Path, **figures) -> None:
    """Other figures in its result.json."""
    file = day / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | figures))


def test_the_tables_of_a_day_are_frames_by_period_and_element(day: Path) -> None:
    pytest.importorskip("pandas")
    result = Result.load(day)
    generation, storage, balance = (result.frame(name) for name in ("generation", "storage", "balance"))
    assert generation.index.names == ["period", "gen"]
    assert generation.index.tolist() == [(t, g) for t in range(1, PERIODS + 1) for g in range(1, 6)]
    assert storage.loc[(3, "s3"), "discharge_mw"] == 0.9
    assert balance.loc[(2, "z1"), "charge_mw"] == 0.5
    assert np.isfinite(generation["p_mw"]).all()


def test_storage_of_a_bus_that_is_not_there_is_said_with_its_line(day: Path) -> None:
    write(day / "storage.csv", STORAGE, [(1, "s3", 3, "z1", 0, 0, 1, "ac"), (1, "s99", 99, "z1", 0, 0, 1, "ac")])
    with pytest.raises(InputError, match=r"storage\.csv:3: bus: found 99, expected a bus of buses\.csv"):
        Result.load(day)


def test_a_table_of_a_day_without_periods_is_refused(day: Path) -> None:
    case = load("case14")
    write(day / "buses.csv", *made_up(case, zones_of(case, 3), "ac").tables()["buses"])
    with pytest.raises(InputError, match=r"buses\.csv:1: found no column period"):
        Result.load(day)


@pytest.mark.parametrize("period", [None, 0, PERIODS + 1])
def test_a_network_is_of_one_period_of_the_day(day: Path, period: int | None) -> None:
    with pytest.raises(InputError, match=rf"period: found {period}, expected 1 to {PERIODS}"):
        Result.load(day).to_pandapower(period)


def test_a_snapshot_has_no_period(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="period: found 1, expected none: the run is no horizon"):
        Result.load(write_least_cost(tmp_path)).to_pandapower(1)


def test_the_page_of_a_day_says_its_energies_and_shows_the_period_of_the_highest_price(day: Path) -> None:
    page = build(day).read_text()
    result = json.loads((day / "result.json").read_text())
    served = f"{sum(result['served_mw']):,.1f}"
    assert f"serves {served} of" in page
    assert f"MWh (the gate&#x27;s noisy loads) in {PERIODS} periods of 1 h at 6,500 $" in page
    for title in ("Power", "Storage", "Prices", "Period by period (3 rows)"):
        assert title in page
    assert "Period 3 of 3, in which a bus has the highest price of the day. For another: hushgrid report" in page
    assert page.count("All generators") == 1  # of one period
    assert "no dispatch" not in page


def test_a_period_without_an_ac_dispatch_is_named(day: Path) -> None:
    result = json.loads((day / "result.json").read_text())
    result["ac"] = {
        "status": "failed in period 2: why",
        "objective": None,
        "losses_mw": [1.0, None, 1.0],
        "failed": [2],
    }
    (day / "result.json").write_text(json.dumps(result))
    page = build(day).read_text()
    assert "relaxed: failed in period 2: why" in page
    assert "Periods without an AC dispatch" in page


def test_the_page_shows_the_period_that_is_asked_for(day: Path) -> None:
    page = build(day, 2).read_text()
    assert "Period 2 of 3. For another: hushgrid report" in page
    with pytest.raises(InputError, match="--period: found 4, expected 1 to 3"):
        build(day, 4)


def test_the_worst_of_each_line_that_goes_out_is_listed(day: Path) -> None:
    cells = [(t, k, 1, 2, 7, 90.0 + 10 * t + k, 3, 0.95, 0.94, 1.06, "solved") for t in (1, 2, 3) for k in (1, 2)]
    cells += [(t, 14, 7, 8, "", "", "", "", "", "", "island") for t in (1, 2, 3)]
    write(day / "contingencies.csv", CONTINGENCIES, cells)
    page = build(day).read_text()
    assert "2 of 3 lines leave the network whole. The loss of 2 lines overloads another, in 3 periods." in page
    assert "1 other line would cut buses off" in page
    assert page.index("122.0") < page.index("121.0")  # the worst first, and of each line its worst period
    pytest.importorskip("pandas")
    assert Result.load(day).frame("contingencies").loc[(3, 2), "loading_percent"] == 122.0


def test_a_day_stacks_what_storage_gives_and_names_the_period_of_its_extremes(day: Path) -> None:
    page = build(day).read_text()
    for text in ("storage", "load and charging"):
        assert f">{text}</text>" in page
    assert "What is above the lines: losses.</figcaption>" in page
    assert re.search(r"<dt>Most loaded line</dt><dd>[\d.]+ % \(branch \d+, \d+ to \d+, period \d\)</dd>", page)


def test_load_that_nobody_serves_stands_on_top_of_the_stack(day: Path) -> None:
    amend(day, unserved_mw=[0.0, 2.0, 0.0], spilled_mw=[0.0, 0.0, 3.0])
    page = build(day).read_text()
    assert ">not served</text>" in page
    assert "What is above the lines: losses and what is generated and used by nobody.</figcaption>" in page
    assert "2.0 MWh are not served (most in period 2: 2.0 MW), 3.0 MWh are generated and used by nobody" in page
    assert "<dt>Cost of the day (AC, with lost load and curtailment)</dt>" in page
    assert "<dt>Curtailed: generated, used by nobody</dt><dd>3.0 MWh</dd>" in page


def test_a_price_that_rounds_to_zero_has_no_sign(day: Path) -> None:
    amend(day, price_min=[-0.001, 20.0, 21.0])
    assert "<td>0.00 to 29.00</td>" in build(day).read_text()


def test_of_more_storage_than_a_chart_tells_apart_the_energy_is_shown_by_zone(day: Path) -> None:
    units = [(t, f"s{i}", 3, f"z{1 + i % 3}", 0, 0, 1, "ac") for t in range(1, PERIODS + 1) for i in range(12)]
    write(day / "storage.csv", STORAGE, units)
    page = build(day).read_text()
    assert "Energy of the units of each zone at the end of each period" in page


def test_what_a_day_hides_is_said_in_words(day: Path) -> None:
    result = json.loads((day / "result.json").read_text())
    amend(day, privacy=result["privacy"] | {"adjacency": DAY})
    scenario = read_yaml(day / "scenario.yaml")
    scenario["privacy"]["adjacency"] = DAY
    scenario["problem"]["horizon"] = {"periods": PERIODS, "hours": 1.0, "profiles": "loads.csv"}
    (day / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    page = build(day).read_text()
    assert "the active load of one bus changes by at most 20 kWh over the day, in any shape" in page
    assert "in each period, with noise" in page
    assert "energy_mwh&#x27;" not in page
    assert "a whole bus (its active and reactive load)" not in page  # both are in the unit
