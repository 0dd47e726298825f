"""How far an AC dispatch is from the least cost: proven by the zones' bound, whose relaxation may be too loose to prove much."""

import pytest

from hushgrid.broker.simulation import run
from tests.support.scenarios.least_cost import scenario


def test_the_ac_dispatch_has_a_proven_distance_and_a_loose_relaxation_proves_no_solution():
    tight, loose = run(scenario("case14")), run(scenario("case30"))
    for found in (tight, loose):
        assert found.ac.status == "solved"
        assert found.gap == pytest.approx((found.ac.objective - found.bound) / found.ac.objective)
        assert found.quality.gap == found.gap
    assert (tight.quality.verdict, loose.quality.verdict) == ("solved", "agreed")
    assert tight.gap == pytest.approx(0.0011, abs=1e-4)
    assert loose.gap == pytest.approx(0.188, abs=1e-3)
