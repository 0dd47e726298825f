"""A sweep: which runs it makes, what it keeps of them, and how it goes on after a kill."""

import csv
import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from hushgrid.broker.simulation import Result, run
from hushgrid.broker.simulation.problems import records
from hushgrid.kernels.errors import InputError
from hushgrid.lab.sweep.record import Record
from hushgrid.lab.sweep.sweeps import sweep
from tests.support.scenarios.guarded_scenarios import sums as scenario_of_sums
from tests.support.scenarios.record_scenarios import GAUSSIAN
from tests.support.scenarios.swept import SWEPT

pandas = pytest.importorskip("pandas")
pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

OVER = {"algorithm.rounds": [2, 5], "privacy.epsilon": [1.0, 10.0]}


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.runs
def test_a_row_has_the_figures_of_the_run_with_its_seed_at_its_point():
    found = sweep(SWEPT, OVER, seeds=[3, 7])
    assert list(found["point"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(found["seed"]) == [3, 7] * 4
    assert list(found["algorithm.rounds"]) == [2] * 4 + [5] * 4
    assert list(found["status"]) == ["done"] * 8
    for _, row in found.iterrows():
        keys = {key: row[key] for key in OVER}
        alone = run(
            SWEPT, seed=int(row["seed"]), set={k: v.item() if hasattr(v, "item") else v for k, v in keys.items()}
        )
        for name in ("relative_error", "optimality_gap", "objective", "consensus_residual", "messages", "bytes"):
            assert row[name] == getattr(alone, name), name
        assert (row["epsilon"], row["delta"], row["dp"], row["upheld"]) == (
            keys["privacy.epsilon"],
            1e-5,
            "approximate",
            "not private",
        )


@pytest.mark.runs
def test_sums_are_swept_too():
    raw = scenario_of_sums("total", GAUSSIAN)
    found = sweep(raw, {"privacy.epsilon": [1.0, 10.0]}, seeds=[3, 7])
    assert list(found["status"]) == ["done"] * 4
    for _, row in found.iterrows():
        alone = run(raw, seed=int(row["seed"]), set={"privacy.epsilon": float(row["privacy.epsilon"])})
        assert row["relative_error"] == alone.relative_error


@pytest.mark.runs
def test_runs_of_one_seed_share_their_noise_over_the_grid_up_to_its_scale():
    drawn = {"noise": lambda result: float(np.sum(np.array(result.history["noise_l1"], float)))}
    found = sweep(
        SWEPT, {"privacy.epsilon": [1.0, 2.0, 10.0], "algorithm.step_size": [0.1, 0.5]}, seeds=3, measure=drawn
    )
    noise = found.pivot(index="seed", columns=["privacy.epsilon", "algorithm.step_size"], values="noise").to_numpy(
        float
    )
    assert noise[:, ::2] == pytest.approx(noise[:, 1::2], rel=1e-12)  # the step size changes nothing of it
    ratios = noise[:, 2:] / noise[:, :1]
    assert ratios == pytest.approx(
        np.tile(ratios[0], (3, 1)), rel=1e-4
    )  # the same factor for every seed, up to the grid
    assert len({*noise[:, 0]}) == 3  # and seeds differ


@pytest.mark.runs
def test_a_point_that_is_refused_says_why_in_its_rows_and_the_others_are_made(tmp_path):
    found = sweep(SWEPT, {"algorithm.step_size": [0.5, 1e6]}, seeds=2, out=tmp_path / "s")
    assert list(found["status"]) == ["done", "done", "refused", "refused"]
    assert "found a step of" in found["error"].iloc[2]
    assert found["relative_error"].isna().tolist() == [False, False, True, True]
    assert "2 refused" in (tmp_path / "s" / "comparison.html").read_text()


@pytest.mark.runs
def test_what_the_check_of_a_scenario_refuses_is_a_row_too():
    over = {"algorithm.variant": ["guarded", "none"]}  # without noise there is no privacy section
    found = sweep(SWEPT, over, seeds=1)
    assert list(found["status"]) == ["done", "refused"]
    assert "privacy" in found["error"].iloc[1]


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"algorithm.rundes": [1]}, "algorithm.rundes: unknown key"),
        ({"algorithm.rounds": [5, "many"]}, "algorithm.rounds: found 'many', expected int"),
        ({"privacy.delta": [1e-5, 7]}, "privacy.delta: found 7"),
        ({"seed": [1, 2]}, "--over seed: found a key that every run has its own of"),
        ({"algorithm.rounds": [5, 5]}, "--over algorithm.rounds: found 5 twice"),
        ({"algorithm.rounds": []}, "--over algorithm.rounds: found no values"),
        ({"name.x": [1]}, "--over name.x: found 'swept' at name, expected a section"),
        ({"algorithm.variant": ["none"]}, "privacy"),  # no point is left
    ],
)
def test_a_grid_that_cannot_be_is_one_line_before_anything_runs(over, said, tmp_path):
    with pytest.raises(InputError) as raised:
        sweep(SWEPT, over, out=tmp_path / "s")
    assert said in str(raised.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.runs
def test_sections_go_by_their_name_and_by_what_tells_them_apart():
    dgd, extra = {"name": "dgd", "rounds": 3}, {"name": "extra", "rounds": 3, "step_size": 0.1}
    found = sweep(SWEPT, {"algorithm": [dgd | {"step_size": 0.1}, dgd | {"step_size": 0.2}, extra]}, seeds=1)
    assert list(found["algorithm"]) == ["dgd, step_size 0.1", "dgd, step_size 0.2", "extra"]
    assert list(found["status"]) == ["done"] * 3


@pytest.mark.runs
def test_it_leaves_the_same_rows_as_csv_as_parquet_and_as_a_frame(tmp_path):
    found = sweep(SWEPT, OVER, seeds=2, out=tmp_path / "s")
    assert {p.name for p in (tmp_path / "s").iterdir()} == {
        "sweep.json", "runs.csv", "runs.parquet", "medians.csv", "comparison.html",
    }  # fmt: skip
    stored = pandas.read_parquet(tmp_path / "s" / "runs.parquet")
    pandas.testing.assert_frame_equal(stored, found)
    assert stored.attrs["over"] == list(OVER)
    rows = lines(tmp_path / "s" / "runs.csv")
    assert [float(row["relative_error"]) for row in rows] == list(found["relative_error"])
    assert [(row["point"], row["seed"]) for row in rows] == [(str(p), str(s)) for p in range(4) for s in range(2)]


@pytest.mark.runs
def test_a_killed_sweep_goes_on_from_its_whole_rows(tmp_path):
    out = tmp_path / "s"
    whole = sweep(SWEPT, OVER, seeds=2, out=out)
    every = (out / "runs.csv").read_text().splitlines(keepends=True)
    kept = [every[0], every[6].replace("swept", "made before"), every[1]]  # as they had ended, in another order
    (out / "runs.csv").write_text("".join(kept) + every[3][:40])  # and half of a line
    for gone in ("runs.parquet", "comparison.html"):
        (out / gone).unlink()
    again = sweep(SWEPT, OVER, seeds=2, out=out, resume=True)
    assert list(again["name"]) == ["swept"] * 5 + ["made before"] + ["swept"] * 2  # that run was not made again
    timed = ["name", "wall_s"]
    pandas.testing.assert_frame_equal(again.drop(columns=timed), whole.drop(columns=timed))
    assert (out / "comparison.html").exists()


def test_a_row_counts_only_once_it_is_on_the_disk(tmp_path, monkeypatch):
    synced = []
    record = Record(tmp_path / "s", {"seeds": [0]}, ["point", "seed", "status"], resume=False)
    monkeypatch.setattr("os.fsync", lambda number: synced.append((tmp_path / "s" / "runs.csv").read_text()))
    record.add({"point": "0", "seed": "0", "status": "done"})
    record.close()
    assert synced[-1].endswith("0,0,done\n")


@pytest.mark.runs
def test_more_seeds_may_be_added_and_another_sweep_is_refused(tmp_path):
    out = tmp_path / "s"
    sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=1, out=out)
    more = sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=3, out=out, resume=True)
    assert list(more["seed"]) == [0, 1, 2]
    with pytest.raises(InputError, match="found another over than in"):
        sweep(SWEPT, {"algorithm.rounds": [3]}, seeds=3, out=out, resume=True)
    with pytest.raises(InputError, match="found another scenario than in"):
        sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=3, out=out, resume=True, set={"problem.l2": 0.2})
    with pytest.raises(InputError, match="found rows of seed 2"):
        sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=2, out=out, resume=True)
    with pytest.raises(InputError, match="found an existing path"):
        sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=3, out=out)
    with pytest.raises(InputError, match="found no sweep in"):
        sweep(SWEPT, {"algorithm.rounds": [2]}, out=tmp_path / "none", resume=True)


