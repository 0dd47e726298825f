"""Theorem 3 and (18) of DP-RECAL, measured on few agents."""

from functools import partial

import numpy as np
import pytest

from hushgrid.kernels.algorithms.recal import AROUND, Params
from hushgrid.lab.studies import recal_rates
from hushgrid.lab.studies.recal_rates import Walked, growth, study, walked


def test_the_factor_and_the_activations_are_those_of_a_known_sequence():
    line = Walked(4, True, True, 0.0, 5.0 * 0.9 ** np.arange(300.0))
    assert line.factor == pytest.approx(0.9)
    assert line.rounds == pytest.approx(np.log(1e-10) / np.log(0.9) / 4)


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("cycle", [True, False])
def test_theorem_3_the_distance_falls_by_a_factor_an_activation_also_where_the_solutions_are_a_plane(convex, cycle):
    line = walked((5, convex, cycle, 0.0), rounds=600)
    assert 0.5 < line.factor < 0.999
    assert line.E[-1] < 1e-8 * line.E[0]


def test_theorem_3_noise_that_falls_more_slowly_decides_the_factor():
    line = walked((5, True, True, 1.003), rounds=600)
    assert line.factor == pytest.approx(1 / 1.003, abs=3e-4)


def test_finding_1_4_around_a_long_cycle_the_papers_steps_diverge_and_a_smaller_beta_does_not():
    n, rounds = 80, 300
    assert growth(n, 0.5, 1 / (2 * (n + 1))) > 1.01
    assert growth(n, 0.5, AROUND / n**2) == pytest.approx(1.0, abs=1e-9)  # what u has beyond the sum of lambda_i stays
    assert walked((n, True, True, 0.0), rounds).factor == np.inf
    assert walked((n, True, False, 0.0), rounds).factor < 1  # at random it converges


@pytest.mark.parametrize("walk", ["random", "hamiltonian"])
def test_a_run_around_a_long_cycle_is_warned_of_it_and_names_a_beta_that_converges(walk):
    said = Params(rounds=1, walk=walk).warning(80)
    assert (said is None) == (walk == "random")
    if said:
        assert said == (
            "algorithm.beta: found 0.00617 around a cycle of 80 nodes, where recal may diverge, "
            "expected at most 0.00234"
        )
    assert Params(rounds=1, walk=walk, beta=0.00234).warning(80) is None
    assert Params(rounds=1, walk=walk).warning(30) is None


@pytest.mark.runs
def test_the_page_has_the_number_of_agents_and_the_decay_of_noise(monkeypatch):
    monkeypatch.setattr(recal_rates, "on_two", lambda work, tasks, name: [work(task) for task in tasks])
    monkeypatch.setattr(recal_rates, "walked", partial(walked, rounds=200))
    (page,) = study(agents=(3, 5), decays=(0.0, 1.01), cycles=(4, 6, 8))
    assert [len(table.rows) for table in page.tables] == [2, 2, 3]
    assert list(page.pictures) == ["recal-rates.svg"]
