"""A customer's whole day as the unit of privacy: what it may move, in whatever shape, and that the noise covers it.

h sum_t |dp_t| <= E and |dq_t| <= tan(phi) |dp_t| move the answer by at most E (1 + tan phi) MWh in L1.
"""

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.power_flow.gate import lattice_of
from hushgrid.node.problems.power_flow.question import LoadQuestion
from hushgrid.node.schema.sections import Adjacency, Day
from tests.support.devices.day_unit import BASE, COS, DAY, TAN, E, Loads, asked, shapes


def cases():
    rng = np.random.default_rng(2)
    for T in (1, 24):
        for change in shapes(T):
            yield T, rng.uniform(-1, 1, 4 * T), change


@pytest.mark.parametrize(("release", "mechanism"), [("plain", "laplace"), ("plain", "gaussian"), ("totals", "laplace")])
def test_no_shape_of_a_day_moves_an_answer_further_than_its_sensitivity_and_one_moves_it_so_far(release, mechanism):
    norm, most = 1 if mechanism == "laplace" else 2, 0.0
    t = asked(release, mechanism)
    for T, d, change in cases():
        one, other = (LoadQuestion(Loads(T, of), t) for of in (d, d + change))
        moved = other.exact(d + change) - one.exact(d)
        claimed, coordinates = one.sensitivity
        assert np.count_nonzero(np.abs(moved) > 1e-12) <= coordinates
        assert np.linalg.norm(moved, norm) <= claimed
        most = max(most, np.linalg.norm(moved, norm) / claimed)
    assert most > 1 - 1e-6


@pytest.mark.parametrize(("T", "hours"), [(1, 1.0), (24, 1.0), (96, 0.25)])
@pytest.mark.parametrize(
    ("release", "mechanism", "expected"),
    [
        ("plain", "laplace", E * (1 + TAN)),
        ("plain", "gaussian", E / COS),
        ("totals", "laplace", 2 * E * (1 + TAN)),
    ],
)
def test_the_sensitivity_does_not_grow_with_the_number_of_periods(T, hours, release, mechanism, expected):
    sensitivity, coordinates = LoadQuestion(Loads(T, hours=hours), asked(release, mechanism)).sensitivity
    assert expected <= sensitivity <= expected * (1 + 1e-4)
    assert coordinates == 2 * T * (2 if release == "totals" else 1)


@pytest.mark.parametrize("release", ["plain", "totals"])
def test_on_the_grid_the_answers_of_neighbours_lie_no_further_apart_than_the_noise_is_made_for(release):
    t = asked(release)
    for T, d, change in cases():
        question = LoadQuestion(Loads(T), t)
        lattice, zero = lattice_of("n0", Loads(T), t), np.zeros(question.width, np.int64)
        one, other = (lattice.release(question.exact(of), zero) for of in (d, d + change))
        assert np.abs(one - other).sum() <= lattice.sensitivity


def losses(t, T, change, noise):
    """The privacy loss of answers on data 0, against `change`, under `noise` (N, width)."""
    question, lattice = LoadQuestion(Loads(T), t), lattice_of("n0", Loads(T), t)
    moved = question.exact(change) - question.exact(np.zeros(4 * T))
    answers = noise * lattice.g
    return (np.abs(answers - moved) - np.abs(answers)).sum(axis=1) / lattice.scale


@pytest.mark.parametrize("release", ["plain", "totals"])
def test_the_ratio_of_densities_is_at_most_e_to_the_epsilon_for_every_shape_and_is_reached(release):
    T, t, most = 24, asked(release), 0.0
    lattice, question = lattice_of("n0", Loads(T), t), LoadQuestion(Loads(T), t)
    noise = SeededNoise(1, "n0").take(lattice, 50 * question.width, 1).reshape(50, question.width)
    for change in shapes(T):
        most = max(most, np.abs(losses(t, T, change, noise)).max())
        moved = question.exact(change)
        far = np.where(moved > 0, -1.0, 1.0) * 1e3 / lattice.g  # every coordinate beyond the nearer value
        most = max(most, np.abs(losses(t, T, change, far[None])).max())
    assert 1 - 1e-3 < most <= 1


def test_too_little_noise_and_reactive_loads_with_the_active_ones_noise_are_caught():
    T, t = 24, asked()
    change = next(shapes(T))
    lattice, question = lattice_of("n0", Loads(T), t), LoadQuestion(Loads(T), t)
    far = np.where(question.exact(change) > 0, -1.0, 1.0) * 1e3 / lattice.g
    moved = question.exact(change)
    halved = (np.abs(far * lattice.g - moved) - np.abs(far * lattice.g)).sum() / (lattice.scale / 2)
    assert abs(halved) > 1.9  # with half of the scale the loss is twice what was claimed
    noise = np.repeat(SeededNoise(1, "n0").take(lattice, 2 * T, 1).reshape(T, 1, 2), 2, axis=1) * lattice.g
    d = np.random.default_rng(0).uniform(0, 1, (T, 2, 2)) / BASE
    d[:, 1] = 0.3 * d[:, 0] + 0.001
    answer = question.exact(d.ravel()).reshape(T, 2, 2) + noise * np.array([1.0, TAN])[None, :, None]
    exact = question.exact(d.ravel()).reshape(T, 2, 2)
    told = answer[:, 1] - TAN * answer[:, 0]  # the noise is gone
    assert np.allclose(told, exact[:, 1] - TAN * exact[:, 0], atol=1e-12)


def test_a_day_has_one_relation_in_a_ledger_and_none_other_beside_it():
    assert str(DAY) == "day-change:0.02:0.97"
    assert asked().beta == E
    both = Adjacency(day=Day(energy_mwh=E, power_factor=COS), bounded_change=0.01)
    with pytest.raises(InputError, match="found two adjacencies, expected one"):
        asked(adjacency=both)
