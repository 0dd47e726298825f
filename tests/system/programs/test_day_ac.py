"""The AC step of a day that is carried on, in a process of its own, while somebody starts again around it."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Again
from tests.support.runs.day_fleet import DayFleet, epsilon, small

pytestmark = pytest.mark.long
LAST = 6  #: messages: zones hand over their parts, the AC step is solved, each zone gets its own


@pytest.mark.parametrize("who", [COORDINATOR, "z1"])
def test_the_ac_step_of_a_plan_has_the_same_bits_whoever_starts_again_around_it(tmp_path, who):
    setup = small(tmp_path / "tables", ac="polish")
    calm = DayFleet(tmp_path / "calm", setup)
    calm.interval()
    before = calm.hub.delivered
    calm.interval()
    expected, messages = calm.states(), calm.hub.delivered - before
    assert calm.centre.answer()[0]["ac"]["failed"] == []
    for at in range(messages - LAST, messages):
        fleet = DayFleet(tmp_path / f"{at}", setup)
        fleet.interval()
        row = fleet.interval(Again(at, who))
        assert (row["period"], row["outcome"]) == (2, "answer")
        assert fleet.states() == expected, at
        for zone, (vectors, _) in calm.left.items():
            for name, value in vectors.items():
                np.testing.assert_array_equal(fleet.left[zone][0][name], value, err_msg=f"{at} {zone} {name}")
        assert [epsilon(fleet, z) for z in fleet.zones] == pytest.approx([1, 1], rel=1e-4)
