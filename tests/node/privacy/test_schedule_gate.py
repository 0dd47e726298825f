"""The gate with a public schedule: answers of unequal price, counted as what they are whatever is asked, lost or
resumed.
"""

from contextlib import closing
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy import pointwise, schedule
from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.lab.audit.audit import audited
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck, spent_in
from hushgrid.node.privacy.gate import POOL
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import SeededNoise, SystemNoise
from hushgrid.node.schema.sections import Adjacency, Allow, Budget, ReplaceOneRecord
from tests.support import examples, games
from tests.support.devices.rows_device import commit, device, gate, plan, problem, terms
from tests.support.scenarios import neighbour_scenarios
from tests.support.scenarios.record_scenarios import GAUSSIAN, scenario

X = np.zeros(3)
RECORD = Adjacency(replace_one_record=ReplaceOneRecord(clip=1.0))


def of(growth=1.5, answers=6, **over):
    """Terms of a schedule, whose claim is that of all its answers."""
    made = terms("gaussian", answers, **{"clip": 1.0, "adjacency": "replace-one-record", "growth": growth} | over)
    return terms(
        "gaussian",
        answers,
        **{"clip": 1.0, "adjacency": "replace-one-record", "growth": growth} | over | {"epsilon": made.cost(answers)},
    )


def allowed(ledger, t, epsilon, **of_budget):
    cap = Budget(epsilon=epsilon, delta=t.delta, adjacency=RECORD, **of_budget)
    return BudgetCheck("n0", ledger, b"run", plan().algorithm, t, cap, Allow(), simulated=True)


# --- what an answer costs ---


@pytest.mark.parametrize("growth", [0.6, 1.5])
@pytest.mark.parametrize("kept", [False, True])
def test_every_answer_has_the_noise_of_its_own_price_and_all_together_cost_the_claim(tmp_path, growth, kept):
    loss, t = problem(50, 3), of(growth, pointwise=kept)
    ledger, budget_check = device(tmp_path, t)
    one = gate(loss, t, SystemNoise(), budget_check)
    for k in range(1, 7):
        one.refill()
        one.gradient(X)
        (spend,) = one.spends
        lattice, unit = one.lattice_at(k), one.unit(X, t) if kept else 1.0
        assert lattice == Lattice.gaussian(t.price(k), pointwise.UNIT if kept else loss.sensitivity(1.0), 3)
        assert (spend.value, spend.scale) == (lattice.mu, lattice.scale * unit)
        assert t.price(k) * (1 - 2e-3) <= spend.value <= t.price(k)
        commit(ledger, one)
        assert spent_in(ledger, b"run", t) <= t.cost(k) * (1 + 1e-12)  # the conversion's last bits
    assert t.price(2) / t.price(1) == pytest.approx(growth**0.5)
    assert t.cost(6) == t.epsilon == pytest.approx(gdp_epsilon(t.per_answer * 6**0.5, t.delta), rel=1e-9)
    assert t.epsilon <= gdp_epsilon(t.per_answer * 6**0.5, t.delta)
    with pytest.raises(Refused, match="the plan's cap is 6"):
        one.gradient(X)


def test_noise_drawn_ahead_is_each_answer_s_own_and_no_more_than_the_cap_allows():
    one = gate(problem(), of(1.02, 40), SystemNoise())
    one.refill()
    assert list(one.noise.pool) == [one.lattice_at(k) for k in range(1, POOL + 1)]
    ahead = [n[0].tobytes() for n in one.noise.pool.values()]
    taken = [one.noise.take(one.lattice_at(k), 3, k).tobytes() for k in range(1, POOL + 1)]
    assert taken == ahead
    assert not one.noise.pool
    few = gate(problem(), of(0.7, 3), SystemNoise())
    few.refill()
    assert len(few.noise.pool) == 3


def test_a_run_that_is_resumed_goes_on_at_its_own_place_in_the_schedule(tmp_path):
    loss, t = problem(50, 3), of(2.0)
    ledger, budget_check = device(tmp_path, t)
    first = gate(loss, t, SeededNoise(1, "n0"), budget_check)
    for _ in range(3):
        first.gradient(X)
    commit(ledger, first)
    again = gate(loss, t, SeededNoise(1, "n0"), budget_check)
    again.restore(first.state)
    again.gradient(X)
    (spend,) = again.spends
    assert (spend.answer, spend.value) == (4, again.lattice_at(4).mu)


