"""The gate: one spend an answer, noise of the honest scale, an answer repeated only where that is promised."""

from math import inf

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.node import wire
from hushgrid.node.privacy.noise_source import SeededNoise, SystemNoise
from hushgrid.node.wire import Mark
from tests.support.devices.gated_device import BETA, DATA, WORDS, Device, Quadratic, budget, plan

A = Quadratic.A
GAUSSIAN = {"mechanism": "gaussian", "delta": 1e-5}


class Recorded:
    """The sampler's own noise, remembered."""

    source = sampler = "recorded"

    def __init__(self):
        self.steps = []

    def take(self, lattice, size, answer):
        self.steps.append(lattice.sample(size))
        return self.steps[-1]

    def refill(self, lattice, size, answers): ...


def values(device):
    return [(row[2], row[3], row[4]) for row in device.ledger.spends.rows()]


@pytest.mark.parametrize("privacy", [{}, GAUSSIAN, {"at": "gradient"}, {"at": "gradient"} | GAUSSIAN], ids=str)
def test_every_answer_is_one_spend_priced_by_what_was_really_drawn(tmp_path, privacy):
    device = Device(tmp_path, budget(2.0, privacy.get("delta")))
    gate = device.start(plan(rounds=4, **privacy))
    device.answer(gate, 4)
    lattice = gate.lattice
    price = lattice.epsilon if lattice.kind == "laplace" else lattice.mu
    assert values(device) == [(i, lattice.kind, price) for i in (1, 2, 3, 4)]
    assert 0.99 * gate.terms.per_answer < price <= gate.terms.per_answer
    row = device.ledger.spends.rows()[0]
    assert row[5:10] == (lattice.sensitivity, lattice.scale, lattice.g, WORDS, SystemNoise.sampler)


@pytest.mark.parametrize("mechanism", [{}, GAUSSIAN], ids=["laplace", "gaussian"])
def test_a_load_moves_by_beta_and_the_gradient_by_2_beta_a_i(tmp_path, mechanism):
    """The scale is at least sensitivity/epsilon (mu) of what one changed load really moves; the paper says 2 beta."""
    norm = 1 if not mechanism else 2
    moved_data = BETA
    moved_gradient = max(np.linalg.norm(2 * BETA * row, norm) for row in A)
    assert moved_gradient > 2 * BETA
    for at, moved in (("data", moved_data), ("gradient", moved_gradient)):
        (tmp_path / at).mkdir()
        gate = Device(tmp_path / at).start(plan(at=at, **mechanism))
        price = gate.terms.per_answer
        assert moved <= gate.lattice.sensitivity <= moved * (1 + 1e-2)  # rounding to the grid costs no more
        assert gate.lattice.scale >= moved / price
        assert gate.lattice.scale <= 1.01 * moved / price
    before, after = Quadratic(DATA), Quadratic(DATA + np.array([BETA, 0]))
    z = np.array([0.3, -1.0, 2.0, 0.7])
    change = after.gradient(z, after.data) - before.gradient(z, before.data)
    assert np.linalg.norm(change, norm) == pytest.approx(np.linalg.norm(2 * BETA * A[0], norm))


def test_what_is_released_are_multiples_of_g(tmp_path):
    device = Device(tmp_path, noise=Recorded)
    gate = device.start(plan(at="gradient"))
    x = np.array([0.1, 0.2, 0.3, 0.4])
    answer = gate.gradient(x)
    steps = answer / gate.lattice.g
    assert (steps == np.rint(steps)).all()
    exact = gate.loss.gradient(x, DATA)
    assert np.array_equal(steps - gate.noise.steps[0], np.rint(exact / gate.lattice.g))
    (tmp_path / "data").mkdir()
    device = Device(tmp_path / "data")
    kept = device.start(plan(mode="input")).data()
    g = 2.0**-30  # finer than any g here: a multiple of g has few bits below it
    assert (kept / g == np.rint(kept / g)).all()


