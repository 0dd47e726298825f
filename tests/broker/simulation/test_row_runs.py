"""Whole runs over rows of data: what is promised of their figures, files, ledgers, walks and bits."""

import base64
import csv
import json
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
import yaml

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import Refused, Stopped
from hushgrid.kernels.graphs import Network, random_walk
from hushgrid.kernels.patterns.token import Token
from hushgrid.kernels.problems.centralised import optimum
from hushgrid.lab.rollout.compiled import recal as whole_recal
from hushgrid.node.problems.records.gate import ROUNDING, rounding
from hushgrid.node.runtime.driver import FAILED
from tests.support.runs.background_run import assert_same_bits, envelopes, spends
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, iadmm, scenario
from tests.support.scenarios.seeded_walks import BACK_AND_FORTH, DP_RECAL, PI_ADMM1, PI_ADMM2, SEEDED, TRAJECTORY, setup

NODES = [f"n{i}" for i in range(4)]


def files_of(out):
    """result.json, history.csv as {column: texts}, and the two archives' arrays."""
    header, *rows = csv.reader((out / "history.csv").read_text().splitlines())
    history = {name: [row[k] for row in rows] for k, name in enumerate(header)}
    arrays = [
        dict(np.load(path)) if (path := out / f"{name}.npz").exists() else {} for name in ("solution", "trajectory")
    ]
    return json.loads((out / "result.json").read_text()), history, *arrays


# --- the limit ---


PROBLEMS = {
    "ridge": {"problem.kind": "least-squares", "problem.l2": 0.1},
    "lasso": {"problem.kind": "least-squares", "problem.l2": 0.0, "problem.regularizer": {"l1": 0.02}},
    "elastic net": {"problem.kind": "least-squares", "problem.l2": 0.0, "problem.regularizer": {"l1": 0.02, "l2": 0.1}},
    "logistic": {"problem.l2": 0.2, "problem.regularizer": {"l1": 0.005}},
}
RING = {"network": {"kind": "ring", "nodes": 4}}
GEOMETRIC = {"network": {"kind": "geometric", "nodes": 5, "radius": 0.6, "seed": 3}}


# Convergence is linear: each agent's step contracts, but its multiplier learns by beta = 1/(2(n + 1)) a visit only.
# 1e-12 takes 200 to 360 visits of each agent on these problems, 800 to 1800 activations.


def undisturbed(problem, network):
    over = NOT_PRIVATE | PROBLEMS[problem] | network
    rounds = 400 * over["network"]["nodes"]
    return scenario(over, seed=1, **{"algorithm.rounds": rounds, "problem.data.synthetic.rows": 40})


