"""A second, local broker as a source: values, no values, floods and absence; the fleet's connection beside it goes
on.
"""

import json
import time

import numpy as np
import pytest

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.kernels.errors import Stopped
from hushgrid.node.runtime.event_loop import serve_all
from hushgrid.node.site import local_link
from hushgrid.node.site.local_link import LocalLink
from hushgrid.node.site.subscriber import Subscriber
from hushgrid.node.transport import lookup
from hushgrid.node.transport.mqtt import BURST, MqttLink
from tests.support.site.source_device import BUSES, SourceDevice, document, loads

PATIENCE_S = 30.0
P, Q = [10.0, 20.0, 30.0], [1.0, 2.0, 3.0]


class Local:
    """The programs of a site: they publish on its broker."""

    def __init__(self, url):
        self.link = MqttLink(url, "meters", persistent=False)
        self.link.connect(10)

    def tell(self, topic, payload, retain=True):
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        assert self.link.publish(topic, body, retain)
        while self.link.backlog:
            self.link.poll(0.1)


@pytest.fixture
def local(url):
    made = Local(url)
    yield made
    made.link.close()


def heard(device, seconds=0.4):
    """The loop runs for a while."""
    until = time.monotonic() + seconds
    meter = device.data_source.subscriber
    serve_all([(meter, meter.link)], lambda: time.monotonic() > until)


@pytest.fixture
def device(tmp_path, url):
    made = SourceDevice(tmp_path / "z1", {"mqtt": {"broker": url, "topic": "meters/{bus}/{quantity}"}})
    yield made
    made.end()


def tell_all(local, p, q):
    for bus, x, y in zip(BUSES, p, q, strict=True):
        local.tell(f"meters/{bus}/p_mw", x)
        local.tell(f"meters/{bus}/q_mvar", y)


def test_topics_of_meters_are_a_zones_loads_and_the_last_good_value_of_each_counts(device, local):
    tell_all(local, P, Q)
    device.start()
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    heard(device, 0.1)
    version = device.version
    local.tell("meters/2/p_mw", 25.0)
    local.tell("meters/3/p_mw", b"\xff\x00 garbage")
    local.tell("meters/1/q_mvar", b"")
    heard(device)
    np.testing.assert_array_equal(device.holds, loads(P, Q))  # values are taken when a run begins
    assert device.version == version
    assert device.run() == version + 1
    np.testing.assert_array_equal(device.holds, loads([10.0, 25.0, 30.0], Q))
    assert "garbage" not in "".join(device.said)


def test_a_device_whose_meters_say_nothing_ends_with_4_and_says_which(device, monkeypatch, local):
    monkeypatch.setattr(Subscriber.wait, "__defaults__", (0.5,))
    local.tell("meters/1/p_mw", 1.0)
    with pytest.raises(Stopped, match="meters/1/q_mvar: nothing has come"):
        device.start()


def test_a_flood_on_the_local_broker_takes_little_of_the_loops_time(device, url, local, monkeypatch):
    """At most 500 messages a second and one burst are read; a payload above the limit is not handed over."""
    tell_all(local, P, Q)
    device.start()
    heard(device, 0.2)
    meter = device.data_source.subscriber
    messages = 0
    turn = meter.link.turn

    def counted(ready):
        nonlocal messages
        found = turn(ready)
        messages += len(found)
        return found

    monkeypatch.setattr(meter.link, "turn", counted)
    began = time.monotonic()
    used = time.process_time()
    flood = MqttLink(url, "flood", persistent=False)
    flood.connect(10)

    def more():
        flood.send([("meters/1/p_mw", b"12.5", False)] * 200)
        flood.turn(True)
        return time.monotonic() > began + 3.0

    sent = 0
    while not more():
        sent += 200
        until = time.monotonic() + 0.02
        serve_step(meter, until)
    took = time.process_time() - used
    assert sent > 2000
    assert messages < 4 * (local_link.MANY + BURST)  # and what one read has brought
    assert took < 3.0
    local.tell("meters/1/p_mw", b"9" * (1 << 20), retain=False)
    flood.close()
    heard(device, 2.5)
    device.run()
    assert device.holds[0] == pytest.approx(0.125)


def serve_step(meter, until):
    serve_all([(meter, meter.link)], lambda: time.monotonic() > until)


@pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
def test_a_local_broker_that_goes_away_leaves_the_last_values_and_is_said_to_the_owner(tmp_path):
    with brokers.start("mosquitto", tmp_path / "broker") as broker:
        device = SourceDevice(tmp_path / "z1", {"mqtt": {"broker": broker.url, "topic": "all", "path": "loads"}})
        local = Local(broker.url)
        local.tell("all", {"loads": json.loads(document(P, Q))})
        device.start()
        heard(device, 0.2)
        local.link.close()
    heard(device, 0.5)
    version = device.version
    began = time.monotonic()
    assert device.run() == version + 1
    assert time.monotonic() - began < 0.5
    np.testing.assert_array_equal(device.holds, loads(P, Q))
    assert any("the local broker is away" in line or "the broker is away" in line for line in device.said)
    device.end()


def test_a_name_server_that_does_not_answer_holds_up_no_turn_of_the_loop(monkeypatch):
    monkeypatch.setattr(lookup, "resolve", lambda address: time.sleep(1000))
    monkeypatch.setattr(lookup, "LOOKUP_S", 0.3)
    link = LocalLink("mqtt://broker.example", "hushgrid-demo-z1-source")
    longest, turns, until = 0.0, 0, time.monotonic() + PATIENCE_S
    link.open()
    while link.why != "no name server answers":
        assert time.monotonic() < until
        began = time.monotonic()
        link.turn(False)
        longest, turns = max(longest, time.monotonic() - began), turns + 1
        time.sleep(max(0.0, min(link.due - time.monotonic(), 0.1)))
    link.close()
    assert turns > 3  # it went round meanwhile
    assert longest < 0.25


def test_a_topic_that_is_silent_keeps_its_value_alone_and_the_others_go_on(device, local):
    tell_all(local, P, Q)
    device.start()
    device.clock.now += 900.0
    local.tell("meters/2/p_mw", b"no number")
    for topic, value in (("meters/1/p_mw", 11.0), ("meters/3/q_mvar", 3.5)):
        local.tell(topic, value)
    heard(device)
    device.run()
    np.testing.assert_array_equal(device.holds, loads([11.0, 20.0, 30.0], [1.0, 2.0, 3.5]))
    read = device.data_source.readings.read - device.data_source.readings.read.min()
    np.testing.assert_array_equal(read, [900.0, 0, 0, 0, 0, 900.0])


def test_what_the_local_broker_had_kept_is_no_younger_than_what_was_held_of_its_topic(device, local):
    """Else a silent meter would be young again whenever the device, or the broker, begins anew."""
    tell_all(local, P, Q)
    device.start()
    first = device.data_source.readings.read.copy()
    device.clock.now += 900.0
    local.tell("meters/1/p_mw", 12.0)  # while nobody hears it
    device.restart()
    heard(device)
    device.run()
    np.testing.assert_array_equal(device.holds, loads([12.0, 20.0, 30.0], Q))
    np.testing.assert_array_equal(device.data_source.readings.read, first)
    local.tell("meters/1/p_mw", 13.0)
    heard(device)
    device.run()
    np.testing.assert_array_equal(device.data_source.readings.read[1:], first[1:])
    assert device.data_source.readings.read[0] > first[0]