@pytest.mark.runs
def test_two_sweeps_do_not_write_to_one_directory(tmp_path):
    sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=1, out=tmp_path / "s")
    about = json.loads((tmp_path / "s" / "sweep.json").read_text())
    first = Record(tmp_path / "s", about, about["columns"], resume=True)
    with pytest.raises(InputError, match="found a sweep at work in it"):
        sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=2, out=tmp_path / "s", resume=True)
    first.close()


@pytest.mark.runs
def test_the_rows_of_a_file_are_read_once_and_an_optimum_is_solved_once_for_all_runs(tmp_path, monkeypatch):
    rng, paths = np.random.default_rng(1), []
    for i in range(4):
        A = rng.normal(size=(20, 3))
        np.savez(tmp_path / f"n{i}.npz", A=A / np.linalg.norm(A, axis=1, keepdims=True), b=np.sign(rng.normal(size=20)))
        paths.append(str(tmp_path / f"n{i}.npz"))
    scenario = deepcopy(SWEPT)
    scenario["problem"]["data"] = {"files": paths}
    read, solved, load, optimum = [], [], records.load, records.optimum
    monkeypatch.setattr(records, "load", lambda *of: read.append(of) or load(*of))
    monkeypatch.setattr(records, "optimum", lambda *of: solved.append(of) or optimum(*of))
    found = sweep(scenario, OVER, seeds=2)
    assert list(found["status"]) == ["done"] * 8
    assert (len(read), len(solved)) == (1, 1)  # by the program, and not again by a worker; by the worker
    monkeypatch.undo()
    assert found["relative_error"].iloc[7] == run(scenario, seed=1, set={"privacy.epsilon": 10.0}).relative_error