@pytest.mark.runs
@pytest.mark.parametrize("network", [RING, GEOMETRIC], ids=["ring", "geometric"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_RECAL_without_noise_reaches_the_central_optimum_to_1e_12(problem, network):
    """All agents in a few arrays; test_whole_run has them equal to the machines."""
    s = setup(undisturbed(problem, network))
    losses, r, p = s.losses, s.public.regularizer, s.plan.algorithm
    agents = whole_recal.Agents(p, losses, r)
    agents.walk(random_walk(s.public.graph, 0, p.rounds, seed=1))
    best = optimum(losses, r)
    assert np.linalg.norm(agents.x - best.x) <= 1e-12 * np.linalg.norm(best.x)
    assert np.linalg.norm(best.x) > 0.1


@pytest.mark.runs
@pytest.mark.parametrize(("problem", "network"), [("elastic net", RING), ("logistic", GEOMETRIC)], ids=str)
def test_a_run_reaches_it_and_says_so(problem, network):
    assert run(undisturbed(problem, network)).relative_error <= 1e-12


@pytest.mark.runs
@pytest.mark.parametrize("name", ["iadmm", "wadmm"])
def test_the_incremental_methods_reach_it_too(name):
    raw = iadmm(NOT_PRIVATE, **{"algorithm.name": name, "algorithm.rounds": 400, "algorithm.rho": 0.1}, seed=1)
    assert run(raw).relative_error <= 1e-9


# --- the figures ---


def test_the_figures_are_those_of_the_contract(tmp_path):
    raw = scenario(TRAJECTORY | {"seed": 3, "algorithm.rounds": 10, "problem.regularizer": {"l1": 0.01, "l2": 0.1}})
    run(raw, out=tmp_path / "out")
    result, history, solution, t = files_of(tmp_path / "out")
    losses, n = setup(raw).losses, 4

    def objective(x):
        return sum(f.value(x) for f in losses) + n * (0.01 * np.sum(np.abs(x)) + 0.05 * x @ x)

    ends = [4, 8, 10]  # blocks of n activations
    assert history["round"] == ["1", "2", "3"]
    assert [float(v) for v in history["objective"]] == pytest.approx([objective(t["x"][k]) for k in ends], rel=1e-14)
    y = np.zeros((n, 3))
    for k in range(10):
        y[t["active"][k]] = t["y"][k]
    residual = sqrt(np.sum((y - y.mean(axis=0)) ** 2))
    assert float(history["consensus_residual"][-1]) == pytest.approx(residual, rel=1e-14)
    assert result["consensus_residual"] == float(history["consensus_residual"][-1])
    assert result["objective"] == float(history["objective"][-1])
    assert result["optimality_gap"] > 0
    assert np.array_equal(solution["x"], t["x"][-1])
    assert np.array_equal([solution[f"x_{name}"] for name in NODES], y)
    assert history["messages"] == ["4", "4", "1"]  # after the last activation the token goes nowhere
    assert (result["messages"], result["rounds_done"]) == (9, 10)
    assert result["bytes"] == sum(map(int, history["bytes"]))
    assert set(history["max_violation"]) == {""}
    assert result["max_violation"] is None
    # Laplace noise drawn, and what was to be expected of it: four answers a block of three coordinates.
    drawn, expected = ([float(v) for v in history[f"noise_l1{key}"]] for key in ("", "_expected"))
    assert 0 < drawn[0] != expected[0] == expected[1] == 2 * expected[2]


@pytest.mark.parametrize(
    ("raw", "token", "own"),
    [
        (scenario(), ("x", "u"), ("y", "lam")),
        (iadmm(), ("z",), ("x", "y")),
        (iadmm({"algorithm.name": "wadmm"}), ("z",), ("x", "y")),
    ],
    ids=["recal", "iadmm", "wadmm"],
)
def test_a_trajectory_has_the_token_from_its_start_and_the_active_nodes_state(raw, token, own, tmp_path):
    run(raw | {"run": {"record": "trajectory"}}, out=tmp_path / "out")
    t = files_of(tmp_path / "out")[3]
    assert {key: a.shape for key, a in t.items()} == (
        {"active": (20,)} | dict.fromkeys(token, (21, 3)) | dict.fromkeys(own, (20, 3))
    )
    assert t["active"].dtype == np.int64
    assert not any(t[key][0].any() for key in token)


def test_a_private_run_shows_what_it_costs_and_no_figure_of_rows_or_noise(tmp_path):
    run(scenario(), out=tmp_path / "out")
    result, history, solution, trajectory = files_of(tmp_path / "out")
    assert list(history) == [
        "round",
        "objective",
        "consensus_residual",
        "max_violation",
        "noise_l1",
        "noise_l1_expected",
        "messages",
        "bytes",
        *(f"epsilon_{name}" for name in NODES),
    ]
    assert {
        *history["objective"],
        *history["noise_l1"],
        result["objective"],
        result["optimality_gap"],
        result["relative_error"],
    } == {"", None}
    assert min(map(float, history["noise_l1_expected"])) > 0
    assert sorted(solution) == ["x", *(f"x_{name}" for name in NODES)]
    assert trajectory == {}
    p = result["privacy"]
    assert (p["upheld"], p["findings"], p["mechanism"], p["accountant"]) == (True, [], "laplace", "pure-basic")
    assert p["claimed"] == {"epsilon": 50.0, "delta": 0.0}
    assert p["adjacency"] == {"replace-one-record": {"clip": 1.0}}
    assert p["answers"] == 10  # twice the mean: one of 4 nodes has more with probability 1e-3
    for name in NODES:
        per_answer = 50.0 / 10
        assert p["per_node"][name]["spent"]["epsilon"] == pytest.approx(p["per_node"][name]["answers"] * per_answer)
        assert float(history[f"epsilon_{name}"][-1]) == p["per_node"][name]["spent"]["epsilon"]
        assert len(spends(tmp_path / f"out/ledger/{name}.ledger")) == p["per_node"][name]["answers"]
    assert p["spent"]["epsilon"] == max(node["spent"]["epsilon"] for node in p["per_node"].values())


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_gaussian_noise_is_claimed_at_its_delta_and_by_its_accountant(accountant):
    p = run(scenario(GAUSSIAN | {"privacy.epsilon": 2.0, "privacy.accountant": accountant})).privacy
    assert (p["claimed"], p["accountant"]) == ({"epsilon": 2.0, "delta": 1e-5}, accountant)
    assert 0 < p["spent"]["epsilon"] <= 2.0


def test_epsilon_per_answer_gives_the_total():
    p = run(scenario({"privacy.epsilon": None, "privacy.per_answer": {"epsilon": 0.5}})).privacy
    assert p["claimed"]["epsilon"] == pytest.approx(10 * 0.5)


# --- variants and problems ---


@pytest.mark.runs
def test_published_RECAL_says_why_its_claim_does_not_hold(tmp_path):
    run(scenario(DP_RECAL), out=tmp_path / "out")
    result, history, *_ = files_of(tmp_path / "out")
    p = result["privacy"]
    assert (p["upheld"], p["sampler"], p["spent"]["epsilon"]) == (False, "numpy (simulation)", None)
    assert p["findings"][0].startswith("recal 1.1")
    assert set(history["epsilon_n0"]) == {""}
    assert result["relative_error"] > 0
    assert min(map(float, history["noise_l1"])) > 0


def test_DP_RECALs_noise_decays_by_the_square_root_of_R_an_answer():
    over = DP_RECAL | {"algorithm.decay": 100.0, "algorithm.walk": "hamiltonian", "algorithm.rounds": 20, "seed": 1}
    noise = run(scenario(over)).history["noise_l1"]
    # A block is one answer of each node: the sum of 12 normals' sizes, twice or half of it are 4 standard deviations
    # off.
    assert all(a / 20 < b < a / 5 for a, b in pairwise(noise))


@pytest.mark.runs
@pytest.mark.parametrize("over", [PI_ADMM1, PI_ADMM2], ids=["PI-ADMM1", "PI-ADMM2"])
def test_PI_ADMM_has_no_privacy_section_and_a_finding(over):
    found = run(iadmm(over | {"algorithm.start": {"uniform": [-1.0, 1.0]}, "algorithm.rounds": 200}))
    assert found.privacy["upheld"] is False
    assert found.privacy["claimed"] is None
    assert found.privacy["findings"][0].startswith("iadmm 3.1")
    assert 0 < found.relative_error < (1e-2 if "algorithm.gamma" in over else 0.5)


def test_a_random_start_is_in_what_the_first_steps_are_made_from():
    over = NOT_PRIVATE | TRAJECTORY | {"algorithm.start": {"uniform": [2.0, 3.0]}, "algorithm.rounds": 3, "seed": 1}
    found = run(iadmm(over))
    x = found.solution["x_n3"]  # not visited yet
    assert np.all((x >= 2) & (x <= 3))
    assert not found.trajectory["z"][0].any()


def test_softmax_has_a_number_for_every_class_and_feature():
    over = {"problem.kind": "softmax", "problem.classes": 3, "problem.regularizer": {"l1": 0.001}, "problem.box": 0.2}
    found = run(scenario(over | {"seed": 1}))
    assert found.solution["x"].shape == (9,)
    assert 0 < np.max(np.abs(found.solution["x"])) <= 0.2
    assert found.optimality_gap > 0


def test_the_box_is_kept_whatever_the_noise():
    found = run(scenario(TRAJECTORY | {"problem.box": 0.1, "privacy.epsilon": 0.01}))
    assert np.max(np.abs(found.trajectory["x"])) == 0.1


def test_a_nonconvex_problem_has_an_objective_and_no_optimum_to_compare_with():
    found = run(scenario(NOT_PRIVATE | {"problem.l2": 0.0, "problem.nonconvex": {"lambda": 0.5, "omega": 1.0}}))
    assert found.objective < 4 * np.log(2)  # of x = 0
    assert (found.optimality_gap, found.relative_error) == (None, None)


@pytest.mark.parametrize(
    "network",
    [
        {"kind": "ring", "nodes": 4},
        {"kind": "path", "nodes": 4},
        {"kind": "star", "nodes": 4},
        {"kind": "complete", "nodes": 4},
        {"kind": "grid", "nodes": 4},
        {"kind": "edges", "edges": [[0, 1], [1, 2], [2, 3]]},
        {"kind": "geometric", "nodes": 4, "radius": 0.9, "seed": 0},
        {"kind": "erdos-renyi", "nodes": 4, "density": 0.7, "seed": 0},
    ],
    ids=lambda network: network["kind"],
)
def test_a_walk_keeps_to_the_edges_of_its_network(network):
    active = run(scenario(TRAJECTORY | {"network": network}, seed=1)).trajectory["active"].tolist()
    edges = set(Network(**network).build().edges)
    assert active[0] == 0
    assert all((min(hop), max(hop)) in edges for hop in pairwise(active))


@pytest.mark.parametrize(
    "split", ["even", {"label-skew": 1.0}, {"given": "split.txt"}], ids=["even", "label-skew", "given"]
)
def test_the_rows_of_one_file_are_dealt_to_the_nodes(split, tmp_path):
    lines = [f"{1 if j % 2 else -1} 1:{j / 10} 3:0.5" for j in range(8)]
    (tmp_path / "rows.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "split.txt").write_text("\n".join(str(j // 2) for j in range(8)))
    raw = scenario({"problem.data": {"libsvm": "rows.txt", "nodes": 4, "split": split, "normalize": "unit-rows"}})
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(raw))
    assert run(tmp_path / "s.yaml", seed=1).solution["x"].shape == (3,)


# --- the same bits ---


@pytest.mark.runs
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_gives_the_same_bits_whatever_is_lost_doubled_or_restarted(name):
    faults = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.2, "crash": 0.05, "seed": 2}
    assert_same_bits(run(SEEDED[name]), run(SEEDED[name] | {"run": {"record": "trajectory", "faults": faults}}))


@pytest.mark.runs
@pytest.mark.parametrize("walk", ["random", "hamiltonian", BACK_AND_FORTH], ids=["random", "cycle", "given"])
def test_the_resolved_scenario_runs_again_to_the_same_bits(walk, tmp_path):
    raw = scenario(TRAJECTORY | {"seed": 5, "algorithm.walk": walk, "privacy.budget": {"epsilon": 60.0}} | GEOMETRIC)
    if walk is BACK_AND_FORTH:
        raw |= RING
    first = run(raw, out=tmp_path / "one")
    again = run(tmp_path / "one/scenario.yaml", out=tmp_path / "two")
    assert_same_bits(first, again)
    assert (tmp_path / "one/scenario.yaml").read_text() == (tmp_path / "two/scenario.yaml").read_text()


def test_without_a_seed_neither_the_walk_nor_the_noise_comes_again():
    one, other = run(scenario(TRAJECTORY)), run(scenario(TRAJECTORY))
    assert one.trajectory["active"].tolist() != other.trajectory["active"].tolist()  # chance 2^-19
    assert np.any(one.trajectory["y"][0] != other.trajectory["y"][0])


# --- what travels ---


@pytest.mark.runs
def test_a_transcript_holds_every_token_and_none_goes_to_the_coordinator(tmp_path):
    found = run(scenario({"seed": 1, "run.record": "transcript"}), out=tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out/transcript.jsonl").read_text().splitlines()]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert set(lines[0]) == {"n", "src", "dst", "topic", "bytes"}
    assert all(base64.b64decode(line["bytes"], validate=True) for line in lines if line["bytes"])
    tokens = {e.seq: (src, dst, e.body) for src, dst, e, _ in envelopes(found.transcript) if isinstance(e.body, Token)}
    edges = set(Network(kind="ring", nodes=4).build().edges)
    assert sorted(tokens) == list(range(1, 20))
    assert all(tuple(sorted((int(src[1]), int(dst[1])))) in edges for src, dst, _ in tokens.values())
    trajectory = run(scenario({"seed": 1} | TRAJECTORY)).trajectory
    for k, (_, _, token) in tokens.items():
        assert np.array_equal(token.vectors, (trajectory["x"][k], trajectory["u"][k]))


# --- ledgers and budgets ---


@pytest.mark.runs
def test_ledgers_under_state_count_over_runs_until_the_budget_refuses(tmp_path):
    raw = scenario({"algorithm.walk": "hamiltonian", "privacy.epsilon": 2.0, "privacy.budget": {"epsilon": 5.0}})
    for k in (1, 2):
        left = run(raw, state=tmp_path / "state").privacy["per_node"]["n0"]["left"]
        assert left == pytest.approx(5.0 - 2.0 * k, rel=1e-3)  # an answer on its grid costs a little less
    before = {name: spends(tmp_path / f"state/{name}.ledger") for name in NODES}
    with pytest.raises(Refused, match=r"^n\d: spent epsilon 3.99\d*, asked 2 more, budget 5 \(replace-one-record,"):
        run(raw, state=tmp_path / "state", out=tmp_path / "out")
    assert {name: spends(tmp_path / f"state/{name}.ledger") for name in NODES} == before
    assert not (tmp_path / "out").exists()


def test_a_plan_beyond_the_budget_is_refused_before_the_first_answer(tmp_path):
    with pytest.raises(Refused, match=r"^n\d: spent epsilon 0, asked 2 more, budget 1 "):
        run(scenario({"privacy.epsilon": 2.0, "privacy.budget": {"epsilon": 1.0}}), state=tmp_path / "state")
    assert all(spends(tmp_path / f"state/{name}.ledger") == [] for name in NODES)


def test_an_answer_that_cannot_be_covered_ends_the_run_in_one_sentence_and_what_was_spent_stays(tmp_path):
    # A change so small that it covers the rounding of the gradient near 0 only, and noise that leads far away from
    # there.
    loss = setup(scenario()).losses[0]
    change = 1.005 * rounding(loss, np.zeros(3), 1) / (ROUNDING / 2)
    tiny = {
        "privacy.adjacency": {"bounded-change": change},
        "privacy.epsilon": 2e-8,
        "seed": 1,
        "algorithm.rounds": 200,
    }
    with pytest.raises(Stopped, match=rf"^n\d: {FAILED}; spent of a node at most: epsilon "):
        run(scenario(tiny), state=tmp_path / "state", out=tmp_path / "out")
    assert sum(len(spends(tmp_path / f"state/{name}.ledger")) for name in NODES) > 0
    assert not (tmp_path / "out").exists()