# --- what it is counted as ---


def test_an_early_end_costs_what_was_answered(tmp_path):
    t = of(2.0)
    ledger, budget_check = device(tmp_path, t)
    one = gate(problem(50, 3), t, SystemNoise(), budget_check)
    for _ in range(2):
        one.gradient(X)
    commit(ledger, one)
    assert spent_in(ledger, b"run", t) == pytest.approx(t.cost(2), rel=2e-3)
    assert t.cost(2) < 0.3 * t.epsilon
    assert t.cost(6, 2) == pytest.approx(gdp_epsilon(2 * t.per_answer * 6**0.5, t.delta), rel=1e-9)


@pytest.mark.parametrize("growth", [0.5, 2.0])
@pytest.mark.parametrize("window", [None, "1h"])
def test_the_dearest_answer_asked_anew_after_each_death_is_paid_each_time_until_the_budget_refuses(
    tmp_path, growth, window
):
    """A coordinator that kills the device before its state is stored, and asks the same place of the schedule again."""
    t = of(growth)
    ledger, _ = device(tmp_path, t)
    dearest = 1 if growth < 1 else 6

    def asked_anew(x):
        one = gate(problem(50, 3), t, SystemNoise(), allowed(ledger, t, t.epsilon, window=window))
        one.state.answers = dearest - 1
        one.gradient(x)
        commit(ledger, one)

    most = int(t.per_answer**2 * 6 / t.price(dearest) ** 2 / (1 - 2e-3) ** 2)
    assert 1 <= most < 6
    for n in range(most):
        asked_anew(X + n)
    with pytest.raises(Refused, match="budget"):
        asked_anew(X + 9)
    assert spent_in(ledger, b"run", t) <= t.epsilon


@pytest.mark.parametrize("window", [None, "1h"])
@pytest.mark.parametrize("growth", [0.5, 1.02, 2.0])
def test_a_budget_of_the_claim_is_enough_to_the_last_answer_and_a_smaller_one_is_refused_before_the_first(
    tmp_path, growth, window
):
    t = of(growth)
    ledger, _ = device(tmp_path, t)
    with pytest.raises(Refused, match="budget"):
        allowed(ledger, t, t.epsilon * (1 - 1e-9), window=window).admit(6)
    budget_check = allowed(ledger, t, t.epsilon, window=window)
    budget_check.admit(6)
    one = gate(problem(50, 3), t, SystemNoise(), budget_check)
    for _ in range(6):
        one.gradient(X)
        commit(ledger, one)
    assert budget_check.spent <= t.epsilon
    budget_check.admit(6)  # nothing is left to ask


@pytest.mark.runs
@examples.of(30)
@given(growth=st.floats(0.3, 3.0), given=st.integers(0, 8), epsilon=st.floats(0.1, 8.0))
def test_whatever_a_plan_s_growth_what_a_budget_lets_pass_is_within_it(tmp_path_factory, growth, given, epsilon):
    t = of(growth, 8)
    ledger, _ = device(tmp_path_factory.mktemp("d"), t)
    budget_check = allowed(ledger, t, epsilon)
    one = gate(problem(20, 3), t, SystemNoise(), budget_check)
    one.state.answers, mu2 = given % 8, 0.0
    try:
        while True:
            one.gradient(X)
            mu2 += one.spends[0].value ** 2
            commit(ledger, one)
    except Refused:
        pass
    assert gdp_epsilon(mu2**0.5, t.delta) <= epsilon * (1 + 1e-12)


# --- games ---


@pytest.mark.runs
@pytest.mark.parametrize("k", [1, 4])
def test_the_game_of_an_answer_proves_nearly_its_own_price_and_never_more(k):
    """Of the noisiest and of the dearest of four: each claims its own mu, from half to one and a half of the even
    one's.
    """
    N, t, answers = 3000, of(2.0, 4, per_answer=1.0), []
    losses = [problem(3, 2, scale=2.0) for _ in range(2)]
    for loss, way in zip(losses, (1, -1), strict=True):
        loss.A[0], loss.b[0] = (way, 0.0), 1.0
    x = np.array([0.0, 20.0])
    for seed, loss in enumerate(losses):
        one = gate(loss, t, SeededNoise(seed, "n0"))
        answers.append([])
        for n in range(N):
            one.noise = SeededNoise(seed + 2 * n, "n0")
            one.state.answers = k - 1
            answers[-1].append(one.gradient(x))
            one.committed()
    moved = np.linalg.norm(np.subtract(*(loss.clipped_gradient(x, 1.0, 2) for loss in losses)))
    claimed = t.price(k) * moved / losses[0].sensitivity(1.0)
    values = [loss.clipped_gradient(x, 1.0, 2) for loss in losses]
    assert games.proved(answers, values, games.DOUBT) <= claimed
    assert games.proved(answers, values, 0.05) >= 0.8 * claimed


