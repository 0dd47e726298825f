"""What an operator reads of a run at least cost: the headline, the word set-points, tables, charts and who knows
what.
"""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hushgrid.broker.report import build as report
from hushgrid.broker.report import dispatch, summary
from hushgrid.broker.report import run_directory as rundir
from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.grid_cases.dispatch import BUSES
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from tests.support.runs.dispatch_pages import write_least_cost
from tests.support.runs.report_pages import Page, html, page, write_run

POWER = {
    "generation_mw": 275.24, "load_mw": 259.31, "served_mw": 257.94, "unserved_mw": 1.37, "spilled_mw": 0.0,
    "slack_mvar": 0.0,
}  # fmt: skip
WHOLE = POWER | {"served_mw": 259.31, "unserved_mw": 0.0}
AGREED = {"quality": {"verdict": "agreed"}, "disagreement_mw": 0.0241}
UNLIKE = {"quality": {"verdict": "not-converged"}, "disagreement_mw": 12.34}
LEFT_OUT = {"ac": {"status": "left out: ac: none"}}
ALL = {**WHOLE, "objective": 2176.3, "optimality_gap": 0.1, **AGREED}
SOLVED = {"ac": {"status": "solved", "objective": 2177.9, **WHOLE}}
WORD = re.compile(r"set-?\s?points", re.IGNORECASE)


# The first line -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "noisy", "said"),
    [
        (ALL | SOLVED, True, "serves 259.3 of 259.3 MW (noisy loads) at 2,178 $/h (AC; bound 2,176), agreed within "
                             "0.03 MW"),
        (ALL | SOLVED, False, "serves 259.3 of 259.3 MW (loads) at 2,178 $/h (AC; bound 2,176), agreed within 0.03 MW"),
        (
            ALL | LEFT_OUT,
            True,
            "serves 259.3 of 259.3 MW (noisy loads) at 2,176 $/h (relaxed: the AC step was left out: ac: none), "
            "agreed within 0.03 MW",
        ),
        (
            ALL | {"ac": {"status": "Ipopt found no dispatch in 60 s"}},
            False,
            "serves 259.3 of 259.3 MW (loads) at 2,176 $/h (relaxed: Ipopt found no dispatch in 60 s), agreed within "
            "0.03 MW",
        ),
        (
            ALL | SOLVED | UNLIKE,
            False,
            "serves 259.3 of 259.3 MW (loads) at 2,178 $/h (AC), not converged, disagreement 12.3 MW",
        ),
        (
            ALL | {"ac": {"status": "solved", "objective": 15877.9, **POWER}},
            True,
            "serves 257.9 of 259.3 MW (noisy loads) at 2,178 $/h (AC; 15,878 with slack at 10,000 $/MWh; bound 2,176), "
            "1.4 MW unserved, agreed within 0.03 MW",
        ),
        ({"quality": {"verdict": "not-converged"}}, False, "no dispatch: the run ended before the zones had handed "
                                                           "over a dispatch"),
    ],
    ids=["AC", "true loads", "relaxed", "no AC dispatch", "not converged", "unserved", "no dispatch"],
)  # fmt: skip
def test_the_headline_has_the_runs_own_figures(result: dict[str, Any], noisy: bool, said: str) -> None:
    assert dispatch.dispatch_of(result, None, noisy).headline == said


@pytest.mark.parametrize(
    ("apart", "said"), [(0.0, "0.00"), (0.0001, "0.01"), (0.03, "0.03"), (0.0301, "0.04"), (2.5, "2.50")]
)
def test_what_the_zones_agree_within_is_rounded_up(apart: float, said: str) -> None:
    found = dispatch.dispatch_of(ALL | SOLVED | {"disagreement_mw": apart}, None, True)
    assert found.headline.endswith(f"agreed within {said} MW")


def shown(run_dir: Path) -> tuple[str, str]:
    """What the report says, and what `hushgrid run` prints."""
    text = page(run_dir).text.split("Scenario, resolved")[0]
    scenario = scenario_from(dict(rundir.read(run_dir).scenario))
    return text, summary.text(Result.load(run_dir), scenario)


@pytest.mark.runs
def test_report_and_summary_begin_with_the_headline(tmp_path: Path) -> None:
    said = "serves 259.3 of 259.3 MW (noisy loads) at 2,178 $/h (AC; bound 2,176), agreed within 0.03 MW"
    text, told = shown(write_least_cost(tmp_path))
    assert told.splitlines()[0] == f"case14-least-cost: {said}"
    lines = text.split("case14-least-cost\n")[-1].strip().splitlines()
    assert lines[0] == f"case14 in 3 zones: {said}."


