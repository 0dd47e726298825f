"""One connection, with the broker's side written by hand: numbers, refusals, what ends it, and when it asks."""

from types import SimpleNamespace

import pytest

from hushgrid.node.transport import mqtt_session
from hushgrid.node.transport.connect import Address
from hushgrid.node.transport.mqtt_session import LOST_S, Client, Session
from tests.support.transport.broker_in_memory import Pipe, packets_of

CONNACK = {True: b"\x20\x03\x00\x00\x00", False: b"\x20\x02\x00\x00"}
PINGREQ, PINGRESP = (0xC0, b""), b"\xd0\x00"


class Broker:
    """A session and the broker's end of its socket. `heard` and `refused`: what the session has told its link."""

    def __init__(self, five=True, subscriptions=(), keepalive=60, connack=None, cluster=False):
        self.pipe, self.received, self.refused = Pipe(), [], []
        listener = SimpleNamespace(
            subscriptions=subscriptions,
            dropped=0,
            on_received=lambda *message: self.received.append(message),
            refuse=lambda *why: self.refused.append(why),
        )
        client = Client(Address("h", 1, False), "n0", None, None, None, keepalive, True, 1 << 20, cluster)
        self.session = Session(self.pipe, client, listener, five=five, afresh=False)
        self.got()
        self.five = five
        assert self.say(connack or CONNACK[five])

    def say(self, data):
        """Whether the session goes on after these bytes."""
        self.pipe.fed += data
        alive = self.session.turn(True, lambda: False)
        self.session.flush()
        return alive

    def got(self):
        """The packets that it has got since the last look."""
        self.session.flush()
        data = bytes(self.pipe.out)
        self.pipe.out.clear()
        return packets_of(data)

    def suback(self, number):
        return b"\x90\x04" + number + b"\x00\x01" if self.five else b"\x90\x03" + number + b"\x01"


@pytest.mark.parametrize("five", [True, False])
def test_a_number_is_never_given_twice_while_it_waits_for_its_answer(five):
    broker = Broker(five, subscriptions=("a",))
    ((_, body),) = broker.got()
    assert broker.say(broker.suback(body[:2]))
    session = broker.session
    assert session.put("t", b"first", False)
    ((_, body),) = broker.got()
    first = int.from_bytes(body[3:5], "big")
    seen = set()
    session._number = 0xFFFF - 50
    for _ in range(100):  # they begin anew at 1, and pass over the first
        session.put("t", b"", False)
        ((_, body),) = broker.got()
        number = int.from_bytes(body[3:5], "big")
        assert number not in (0, first)
        seen.add(number)
        assert broker.say(b"\x40\x02" + body[3:5])
    assert len(seen) == 100
    assert {0xFFFF, 1, first + 1} <= seen
    session._number = first - 1
    session.subscribe(("b",))  # paho asks for a number too
    ((_, body),) = broker.got()
    assert int.from_bytes(body[:2], "big") != first
    session._number = int.from_bytes(body[:2], "big") - 1
    session.put("t", b"", False)
    ((_, published),) = broker.got()
    assert published[3:5] != body[:2]


def test_a_refusal_says_its_reason_and_frees_what_was_outstanding():
    broker = Broker()
    for reason, words in ((0x87, "Not authorized"), (0x97, "Quota exceeded"), (0xF7, "reason code 0xf7"), (0x10, "")):
        broker.session.put(f"t/{reason}", b"x", False)
        ((_, body),) = broker.got()
        at = 2 + body[1]
        assert broker.say(b"\x40\x03" + body[at : at + 2] + bytes((reason,)))
        assert not broker.session.backlog
        assert not broker.session.unacked
        assert [w for t, w in broker.refused if t == f"t/{reason}"] == ([words] if words else [])


def test_an_acknowledgement_that_nobody_waits_for_changes_nothing():
    broker = Broker()
    broker.session.put("t", b"x", False)
    assert broker.say(b"\x40\x02\x77\x77" + b"\x40\x03\x77\x77\x87")
    assert len(broker.session.unacked) == 1
    assert broker.session.backlog > 0
    assert broker.refused == []


