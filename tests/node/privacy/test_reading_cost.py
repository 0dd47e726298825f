"""What one reading costs over all answers that it enters: a mean of n days moves by an n-th of it, on the grid too."""

import math
from contextlib import closing

import numpy as np
import pytest

from hushgrid.kernels.privacy.accounting import total_epsilon
from hushgrid.kernels.privacy.limits import charge_of_totals
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import ReadingDays, Spend
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.problems.power_flow.gate import lattice_of
from hushgrid.node.problems.power_flow.question import LoadQuestion
from tests.support.devices.day_unit import BASE, Loads, asked, shapes
from tests.support.devices.ledgers import copied, reopened

ADJACENCY, EPSILON, MU, RUN = "day-change:0.02:0.97", 0.83, 0.4, b"r" * 16
T = 24


def spend(kind="laplace", value=EPSILON):
    return Spend(1, kind, value, 0.025, 0.03, 2.0**-20, ADJACENCY, "exact")


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False)) as made:
        made.join(RUN, b"plan")
        yield made


def answered(ledger, last, n=7, *spends):
    """A data version that is the mean of n days, and answers about it."""
    ledger.new_data(ReadingDays(last, n) if n else None)
    ledger.commit(RUN, spends=spends or [spend()])


# --- how far one reading moves an answer ---


def shares(t, n, days, near):
    """Seven times how far the answer about these days' mean is from that of the near ones, on the grid for a mean of n
    days, as a share of what its noise is made for.
    """
    lattice, question = lattice_of("z1", Loads(T), t, n), LoadQuestion(Loads(T), t, n)
    one, other = (np.rint(question.exact(each.sum(axis=0) / 7) / lattice.g) for each in (days, near))
    norm = 1 if t.mechanism == "laplace" else 2
    return 7 * float(np.linalg.norm(other - one, norm)) * lattice.g / lattice.sensitivity


@pytest.mark.parametrize(("release", "mechanism"), [("plain", "laplace"), ("plain", "gaussian"), ("totals", "laplace")])
def test_a_days_readings_move_an_answer_about_their_mean_by_a_seventh_of_what_its_noise_is_made_for(release, mechanism):
    rng, most, t = np.random.default_rng(3), 0.0, asked(release, mechanism)
    for change in shapes(T):
        days = rng.uniform(-1, 1, (7, 4 * T))
        near = days.copy()
        near[2] += change
        most = max(most, shares(t, 7, days, near))
    assert 0.99 < most <= 1.0


def test_rounding_is_counted_in_each_of_the_seven_answers():
    t, change = asked(), next(shapes(T))
    for n, holds in ((7, True), (1, False)):
        g = lattice_of("z1", Loads(T), t, n).g
        days = np.full((7, 4 * T), (1000.5 - 1e-6) * g / BASE)  # where the least change is rounded up
        near = days.copy()
        near[2] += np.abs(change)
        assert (shares(t, n, days, near) <= 1.0) == holds


def test_without_a_rule_the_noise_is_what_it_was_and_with_one_it_grows_by_less_than_a_thousandth():
    for release, mechanism in (("plain", "laplace"), ("totals", "laplace"), ("plain", "gaussian")):
        t, loads = asked(release, mechanism), Loads(T)
        plain, one, mean = (lattice_of("z1", loads, t, *n) for n in ((), (1,), (7,)))
        assert plain == one
        assert mean.scale == pytest.approx(plain.scale, rel=2e-3)
        assert BASE * mean.g < plain.g * BASE


# --- what the ledger has ---


def test_over_ten_days_of_answers_a_reading_costs_seven_sevenths_of_one(ledger):
    for day in range(10):
        answered(ledger, 100 + day)
    costs = ledger.spends.readings(ADJACENCY)
    assert sorted(costs) == list(range(94, 110))
    for day, totals in costs.items():
        entered = min(day - 93, 7, 110 - day)
        assert totals.epsilon == pytest.approx(entered * EPSILON / 7, abs=1e-12)
        assert totals.laplace == entered
    assert ledger.spends.totals(ADJACENCY).epsilon == pytest.approx(10 * EPSILON, abs=1e-12)


def test_of_gaussian_answers_squares_add_so_that_seven_of_them_are_one_by_the_root_of_seven(ledger):
    for day in range(7):
        answered(ledger, 100 + day, 7, spend("gaussian", MU))
    assert ledger.spends.readings(ADJACENCY)[100].mu == pytest.approx(MU / math.sqrt(7), abs=1e-12)