# The word set-points --------------------------------------------------------------------------------------------------


@pytest.mark.runs
@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, None),
        ({"ac": {"unserved_mw": 2.5, "served_mw": 256.8}}, None),
        ({"ac": {"unserved_mw": 2.7, "served_mw": 256.6}}, "2.7 MW, 1.0 % of the load, are not served"),
        ({"quality": {"verdict": "not-converged"}}, "the zones have not agreed: disagreement 0.024 MW"),
        ({"quality": {"verdict": "diverged"}}, "the zones have not agreed"),
        (
            {"ac": {"status": "Ipopt found no dispatch in 60 s"}},
            "AC power flow equations (Ipopt found no dispatch in 60 s)",
        ),
        ({"ac": None}, "AC power flow equations (none was looked for)"),
    ],
    ids=["all three", "1 % unserved", "more unserved", "not converged", "diverged", "AC failed", "no AC"],
)
def test_the_word_set_points_appears_only_if_agreed_served_and_AC(
    tmp_path: Path, result: dict[str, Any], why: str | None
) -> None:
    solved = (result.get("ac", {}) or {}).get("status", "solved") == "solved" and result.get("ac", {}) is not None
    write_least_cost(tmp_path, result=result, source="ac" if solved else "relaxed")
    if not solved and result["ac"] is None:
        assert rundir.read(tmp_path).result["ac"] is None
    for text in shown(tmp_path):
        assert bool(WORD.search(text)) is (why is None)
        if why is not None:
            assert why in text
            assert ("Dispatch (AC)" if solved else "Dispatch (relaxed)") in text


@pytest.mark.runs
def test_the_tables_captions_call_the_figures_what_they_are(tmp_path: Path) -> None:
    for source, word in (("ac", "set-points"), ("relaxed", "dispatch (relaxed)")):
        captions = re.findall(r"<caption>(.*?)</caption>", html(write_least_cost(tmp_path / source, source=source)))
        named = [f"All {what}: {word}, at the noisy loads." for what in ("generators", "zones", "lines", "buses")]
        assert captions[:4] == named


@pytest.mark.runs
def test_every_table_of_a_run_that_has_not_converged_says_so(tmp_path: Path) -> None:
    text = html(write_least_cost(tmp_path, result={"quality": {"verdict": "not-converged"}}))
    captions = re.findall(r"<caption>(.*?)</caption>", text)[:4]
    assert all("dispatch (AC), at the noisy loads; not converged, disagreement 0.024 MW." in said for said in captions)
    assert "the zones have not agreed on them" in text
    assert "Bound: least cost" not in text
    assert "as the zones estimate" not in text


# Tables ---


def cells(text: str) -> list[list[str]]:
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text)]


@pytest.mark.runs
def test_every_figure_of_the_tables_stands_in_the_report_with_three_decimals(tmp_path: Path) -> None:
    found = [set(row) for row in cells(html(write_least_cost(tmp_path)))]
    for name in rundir.TABLES:
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows
        for row in rows:
            expected = set()
            for key, text in row.items():
                if key in rundir.WORDS or key in rundir.WHOLE:
                    expected |= {text} if key != "source" else set()
                else:
                    expected.add(f"{float(text):,.3f}".replace(",", "\u202f").replace("-", "−"))
            assert any(expected <= row for row in found), row


@pytest.mark.runs
def test_headings_carry_the_units(tmp_path: Path) -> None:
    headings = set(re.findall(r'<th scope="col">(.*?)</th>', html(write_least_cost(tmp_path))))
    assert {
        "P, MW",
        "Q, MVAr",
        "Cost, $/h",
        "Marginal cost, $/MWh",
        "Load, MW",
        "Interchange, MW",
        "P from, MW",
        "Q to, MVAr",
        "Limit, MVA",
        "Loading, %",
        "Disagreement, MW",
        "V, p.u.",
        "Price, $/MWh",
        "Price of Q, $/MVArh",
    } <= headings


def test_a_table_of_zones_ends_with_their_sum(tmp_path: Path) -> None:
    rows = cells(html(write_least_cost(tmp_path)))
    total = next(row for row in rows if row[:1] == ["all"])
    assert total[1:3] == ["259.300", "259.300"]


