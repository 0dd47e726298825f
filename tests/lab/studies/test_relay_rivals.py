"""All methods of the RECAL paper's Tables IV and V, on a small problem: what each asks, sends, costs and takes."""

from itertools import islice
from math import inf, sqrt

import numpy as np
import pytest

from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.lab.studies.papers.relay_figures import digits
from hushgrid.lab.studies.problems.relay import PENALTIES, of_images
from hushgrid.lab.studies.relay import private
from hushgrid.lab.studies.relay import rivals as study
from hushgrid.lab.studies.relay.rivals import METHODS, NEIGHBOURS, RECAL, RWADMM, GridPoint

BY_GRADIENTS = [m for m in METHODS if not (m in NEIGHBOURS and NEIGHBOURS[m].minimises)]
BY_MINIMISERS = [m for m in METHODS if m not in BY_GRADIENTS]


def problem(kind, penalty="ridge"):
    return of_images("digits", digits(), kind, PENALTIES[penalty])


@pytest.fixture
def short(monkeypatch):
    """A walk of 80 activations, 10 rounds of the others, one point a grid, one seed."""
    monkeypatch.setattr(private, "ACTIVATIONS", 80)
    monkeypatch.setattr(study, "SEEDS", (1,))
    for name, method in NEIGHBOURS.items():
        monkeypatch.setitem(NEIGHBOURS, name, method._replace(PLF=10))
    monkeypatch.setattr(
        study, "grid", lambda method, noise: [GridPoint(0.1, R=1.0) if noise == "published" else AT_GATE]
    )


AT_GATE = GridPoint(0.5, T=3, clip=1.0)


@pytest.mark.parametrize("R", [1.0, 1.02])
def test_the_published_noise_of_a_rival_costs_the_budget_of_theorem_4_for_gradients_that_move_by_2c(R):
    p = problem("logistic")
    sd = private.attenuated((2 / private.budget(12.0)) ** 0.5, R, 300)
    assert np.sum(2**2 / (2 * sd**2)) == pytest.approx(private.budget(12.0))
    drawn = np.array(list(islice(study.claimed_noise(p, 12.0, R, 300, 0, 0), 300)))
    assert np.std(drawn / sd[:, None]) == pytest.approx(1.0, rel=0.03)  # four of 300 * 64 draws' own deviations: 0.02


@pytest.mark.parametrize("method", BY_GRADIENTS)
def test_at_the_gate_each_agent_answers_T_times_and_the_whole_run_costs_at_most_epsilon(method):
    outcome = study.once(problem("least-squares"), method, "gate", AT_GATE, 1)
    assert outcome.PLF == 3
    answers = 2 if method == "NIDS [28]" else 3  # the last of NIDS's rounds asks nothing
    mu = private.terms(12.0, private.DELTA, 3, 1.0).per_answer
    assert outcome.honest == pytest.approx(gdp_epsilon(sqrt(answers) * mu, private.DELTA), rel=1e-6)
    assert outcome.honest <= 12.0
    assert outcome.sent == 2 * 8 * 3  # the token's two vectors, or one to each of two neighbours
    assert outcome.seconds > 0


@pytest.mark.parametrize("method", BY_MINIMISERS)
def test_a_minimisers_gate_answers_for_logistic_regression_on_rows_of_length_one(method):
    outcome = study.once(problem("logistic"), method, "gate", AT_GATE, 1)
    assert 11.5 < outcome.honest <= 12.0
    assert outcome.sent == 2 * 8 * 3 * (1 + NEIGHBOURS[method].make(3, "none", 1.0, 1.0).recycles)


@pytest.mark.parametrize("method", BY_MINIMISERS)
def test_in_least_squares_a_minimiser_is_refused_and_the_line_says_why(method, short):
    line = study.measure(problem("least-squares"), method, "gate")
    assert (line.error, line.curve) == (inf, None)
    assert "found least-squares, expected logistic" in line.chosen


@pytest.mark.runs
def test_RECAL_here_is_RECAL_there(monkeypatch):
    """Machine by machine as compiled, with the published noise, and at the gate."""
    monkeypatch.setattr(private, "ACTIVATIONS", 200)
    p = problem("least-squares")
    here = study.once(p, RECAL, "published", GridPoint(1.0, R=1.02), 3)
    assert np.allclose(here.x, private.walked(p, 3, private.published_noise(p, 12.0, 1.02, 3)), rtol=0, atol=1e-10)
    gate = study.once(p, RECAL, "gate", AT_GATE, 3)
    x, cost = private.guarded(p, "RECAL", private.terms(12.0, private.DELTA, 3, 1.0), 0.5, 3)
    assert np.allclose(gate.x, x, rtol=0, atol=1e-12)
    assert gate.honest == cost


@pytest.mark.parametrize("method", METHODS)
def test_a_line_ends_where_its_curve_does(short, method):
    line = study.measure(problem("logistic"), method, "published")
    assert line.curve.error[-1] == line.error == line.low == line.high
    assert line.curve.accuracy[-1] == line.accuracy
    assert line.curve.sent[-1] == line.sent
    assert (10 if method in NEIGHBOURS else max(np.bincount(private.ring_walk(1)))) == line.PLF
    assert study.table("", [line]).rows[0][1] == method


def test_without_noise_gradients_at_the_grids_steps_approach_the_optimum():
    """Ten thousandths of the noise's epsilon make the noise negligible, and so the methods themselves are seen."""
    p = problem("least-squares")
    for method in BY_GRADIENTS:
        step = {RECAL: 1.0, RWADMM: 2.0, "DGD": 0.1}.get(
            method, NEIGHBOURS[method].private[0] if method in NEIGHBOURS else 0
        )
        last = study.once(p, method, "published", GridPoint(step), 1, epsilon=1e12).x[-1]
        assert p.error(last) < 0.9, method


def test_under_l1_no_minimiser_is_asked_and_no_gate():
    methods = study.compared(Regularizer(l1=0.5))
    assert {m for m, _ in methods} == set(BY_GRADIENTS)
    assert {noise for _, noise in methods} == {"published"}
    assert len(study.compared(PENALTIES["ridge"])) == 2 * len(METHODS)
