"""`Result`: what a run leaves, with types, and the same again from its directory."""

import json
import sys

import matplotlib
import numpy as np
import pytest

from hushgrid.broker.report.result import HISTORY
from hushgrid.broker.simulation.front import Result, run
from hushgrid.kernels.errors import InputError

ROWS = {"synthetic": {"rows": 20, "features": 3, "seed": 1}, "normalize": "unit-rows"}
DATA = {
    "hushgrid": 1, "name": "small", "network": {"kind": "ring", "nodes": 4},
    "problem": {"kind": "logistic", "data": ROWS, "row_bound": 1.0, "l2": 0.1},
    "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 5.0},
}  # fmt: skip
ZONES = {
    "hushgrid": 1, "name": "grid", "problem": {"kind": "zones", "case": "case14", "zones": 3},
    "algorithm": {"name": "ladmm", "rounds": 3},
    "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0},
}  # fmt: skip
#: A run of every pattern, and of everything else that changes what is left: private, not, recorded, over a wire.
RUNS = {
    "star": ZONES,
    "star, the noisy loads": ZONES | {"privacy": ZONES["privacy"] | {"mode": "input"}},
    "star, seeded, trajectory": ZONES | {"seed": 1, "run": {"record": "trajectory"}},
    "token": DATA | {"algorithm": {"name": "recal", "rounds": 10, "walk": "hamiltonian"}},
    "token, not private": DATA
    | {"algorithm": {"name": "iadmm", "rho": 1.0, "rounds": 9, "variant": "none"}, "privacy": None},
    "neighbours": DATA | {"algorithm": {"name": "dgd", "rounds": 5, "step_size": 0.1}, "run": {"record": "transcript"}},
    "neighbours, published": DATA
    | {
        "algorithm": {
            "name": "dpp2",
            "rounds": 3,
            "alpha": 0.4,
            "beta": 0.1,
            "rho": 0.3,
            "variant": "published",
            "eta": 0.5,
            "decay": 0.9,
            "u_w": 0.1,
            "u_e": 0.1,
        },
        "privacy": None,
    },
}


def test_there_is_a_run_of_every_pattern():
    assert {name.split(",")[0] for name in RUNS} == {"star", "token", "neighbours"}


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """left(name): a run and its directory, made once."""
    place, made = tmp_path_factory.mktemp("runs"), {}

    def get(name: str) -> Result:
        if name not in made:
            made[name] = run(RUNS[name], out=place / str(len(made)))
        return made[name]

    return get


@pytest.mark.runs
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_same_from_its_directory(name, left):
    result = left(name)
    again = Result.load(result.path)
    assert again.summary == result.summary == json.loads((result.path / "result.json").read_text())
    assert list(again.summary) == list(result.summary)
    assert again.history == result.history
    assert {k: [type(v) for v in c] for k, c in again.history.items()} == {
        k: [type(v) for v in c] for k, c in result.history.items()
    }
    assert list(again.history) == list(result.history)
    assert [tuple(map(str, row)) for row in again.setpoints] == [tuple(map(str, row)) for row in result.setpoints]
    assert again.transcript == result.transcript
    for found, made in ((again.solution, result.solution), (again.trajectory, result.trajectory)):
        assert (found is None) is (made is None)
        for key in made or ():
            assert found[key].dtype == made[key].dtype
            assert found[key].tobytes() == made[key].tobytes()
    assert again.path == result.path


@pytest.mark.runs
@pytest.mark.parametrize("name", RUNS)
def test_every_field_of_result_json_is_an_attribute(name, left):
    result = left(name)
    for key, value in result.summary.items():
        found = getattr(result, key)
        if isinstance(value, dict) and key != "versions":
            assert {k: found[k] for k in value}.keys() == value.keys()
        else:
            assert found == value, key
    assert not set(result.history) - set(HISTORY) - {f"epsilon_{node}" for node in result.privacy.per_node}


def test_its_sections_have_attributes_and_keys(left):
    result = left("token")
    assert result.quality.verdict == result.quality["verdict"] == result.summary["quality"]["verdict"]
    assert result.privacy.claimed.epsilon == result.privacy["claimed"]["epsilon"] == 5.0
    assert result.walk.kind == "hamiltonian"
    assert set(result.epsilon) == {"n0", "n1", "n2", "n3"}
    assert max(result.epsilon.values()) == result.privacy.spent.epsilon
    with pytest.raises(KeyError, match="verdic"):
        result.quality["verdic"]
    with pytest.raises(AttributeError):
        result.objectiv  # noqa: B018