@pytest.mark.runs
def test_long_tables_begin_with_what_matters_and_fold_the_rest(tmp_path: Path) -> None:
    text = html(write_least_cost(tmp_path, case="case118"))
    lines = rundir.read(tmp_path).tables["lines"]
    most = max(lines, key=lambda row: row["loading_percent"])
    led = text.index("The 12 most loaded lines")
    assert cells(text[led:])[1][0] == str(most["branch"])
    for what in (
        "12 generators of the largest output",
        "6 highest and the 6 lowest prices",
        "12 voltages nearest to a limit",
    ):
        assert what in text
    for name, count in (("lines", 186), ("buses", 118), ("generators", 54)):
        assert f"<details><summary>All {name} ({count} rows)</summary>" in text
    assert text.count("<details>") == 3


@pytest.mark.runs
def test_each_table_and_the_map_say_whether_they_are_relaxed(tmp_path: Path) -> None:
    ac, relaxed = (page(write_least_cost(tmp_path / source, source=source)).text for source in ("ac", "relaxed"))
    assert ac.count("AC: the values satisfy the AC power flow equations.") == 5
    assert "Flows of the relaxation are not unique" not in ac
    assert relaxed.count("Relaxed: values of the second-order-cone relaxation") == 5
    assert relaxed.count("Flows of the relaxation are not unique") == 2  # the lines, and the map
    for text, whose in ((ac, "AC dispatch"), (relaxed, "relaxation")):
        assert text.count(f"Prices are those of the {whose} at the noisy loads") == 2


@pytest.mark.runs
def test_what_is_not_balanced_is_told_wherever_AC_is(tmp_path: Path) -> None:
    left_out = {"ac": {"unserved_mw": 1.5, "served_mw": 257.8, "slack_mvar": 0.25}}
    text = page(write_least_cost(tmp_path, result=left_out)).text
    assert text.count("equations, but for 1.5 MW unserved and 0.25 MVAr not balanced.") == 5
    assert "hold at the noisy loads, but for 1.5 MW unserved and 0.25 MVAr not balanced." in text
    assert "serves 257.8 of 259.3 MW" in text


def test_a_case_from_a_file_is_called_by_its_name_alone(tmp_path: Path) -> None:
    path = write_least_cost(tmp_path) / "scenario.yaml"
    path.write_text(path.read_text().replace("case: case14", "case: /far/away/grid.m"))
    text = page(tmp_path).text.split("Scenario, resolved")[0]
    assert "grid in 3 zones: serves" in text
    assert "/far/away" not in text


def test_a_row_says_its_source_where_sources_differ(tmp_path: Path) -> None:
    path = write_least_cost(tmp_path) / "generation.csv"
    path.write_text(path.read_text().replace(",ac", ",relaxed", 1))
    text = html(tmp_path)
    assert text.count('<th scope="col">Source</th>') == 4
    assert "Each row says whether its values are AC or relaxed." in text


# Charts ---


def test_both_residuals_their_tolerance_and_the_disagreement_are_drawn(tmp_path: Path) -> None:
    text = page(write_least_cost(tmp_path)).text
    for words in (
        "primal: copies apart",
        "dual: prices apart",
        "tolerance, primal",
        "MW or MVAr",
        "Flows of the relaxation.",
    ):
        assert words in text


def test_the_cost_of_each_round_is_shown_at_the_noisy_loads(tmp_path: Path) -> None:
    write_least_cost(tmp_path)
    assert rundir.read(tmp_path).history["objective"][-1] == pytest.approx(2176.3)
    assert "What the zones' own steps cost at the noisy loads" in page(tmp_path).text


# Privacy
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.runs
@pytest.mark.parametrize(
    ("loads", "asked", "public"),
    [
        (None, "p and q of every bus, load or no load", None),
        ("case", "other than zero in the public case file was perturbed once", "is public: those of the case file"),
        (
            {"p": [2, 3], "q": [2]},
            "Each load that the scenario lists was perturbed once",
            "is public: those the scenario lists",
        ),
    ],
    ids=["no mask", "the case's", "listed"],
)
def test_who_knows_what_is_told_with_the_mask(tmp_path: Path, loads: Any, asked: str, public: str | None) -> None:
    text = page(write_least_cost(tmp_path, loads=loads)).text
    assert "each zone's gate gave one answer" in text
    assert asked in text
    assert "computed from that one answer and from what is public (post-processing)" in text
    assert "at the end each zone's noisy loads one by one" in text
    assert "from which it computed the AC dispatch" in text
    assert ("Which buses have a load" in text) is (public is not None)
    assert public is None or public in text


@pytest.mark.runs
def test_a_run_without_an_AC_step_does_not_say_that_the_coordinator_made_one(tmp_path: Path) -> None:
    text = page(write_least_cost(tmp_path, source="relaxed")).text
    assert "at the end each zone's noisy loads one by one" in text
    assert "AC dispatch" not in text.split("What the coordinator knows")[1].split("What a zone knows")[0]
    path = tmp_path / "scenario.yaml"
    path.write_text(path.read_text().replace("ac: none", "ac: polish"))
    assert "from which it sought an AC dispatch and found none" in page(tmp_path).text


