"""A change of k records at once (`records: k`): what it moves, what it costs, and that the owner's device enforces
it.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy import accounting, perturbation
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.node.privacy.ledger_rows import Spend, steps
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.schema.sections import Adjacency, ReplaceOneRecord
from tests.support import examples, games
from tests.support.devices.gated_device import Device, budget, plan, spend
from tests.support.devices.rows_device import gate, problem, terms
from tests.support.paths import SCENARIOS

MECHANISMS = ["laplace", "gaussian"]
RUN = b"0123456789abcdef"


def of(k, mechanism="gaussian", **over):
    words = "replace-one-record" + (f" {k}" if k > 1 else "")
    return terms(mechanism, **{"clip": 1.0, "adjacency": words, "records": k} | over)


def relation(k):
    return Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0, records=k))


def replaced(loss, k, seed):
    """The same rows but k."""
    other, rng = problem(loss.rows, loss.features, seed + 1, loss.objective.kind), np.random.default_rng(seed)
    A, b, those = loss.A.copy(), loss.b.copy(), rng.permutation(loss.rows)[:k]
    A[those], b[those] = other.A[those], other.b[those]
    return Loss(loss.objective, A, b, loss.classes, loss.row_bound)


def opposed(m, k, d=3):
    """Two data sets whose first k records pull to opposite sides, at 0 with a strength of 1/2."""
    A, labels = np.zeros((m, d)), np.ones(m)
    A[:k, 0] = 1.0
    return tuple(Loss(problem().objective, A, b, row_bound=1.0) for b in (labels, -labels))


def size(x, y, mechanism):
    order = 1 if mechanism == "laplace" else 2
    return sum(abs(Fraction(float(a)) - Fraction(float(b))) ** order for a, b in zip(x, y, strict=True)), order


# --- what k records move ---


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", ["least-squares", "logistic", "softmax"])
@examples.of(40)
@given(m=st.integers(1, 7), k=st.integers(1, 9), seed=st.integers(0, 2**20), far=st.integers(-2, 20))
def test_k_records_move_the_released_gradient_by_at_most_the_sensitivity_priced(mechanism, kind, m, k, seed, far):
    loss = problem(m, 3, seed, kind, scale=3.0)
    x, t = 10.0**far * np.random.default_rng(seed).normal(size=loss.size), of(k, mechanism, clip=0.75)
    one, two = gate(loss, t), gate(replaced(loss, k, seed), t)
    assert one.lattice == two.lattice
    moved, order = size(one.gradient(x), two.gradient(x), mechanism)
    assert moved <= Fraction(one.lattice.sensitivity) ** order


@pytest.mark.parametrize("k", [1, 2, 6])
def test_k_opposed_records_attain_it_so_that_nothing_can_be_saved(k):
    for m in (40, 4):
        one, two = (gate(loss, of(k, clip=0.5)) for loss in opposed(m, min(k, m)))
        moved = np.linalg.norm(one.gradient(np.zeros(3)) - two.gradient(np.zeros(3)))
        assert moved == pytest.approx(2 * 0.5 * min(k, m) / m, rel=2e-3)
        assert moved <= one.lattice.sensitivity == pytest.approx(moved, rel=5e-3)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_k_records_at_a_total_cost_k_times_the_noise_of_one_exactly(mechanism):
    loss = problem(400)
    one, six = (gate(loss, of(k, mechanism)).lattice for k in (1, 6))
    assert six.scale == pytest.approx(6 * one.scale, rel=2e-3)  # the grids' own share


@examples.of(60)
@given(m=st.integers(1, 9), k=st.integers(1, 5), seed=st.integers(0, 2**20), far=st.floats(-3, 3))
def test_k_records_move_a_pointwise_answer_by_at_most_its_unit(m, k, seed, far):
    loss, x = problem(m, 3, seed), 10.0**far * np.random.default_rng(seed).normal(size=3)
    t = of(k, pointwise=True)
    one, two = (gate(f, t) for f in (loss, replaced(loss, k, seed)))
    unit = one.unit(x, t)
    assert unit == two.unit(x, t) <= loss.sensitivity(1.0, k)
    moved = np.linalg.norm(loss.clipped_gradient(x, 1.0, 2) - two.loss.clipped_gradient(x, 1.0, 2))
    assert moved <= unit


@pytest.mark.parametrize("mechanism", MECHANISMS)
@examples.of(25)
@given(m=st.integers(1, 6), k=st.integers(1, 4), seed=st.integers(0, 2**20), far=st.floats(-2, 3))
def test_k_records_move_the_minimiser_by_less_than_output_perturbation_prices(mechanism, m, k, seed, far):
    loss = problem(m, 3, seed, scale=3.0)
    other, v = replaced(loss, k, seed), np.random.default_rng(seed).normal(size=3) * 10.0**far
    p = perturbation.output(loss, mechanism, 0.5, v, 0.3, k)
    x, y = (np.rint(Minimizer(f)(v, 0.3, tolerance=p.tau).x / p.lattice.g) * p.lattice.g for f in (loss, other))
    assert np.linalg.norm(x - y, 1 if mechanism == "laplace" else 2) <= p.lattice.sensitivity


@pytest.mark.parametrize("k", [2, 6])
def test_objective_perturbation_for_k_records_has_the_random_term_of_one_at_a_kth_of_the_epsilon(k):
    """Group privacy of its first two terms; its third compares solutions of one problem, and is not multiplied."""
    loss, v = problem(60, scale=2.0), np.ones(3)
    one, group = perturbation.objective(loss, 3.0 / k, v, 0.5), perturbation.objective(loss, 3.0, v, 0.5, k)
    assert group.alpha == pytest.approx(one.alpha, rel=1e-9)
    assert group.lattice.epsilon == pytest.approx(k * one.lattice.epsilon, rel=1e-5)


@examples.of(25)
@given(k=st.integers(1, 3), seed=st.integers(0, 2**20))
def test_the_density_of_its_minimiser_moves_by_at_most_what_k_records_are_priced(k, seed):
    """ln of the ratio at any x: of |eps| = |F'(x)|, and of the Hessians' determinants."""
    rng = np.random.default_rng(seed)
    loss, v, epsilon, q = problem(5, 3, seed, scale=2.0), rng.normal(size=3), 6.0, 0.7
    other, p = replaced(loss, k, seed), perturbation.objective(loss, epsilon, v, q, k)
    for x in 3 * rng.normal(size=(10, 3)):
        logs = []
        for f in (loss, other):
            s = 1 / (1 + np.exp(-f.A @ x * f.b))
            hessian = 2.0 * (f.A * (s * (1 - s))[:, None]).T @ f.A / 5 + q * np.eye(3)
            logs.append(math.log(np.linalg.det(hessian)) - p.alpha * np.linalg.norm(f.gradient(x) + v + q * x))
        assert abs(logs[0] - logs[1]) <= epsilon


@pytest.mark.runs
@pytest.mark.parametrize("k", [1, 4])
def test_the_game_on_k_records_proves_nearly_what_is_claimed_and_never_more(k):
    N, x, answers, values = 3000, np.zeros(3), [], []
    for loss, seed in zip(opposed(8, k), (1, 2), strict=True):
        asked = gate(loss, of(k, answers=N, per_answer=1.0, clip=0.5), SeededNoise(seed, "n0"))
        answers.append([])
        for _ in range(N):
            answers[-1].append(asked.gradient(x))
            asked.committed()
        values.append(loss.clipped_gradient(x, 0.5, 2))
    assert games.proved(answers, values, games.DOUBT) <= 1.0
    assert games.proved(answers, values, 0.05) >= 0.8


# --- what a ledger counts ---


def test_a_group_counts_as_so_many_steps_as_it_takes():
    for of_k, at_k, found in ((1, 6, 6), (6, 1, 1), (6, 6, 1), (4, 6, 2), (24, 30, 2), (1, 1, 1)):
        assert steps(str(relation(of_k)), str(relation(at_k))) == found
    assert steps("bounded-change 0.01", str(relation(6))) == steps(str(relation(6)), "bounded-change 0.1") == 1
    assert str(relation(1)) == str(Adjacency(replace_one_record=ReplaceOneRecord(clip=0.3))) == "replace-one-record"


def test_answers_about_one_record_count_k_times_in_a_budget_of_k(tmp_path):
    ledger = Device(tmp_path).ledger
    ledger.join(RUN, b"plan")
    ledger.spends.count_at(str(relation(6)))
    one, six = str(relation(1)), str(relation(6))
    gaussian = Spend(2, "gaussian", 0.25, 0.1, 0.2, 0.1, one, "x")
    ledger.commit(RUN, spends=[spend(1, 0.5, one), gaussian, spend(3, 0.125, six)])
    assert ledger.spends.totals(six).epsilon == 6 * 0.5 + 0.125
    assert ledger.spends.totals(six).mu == 6 * 0.25
    assert ledger.spends.totals(one).epsilon == 0.5 + 0.125  # who hides six hides one
    assert (ledger.mark.epsilon, ledger.mark.mu2) == (6 * 0.5 + 0.125, 36 * 0.25**2)  # marks: at the largest unit


def test_a_larger_group_in_the_owners_file_prices_the_mark_anew(tmp_path):
    device = Device(tmp_path)
    device.ledger.join(RUN, b"plan")
    device.ledger.commit(RUN, spends=[spend(1, 0.5, str(relation(1)))])
    device.ledger.spends.count_at(str(relation(3)))
    device.ledger.spends.count_at(str(relation(2)))  # a smaller one gives nothing back
    assert device.ledger.mark.epsilon == 1.5
    device.ledger.close()
    assert Device(tmp_path).ledger.mark.epsilon == 1.5


@pytest.mark.parametrize("asked", [1, 2, 6])
def test_a_device_that_hides_six_records_charges_a_plan_that_hides_fewer(tmp_path, asked):
    """Epsilon 2 for `asked` records is 6/asked times as much for six; the budget of 2 is the owner's."""
    device = Device(tmp_path, budget(2.0, adjacency=relation(6)))
    wanted = plan(rounds=4, adjacency=relation(asked))
    if asked == 6:
        device.budget_check(wanted).admit(4)
        return
    with pytest.raises(Refused, match=rf"n0: spent epsilon 0, asked {2 * 6 // asked} more, budget 2 "):
        device.budget_check(wanted).admit(4)


