"""A broker that lies to sites, above or below, which do not trust it."""

import pytest

from hushgrid.broker.sites.site import below_of
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.masked_runs import masked
from tests.support.trust.sites import TrustedSites

pytestmark = pytest.mark.runs

SITES = {"masked": {"corrupt": 0, "sites": {"number": 2}}}
#: What is told of the messages of either level.
LIES = {"plan", "mark", "masked", "join", "refuse", "farewell", "finish", "state", "session", "birth", "hello"}


@pytest.mark.parametrize(
    ("lies_in", "victims"),
    [("world", {COORDINATOR, "s1", "s2"}), ("world-s1", {below_of("s1"), "n0", "n1", "n2"})],
)
def test_no_lie_at_either_level_changes_anything_and_each_end_there_has_refused_some(tmp_path, lies_in, victims):
    """The bits and the price of a run without lies; the other levels have nothing to refuse."""
    raw = masked(tmp_path, nodes=6, algorithm={"rounds": 2}, privacy=SITES)
    quiet = TrustedSites(tmp_path / "quiet", raw)
    quiet.run()
    assert set(quiet.forged.values()) == {0}
    world = TrustedSites(tmp_path / "lied to", raw, lies_in)
    world.run()
    assert world.centre.error is None
    assert world.centre.driver.machine.state.w.tobytes() == quiet.centre.driver.machine.state.w.tobytes()
    assert world.paid == quiet.paid == dict.fromkeys(world.plan.nodes, 2)
    assert {name for name, times in world.forged.items() if times} == victims
    assert {*world.hub.lies} >= LIES