@pytest.mark.runs
def test_other_rows_than_those_of_the_rows_in_the_table_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", A=np.eye(3), b=np.array([1.0, -1.0, 1.0]))
    scenario = deepcopy(SWEPT)
    scenario["problem"]["data"] = {"files": [str(tmp_path / "a.npz")] * 4}
    sweep(scenario, {"algorithm.rounds": [2]}, seeds=1, out=tmp_path / "s")
    np.savez(tmp_path / "a.npz", A=np.eye(3), b=np.array([1.0, -1.0, -1.0]))
    with pytest.raises(InputError, match="found another rows than in"):
        sweep(scenario, {"algorithm.rounds": [2]}, seeds=2, out=tmp_path / "s", resume=True)


@pytest.mark.runs
def test_what_is_measured_beside_the_figures_is_a_column_and_is_compared(tmp_path):
    worst = {"own_error": lambda result: max(float(np.linalg.norm(result.solution[f"x_n{i}"])) for i in range(4))}
    found = sweep(SWEPT, OVER, seeds=2, measure=worst, out=tmp_path / "s")
    assert (found["own_error"] > 0).all()
    assert "own_error" in (tmp_path / "s" / "medians.csv").read_text().splitlines()[0]
    with pytest.raises(InputError, match="measure: found seed, which is a column already"):
        sweep(SWEPT, OVER, seeds=1, measure={"seed": lambda result: 1})


def test_nothing_listens_beyond_loopback():
    psutil = pytest.importorskip("psutil")

    def beyond(result: Result) -> float:
        listening = [c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
        return float(len({*listening} - {"127.0.0.1", "::1"}))

    assert list(sweep(SWEPT, {"algorithm.rounds": [2]}, seeds=1, measure={"beyond": beyond})["beyond"]) == [0.0]


@pytest.mark.runs
def test_a_defect_is_a_row_and_the_sweep_goes_on():
    def broken(result: Result) -> float:
        if result.rounds_done == 2:
            raise ZeroDivisionError("of mine")
        return 1.0

    found = sweep(SWEPT, {"algorithm.rounds": [2, 5]}, seeds=1, measure={"mine": broken})
    assert list(found["status"]) == ["defect", "done"]
    assert found["error"].iloc[0] == "ZeroDivisionError: of mine"


@pytest.mark.runs
def test_points_may_be_given_one_by_one():
    given = [{"algorithm.rounds": 2, "privacy.epsilon": 1.0}, {"algorithm.rounds": 5, "privacy.epsilon": 10.0}]
    found, every = sweep(SWEPT, given, seeds=2), sweep(SWEPT, OVER, seeds=2)
    assert list(found["algorithm.rounds"]) == [2, 2, 5, 5]
    same = every[(every["algorithm.rounds"] == 2) == (every["privacy.epsilon"] == 1.0)]
    assert list(found["objective"]) == list(same["objective"])
    for wrong, message in (
        ([*given, given[0]], "a point twice"),
        ([{"algorithm.rounds": 2}, {"privacy.epsilon": 1.0}], "the same keys"),
        ([], "the same keys"),
    ):
        with pytest.raises(InputError, match=message):
            sweep(SWEPT, wrong, seeds=1)
