"""Scenarios of data problems: their defaults; each error one line with file, key path, found and expected."""

from contextlib import suppress
from math import inf

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.terms import terms
from tests.support import examples
from tests.support.scenarios.scenario_texts import DELETE, SCENARIO, changed, failure, values

ROWS = """\
hushgrid: 1
name: sensors
problem: {kind: logistic, data: {synthetic: {rows: 5, features: 3}}, row_bound: 1.0}
network: {kind: ring, nodes: 4}
algorithm: {name: recal, rounds: 20}
privacy: {adjacency: {replace-one-record: {clip: 1.0}}, epsilon: 5.0}
"""
CYCLE = ROWS.replace("name: recal", "name: iadmm, rho: 1.0")


def test_the_least_data_scenario_has_the_defaults_of_the_contract():
    s = scenario_from(yaml.safe_load(ROWS))
    a, f = s.algorithm, s.problem
    assert (a.variant, a.alpha, a.beta, a.walk, a.decay) == ("guarded", None, None, "random", None)
    assert (a.alpha_i(0, 3.0), a.beta_n(4)) == (1 / 4, 1 / 10)
    assert (f.objective.scale, f.objective.l2, f.objective.nonconvex, f.row_bound) == (1.0, 0.0, None, 1.0)
    assert (f.r.l1, f.r.l2, f.r.box) == (0.0, 0.0, inf)
    assert (f.data.split, f.data.normalize, f.data.nodes) == ("even", None, None)
    a = scenario_from(yaml.safe_load(CYCLE)).algorithm
    assert (a.walk, a.start, a.exact, a.gamma, a.noise_sd) == ("hamiltonian", "zeros", False, None, None)
    raw = changed(CYCLE, algorithm__variant="none", privacy=DELETE)
    assert scenario_from(raw).algorithm.exact
    raw["algorithm"]["name"] = "wadmm"
    assert scenario_from(raw).algorithm.walk == "random"


def test_a_nonconvex_terms_omega_is_1_unless_it_is_said():
    s = scenario_from(changed(ROWS, problem__nonconvex={"lambda": 0.001}))
    assert (s.problem.objective.lam, s.problem.objective.omega) == (0.001, 1.0)


PUBLISHED = {"algorithm__variant": "published", "privacy": DELETE}


