"""Which version of MQTT is spoken to a broker that refuses one, or answers nothing:
by a socket that plays the broker.
"""

import socket
import time

import pytest

from hushgrid.node.transport.mqtt import MqttLink

PATIENCE_S = 30.0
SILENT = b""
REFUSES = {"unsupported": b"\x20\x02\x00\x01", "unavailable": b"\x20\x02\x00\x03"}  #: CONNACK of MQTT 3.1.1


class Played:
    """A broker that answers each CONNECT by its version, 4 (3.1.1) or 5, and closes. `asked`: the versions,
    in order.
    """

    def __init__(self, answers):
        self.answers, self.unacknowledged, self.open = answers, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.url = f"mqtt://127.0.0.1:{self.listener.getsockname()[1]}"

    def turn(self):
        """Answers whoever has said CONNECT."""
        try:
            self.open.append(self.listener.accept()[0])
            self.open[-1].setblocking(False)
        except BlockingIOError:
            pass
        for connection in list(self.open):
            try:
                packet = connection.recv(4096)
            except BlockingIOError:
                continue
            if packet:
                version = packet[packet.index(b"MQTT") + 4]
                self.unacknowledged.append(version)
                connection.sendall(self.answers[version])
            connection.close()
            self.open.remove(connection)

    def close(self):
        for one in (self.listener, *self.open):
            one.close()


@pytest.fixture
def attempts():
    """attempts(answers, n): the link after n attempts, each of which the broker has answered so; and the broker."""
    made = []

    def until(answers, n):
        broker = Played(answers)
        link = MqttLink(broker.url, "z1")
        made.extend((link, broker))
        link.open()
        deadline = time.monotonic() + PATIENCE_S
        while len(broker.unacknowledged) < n or not link.waiting:
            assert time.monotonic() < deadline, broker.unacknowledged
            link.poll(0.01)
            broker.turn()
        return link, broker

    yield until
    for one in made:
        one.close()


def test_mqtt_5_is_not_asked_again_of_a_url_that_has_refused_it_and_the_last_reason_is_said(attempts):
    """A cluster of MQTT 3.1.1 that elects: it closes connections of its own version without an answer."""
    link, broker = attempts({5: REFUSES["unsupported"], 4: SILENT}, 5)
    assert broker.unacknowledged == [5, 4, 4, 4, 4]
    assert link.why == "closed the connection without an answer"
    assert link.protocol == "MQTT 3.1.1"


def test_a_cluster_that_says_why_is_quoted(attempts):
    link, broker = attempts({5: REFUSES["unsupported"], 4: REFUSES["unavailable"]}, 4)
    assert broker.unacknowledged == [5, 4, 4, 4]
    assert link.why == "refused: Server unavailable"


def test_a_broker_that_closes_both_is_asked_by_both_in_turn(attempts):
    """It may be one of MQTT 5 that starts, or one of 3.1.1 that knows no other version."""
    _, broker = attempts({5: SILENT, 4: SILENT}, 6)
    assert broker.unacknowledged == [5, 4, 5, 4, 5, 4]


def test_one_that_refuses_both_is_tried_again_by_the_older(attempts):
    _, broker = attempts({5: REFUSES["unsupported"], 4: REFUSES["unsupported"]}, 4)
    assert broker.unacknowledged == [5, 4, 4, 4]