@pytest.mark.parametrize("five", [True, False])
@pytest.mark.parametrize(
    "data",
    [b"\x34\x06\x00\x01t\x00\x01\x00", b"\x40\x01\x00", b"\x30\x03\x00\x00\x00", b"\x30\x00", b"\xf0\x00", b"\x00\x00"],
)
def test_a_malformed_packet_ends_the_connection(five, data):
    broker = Broker(five)
    assert not broker.say(data)
    assert not broker.say(b"\x30\x05\x00\x01t\x00x")  # and nothing after it is heard
    assert broker.received == []


def test_why_a_connection_was_given_up_is_said():
    broker = Broker()
    assert not broker.say(b"\x34\x06\x00\x01t\x00\x01\x00")
    assert broker.session.why_lost() == "it sent a publication at a QoS that was not asked for"


def test_what_came_before_the_end_is_heard():
    broker = Broker()
    broker.pipe.recv = lambda size, data=[b"\x30\x05\x00\x01t\x00x", b""]: data.pop(0)
    assert broker.session.turn(True, lambda: False)
    assert not broker.session.turn(True, lambda: False)
    assert broker.received == [("t", b"x", False)]


@pytest.mark.parametrize(
    ("keepalive", "connack", "expected"),
    [
        (60, None, 60),
        (60, b"\x20\x06\x00\x00\x03\x13\x00\x14", 20),  # the broker says 20
        (0, None, 0),
    ],
)
def test_a_quiet_connection_asks_in_time_and_gives_up_before_the_broker_would(
    monkeypatch, keepalive, connack, expected
):
    now = [1000.0]
    monkeypatch.setattr(mqtt_session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    broker = Broker(keepalive=keepalive, connack=connack)
    session = broker.session
    if not expected:
        assert session.due == float("inf")
        return
    for _ in range(3):
        assert 0 < session.due - now[0] < expected
        now[0] = session.due
        assert session.keep_alive()
        assert broker.got() == [PINGREQ]
        assert session.keep_alive()  # once
        assert broker.got() == []
        now[0] += 0.1
        assert broker.say(PINGRESP)
    now[0] = session.due
    asked = now[0]
    assert session.keep_alive()
    now[0] = session.due
    assert now[0] - asked + 0.75 * expected < 1.5 * expected
    assert not session.keep_alive()


def test_a_connection_that_publishes_need_not_ask(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(mqtt_session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    broker = Broker(keepalive=20)
    for _ in range(20):
        now[0] += 10
        broker.session.put("t", b"", False)
        ((first, body),) = broker.got()
        assert first & 0xF0 == 0x30  # no ping among them
        assert broker.say(b"\x40\x02" + body[3:5])
        assert broker.session.keep_alive()


def test_a_message_that_no_server_acknowledges_any_more_ends_a_connection_to_a_cluster_whose_pings_are_answered(
    monkeypatch,
):
    """The broker would be taken for away between any two pings, and the time of the run would stand still."""
    now = [1000.0]
    monkeypatch.setattr(mqtt_session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    broker = Broker(keepalive=20, cluster=True)
    broker.session.put("t", b"", False)
    broker.session.flush()
    while broker.session.keep_alive() and now[0] < 1200.0:
        broker.say(PINGRESP)
        now[0] = broker.session.due
    assert now[0] == 1000.0 + LOST_S


def test_a_connection_that_may_publish_nothing_more_asks_and_ends_if_there_is_no_answer(monkeypatch):
    """Its network is cut while as much is unacknowledged as the broker takes, and more waits."""
    now = [1000.0]
    monkeypatch.setattr(mqtt_session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    broker = Broker(keepalive=20, connack=b"\x20\x06\x00\x00\x03\x21\x00\x01")  # Receive Maximum: 1
    for _ in range(2):
        broker.session.put("t", b"", False)
    assert len(broker.got()) == 1
    for _ in range(30):
        now[0] += 1
        broker.session.flush()
        if not broker.session.keep_alive():
            break
    assert broker.got() == [PINGREQ]
    assert now[0] == 1000.0 + 0.75 * 20 + 0.5 * 20
