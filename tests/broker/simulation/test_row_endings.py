"""Whole runs over rows: caps, how a run ends, ledgers and budgets."""

from itertools import pairwise
from math import ceil

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import Stopped
from tests.support.scenarios.record_scenarios import NOT_PRIVATE, scenario
from tests.support.scenarios.seeded_walks import BACK_AND_FORTH, TRAJECTORY, setup

# --- caps ---


@pytest.mark.parametrize(
    ("walk", "answers"), [("random", ceil(1.5 * 20 / 4)), ("hamiltonian", 5), (BACK_AND_FORTH, 8)], ids=["random", "cycle", "given"]
)  # fmt: skip
def test_answers_are_as_many_as_the_walk_asks_for_of_a_node(walk, answers):
    plan = setup(scenario({"algorithm.walk": walk})).plan
    assert plan.terms.answers == answers


def test_a_closed_walk_is_counted_at_the_node_that_it_passes_most():
    star = scenario({"network": {"kind": "star", "nodes": 4}, "algorithm.walk": "hamiltonian", "algorithm.rounds": 12})
    assert setup(star).plan.terms.answers == 6  # every other activation is the centre's
    assert run(star | {"seed": 1}).privacy["per_node"]["n0"]["answers"] == 6


def test_beyond_its_answers_a_node_hands_the_token_on_and_is_named():
    over = TRAJECTORY | {"algorithm.walk": "hamiltonian", "privacy.answers": 3, "algorithm.rounds": 18}
    found = run(scenario(over))
    assert found.privacy["capped"] == ["n0", "n1", "n2", "n3"]
    assert {node["answers"] for node in found.privacy["per_node"].values()} == {3}
    for key in ("x", "u"):
        token = found.trajectory[key]
        assert all(np.any(a != b) for a, b in pairwise(token[1:13]))
        assert all(np.array_equal(a, token[12]) for a in token[13:])
    assert found.history["epsilon_n0"] == pytest.approx([50 / 3, 100 / 3, 50, 50, 50])
    assert found.rounds_done == 18


# --- the end ---


def test_the_walk_stops_when_the_token_has_moved_little_for_patience_times_n_hops():
    stop = {"tolerance": 1e-3, "patience": 2}
    found = run(scenario(NOT_PRIVATE | TRAJECTORY | {"algorithm.rounds": 2000, "run.stop": stop, "seed": 2}))
    tokens = np.hstack([found.trajectory["x"], found.trajectory["u"]])
    calm = np.max(np.abs(np.diff(tokens, axis=0)), axis=1) <= 1e-3
    first = next(k for k in range(8, len(calm) + 1) if calm[k - 8 : k].all())
    assert (found.stopped_because, found.rounds_done) == ("tolerance", first)
    assert first < 2000


def test_a_run_that_stops_early_claims_its_whole_cap():
    found = run(scenario({"algorithm.rounds": 400, "run.stop": {"tolerance": 100.0, "patience": 1}}))
    assert (found.stopped_because, found.rounds_done) == ("tolerance", 4)
    assert found.privacy["claimed"]["epsilon"] == 50.0
    assert found.privacy["spent"]["epsilon"] < 50.0


def test_a_walk_that_diverges_ends_in_one_line(tmp_path):
    with pytest.raises(
        Stopped, match=r"^n\d: an iterate is not finite or beyond its bound, expected a run that converges$"
    ):
        run(scenario(NOT_PRIVATE | {"algorithm.beta": 100.0, "algorithm.rounds": 400}), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["iadmm", "extra"])
def test_iterates_beyond_their_bound_end_a_run_of_any_pattern(tmp_path, name):
    """Far too large a step: numbers that nobody can use are neither sent nor written down."""
    far = {"iadmm": {"rho": 1e-6, "update": "first-order"}, "extra": {"step_size": 1e6}}[name]
    with pytest.raises(Stopped, match="an iterate is not finite or beyond its bound"):
        run(
            scenario({"algorithm": {"name": name, "rounds": 400, "variant": "none"} | far, "privacy": None}),
            out=tmp_path / "out",
        )
    assert not (tmp_path / "out").exists()
