"""The study of a budget that renews: its noise is the gate's, and age is measured apart from it."""

from math import inf, sqrt

import numpy as np
import pytest

from hushgrid.kernels.privacy.accounting import claimed_epsilon
from hushgrid.lab.benchmarks.continuous import scenario
from hushgrid.lab.studies import renewing
from hushgrid.lab.studies import renewing_rounds as rounds
from hushgrid.lab.studies.renewing import DELTA, INTERVALS, Line, Task, best, deviation, grid, lattice, tables, used


@pytest.fixture(autouse=True)
def ipopt():
    pytest.importorskip("casadi", reason="no Ipopt: the extra laptop is not installed")


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
@pytest.mark.parametrize("fresh", [4, 96])
def test_all_answers_of_a_window_together_cost_epsilon_and_not_a_thousandth_less(epsilon, fresh):
    gaussian, laplace = (lattice(Task(epsilon, mechanism, fresh)) for mechanism in ("gaussian", "laplace"))
    for together in (claimed_epsilon("gdp", gaussian.mu, fresh, DELTA), fresh * laplace.epsilon):
        assert 0.999 * epsilon < together <= epsilon * (1 + 1e-12)


def test_a_fresh_answer_is_used_until_the_next_and_its_noise_has_the_size_that_public_numbers_say():
    task, (case, true) = Task(5.0, "gaussian", 24), grid()
    loaded = case.buses.p_d != 0
    noise = np.concatenate([(used(task, k) - true)[::4, 0, loaded].ravel() for k in range(20)])
    assert noise.std() == pytest.approx(deviation(lattice(task)), rel=5 / sqrt(2 * noise.size))
    given = used(task, 0).reshape(24, 4, 2, -1)
    assert np.array_equal(given, np.broadcast_to(given[:, :1], given.shape))


def test_without_noise_the_error_is_that_of_age_and_none_if_every_interval_is_fresh():
    old, new = (renewing.measure(Task(inf, "gaussian", k)) for k in (48, INTERVALS))
    assert old.error == old.age > 0
    assert (new.error, new.imbalance, new.unserved) == (0, pytest.approx(0, abs=1e-3), 0)


def test_the_best_setting_is_that_of_the_smallest_error_whatever_it_costs():
    lines = [Line(Task(1.0, "gaussian", k), 0, 0, error, 0, 0, cost, 0, 0) for k, error, cost in ((4, 3, 0), (8, 2, 9))]
    assert best(lines, 1.0).task.fresh == 8
    assert [row[2] for row in tables(lines)[1].rows] == [8]


@pytest.mark.parametrize("at", ["loads", "gradients"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_runs_of_a_window_cost_epsilon_together_whatever_their_rounds(at, mechanism):
    task = rounds.Task(5.0, mechanism, at, 24, 5)
    section = rounds.of_a_run(task)
    setup = scenario("ladmm", 5, section)
    terms = setup.plan.terms_of("z1")
    answers = 24 * (5 if at == "gradients" else 1)
    assert task.answers == terms.answers * 24 == answers
    together = (
        answers * terms.event.epsilon
        if mechanism == "laplace"
        else claimed_epsilon("gdp", terms.event.mu, answers, DELTA)
    )
    assert 0.998 * 5.0 < together <= 5.0 * (1 + 1e-9)
