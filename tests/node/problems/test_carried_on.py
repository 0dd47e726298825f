"""A plan that carries a day on: what a device takes of it, and what it leaves for the programs of its site."""

from __future__ import annotations

import csv

import msgspec
import numpy as np
import pytest

from hushgrid.broker.coordinator.intervals import Day
from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.problems.power_flow.files import keep_setpoints, site_setpoints, spans_of
from hushgrid.node.problems.power_flow.section import HorizonPlan
from hushgrid.node.problems.rolling import Course, Point
from tests.support.runs.day_fleet import HOUR, DayFleet, epsilon, followed, small

pytestmark = pytest.mark.runs
WALL = 1.8e9  #: of the fleet's clock at its beginning


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    return small(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, setup):
    """After the second hour of a day."""
    fleet = DayFleet(tmp_path_factory.mktemp("fleet"), setup)
    fleet.interval()
    fleet.interval()
    return fleet


def altered(setup, **keys):
    horizon = msgspec.structs.replace(setup.plan.problem.horizon, **keys)
    return msgspec.structs.replace(setup.plan, problem=msgspec.structs.replace(setup.plan.problem, horizon=horizon))


BEFORE = {"1": 10.0, "2": 10.0, "3": 10.0, "4": 10.0, "5": 10.0}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"energy": (1.0,)}, "horizon.energy: found 1 energies, expected 2"),
        ({"energy": (1.0, 80.1)}, "horizon.energy: s4: found 80.1 MWh, expected at most 80"),
        ({"before": {"1": 10.0}}, "horizon.before: found 1 generators, expected the 5 in service"),
        ({"before": BEFORE | {"2": 171.0}}, "horizon.before: gen 2: found 171 MW, expected 0 to 170"),
        ({"before": BEFORE | {"2": -1.0}}, "horizon.before: gen 2: found -1 MW, expected 0 to 170"),
    ],
)
def test_a_plan_that_begins_where_nothing_can_be_is_refused_in_one_line(fleet, setup, keys, line):
    with pytest.raises(InputError, match=line) as caught:
        fleet._zone("z1").check(altered(setup, **keys))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"periods":4', b'"periods":4,"first":5'),
        (b'"periods":4', b'"periods":4,"first":0'),
        (b'"periods":4', b'"periods":4,"energy":[-1.0]'),
        (b'"periods":4', b'"periods":4,"energy":[1e999]'),
        (b'"periods":4', b'"periods":4,"before":{"1":1e7}'),
        (b'"periods":4', b'"periods":4,"began":-1'),
    ],
)
def test_a_plan_of_no_period_is_no_plan(setup, old, new):
    text = encode_plan(setup.plan)
    assert old in text
    with pytest.raises(InputError, match="expected a plan of format 1"):
        decode_plan(text.replace(old, new, 1))


def test_storage_that_cannot_reach_its_last_energy_any_more_ends_as_full_as_it_gets(tmp_path, setup):
    fleet = DayFleet(tmp_path, setup)
    fleet.interval()
    low = Point({"s1": 0.0, "s4": 0.0}, {})
    fleet.intervals.day = Day(fleet.intervals.day.began, Course(fleet.intervals.day.course.digest, points=(low,)))
    fleet.now = 3 * HOUR
    assert fleet.interval()["outcome"] == "answer"
    assert followed(fleet).energy[-1] == pytest.approx([0.95 * 60, 0.95 * 40], abs=1e-4)  # of 60 and 40 MWh asked