@pytest.mark.runs
def test_the_audit_of_a_whole_run_proves_most_of_its_claim_and_never_more():
    over = GAUSSIAN | {
        "privacy.accountant": "gdp",
        "privacy.epsilon": 4.0,
        "privacy.schedule": {"growth": 1.4},
        "seed": 1,
    }
    found = audited(scenario({"algorithm": {"name": "dgd", "rounds": 10, "step_size": 0.1}} | over), games=4000)
    assert found.terms.growth == 1.4
    assert 0.7 * 4.0 <= found.worst.bounds[0.95].epsilon <= 1.05 * 4.0
    assert not found.above
    scales = [answer.scale for answer in found.worst.canary.answers]
    assert scales[0] / scales[9] == pytest.approx(1.4**4.5, rel=1e-2)


# --- runs ---


@pytest.mark.runs
def test_a_run_claims_and_spends_its_total(tmp_path):
    raw = neighbour_scenarios.scenario("dgd", 8, GAUSSIAN | {"privacy.schedule": {"growth": 0.8}, "seed": 3})
    result = run(raw, out=tmp_path / "out")
    with closing(Ledger(tmp_path / "out" / "ledger" / "n0.ledger", "n0")) as ledger:
        values = [s.value for s in ledger.spends.rows()]
    assert len(values) == 8
    assert values[0] / values[7] == pytest.approx(0.8**-3.5, rel=5e-3)
    epsilon = raw["privacy"]["epsilon"]
    spent = result.summary["privacy"]["per_node"]["n0"]["spent"]["epsilon"]
    assert epsilon * (1 - 1e-9) <= spent <= epsilon
    assert spent == pytest.approx(result.history["epsilon_n0"][-1], rel=1e-12)


def test_a_growth_of_one_is_the_run_without_a_schedule():
    raw = neighbour_scenarios.scenario("dgd", 3, GAUSSIAN | {"seed": 3})
    even = neighbour_scenarios.scenario("dgd", 3, GAUSSIAN | {"seed": 3, "privacy.schedule": {"growth": 1.0}})
    assert np.array_equal(run(raw).solution["x"], run(even).solution["x"])


@pytest.mark.parametrize(
    ("over", "line"),
    [
        (
            {"privacy.mechanism": "laplace", "privacy.delta": None},
            r"privacy\.mechanism: found laplace, expected gaussian",
        ),
        (
            {"algorithm": {"name": "admm", "rounds": 2, "eta": 0.5}},
            r"algorithm: found admm, expected an algorithm that asks for gradients",
        ),
        ({"algorithm.variant": "published"}, r"algorithm\.variant: found published, expected guarded"),
        (
            {"privacy.schedule": {"growth": 30.0}},
            r"privacy\.schedule\.growth: found 30 over 10 answers, expected growth",
        ),
        ({"privacy.schedule": {"growth": 0.0}}, r"privacy\.schedule\.growth"),
    ],
)
def test_a_scenario_that_asks_it_of_another_gate_is_refused_in_one_line(over, line):
    with pytest.raises(InputError, match=line):
        run(scenario(GAUSSIAN | {"privacy.schedule": {"growth": 1.5}} | over))


def test_zones_have_no_schedule():
    from tests.support.scenarios.guarded_scenarios import zones

    raw = zones(at="gradient", mechanism="gaussian", delta=1e-5, schedule={"growth": 1.5})
    with pytest.raises(InputError, match=r"privacy\.schedule: found growth 1\.5, expected none \(it is for records\)"):
        scenario_from(raw)


def test_a_schedule_that_no_grid_holds_is_refused_before_the_first_answer():
    with pytest.raises(InputError, match="noise: mu"):
        gate(problem(), of(1.9, 20, per_answer=1e-12))


def test_prices_beyond_the_last_are_the_last_s():
    t = of(1.5, 4)
    assert t.price(9) == t.price(4) == schedule.prices(t.per_answer, 1.5, 4)[-1] < inf
