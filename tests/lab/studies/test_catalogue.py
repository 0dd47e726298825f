"""Studies by their names, what independent code found measured again, and Figures 3 and 4."""

import math
from importlib import import_module
from inspect import signature

import numpy as np
import pytest

from hushgrid.cli.main import main
from hushgrid.kernels.errors import InputError
from hushgrid.lab.studies import catalogue
from hushgrid.lab.studies.catalogue import RETIRED, STUDIES
from hushgrid.lab.studies.common.study import Page, Table
from hushgrid.lab.studies.papers import accuracy, figures
from tests.support.paths import ROOT


def test_the_studies_are_listed_and_each_is_there_to_run(capsys):
    assert main(["study"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*STUDIES, *RETIRED]
    for study in STUDIES.values():
        function = import_module(f"hushgrid.lab.studies.{study.module}").study
        assert all(p.default is not p.empty for p in signature(function).parameters.values())
    assert main(["study", "speed"]) == 2
    assert capsys.readouterr().err == f"hushgrid: study: found 'speed', expected one of {', '.join(STUDIES)}\n"


@pytest.mark.parametrize("name", RETIRED)
def test_a_retired_study_names_its_page_and_the_commit_of_its_code(name, capsys):
    assert main(["study", name]) == 2
    error = capsys.readouterr().err
    page = f"docs/studies/{RETIRED[name]}.md"
    assert f"{page} is its page, commit {catalogue.LAST_COMMIT} has its code" in error
    text = " ".join((ROOT / page).read_text().split())
    assert f"`hushgrid study {name}` at commit {catalogue.LAST_COMMIT}" in text


def test_a_study_prints_its_tables_and_writes_its_pages_where_they_are_wanted(monkeypatch, tmp_path, capsys):
    pages = [Page("some", [Table("Counts", ("a", "b"), [("x", 1.23456)])], {"some.svg": "<svg></svg>"})]
    monkeypatch.setattr(accuracy, "study", lambda: pages)
    assert main(["study", "accuracy"]) == 0
    assert capsys.readouterr().out == "## Counts\n\n| a | b |\n|---|---|\n| x | 1.23 |\n\n"
    assert main(["study", "accuracy", "--pages", str(tmp_path)]) == 0
    names = ["some.md", "some-1.csv", "some.svg"]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in names]
    assert "hushgrid study accuracy --pages" in (tmp_path / "some.md").read_text()
    assert (tmp_path / "some-1.csv").read_text().splitlines()[-2:] == ["a,b", "x,1.23"]


@pytest.mark.long
def test_accuracy_is_measured_beside_what_is_expected():
    rows = accuracy.accuracy(seeds=1, quick=True).rows
    assert sum(isinstance(expected, float) for _, _, expected, _ in rows) >= 12
    assert rows[0][0].startswith("case14: central")
    assert abs(rows[0][1]) < 1e-6
    ratios = [ratio for what, _, _, ratio in rows if "minimum cost" in what]
    assert ratios == pytest.approx([1.0] * 4, abs=1e-4)


# --- Figures 3 and 4 ---


def test_the_study_covers_the_papers_grid_and_three_honest_ways_at_equal_totals():
    chosen = figures.settings()
    paper = [s for s in chosen if s.method in accuracy.PUBLISHED]
    assert len(paper) == 4 * 4 * 2  # methods, epsilons, E
    assert {s.claim for s in chosen if s.method.startswith("input")} == {"1 in all", "5 in all", "25 in all"}
    assert {s.method for s in chosen} - set(accuracy.PUBLISHED) - {"no privacy"} == {
        f"{way}, {law}" for way in ("input", "objective", "gradient") for law in ("laplace", "gaussian")
    }
    assert len({(s.method, s.claim, s.local_updates, s.eta) for s in chosen}) == len(chosen)


@pytest.mark.runs
def test_a_studys_line_prices_the_published_noise_honestly_and_the_guarded_at_what_it_asks():
    def line(method, asked):
        setting = next(s for s in figures.settings() if s[:3] == (method, asked, 1))
        return figures.measure((figures.SOURCES / "figure3.yaml", setting, 1, 10))

    paper = line("ObjL", "0.05 an answer")
    assert (paper.claimed, paper.honest) == (pytest.approx(0.5), pytest.approx(2.5))
    gaussian = line("ObjG", "0.05 an answer")
    assert gaussian.delta == 0.01
    assert gaussian.claimed < gaussian.honest < gaussian.honest_small
    output = line("OutL", "0.05 an answer")
    assert output.honest == output.honest_small == math.inf
    for method in ("input, laplace", "objective, gaussian", "gradient, laplace"):
        guarded = line(method, "5 in all")
        assert guarded.claimed == 5.0
        assert guarded.honest == pytest.approx(5.0, rel=1e-3)
        assert guarded.honest <= 5.0
    assert np.isnan(line("no privacy", "").honest)
    assert paper.objective.shape == paper.noise.shape == paper.violation.shape == (1, 10)


@pytest.mark.runs
def test_both_parts_of_a_figure_are_tables_and_the_figure_one_self_contained_chart(monkeypatch):
    wanted = ("ObjG", "ObjL", "OutG", "OutL", "no privacy")
    few = [s for s in figures.settings() if s.method in wanted]
    monkeypatch.setattr(figures, "settings", lambda: few)
    (page,) = figures.study({"figure3": 1}, rounds=2)
    assert [len(table.columns) for table in page.tables] == [14, 14]
    assert sum(len(table.rows) for table in page.tables) == len(few)
    assert "| ObjG | 1 | 0.05 an answer |" in page.markdown()
    assert list(page.pictures) == ["figure3.svg"]
    assert 'href="http' not in page.pictures["figure3.svg"]


def test_a_study_away_from_its_scenarios_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "SOURCES", tmp_path)
    with pytest.raises(
        InputError, match=r"/figure3.yaml: no such file, expected `hushgrid study figures` to run where"
    ):
        figures.measured("figure3", [], 1)