@pytest.mark.parametrize(
    ("text", "over", "line"),
    [
        (
            ROWS,
            {"problem__colour": 1},
            "problem.colour: unknown key, expected one of kind, data, scale, l2, nonconvex, regularizer, box, "
            "row_bound",
        ),
        (ROWS, {"problem__classes": 3}, "problem.classes: unknown key, expected one of kind, data, scale,"),
        (ROWS, {"problem__data": DELETE}, "problem.data: missing, expected a value"),
        (ROWS, {"problem__data__synthetic__rows": 0}, "problem.data.synthetic.rows: found 0, expected int >= 1"),
        (ROWS, {"problem__data__split": "odd"}, "problem.data.split: found 'odd', expected"),
        (
            ROWS,
            {"problem__data__normalize": "rows"},
            "problem.data.normalize: found 'rows', expected one of 'unit-rows'",
        ),
        (ROWS, {"problem__scale": 0}, "problem.scale: found 0, expected float >= 1e-12"),
        (ROWS, {"problem__l2": -1}, "problem.l2: found -1, expected float >= 0.0"),
        (ROWS, {"problem__box": 0}, "problem.box: found 0, expected float >= 1e-12"),
        (ROWS, {"problem__nonconvex": {"omega": 1.0}}, "problem.nonconvex.lambda: missing, expected a value"),
        (ROWS, {"problem__nonconvex": {"lambda": -1.0}}, "problem.nonconvex.lambda: found -1.0, expected float >= 0.0"),
        (
            ROWS,
            {"problem__nonconvex": {"lambda": 1.0, "omega": 0.0}},
            "problem.nonconvex.omega: found 0.0, expected float >= 1e-12",
        ),
        (ROWS, {"problem__regularizer": {"l3": 1}}, "problem.regularizer.l3: unknown key, expected one of l1, l2"),
        (ROWS, {"problem__regularizer": {"l1": -1}}, "problem.regularizer.l1: found -1, expected float >= 0.0"),
        (ROWS, {"problem__row_bound": 0}, "problem.row_bound: found 0, expected float >= 1e-12"),
        (
            ROWS,
            {"problem__row_bound": DELETE},
            "problem.row_bound: missing, expected R >= |a|_2 of every row (variant: guarded)",
        ),
        (
            ROWS,
            {"problem__kind": "softmax"},
            "problem.classes: missing, expected the number of classes (variant: guarded)",
        ),
        (ROWS, {"network": DELETE}, "network: missing, expected a section (problem.kind: logistic)"),
        (ROWS, {"network__kind": "torus"}, "network.kind: found 'torus', expected one of 'ring', 'path'"),
        (ROWS, {"network__nodes": 1}, "network.nodes: found 1, expected int >= 2"),
        (ROWS, {"network__nodes": 20_000}, "network.nodes: found 20000, expected int <= 10000"),
        (
            SCENARIO,
            {"network": {"kind": "ring", "nodes": 3}},
            "network: found a section, expected none (zones bring their own graph)",
        ),
        (
            SCENARIO,
            {"algorithm__name": "recal"},
            "algorithm.name: found recal, expected consensus-admm or ladmm (problem.kind: zones)",
        ),
        (ROWS, {"algorithm__name": "consensus-admm"}, "algorithm.name: found consensus-admm, expected admm or "),
        (ROWS, {"algorithm__rounds": 10**9}, "algorithm.rounds: found 1000000000, expected int <= 10000000"),
        (
            ROWS,
            {"algorithm__rho": 1.0},
            "algorithm.rho: unknown key, expected one of name, variant, rounds, alpha, beta, walk, decay",
        ),
        (ROWS, {"algorithm__alpha": 0}, "algorithm.alpha: found 0, expected"),
        (ROWS, {"algorithm__alpha": [0.1, 0.0]}, "algorithm.alpha[1]: found 0.0, expected"),
        (
            ROWS,
            {"algorithm__walk": "cycle"},
            "algorithm.walk: found 'cycle', expected one of 'random', 'metropolis', 'hamiltonian'",
        ),
        (ROWS, {"algorithm__walk": [0, -1]}, "algorithm.walk[1]: found -1, expected int >= 0"),
        (ROWS, {"algorithm__decay": 2.0}, "algorithm.variant: found guarded, expected published with decay"),
        (CYCLE, {"algorithm__rho": DELETE}, "algorithm.rho: missing, expected a value"),
        (CYCLE, {"algorithm__rho": 0}, "algorithm.rho: found 0, expected float >= 1e-09"),
        (CYCLE, {"algorithm__alpha": 1.0}, "algorithm.alpha: unknown key, expected one of name, variant, rounds, rho,"),
        (
            CYCLE,
            {"algorithm__start": {"uniform": [1.0, 0.0]}},
            "algorithm.start.uniform: found [1.0, 0.0], expected [low, high]",
        ),
        (
            CYCLE,
            {"algorithm__gamma": [1.0, 2.0]},
            "algorithm.variant: found guarded, expected published with gamma or noise_sd",
        ),
        (
            CYCLE,
            {"algorithm__gamma": [2.0, 1.0]} | PUBLISHED,
            "algorithm.gamma: found [2.0, 1.0], expected [low, high]",
        ),
        (
            CYCLE,
            {"algorithm__gamma": [1.0, 2.0], "algorithm__noise_sd": 1.0} | PUBLISHED,
            "algorithm: found gamma (PI-ADMM1) and noise_sd (PI-ADMM2), expected one",
        ),
        (
            CYCLE,
            {"problem__regularizer": {"l1": 1.0}},
            "problem.regularizer: found a value, expected none (iadmm minimises sum_i f_i(x)",
        ),
        (CYCLE, {"problem__box": 1.0}, "problem.box: found a value, expected none (iadmm minimises sum_i f_i(x)"),
        (
            CYCLE,
            {"algorithm__variant": "published"},
            "privacy: found a privacy section, expected none (published iadmm",
        ),
        (
            ROWS,
            {"privacy": DELETE},
            "privacy: found nothing, expected a privacy section (variant guarded), or algorithm.variant: none",
        ),
        (
            ROWS,
            {"algorithm__variant": "none"},
            "privacy: found a privacy section, expected none (algorithm.variant: none)",
        ),
        (
            ROWS,
            {"algorithm__variant": "published"},
            "privacy.mechanism: found laplace, expected gaussian (published recal)",
        ),
        (
            ROWS,
            {"privacy__adjacency": {}},
            "privacy.adjacency: found {}, expected replace-one-record or bounded-change",
        ),
        (ROWS, {"privacy__adjacency__bounded-change": 1.0}, "privacy.adjacency: found two adjacencies, expected one"),
        (
            ROWS,
            {"privacy__adjacency__replace-one-record": {"clip": 0}},
            "privacy.adjacency.replace-one-record.clip: found 0, expected float >= 1e-12",
        ),
        (ROWS, {"privacy__mode": "input"}, "privacy.mode: found input, expected objective (algorithm.name: recal)"),
        (ROWS, {"privacy__at": "gradient"}, "privacy.at: found gradient, expected none (it is for zones)"),
        (
            ROWS,
            {"privacy__budget": {"epsilon": 1, "adjacency": {"bounded-change": 1}}},
            "privacy.budget.adjacency: found bounded-change 1.0, expected replace-one-record, the run's own",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)
def test_each_error_of_a_data_scenario_is_one_line_with_its_key_path(text, over, line):
    assert failure(changed(text, **over)).startswith(line)


PATHS = [
    "network",
    "network__kind",
    "network__nodes",
    "network__edges",
    "problem",
    "problem__data",
    "problem__data__synthetic",
    "problem__data__split",
    "problem__data__files",
    "problem__data__label",
    "problem__nonconvex",
    "problem__regularizer",
    "problem__box",
    "problem__row_bound",
    "algorithm__alpha",
    "algorithm__walk",
    "algorithm__start",
    "algorithm__gamma",
    "algorithm__decay",
    "algorithm__variant",
    "privacy__adjacency",
    "privacy__mechanism",
]


@pytest.mark.runs
@examples.of(300)
@given(st.sampled_from([ROWS, CYCLE]), st.sampled_from(PATHS), values)
def test_any_value_in_any_place_raises_an_input_error_or_nothing(text, path, value):
    with suppress(InputError):
        s = scenario_from(changed(text, **{path: value}), "f")
        terms(s.privacy, s.algorithm, visits=5)
