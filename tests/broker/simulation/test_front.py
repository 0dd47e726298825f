"""`hushgrid.run` from a shipped name, a case, a data frame or arrays; every table of its result as a frame."""

import numpy as np
import pytest
from pandas import DataFrame

import hushgrid
from hushgrid.broker.simulation.frames import scenario_around, table_of_frame
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.algorithms import registry
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support.scenarios import record_scenarios
from tests.support.scenarios.toy_plugin import TOY

RNG = np.random.default_rng(7)
AGE, LOAD = RNG.uniform(0, 20, 60), RNG.uniform(0, 5, 60)
FRAME = DataFrame({"age": AGE, "load": LOAD, "failed": 0.3 * AGE + LOAD > 5.5})
RANGES = {"age": (0, 20), "load": (0, 5)}
FEW = {"algorithm.rounds": 3}
PRIVATE = {"privacy.epsilon": 8.0} | FEW


def test_a_shipped_scenario_runs_by_its_name_and_its_tables_are_frames():
    result = hushgrid.run("case14", set={"algorithm.rounds": 2, "problem.ac": "none"})
    assert result.frame("generation").columns[:4].tolist() == ["gen", "bus", "zone", "p_mw"]
    assert result.frame("buses")["price_per_mwh"].dtype == float
    assert result.frame("setpoints")["node"].iloc[0] == "z1"
    assert result.frame("history").equals(result.frame())
    with pytest.raises(InputError, match="found 'gen', expected one of history, setpoints, generation, balance, lines"):
        result.frame("gen")


def test_the_tables_of_a_run_directory_are_those_of_the_run(tmp_path):
    case, over = hushgrid.load("case5"), {"algorithm.rounds": 2, "problem.ac": "none", "name": "five"}
    result = hushgrid.run(case=case, zones=2, set=over, out=tmp_path / "run")
    again = hushgrid.Result.load(tmp_path / "run")
    assert (tmp_path / "run" / "case.npz").is_file()
    assert repr(again.case) == repr(case)
    for table in ("history", *result.tables):
        assert again.frame(table).equals(result.frame(table))
    rerun = hushgrid.run(tmp_path / "run" / "scenario.yaml")
    np.testing.assert_array_equal(rerun.solution["w"], result.solution["w"])


def test_a_case_takes_the_place_of_a_scenarios_own():
    over = {"algorithm.rounds": 2, "problem.ac": "none"}
    named, given = (hushgrid.run("case14", seed=1, set=over, case=c) for c in ("case14", hushgrid.load("case14")))
    np.testing.assert_array_equal(named.solution["w"], given.solution["w"])


def test_a_frame_without_privacy_is_scaled_by_what_its_columns_have():
    wear = FRAME.assign(wear=2 * AGE + LOAD)
    result = hushgrid.run(frame=wear, label="wear", nodes=4, set={"algorithm.rounds": 200})
    assert (result.nodes, result.privacy.upheld, result.relative_error < 0.01) == (4, "not private", True)
    assert result.solution["keys_x"].tolist() == ["age", "load", "failed", "constant"]


def test_arrays_are_the_same_run_as_their_frame():
    framed = hushgrid.run(frame=FRAME, label="failed", nodes=3, set=FEW)
    arrays = hushgrid.run(rows=np.column_stack([AGE, LOAD]), labels=FRAME["failed"].to_numpy(), nodes=3, set=FEW)
    np.testing.assert_array_equal(framed.solution["x"], arrays.solution["x"])


def test_a_column_can_say_whose_each_row_is():
    owned = FRAME.assign(site=["a", "b", "c"] * 20)
    result = hushgrid.run(frame=owned, label="failed", nodes="site", set=FEW)
    assert (result.nodes, "nodes in order: a, b, c" in result.notes) == (3, True)


def test_a_private_run_takes_its_ranges_from_the_caller_and_promises_something():
    result = hushgrid.run(frame=FRAME, label="failed", nodes=4, ranges=RANGES, set=PRIVATE)
    assert result.privacy.upheld is True
    number = FRAME.assign(failed=AGE)
    ranged = hushgrid.run(frame=number, label="failed", nodes=4, ranges=RANGES | {"failed": (0, 20)}, set=PRIVATE)
    assert ranged.privacy.upheld is True


def test_a_private_runs_public_plan_does_not_follow_the_data():
    """Two frames whose extremes differ are scaled alike: their rows differ in the one cell only."""
    other = FRAME.copy()
    other.loc[0, "age"] = 19.99
    made = [scenario_around(table_of_frame(frame, "failed", 4), 4, RANGES, PRIVATE) for frame in (FRAME, other)]
    assert made[0][0] == made[1][0]
    np.testing.assert_array_equal(made[0][1].A[1:], made[1][1].A[1:])
    assert np.max(np.linalg.norm(made[0][1].A, axis=1)) <= 1.0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "found no scenario, expected one"),
        ({"frame": FRAME, "label": "fail", "nodes": 2}, "label: found 'fail', expected a column of the frame: age"),
        ({"frame": FRAME, "label": "failed"}, "nodes: missing"),
        ({"frame": FRAME, "label": "failed", "nodes": 99}, "nodes: found 99 for 60 rows"),
        ({"frame": FRAME.assign(who="x"), "label": "failed", "nodes": 2}, "column who: found"),
        ({"frame": FRAME.assign(age=np.nan), "label": "failed", "nodes": 2}, "column age: found an empty cell"),
        ({"frame": FRAME, "label": "failed", "nodes": 2, "set": PRIVATE}, "ranges: found none in a private run"),
        (
            {"frame": FRAME, "label": "failed", "nodes": 2, "ranges": {"age": (0, 20)}, "set": PRIVATE},
            "none of column load",
        ),
        ({"rows": AGE, "labels": LOAD, "nodes": 2}, r"rows: found shapes \(60,\)"),
        ({"frame": FRAME, "rows": AGE}, "found frame and rows, expected one of them"),
        ({"case": "case5"}, "zones: missing"),
        ({"scenario": "no-such"}, "no-such: no such file or scenario"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_one_line(how, words):
    with pytest.raises(InputError, match=words) as error:
        hushgrid.run(**how)
    assert "\n" not in str(error.value)


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A folder where modules are found; what they register is forgotten afterwards."""
    known, plugged = dict(registry.ALGORITHMS), list(registry.PLUGGED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "OFFERED", {})
    yield tmp_path
    registry.ALGORITHMS.clear()
    registry.ALGORITHMS.update(known)
    registry.PLUGGED[:] = plugged


def test_a_plugin_registers_after_a_first_run_and_its_plan_is_read_back(plugins):
    (plugins / "late_toy.py").write_text(TOY)
    scenario = record_scenarios.scenario({"algorithm": {"name": "toy", "rounds": 2, "step_size": 0.5}})
    with pytest.raises(InputError, match="found 'toy', expected one of"):
        hushgrid.run(scenario)
    assert hushgrid.run(scenario, plugins=["late_toy"]).algorithm == "toy"
    plan = prepare(scenario_from(scenario)).plan
    assert decode_plan(encode_plan(plan)).algorithm == plan.algorithm


def test_an_offered_algorithm_is_imported_only_if_it_is_named(plugins):
    registry.OFFERED.update(toy="offered_toy", broken="no_such_module")
    (plugins / "offered_toy.py").write_text(TOY)
    assert not registry.is_known("nothing")
    assert "offered_toy" not in registry.PLUGGED
    assert registry.is_known("toy")
    assert "offered_toy" in registry.PLUGGED
    with pytest.raises(InputError, match=r"entry point broken of hushgrid\.algorithms: .*No module named"):
        registry.is_known("broken")
