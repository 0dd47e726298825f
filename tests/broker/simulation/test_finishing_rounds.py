"""`finish: {gossip: k}`: rounds of averaging after the last answer, which use no data and cost nothing."""

from itertools import pairwise

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.neighbours import mixed
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support.runs import background_run
from tests.support.scenarios.neighbour_scenarios import ALGORITHMS, ROUNDS, scenario

K = 3
FINISH = {"algorithm.finish": {"gossip": K}, "run.record": "trajectory"}
W = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3.0  #: Metropolis, of a ring of four


def models(result):
    return np.array([result.solution[f"x_n{i}"] for i in range(4)])


@pytest.fixture(scope="module")
def pairs():
    """Every algorithm's run, seeded, without and with the rounds."""
    return {
        name: tuple(run(scenario(name, over={"run.record": "trajectory"} | over, seed=3)) for over in ({}, FINISH))
        for name in ALGORITHMS
    }


@pytest.mark.runs
@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_node_ends_with_the_weighted_average_of_what_all_had_and_the_mean_stays(pairs, name):
    plain, finished = pairs[name]
    expected = np.linalg.matrix_power(W, K) @ models(plain)
    assert np.allclose(models(finished), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    assert np.allclose(finished.solution["x"], plain.solution["x"], rtol=1e-12)
    assert finished.summary["consensus_residual"] < plain.summary["consensus_residual"]


@pytest.mark.runs
@pytest.mark.parametrize("name", ALGORITHMS)
def test_they_are_a_function_of_what_was_there_and_cost_nothing(pairs, name):
    plain, finished = pairs[name]
    way = finished.trajectory["finished"]
    assert np.array_equal(way[0], models(plain))
    for before, after in pairwise(way):
        again = [
            mixed(before[i], {f"n{j}": before[j] for j in near}, dict.fromkeys((f"n{j}" for j in near), 1 / 3))
            for i, near in enumerate(([1, 3], [0, 2], [1, 3], [0, 2]))
        ]
        assert np.array_equal(after, again)
    assert finished.summary["privacy"]["spent"] == plain.summary["privacy"]["spent"]
    for node, entry in finished.summary["privacy"]["per_node"].items():
        assert entry["answers"] == plain.summary["privacy"]["per_node"][node]["answers"]


@pytest.mark.runs
@pytest.mark.parametrize("name", ALGORITHMS)
def test_history_and_result_say_so(pairs, name):
    plain, finished = pairs[name]
    assert plain.summary.get("finish") is None
    assert finished.summary["finish"] == {"gossip": K}
    assert finished.summary["rounds_done"] == plain.summary["rounds_done"] == ROUNDS
    for key, column in plain.history.items():
        assert len(finished.history[key]) == ROUNDS + K
        if key != "bytes":
            assert finished.history[key][:ROUNDS] == column, key
    assert finished.history["epsilon_n0"][ROUNDS:] == [plain.history["epsilon_n0"][-1]] * K
    assert finished.history["noise_l1_expected"][ROUNDS:] == [0.0] * K
    assert finished.history["messages"][-K:] == [4] * K  # one of each node, to all its neighbours
    assert finished.trajectory["finished"].shape == (K + 1, 4, plain.solution["x"].size)


@pytest.mark.parametrize("name", ["dgd", "dpp2", "mradmm", "gradient-tracking"])
def test_faults_change_no_bit_of_them(pairs, name):
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.03, "seed": 1}
    disturbed = run(scenario(name, over=FINISH | {"run.faults": faults}, seed=3))
    background_run.assert_same_bits(pairs[name][1], disturbed)


def test_they_follow_the_round_at_which_the_cap_is_reached():
    over = FINISH | {"privacy.answers": 4, "privacy.epsilon": 80.0}
    capped = run(scenario("dgd", over=over, seed=3))
    assert (capped.summary["rounds_done"], len(capped.history["round"])) == (4, 4 + K)
    assert capped.summary["privacy"]["spent"]["epsilon"] <= 80.0


def test_many_of_them_make_all_models_alike():
    after = models(run(scenario("admm", rounds=1, over={"algorithm.finish": {"gossip": 60}}, seed=3)))
    assert np.allclose(after, after.mean(axis=0), rtol=1e-12)


def test_a_plan_without_them_has_the_bytes_it_had():
    plan = prepare(scenario_from(scenario("dgd"))).plan
    assert b"finish" not in encode_plan(plan)
    with_them = prepare(scenario_from(scenario("dgd", over=FINISH))).plan
    assert decode_plan(encode_plan(with_them)).algorithm.finish.gossip == K


@pytest.mark.parametrize(
    ("name", "over", "line"),
    [
        ("dgd", {"algorithm.finish": {"gossip": 0}}, r"algorithm\.finish\.gossip: found 0, expected"),
        ("dgd", {"algorithm.finish": {"gossip": 1001}}, r"algorithm\.finish\.gossip: found 1001, expected"),
        ("dgd", {"algorithm.finish": {}}, r"algorithm\.finish"),
        (
            "dpp2",
            {
                "algorithm.finish": {"gossip": 2},
                "algorithm.variant": "published",
                "algorithm.eta": 0.5,
                "algorithm.decay": 0.9,
                "algorithm.u_w": 0.1,
                "algorithm.u_e": 0.1,
                "privacy": None,
            },
            r"algorithm\.finish: "
            r"found a section, "
            r"expected none "
            r"\(variant: published",
        ),
        ("dgd", {"algorithm": {"name": "recal", "rounds": 20, "finish": {"gossip": 2}}}, r"algorithm\.finish: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name, over, line):
    with pytest.raises(InputError, match=line) as raised:
        scenario_from(scenario(name, over=over))
    assert "\n" not in str(raised.value)
