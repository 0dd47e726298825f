"""The report and the summary of a data problem: what they say of a walk, and what they never show. Real runs, small."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest

from hushgrid.broker.report import build as report
from hushgrid.broker.report import summary
from hushgrid.broker.report.drawings import gridmap
from hushgrid.broker.report.network import walk_words
from hushgrid.broker.report.wording import Records, clipping
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.progress import Progress
from hushgrid.node.config.scenario import scenario_from
from tests.support.runs.report_pages import Page
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, iadmm, scenario

SOFTMAX = {"problem.kind": "softmax", "problem.classes": 3}
RAW = ("Gap to the optimum", "Objective above", "Relative error", "as drawn")


def shown(tmp_path, raw):
    """The report's text, its HTML, and what is said on stdout, of a run."""
    result = run(raw, out=tmp_path / "run")
    html = (tmp_path / "run" / "report.html").read_text()
    return Page(html).text, html, summary.text(result, scenario_from(raw))


def test_a_private_run_shows_its_walk_and_nothing_computed_from_rows(tmp_path):
    text, html, said = shown(tmp_path, scenario({"algorithm.walk": "hamiltonian"}))
    assert "4 nodes worked on one common solution in 20 activations of RECAL, handing on a token" in text
    assert "20 of 20 (5 blocks of 4)" in text
    assert "Hamiltonian cycle of 4 nodes" in text
    assert "Privacy claim upheld" in text
    assert "one record of one node is replaced by any other" in text
    assert "withheld: it would be computed from raw data" in text
    assert not [word for word in (*RAW, "p.u.", "Round by round", "zone") if word in text]
    assert ">activations</text>" in html
    assert ">round</text>" not in html
    assert re.search(r"activations +20 of 20 \(5 blocks of 4\), stopped because: rounds\n", said)
    assert re.search(r"tokens handed over +19 \(", said)  # the last activation hands nothing over
    assert "withheld" in said
    assert "p.u." not in said


def test_raw_data_figures_written_into_a_private_run_leave_no_trace(tmp_path):
    _, html, _ = shown(tmp_path, scenario())
    path = tmp_path / "run" / "result.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"objective": 0.431, "optimality_gap": 0.1, "relative_error": 2})
    )
    assert report.build(tmp_path / "run").read_text() == html


def test_an_open_run_is_compared_with_the_optimum(tmp_path):
    text, _, said = shown(tmp_path, scenario(NOT_PRIVATE))
    assert "Not private: this is the plain optimiser" in text
    assert "Objective above the optimum" in text
    assert "Relative error of x" in text
    assert "random, to any neighbour alike" in text
    assert "ε claimed" not in text  # nothing is claimed: no table of dashes
    assert re.search(r"objective +\S+ \(\S+ above the optimum\)\n", said)
    assert "relative error" in said


def test_of_a_nonconvex_problem_no_optimum_is_named(tmp_path):
    text, _, said = shown(tmp_path, scenario({**NOT_PRIVATE, "problem.nonconvex": {"lambda": 0.5, "omega": 1.0}}))
    assert "\nObjective\n" in text
    assert "optimum" not in text + said


@pytest.mark.parametrize(
    ("raw", "finding", "claim"),
    [
        (
            scenario({"algorithm.variant": "published", **GAUSSIAN}),
            "recal 1.1",
            "ε = 50, δ = 1 × 10⁻⁵ (claimed, not upheld)",
        ),
        (
            iadmm({"algorithm.variant": "published", "algorithm.gamma": [0.5, 2.0], "privacy": None}),
            "iadmm 3.1",
            "The published method claims no ε",
        ),
    ],
)
def test_a_published_walk_says_what_is_wrong_with_it(tmp_path, raw, finding, claim):
    text, _, said = shown(tmp_path, raw)
    assert f"Privacy claim not upheld: {finding}" in text
    assert claim in text
    assert "are protected" not in text
    assert "not upheld" in said


def test_nodes_at_their_cap_are_named(tmp_path):
    text, _, said = shown(tmp_path, scenario({"privacy.answers": 2}))
    capped = json.loads((tmp_path / "run" / "result.json").read_text())["privacy"]["capped"]
    assert capped
    assert f"Cap reached, then frozen\n{', '.join(capped)}\n" in text
    assert f"In it by a last linear model\n{', '.join(capped)}\n" in text
    assert re.search(rf"cap reached +{', '.join(capped)}\n", said)
    assert re.search(rf"frozen +{', '.join(capped)}: in the problem solved by a last linear model\n", said)


