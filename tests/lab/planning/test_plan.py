"""`hushgrid plan`: what it goes by, what it finds on small problems, and that no data file is opened."""

import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError
from hushgrid.lab.planning import search, synthetic, trial
from hushgrid.lab.planning.choices import Choice, laid, rounds_by
from hushgrid.lab.planning.search import planned
from hushgrid.lab.planning.shape import checked
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.schema.yaml_file import lay, read_yaml
from hushgrid.scenarios import MADE, find, names
from tests.support.scenarios.record_scenarios import scenario

GAUSSIAN = {"mechanism": "gaussian", "accountant": "gdp", "delta": 1e-5, "epsilon": 1.0}
OPENED: list[str] = []  #: what this process opens, while `watching`
watching = False


def _heard(event, arguments):
    if watching and event in ("open", "os.open") and isinstance(arguments[0], str | bytes):
        OPENED.append(str(arguments[0]))


sys.addaudithook(_heard)  # sees every file that Python opens, however it is opened; it cannot be taken away again


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few rows and short runs: what is shown here does not need more."""
    monkeypatch.setattr(trial, "MADE", 1 << 12)
    monkeypatch.setattr(trial, "TESTED", 500)
    monkeypatch.setattr(search, "LONGEST", 64)
    monkeypatch.setattr(search, "SHOWN", 2)
    trial.world.cache_clear()


def neighbours(over=None, **algorithm):
    """DGD of four sensors on a ring, 300 rows each; its step is far too small."""
    raw = scenario(
        {
            "problem.data": {"devices": {"features": 3, "rows": 300}},
            "algorithm": {"name": "dgd", "rounds": 8, "step_size": 0.05} | algorithm,
            "privacy": GAUSSIAN | {"adjacency": {"replace-one-record": {"clip": 1.0}}},
        }
    )
    for key, value in (over or {}).items():
        lay(raw, key, value)
    return raw


def plan(raw, **how):
    return planned(raw, seeds=4, workers=1, **how)


@pytest.mark.runs
def test_a_step_that_the_scenario_does_not_say_begins_where_it_is_allowed():
    """1/L is 1/.26 in the ring that ships with the units; RECAL wants less than 2/(L + 1) = 1.59."""
    found = plan(read_yaml(Path(__file__).parents[3] / "deploy" / "ring" / "scenario.yaml"))
    assert 0 < found.chosen.choice.step < 2 / 1.26
    assert np.isfinite(found.chosen.excess).all()


@pytest.mark.runs
def test_the_plan_beats_a_scenario_with_a_bad_step_and_says_the_same_twice():
    found = plan(neighbours())
    (given, none, alone), best = found.beside, found.best[0]
    assert [li.title for li in found.beside] == ["as the scenario is", "without privacy", "each alone"]
    assert np.median(best.excess) < 0.7 * np.median(given.excess)
    assert np.median(none.excess) == 0 < np.median(alone.excess)
    assert best.choice.step > 0.05
    assert len(best.excess) == found.seeds == 4
    trial.world.cache_clear()
    again = plan(neighbours())
    assert [li.choice for li in again.best] == [li.choice for li in found.best]
    assert np.array_equal(again.best[0].excess, best.excess)


@pytest.mark.runs
def test_more_epsilon_and_more_rows_are_worth_less_error():
    least = {}
    for rows, epsilon in ((300, 1.0), (300, 10.0), (30_000, 1.0)):
        raw = neighbours({"privacy.epsilon": epsilon, "problem.data.devices.rows": rows})
        least[rows, epsilon] = np.median(plan(raw).best[0].excess)
    assert least[300, 10.0] < 0.5 * least[300, 1.0]
    assert least[30_000, 1.0] < 0.5 * least[300, 1.0]  # as many rows are made up, the noise is that of all


@pytest.mark.runs
def test_no_data_file_is_opened(tmp_path):
    global watching
    names = ("rows.csv", "test.csv", "split.txt")
    for name in names:
        (tmp_path / name).write_text("what is no row\n")
    raw = neighbours()
    raw["problem"] |= {
        "data": {
            "csv": str(tmp_path / "rows.csv"),
            "rows": 1200,
            "features": 3,
            "split": {"given": str(tmp_path / "split.txt")},
        },
        "test": str(tmp_path / "test.csv"),
    }
    OPENED.clear()
    watching = True
    try:
        found = plan(raw)
        (tmp_path / "rows.csv").read_text()  # the hook hears it
    finally:
        watching = False
    assert found.best
    assert [Path(path).name for path in OPENED if Path(path).name in names] == ["rows.csv"]


@pytest.mark.runs
def test_the_files_of_a_plan_need_not_exist():
    raw = neighbours({"problem.data": {"files": ["a.npz", "b.npz", "c.npz", "d.npz"]}})
    with pytest.raises(
        InputError, match=r"problem\.data\.rows: missing, expected how many rows the nodes have \(or --rows N\)"
    ):
        plan(raw)
    with pytest.raises(InputError, match=r"problem\.data\.features: missing, expected the number of features"):
        plan(raw, rows=1200)
    assert plan(raw, rows=1200, features=3).nodes == 4


@pytest.mark.runs
@pytest.mark.parametrize(
    "over",
    [
        pytest.param({"algorithm": {"name": "recal", "rounds": 8, "walk": "hamiltonian"}}, id="token"),
        pytest.param({"algorithm": {"name": "wadmm", "rounds": 8, "rho": 2.0}}, id="random walk"),
        pytest.param({"algorithm": {"name": "admm", "rounds": 2, "eta": 0.5}}, id="private minimisers"),
        pytest.param({"algorithm": {"name": "iadmm", "rounds": 8, "rho": 2.0, "walk": [0, 1] * 4}}, id="given walk"),
        pytest.param({"problem.kind": "least-squares"}, id="least squares"),
        pytest.param({"problem.kind": "softmax", "problem.classes": 3}, id="softmax"),
        pytest.param({"privacy.delta": None, "privacy.mechanism": "laplace", "privacy.accountant": None}, id="pure"),
        pytest.param({"privacy.adjacency": {"bounded-change": 0.01}}, id="bounded change"),
    ],
)
def test_every_kind_of_scenario_can_be_planned(over):
    raw = neighbours(over)
    raw["privacy"] = {key: value for key, value in raw["privacy"].items() if value is not None}
    found = plan(raw)
    assert np.isfinite(found.best[0].excess).all()
    pure = {li.choice.mechanism for li in found.best} == {"laplace"}
    assert pure == ("delta" not in raw["privacy"])  # a promise is not weakened by a plan
    clipped = raw["privacy"]["adjacency"].get("replace-one-record")
    assert all((li.choice.clip is None) == (clipped is None) for li in found.best)


@pytest.mark.runs
def test_a_star_of_records_can_be_planned():
    raw = neighbours(name="ladmm", rounds=8)
    del raw["network"], raw["algorithm"]["step_size"]
    raw["problem"]["data"] = {"devices": {"features": 3, "rows": [300, 200, 100]}}
    found = plan(raw)
    assert (found.nodes, found.best[0].gossip) == (3, 0)
    assert np.median(found.best[0].excess) < np.median(found.beside[0].excess)


@pytest.mark.runs
def test_what_is_played_is_what_a_run_computes():
    """On the same rows without noise to speak of, in every pattern: the machines are those of a run."""
    for over in (
        {},
        {"algorithm": {"name": "recal", "rounds": 8, "walk": "hamiltonian"}},
        {"algorithm": {"name": "admm", "rounds": 2, "eta": 0.5}},
        {"algorithm": {"name": "ladmm", "rounds": 3}},
    ):
        raw = neighbours({"privacy.epsilon": 1e6, **over})
        if raw["algorithm"]["name"] == "ladmm":
            del raw["network"]
            raw["problem"]["data"]["devices"]["rows"] = [300] * 4
        p = trial.plan_of(raw, "scenario").problem
        shape = checked(raw, "scenario", None, None)
        rows = synthetic.shards(trial.population(p, shape, 0), shape.rows)
        ran = deepcopy(raw)
        del ran["problem"]["data"]
        x = run(ran | {"seed": 1}, data=[(s.A, s.b) for s in rows]).solution
        own = [x.get(f"x_n{i}", x.get(f"z_n{i}")) for i in range(4)]
        played = trial.play(trial.TrialTask(raw, shape, 0, "scenario"))
        here = trial.world.__wrapped__(trial.blob_of(p), shape, shape.rows, 0)
        models = np.array(own) if raw["algorithm"]["name"] in ("dgd", "admm") else x["x"][None]
        excess, error, _ = trial.figures(p, here, models)
        assert played.excess[0] == pytest.approx(excess, rel=1e-3, abs=1e-6)
        assert played.error[0] == pytest.approx(error, abs=0.005)


def test_made_up_rows_are_what_is_declared():
    for kind, classes in (("logistic", 1), ("softmax", 4), ("least-squares", 1)):
        for unit in (True, False):
            of = synthetic.source(3, kind, 5, classes, 2.0, unit)
            A, b = of.rows(2000, "n0")
            norms = np.linalg.norm(A, axis=1)
            assert norms.max() <= (1.0 if unit else 2.0)
            assert unit == np.allclose(norms, 1.0)
            assert {*np.unique(b)} <= {"logistic": {-1.0, 1.0}, "softmax": {0.0, 1.0, 2.0, 3.0}}.get(kind, {*b})
            assert np.array_equal(of.rows(100, "n0").A, A[:100])
            assert not np.array_equal(of.rows(2000, "n1").A, A)


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (
            {"algorithm": {"name": "dgd", "variant": "none", "rounds": 3, "step_size": 1.0}, "privacy": None},
            "found none, expected guarded",
        ),
        (
            {"privacy.epsilon": None, "privacy.per_answer": {"epsilon": 0.1, "delta": 1e-6}},
            "privacy.epsilon: found per_answer",
        ),
        ({"problem.data": {"csv": "a.csv", "rows": 3, "features": 2}}, "found 3 for 4 nodes"),
        ({"problem.row_bound": None}, "problem.row_bound: missing"),
        ({"problem.data.devices.features": 3000}, "found 3000 unknowns, expected at most 2000"),
    ],
)
def test_what_cannot_be_planned_is_one_line(over, said):
    raw = neighbours(over)
    for section in (raw, raw["problem"], raw["privacy"] or {}):
        for key in [key for key, value in section.items() if value is None]:
            del section[key]
    with pytest.raises(InputError, match=said) as error:
        plan(raw)
    assert "\n" not in str(error.value)


def test_a_choice_is_laid_into_a_scenario():
    raw = neighbours({"algorithm": {"name": "admm", "rounds": 2, "eta": {"start": 0.5, "growth": 1.1}}})
    choice = Choice(5, 0.25, 0.7, "laplace", "pure-optimal")
    made = laid(raw, choice, rounds_by(scenario_from(deepcopy(raw)), 4), 10)
    assert made["algorithm"] == {
        "name": "admm",
        "rounds": 5,
        "eta": {"start": 0.25, "growth": 1.1},
        "finish": {"gossip": 10},
    }
    assert made["privacy"]["mechanism"] == "laplace"
    assert made["privacy"]["adjacency"]["replace-one-record"]["clip"] == 0.7
    assert raw["algorithm"]["rounds"] == 2  # the one that was given is as it was


def test_momentum_and_noise_by_the_point_are_tried_where_a_scenario_may_have_them_and_says_nothing_of_them():
    def besides(over=None, mechanism="gaussian", **algorithm):
        raw = neighbours(over, **algorithm)
        shape = checked(raw, "scenario", None, None)
        return search.Search(search.without_data(raw, shape), shape, "scenario", 1).besides(mechanism)

    both = [{"momentum": m} for m in search.MOMENTA]
    assert besides() == [*both, {"pointwise": True}]
    assert besides(mechanism="laplace") == both
    assert besides({"privacy.sensitivity": "uniform"}, momentum=0.3) == []
    assert besides({"algorithm": {"name": "admm", "rounds": 2, "eta": 0.5}}) == []


def test_what_is_chosen_besides_stands_in_the_scenario_and_in_the_table():
    raw = neighbours()
    choice = Choice(5, 0.25, 0.7, "gaussian", "gdp", momentum=0.7, pointwise=True)
    made = laid(raw, choice, rounds_by(scenario_from(deepcopy(raw)), 4))
    assert made["algorithm"]["momentum"] == 0.7
    assert made["privacy"]["sensitivity"] == "pointwise"
    assert scenario_from(deepcopy(made)).algorithm.momentum == 0.7
    assert choice.besides == "momentum 0.7, pointwise"
    assert choice._replace(momentum=None, pointwise=False).besides == "-"


def test_every_private_scenario_of_rows_that_comes_with_the_program_says_its_shape():
    for name in set(names()) - set(MADE):
        raw = read_yaml(find(name))
        if name == "ijcnn1":  # whose rows are not shipped, and may be others
            continue
        if raw["algorithm"]["name"] == "sum":
            with pytest.raises(
                InputError, match=r"expected rows of data to learn from .the noise of a sum: hushgrid check"
            ):
                checked(raw, name, None, None)
            continue
        if raw["problem"]["kind"] != "zones" and "privacy" in raw and raw["algorithm"].get("variant") != "published":
            shape = checked(raw, name, None, None)
            assert len(shape.rows) > 1


@pytest.mark.runs
def test_masked_sums_are_planned_with_the_noise_of_a_share():
    """Where noise is all that counts, three honest shares leave a third of the excess that answers by themselves
    leave.
    """
    raw = neighbours({"privacy.epsilon": 0.003, "algorithm": {"name": "fedavg", "rounds": 1, "step_size": 1.0}})
    del raw["network"]
    raw["problem"]["data"]["devices"]["rows"] = [300] * 4
    shape = checked(raw, "scenario", None, None)

    def excess(raw):
        return np.mean([trial.play(trial.TrialTask(raw, shape, seed, "scenario")).excess[0] for seed in range(12)])

    masked = deepcopy(raw)
    masked["privacy"]["masked"] = {"corrupt": 1}
    assert excess(masked) == pytest.approx(excess(raw) / 3, rel=0.3)


def test_of_masked_sums_only_what_they_may_have_is_tried():
    raw = neighbours({"privacy.epsilon": 1.0, "algorithm": {"name": "fedavg", "rounds": 4, "step_size": 1.0}})
    del raw["network"]
    raw["problem"]["data"]["devices"]["rows"] = [300] * 4
    raw["privacy"]["masked"] = {"corrupt": 1}
    shape = checked(raw, "scenario", None, None)
    made = search.Search(search.without_data(raw, shape), shape, "scenario", 1)
    assert made.promises == [("gaussian", "gdp")]
    assert [set(one) for one in made.besides("gaussian")] == [
        {"momentum"}
    ] * 2  # at the coordinator; no noise by the point
    assert ", masked (at most 1 corrupt); fedavg on 4 nodes" in search.description_of(made)
