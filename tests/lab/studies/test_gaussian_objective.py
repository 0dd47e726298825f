"""Gaussian objective perturbation: its reference values, and that its proof's bound holds where it can be computed."""

from math import exp

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.lab.studies.baselines.gaussian_objective import Perturbed, closed, delta, gdp_of, nu_of, profile
from hushgrid.lab.studies.minimisers import MECHANISMS, Task, measure, table
from hushgrid.node.privacy.noise_source import SeededNoise


@pytest.mark.parametrize(
    ("nu", "eta", "found"),
    [
        (0.1, 0.0, 0.1000156274),
        (0.1, 0.01, 0.1120723372),
        (0.2, 0.05, 0.2582666309),
        (0.5, 0.01, 0.5124977932),
        (1.0, 0.1, 1.1090047119),
        (2.0, 0.05, 2.1719288438),
    ],
)
def test_the_reference_values_of_the_cost_of_one_answer(nu, eta, found):
    assert gdp_of(nu, eta) == pytest.approx(found, abs=6e-11)
    assert gdp_of(nu, eta) <= closed(nu, eta)


@pytest.mark.parametrize(
    ("nu", "eta", "bound"), [(0.1, 0.01, 0.1120813161), (0.5, 0.01, 0.5143546213), (1.0, 0.05, 1.0775315527)]
)
def test_the_reference_values_of_the_closed_bound(nu, eta, bound):
    assert closed(nu, eta) == pytest.approx(bound, abs=6e-11)


@pytest.mark.parametrize(
    ("epsilon", "nu", "eta", "h"),
    [
        (0.1, 0.2, 0.01, 4.4589907089e-2),
        (0.5, 0.2, 0.01, 5.9481213097e-4),
        (1.0, 0.5, 0.05, 8.6751562016e-3),
        (0.1, 0.5, 0.05, 1.7789014449e-1),
        (2.0, 1.0, 0.1, 2.5948799355e-2),
    ],
)
def test_the_reference_values_of_the_profile(epsilon, nu, eta, h):
    assert profile(epsilon, nu, eta) == pytest.approx(h, rel=1e-10)
    assert profile(epsilon, nu, eta) <= delta(gdp_of(nu, eta), epsilon) * (1 + 1e-12)  # nu' dominates it


@pytest.mark.parametrize(
    ("mu", "eta", "nu"),
    [
        (0.05, 0.001, 0.0487687036),
        (0.05, 0.01, 0.0376506585),
        (0.1, 0.001, 0.0987787872),
        (0.1, 0.01, 0.0878772700),
        (0.1, 0.05, 0.0382626296),
        (0.5, 0.001, 0.4970198492),
        (0.5, 0.01, 0.4876056289),
        (0.5, 0.05, 0.4449967433),
        (1.0, 0.001, 0.9839656250),
        (1.0, 0.01, 0.9759352003),
        (1.0, 0.05, 0.9397634186),
    ],
)
def test_the_reference_values_of_the_calibration(mu, eta, nu):
    assert nu_of(mu, eta) == pytest.approx(nu, abs=6e-11)
    assert gdp_of(nu_of(mu, eta), eta) <= mu


def test_what_the_curvature_alone_costs_is_refused():
    with pytest.raises(InputError, match=r"found mu 0\.05 an answer, expected more than 0\.0627"):
        nu_of(0.05, 0.05)


def test_no_two_neighbouring_data_sets_pass_the_profile_in_one_dimension():
    """Exact densities of x* at two data sets of three records that differ in one, on a fine grid of x."""
    rng, scale, q = np.random.default_rng(3), 1.0, 0.5
    for nu in (0.3, 1.0):
        for _ in range(20):
            a, b = rng.uniform(-1, 1, 4), rng.choice([-1.0, 1.0], 4)
            sigma = 2 * scale / 3 / nu
            eta = np.log1p(scale / 3 / (4 * q))
            x = np.linspace(-60, 60, 60_001) * sigma / q / 8
            densities = []
            for which in ([0, 1, 2], [0, 1, 3]):
                s = [1 / (1 + np.exp(b[j] * a[j] * x)) for j in which]
                slope = scale / 3 * sum(-b[j] * a[j] * s_j for j, s_j in zip(which, s, strict=True)) + q * x
                bend = scale / 3 * sum(a[j] ** 2 * s_j * (1 - s_j) for j, s_j in zip(which, s, strict=True)) + q
                densities.append(np.exp(-((slope / sigma) ** 2) / 2) / np.sqrt(2 * np.pi) / sigma * bend)
            p, r = densities
            width = x[1] - x[0]
            assert p.sum() * width == pytest.approx(1, abs=1e-6)
            for epsilon in (eta, eta + 0.3, eta + 1.0):
                for one, other in ((p, r), (r, p)):
                    reached = float(np.sum(np.maximum(one - exp(epsilon) * other, 0.0)) * width)
                    assert reached <= profile(epsilon, nu, eta) + 1e-7


def test_the_oracle_answers_with_noise_of_the_calibrated_size():
    """Rows of zeros: the answer is -b/(q + l2), of standard deviation sigma/(q + l2)."""
    loss = Loss(Objective(kind="logistic", scale=2.0, l2=0.1), np.zeros((50, 3)), np.ones(50), 1, 1.0)
    oracle = Perturbed(loss, 0.5, SeededNoise(1, "n0"))
    found = np.array([oracle.minimizer(np.zeros(3), 0.9) for _ in range(2000)])
    sigma = 2 * 2.0 / 50 / nu_of(0.5, np.log1p(2.0 / 50 / 4))
    assert np.std(found) == pytest.approx(sigma, rel=0.05)


def test_the_study_plays_all_three_on_one_problem(tmp_path):
    """Made-up rows in Adult's place: with much epsilon all three end near the optimum, and two answers are two."""
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "hushgrid: 1\nname: s\nproblem: {kind: logistic, scale: 4.0, l2: 0.4, row_bound: 1.0,\n"
        "  data: {synthetic: {rows: 3000, features: 3}, normalize: unit-rows}}\n"
        "network: {kind: complete, nodes: 4}\n"
        "algorithm: {name: dgd, rounds: 3, step_size: 0.1}\n"
        "privacy: {adjacency: {replace-one-record: {clip: 1.0}}, epsilon: 1.0}\n"
    )
    lines = [measure(Task(m, 2, 0.05, (1, 2), scenario)) for m in MECHANISMS]
    assert all(0 <= gap < 0.02 for line in lines for gap in line.gaps)
    assert len({line.gaps[0] for line in lines}) == 3  # three mechanisms
    (row, *_) = table(lines).rows
    assert row[0] == "gaussian output"
    assert "±" in row[1]