@pytest.mark.runs
def test_nodes_that_were_lost_are_named(tmp_path):
    run(scenario(), out=tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lost": ["n2"]}))
    assert "Lost for good\nn2\n" in Page(report.build(tmp_path / "run").read_text()).text


def test_a_short_solution_stands_entry_by_entry_and_softmax_names_class_and_feature(tmp_path):
    text, html, _ = shown(tmp_path, scenario(SOFTMAX))
    assert "Every entry of x" in text
    assert len(re.findall(r"class \d, feature \d", text)) == 9
    with np.load(tmp_path / "run" / "solution.npz") as saved:
        copies = [saved[f"x_n{i}"][0] for i in range(4)]
    row = re.search(r"<td>class 0, feature 0</td><td>.*?</td><td>(.*?)</td><td>(.*?)</td>", html)
    found = [float(cell.replace("−", "-")) for cell in row.groups()]
    assert found == pytest.approx([min(copies), max(copies)], rel=5e-4)  # four digits are shown


def test_of_a_long_solution_the_largest_entries_stand(tmp_path):
    text, html, _ = shown(tmp_path, scenario({"problem.data.synthetic.features": 50, "algorithm.rounds": 8}))
    assert "The 12 largest of 50 entries" in text
    with np.load(tmp_path / "run" / "solution.npz") as saved:
        order = np.argsort(-np.abs(saved["x"]))
    rows = re.findall(r"<tr><td>(\d+)</td>", html)
    assert rows[:12] == [str(k) for k in order[:12]]


@pytest.mark.parametrize(
    ("walk", "words"),
    [
        ({"kind": "random", "cycle": None}, "random, to any neighbour alike"),
        ({"kind": "metropolis", "cycle": None}, "random, to a neighbour of many neighbours less often (Metropolis)"),
        ({"kind": "given", "cycle": None}, "as given in the scenario"),
        ({"kind": "hamiltonian", "cycle": [0, 1, 2]}, "Hamiltonian cycle of 3 nodes"),
        ({"kind": "closed-walk", "cycle": [0, 1, 2, 1]}, "closed walk of 4 steps (no Hamiltonian cycle was found)"),
        (None, ""),
    ],
)
def test_a_walk_has_words(walk, words):
    assert walk_words(walk) == words


def test_the_drawing_has_the_network_and_darkens_the_cycle_where_it_leaves_edges_out(tmp_path):
    raw = scenario(
        {"network": {"kind": "complete", "nodes": 4}, "algorithm.walk": "hamiltonian", "algorithm.rounds": 4}
    )
    text, html, _ = shown(tmp_path, raw)
    assert "4 nodes, 6 edges" in text
    drawing = re.search(r'<svg class="map".*?</svg>', html).group()
    assert drawing.count("<line") == 6 + 4
    assert "The edges of the walk are dark" in text


@pytest.mark.runs
def test_a_network_of_very_many_edges_is_counted_and_not_drawn(tmp_path, monkeypatch):
    run(scenario(), out=tmp_path / "run")
    monkeypatch.setattr(gridmap, "MAX_EDGES", 3)
    shown = Page(report.build(tmp_path / "run").read_text())
    assert "The network is not drawn: it has 4 nodes and 4 edges." in shown.text


@pytest.mark.parametrize(
    ("kind", "clip", "mechanism", "said"),
    [
        ("softmax", 1.0, "gaussian", "the gradients of no function"),
        ("softmax", 1.5, "gaussian", "clipping changes nothing"),  # sqrt 2 row_bound is the longest
        ("logistic", 1.0, "gaussian", "clipping changes nothing"),
        ("logistic", 0.9, "gaussian", "Huberised"),
        ("logistic", 1.0, "laplace", "Huberised"),  # the L1 norm is not bounded by row_bound
        ("least-squares", 100.0, "gaussian", "Huberised"),  # no bound holds a residual
    ],
)
def test_what_clipping_does_is_said_by_loss(kind, clip, mechanism, said):
    assert said in clipping({"kind": kind, "row_bound": 1.0}, clip, mechanism)


@pytest.mark.parametrize(("mechanism", "norm"), [("laplace", "sum of absolute values"), ("gaussian", "Euclidean norm")])
def test_a_bounded_change_of_a_gradient_is_said_with_its_norm(mechanism, norm):
    words = Records.change(0.5, mechanism)
    assert words == f"one node's data change so that its gradient moves by at most 0.5 ({norm}) at every point"


def test_progress_counts_activations(monkeypatch):
    seen = []
    monkeypatch.setattr(Progress, "round", lambda self, t, total, residual: seen.append((t, total, residual)))
    run(scenario(), progress=Progress(quiet=True))
    assert seen[-1] == (20, 20, None)
    assert len(set(seen)) > 2  # while it walks, not at the end alone
    assert seen == sorted(seen)


def test_the_names_of_columns_and_what_was_changed_in_the_labels_reach_the_reader(tmp_path):
    rows = "".join(f"{k % 5},{k % 2},{k % 7}\n" for k in range(1, 41))
    (tmp_path / "people.csv").write_text("age,y,<income>\n" + rows)
    over = {"problem.data": {"csv": str(tmp_path / "people.csv"), "label": "y", "normalize": "unit-rows"}}
    said = io.StringIO()
    result = run(scenario(over), out=tmp_path / "run", progress=Progress(stream=said))
    note = "labels 0 and 1 are taken for -1 and 1"
    assert result.notes == [note]
    assert said.getvalue().splitlines()[0].endswith(f"on a network of kind ring, {note}")
    assert result.solution["keys_x"].tolist() == ["age", "<income>"]
    html = (tmp_path / "run" / "report.html").read_text()
    assert "<td>age</td>" in html
    assert "<td>&lt;income&gt;</td>" in html
    assert note in Page(html).text


def test_the_names_of_columns_stand_beside_the_classes_of_softmax(tmp_path):
    rows = "".join(f"{k % 5},{k % 7},{k % 3}\n" for k in range(1, 41))
    (tmp_path / "kinds.csv").write_text("u,v,kind\n" + rows)
    over = {"problem.data": {"csv": str(tmp_path / "kinds.csv"), "normalize": "unit-rows"}}
    text, _, _ = shown(tmp_path, scenario(SOFTMAX | over))
    assert "class 2, v" in text
    assert "taken for" not in text
