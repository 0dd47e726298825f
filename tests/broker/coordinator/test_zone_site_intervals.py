"""Intervals of zones in two levels: the plans of one level hour by hour, and who is away."""

import pytest

from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again
from tests.support.runs.continuous_sites import ZoneSiteFleet
from tests.support.runs.day_fleet import DayFleet, epsilon, setup_of, shaped

pytestmark = pytest.mark.runs
ZONES = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]
DAY = {"periods": 3, "hours": 1, "ramps": 0.3}
TWO = [["z1", "z2"], ["z3"]]


@pytest.fixture(scope="module")
def setup():
    return setup_of("case14", ZONES, DAY, sites=TWO)


def test_two_days_hour_by_hour_have_the_plans_of_one_level_bit_by_bit(tmp_path, setup):
    fleet, flat = ZoneSiteFleet(tmp_path / "levels", setup), DayFleet(tmp_path / "flat", setup_of("case14", ZONES, DAY))
    for hour in range(6):
        for one in (fleet, flat):
            if hour % 3 == 0:
                one.draws(shaped(one.setup, hour // 3))
        row, same = fleet.interval(), flat.interval()
        assert row["outcome"] == "answer", row
        for key in ("outcome", "period", "quality", "start", "rounds", "residual"):
            assert row[key] == same[key]
        for zone in ("z1", "z2", "z3"):
            assert fleet.left[zone][0].keys() == flat.left[zone][0].keys()
            for name, vector in flat.left[zone][0].items():
                assert fleet.left[zone][0][name].tobytes() == vector.tobytes()
            assert epsilon(fleet, zone) == epsilon(flat, zone)


@pytest.mark.parametrize("who", [COORDINATOR, "s1", "z2"])
def test_who_starts_again_in_an_interval_goes_on_with_it(tmp_path, setup, who):
    fleet, calm = ZoneSiteFleet(tmp_path / "rough", setup), ZoneSiteFleet(tmp_path / "calm", setup)
    for at in (0, 40):
        row, same = fleet.interval(Again(at, who)), calm.interval()
        assert (row["outcome"], row["rounds"], row["residual"]) == ("answer", same["rounds"], same["residual"])
    assert epsilon(fleet, "z2") == epsilon(calm, "z2")


def test_an_interval_without_a_site_is_missed_and_the_next_begins_where_the_last_answer_ended(tmp_path, setup):
    fleet = ZoneSiteFleet(tmp_path, setup)
    assert fleet.interval()["start"] == "cold"
    fleet.goes("s2")
    row = fleet.interval()
    assert (row["outcome"], row["absent"]) == ("missed", ["s2"])
    fleet.comes("s2")
    row = fleet.interval()
    assert (row["outcome"], row["start"], row["period"]) == ("answer", "warm", 3)
