"""What every registered algorithm must be, whatever it is called: read from its own declaration, tried on its own
examples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from msgspec import inspect as mi
from msgspec.structs import replace

from hushgrid.broker.report.claims import claim_of
from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.algorithms.base import Algorithm, Keys, Variant, gated, message_vectors
from hushgrid.kernels.algorithms.consensus_admm import CLOSING
from hushgrid.kernels.algorithms.registry import ALGORITHMS, variants
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.lab.examples import examples as short_examples
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.problems.registry import KINDS
from hushgrid.node.wire import COORDINATOR
from tests.support.daemons.small_daemons import spends_by_run
from tests.support.runs import background_run
from tests.support.runs.report_pages import Page
from tests.support.scenarios import record_scenarios
from tests.support.scenarios.guarded_scenarios import sums

# --- Every registered algorithm, by the examples that it declares, as small seeded scenarios of the kind of problem ---

Raw = dict[str, Any]
ROUNDS = {"star": 4, "token": 12, "neighbours": 6}  #: three a node where a token walks around the ring
#: Of three features: no gradient of a row within 1 is longer than sqrt(3) in L1, so that nothing is clipped.
UNCLIPPED = {"privacy.adjacency": {"replace-one-record": {"clip": 2.0}}}
#: A small guarded scenario of each kind of problem, and how near two runs of it come that differ in rounding alone: a
#: solver of convex programs stops at its own tolerance.
SMALL: dict[str, tuple[Raw, float]] = {
    "data": (record_scenarios.scenario(UNCLIPPED), 1e-9),
    "statistics": (sums(), 1e-9),
    "zones": (background_run.scenario({"problem.case": "case5", "problem.zones": 2}), 1e-5),
}


class Example(NamedTuple):
    """One example that an algorithm declares."""

    kind: Kind
    declared: type[Algorithm]
    name: str
    variant: Variant
    keys: Keys

    @property
    def tolerance(self) -> float:
        """How near two runs come that differ in rounding alone, relative to the largest number."""
        return SMALL[self.kind.name][1]

    def scenario(self, over: Mapping[str, Any] | None = None, **more: Any) -> Raw:
        """As a scenario. `over`: dotted key paths to values."""
        small = SMALL[self.kind.name][0]
        rounds = ROUNDS[self.declared.pattern]
        raw: Raw = small | {"seed": 3, "run": {"record": "trajectory"}}
        raw["algorithm"] = {"name": self.name, "variant": self.variant, "rounds": rounds} | dict(self.keys)
        private = small["privacy"] | {"epsilon": 20.0 * rounds}
        if "objective" not in self.declared.modes:
            private |= {"mode": self.declared.modes[0]}
        published = self.declared.published if self.variant == "published" else None
        if published and "laplace" not in published.mechanisms:
            private |= {"mechanism": "gaussian", "delta": 1e-5}
        if self.declared.modes == ("input",):  # the AC step at the end is a process of its own
            raw["problem"] = raw["problem"] | {"ac": "none"}
        network = small.get("network")
        if network is not None and self.declared.pattern == "star":
            raw["problem"] = raw["problem"] | {"data": raw["problem"]["data"] | {"nodes": network["nodes"]}}
            network = None
        unclaimed = self.variant == "none" or (published is not None and published.source == "scales")
        return record_scenarios.scenario(
            {**raw, "network": network, "privacy": None if unclaimed else private} | dict(over or {}),
            **more,
        )

    def setup(self, over: Mapping[str, Any] | None = None) -> Setup:
        return prepare(scenario_from(self.scenario(over)))


def without_noise(algorithm: Algorithm) -> Algorithm:
    """The same updates with exact answers: a guarded run whose noise is zero."""
    pinned: dict[str, Any] = {}  # keys whose default depends on the variant
    if "update" in algorithm.__struct_fields__:
        pinned["update"] = "exact" if algorithm.exact else "first-order"
    if "penalties" in algorithm.__struct_fields__:
        pinned["penalties"] = "edge" if algorithm.of_edges else "node"
    return replace(algorithm, variant="none", **pinned)


def examples(of: Iterable[Variant] = ("guarded", "published", "none")) -> dict[str, Example]:
    """By a name that a test's parameter can have."""
    found = {}
    for kind in KINDS.values():
        for name in kind.algorithms:
            declared = ALGORITHMS[name]
            known = short_examples(declared)
            for variant in variants(declared):
                for k, keys in enumerate(known[variant] if variant in tuple(of) else ()):
                    on = f", {kind.name}" if len(declared.sharing) > 1 else ""
                    label = f"{name} {variant}{f' {k + 1}' if k else ''}{on}"
                    found[label] = Example(kind, declared, name, variant, keys)
    return found