@pytest.mark.runs
def test_true_loads_are_never_called_noisy(tmp_path: Path) -> None:
    for text in shown(write_least_cost(tmp_path, private=False)):
        assert "noisy" not in text
        assert "(loads)" in text


# The page as a file
# -----------------------------------------------------------------------------------------------------


@pytest.mark.runs
@pytest.mark.usefixtures("charts")
def test_the_same_run_gives_the_same_bytes_without_script_or_request(tmp_path: Path) -> None:
    text = html(write_least_cost(tmp_path / "run"))
    shutil.copytree(tmp_path / "run", tmp_path / "moved")
    assert html(tmp_path / "moved") == text
    shown = Page(text)
    assert not {tag for tag, _ in shown.tags} & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", text)
    ids = shown.all("id")
    assert len(ids) == len(set(ids))
    assert set(shown.all("for")) == {"by-voltage", "by-price"} <= set(ids)


def test_a_report_of_least_shedding_has_nothing_of_it(tmp_path: Path) -> None:
    text = html(write_run(tmp_path))
    assert "by-voltage" not in text
    assert "Set-points of the generators" in text


def test_a_run_without_tables_has_a_report(tmp_path: Path) -> None:
    text = page(write_least_cost(tmp_path, tables=False)).text
    assert "The run directory holds no tables of it." in text
    assert "serves 259.3 of 259.3 MW" in text


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("buses", ("v_pu", "volt"), "buses.csv:1: found no column v_pu, expected bus, zone, v_pu"),
        ("buses", ("1,z1", "one,z1"), "buses.csv:2: bus: found 'one', expected a whole number"),
        ("lines", ("1,1,2,z1", "1,1,77,z1"), "lines.csv:2: to: found 77, expected a bus of buses.csv"),
        ("lines", (",no,", ",maybe,"), "lines.csv:2: tie: found 'maybe', expected yes or no"),
        ("generation", (",ac", ",dc"), "generation.csv:2: source: found 'dc', expected ac or relaxed"),
        ("balance", ("z1,", "z1,much"), "balance.csv:2: load_mw: found 'much"),
        ("balance", ("z1,", "z1,1,"), "balance.csv:2: found a row of another length, expected 13 cells"),
    ],
)
def test_a_malformed_table_is_one_line_with_file_and_place(
    tmp_path: Path, name: str, change: tuple[str, str], message: str
) -> None:
    path = write_least_cost(tmp_path) / f"{name}.csv"
    text = path.read_text().replace("\r\n", "\n")
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    with pytest.raises(InputError) as caught:
        report.build(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    (write_least_cost(tmp_path) / "lines.csv").unlink()
    with pytest.raises(InputError, match=r"found no lines.csv, expected it beside generation.csv"):
        report.build(tmp_path)


@pytest.mark.runs
def test_an_empty_figure_is_a_dash(tmp_path: Path) -> None:
    path = write_least_cost(tmp_path) / "buses.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    for column in ("v_pu", "price_per_mwh"):
        rows[1][BUSES.index(column)] = ""
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    assert ["1", "z1", "–", "–"] in [row[:4] for row in cells(html(tmp_path))]


# A real run
# -------------------------------------------------------------------------------------------------------------


@pytest.mark.runs
def test_a_run_in_memory_is_told_as_its_directory_is(tmp_path: Path) -> None:
    whole = {
        "hushgrid": 1, "name": "real",
        "problem": {"kind": "zones", "case": "case14", "zones": [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]],
                    "loads": {"nonzero": "case"}, "ac": "none"},
        "algorithm": {"name": "consensus-admm", "rounds": 200},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0},
    }  # fmt: skip
    result = run(whole, out=tmp_path / "run")
    again = Result.load(tmp_path / "run")
    assert again.history["objective"] == result.history["objective"]
    assert {name: [list(row) for row in rows] for name, (_, rows) in again.tables.items()} == {
        name: [list(row) for row in rows] for name, (_, rows) in result.tables.items()
    }
    told = summary.text(result, scenario_from(whole)).splitlines()[0]
    assert f"of {result.load_mw:,.1f} MW (noisy loads) at {result.objective:,.0f} $/h (relaxed: the AC step" in told
    text = html(tmp_path / "run")
    assert told.removeprefix("real: ") in Page(text).text
    assert not WORD.search(text.split("Scenario, resolved")[0])
