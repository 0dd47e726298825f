"""A fleet that runs by itself, in process: what `hushgrid bench warm` is made of."""

import pytest

from hushgrid.lab.benchmarks import continuous
from hushgrid.scenarios.households import day

pytestmark = pytest.mark.runs


def test_every_interval_of_a_day_has_its_own_loads_and_begins_where_the_last_has_ended():
    setup = continuous.scenario("ladmm", 5, None)
    changes = continuous.households(setup)
    assert len(changes) == 96
    assert sum(d.size for d in changes[0].values()) == day(setup.case)[0].size
    warm, cold = (continuous.figures(setup, changes[:4], warm=warm) for warm in (True, False))
    assert [line["start"] for line in warm] == ["warm"] * 3
    assert [line["start"] for line in cold] == ["cold"] * 3
    assert warm[-1]["residual"] < cold[-1]["residual"] / 2