def test_a_device_that_hides_one_record_takes_a_plan_that_hides_more_at_its_own_price(tmp_path):
    device = Device(tmp_path, budget(2.0, adjacency=relation(1)))
    device.budget_check(plan(rounds=4, adjacency=relation(6))).admit(4)
    with pytest.raises(Refused, match=r"asked 2\.1 more"):
        device.budget_check(plan(rounds=4, adjacency=relation(6), epsilon=2.1)).admit(4)


# --- a whole run ---


@pytest.mark.runs
def test_a_run_that_hides_a_day_has_six_times_the_noise_at_the_same_epsilon_and_says_so():
    adjacency = {"replace-one-record": {"clip": 0.5, "records": 6}}
    hour, day = (
        run(SCENARIOS / "air.yaml", seed=1, set={"algorithm.rounds": 5} | more)
        for more in ({}, {"privacy.adjacency": adjacency})
    )
    assert day.privacy["claimed"] == hour.privacy["claimed"]
    assert day.privacy["adjacency"] == adjacency
    noise = [r.history["noise_l1_expected"][-1] for r in (hour, day)]
    assert noise[1] == pytest.approx(6 * noise[0], rel=1e-2)


@pytest.mark.parametrize(
    ("name", "records", "expected"),
    [
        ("air", 0, r"records: found 0, expected int >= 1"),
        (
            "digits-star",
            6,
            r"digits-star.yaml: privacy.adjacency.*records: found 6, expected none \(variant: published\)",
        ),
    ],
)
def test_groups_that_cannot_be_are_one_line(name, records, expected):
    adjacency = {"privacy.adjacency": {"replace-one-record": {"clip": 0.5, "records": records}}}
    published = {"algorithm.variant": "published"} if records else {}
    with pytest.raises(InputError, match=expected):
        run(SCENARIOS / f"{name}.yaml", set=adjacency | published)


def test_group_privacy_is_what_the_accountant_says_of_it():
    assert accounting.grouped(accounting.Gaussian(0.25), 6) == accounting.Gaussian(1.5)