def test_the_sum_is_that_of_the_answers_that_were_made_whatever_the_rule_foresees(ledger):
    answered(ledger, 100, 7, spend(), spend())  # twice in a day
    answered(ledger, 101)
    answered(ledger, 101)  # another version of the same days
    answered(ledger, 101, 1)  # another rule
    costs = ledger.spends.readings(ADJACENCY)
    assert costs[101].epsilon == pytest.approx(EPSILON * (2 / 7 + 1), abs=1e-12)
    assert costs[100].epsilon == pytest.approx(EPSILON * 4 / 7, abs=1e-12)
    assert costs[94].epsilon == pytest.approx(EPSILON * 2 / 7, abs=1e-12)


def test_answers_about_other_data_stand_beside(ledger):
    answered(ledger, 100, 0)
    answered(ledger, 100)
    assert ledger.spends.undated(ADJACENCY).epsilon == pytest.approx(EPSILON, abs=1e-12)
    assert ledger.spends.readings(ADJACENCY)[100].epsilon == pytest.approx(EPSILON / 7, abs=1e-12)


def test_what_an_old_copy_has_lost_counts_in_full_for_every_day(tmp_path):
    mark = tmp_path / "mark"
    with closing(Ledger(tmp_path / "n0.ledger", "n0", mark)) as ledger:
        ledger.join(RUN, b"plan")
        answered(ledger, 100)
        old = copied(ledger, tmp_path / "old", log=True)
        answered(ledger, 101)
    with closing(Ledger(old, "n0", mark)) as restored:
        restored.accept()
        about = restored.spends.about_days(ADJACENCY, (100, 150))
        assert about[150][1].epsilon == pytest.approx(EPSILON, abs=1e-12)
        assert restored.spends.readings(ADJACENCY)[100].epsilon == pytest.approx(EPSILON * 8 / 7, abs=1e-12)


def test_a_share_of_a_sum_is_rounded_once_so_that_seven_sevenths_are_a_whole(ledger):
    for _ in range(7):
        answered(ledger, 100)
    whole = ledger.spends.about_days(ADJACENCY)[100][7]
    assert charge_of_totals(whole).shared(7) == charge_of_totals(whole.shared(7))
    assert whole.shared(7).epsilon == EPSILON
    assert total_epsilon(whole.shared(7), 0.0) == EPSILON


# --- what survives ---


def test_days_are_durable_with_the_spend_in_the_tables_and_in_the_log(tmp_path):
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.join(RUN, b"plan")
    ledger.new_data(ReadingDays(100, 7))
    ledger.commit(RUN, spends=[spend()], state=b"state", status="running")  # the log has it
    ledger.commit(RUN, spends=[spend()], answers=[(b"question", b"answer")])  # the tables
    ledger.commit(RUN, spends=[spend()], state=b"state", status="running")
    with closing(ledger), closing(Ledger(copied(ledger, tmp_path / "cut", log=True), "n0")) as again:
        assert again.spends.days(again.data_version) == ReadingDays(100, 7)
        assert again.spends.readings(ADJACENCY)[94].epsilon == pytest.approx(3 * EPSILON / 7, abs=1e-12)
        assert again.verify() == []


def test_what_a_process_that_died_had_drawn_is_paid_for_the_days_of_then(tmp_path):
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    ledger.join(RUN, b"plan")
    ledger.new_data(ReadingDays(100, 7))
    NoiseJournal(tmp_path / "n0.drawn", ledger).draw(
        RUN, spend(), b"q" * 32, lambda: (np.ones(3),), ledger.data_version
    )
    ledger.new_data(ReadingDays(101, 7))
    with closing(ledger), closing(Ledger(copied(ledger, tmp_path / "cut", log=True), "n0")) as again:
        NoiseJournal(tmp_path / "n0.drawn", again).close()
        costs = again.spends.readings(ADJACENCY)
        assert (min(costs), max(costs)) == (94, 100)


def test_old_runs_become_sums_by_the_hour_and_what_a_reading_costs_stays_exact(tmp_path):
    with closing(Ledger(tmp_path / "n0.ledger", "n0", durable=False, keep=2)) as ledger:
        for day in range(10):
            run = b"run%13d" % day
            ledger.join(run, b"plan")
            ledger.new_data(ReadingDays(100 + day, 7))
            ledger.commit(run, spends=[spend()], status="done", last=b"last")
        assert len(ledger.spends.rows()) < 10
        with closing(reopened(ledger)) as again:
            assert again.spends.readings(ADJACENCY)[100].epsilon == pytest.approx(EPSILON, abs=1e-12)
