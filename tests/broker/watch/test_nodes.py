"""Which server of a cluster is believed about a node, and what is known that an older word does not change."""

from msgspec.structs import replace

from hushgrid.broker.watch.nodes import Reports, newest
from hushgrid.node import status, wire
from hushgrid.node.status import moment
from hushgrid.node.wire import Birth, Capabilities, Death, Mark, Topics
from tests.support.status import PLAIN

T = Topics("demo")
STATE, STATUS = T.state("z1"), T.status("z1")


def report(session, at):
    return status.encode(replace(PLAIN, node="z1", session=session, at=moment(at)))


def birth(session):
    return wire.encode(Birth(session, b"", Mark(b"l" * 16, 0, 0), Capabilities("0", (), (), "zones", "", 0)))


def shown(session, at):
    """What a server retains of a node."""
    return {STATE: birth(session), STATUS: report(session, at)}


def test_a_node_is_as_the_server_shows_it_that_has_heard_it_last():
    old, new, again = shown(1, 50.0), shown(1, 60.0), shown(2, 55.0)
    assert newest(T, [old, new]) == newest(T, [new, old]) == new
    assert newest(T, [new, again, old]) == again


def test_a_server_that_has_heard_no_status_of_a_node_is_believed_if_no_other_has():
    silent = {STATE: wire.encode(Death(1))}
    assert newest(T, [silent, {}]) == silent
    assert newest(T, [silent, shown(1, 50.0)]) == shown(1, 50.0)


def test_each_node_is_taken_from_the_server_that_has_heard_it_last():
    other = {T.status("z2"): status.encode(replace(PLAIN, node="z2", session=1, at=moment(99.0)))}
    assert newest(T, [shown(2, 60.0), shown(1, 50.0) | other]) == shown(2, 60.0) | other


def test_what_another_server_retains_of_an_earlier_session_changes_nothing():
    reports = Reports()
    reports.take("state", "z1", birth(2))
    reports.take("status", "z1", report(2, 60.0))
    for payload in (birth(1), wire.encode(Death(1))):
        reports.take("state", "z1", payload, retained=True)
    reports.take("status", "z1", report(2, 50.0), retained=True)
    assert reports.nodes()["z1"].there
    assert reports.statuses["z1"].at == moment(60.0)
    reports.take("state", "z1", wire.encode(Death(2)), retained=True)
    assert not reports.nodes()["z1"].there
