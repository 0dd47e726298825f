"""A broker of several servers: they are tried in turn, and what is known of one is not held of another."""

import time

import pytest

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.transport import attempts, mqtt
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.transport.broker_in_memory import Wire

PATIENCE_S = 20.0
URLS = "mqtt://127.0.0.1:1,mqtt://127.0.0.2:2,mqtt://127.0.0.3:3"
UNSUPPORTED, UNAUTHORISED = b"\x20\x02\x00\x01", b"\x20\x02\x00\x05"  #: CONNACK of MQTT 3.1.1


@pytest.fixture
def servers(monkeypatch):
    """servers(n: options of Wire): those that are there, by the last number of their address; `.dialled` all tried."""
    wires = []

    class Servers(dict):
        def __init__(self):
            super().__init__()
            self.dialled = []

        def dial(self, target, host, context):
            number = target[4][1]
            self.dialled.append(number)
            if number not in self:
                raise OSError(None, "nobody there")
            wires.append(Wire(**self[number]))
            self.wire = wires[-1]
            return self.wire

    made = Servers()
    monkeypatch.setattr(mqtt, "Dial", made.dial)
    yield made
    for wire in wires:
        wire.die()
        wire.close()


def connected(link, seconds=PATIENCE_S):
    link.open()
    deadline = time.monotonic() + seconds
    while not link.connected:
        assert time.monotonic() < deadline, link.why
        link.poll(0.01)
    return link


def test_servers_are_tried_in_turn_without_a_wait_between_them(servers):
    servers[3] = {}
    link = connected(MqttLink(URLS, "z1"))
    assert servers.dialled == [1, 2, 3]
    assert link._attempts.delay == 0.0


def test_a_turn_in_which_nobody_is_there_is_followed_by_a_wait(servers):
    link = MqttLink(URLS, "z1")
    link.open()
    while link.due <= time.monotonic():
        link.turn(False)
    assert servers.dialled == [1, 2, 3]
    assert link._attempts.delay == attempts.FIRST_DELAY_S


def test_a_lost_connection_is_made_again_to_the_next_server_after_a_wait(servers):
    servers |= {1: {}, 2: {}, 3: {}}
    link = connected(MqttLink(URLS, "z1"))
    for number in (2, 3, 1):
        servers.wire.die()
        link.poll(0.0)
        assert not link.connected
        assert link.due > time.monotonic()  # else a server that takes us and closes were asked without end
        connected(link)
        assert servers.dialled[-1] == number


def test_each_server_has_the_version_that_it_has_spoken(servers):
    servers |= {1: {"connack": UNSUPPORTED}, 2: {}}
    link = MqttLink(URLS, "z1")
    connected(link)
    assert servers.dialled == [1, 1, 2]  # 5 and 3.1.1 are asked of the first
    assert link.protocol == "MQTT 5"
    assert [server.five for server in link._attempts.servers] == [False, True, True]
    servers[1] = {"five": False}
    del servers[2]
    servers.wire.die()
    link.poll(0.0)
    connected(link)
    assert servers.dialled == [1, 1, 2, 3, 1]
    assert link.protocol == "MQTT 3.1.1"


def test_a_server_that_refuses_us_for_good_stops_nobody_while_another_does_not(servers):
    servers |= {1: {"connack": UNAUTHORISED, "five": False}, 2: {}}
    connected(MqttLink(URLS, "z1"))
    servers |= {2: servers[1], 3: servers[1]}
    with pytest.raises(Stopped, match=rf"^broker {URLS}: refused: \w+( \w+)*$"):
        MqttLink(URLS, "z1").connect(PATIENCE_S)


@pytest.mark.parametrize(
    ("urls", "why"),
    [
        ("mqtt://a,mqtt://a:1883", "broker: found mqtt://a:1883 twice, expected each server once"),
        ("mqtt://a,mqtts://b", "broker: found mqtt://a,mqtts://b, expected mqtt:// or mqtts:// for all servers"),
        ("mqtt://a,b", "broker: found 'b', expected mqtt://host:port or mqtts://host:port"),
        ("mqtt://a,", "broker: found '', expected mqtt://host:port or mqtts://host:port"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_line(urls, why):
    with pytest.raises(InputError, match=f"^{why}$"):
        MqttLink(urls, "z1")
