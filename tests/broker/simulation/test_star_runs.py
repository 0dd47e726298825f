"""Federated learning around a coordinator: whole runs of Algorithm 3.1 on rows, and what a scenario of one may say."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from tests.support.agents.ladmm_vectors import ABOUT, NODES, stored
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, scenario

TRAJECTORY = {"run": {"record": "trajectory"}}


def star(over=None, **more):
    """Guarded, four nodes of ten rows, logistic, in a box of .5."""
    own = {"network": None, "problem.data.nodes": 4, "problem.box": 0.5, "algorithm": {"name": "ladmm", "rounds": 6}}
    return scenario(own | dict(over or {}), **more)


@pytest.mark.parametrize("name", [name for name, about in ABOUT.items() if not about["noise_sd"]])
def test_ladmm_runs_through_the_stored_iterates_of_rows(name, tmp_path):
    about = ABOUT[name]
    for node in NODES:
        np.savez(tmp_path / f"{node}.npz", A=stored(name, f"A_{node}"), b=stored(name, f"b_{node}"))
    classes = {"classes": about["classes"]} if about["kind"] == "softmax" else {}
    keys = {"rho": about["rho"], "eta": about["eta"], "local_updates": about["E"], "rounds": about["T"]}
    result = run({
        "hushgrid": 1, "name": "stored", "run": {"record": "trajectory"},
        "problem": {
            "data": {"files": [str(tmp_path / f"{node}.npz") for node in NODES]}, **classes,
            **{key: about[key] for key in ("kind", "scale", "l2", "box")},
        },
        "algorithm": {"name": "ladmm", "variant": "none", **keys},
    })  # fmt: skip
    assert np.max(np.abs(result.trajectory["w"] - stored(name, "w"))) <= 1e-9
    for p, node in enumerate(NODES):
        for key, of in (("z", "z"), ("lam", "lam")):
            assert np.max(np.abs(result.trajectory[f"{key}_{node}"] - stored(name, of)[:, p])) <= 1e-9
        assert np.max(np.abs(result.solution[f"z_average_{node}"] - stored(name, "z_average")[p])) <= 1e-9
    assert np.max(np.abs(result.solution["w_average"] - stored(name, "w_average"))) <= 1e-9
    assert np.max(np.abs(result.solution["x"] - stored(name, "z")[-1].mean(axis=0))) <= 1e-9
    assert result.objective == pytest.approx(float(stored(name, "objective_zbar")), abs=1e-9)
    assert result.consensus_residual == pytest.approx(float(stored(name, "consensus_residual")), abs=1e-9)


@pytest.mark.runs
def test_it_finds_the_optimum_in_the_box():
    result = run(star(NOT_PRIVATE | {"algorithm.rounds": 2000, "algorithm.rho": 0.5}))
    assert result.relative_error < 1e-3
    assert result.optimality_gap < 1e-5
    assert np.max(np.abs(result.solution["x"])) == pytest.approx(0.5)  # the box holds it
    assert result.quality["verdict"] == "solved"


@pytest.mark.parametrize("kind", ["least-squares", "logistic", "softmax"])
def test_a_guarded_run_keeps_every_copy_in_the_box_and_upholds_its_claim(kind):
    over = GAUSSIAN | {
        "problem.kind": kind,
        "privacy.epsilon": 0.5,
        "algorithm.local_updates": 3,
        "algorithm.rho": 0.1,
        **TRAJECTORY,
    }
    over |= {"problem.classes": 3} if kind == "softmax" else {}
    result = run(star(over))
    assert result.privacy["upheld"] is True
    assert result.privacy["answers"] == 18
    for node in ("n0", "n1", "n2", "n3"):
        assert np.max(np.abs(result.trajectory[f"z_{node}"])) <= 0.5 * (1 + 1e-12)


def test_under_share_the_objective_is_the_mean_loss_over_all_rows():
    """(6.3), with unequal shards."""
    draw = np.random.default_rng(2)
    data = [(draw.normal(size=(m, 3)) / 3, draw.choice([-1.0, 1.0], m)) for m in (3, 9, 4)]
    over = NOT_PRIVATE | {"problem.data": {}, "problem.scale": "share", "problem.l2": 0.0, "problem.row_bound": None}
    raw = star(over)
    found = run(raw, data=data)
    x, A, b = found.solution["x"], np.concatenate([a for a, _ in data]), np.concatenate([b for _, b in data])
    assert found.objective == pytest.approx(np.mean(np.log1p(np.exp(-b * (A @ x)))), rel=1e-12)
    whole = run(raw | {"problem": raw["problem"] | {"scale": 1.0}}, data=data)
    assert found.objective < whole.objective


def test_under_share_each_gate_has_the_sensitivity_of_its_share():
    """2 c/sum m at every node, however many rows it has."""
    files = {"synthetic": {"rows": 4, "features": 2}, "normalize": "unit-rows", "nodes": 3}
    setup = prepare(scenario_from(star({"problem.scale": "share", "problem.data": files, "privacy.adjacency": {
        "replace-one-record": {"clip": 0.7}}})))  # fmt: skip
    assert [lattice.sensitivity for lattice in setup.lattices] == pytest.approx(
        [2 * 0.7 / 12] * 3, rel=1e-3
    )  # and its grid
    assert pytest.approx([0.25 / 3 + 0.1] * 3) == setup.plan.problem.L


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"network": {"kind": "ring", "nodes": 4}}, "network: found a section, expected none"),
        ({"problem.regularizer": {"l1": 0.1}}, "problem.regularizer: found a value, expected none"),
        ({"problem.data.nodes": None}, "data.nodes: missing"),
        ({"privacy.mode": "input"}, "privacy.mode: found input, expected objective or output or output-projected"),
        ({"privacy.mode": "output"}, "privacy.mode: found output, expected objective"),
        ({"problem.l2": 0.0, "algorithm.eta": "2/(alpha(t+2))"}, "algorithm.eta: found a step of strong convexity"),
        ({"algorithm.variant": "published", "privacy.adjacency": {"bounded-change": 0.1}},
         "privacy.adjacency: found bounded-change 0.1, expected replace-one-record"),
        ({"algorithm": {"name": "consensus-admm", "rounds": 3}}, "algorithm.name: found consensus-admm"),
    ],
    ids=str,
)  # fmt: skip
def test_what_such_a_scenario_cannot_say_is_one_line(over, said):
    with pytest.raises(InputError) as refused:
        run(star(over))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_ring_still_needs_its_network():
    with pytest.raises(InputError, match="network: missing, expected a section"):
        run(scenario({"network": None}))


# --- published ---


@pytest.mark.runs
def test_output_perturbation_leaves_the_box_and_projected_it_does_not():
    """(3.4), which daemons refuse: it exists as variant published."""
    over = GAUSSIAN | TRAJECTORY | {"seed": 1, "privacy.epsilon": 0.5, "algorithm.variant": "published"}
    largest = {}
    for mode in ("objective", "output", "output-projected"):
        result = run(star(over | {"privacy.mode": mode, "algorithm.rho": 1.0}))
        assert result.privacy["upheld"] is False
        assert result.privacy["findings"][0].startswith("ladmm 2.")
        largest[mode] = max(np.max(np.abs(result.trajectory[f"z_n{i}"])) for i in range(4))
    assert largest["objective"] == largest["output-projected"] == 0.5
    assert largest["output"] > 0.5


@pytest.mark.runs
def test_in_a_slack_box_output_perturbation_is_objective_perturbation_of_the_same_sensitivity():
    """Remark 3.1: noise xi behind the step is noise -xi/gain on the gradient; (6.4) counts half of what a record
    moves.
    """
    over = GAUSSIAN | TRAJECTORY | {"seed": 1, "privacy.epsilon": 5.0, "algorithm.variant": "published"}
    over |= {"problem.box": 1e6, "algorithm.rho": 1.0, "algorithm.rounds": 1}
    found = {mode: run(star(over | {"privacy.mode": mode})) for mode in ("objective", "output")}
    quiet = run(star(NOT_PRIVATE | TRAJECTORY | {k: v for k, v in over.items() if k.startswith(("problem", "seed"))}
                     | {"algorithm": {"name": "ladmm", "rounds": 1, "rho": 1.0, "variant": "none"}}))  # fmt: skip
    by = {mode: one.trajectory["z_n2"] - quiet.trajectory["z_n2"] for mode, one in found.items()}
    assert np.allclose(by["output"], -2 * by["objective"], rtol=1e-9)


@pytest.mark.parametrize("clip", [0.05, 1.0])
def test_output_perturbation_clips_as_the_gate_does(clip):
    """Else it would be given a gradient that the gate's noise has no part of: with little noise both are near each
    other.
    """
    over = GAUSSIAN | TRAJECTORY | {"seed": 1, "privacy.epsilon": 1e6, "algorithm.rho": 1.0, "problem.box": 100.0}
    over |= {"privacy.adjacency": {"replace-one-record": {"clip": clip}}, "problem.scale": 4.0}
    at_the_gate = run(star(over)).trajectory
    output = run(star(over | {"algorithm.variant": "published", "privacy.mode": "output"})).trajectory
    for i in range(4):
        assert np.allclose(at_the_gate[f"z_n{i}"], output[f"z_n{i}"], atol=5e-3)
    assert np.max(np.abs(output["z_n0"])) > 1e-2
