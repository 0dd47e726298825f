"""The report of a run: what it shows, what it must never show, and how it fails."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import grid_cases
from hushgrid.broker.report import run_directory as rundir
from hushgrid.broker.report import statement
from tests.support.runs.report_pages import Page, html, page, write_run


def rewrite(run_dir: Path, **changes: Any) -> None:
    """Replaces fields of result.json; a key privacy__x is a field of privacy."""
    path = run_dir / "result.json"
    result = json.loads(path.read_text())
    for key, value in changes.items():
        outer, _, inner = key.partition("__")
        if inner:
            result[outer][inner] = value
        else:
            result[outer] = value
    path.write_text(json.dumps(result))


# What is shown ------------------------------------------------------------------------------------------------------


def test_a_private_run_says_what_is_promised_to_whom_and_at_which_total(tmp_path: Path) -> None:
    text = page(write_run(tmp_path)).text
    assert "Privacy claim upheld: each zone's loads are protected with a total of ε = 5 per node" in text
    assert "one active or reactive load moves by at most 0.01 p.u. (1 MW or 1 MVAr)" in text
    assert "148 (e to the power ε)" in text
    assert "budget counted for this run only" in text
    for title in ("Public by design", "Several loads at once", "Taking part", "A lying coordinator or another zone"):
        assert title in text


def test_the_epsilon_of_one_round_is_never_printed(tmp_path: Path) -> None:
    text = page(write_run(tmp_path, epsilon=7.3)).text
    assert "ε = 7.3" in text
    assert "0.073" not in text


@pytest.mark.parametrize(
    ("how", "headline"),
    [
        ({"upheld": "not private", "seed": 7}, "Not private: the noise was drawn from a seed"),
        ({"upheld": "not private", "variant": "none"}, "Not private: this is the plain optimiser"),
        ({"upheld": "not private"}, "Not private: the run is marked as a simulation"),
        ({"upheld": False, "variant": "published"}, "Privacy claim not upheld: noise stands where the published"),
    ],
)
def test_a_run_without_a_valid_claim_says_so_and_why(tmp_path: Path, how: dict[str, Any], headline: str) -> None:
    text = page(write_run(tmp_path, **how)).text
    assert headline in text
    assert "are protected" not in text
    assert "Its data must be treated as open" in text


def test_every_finding_of_a_published_method_is_shown(tmp_path: Path) -> None:
    found = ["noise scaled to 2 beta only", "the copies can be averaged"]
    text = page(write_run(tmp_path, upheld=False, variant="published", findings=found)).text
    assert all(f"Privacy claim not upheld: {finding}" in text for finding in found)
    assert "ε = 5 (claimed, not upheld)" in text


@pytest.mark.parametrize("upheld", [None, "true", 1, "maybe"])
def test_only_the_word_true_counts_as_upheld(tmp_path: Path, upheld: Any) -> None:
    write_run(tmp_path)
    rewrite(tmp_path, privacy__upheld=upheld)
    assert "Privacy claim upheld" not in page(tmp_path).text


@pytest.mark.parametrize(
    ("mode", "said", "not_said"),
    [
        ("input", "Each load was perturbed once", "fresh noisy copy"),
        ("objective", "Each answer drew a fresh noisy copy of the loads", "perturbed once"),
    ],
)
def test_the_words_on_noise_fit_the_mode(tmp_path: Path, mode: str, said: str, not_said: str) -> None:
    text = page(write_run(tmp_path, mode=mode)).text
    assert said in text
    assert not_said not in text


def test_what_is_left_is_what_the_ledger_says(tmp_path: Path) -> None:
    write_run(tmp_path, budget=12.0)
    spent = {"claimed": {"epsilon": 5.0, "delta": 0.0}, "spent": {"epsilon": 5.0, "delta": 0.0}}
    for left, said in ((6.5, "6.5"), (None, "–")):
        rewrite(tmp_path, privacy__per_node={"z1": spent | {"left": left}})
        assert statement.statement(rundir.read(tmp_path), 100.0).table[0] == ("z1", "5", "0", "5", "12", said)


def test_tie_line_flows_stand_in_mw_as_each_zone_sees_them(tmp_path: Path) -> None:
    write_run(tmp_path)
    with np.load(tmp_path / "solution.npz") as saved:
        arrays = dict(saved)
    for zone, flow in (("z1", 0.2811), ("z2", 0.2822)):
        arrays[f"z_{zone}"][arrays[f"keys_{zone}"] == "pF:7"] = flow
    np.savez(tmp_path / "solution.npz", **arrays)
    rows = re.findall(r"<tr>(.*?)</tr>", html(tmp_path))
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    first = next(i for i, row in enumerate(cells) if row[:2] == ["4 → 7", "z1"])
    assert cells[first][2] == "28.11"
    assert cells[first + 1][1:3] == ["z2", "28.22"]


def test_generators_stand_with_bus_and_units(tmp_path: Path) -> None:
    assert "<tr><td>z2</td><td>8</td><td>5</td><td>100.00 MW</td><td>20.00 MVAr</td></tr>" in html(write_run(tmp_path))


@pytest.mark.runs
def test_a_chart_that_would_be_a_constant_is_a_sentence(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    drawn = page(run_dir).text
    assert "Noise per round, expected, L1 norm: 2 (p.u.) in each." in drawn
    assert 'aria-label="Noise per round' not in html(run_dir)
    assert 'aria-label="Privacy spent"' in html(run_dir)  # it rises round by round
    history = (run_dir / "history.csv").read_text().splitlines()
    at = [k for k, name in enumerate(history[0].split(",")) if name.startswith("epsilon_")]
    rows = [line.split(",") for line in history[1:]]
    for row in rows:
        for k in at:
            row[k] = "2.5"
    (run_dir / "history.csv").write_text("\n".join([history[0], *(",".join(row) for row in rows)]) + "\n")
    assert 'aria-label="Privacy spent"' not in html(run_dir)
    assert "Privacy spent, ε: 2.5 each, all of it in the first round." in page(run_dir).text


@pytest.mark.runs
def test_expected_noise_is_called_expected_and_drawn_noise_drawn(tmp_path: Path) -> None:
    assert "Noise per round, expected" in page(write_run(tmp_path / "private")).text
    assert "Noise per round, as drawn" in page(write_run(tmp_path / "seeded", upheld="not private", seed=1)).text


# What must not be shown ---------------------------------------------------------------------------------------------


@pytest.mark.runs
def test_raw_data_figures_of_a_private_run_leave_no_trace(tmp_path: Path) -> None:
    clean = write_run(tmp_path / "clean", raw=False)
    leaky = write_run(tmp_path / "leaky", raw=True)
    assert "0.431" in (leaky / "result.json").read_text()
    assert html(clean) == html(leaky)


@pytest.mark.runs
@pytest.mark.parametrize("upheld", [True, "not private"])
def test_a_private_report_does_not_depend_on_the_loads(tmp_path: Path, upheld: Any) -> None:
    run = write_run(tmp_path / "run", upheld=upheld, raw=False)
    case = tmp_path / "network.m"
    original = (Path(grid_cases.__file__).parent / "pglib_opf_case14_ieee.m").read_text()
    scenario = (run / "scenario.yaml").read_text()
    (run / "scenario.yaml").write_text(scenario.replace("case: case14", f"case: {case}"))
    assert str(case) in (run / "scenario.yaml").read_text()
    pages = []
    for load_of_bus_4 in ("47.8\t -3.9", "0.0\t 0.0"):
        assert original.count("47.8\t -3.9") == 1
        case.write_text(original.replace("47.8\t -3.9", load_of_bus_4))
        pages.append(html(run))
    assert (pages[0] == pages[1]) is (upheld is True)


# The page as a file -------------------------------------------------------------------------------------------------


Drawn = Callable[[str], tuple[Path, str]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """A run, "private" or "open", with its page, of which the charts are drawn: made once."""
    known: dict[str, tuple[Path, str]] = {}

    def of(kind: str) -> tuple[Path, str]:
        if kind not in known:
            how = {"private": {}, "open": {"upheld": "not private", "seed": 3}}[kind]
            run = write_run(tmp_path_factory.mktemp("drawn") / "run", **how)
            known[kind] = run, html(run)
        return known[kind]

    return of


@pytest.mark.runs
@pytest.mark.usefixtures("charts")
def test_the_same_run_gives_the_same_bytes(drawn: Drawn, tmp_path: Path) -> None:
    run, first = drawn("open")
    moved = tmp_path / "elsewhere"
    shutil.copytree(run, moved)
    (moved / "report.html").unlink()
    assert html(moved) == first


@pytest.mark.runs
@pytest.mark.usefixtures("charts")
def test_the_page_loads_nothing_and_runs_nothing(drawn: Drawn) -> None:
    _, text = drawn("private")
    shown = Page(text)
    names = {tag for tag, _ in shown.tags}
    assert not names & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    assert not [a for _, attrs in shown.tags for a in attrs if a.startswith("on")]
    assert all(target.startswith("#") for target in shown.all("href") + shown.all("xlink:href") + shown.all("src"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert "default-src 'none'" in text


@pytest.mark.runs
@pytest.mark.usefixtures("charts")
def test_ids_are_unique_and_every_reference_has_one(drawn: Drawn) -> None:
    _, text = drawn("private")
    shown = Page(text)
    ids = shown.all("id")
    assert len(ids) == len(set(ids)) > 0
    used = {t[1:] for t in shown.all("xlink:href")} | set(re.findall(r"url\(#([^)]*)\)", text))
    assert used <= set(ids)


@pytest.mark.runs
@pytest.mark.usefixtures("charts")
def test_every_figure_has_a_title_a_caption_and_a_description(drawn: Drawn) -> None:
    _, text = drawn("open")
    figures = re.findall(r"<figure>(.*?)</figure>", text, flags=re.S)
    assert len(figures) == 8  # the grid, residual, objective, violation, noise, epsilon, messages, bytes
    for figure in figures:
        assert re.search(r"<h3>.+?</h3>", figure)
        assert re.search(r"<figcaption>.+?</figcaption>", figure)
        assert re.search(r'role="img" aria-label=".+?"', figure)


def test_whatever_the_files_say_is_shown_as_text(tmp_path: Path) -> None:
    evil = "<script>alert('1')</script> & \"more\""
    run = write_run(tmp_path, upheld=False, variant="published", findings=[evil], name=evil)
    rewrite(run, stopped_because=evil, broker=evil, transport=evil, versions={evil: evil}, algorithm=evil)
    shown = page(run)
    assert "script" not in {tag for tag, _ in shown.tags}
    assert shown.text.count(evil) >= 7
