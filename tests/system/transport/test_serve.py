"""One loop for one endpoint or hundreds, on real brokers: who hears what, who comes back, and who holds nobody up."""

import time

import pytest

from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.event_loop import link_for, serve, serve_all
from tests.support.transport.relay import Relay, up

PATIENCE = 120.0  # seconds until a test gives up; none depends on how long a thing takes


@pytest.fixture
def ring(tmp_path):
    """ring(url, n, last): n relays in a ring and their links, which are closed with the test."""
    links = []
    ledger = Ledger(tmp_path / "n.ledger", "n")

    def make(url, n, last):
        relays = [Relay(f"n{i}", f"n{(i + 1) % n}", ledger, last) for i in range(n)]
        links.extend(link_for(relay, url) for relay in relays)
        return relays, links

    yield make
    for link in links:
        link.close(clear=[], forget=True)
    ledger.close()


def in_turn(*steps):
    """Each step is called until it does not say False, then the next. Whether all are through."""
    deadline, left = time.monotonic() + PATIENCE, list(steps)

    def until():
        assert time.monotonic() < deadline, "still waiting"
        while left and left[0]() is not False:
            left.pop(0)
        return not left

    return until


@pytest.mark.mosquitto
def test_each_of_200_in_one_process_hears_what_is_sent_to_it_and_nothing_else(mosquitto, ring):
    relays, links = ring(mosquitto.url, 200, last=400)
    start = lambda: links[0].send(relays[0].say(1))  # noqa: E731
    serve_all(zip(relays, links, strict=True), in_turn(up(links), start, lambda: relays[0].finished))
    assert [r.received for r in relays] == [[200, 400]] + [[i, i + 200] for i in range(1, 200)]
    assert {r.births for r in relays} == {1}
    assert all(link.foreign == link.dropped == 0 for link in links)


@pytest.mark.mosquitto
def test_all_of_200_come_back_after_the_broker_was_killed(mosquitto, ring):
    relays, links = ring(mosquitto.url, 200, last=200)
    serve_all(
        zip(relays, links, strict=True),
        in_turn(
            up(links),
            mosquitto.kill,
            lambda: not any(link.connected for link in links),
            lambda: mosquitto.start(mosquitto.port),
            up(links),
            lambda: links[0].send(relays[0].say(1)),
            lambda: relays[0].finished,
        ),
    )
    assert [r.received for r in relays] == [[i or 200] for i in range(200)]
    assert {r.births for r in relays} == {2}
    assert {(link.connects, link.disconnects) for link in links} == {(2, 1)}
    assert all(r.told[0].startswith("the broker is away: ") and r.told[1:] == ["the broker is back"] for r in relays)


@pytest.mark.long
@pytest.mark.mosquitto
def test_one_that_the_broker_refuses_says_so_once_and_stops_no_other(start_mosquitto, ring):
    broker = start_mosquitto(config=["clientid_prefixes n"])
    relays, links = ring(broker.url, 3, last=30)
    stranger = Relay("x", "n0", relays[0].ledger)
    refused = link_for(stranger, broker.url)
    serve_all(
        zip([stranger, *relays], [refused, *links], strict=True),
        in_turn(
            up(links),
            lambda: links[0].send(relays[0].say(1)),
            lambda: relays[0].finished,
            lambda: stranger.ticks >= 4,  # it goes on trying meanwhile
        ),
    )
    assert relays[0].received == list(range(3, 31, 3))
    assert len(stranger.told) == 1
    assert stranger.told[0].startswith("the broker is away: refused: ")
    assert (stranger.births, refused.connects) == (0, 0)
    refused.close()


def test_those_that_have_nothing_to_do_are_ticked_and_nobody_waits_for_them(any_broker, ring):
    relays, links = ring(any_broker.url, 3, last=1)
    serve_all(zip(relays, links, strict=True), in_turn(up(links), lambda: min(r.ticks for r in relays) >= 4))
    assert all(r.idled == r.ticks - 1 for r in relays)  # the first only tells the time


def test_a_second_loop_takes_over_where_the_first_has_ended(any_broker, ring):
    relays, links = ring(any_broker.url, 2, last=3)
    serve_all(zip(relays, links, strict=True), in_turn(up(links)))
    links[1].send(relays[1].say(3))
    serve(relays[0], links[0], in_turn(lambda: relays[0].finished))
    assert relays[0].received == [3]
    assert relays[0].births == 2  # each loop lets it say who it is
