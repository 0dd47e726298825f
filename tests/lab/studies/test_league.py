"""The league on small settings: tuned apart from what it shows, to an interior best, and ranked by what a device
holds.
"""

import platform
from math import inf, isfinite

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import InputError
from hushgrid.lab.rollout.machines import AllowAll
from hushgrid.lab.rollout.side_by_side import device_models
from hushgrid.lab.studies import league
from hushgrid.lab.studies.common.tuning import Axis, Known, KnownPoints, Search
from hushgrid.lab.studies.races import MADE_UP, METHODS, SCALE, SETTINGS, Setting
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.records.kind import KIND as RECORDS

pytest.importorskip("pandas")
pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

platform.processor()  # dask asks for it, and Python starts a process the first time: here, not in a test
PROBLEM = MADE_UP | {"data": {"synthetic": {"rows": 100, "features": 3, "seed": 7}, "normalize": "unit-rows"}}
SOME = ("DGD", "ADMM, pure", "each alone")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(league, "SETTINGS", dict(SETTINGS))
    league.judge.cache_clear()
    setting = Setting("small", PROBLEM, {"kind": "ring", "nodes": 4}, methods=SOME, epsilons=(50.0,))
    league.SETTINGS["small"] = setting
    yield setting
    league.judge.cache_clear()


def point(method, setting, epsilon=50.0, answers=2):
    m = METHODS[method]
    return m.point({a.key: a.start for a in m.axes} | {"answers": answers}, epsilon, setting.graph)


# --- the walk to an interior best ---


FREE = (Axis("a", 1.0),)


def walked(error, axes=FREE, levels=(1, 2, 3), starts=()):
    known = {}
    search = Search(axes, range(3), levels, starts)

    def found(place, seed):
        return known.get((place, seed))

    while True:
        place, asked = search.advance(found)
        if not asked:
            return search, place, known
        known.update({(p, s): error(search.values(p), s) for p, each in asked.items() for s in each})


def test_a_shorter_step_and_more_answers_are_tried_at_once():
    """Either alone is worse: the walk along axes would end where it begins."""
    axes = (Axis("step", 1.0), Axis("answers", 8.0, low=1))
    valley = lambda v, s: abs(np.log2(v["step"] * v["answers"] / 8)) * 4 + abs(np.log2(v["answers"]) - 6)  # noqa: E731
    _, place, _ = walked(valley, axes=axes)
    assert place == (-3, 3)


def test_a_best_value_beyond_the_grid_extends_it_until_both_neighbours_are_worse():
    search, place, known = walked(lambda v, s: abs(np.log2(v["a"]) - 7.2) + 0.01 * s)
    assert search.values(place) == {"a": 128.0}
    assert {p for p, _ in known} >= {(6,), (7,), (8,)}


def test_a_natural_limit_ends_the_grid():
    search, place, known = walked(lambda v, s: v["a"], axes=(Axis("a", 8.0, low=1.0),))
    assert search.values(place) == {"a": 1.0}
    assert min(p[0] for p, _ in known) == -3


def test_what_is_refused_is_never_chosen():
    search, place, _ = walked(lambda v, s: inf if v["a"] > 4 else -v["a"] + 10)
    assert search.values(place) == {"a": 4.0}


def test_all_seeds_decide_between_a_best_point_and_its_rival():
    """The first seed alone likes 2 better, all of them 1."""
    search, place, known = walked(lambda v, s: 1 + 0.03 * abs(np.log2(v["a"]) - (s == 0)), levels=(1, 3))
    assert search.values(place) == {"a": 1.0}
    assert {s for p, s in known if p == place} == {0, 1, 2}


def test_of_several_walks_the_one_that_ends_best_counts():
    def error(v, s):  # two valleys
        x = np.log2(v["a"])
        return 2 + min(abs(x), abs(x - 6) - 1)

    assert walked(error)[1] == (0,)
    assert walked(error, starts=[(0,), (5,)])[1] == (6,)


# --- runs ---


def test_tuning_seeds_are_none_of_those_shown():
    assert not {*league.TUNED_ON} & {*league.SHOWN}
    assert len({*league.TUNED_ON}) >= 20
    assert len({*league.SHOWN}) >= 20
    assert league.LEVELS[-1] == len(league.TUNED_ON)


def test_every_algorithm_that_solves_data_problems_on_a_graph_races_under_titles_of_its_own():
    on_a_graph = {name for name in RECORDS.algorithms if ALGORITHMS[name].pattern != "star"}
    assert {m.algorithm["name"] for m in METHODS.values() if m.layout == "graph"} == on_a_graph


