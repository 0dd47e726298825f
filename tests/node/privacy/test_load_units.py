"""Units of privacy of loads: what one change may move, and that the noise and the ledger answer for all of it."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest

from hushgrid.broker.report.wording import Zones
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.totals import expected_error, reconciled
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import check_privacy
from hushgrid.node.problems.power_flow.gate import ZoneGate, expected_l1, lattice_of
from hushgrid.node.problems.power_flow.question import LOAD_BOUND, LoadQuestion
from hushgrid.node.schema.sections import Adjacency, Change
from tests.support.devices.gated_device import Device, budget, plan
from tests.support.devices.load_units import BETA, CAPACITY, COS, MASK, PAIR, PLAIN, RELATIVE, UNITS, Loads, asked

RELEASES = [("plain", "laplace"), ("plain", "gaussian"), ("totals", "laplace")]


def changes(adjacency):
    """The corners of what one change may do to loads of four buses: vectors of 8."""
    unit, found = adjacency.of_loads, []
    for bus, sign in itertools.product(range(4), (1, -1)):
        if unit is None or unit.relative:
            for entry in (bus, bus + 4):
                found.append(np.zeros(8))
                found[-1][entry] = sign * (BETA if unit is None else unit.relative * CAPACITY[entry])
        else:
            for other in (1, -1):
                found.append(np.zeros(8))
                found[-1][bus] = sign * BETA
                found[-1][bus + 4] = other * BETA * math.tan(math.acos(COS))
    return found


def loads():
    """Corners of what loads can be, and random ones of every size; p.u."""
    rng = np.random.default_rng(5)
    yield from (np.zeros(8), np.full(8, LOAD_BOUND - 10), np.full(8, 10 - LOAD_BOUND))
    for size in (1e-6, 1e-2, 1.0, 100.0, 9e3):
        yield from size * rng.uniform(-1, 1, (40, 8))


def moved(adjacency, release, mechanism, measure):
    """The largest `measure(question, before, after)` over loads and their neighbours."""
    t, most = asked(adjacency, release, mechanism), 0.0
    for d, change in itertools.product(loads(), changes(adjacency)):
        most = max(most, measure(t, Loads(d, adjacency), Loads(d + change, adjacency)))
    return most


@pytest.mark.runs
@pytest.mark.parametrize(("release", "mechanism"), RELEASES)
@pytest.mark.parametrize("unit", UNITS)
def test_no_neighbour_moves_an_answer_further_than_its_sensitivity_and_one_moves_it_so_far(unit, release, mechanism):
    adjacency, norm = UNITS[unit], 1 if mechanism == "laplace" else 2
    question = LoadQuestion(Loads(np.zeros(8), adjacency), asked(adjacency, release, mechanism))
    claimed, coordinates = question.sensitivity

    def distance(t, before, after):
        change = LoadQuestion(after, t).exact(after.data) - LoadQuestion(before, t).exact(before.data)
        assert np.count_nonzero(change) <= coordinates
        return float(np.linalg.norm(change, norm))

    # The neighbours themselves are rounded, d + change by half a unit in the last place of 1e4: not part of the claim.
    own = 8 * LOAD_BOUND * 2.0**-53 / (BETA * 0.2 if unit == "relative" else 1)
    most = moved(adjacency, release, mechanism, distance)
    assert claimed * (1 - 1e-6) < most <= claimed + own


@pytest.mark.parametrize(
    ("unit", "release", "mechanism", "expected"),
    [
        ("plain", "plain", "laplace", (BETA, 1)),
        ("plain", "totals", "laplace", (2 * BETA, 2)),
        ("pair", "plain", "laplace", (BETA * 1.75, 2)),
        ("pair", "plain", "gaussian", (BETA / COS, 2)),
        ("pair", "totals", "laplace", (2 * BETA * 1.75, 4)),
        ("relative", "plain", "laplace", (1.0, 1)),
        ("relative", "plain", "gaussian", (1.0, 1)),
        ("relative", "totals", "laplace", (2.0, 2)),
    ],
)
def test_the_sensitivities_are_those_of_the_formulas(unit, release, mechanism, expected):
    question = LoadQuestion(Loads(np.zeros(8), UNITS[unit]), asked(UNITS[unit], release, mechanism))
    found, coordinates = question.sensitivity
    assert coordinates == expected[1]
    assert expected[0] <= found <= expected[0] * (1 + 1e-7)
    if (unit, release) == ("plain", "plain"):
        assert found == BETA  # as it always was: ledgers and stored answers know it by these bits


@pytest.mark.runs
@pytest.mark.parametrize(("release", "mechanism"), RELEASES)
@pytest.mark.parametrize("unit", UNITS)
def test_on_the_grid_the_answers_of_neighbours_lie_no_further_apart_than_the_noise_is_made_for(
    unit, release, mechanism
):
    """Rounding sets every moved coordinate up to a step further apart: with too few counted the claim would be
    passed.
    """
    adjacency, norm = UNITS[unit], 1 if mechanism == "laplace" else 2
    t = asked(adjacency, release, mechanism)
    lattice = lattice_of("n0", Loads(np.zeros(8), adjacency), t)
    zero = np.zeros(LoadQuestion(Loads(np.zeros(8), adjacency), t).width, np.int64)
    rng, most = np.random.default_rng(6), 0.0
    for d in rng.uniform(-1, 1, (300, 8)):
        for change in changes(adjacency):
            one, other = (
                lattice.release(LoadQuestion(of, t).exact(of.data), zero)
                for of in (Loads(d, adjacency), Loads(d + change, adjacency))
            )
            most = max(most, float(np.linalg.norm(one - other, norm)))
    assert most <= lattice.sensitivity
    exact, _ = LoadQuestion(Loads(np.zeros(8), adjacency), t).sensitivity
    assert most > exact * (1 - 1e-7)
    assert most > exact or unit == "relative"  # the grid does move them apart; a relative change is whole steps of it


@pytest.mark.runs
@pytest.mark.parametrize("release", ["plain", "totals"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_game_against_the_gate_measures_less_than_the_claim_and_most_of_it(unit, release):
    """An adversary told two neighbours tells their answers apart at odds of nearly e^epsilon, and never above."""
    adjacency, claimed, N = UNITS[unit], 1.0, 40_000
    t = asked(adjacency, release, epsilon=claimed)
    base = np.array([0.5, 0.1, 0.0, 0.0, 0.2, 0.0, 0.1, 0.0])
    change = changes(adjacency)[1 if unit == "relative" else 0]
    if unit == "relative":  # the load of the largest contract that the mask leaves: its sum moves as far as it does
        change = np.eye(8)[0] * 0.05 * CAPACITY[0]
    sides, values = [], []
    for seed, d in ((1, base), (2, base + change)):
        device = Device.__new__(Device)
        loss = Loads(d, adjacency)
        one = ZoneGate("n0", loss, t, SeededNoise(seed, "n0"), Anything(), device)
        question, lattice = one.question, one.lattice
        values.append(question.exact(loss.data))
        noise = one.noise.take(lattice, N * question.width, 1).reshape(N, question.width)
        sides.append(np.array([lattice.release(values[-1], n) for n in noise]))
    loss_of_privacy = [np.sum(np.abs(s - values[1]) - np.abs(s - values[0]), axis=1) / lattice.scale for s in sides]
    threshold = claimed * (1 - 1e-6)  # at its largest wherever every moved coordinate lies beyond the nearer value
    first, second = (float(np.mean(of >= threshold * 0.99)) for of in loss_of_privacy)
    error = math.sqrt(math.log(2 / 1e-6) / (2 * N))
    assert math.log((first - error) / (second + error)) <= claimed
    assert math.log(first / second) == pytest.approx(claimed, abs=0.15)
    assert max(map(np.max, loss_of_privacy)) <= claimed


class Anything:
    """An owner who allows every answer."""

    def authorise(self, spends): ...
    def committed(self, spends): ...


# --- totals ---


def test_totals_are_one_answer_and_one_spend_and_are_repeated_as_they_were(tmp_path):
    device = Device(tmp_path, budget(1.0))
    device.loss = Loads(np.linspace(0.1, 0.8, 8))
    wanted = plan(mode="input", epsilon=1.0, release="totals", adjacency=PLAIN)
    gate = device.start(wanted)
    assert gate.width == 6 + 2
    d = gate.data()
    device.commit(gate)
    assert np.array_equal(d[~MASK], np.zeros(2))
    again = device.start(wanted)
    assert again.knows()
    assert np.array_equal(again.data(), d)
    (row,) = device.ledger.spends.rows()
    assert row.value == gate.lattice.epsilon
    assert 0.99 < row.value <= 1.0


@pytest.mark.parametrize("over", [{"release": "plain"}, {"adjacency": PAIR}, {"mask": np.ones(8, bool)}], ids=str)
def test_another_release_unit_or_mask_is_another_question(tmp_path, over):
    device = Device(tmp_path)
    device.loss = Loads(np.linspace(0.1, 0.8, 8), mask=MASK)
    given = {"mode": "input", "release": "totals", "adjacency": PLAIN}
    device.start(plan(**given)).data()
    gate = device.start(plan(**given))
    gate.data()
    device.commit(gate)
    device.loss = Loads(np.linspace(0.1, 0.8, 8), mask=over.get("mask", MASK))
    assert not device.start(plan(**given | {k: v for k, v in over.items() if k != "mask"})).knows()
    device.loss = Loads(np.linspace(0.1, 0.8, 8), mask=MASK)
    assert device.start(plan(**given)).knows()


def test_the_words_of_a_question_say_its_release_and_its_capacities_in_full():
    """A relation names the capacities by twelve digits: a question by all of them, whatever else it has in common."""
    other = Adjacency(bounded_change=Change(relative=0.05, of="ab" * 6 + "cd" * 26))
    assert str(other) == str(RELATIVE)
    questions = [
        LoadQuestion(Loads(np.zeros(8), unit), asked(unit, release)).text
        for unit in (PLAIN, PAIR, RELATIVE, other)
        for release in ("plain", "totals")
    ]
    assert len(set(questions)) == 6  # a number and a pair differ in their relations
    whole = LoadQuestion(Loads(np.zeros(8), mask=np.ones(8, bool)), asked(PLAIN))
    assert whole.text == ""  # as it always was


def test_the_loads_agree_with_their_sums_and_only_a_kind_that_has_loads_has_a_sum(tmp_path):
    only_p = np.array([1, 1, 1, 1, 0, 0, 0, 0], bool)
    question = LoadQuestion(Loads(np.zeros(8), mask=only_p), asked(PLAIN, "totals"))
    assert question.width == 4 + 1
    noisy = np.array([0.1, 0.2, 0.3, 0.4, 1.5])
    d = question.answered(noisy)
    assert np.allclose(d[:4], reconciled(noisy[:4], 1.5, np.ones(4), 1.0))
    assert np.allclose(d[:4], noisy[:4] + 0.5 / 5)
    assert np.array_equal(d[4:], np.zeros(4))
    nothing = LoadQuestion(Loads(np.zeros(8), mask=np.zeros(8, bool)), asked(PLAIN, "totals"))
    assert nothing.width == 0
    assert np.array_equal(nothing.answered(nothing.exact(np.zeros(8))), np.zeros(8))


@pytest.mark.runs
@pytest.mark.parametrize("n", [2, 4, 20])
def test_a_sum_over_a_zone_has_the_variance_of_the_formulas(n):
    """Plain 2 n (beta/eps)^2, totals 8 (beta/eps)^2 n/(n + 1): better for n > 3. 4,000 seeded answers at the gate."""
    mask, errors = np.repeat([True, False], n), {}
    for release in ("plain", "totals"):
        t = asked(PLAIN, release)
        one = ZoneGate("n0", Loads(np.zeros(2 * n), mask=mask), t, SeededNoise(3, "n0"), Anything(), None)
        errors[release] = []
        for k in range(4000):
            one.state.answers = 0
            one.noise = SeededNoise(k, "n0")
            errors[release].append(float(np.sum(one._noisy_data())))
            one.committed()
    plain, totals = (np.var(errors[release]) / BETA**2 for release in ("plain", "totals"))
    assert plain == pytest.approx(2 * n, rel=0.15)
    assert totals == pytest.approx(8 * n / (n + 1), rel=0.15)
    assert (totals < plain) == (n > 3)


@pytest.mark.runs
@pytest.mark.parametrize(("release", "mechanism"), RELEASES)
@pytest.mark.parametrize("unit", UNITS)
def test_the_expected_noise_is_the_mean_of_the_drawn(unit, release, mechanism):
    t = asked(UNITS[unit], release, mechanism)
    loss = Loads(np.full(8, 0.1), UNITS[unit])
    one = ZoneGate("n0", loss, t, SeededNoise(4, "n0"), Anything(), None)
    d = np.zeros(8)
    for k in range(2000):
        one.state.answers = 0
        one.noise = SeededNoise(k, "n0")
        d += np.abs(one._noisy_data() - loss.data)
        one.committed()
    assert one.drawn_l1 / 2000 == pytest.approx(expected_l1("n0", loss, t), rel=0.05)
    assert one.drawn_l1 == pytest.approx(float(np.sum(d[loss.loaded])), rel=1e-3)


@pytest.mark.runs
def test_the_expected_error_of_one_load_and_its_total_is_known_in_closed_form():
    assert expected_error(np.array([2.0]), 2.0) == pytest.approx([1.5], rel=1e-12)  # (L_1 + L_2)/2: 3/4 of the scale
    many = expected_error(np.full(100_000, 1.0), 1.0)  # a total of so many takes next to nothing from each
    assert many == pytest.approx(np.ones(100_000), rel=1e-4)


# --- what is refused ---


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (
            {"adjacency": PAIR, "mode": "objective", "at": "gradient"},
            r"privacy.at: found gradient, expected data \(bounded-change: pair\)",
        ),
        ({"adjacency": RELATIVE, "mode": "objective", "at": "gradient"}, "privacy.at: found gradient, expected data"),
        (
            {"release": "totals", "mode": "objective"},
            r"privacy.release: found totals, expected plain \(mode: objective\)",
        ),
        (
            {"release": "totals", "mechanism": "gaussian", "delta": 1e-5},
            r"privacy.release: found totals, expected plain \(mechanism: gaussian\)",
        ),
        (
            {"adjacency": PAIR, "variant": "published", "mode": "objective"},
            r"bounded-change: found pair, expected a number \(variant: published\)",
        ),
    ],
)
def test_what_cannot_be_hidden_so_is_refused_in_one_line(over, said):
    made = plan(**{"mode": "input", "adjacency": PLAIN} | over)
    with pytest.raises(InputError, match=said) as caught:
        check_privacy(made.privacy, made.algorithm, False, "plan")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("adjacency", [PAIR, RELATIVE], ids=str)
def test_rows_know_no_pairs_and_no_contracts(adjacency):
    made = plan(adjacency=adjacency)
    with pytest.raises(InputError, match=r"expected a number \(pair and relative are of zones\)"):
        check_privacy(made.privacy, made.algorithm, True, "plan")


def test_kinds_of_unit_are_relations_of_their_own(tmp_path):
    assert [str(unit) for unit in UNITS.values()] == [
        "bounded-change 0.01",
        "pair-change:0.01:0.8",
        "relative-change:0.05:abababababab",
    ]
    for held, wanted in itertools.permutations(UNITS.values(), 2):
        (place := tmp_path / f"{held} {wanted}").mkdir()
        device = Device(place, budget(100.0, adjacency=held))
        device.loss = Loads(np.zeros(8), wanted)
        with pytest.raises(Refused, match=f"n0: adjacency {wanted}, its budget counts {held}"):
            device.start(plan(mode="input", adjacency=wanted))
        device.ledger.close()


def test_a_smaller_pair_is_not_converted_into_a_larger_one(tmp_path):
    smaller = Adjacency(bounded_change=Change(pair=BETA / 2, power_factor=COS))
    device = Device(tmp_path, budget(100.0, adjacency=PAIR))
    with pytest.raises(Refused, match=r"its budget counts pair-change:0\.01:0\.8"):
        device.start(plan(adjacency=smaller))


@pytest.mark.parametrize("change", [{"epsilon": 1e9}, {"epsilon": 1e-9}], ids=str)
@pytest.mark.parametrize("release", ["plain", "totals"])
@pytest.mark.parametrize("unit", UNITS)
def test_extreme_plans_are_refused_before_any_answer_or_answered_on_a_grid_that_holds_them(
    tmp_path, unit, release, change
):
    device = Device(tmp_path)
    device.loss = Loads(np.full(8, LOAD_BOUND), UNITS[unit])
    try:
        gate = device.start(plan(mode="input", adjacency=UNITS[unit], release=release, **change))
    except (InputError, Refused):
        assert device.ledger.spends.rows() == []
        return
    assert np.isfinite(gate.data()).all()


# --- what is said ---


def test_a_report_says_each_unit_in_words():
    assert Zones.change(0.01, base_mva=100.0) == (
        "one active or reactive load moves by at most 0.01 p.u. (1 MW or 1 MVAr)"
    )
    assert Zones.change({"pair": 0.01, "power_factor": 0.8}, base_mva=100.0) == (
        "one customer moves the active load of one bus by at most 0.01 p.u. and its reactive load by at most 0.0075 "
        "p.u. (1 MW and 0.75 MVAr)"
    )
    share = {"relative": 0.05, "of": "ab" * 32}
    assert Zones.change(share, base_mva=None) == (
        "one active or reactive load moves by at most 5 % of its contracted capacity (the public capacities of digest "
        "abababababab); an entry without capacity counts as no load"
    )


def test_a_plan_of_a_plain_bounded_change_has_the_bytes_it_always_had():
    """Ledgers hold plans, and the id of a run is made of them."""
    made = plan(mode="input", adjacency=PLAIN, release="plain")
    said = msgspec.json.encode(made.privacy.public(), order="deterministic")
    assert said == (
        b'{"mechanism":"laplace","adjacency":{"bounded-change":0.01,"replace-one-record":null},"epsilon":2.0,"delta":null,'
        b'"per_answer":null,"accountant":null,"answers":null,"mode":"input","at":"data","budget":null}'
    )
