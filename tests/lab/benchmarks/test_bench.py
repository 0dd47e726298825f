"""The benchmarks run on tiny sizes and say what they promise: no figure is judged here."""

import json
import os

import pytest

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.cli.main import main
from hushgrid.kernels.errors import InputError
from hushgrid.lab.benchmarks import bench, masks, opf, timing
from hushgrid.lab.benchmarks.common import measure
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, row
from hushgrid.lab.benchmarks.scale import size
from hushgrid.lab.studies.catalogue import STUDIES
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.ledger import Ledger
from tests.support.runs.bench_output import _names, _well_formed


def test_a_row_has_the_median_the_tenth_and_ninetieth_percentile_and_its_ratio_to_the_rival():
    rival = row("rival", "ms", [2.0] * 5)
    ours = row("ours", "ms", list(range(101)), rival=rival)
    assert (ours.value, ours.p10, ours.p90, ours.samples) == (50.0, 10.0, 90.0, 101)
    assert (ours.rival, ours.ratio) == ("rival", 25.0)


def test_a_target_is_met_by_the_value_or_by_the_ratio():
    r = Row(what="x", unit="ms", value=2.0, rival="y", ratio=1.2)
    assert against(r, 2.5).met is True
    assert against(r, 1.9).met is False
    assert against(r, 1.3, "ratio").met is True
    assert against(r, 1.1, "ratio").met is False
    assert against(r, 1.3, "ratio").target == "<= 1.3x"


def test_a_table_is_shown_aligned_and_without_the_columns_nobody_fills():
    table = Table(
        name="t", summary="a test", rows=[row("one", "ms", [1.0, 2.0, 3.0]), Row(what="two", unit="s", value=4e4)]
    )
    title, header, one, two = measure.as_text(table).splitlines()
    assert title == "t: a test"
    assert header.split() == ["median", "p10", "p90", "n"]
    assert one.split() == ["one", "2", "1.2", "2.8", "3", "ms"]
    assert two.split() == ["two", "40000", "s"]


def test_json_has_the_tables_the_versions_and_the_machine():
    whole = json.loads(measure.as_json([Table(name="t", summary="a test", rows=[row("one", "ms", [1.0])])]))
    assert set(whole) == {"machine", "versions", "at", "tables"}
    assert whole["tables"][0]["rows"][0]["value"] == 1.0
    assert {"processor", "cores", "load", "system"} == set(whole["machine"])
    assert {"python", "hushgrid", "numpy", "clarabel"} <= set(whole["versions"])


def test_the_step_is_measured_against_the_solver_alone():
    table = bench.step(cases=(("case14", "z1"),), rounds=4)
    _well_formed(table)
    ours, bare = table.rows
    assert ours.rival == bare.what
    assert (ours.samples, bare.samples) == (4, 4)
    assert ours.target == "<= 1.3x"


def test_noise_is_measured_for_both_laws_against_numpy():
    table = bench.noise(sizes=(64, 2048), repeats=2)
    _well_formed(table)
    named = [n for n in _names(table) if not n.startswith("OpenDP")]
    assert len(named) == 8
    assert [r.target for r in table.rows if r.what.startswith(("discrete", "rounded"))] == [None] * 2 + [
        "<= 1000 ns"
    ] * 2


@pytest.mark.runs
def test_a_zones_step_at_least_cost_is_measured_beside_the_solver_on_the_same_problem():
    problem = {"kind": "zones", "case": "case5", "zones": 2}
    algorithm = {"name": "consensus-admm", "rounds": 60, "variant": "none"}
    scenario = scenario_from({"hushgrid": 1, "name": "small", "problem": problem, "algorithm": algorithm})
    played = opf.played(made := ZoneSetup(scenario))
    assert played.rounds > 5
    assert len(played.step_ms) == len(played.bare_ms) == 2 * (played.rounds - 1)
    central, seconds = opf._central(made)
    assert played.figures["objective"] == pytest.approx(central, rel=1e-3)
    assert seconds > 0


def test_the_case_of_588_buses_is_there_if_its_file_is_named(monkeypatch):
    monkeypatch.delenv(opf.CASE588, raising=False)
    assert list(opf.cases_here()) == ["14", "118", "300"]
    monkeypatch.setenv(opf.CASE588, "/nowhere/case588.m")
    assert list(opf.cases_here()) == ["14", "118", "300", "588"]
    with pytest.raises(InputError, match=r"/nowhere/case588.m"):
        opf.opf({"588": opf.cases_here()["588"]})


@pytest.mark.runs
def test_what_a_device_of_a_large_fleet_costs_is_measured_by_their_number_and_a_round_of_two_levels():
    table = size.size(nodes=(60, 80), levels=size.Case(nodes=12, sites=3, rounds=(1, 3)))
    _well_formed(table)
    assert [r.unit for r in table.rows] == ["ms"] * 4 + ["s", "", "kB", "s"]
    a_round = table.rows[4]
    assert (a_round.target, a_round.what) == ("<= 2 s", "12 devices in 3 sites: a round")
    assert table.rows[5].value == 2 * 12  # a question and an answer each


def test_a_benchmark_that_does_not_exist_is_refused_in_one_line():
    with pytest.raises(
        InputError, match=r"^bench: found 'speed', expected one of step, noise, .*opf, day, warm, masks, timing$"
    ):
        bench.main("speed")


def test_a_study_is_refused_as_a_benchmark_in_one_line_that_names_its_command(capsys):
    assert {name: main(["bench", name]) for name in STUDIES} == dict.fromkeys(STUDIES, 2)
    assert capsys.readouterr().err.splitlines() == [
        f"hushgrid: bench: found '{name}', a study, expected 'hushgrid study {name}'" for name in STUDIES
    ]


def test_json_output_is_json_and_nothing_else(capsys, monkeypatch):
    monkeypatch.setattr(bench, "noise", lambda: Table(name="noise", summary="", rows=[row("one", "ns", [1.0])]))
    assert bench.main("noise", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["name"] == "noise"


# --- what a benchmark found ---


def test_sqlites_log_stays_below_five_megabytes_however_much_goes_straight_into_the_tables(tmp_path):
    """A thousand pages, and what the last commit adds; then it is used again from its beginning."""
    ledger = Ledger(tmp_path / "n1.ledger", "n1")
    run = b"\1" * 16
    ledger.join(run, b"")
    for _ in range(1500):
        ledger.commit(run, state=os.urandom(4000), last=b"", status="running")  # straight into the tables
    assert (tmp_path / "n1.ledger-wal").stat().st_size < 5 << 20
    ledger.close()


def test_masked_rounds_are_measured_beside_plain_ones(monkeypatch):
    pytest.importorskip("cryptography")
    monkeypatch.setattr(masks, "_memory", lambda n: [])  # a process of its own: tests/system
    table = masks.masks(sizes=(3,), wired=(), rounds=6, repeats=2)
    _well_formed(table)
    ours = [r for r in table.rows if r.rival]
    assert [r.rival for r in ours] == [r.what.replace("masked", "plain") for r in ours]
    commits = {r.what: r.value for r in table.rows if "commits" in r.what}
    assert len(commits) == 2
    assert [r.what.split(" of ")[0] for r in table.rows[-3:]] == ["introduction", "meet", "pad"]


def test_unlike_rows_are_asked_in_turn_and_compared_in_pairs():
    table = timing.timing(rows=30, features=4, games=3)
    _well_formed(table)
    ours = [r for r in table.rows if r.rival]
    assert len(ours) == 3 * 4 * 2 + 3
    assert all(r.ratio is not None and r.ratio > 0 for r in ours)