# --- the tests ---

EVERY = examples()
GUARDED = examples(["guarded"])
FAULTS = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.3, "crash": 0.03, "seed": 1}


class Quiet(NamedTuple):
    """An undisturbed run."""

    setup: Setup
    result: Result
    out: Path  #: what it has written: report.html
    ledgers: Path  #: of its nodes


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The undisturbed run of each example, made when it is asked for."""
    known = {}

    def of(label):
        if label not in known:
            out, ledgers = tmp_path_factory.mktemp("out") / "run", tmp_path_factory.mktemp("ledgers")
            example = EVERY[label]
            known[label] = Quiet(example.setup(), run(example.scenario(), out=out, state=ledgers), out, ledgers)
        return known[label]

    return of


def test_every_kind_of_problem_has_a_small_one_and_every_algorithm_solves_one():
    assert set(SMALL) == set(KINDS)
    assert {name for kind in KINDS.values() for name in kind.algorithms} == set(ALGORITHMS)
    assert {(e.name, e.variant) for e in EVERY.values()} >= {
        (name, v) for name in ALGORITHMS for v in ("guarded", "none")
    }


# --- noise ---


@pytest.mark.runs
@pytest.mark.parametrize("label", GUARDED)
def test_a_guarded_run_with_noise_zero_on_no_grid_is_the_run_without_noise(label, monkeypatch):
    """Up to the rounding of a clipped gradient, which is summed in another order than an exact one."""
    example = GUARDED[label]
    setup = example.setup()
    plain = json.loads(msgspec.json.encode(without_noise(setup.plan.algorithm)))
    exact = run(example.scenario({"algorithm": plain, "privacy": None}))
    solve = Minimizer.__call__
    monkeypatch.setattr(SeededNoise, "take", lambda self, lattice, size, answer: np.zeros(size, dtype=np.int64))
    monkeypatch.setattr(
        SeededNoise, "perturbation", lambda self, p, d, k: (np.zeros(d), np.zeros(1), np.zeros(d, dtype=np.int64))
    )
    monkeypatch.setattr(Lattice, "release", lambda lattice, v, n: v)
    monkeypatch.setattr(Minimizer, "__call__", lambda self, v, quadratic, **_: solve(self, v, quadratic))
    bare = run(example.scenario())
    assert exact.trajectory.keys() == bare.trajectory.keys()
    for key, found in bare.trajectory.items():
        scale = max(float(np.max(np.abs(exact.trajectory[key]))), 1.0)
        assert np.max(np.abs(found - exact.trajectory[key])) <= example.tolerance * scale, key


@pytest.mark.runs
@pytest.mark.parametrize("label", GUARDED)
def test_a_guarded_run_has_the_noise_of_its_gates_in_its_answer(label, quiet):
    """That the comparison above can fail."""
    example, noisy = GUARDED[label], quiet(label).result
    plain = json.loads(msgspec.json.encode(without_noise(quiet(label).setup.plan.algorithm)))
    exact = run(example.scenario({"algorithm": plain, "privacy": None}))
    key = next(k for k in exact.solution if not k.startswith("keys"))
    assert np.max(np.abs(exact.solution[key] - noisy.solution[key])) > example.tolerance


# --- faults ---


@pytest.mark.runs
@pytest.mark.parametrize("label", EVERY)
def test_loss_repetition_reordering_and_crashes_keep_the_bits(label, quiet):
    disturbed = run(EVERY[label].scenario({"run.faults": FAULTS}))
    background_run.assert_same_bits(quiet(label).result, disturbed)


# --- answers ---


@pytest.mark.runs
@pytest.mark.parametrize("label", EVERY)
def test_each_ledger_shows_as_many_spends_as_the_algorithm_declares(label, quiet):
    setup, result, _, ledgers = quiet(label)
    algorithm, terms, nodes = setup.plan.algorithm, setup.plan.terms, setup.plan.nodes
    if algorithm.pattern == "token":
        visited = np.bincount(result.trajectory["active"], minlength=len(nodes)).tolist()
        caps = setup.plan.caps
        declared = [min(found, cap) for found, cap in zip(visited, caps or visited, strict=True)]
        assert sum(visited) == algorithm.rounds
        assert terms is None or caps == setup.plan.problem.visits(algorithm, False)
    else:
        each = algorithm.capped(None, algorithm.modes[0], 0)[0]
        declared = [each] * len(nodes)
        assert terms is None or terms.answers == each
    found = [spends_by_run(ledgers / f"{name}.ledger") for name in nodes]
    assert [sum(each.values()) for each in found] == declared
    assert max(declared) > 0


@pytest.mark.runs
@pytest.mark.parametrize("label", [label for label in EVERY if ALGORITHMS[label.split()[0]].pattern == "token"])
def test_no_step_bound_of_a_walk_is_tighter_for_fewer_nodes(label, quiet):
    """After a recount the problem has fewer nodes: what was checked at the start holds for every part of them."""
    plan = quiet(label).setup.plan
    algorithm, (L, degree) = plan.algorithm, plan.problem.constants
    whole = algorithm.step_ratio(L, degree)
    for count in range(2, len(L)):
        for some in combinations(L, count):
            part = algorithm.step_ratio(some, min(degree, count - 1))
            assert (part is None and whole is None) or part <= whole


# --- what is recorded ---


def shapes(setup):
    """{name: shape} of a trajectory, by the declaration alone."""
    a, n, shape = setup.plan.running, len(setup.plan.nodes), setup.shape
    d, T = shape.size, a.rounds
    match a.pattern:
        case "star":
            own = {f"z_{p}": (T, shape.own_sizes[p]) for p in shape.own_sizes}
            shared = {f"{key}_{p}": (T, shape.shared[p].size) for key in a.recorded[1:] for p in shape.own_sizes}
            return {"w": (T, d)} | own | shared
        case "token":
            own = dict.fromkeys(a.recorded, (T, d))
            return {"active": (T,)} | dict.fromkeys(a.token, (T + 1, d)) | own
        case _:
            own = dict.fromkeys(a.recorded, (T + 1, n, d))
            said = (T + 1, n, d) if a.recorded[0] != "x" else (T, n, a.message_vectors * d)
            assert len(a.recorded_messages) <= a.messages
            return own | dict.fromkeys(a.recorded_messages, said)


@pytest.mark.runs
@pytest.mark.parametrize("label", EVERY)
def test_what_is_recorded_is_what_is_declared_and_as_wide(label, quiet):
    setup, result, *_ = quiet(label)
    plan, d = setup.plan, setup.shape.size
    assert {key: value.shape for key, value in result.trajectory.items()} == shapes(setup)
    assert result.rounds_done == plan.running.rounds
    n = len(plan.nodes)
    if plan.algorithm.pattern == "neighbours":
        assert result.history["messages"] == [n * plan.algorithm.messages] * result.rounds_done
    elif plan.algorithm.pattern == "token":
        assert result.messages == result.rounds_done - 1  # the last token is not sent on
    else:
        closing = 2 * n * (CLOSING if plan.algorithm.asks() == "data" else 0)  # behind the last round
        assert result.history["messages"] == [*[2 * n] * (result.rounds_done - 1), 2 * n + closing]
        return
    assert {key: v.shape for key, v in result.solution.items()} == dict.fromkeys(
        ["x", *(f"x_{p}" for p in plan.nodes)], (d,)
    )
    assert result.bytes > 8 * d * message_vectors(plan.algorithm) * result.messages


WRONG = {
    "recorded": lambda declared: (*declared.recorded, "undeclared"),
    "token": lambda declared: (*declared.token, "undeclared"),
    "message_vectors": lambda declared: declared.message_vectors + 1,
    "messages": lambda declared: declared.messages + 1,
}
WRONGLY = [(label, key) for label, e in GUARDED.items() for key in WRONG if hasattr(e.declared, key)]


@pytest.mark.parametrize(("label", "key"), WRONGLY)
def test_another_width_than_the_declared_one_is_refused_in_one_line(label, key, monkeypatch, tmp_path):
    example = GUARDED[label]
    monkeypatch.setattr(example.declared, key, WRONG[key](example.declared))
    with pytest.raises(InputError, match=rf"^algorithm {example.name}: .*found .*expected .*declared") as refused:
        run(example.scenario(), out=tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_coordinator_declares_what_it_records_too():
    for example in GUARDED.values():
        setup = example.setup()
        assert bool(setup.widths(COORDINATOR)) == (example.declared.pattern == "star")


# --- the report ---

ASKED = {
    "gradient": r"Each answer is a gradient|fresh noisy copy of the loads|gradient",
    "minimiser": r"Each answer is a private minimiser",
    "data": r"perturbed once",
    "statistic": r"Each node has answered once",
}


@pytest.mark.runs
@pytest.mark.parametrize("label", EVERY)
def test_the_report_renders_and_names_the_algorithm_its_pattern_and_what_is_asked(label, quiet):
    setup, _, out, _ = quiet(label)
    text = Page((out / "report.html").read_text()).text.split("Scenario, resolved")[0]
    algorithm = setup.plan.algorithm
    own = {"star": "around a coordinator", "token": "handing on a token", "neighbours": "among neighbours"}
    assert algorithm.title in text
    assert own[algorithm.pattern] in text
    if algorithm.variant == "none":
        assert re.search("Not private: this is the plain (optimiser|sum);", text)
    elif gated(algorithm):
        assert re.search(ASKED[algorithm.asks(setup.plan.privacy.mode)], text)
        assert bool(re.search(ASKED["minimiser"], text)) == (algorithm.asks() == "minimiser")
    else:
        assert "Privacy claim not upheld: " in text
        assert claim_of(algorithm).noise(algorithm, setup.plan.privacy.mode if setup.plan.privacy else "") in text


# --- a plan's limits ---


def numbers(type_):
    """The types of numbers in a field's type."""
    if isinstance(type_, mi.Metadata):
        type_ = type_.type
    if isinstance(type_, mi.IntType | mi.FloatType):
        return [type_]
    inner = getattr(type_, "types", ()) or getattr(type_, "item_types", ()) or ()
    inner = [*inner, *([type_.item_type] if hasattr(type_, "item_type") else [])]
    return [found for t in inner for found in numbers(t)]


def beyond(type_):
    """A number below the range, and one above."""
    assert (type_.ge, type_.gt) != (None, None), "a number of a plan without a least value"
    assert (type_.le, type_.lt) != (None, None), "a number of a plan without a largest value"
    low, high = (v if v is not None else w for v, w in ((type_.ge, type_.gt), (type_.le, type_.lt)))
    return [low - 1, high + 1 if isinstance(type_, mi.IntType) else 2 * high + 1]


LIMITED = [
    (label, field.name, value)
    for label, example in GUARDED.items()
    for field in mi.type_info(example.declared).fields
    for type_ in numbers(field.type)
    for value in beyond(type_)
]


@cache
def written(label):
    """An example's plan as it is sent."""
    return encode_plan(GUARDED[label].setup().plan)


@pytest.mark.parametrize(("label", "key", "value"), LIMITED)
def test_a_plan_with_a_number_out_of_its_range_is_refused_when_it_is_read(label, key, value):
    raw = json.loads(written(label))
    decode_plan(json.dumps(raw).encode())
    raw["algorithm"][key] = value
    with pytest.raises(InputError, match=rf"^plan: .*\balgorithm\.{key}\b") as refused:
        decode_plan(json.dumps(raw).encode())
    assert "\n" not in str(refused.value)
