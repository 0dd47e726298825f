"""Theorems 1 and 2 of DPP2, measured on small graphs."""

import numpy as np
import pytest

from hushgrid.lab.studies import dpp2_rates
from hushgrid.lab.studies.dpp2_rates import Rate, measured, study


def test_the_factor_and_the_sum_are_those_of_a_known_sequence():
    line = Rate(0.0, 5.0 * 0.9 ** np.arange(1000.0))
    assert line.factor == pytest.approx(0.9)
    assert line.scaled(1000) == pytest.approx(50.0)


@pytest.mark.parametrize("r", [0.0, 0.9])
def test_theorem_2_the_gap_falls_by_a_factor_a_round_where_the_problem_is_strongly_convex(r):
    line = measured(r, convex=True, n=6, rounds=600)
    assert r**2 < line.factor < 0.995
    assert line.E[-1] < 1e-1 * line.E[line.E.size // 2]


def test_theorem_1_the_mean_of_31_falls_as_one_over_k_without_convexity():
    line = measured(0.9, convex=False, n=6, rounds=1600)
    assert line.scaled(1600) == pytest.approx(line.scaled(800), rel=0.02)  # what comes later adds next to nothing


@pytest.mark.runs
def test_the_page_has_a_table_a_theorem(monkeypatch):
    monkeypatch.setattr(dpp2_rates, "on_two", lambda work, tasks, name: [work(task) for task in tasks])
    (page,) = study(n=6, rounds=400, decays=(0.0, 0.9))
    assert [len(table.rows) for table in page.tables] == [2, 2]
    assert list(page.pictures) == ["dpp2-rates.svg"]
