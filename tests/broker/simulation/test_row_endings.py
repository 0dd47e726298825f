"""Whole runs over rows: caps, how a run ends, ledgers and budgets."""

from itertools import pairwise

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import Stopped
from hushgrid.node.privacy.noise_source import SeededNoise
from tests.support.scenarios.record_scenarios import NOT_PRIVATE, scenario
from tests.support.scenarios.seeded_walks import BACK_AND_FORTH, TRAJECTORY, setup

# --- caps ---


@pytest.mark.parametrize(
    ("walk", "answers"),
    [("random", [10] * 4), ("hamiltonian", [5] * 4), (BACK_AND_FORTH, [8, 8, 2, 2])],
    ids=["random", "cycle", "given"],
)
def test_answers_are_as_many_as_the_walk_asks_for_of_a_node(walk, answers):
    made = setup(scenario({"algorithm.walk": walk}))
    assert list(made.plan.caps) == answers
    assert [
        made.device(f"n{i}").gate(made.plan, SeededNoise(1, f"n{i}"), None).terms.answers for i in range(4)
    ] == answers
    assert made.plan.terms.answers == max(answers)


def test_a_closed_walk_is_counted_at_the_node_that_it_passes_most():
    star = scenario({"network": {"kind": "star", "nodes": 4}, "algorithm.walk": "hamiltonian", "algorithm.rounds": 12})
    plan = setup(star).plan
    assert plan.caps == plan.privacy.answers == (6, 2, 2, 2)  # every other activation is the centre's
    assert [plan.terms_of(node).per_answer for node in plan.nodes] == pytest.approx([50 / 6, 25, 25, 25])
    found = run(star | {"seed": 1}).privacy
    assert [(of["answers"], of["cap"], of["spent"]["epsilon"]) for of in found["per_node"].values()] == [
        (cap, cap, pytest.approx(50)) for cap in plan.caps
    ]
    assert (found["answers"], found["capped"]) == (6, [])


@pytest.mark.runs
def test_on_a_random_walk_over_a_star_the_hub_is_not_stopped_and_the_leaves_noise_is_their_own():
    star = {"network": {"kind": "star", "nodes": 8}, "algorithm.rounds": 400}
    made = setup(scenario(star))
    assert made.plan.caps == (200, *[49] * 7)  # 1.5 K/n would be 75 for all
    hub, leaf = (made.plan.terms_of(node) for node in ("n0", "n1"))
    assert (hub.epsilon, leaf.epsilon) == (50.0, 50.0)
    assert hub.per_answer == pytest.approx(50 / 200)
    assert leaf.per_answer == pytest.approx(50 / 49)
    found = run(scenario(star, seed=3))
    assert found.privacy["per_node"]["n0"]["answers"] == 200
    assert found.privacy["capped"] == []


@pytest.mark.runs
def test_a_metropolis_walk_has_caps_of_its_own_and_asks_less_of_a_hub():
    edges = [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [1, 2], [2, 3], [3, 4], [4, 5], [5, 1]]
    wheel = {"network": {"kind": "edges", "nodes": 6, "edges": edges}, "algorithm.rounds": 400}
    simple, even = (setup(scenario(wheel | {"algorithm.walk": walk})).plan for walk in ("random", "metropolis"))
    assert even.caps[0] < simple.caps[0]
    found = run(scenario(wheel | {"algorithm.walk": "metropolis"}, seed=3))
    assert found.walk == {"kind": "metropolis", "cycle": None}
    assert found.privacy["capped"] == []
    assert [found.privacy["per_node"][node]["cap"] for node in even.nodes] == list(even.caps)


def test_by_a_price_an_answer_each_node_claims_its_own_total():
    star = {"network": {"kind": "star", "nodes": 4}, "algorithm.walk": "hamiltonian", "algorithm.rounds": 12}
    found = run(scenario(star | {"privacy.epsilon": None, "privacy.per_answer": {"epsilon": 0.5}})).privacy
    assert [of["claimed"]["epsilon"] for of in found["per_node"].values()] == pytest.approx([3, 1, 1, 1])
    assert found["claimed"]["epsilon"] == pytest.approx(3)


def test_caps_of_ones_own_stand_one_a_node():
    found = run(scenario({"algorithm.walk": "hamiltonian", "privacy.answers": [5, 1, 5, 2], "seed": 1}))
    assert [of["answers"] for of in found.privacy["per_node"].values()] == [5, 1, 5, 2]
    assert found.privacy["capped"] == found.frozen == ["n1", "n3"]
    assert found.solved == ["n0", "n1", "n2", "n3"]


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


@pytest.mark.runs
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