def test_an_objective_answer_uses_the_running_mean_of_its_own_noisy_copies(tmp_path):
    device = Device(tmp_path, noise=Recorded)
    gate = device.start(plan(rounds=3))
    x, g = np.array([1.0, 2.0, 3.0, 4.0]), gate.lattice.g
    answers = device.answer(gate, 3, x)
    copies = [g * (np.rint(DATA / g) + n) for n in gate.noise.steps]
    for k, answer in enumerate(answers, start=1):
        assert np.allclose(answer, 2 * A.T @ (A @ x + np.mean(copies[:k], axis=0)), rtol=1e-12)
    assert len(values(device)) == 3


# --- mode input ---


def test_input_spends_once_and_answers_every_gradient_from_it(tmp_path):
    device = Device(tmp_path)
    gate = device.start(plan(rounds=5, mode="input"))
    kept = gate.data()
    for x in np.eye(4):
        assert np.array_equal(device.answer(gate, 1, x)[0], 2 * A.T @ (A @ x + kept))
    assert len(values(device)) == 1
    assert gate.state.answers == 1


def test_input_repeats_its_answer_across_runs_without_a_further_spend(tmp_path):
    device = Device(tmp_path, budget(2.0))
    first = device.answer(device.start(plan(mode="input")))[0]
    for rounds in (4, 9):  # the plan's epsilon for the one answer is the same
        gate = device.start(plan(rounds=rounds, mode="input"))
        assert gate.knows()
        assert np.array_equal(device.answer(gate)[0], first)
    assert len(values(device)) == 1
    device.ledger.close()
    again = Device(tmp_path, budget(2.0))  # and after a restart
    again.runs = 10
    assert np.array_equal(again.answer(again.start(plan(mode="input")))[0], first)
    assert len(values(again)) == 1


def test_a_repeat_is_free_even_where_the_budget_has_nothing_left(tmp_path):
    optimal = {"mode": "input", "accountant": "pure-optimal", "delta": 1e-5}
    device = Device(tmp_path, budget(2.0, 1e-5))
    first = device.answer(device.start(plan(**optimal)))[0]
    assert np.array_equal(device.answer(device.start(plan(**optimal)))[0], first)
    device.cap = budget(1.0, 1e-5)  # its owner wants less from now on
    assert np.array_equal(device.answer(device.start(plan(**optimal)))[0], first)
    with pytest.raises(Refused):
        device.start(plan(mode="input", epsilon=0.1))


@pytest.mark.parametrize("other", ["data version", "epsilon", "mechanism", "beta"])
def test_another_data_version_or_another_plan_gets_a_fresh_answer_and_a_spend(tmp_path, other):
    device = Device(tmp_path)
    first = device.start(plan(mode="input"))
    device.answer(first)
    over = {}
    if other == "data version":
        device.ledger.new_data()  # declared, never compared
    elif other == "epsilon":
        over = {"epsilon": 1.0}
    elif other == "mechanism":
        over = GAUSSIAN
    else:
        over = {"adjacency": type(plan().privacy.adjacency)(bounded_change=0.02)}
    gate = device.start(plan(mode="input", **over))
    assert not gate.knows()
    device.answer(gate)
    assert len(values(device)) == 2
    assert not np.array_equal(gate.state.kept, first.state.kept)


def test_a_run_that_repeats_goes_on_repeating_though_the_data_are_declared_new(tmp_path):
    device = Device(tmp_path)
    first = device.answer(device.start(plan(mode="input")))[0]
    gate = device.start(plan(mode="input"))
    assert gate.knows()
    device.ledger.new_data()
    assert np.array_equal(device.answer(gate)[0], first)
    assert len(values(device)) == 1
    assert not device.start(plan(mode="input")).knows()


def test_an_answer_of_known_noise_is_never_repeated_as_a_private_one(tmp_path):
    device = Device(tmp_path, noise=lambda: SeededNoise(7, "n0"))
    seeded = device.answer(device.start(plan(mode="input")))[0]
    device.noise = lambda: SeededNoise(8, "n0")
    assert not device.start(plan(mode="input")).knows()
    device.noise = SystemNoise
    gate = device.start(plan(mode="input"))
    assert not gate.knows()
    assert not np.array_equal(device.answer(gate)[0], seeded)
    device.noise = lambda: SeededNoise(7, "n0")
    assert np.array_equal(device.answer(device.start(plan(mode="input")))[0], seeded)


