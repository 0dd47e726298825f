"""`problem.test`: rows that nobody has learned from say how good a model is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.broker.report import summary
from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.records import held_out
from hushgrid.node.problems.records.held_out import HeldOut

KINDS = {"least-squares": 1, "logistic": 1, "softmax": 3}
ALGORITHMS = {
    "recal": {"alpha": 0.3, "walk": "hamiltonian", "rounds": 12},
    "dgd": {"step_size": 0.1, "rounds": 5},
}


def rows(kind, m=40, q=4, seed=0):
    """A, b of `m` rows whose labels a kind of problem can have."""
    draw = np.random.default_rng(seed)
    A = draw.normal(size=(m, q))
    b = {
        "least-squares": draw.normal(size=m),
        "logistic": np.sign(draw.normal(size=m)),
        "softmax": draw.integers(0, 3, size=m).astype(float),
    }[kind]
    return A, b


def scenario(tmp_path, kind, algorithm="dgd", test="test.npz", **problem):
    A, b = rows(kind)
    np.savez(tmp_path / "test.npz", A=A, b=b)
    private = {"privacy": {"epsilon": 4.0, "adjacency": {"replace-one-record": {"clip": 1.0}}}, "problem": {}}
    return {
        "hushgrid": 1,
        "name": "tested",
        "problem": {
            "kind": kind,
            "data": {"synthetic": {"rows": 30, "features": 4}, "normalize": "unit-rows"},
            "row_bound": 1.0,
            "l2": 0.1,
            "test": str(tmp_path / test),
        }
        | ({"classes": 3} if kind == "softmax" else {})
        | problem,
        "network": {"kind": "ring", "nodes": 4},
        "algorithm": {"name": algorithm, **ALGORITHMS[algorithm]},
        "privacy": private["privacy"],
    }


def of(tmp_path, kind):
    problem = scenario_from(scenario(tmp_path, kind)).problem
    return HeldOut(problem, 4, KINDS[kind])


def naive(kind, A, b, x):
    """A row at a time."""
    wrong = 0.0
    for a, label in zip(A / np.linalg.norm(A, axis=1, keepdims=True), b, strict=True):
        if kind == "least-squares":
            wrong += (a @ x - label) ** 2
        elif kind == "logistic":
            wrong += (1.0 if a @ x > 0 else -1.0) != label
        else:
            wrong += int(np.argmax(x.reshape(3, 4) @ a)) != label
    return (wrong / len(b)) ** (0.5 if kind == "least-squares" else 1)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000), models=st.integers(0, 5))
def test_the_error_of_many_models_is_that_of_each_row_by_row(tmp_path_factory, kind, seed, models):
    rows_of = of(tmp_path_factory.getbasetemp(), kind)
    X = np.random.default_rng(seed).normal(size=(models, 4 * KINDS[kind]))
    assert rows_of.errors(X) == pytest.approx([naive(kind, *rows(kind), x) for x in X], rel=1e-12)


def test_models_too_many_for_the_memory_are_tested_some_at_a_time(tmp_path, monkeypatch):
    rows_of, X = of(tmp_path, "softmax"), np.random.default_rng(0).normal(size=(7, 12))
    whole = rows_of.errors(X)
    monkeypatch.setattr(held_out, "AT_ONCE", 1)
    assert rows_of.errors(X) == whole


def test_a_model_that_is_not_finite_has_no_error(tmp_path):
    for kind, classes in KINDS.items():
        assert of(tmp_path, kind).errors(np.array([[np.nan] * 4 * classes, [np.inf] * 4 * classes])) == [None, None]


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_private_run_says_how_good_each_rounds_models_are(tmp_path, kind, algorithm):
    found = run(scenario(tmp_path, kind, algorithm), out=tmp_path / "run")
    assert found.privacy.upheld is True
    assert found.objective is None
    nodes, (A, b) = ["n0", "n1", "n2", "n3"], rows(kind)
    assert found.test_error == pytest.approx(naive(kind, A, b, found.solution["x"]), rel=1e-12)
    assert found.history["test_error"][-1] == found.test_error
    for name in nodes:
        error = naive(kind, A, b, found.solution[f"x_{name}"])
        assert found.summary[f"test_error_{name}"] == pytest.approx(error, rel=1e-12)
        assert found.history[f"test_error_{name}"][-1] == found.summary[f"test_error_{name}"]
        assert None not in found.history[f"test_error_{name}"]
    read = Result.load(tmp_path / "run")
    assert (read.test_error, read.test.rows, read.history) == (found.test_error, 40, found.history)
    assert "the 40 rows of test.npz are public: nothing protects them" in summary.test(read.summary)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "are public: nothing protects them" in page
    assert "Test error" in page


@pytest.mark.runs
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_where_the_end_alone_is_recorded_the_last_models_alone_are_tested(tmp_path, algorithm):
    raw = scenario(tmp_path, "logistic", algorithm) | {"seed": 1}
    every, end = run(raw), run(raw | {"run": {"record": "end"}})
    columns = [key for key in every.history if key.startswith(held_out.KEY)]
    assert columns
    for key in columns:
        T = len(every.history[key])
        assert end.history[key] == [None] * (T - 1) + every.history[key][-1:]
    assert end.summary[held_out.KEY] == every.summary[held_out.KEY]


def test_what_models_are_tested_on_changes_no_answer(tmp_path):
    private = scenario(tmp_path, "logistic")
    with_, without = (run(private | {"seed": 3, "problem": of}) for of in both(private["problem"]))
    assert without.test is None
    assert not any(key.startswith("test_error") for key in (*without.summary, *without.history))
    np.testing.assert_array_equal(with_.solution["x"], without.solution["x"])


def both(problem):
    """With rows to test on, and without."""
    return dict(problem), {key: value for key, value in problem.items() if key != "test"}


def test_the_rows_are_read_as_the_nodes_rows_are(tmp_path):
    """A file of text in the nodes' own format, its labels 0 and 1, its rows of norm 1 then."""
    A, b = rows("logistic")
    lines = [f"{int(y > 0)}," + ",".join(map(repr, a.tolist())) for a, y in zip(3 * A, b, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    of_csv = scenario(tmp_path, "logistic", test="rows.csv")
    of_csv["problem"]["data"] = {"csv": str(tmp_path / "rows.csv"), "label": 0, "normalize": "unit-rows"}
    read = HeldOut(scenario_from(of_csv).problem, 4, 1)
    np.testing.assert_array_equal(read.b, b)
    np.testing.assert_allclose(read.A, A / np.linalg.norm(A, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda path: None, "No such file or directory, expected a NumPy archive"),
        (lambda path: np.savez(path, A=np.ones((3, 5)), b=np.ones(3)), "found 5 features, expected 4 as the nodes'"),
        (lambda path: np.savez(path, A=np.ones((3, 4)), b=np.full(3, 2.0)), "found label 2, expected -1 or 1"),
        (lambda path: path.write_bytes(b"PK"), "expected a NumPy archive of A and b"),
    ],
    ids=["no file", "another width", "a strange label", "no archive"],
)
def test_a_file_that_does_not_fit_is_one_line_before_the_run(tmp_path, write, why):
    asked = scenario(tmp_path, "logistic", test="other.npz")
    write(tmp_path / "other.npz")
    with pytest.raises(InputError, match=why) as error:
        run(asked, out=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert str(tmp_path / "other.npz") in str(error.value)
    assert not (tmp_path / "run").exists()
