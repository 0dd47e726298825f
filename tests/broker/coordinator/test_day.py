"""A day that is carried on hour by hour: one answer, one plan an hour, storage and ramps from plan to plan."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hushgrid.broker.coordinator import warm_start
from hushgrid.broker.coordinator.schedule import Clocks
from hushgrid.node.problems import rolling
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again
from tests.support.runs.day_fleet import HOUR, UNITS, DayFleet, epsilon, followed, setup_of, shaped, small, storage

pytestmark = pytest.mark.runs


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    return small(tmp_path_factory.mktemp("tables"))


def days(fleet, count):
    """The intervals of so many days; every zone has a profile of its own for each. What was planned in each."""
    T = fleet.horizon.periods
    for k in range(count * T):
        if k % T == 0:
            fleet.draws(shaped(fleet.setup, k // T))
        yield fleet.interval(), followed(fleet)


def test_two_days_cost_two_answers_and_every_hour_has_a_plan_of_the_rest_of_its_day(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    for k, (row, plan) in enumerate(days(fleet, 2)):
        assert (row["outcome"], row["period"], row["quality"]) == ("answer", k % 4 + 1, "agreed")
        assert plan.periods == list(range(k % 4 + 1, 5))
        assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([1 + k // 4] * 2, rel=1e-4)
    assert [line["period"] for line in fleet.rows()] == ["1", "2", "3", "4"] * 2


def test_every_table_of_a_plan_has_the_days_own_periods(tmp_path):
    horizon = {"periods": 4, "hours": 1, "storage": storage(tmp_path), "ramps": 0.3}
    fleet = DayFleet(tmp_path / "fleet", setup_of("case5", [[1, 2, 5], [3, 4]], horizon, contingencies=True))
    fleet.draws(shaped(fleet.setup))
    fleet.interval()
    fleet.interval()
    tables = fleet.centre.answer()[1]
    assert set(tables) == {"generation", "balance", "lines", "buses", "storage", "contingencies"}
    for name, (columns, rows) in tables.items():
        assert {row[columns.index("period")] for row in rows} == {2, 3, 4}, name


def test_a_plan_that_is_done_is_put_together_once_for_all_that_ask(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    over = fleet.centre.concluded()
    fleet.centre.answer()
    fleet.centre.view(None)
    assert fleet.centre.points()
    assert fleet.centre.concluded() is over


def test_storage_and_generators_go_on_where_the_plan_before_has_them(tmp_path, setup):
    fleet, before = DayFleet(tmp_path, setup), None
    steps = 0.3 * setup.case.generators.p_max * setup.case.base_mva
    for row, plan in days(fleet, 2):
        energy = np.array([unit[4] for unit in UNITS]) if before is None else before.energy[0]
        for taken, given, held in zip(plan.charge, plan.discharge, plan.energy, strict=True):
            np.testing.assert_allclose(held, energy + 0.95 * taken - given / 0.95, atol=2e-5)
            energy = held
        assert np.all(energy >= [unit[5] - 1e-5 for unit in UNITS])
        path = plan.generation if before is None else np.vstack([before.generation[:1], plan.generation])
        assert np.all(np.abs(np.diff(path, axis=0)) <= steps + 2e-3), row["interval"]
        before = plan


def test_the_state_without_the_passed_hours_halves_the_rounds_at_least(tmp_path, setup):
    fleets = {warm: DayFleet(tmp_path / str(warm), setup, warm_start=warm) for warm in (True, False)}
    rounds = {warm: [row["rounds"] for row, _ in days(fleet, 1)][1:] for warm, fleet in fleets.items()}
    assert np.median(rounds[True]) <= np.median(rounds[False]) / 2


def test_a_new_day_begins_where_the_same_hours_ended_last_and_needs_fewer_rounds(tmp_path, setup):
    fleets = {warm: DayFleet(tmp_path / str(warm), setup, warm_start=warm) for warm in (True, False)}
    lines = {warm: [row for row, _ in days(fleet, 3)] for warm, fleet in fleets.items()}
    assert [line["start"] for line in lines[True]] == ["cold"] + ["warm"] * 11
    mornings = {warm: [line["rounds"] for line in rows[4::4]] for warm, rows in lines.items()}
    assert sum(mornings[True]) < sum(mornings[False])


@pytest.mark.parametrize("who", [COORDINATOR, "z1"])
def test_a_plan_of_the_rest_of_a_day_has_the_same_bits_whoever_starts_again_at_any_message(tmp_path, setup, who):
    calm = DayFleet(tmp_path / "calm", setup)
    calm.interval()
    before = calm.hub.delivered
    calm.interval()
    expected, messages = calm.states(), calm.hub.delivered - before
    for at in range(1, messages, max(messages // 10, 1)):
        fleet = DayFleet(tmp_path / f"{at}", setup)
        fleet.interval()
        row = fleet.interval(Again(at, who))
        assert (row["period"], row["start"]) == (2, "warm")
        assert fleet.states() == expected, at
        assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([1, 1], rel=1e-4)


def test_a_coordinator_that_ends_after_a_run_and_before_its_record_makes_the_same_plan(tmp_path, setup):
    """The day has moved on by then: the run under way is gone on with all the same."""
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    fleet.now += HOUR
    fleet.centre = fleet.intervals.begin()
    fleet.hub.add(fleet.centre)
    fleet.hub.until(lambda: fleet.centre.finished)
    plan = encode_plan(fleet.intervals.plan)
    fleet.intervals._follow(fleet.centre)
    fleet.hub.drop(COORDINATOR)
    fleet.intervals = fleet._wakes()
    again = fleet.intervals.resumed()
    assert again is not None
    assert encode_plan(again.plan) == plan


def test_an_hour_that_is_missed_is_as_the_plan_before_has_it(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    plan = followed(fleet)
    fleet.goes("z2")
    assert fleet.interval()["outcome"] == "missed"
    assert fleet.horizon.first == 2
    fleet.comes("z2")
    row = fleet.interval()
    assert (row["outcome"], row["period"], row["start"]) == ("answer", 3, "warm")
    np.testing.assert_allclose(fleet.horizon.energy, plan.energy[1], atol=1e-5)
    assert list(fleet.horizon.before.values()) == pytest.approx(plan.generation[1].tolist(), abs=1e-3)


def test_a_day_keeps_its_hours_when_its_turn_is_missed(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    began, plan = fleet.horizon.began, followed(fleet)
    fleet.now += 5.4 * HOUR  # the second hour of the next day
    row = fleet.interval()
    assert row["period"] == 2
    assert fleet.horizon.began == began + 4 * HOUR
    np.testing.assert_allclose(fleet.horizon.energy, plan.energy[-1], atol=1e-5)
    fleet.interval()
    assert (fleet.horizon.first, fleet.now) == (3, 6 * HOUR)  # on the beat of the day again


def test_a_run_that_is_asked_for_plans_the_same_hour_again_for_nothing(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    fleet.interval()
    first = fleet.horizon
    fleet.now += HOUR / 3
    fleet.intervals.schedule.due = fleet.now  # as SIGUSR1 does: before it is due
    fleet.interval()
    assert fleet.horizon == first
    assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([1, 1], rel=1e-4)
    fleet.interval()
    assert (fleet.horizon.first, fleet.now) == (3, 2 * HOUR)


def test_jitter_moves_no_hour(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup, jitter="20min")
    for k in range(6):
        row = fleet.interval()
        assert row["period"] == k % 4 + 1
        assert 0 <= fleet.now - k * HOUR <= HOUR / 3


@pytest.mark.parametrize(
    ("boot", "wall", "period"),
    [("boot", 5e8, 2), ("boot", -1.8e9, 2), ("another", 0.0, 2), ("another", -1.8e9, 1), ("another", 2 * HOUR, 4)],
    ids=["ahead", "behind", "another boot", "another boot, no clock", "another boot, off for two hours"],
)
def test_a_clock_that_is_set_moves_no_hour_within_a_boot(tmp_path, setup, boot, wall, period):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    fleet.clocks = Clocks(lambda: fleet.now, lambda: 1.8e9 + fleet.now + wall, lambda: boot)
    fleet.hub.drop(COORDINATOR)
    fleet.intervals = fleet._wakes()
    fleet.now = max(fleet.now, HOUR)
    assert fleet.interval()["period"] == period


def test_data_that_are_replaced_within_a_day_are_answered_and_charged_anew(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    fleet.draws({"z1": shaped(setup, 5)["z1"]})
    fleet.interval()
    assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([2, 1], rel=1e-4)


def test_forecasts_that_are_read_again_change_the_plan_and_not_where_it_stands(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    energy = followed(fleet).energy[0]
    plan = setup.plan
    horizon = msgspec.structs.replace(plan.problem.horizon, availability={"5": (1.0, 0.2, 0.2, 0.2)})
    problem = msgspec.structs.replace(plan.problem, horizon=horizon)
    fleet.intervals.declare(fleet.config, msgspec.structs.replace(plan, problem=problem), setup.problem.case)
    row = fleet.interval()
    assert (row["outcome"], row["start"]) == ("answer", "warm")
    np.testing.assert_allclose(fleet.horizon.energy, energy, atol=1e-5)
    assert followed(fleet).generation[:, 4].max() <= 120 + 1e-3  # a fifth of 600 MW, though its ramp is less
    assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([1, 1], rel=1e-4)


def test_a_plan_that_begins_a_day_has_the_bytes_that_it_always_had(setup):
    text = encode_plan(setup.plan)
    assert not any(key in text for key in (b'"first"', b'"energy"', b'"before"', b'"began"'))


def test_of_a_state_the_hours_to_come_are_taken_and_the_others_kept(setup):
    day = msgspec.structs.replace(setup.plan.problem.horizon, first=3)
    state, periods = np.arange(8.0), setup.plan.kind.periods(msgspec.structs.replace(setup.plan.problem, horizon=day))
    assert periods == (3, 4, HOUR)
    assert rolling.to_come(state, 1, periods).tolist() == [4, 5, 6, 7]
    assert rolling.passed(state, 1, periods).tolist() == [0, 1, 2, 3]
    assert rolling.to_come(state[:4], 3, periods).tolist() == [0, 1, 2, 3]
    assert rolling.to_come(state[:2], 4, periods) is None
    assert rolling.to_come(state[:7], 1, periods) is None
    later = msgspec.structs.replace(setup.plan, problem=msgspec.structs.replace(setup.plan.problem, horizon=day))
    assert warm_start.label(later) == warm_start.label(setup.plan)


@pytest.mark.long
def test_a_week_of_hours_costs_seven_answers(tmp_path, setup):
    hourly = small(tmp_path / "tables", periods=24)
    fleet = DayFleet(tmp_path / "fleet", hourly)
    lines = [row for row, _ in days(fleet, 7)]
    assert [row["outcome"] for row in lines] == ["answer"] * 168
    assert [row["period"] for row in lines] == [*range(1, 25)] * 7
    assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([7, 7], rel=1e-4)