def test_whether_an_answer_is_repeated_never_depends_on_what_the_data_are(tmp_path):
    """Equality of two data sets is itself a secret: days A, B, A, B of one version give one answer and one spend."""
    device = Device(tmp_path)
    answers = []
    for data in (DATA, -3 * DATA, DATA, DATA + 1e-12):
        device.loss = Quadratic(data)
        gate = device.start(plan(mode="input"))
        device.answer(gate)
        answers.append(gate.state.kept)
    assert len(values(device)) == 1
    assert all(np.array_equal(answers[0], answer) for answer in answers)


def test_the_ledger_holds_nothing_that_a_guess_of_the_data_could_be_tested_by(tmp_path):
    ledgers = []
    for k, data in enumerate((DATA, DATA + 1.0)):
        (tmp_path / str(k)).mkdir()
        device = Device(tmp_path / str(k), data=data)
        device.answer(device.start(plan(mode="input")))
        ledgers.append([key for (key,) in device.ledger.tables.db.execute("SELECT key FROM answer")])
        device.ledger.close()
        assert [p.name for p in (tmp_path / str(k)).iterdir()] == ["n0.ledger"]
    assert ledgers[0] == ledgers[1]


# --- refusals ---


@pytest.mark.parametrize(
    "over",
    [{}, {"mode": "input"}, {"at": "gradient"}, {"mode": "output", "variant": "published"}, {"variant": "published"}],
    ids=str,
)
def test_answers_beyond_the_cap_are_refused(tmp_path, over):
    device = Device(tmp_path, simulated=True)
    gate = device.start(plan(rounds=2, **over))
    ask = (
        gate.perturb
        if over.get("mode") == "output"
        else gate._release
        if over.get("mode") == "input"
        else gate.gradient
    )
    x = (b"", lambda: DATA) if over.get("mode") == "input" else (np.zeros(4),)
    for _ in range(gate.terms.answers):
        ask(*x)
        device.commit(gate)
    before = wire.encode(gate.state)
    with pytest.raises(Refused, match=rf"n0: {gate.terms.answers} answers given, one more asked, the plan's cap is"):
        ask(*x)
    assert wire.encode(gate.state) == before
    assert gate.spends == []


def test_an_exact_gradient_is_refused_by_a_finite_budget(tmp_path):
    device = Device(tmp_path, budget(1e6), simulated=True)
    with pytest.raises(Refused, match="variant none reveals everything"):
        device.start(plan(variant="none"))
    gate = device.start(plan())
    with pytest.raises(Refused, match="exact gradient was asked for in a private run"):
        gate.exact_gradient(np.zeros(4))
    assert gate.spends == []


def test_an_exact_gradient_without_a_budget_costs_infinity_under_every_adjacency(tmp_path):
    device = Device(tmp_path, simulated=True)
    gate = device.start(plan(variant="none"))
    x = np.ones(4)
    assert np.array_equal(gate.exact_gradient(x), gate.loss.gradient(x, DATA))
    device.commit(gate)
    assert values(device) == [(1, "nonprivate", inf)]
    assert device.ledger.spends.totals(WORDS).nonprivate
    device.cap = budget(1e6)
    with pytest.raises(Refused):
        device.start(plan())


def test_a_refused_answer_changes_nothing(tmp_path):
    device, wanted = Device(tmp_path, budget(2.0)), plan(rounds=4)
    state = device.start(wanted).state
    device.answer(device.gate(wanted), 2)
    device.ledger.marks.tell(Mark(device.ledger.id, 5, epsilon=1.6))  # its owner stops it and accepts a gap of 0.6
    device.ledger.accept()
    gate = device.gate(wanted)
    gate.restore(state)
    before = (wire.encode(gate.state), device.ledger.spends.rows(), device.ledger.mark)
    with pytest.raises(
        Refused, match=r"n0: spent epsilon 1.6, asked 0.5 more, budget 2 \(bounded-change 0.01, delta 0\)"
    ):
        gate.gradient(np.zeros(4))
    assert (wire.encode(gate.state), device.ledger.spends.rows(), device.ledger.mark) == before
    assert (gate.spends, gate.repeat) == ([], [])