@pytest.mark.runs
@pytest.mark.parametrize("method", METHODS)
def test_a_node_answers_as_often_as_its_line_says(small, method):
    m = METHODS[method]
    result = run(small.scenario(m.layout) | point(method, small), seed=1)
    answers = [account.answers for account in result.privacy.per_node.values()]
    if m.title.startswith("W-ADMM"):
        assert sum(answers) <= 2 * 4
    else:
        assert set(answers) == {2}


def test_the_gap_of_the_mean_model_is_that_of_the_run_and_a_node_s_own_is_of_what_it_holds(small):
    result = run(small.scenario("graph") | point("DGD, no finishing", small, answers=4), seed=1)
    of = {name: league.figure(name, "small", result) for name in league.FIGURES}
    assert of["mean_gap"] == pytest.approx(result.optimality_gap / (SCALE * 4), rel=1e-9)
    assert of["mean_error"] == pytest.approx(result.relative_error, rel=1e-9)
    assert of["worst_gap"] > of["own_gap"] > of["mean_gap"]
    judge = league.judge("small")
    own = [judge.value(result.solution[f"x_n{i}"][None])[0] - judge.least for i in range(4)]
    assert of["own_gap"] == pytest.approx(np.mean(own), rel=1e-12)


def test_without_privacy_the_optimum_has_no_gap_and_who_is_alone_has_one(small):
    plain = league.judge("small").without_privacy()
    assert plain["the optimum of all rows"]["own_gap"] == 0
    assert plain["the zero vector"]["own_gap"] > plain["each alone"]["own_gap"] > plain["each alone"]["mean_gap"] > 0


@pytest.mark.runs
def test_the_league_is_ranked_by_a_node_s_own_gap_and_a_second_call_runs_nothing_again(small, tmp_path):
    arguments = {"tuned_on": (1000, 1001), "seeds": (1, 2), "levels": (1, 2)}
    lines = league.lines(small, tmp_path, **arguments)
    first, pure, plain = league.tables(small, lines)
    assert [row[0] for row in pure.rows] == ["ADMM, pure"]
    assert plain.rows[0][0] == "the optimum of all rows"
    gaps = {line.cell.method.title: line.figures["own_gap"].value for line in lines}
    assert all(isfinite(gap) for gap in gaps.values())
    assert [row[0] for row in first.rows] == sorted((t for t in SOME if t != "ADMM, pure"), key=gaps.get)

    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("runs.csv")}
    again = league.lines(small, tmp_path, **arguments)
    assert [line.figures for line in again] == [line.figures for line in lines]
    assert made == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("runs.csv")}


@pytest.mark.runs
def test_runs_of_a_sweep_that_was_killed_are_known(small, tmp_path):
    asked = [(point("DGD", small), [1000, 1001])]
    Known(tmp_path).run(small.scenario("graph"), asked, {})
    (runs,) = tmp_path.glob("*/runs.csv")
    text = runs.read_text()
    runs.write_text(text[: len(text) - 20])  # a kill within the last row
    known = Known(tmp_path)
    assert known.error(asked[0][0], 1000, "optimality_gap") > 0
    assert known.error(asked[0][0], 1001, "optimality_gap") is None
    known.run(small.scenario("graph"), asked, {})
    assert known.error(asked[0][0], 1001, "optimality_gap") > 0


@pytest.mark.parametrize("deal", ["unequal", "by feature"])
def test_rows_are_dealt_unequally_or_by_a_feature_and_none_is_lost(monkeypatch, tmp_path, deal):
    monkeypatch.chdir(tmp_path)
    A = np.array([[k % 3 == 0, k % 7, 1.0] for k in range(36)])
    (tmp_path / "rows.csv").write_text("".join(f"{a[0]:g},{a[1]:g},{a[2]:g},{k % 2}\n" for k, a in enumerate(A)))
    problem = MADE_UP | {"data": {"csv": str(tmp_path / "rows.csv"), "normalize": "unit-rows"}}
    setting = Setting("dealt", problem, {"kind": "ring", "nodes": 3}, deal=deal)
    nodes = [int(line) for line in setting.dealt().read_text().split()]
    counts = [nodes.count(i) for i in range(3)]
    assert counts == ([6, 12, 18] if deal == "unequal" else [12, 12, 12])
    if deal == "by feature":
        unit = A / np.linalg.norm(A, axis=1, keepdims=True)
        column = unit[:, unit.var(axis=0).argmax()]
        assert all(column[np.array(nodes) == i].max() <= column[np.array(nodes) == i + 1].min() for i in range(2))
    assert len(league.RowSetup(league.scenario_from(setting.scenario("graph") | point("DGD", setting))).shards) == 3