@pytest.mark.runs
@pytest.mark.parametrize("name", ["star", "token", "neighbours"])
def test_what_a_private_run_does_not_reveal_is_none(name, left):
    result = left(name)
    assert result.privacy.upheld is True
    assert (result.objective, result.optimality_gap, result.relative_error) == (None, None, None)
    with pytest.raises(InputError, match=r"plot: objective: found no value \(a private run does not reveal it\)"):
        result.plot("objective")
    assert "withheld" in result._repr_html_()


def test_a_raw_figure_that_somebody_wrote_into_a_private_run_is_not_read(left, tmp_path):
    source = left("token").path
    for file in source.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    told = json.loads((tmp_path / "result.json").read_text()) | {"objective": 7.0}
    (tmp_path / "result.json").write_text(json.dumps(told))
    header, *rows = (tmp_path / "history.csv").read_text().splitlines()
    at = header.split(",").index("objective")
    cells = [row.split(",") for row in rows]
    (tmp_path / "history.csv").write_text(
        "\n".join([header, *(",".join([*c[:at], "7.0", *c[at + 1 :]]) for c in cells)]) + "\n"
    )
    again = Result.load(tmp_path)
    assert again.objective is None
    assert set(again.history["objective"]) == {None}


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (None, "", "found no such directory, expected a run directory"),
        ("result.json", "{", "expected a file as `hushgrid run` writes it"),
        ("result.json", "{}", "missing required field `name`, expected a file as"),
        ("history.csv", "a\n1\n", "found no column round"),
        ("transcript.jsonl", "{", "expected a JSON object a line"),
        ("trajectory.npz", "no archive", "expected arrays as numpy.savez writes them"),
    ],
)
def test_what_is_no_run_directory_is_one_line(file, text, said, left, tmp_path):
    place = tmp_path / "run"
    if file is not None:
        place.mkdir()
        for source in left("token").path.glob("*.*"):
            (place / source.name).write_bytes(source.read_bytes())
        (place / file).write_text(text)
    with pytest.raises(InputError) as error:
        Result.load(place)
    assert said in str(error.value)
    assert str(place / (file or "")) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.runs
@pytest.mark.parametrize("name", RUNS)
def test_its_frame_is_its_history(name, left):
    pandas = pytest.importorskip("pandas")
    result = left(name)
    frame = result.frame()
    assert list(frame) == list(result.history)
    assert frame["messages"].dtype == int
    for key, cells in result.history.items():
        assert [None if pandas.isna(v) else v for v in frame[key]] == cells


@pytest.mark.parametrize(("missing", "ask"), [("pandas", Result.frame), ("matplotlib", Result.plot)])
def test_without_the_library_it_says_what_to_install(missing, ask, left, monkeypatch):
    for name in [m for m in sys.modules if m.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=f"found no {missing}, expected it installed: pip install"):
        ask(left("token"))


def test_its_plot_shows_the_convergence(left):
    matplotlib.use("agg")
    from matplotlib import pyplot

    result = left("star, seeded, trajectory")
    axes = result.plot()
    [line] = axes.lines
    assert line.get_ydata().tolist() == result.history["consensus_residual"]
    assert (axes.get_yscale(), axes.get_xlabel()) == ("log", "round")
    assert len(result.plot("objective", "consensus_residual", axes=axes).lines) == 3
    assert left("token").plot().get_xlabel() == "block of 4 activations"
    with pytest.raises(InputError, match="plot: found no column 'loss', expected one of round, objective"):
        result.plot("loss")
    pyplot.close("all")


def test_its_table_is_safe_html_of_the_summary_alone(left):
    result = left("token, not private")
    text = result._repr_html_()
    assert "small" in text and f"{result.objective:.4g}" in text and result.quality.verdict in text  # noqa: PT018
    strange = Result({**result.summary, "algorithm": "<script>", "name": "<b>"}, {}, {"x": np.ones(3)}, [])
    assert "<script>" not in strange._repr_html_()
    assert "<b>" not in strange._repr_html_()
