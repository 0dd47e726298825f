"""Beside the gates' answers nothing leads from private data to the outside: with the answers' values held still, two
data sets give the same bytes of everything, for every algorithm and mode, on a quiet network and where nodes crash."""

from pathlib import Path

import pytest

from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.privacy.noise import Lattice
from tests.support import examples
from tests.support.runs.background_run import LOADS, differing, seen
from tests.support.scenarios.guarded_scenarios import CASES, CHANGE, others, rounds, walk

FAULTS = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.08, "seed": 5}
FAR = {"problem.l2": 1.0}  #: a public gradient that grows with the iterate, whatever the answers
#: Runs that end badly, by public numbers: before the first answer, at one, and at a step.
REFUSED = {
    "a budget that the plan passes": rounds("dgd", {"privacy.budget": {"epsilon": 1.0}}),
    "a walk that goes to infinity": walk("iadmm", FAR | {"algorithm.rho": 0.02, "algorithm.rounds": 60}),
    "rounds that go to infinity": rounds("dgd", FAR | {"algorithm.step_size": 50.0, "algorithm.rounds": 12}),
    "rounds beyond what a bounded change covers": rounds(
        "dgd", CHANGE | FAR | {"algorithm.step_size": 50.0, "algorithm.rounds": 12}
    ),
}


def assert_nothing_tells(monkeypatch, directory: Path, raw, data, **options):
    """The run over its own data and over each of `data`, compared in everything."""
    one = seen(monkeypatch, directory / "own", raw, **options)
    for name in data:
        other = seen(monkeypatch, directory / name, raw, name, **options)
        assert differing(one, other) == [], name
    return one


def test_every_registered_algorithm_stands_here():
    assert {raw["algorithm"]["name"] for raw in CASES.values()} == set(ALGORITHMS)


REPRESENTATIVES = ("ladmm at gradient", "ladmm, mode input", "consensus-admm", "recal", "iadmm, exact", "dpp2", "radmm")
CRASHING = examples.few(CASES, REPRESENTATIVES)


@pytest.mark.runs
@pytest.mark.parametrize("case", CASES)
def test_the_same_answers_over_other_data_leave_the_same_of_everything(tmp_path, monkeypatch, case):
    """Over each of the other data for one algorithm a pattern and question, over two for the others."""
    data = others(CASES[case])
    data = data if case in REPRESENTATIVES or examples.THOROUGH else list(data)[:2]
    assert_a_whole_run_tells_nothing(monkeypatch, tmp_path, CASES[case], data)


@pytest.mark.runs
@pytest.mark.parametrize("case", CRASHING)
def test_the_same_answers_over_other_data_leave_the_same_of_everything_where_nodes_crash(tmp_path, monkeypatch, case):
    raw = CASES[case] | {"run": {"faults": FAULTS}}
    assert assert_a_whole_run_tells_nothing(monkeypatch, tmp_path, raw)["crashes"]


def assert_a_whole_run_tells_nothing(monkeypatch, directory, raw, data=None):
    found = assert_nothing_tells(monkeypatch, directory, raw, others(raw) if data is None else data)
    assert found["end 0"] == (0, "")
    asked = {name.partition(".")[0] for name in found if name.endswith(".ledger spend") and found[name]}
    assert {name for name, *_ in found["outcomes"]} == asked  # a walk may end before it has been everywhere
    assert len(asked) >= 2
    return found


@pytest.mark.runs
@pytest.mark.parametrize(
    "case",
    examples.few(
        ["ladmm", "ladmm, mode input", "consensus-admm", "recal", "dpp2", "radmm"],
        ["ladmm, mode input", "consensus-admm", "recal", "dpp2"],
    ),
)
def test_the_same_answers_over_other_data_leave_the_same_run_directory(tmp_path, monkeypatch, case):
    """Reports are slow to draw: of the rest of a run the tests above show it for every algorithm."""
    raw = CASES[case] | {"run": {"record": "transcript"}}
    name = "the largest loads" if others(raw) is LOADS else "far rows"
    found = assert_nothing_tells(monkeypatch, tmp_path, raw, [name], out=True)
    assert {"out/report.html", "out/transcript.jsonl", "out/history.csv", "out/solution.npz"} <= found.keys()
    assert ("out/buses.csv" in found) == (case == "consensus-admm")


@pytest.mark.runs
@pytest.mark.parametrize("case", ["ladmm", "ladmm, mode input", "recal"])
def test_whether_data_have_changed_between_two_runs_is_seen_by_nobody(tmp_path, monkeypatch, case):
    """A second run over the first one's data or over other ones, of which nobody has told the device."""
    raw = CASES[case]
    first, second = tuple(others(raw))[:2]
    one = seen(monkeypatch, tmp_path / "same", raw, first, first)
    other = seen(monkeypatch, tmp_path / "changed", raw, first, second)
    assert differing(one, other) == []


@pytest.mark.runs
@pytest.mark.parametrize("case", REFUSED)
def test_a_run_that_ends_badly_says_the_same_over_other_data(tmp_path, monkeypatch, case):
    raw = REFUSED[case]
    code, text = assert_nothing_tells(monkeypatch, tmp_path, raw, others(raw))["end 0"]
    assert code in (3, 4)
    assert text


@pytest.mark.runs
@pytest.mark.parametrize("case", ["ladmm at gradient", "recal", "dpp2"])
def test_what_is_compared_does_tell_where_the_answers_do(tmp_path, monkeypatch, case):
    """The comparison can fail: with honest answers the rest follows the data."""
    raw, honest = CASES[case] | {"seed": 3}, Lattice.release
    one = seen(monkeypatch, tmp_path / "own", raw, release=honest)
    other = seen(monkeypatch, tmp_path / "other", raw, next(iter(others(raw))), release=honest)
    assert {"transcript", "outcomes", "result 0"} <= set(differing(one, other))