def test_a_coordinator_that_lies_about_the_day_gets_one_and_the_same_noisy_answer(tmp_path, setup):
    fleet, rng = DayFleet(tmp_path, setup), np.random.default_rng(1)
    fleet.interval()
    whole = {z: closing.data for z, closing in fleet.centre.driver.machine.state.closing.items()}
    began, digest = fleet.intervals.day.began, fleet.intervals.day.course.digest
    most = setup.case.generators.p_max * setup.case.base_mva
    for hour in (2, 1, 3, 3, 5, 0):
        energy = {"s1": float(rng.uniform(0, 120)), "s4": float(rng.uniform(0, 80))}
        power = dict(zip("12345", (most * rng.uniform(0, 1, 5)).tolist(), strict=True))
        fleet.intervals.day = Day(began, Course(digest, points=(Point(energy, power),)))
        fleet.now = max(fleet.now, hour * HOUR)
        fleet.intervals.schedule.due = fleet.now
        assert fleet.interval()["outcome"] == "answer"
        for z, closing in fleet.centre.driver.machine.state.closing.items():
            width = whole[z].size // 4
            passed = (fleet.horizon.first - 1) * width
            np.testing.assert_array_equal(closing.data, whole[z][passed:])
    assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([1, 1], rel=1e-4)


def test_the_site_is_told_this_hour_and_the_later_ones_with_their_times(fleet):
    vectors, facts = fleet.left["z1"]
    zone, plan = fleet._zone("z1"), followed(fleet)
    told = site_setpoints(zone, vectors, facts.problem, WALL + HOUR + 20)
    body = told.body
    assert (body["period"], body["valid_from"], body["valid_until"]) == (
        *(2, "2027-01-15T09:00:00Z", "2027-01-15T10:00:00Z"),
    )
    assert [one["period"] for one in body["day"]] == [3, 4]
    assert body["day"][0]["valid_from"] == body["valid_until"]
    assert {row["bus"] for row in body["setpoints"]} == {row["bus"] for row in body["day"][0]["setpoints"]} == {1, 5}
    for k, one in enumerate([body, *body["day"]]):
        (unit,) = one["storage"]
        assert unit["mw"] == pytest.approx(plan.discharge[k, 0] - plan.charge[k, 0], abs=1e-5)
        assert unit["mwh"] == pytest.approx(plan.energy[k, 0], abs=1e-5)
    msgspec.json.encode(body)


def test_a_bus_has_prices_and_limits_of_the_day_in_the_shape_of_a_tariff(fleet):
    vectors, facts = fleet.left["z2"]
    tariff = site_setpoints(fleet._zone("z2"), vectors, facts.problem, WALL + HOUR).tariff
    assert (tariff["unit"], tariff["limit_unit"], set(tariff["buses"])) == ("$/kWh", "kW", {"3", "4"})
    figures = fleet.centre.answer()[0]
    loads = fleet.centre.driver.machine.state.closing["z2"].data.reshape(3, 2, 2)[:, 0] * fleet.setup.case.base_mva
    for k, bus in enumerate(("3", "4")):
        prices, limits = (tariff["buses"][bus][key] for key in ("prices", "limits"))
        assert [row["value"] for row in prices] == pytest.approx([p / 1e3 for p in figures["prices"][bus]], abs=1e-5)
        assert [row["value"] for row in limits] == pytest.approx(loads[:, k] * 1e3, abs=1)  # all of it is served
        assert [(row["start"], row["end"]) for row in prices] == spans_of(facts.problem.horizon, WALL + HOUR)


def test_hours_are_by_this_machines_clock_where_the_coordinators_is_far_away():
    plan = HorizonPlan(3, first=2, began=int(WALL))
    assert spans_of(plan, WALL + HOUR + 30)[0] == ("2027-01-15T09:00:00Z", "2027-01-15T10:00:00Z")
    assert spans_of(plan, WALL + 9 * HOUR + 30)[0] == ("2027-01-15T17:00:30Z", "2027-01-15T18:00:30Z")
    assert len(spans_of(plan, WALL)) == 2


def test_the_table_of_the_day_has_the_hours_from_this_one_on(fleet, tmp_path):
    vectors, facts = fleet.left["z1"]
    assert keep_setpoints(fleet._zone("z1"), vectors, tmp_path / "z1.setpoints.csv", facts.problem) is None
    with (tmp_path / "z1.day.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted({row["period"] for row in rows}) == ["2", "3", "4"]
    with (tmp_path / "z1.setpoints.csv").open(newline="") as file:
        now = list(csv.DictReader(file))
    assert [{"period": "2"} | row for row in now] == [row for row in rows if row["period"] == "2"]
