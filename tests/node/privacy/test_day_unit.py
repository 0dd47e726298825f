"""A customer's whole day as the unit of privacy: what it may move, in whatever shape, and that the noise covers it.

h sum_t |dp_t| <= E and |dq_t| <= tan(phi) |dp_t| move the answer by at most E (1 + tan phi) MWh in L1.
"""

import math

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import check_privacy, terms
from hushgrid.node.problems.power_flow.gate import lattice_of
from hushgrid.node.problems.power_flow.question import LoadQuestion
from hushgrid.node.schema.sections import Adjacency, Day
from tests.support.devices.gated_device import plan

E, COS, BASE = 0.02, 0.97, 100.0
TAN = math.tan(math.acos(COS))
DAY = Adjacency(day=Day(energy_mwh=E, power_factor=COS))


class Loads:
    """Two buses over T periods of h hours."""

    def __init__(self, T, d=None, hours=1.0):
        self.periods, self.size = T, 4 * T
        self.loaded = np.arange(self.size)
        self.unit = np.full(self.size, 1 / (hours * BASE))
        self.data = np.zeros(self.size) if d is None else d
        self.row_l1 = self.row_l2 = 1.0
        self.row_nnz, self.columns = 1, self.size


def asked(release="plain", mechanism="laplace", adjacency=DAY):
    over = {"mechanism": "gaussian", "delta": 1e-5} if mechanism == "gaussian" else {}
    made = plan(mode="input", adjacency=adjacency, release=release, epsilon=1.0, **over)
    check_privacy(made.privacy, made.algorithm, False, "plan")
    return terms(made.privacy, made.algorithm)


def shapes(T, hours=1.0):
    """Twelve days of a customer at the first bus, p.u. (T 4,): the most that each may move."""
    rng = np.random.default_rng(4)
    profiles = [np.ones(T), np.eye(T)[0], np.eye(T)[T - 1], (-1.0) ** np.arange(T), np.arange(1.0, T + 1)]
    profiles += [np.where(np.arange(T) % 3 == k, 1.0, 0.0) for k in range(3 if T > 2 else 0)]
    profiles += [rng.normal(size=T) for _ in range(12 - len(profiles))]
    for k, profile in enumerate(profiles):
        dp = E / hours / BASE * profile / np.abs(profile).sum()
        change = np.zeros((T, 2, 2))
        change[:, 0, 0] = dp
        change[:, 1, 0] = TAN * dp * (-1) ** k
        yield change.ravel()


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
