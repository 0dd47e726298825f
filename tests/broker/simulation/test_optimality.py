"""An answer is called solved only if it is: the bound of its distance to the optimum, from released answers alone."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.recorders.answers import AnswerTrace, held, last_answers
from hushgrid.broker.simulation.recorders.base import Nothing
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.privacy.perturbation import spherical
from hushgrid.kernels.problems.optimality import CONFIDENCE, RELATIVE, NodeAnswers, noise_norm, of_answers
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.examples import examples
from hushgrid.lab.planning.choices import tuned_key
from hushgrid.node.privacy.gate import Answer
from hushgrid.node.problems.registry import KINDS

LAWS = {
    "gaussian": lambda rng, b, d: rng.normal(0, b, d),
    "laplace": lambda rng, b, d: rng.laplace(0, b, d),
    "spherical": lambda rng, b, d: spherical(d, 1 / b, rng.bytes)[0],
}
ROWS = {
    "kind": "logistic",
    "data": {"synthetic": {"rows": 60, "features": 3}, "normalize": "unit-rows"},
    "row_bound": 1.0,
    "l2": 0.1,
}
PRIVACY = {"mechanism": "gaussian", "delta": 1e-5, "adjacency": {"replace-one-record": {"clip": 1.0}}}
NAMES = sorted(
    n for kind in KINDS.values() if kind.records for n in kind.algorithms if "copies" in ALGORITHMS[n].sharing
)


def scenario(name, rounds, epsilon=None, keys=None, **problem):
    """A scenario of four nodes; without epsilon its answers are exact."""
    declared = ALGORITHMS[name]
    variant = "guarded" if epsilon else "none"
    star = declared.pattern == "star"
    rows = {**ROWS, **problem}
    rows |= {"data": {**rows["data"], "nodes": 4}} if star else {}
    turns = rounds * (4 if declared.pattern == "token" else 1)
    return {
        "hushgrid": 1, "name": "verdict", "problem": rows,
        "algorithm": {"name": name, "rounds": turns, "variant": variant,
                      **(examples(declared)[variant][0] if keys is None else keys)},
        **({} if star else {"network": {"kind": "ring", "nodes": 4}}),
        **({"privacy": PRIVACY | {"epsilon": epsilon}} if epsilon else {}),
    }  # fmt: skip


@pytest.mark.runs
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scales", [[1.0], [0.2, 1.0, 3.0], [0.5] * 12], ids=len)
def test_a_noise_passes_its_bound_no_more_often_than_is_said(law, scales):
    """2,000 sums at a chance of .05: a count above 138 has itself a chance below 1e-4."""
    rng, d, chance = np.random.default_rng(5), 4, 0.05
    bound = noise_norm(law, np.array(scales), d, chance)
    beyond = sum(np.linalg.norm(sum(LAWS[law](rng, b, d) for b in scales)) > bound for _ in range(2000))
    assert beyond <= 138


def quadratic(rng, n, K, sd, spread, centre, d=5):
    """Answers of nodes with f_i(x) = |x - c_i|^2/2, asked around `centre`."""
    c = rng.normal(size=(n, d))
    x = centre(c) + spread * rng.normal(size=(n, K, d))
    answers = x - c[:, None] + rng.normal(0, sd, x.shape)
    zero = np.zeros(K)
    return c, [NodeAnswers(answers[i, 0], x[i], answers[i], np.full(K, sd), zero, zero, zero, 1.0) for i in range(n)]


@pytest.mark.parametrize(("sd", "spread"), [(0.0, 0.0), (0.02, 0.0), (0.0, 0.02), (0.3, 0.1)])
@pytest.mark.parametrize("far", [0.0, 0.03, 0.5])
def test_the_optimum_is_within_the_bound(sd, spread, far):
    rng, solved = np.random.default_rng(3), 0
    for _ in range(50):
        shift = far * rng.normal(size=5)
        c, nodes = quadratic(rng, 4, 32, sd, spread, lambda c, shift=shift: c.mean(axis=0) + shift)
        best = c.mean(axis=0)
        found = of_answers(best + shift, nodes, "gaussian", 1.0, Regularizer())
        relative = np.linalg.norm(shift) / np.linalg.norm(best)
        assert relative <= found.relative + 1e-12
        assert not found.solved or relative <= RELATIVE
        assert found.gap >= np.linalg.norm(shift) ** 2 / 2 - 1e-12
        solved += found.solved
    if sd == spread == far == 0:
        assert solved == 50


@pytest.mark.parametrize("r", [Regularizer(l1=0.3), Regularizer(box=0.2), Regularizer(l1=0.1, l2=0.5, box=0.4)])
@pytest.mark.parametrize("far", [0.0, 0.01, 0.4])
def test_kinks_of_the_regularizer_and_the_box_keep_the_bound(r, far):
    """argmin |x - c|^2/2 + r(x) is the prox of r at c."""
    rng = np.random.default_rng(4)
    for _ in range(50):
        c = rng.normal(size=5)
        best, zero = r.prox(c, 1.0), np.zeros(1)
        x = best + far * rng.normal(size=5)
        node = NodeAnswers(x - c, x[None], (x - c)[None], zero, zero, zero, zero, 1.0)
        found = of_answers(x, [node], "none", 1.0, r)
        size = np.linalg.norm(best)
        assert np.linalg.norm(x - best) <= found.relative * size + 1e-12 or found.relative == inf
        assert not found.solved or np.linalg.norm(x - best) <= RELATIVE * size + 1e-12
        if far == 0:
            assert found.solved


@pytest.mark.runs
@pytest.mark.parametrize("name", NAMES)
def test_no_algorithm_is_called_solved_far_from_the_optimum(name):
    """Too few rounds, and a step far too small where it has one: nodes agree, about nothing."""
    declared = ALGORITHMS[name]
    for epsilon in (None, 100.0, 1e6):
        found = run(scenario(name, 3, epsilon), seed=1)
        assert found.quality.verdict != "agreed"
        assert found.quality.verdict != "solved" or found.relative_error <= RELATIVE
        if tuned_key(declared) == "step_size" and epsilon:
            slow = run(scenario(name, 3, epsilon, {**examples(declared)["guarded"][0], "step_size": 1e-4}), seed=1)
            assert slow.quality.verdict != "solved" or slow.relative_error <= RELATIVE


@pytest.mark.runs
@pytest.mark.parametrize("name", ["nids", "iadmm", "fedavg"])
def test_an_answer_that_is_near_is_solved_with_and_without_noise(name):
    """The power of the test: a run that is within 1 % at a noise that allows it is told so."""
    for epsilon in (None, 1e5):
        found = run(scenario(name, 60, epsilon), seed=1)
        assert found.relative_error < 0.01
        assert found.quality.verdict == "solved"
        assert found.quality.bound.relative_error <= RELATIVE
        assert found.quality.bound.confidence == (CONFIDENCE if epsilon else 1.0)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_solved_is_never_said_above_the_stated_error_over_steps_and_rounds(name):
    declared, false = ALGORITHMS[name], []
    steps = [{}] + ([{tuned_key(declared): 10.0**-k} for k in range(5)] if tuned_key(declared) else [])
    for step in steps:
        for rounds in (3, 10, 30, 100, 300):
            for epsilon in (None, 1.0, 100.0, 1e4, 1e6):
                keys = {**examples(declared)["guarded" if epsilon else "none"][0], **step}
                try:
                    found = run(scenario(name, rounds, epsilon, keys), seed=rounds)
                except HushgridError:  # a step that is refused, or that leaves all bounds
                    continue
                if found.quality.verdict == "solved" and found.relative_error > RELATIVE:
                    false.append((step, rounds, epsilon, found.relative_error))
    assert not false


def test_records_that_may_be_clipped_are_said_to_be():
    plain = run(scenario("nids", 5, 10.0), seed=1)
    raw = scenario("nids", 5, 10.0)
    raw["privacy"] = raw["privacy"] | {"adjacency": {"replace-one-record": {"clip": 0.5}}}
    assert not plain.quality.bound.clipped
    assert run(raw, seed=1).quality.bound.clipped


@pytest.mark.runs
def test_a_masked_run_is_tested_by_its_sums_alone(monkeypatch):
    """No device's own answer is taken down: only the coordinator's means are."""
    raw = scenario("fedavg", 60, 1e5)
    raw["privacy"] = raw["privacy"] | {"accountant": "gdp", "masked": {"corrupt": 1}}
    wrote, take = set(), AnswerTrace.take
    monkeypatch.setattr(AnswerTrace, "take", lambda trace, answer: wrote.add(trace.name) or take(trace, answer))
    found = run(raw, seed=1)
    assert wrote == {"coordinator"}
    assert found.quality.verdict == "solved"
    assert found.relative_error <= found.quality.bound.relative_error <= RELATIVE


def test_the_trace_has_the_first_answer_and_a_ring_of_the_last(tmp_path):
    trace = AnswerTrace(Nothing(), tmp_path, "n0")
    for no in range(1, 201):
        trace.take(Answer(no, np.full(3, 1.0 * no), np.full(3, -1.0 * no), 0.5, 0.0))
    trace.close()
    seen = last_answers(tmp_path, "n0", 3, 1.0)
    assert seen.first.tolist() == [-1.0] * 3
    assert seen.x[:, 0].tolist() == list(range(201 - held(3), 201))
    assert last_answers(tmp_path, "n1", 3, 1.0) is None