def test_a_value_that_no_scenario_may_have_is_an_error_and_not_a_refused_run(small, tmp_path):
    wrong = METHODS["each alone"].point({"step_size": 1.0, "answers": 64, "clip": 1.0}, 1.0, small.graph)
    known = Known(tmp_path)
    with pytest.raises(InputError, match="local_updates: found 64"):
        known.run(small.scenario("star"), [(wrong, [1])], {})
    assert not known.rows
    (answers,) = (a for a in METHODS["each alone"].axes if a.key == "answers")
    assert not answers.has(1)  # 64


@pytest.mark.parametrize(
    "title",
    [
        "DGD",
        "NIDS",
        "ADMM, pure",
        "ADMM, Gaussian",
        "star: FedAvg",
        "each alone",
        "DGD, no finishing",
        "a curator with all rows",
        "RECAL, cycle",
        "I-ADMM, first-order",
        "I-ADMM, exact, pure",
        "I-ADMM, exact, Gaussian",
    ],
)
def test_runs_of_many_seeds_at_once_are_those_that_a_sweep_makes_up_to_their_noise(small, tmp_path, title):
    """At an epsilon so large little is left of the noise: each part of the vectors is the run of one seed."""
    m = METHODS[title]
    values = {a.key: a.start for a in m.axes} | {"answers": 3} | ({"clip": 0.5} if m.clips else {})
    point = m.point(values, 1e4 if m.pure else 1e6, small.graph, averaged=False)
    scenario = small.scenario(m.layout) | point
    own = device_models(scenario, (1, 2, 3))
    result = run(scenario, seed=1)
    s = result.solution
    held = np.array([v for key, v in s.items() if key.startswith("x_")])
    if "w" in s and result.rounds_done > 1 and len(held) > 1:
        held = np.repeat(s["w"][None], len(held), axis=0)
    if m.finishes:
        held = np.repeat(
            held.mean(axis=0)[None], len(held), axis=0
        )  # after one round of averaging, which keeps the mean
        own = np.repeat(own.mean(axis=1, keepdims=True), held.shape[0], axis=1)
    assert own.shape == (3, *held.shape)
    close = 1e-2 if m.pure else 1e-3  # what is left of the noise; single precision is finer
    for each in own:
        assert each == pytest.approx(held, abs=close * np.abs(held).max())


def test_many_seeds_at_once_have_noise_of_their_own_and_of_the_gate_s_size(small):
    m = METHODS["DGD"]
    point = m.point({"step_size": 1.0, "answers": 1, "clip": 0.5}, 1.0, small.graph, averaged=False)
    own = device_models(small.scenario("graph") | point, range(200))
    setup = league.RowSetup(league.scenario_from(small.scenario("graph") | point))
    gate = setup.device("n0").gate(setup.plan, SeededNoise(1, "n0"), AllowAll())
    # one step of length 1 from zero: what varies over seeds is the noise, 200 x 3 draws, so within 4/sqrt(1200) of it
    assert np.std(own[:, 0], axis=0) == pytest.approx(np.full(3, gate.lattice.scale), rel=4 / 20)
    assert np.sqrt(np.mean(np.var(own[:, 0], axis=0))) == pytest.approx(gate.lattice.scale, rel=4 / np.sqrt(1200))
    assert abs(np.corrcoef(own[:, 0, 0], own[:, 1, 0])[0, 1]) < 4 / np.sqrt(200)


def test_what_points_are_worth_at_once_is_kept_on_the_disk(small, tmp_path):
    m = METHODS["DGD"]
    good = m.point({"step_size": 1.0, "answers": 1, "clip": 0.5}, 1.0, small.graph, averaged=False)
    far = m.point({"step_size": 1e4, "answers": 1, "clip": 0.5}, 1.0, small.graph, averaged=False)  # refused: unstable
    store = KnownPoints(tmp_path / "found.jsonl", (5, 6))
    store.run(small.scenario("graph"), [good, far], lambda own: np.abs(own).sum(axis=(1, 2)).tolist())
    with (tmp_path / "found.jsonl").open("a") as file:
        file.write('["cut')  # by a kill
    again = KnownPoints(tmp_path / "found.jsonl", (5, 6))
    assert again.error(good, 6) == store.error(good, 6) > 0
    assert again.error(far, 5) == inf
    assert again.error(m.point({"step_size": 2.0, "answers": 1, "clip": 0.5}, 1.0, small.graph), 5) is None


@pytest.mark.runs
def test_rounds_of_averaging_that_a_run_is_spared_are_made_by_the_matrix(small):
    m = METHODS["DGD"]
    values = {"step_size": 1.0, "answers": 3, "clip": 0.5}
    of = [
        {
            name: league.figure(
                name, "small", run(small.scenario("graph") | m.point(values, 50.0, small.graph, whole), seed=1)
            )
            for name in league.FIGURES
        }
        for whole in (True, False)
    ]
    assert of[0] == pytest.approx(of[1], rel=1e-9, nan_ok=True)