def test_an_answer_is_paid_before_the_data_are_touched(tmp_path):
    """Whatever goes wrong in computing it, the spend is noted: how it goes wrong may depend on the data."""
    device = Device(tmp_path)

    class Overflowing(Quadratic):
        def gradient(self, z, d):
            raise OverflowError(f"{d}")

    device.loss = Overflowing()
    gate = device.start(plan(at="gradient"))
    with pytest.raises(OverflowError):
        gate.gradient(np.zeros(4))
    assert len(gate.spends) == 1


@pytest.mark.parametrize("over", [{"epsilon": 1e-9, "at": "gradient"}, {"epsilon": 1e12}], ids=str)
def test_a_scale_that_no_grid_can_hold_is_refused_before_anything_is_asked(tmp_path, over):
    device = Device(tmp_path)
    with pytest.raises((InputError, Refused)):
        device.start(plan(rounds=10**6, **over) if over["epsilon"] < 1 else plan(rounds=1, **over))
    assert values(device) == []


# --- the published variant ---


def test_published_laplace_noise_is_priced_honestly(tmp_path):
    """The paper's noise is for 2 beta; the gradient moves by 2 beta |a_i|_1: case14's |a_i|_1 = 5 makes 5 into 25."""
    device = Device(tmp_path, simulated=True)
    device.loss.row_l1 = 5.0
    gate = device.start(plan(rounds=100, variant="published", per_answer={"epsilon": 0.05}))
    assert gate.terms.epsilon == pytest.approx(5.0)  # what the paper would say
    device.answer(gate, 100)
    assert device.ledger.spends.totals(WORDS).epsilon == pytest.approx(25.0, rel=1e-12)
    row = device.ledger.spends.rows()[0]
    assert row[6] == pytest.approx(2 * BETA / 0.05)  # the scale, as published


def test_a_budget_counts_published_answers_at_their_honest_price(tmp_path):
    device = Device(tmp_path, budget(5.1), simulated=True)
    gate = device.start(plan(rounds=100, variant="published", per_answer={"epsilon": 0.05}))
    with pytest.raises(Refused, match=r"budget 5\.1 "):
        device.answer(gate, 100)
    assert len(values(device)) == 25  # 5.1 / (0.05 |a_i|_1), |a_i|_1 = 4
    assert device.ledger.spends.totals(WORDS).epsilon <= 5.1


def test_output_perturbation_has_no_finite_price(tmp_path):
    device = Device(tmp_path, simulated=True)
    gate = device.start(plan(variant="published", mode="output"))
    gate.exact_gradient(np.zeros(4))
    assert gate.spends == []  # `perturb` pays for the step
    gate.perturb(np.zeros(4))
    device.commit(gate)
    assert values(device) == [(1, "nonprivate", inf)]


# --- the noise ---


def test_the_pool_gives_each_answer_its_own_noise(tmp_path):
    gate = Device(tmp_path).start(plan(rounds=200))
    gate.refill()
    taken = []
    for i in range(100):
        taken.append(gate.noise.take(gate.lattice, 2, i))
        if i % 7 == 0:
            gate.refill()
    assert len({t.tobytes() for t in taken}) == 100


def test_seeded_noise_depends_on_seed_node_and_answer_alone(tmp_path):
    lattice = Device(tmp_path).start(plan()).lattice
    draw = SeededNoise(7, "n0").take
    once = [draw(lattice, 50, k).tobytes() for k in (1, 2, 3)]
    assert [draw(lattice, 50, k).tobytes() for k in (3, 1, 2)] == [once[2], once[0], once[1]]
    others = [SeededNoise(8, "n0").take(lattice, 50, 1).tobytes(), SeededNoise(7, "n1").take(lattice, 50, 1).tobytes()]
    assert len({*once, *others}) == 5
