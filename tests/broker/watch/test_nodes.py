"""Which server of a cluster is believed about a node."""

from msgspec.structs import replace

from hushgrid.broker.watch.nodes import FleetNode, newest
from hushgrid.node.status import moment
from tests.support.status import PLAIN


def shown(session, at):
    return {"z1": FleetNode("z1", None, False, replace(PLAIN, session=session, at=moment(at)), None, None)}


def test_a_node_is_as_the_server_shows_it_that_has_heard_it_last():
    old, new, again = shown(1, 50.0), shown(1, 60.0), shown(2, 55.0)
    assert newest([old, new]) == newest([new, old]) == new
    assert newest([new, again, old]) == again


def test_a_server_that_has_heard_no_status_of_a_node_is_believed_if_no_other_has():
    silent = {"z1": FleetNode("z1", None, True, None, None, None)}
    assert newest([silent, {}]) == silent
    assert newest([silent, shown(1, 50.0)]) == shown(1, 50.0)
