"""A link closes in order whatever its session is at, and wherever its broker goes meanwhile."""

import paho.mqtt.client as paho
import pytest

from hushgrid.kernels.errors import Stopped
from hushgrid.node.transport import mqtt, mqtt_session
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.transport.broker_in_memory import CONNECT, DISCONNECT, PUBLISH, SUBSCRIBE, Wire

REFUSED = {True: b"\x20\x03\x00\x87\x00", False: b"\x20\x02\x00\x05"}
TURNS = 6  #: of a loop: enough to connect, and to notice that nobody is there


@pytest.fixture
def dialled(monkeypatch):
    """dialled(Wire, ...): each next connection has the next of these; after them nobody is there."""
    made = []
    monkeypatch.setattr(mqtt, "CLOSE_S", 0.01)
    monkeypatch.setattr(mqtt_session, "CLOSE_S", 0.01)

    def dial(*wires):
        waiting = list(wires)
        made.extend(wires)

        def next_wire(*_):
            if not waiting:
                raise ConnectionRefusedError("refused")
            return waiting.pop(0)

        monkeypatch.setattr(mqtt, "Dial", next_wire)

    yield dial
    for wire in made:
        wire.die()
        wire.close()


def link_of(five):
    made = MqttLink("mqtt://127.0.0.1:1", "z1", will=("state", b"gone"), subscriptions=("a",))
    server = made._attempts.server
    server.protocol, server.known = paho.MQTTv5 if five else paho.MQTTv311, True
    return made


def driven(link, turns=TURNS):
    link.open()
    for _ in range(turns):
        link.turn(True)
    return link


def closed(link, forget=False):
    """It has closed in order, and is like a link that was never opened."""
    link.close(clear=("state", "more"), forget=forget)
    assert not link.connected
    assert link.sock is None
    assert link.why == "closed"
    assert link.turn(True) == []


@pytest.mark.parametrize("five", [True, False])
@pytest.mark.parametrize("forget", [True, False])
def test_a_link_closes_at_whichever_call_its_broker_goes(dialled, five, forget):
    """The broker dies at the first call of send or recv, at the second, and so on, until it outlives the link."""
    for reset in (False, True):
        for lives in range(1, 100):
            wire = Wire(lives, five=five, reset=reset)
            dialled(wire)
            link = driven(link_of(five))
            link.publish("t", b"x")
            closed(link, forget)
            assert wire.closed
            if wire.calls < lives:
                break
        assert 6 < wire.calls < 99
        assert wire.received[-1][0] == DISCONNECT
        cleared = [body for first, body in wire.received if first & 0xF1 == PUBLISH | 1]
        assert [body[2:7] for body in cleared] == [b"state", b"more\0"]


@pytest.mark.parametrize("five", [True, False])
@pytest.mark.parametrize(
    "silent", [(CONNECT,), (SUBSCRIBE,), (PUBLISH,), ()], ids=["connecting", "subscribing", "mute", "connected"]
)
@pytest.mark.parametrize("turns", range(4))
def test_a_link_closes_in_every_stage_of_its_connection_and_twice(dialled, five, silent, turns):
    wire = Wire(five=five, silent=silent)
    dialled(wire)
    link = driven(link_of(five), turns)
    if not link.connected:
        assert not link.publish("t", b"x")
    closed(link)
    closed(link)
    closed(link, forget=True)
    driven(link)  # it may be opened again, and finds nobody
    closed(link)


@pytest.mark.parametrize("five", [True, False])
def test_a_link_that_was_refused_closes(dialled, five):
    dialled(*(Wire(five=five, connack=REFUSED[five]) for _ in range(3)))
    link = link_of(five)
    with pytest.raises(Stopped, match="refused: Not authorized"):
        link.connect(1.0)
    closed(link)
    link.open()
    link.turn(False)
    closed(link)


@pytest.mark.parametrize("five", [True, False])
@pytest.mark.parametrize("data", [b"\xe0\x00", b"\xe0\x02\x8b\x00", b"\x34\x06\x00\x01t\x00\x01\x00", b"\xff"])
def test_a_link_closes_while_its_broker_says_goodbye_or_nonsense(dialled, five, data):
    wire = Wire(five=five)
    dialled(wire)
    link = driven(link_of(five))
    assert link.connected
    wire.theirs.send(data)
    wire.die()
    closed(link)


def test_a_link_that_was_never_opened_closes():
    closed(link_of(True))
    closed(link_of(False), forget=True)
