"""The report of a run: what it shows, what it must never show, and how it fails."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import yaml

from hushgrid import grid_cases
from hushgrid.broker import gridmap, plots, report, rundir, statement
from hushgrid.grid_cases import load
from hushgrid.grid_cases.partition import partition
from hushgrid.kernels.errors import InputError

CASE14_ZONES = {"z1": [1, 2, 3, 4, 5], "z2": [7, 8, 9, 10, 14], "z3": [6, 11, 12, 13]}


def write_run(
    out: Path,
    *,
    upheld: Any = True,
    variant: str = "guarded",
    mode: str = "objective",
    seed: int | None = None,
    findings: list[str] | None = None,
    case: str = "case14",
    zones: dict[str, list[int]] | None = None,
    rounds: int = 100,
    raw: bool | None = None,
    name: str = "case14-three-zones",
    epsilon: float = 5.0,
    budget: float | None = 12.0,
) -> Path:
    """A run directory of the documented form, with smooth made-up figures. raw: fill the raw-data columns."""
    zones = CASE14_ZONES if zones is None else zones
    raw = upheld is not True if raw is None else raw
    out.mkdir(parents=True, exist_ok=True)
    t = np.arange(1, rounds + 1)
    wobble = 1 + 0.3 * np.sin(7.0 * t)
    answers = 1 if mode == "input" else rounds
    spent = np.full(rounds, epsilon) if mode == "input" else epsilon * t / answers
    columns: dict[str, Any] = {
        "round": t,
        "objective": 3.0 / t * wobble + 0.4 if raw else [""] * rounds,
        "consensus_residual": 0.9 / t**1.2 * wobble + 1e-3,
        "max_violation": 1e-10 * wobble,
        "noise_l1": 2.0 * wobble if raw and variant != "none" else [""] * rounds,
        "noise_l1_expected": np.full(rounds, 2.0) if variant != "none" else [""] * rounds,
        "messages": np.full(rounds, 2 * len(zones)),
        "bytes": np.full(rounds, 432 * len(zones)),
    }
    if variant != "none":
        columns |= {f"epsilon_{zone}": spent for zone in zones}
    with (out / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))

    grid = load(case)
    zone_of = {bus: zone for zone, members in zones.items() for bus in members}
    arrays: dict[str, Any] = {}
    points: list[tuple[Any, ...]] = []
    for zone in zones:
        keys, values = [], []
        for row, bus in zip(grid.generators.rows, grid.generators.bus, strict=True):
            if zone_of[int(bus)] == zone:
                keys += [f"pg:{row}", f"qg:{row}"]
                values += [0.6 + 0.1 * row, 0.05 * row]
                points += [(zone, "p_g", row, 60 + 10.0 * row, "MW"), (zone, "q_g", row, 5.0 * row, "MVAr")]
        for row, a, b in zip(grid.lines.rows, grid.lines.from_bus, grid.lines.to_bus, strict=True):
            if zone in (zone_of[int(a)], zone_of[int(b)]):
                keys += [f"{q}:{row}" for q in ("pF", "qF", "pT", "qT")]
                values += [0.28 + 1e-4 * len(keys), -0.09, -0.28, 0.11]
        points += [(zone, "v", bus, 1.01, "p.u.") for bus in zones[zone]]
        arrays |= {f"z_{zone}": np.array(values), f"keys_{zone}": np.array(keys)}
    np.savez(out / "solution.npz", w=np.zeros(3), keys_w=np.array(["pF:7", "qF:7", "pT:7"]), **arrays)
    with (out / "setpoints.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("node", "quantity", "element", "value", "unit"), *points])

    claimed = {"epsilon": epsilon, "delta": 0.0}
    privacy: dict[str, Any] = {
        "claimed": claimed,
        "spent": claimed,
        "per_node": {z: {"claimed": claimed, "spent": {"epsilon": float(spent[-1]), "delta": 0.0}} for z in zones},
        "adjacency": {"bounded-change": 0.01},
        "mechanism": "laplace",
        "accountant": "pure-basic",
        "sampler": "exact discrete Laplace on a grid, operating-system entropy" if seed is None else "numpy, seeded",
        "answers": answers,
        "capped": [],
        "upheld": upheld,
        "findings": findings or [],
        "ledgers": "run",
    }
    result = {
        "name": name,
        "algorithm": "ladmm",
        "variant": variant,
        "transport": "mqtt",
        "broker": "mosquitto 2.0.11",
        "nodes": len(zones),
        "rounds_done": rounds,
        "stopped_because": "rounds",
        "objective": 0.431 if raw else None,
        "optimality_gap": None,
        "relative_error": None,
        "consensus_residual": float(columns["consensus_residual"][-1]) if rounds else None,
        "max_violation": 1.2e-10,
        "messages": 2 * len(zones) * rounds,
        "bytes": 432 * len(zones) * rounds,
        "wall_s": 2.61,
        "privacy": None if variant == "none" else privacy,
        "versions": {"hushgrid": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "clarabel": "0.11.1"},
    }
    (out / "result.json").write_text(json.dumps(result))
    plan = {"mechanism": "laplace", "adjacency": {"bounded-change": 0.01}, "epsilon": epsilon, "mode": mode}
    scenario = {
        "hushgrid": 1,
        "name": name,
        "problem": {"kind": "zones", "case": case, "zones": list(zones.values())},
        "algorithm": {"name": "ladmm", "variant": variant, "rounds": rounds, "rho": 100, "local_updates": 1},
        "run": {"record": "summary"},
    }
    if seed is not None:
        scenario["seed"] = seed
    if variant != "none":
        scenario["privacy"] = plan | ({"budget": {"epsilon": budget}} if budget is not None else {})
    (out / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False, default_flow_style=None))
    return out


class Page(HTMLParser):
    """The text, tags and ids of a page. A tag that is not closed in order fails."""

    VOID = frozenset({"meta", "br", "img", "hr", "input", "link"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + "\n"

    def all(self, attribute: str) -> list[str]:
        return [str(attrs[attribute]) for _, attrs in self.tags if attribute in attrs]


def html(run_dir: Path) -> str:
    return report.build(run_dir).read_text(encoding="utf-8")


def page(run_dir: Path) -> Page:
    return Page(html(run_dir))


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
    for title in ("Public by design", "Several loads at once", "Taking part", "A lying coordinator or neighbour"):
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
        ("objective", "Each answer was computed from a fresh noisy copy of the loads", "perturbed once"),
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
        assert statement.statement(*_read(tmp_path), 100.0).table[0] == ("z1", "5", "0", "5", "12", said)


def _read(run_dir: Path) -> tuple[Any, Any]:
    run = rundir.read(run_dir)
    return run.result, run.scenario


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
    assert "<tr><td>z2</td><td>8</td><td>4</td><td>100.00 MW</td><td>20.00 MVAr</td></tr>" in html(write_run(tmp_path))


def test_expected_noise_is_called_expected_and_drawn_noise_drawn(tmp_path: Path) -> None:
    assert "Noise per round, expected" in page(write_run(tmp_path / "private")).text
    assert "Noise per round, as drawn" in page(write_run(tmp_path / "seeded", upheld="not private", seed=1)).text


# What must not be shown ---------------------------------------------------------------------------------------------


def test_raw_data_figures_of_a_private_run_leave_no_trace(tmp_path: Path) -> None:
    clean = write_run(tmp_path / "clean", raw=False)
    leaky = write_run(tmp_path / "leaky", raw=True)
    assert "0.431" in (leaky / "result.json").read_text()
    assert html(clean) == html(leaky)


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


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", upheld="not private", seed=3)
    first = html(run)
    moved = tmp_path / "elsewhere"
    shutil.copytree(run, moved)
    assert html(moved) == first


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    text = html(write_run(tmp_path))
    shown = Page(text)
    names = {tag for tag, _ in shown.tags}
    assert not names & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    assert not [a for _, attrs in shown.tags for a in attrs if a.startswith("on")]
    assert all(target.startswith("#") for target in shown.all("href") + shown.all("xlink:href") + shown.all("src"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_ids_are_unique_and_every_reference_has_one(tmp_path: Path) -> None:
    text = html(write_run(tmp_path))
    shown = Page(text)
    ids = shown.all("id")
    assert len(ids) == len(set(ids)) > 0
    used = {t[1:] for t in shown.all("xlink:href")} | set(re.findall(r"url\(#([^)]*)\)", text))
    assert used <= set(ids)


def test_every_figure_has_a_title_a_caption_and_a_description(tmp_path: Path) -> None:
    text = html(write_run(tmp_path, upheld="not private", seed=1))
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


def test_the_report_replaces_an_older_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    before = {path.name for path in run.iterdir()}
    (run / "report.html").write_text("old")
    assert html(run) != "old"
    assert {path.name for path in run.iterdir()} == before | {"report.html"}


# Less than perfect input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rundir.FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_run(tmp_path) / name).unlink()
    with pytest.raises(InputError, match=f"found no {re.escape(name)}, expected a complete run directory"):
        report.build(tmp_path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: found no such directory"):
        report.build(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", "{", "result.json: found "),
        ("result.json", "[]", "result.json: found a list, expected a mapping"),
        ("result.json", '{"privacy": 5}', "result.json: privacy: found 5"),
        ("result.json", b"\xff\xfe", "result.json: found "),
        ("scenario.yaml", "a: [", "scenario.yaml: found "),
        ("scenario.yaml", "problem: 3", "scenario.yaml: problem: found 3"),
        ("history.csv", "", "history.csv:1: found no column round"),
        ("history.csv", "round,messages,bytes\n1,2,3\n", "found no column consensus_residual"),
        ("history.csv", "round,consensus_residual,messages,bytes\n1,x,2,3\n", "csv:2: consensus_residual: found 'x'"),
        ("history.csv", "round,consensus_residual,messages,bytes\n1,2\n", "csv:2: found a row of another length"),
        ("setpoints.csv", "node,value\n", "setpoints.csv:1: found no column quantity, element, unit"),
        ("solution.npz", "no zip", "solution.npz: found "),
    ],
)
def test_a_malformed_file_is_one_line_with_file_and_place(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (write_run(tmp_path) / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        report.build(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_run_of_hardly_any_rounds_has_a_report(tmp_path: Path, rounds: int) -> None:
    if rounds == 0:
        write_run(tmp_path, rounds=1)
        path = tmp_path / "history.csv"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    else:
        write_run(tmp_path, rounds=rounds)
    assert ("No round was completed" in page(tmp_path).text) is (rounds == 0)


@pytest.mark.parametrize("value", ["", "0.0", "inf", "nan", "-1.0"])
def test_a_column_without_a_drawable_value_does_no_harm(tmp_path: Path, value: str) -> None:
    write_run(tmp_path, rounds=3)
    columns = ("round", "consensus_residual", "max_violation", "messages", "bytes", "epsilon_z1")
    rows = [",".join(columns)] + [f"{t},{value},{value},{value},{value},{value}" for t in (1, 2, 3)]
    (tmp_path / "history.csv").write_text("\n".join(rows) + "\n")
    assert "Round by round" in page(tmp_path).text


def test_a_case_file_that_is_gone_costs_the_drawing_only(tmp_path: Path) -> None:
    write_run(tmp_path)
    path = tmp_path / "scenario.yaml"
    path.write_text(path.read_text().replace("case: case14", "case: gone.m"))
    shown = page(tmp_path)
    assert "The grid is not drawn" in shown.text
    assert "map" not in shown.all("class")
    assert "P from, p.u." in shown.text


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"hushgrid\[laptop\]"):
        report.build(tmp_path)


# Numbers and curves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (0, "0"),
        (0.0, "0"),
        (1234567, "1\u202f234\u202f567"),
        (-5, "−5"),
        (0.0051749, "0.00517"),
        (0.3, "0.3"),
        (999.9, "1\u202f000"),
        (42000.0, "42\u202f000"),
        (1.23456e-10, "1.23 × 10⁻¹⁰"),
        (-2.0e7, "−2 × 10⁷"),
        ("given", "given"),
    ],
)
def test_numbers_are_written_for_reading(value: Any, text: str) -> None:
    assert statement.number(value) == text


def test_curves_that_coincide_are_drawn_once_under_all_names() -> None:
    one, other = np.array([1.0, np.nan]), np.array([1.0, 2.0])
    assert list(plots.grouped({"z1": one, "z2": other, "z3": one.copy()})) == ["z1, z3", "z2"]


# The drawing of the grid --------------------------------------------------------------------------------------------


def test_path_lengths_agree_with_networkx() -> None:
    graph = nx.gnm_random_graph(30, 45, seed=4)
    ends = np.array(graph.edges)
    lengths = 1.0 + np.arange(len(ends)) % 3
    for (a, b), length in zip(ends, lengths, strict=True):
        graph[a][b]["weight"] = length
    expected = dict(nx.all_pairs_dijkstra_path_length(graph))
    found = gridmap.distances(30, ends, lengths)
    joined = [(a, b) for a in expected for b in expected[a]]
    assert all(found[a, b] == expected[a][b] for a, b in joined)
    apart = np.ones((30, 30), bool)
    apart[tuple(np.transpose(joined))] = False
    assert apart.any()
    assert np.all(found[apart] == found[~apart].max() + 2.0)


def test_a_path_is_drawn_straight_with_equal_steps() -> None:
    """Its path lengths are distances on a line, so stress zero is reached up to how far 300 steps get."""
    n = 6
    ends = np.array([(i, i + 1) for i in range(n - 1)])
    position = gridmap.layout(gridmap.distances(n, ends, np.ones(n - 1)))
    np.testing.assert_allclose(np.diff(position[:, 0]), 1.0, atol=1e-3)
    np.testing.assert_allclose(position[:, 1], 0.0, atol=1e-3)


def test_crossings_are_counted_without_common_ends() -> None:
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    sides = [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert gridmap.crossings(square, np.array(sides)) == 0
    assert gridmap.crossings(square, np.array([*sides, (0, 2), (1, 3)])) == 1


@pytest.mark.parametrize(("name", "count"), [("case14", 3), ("case118", 3), ("case300", 6)])
def test_every_bus_is_inside_the_picture_and_none_covers_another(name: str, count: int) -> None:
    case = load(name)
    groups = {zone: [str(bus) for bus in members] for zone, members in partition(case, count).items()}
    edges = tuple((str(a), str(b)) for a, b in zip(case.lines.from_bus, case.lines.to_bus, strict=True))
    network = gridmap.Network(tuple(str(b) for b in case.buses.numbers), edges, groups)
    drawing = gridmap.svg(network, name)
    root = ElementTree.fromstring(drawing)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    svg = "{http://www.w3.org/2000/svg}"
    buses = [c for c in root.iter(f"{svg}circle") if c.find(f"{svg}title") is not None]
    at = np.array([(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in buses])
    radius = float(buses[0].attrib["r"])
    assert len(buses) == len(case.buses)
    assert np.all((at > radius) & (at < np.array([width, height]) - radius))
    gap = np.linalg.norm(at[:, None] - at[None], axis=2) + np.diag(np.full(len(at), np.inf))
    assert gap.min() > radius  # a bus may touch its neighbour's rim, never its centre
    dashed = root.findall(f"{svg}g[@stroke-dasharray]/{svg}line")
    assert len(dashed) == len(network.ties()) > 0


def test_marks_go_where_no_line_leaves() -> None:
    half = math.pi / 2
    assert gridmap._free_angles([0.0, half, -half], 1) == [pytest.approx(math.pi)]
    assert gridmap._free_angles([], 1) == [half]


def test_the_report_costs_nothing_until_it_is_drawn() -> None:
    code = "import sys, hushgrid.broker.report; sys.exit('matplotlib' in sys.modules or 'cvxpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
