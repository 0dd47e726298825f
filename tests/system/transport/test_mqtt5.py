"""MQTT 5 as mosquitto speaks it: a death is told after its delay, what waits too long is dropped, and the keepalive is
the file's.
"""

import socket
import time
from pathlib import Path

import pytest
import yaml

from hushgrid.node.transport import mqtt_session
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.transport.mqtt_session import WILL_S
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon
from tests.support.daemons.small_daemons import Centre, on_zones, pair

STATE, BORN, DEAD = "hushgrid/1/demo/state/z1", b"born", b"dead"


@pytest.fixture
def linked(mosquitto, stack):
    """linked(name, ...): a connection, closed with the test."""

    def made(name, **settings):
        link = MqttLink(mosquitto.url, name, **settings)
        stack.callback(link.close)
        link.connect(PATIENCE)
        assert link.protocol == "MQTT 5"
        return link

    return made


class Watcher:
    """One who hears the topic, and when."""

    def __init__(self, link):
        self.link = link

    def until(self, payload):
        """The time at which this is heard."""
        deadline = time.monotonic() + PATIENCE
        while payload not in [message.payload for message in self.link.poll(0.1)]:
            assert time.monotonic() < deadline
        return time.monotonic()

    def hears(self, seconds):
        """Everything in so many seconds."""
        until, found = time.monotonic() + seconds, []
        while time.monotonic() < until:
            found += [message.payload for message in self.link.poll(0.1)]
        return found


@pytest.fixture
def watcher(linked):
    return Watcher(linked("watcher", subscriptions=[STATE], persistent=False))


@pytest.fixture
def device(linked):
    """device(): one on its connection, with its birth told and its death left to the broker."""

    def made(*, persistent=True):
        link = linked("z1", will=(STATE, DEAD), subscriptions=["to/z1"], persistent=persistent)
        assert link.publish(STATE, BORN, retain=True)
        while link.backlog:
            link.poll(0.05)
        return link

    return made


def breaks(link):
    """The connection ends without a goodbye."""
    link.sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.mosquitto
def test_a_death_is_told_after_its_delay_and_stays(watcher, device, linked):
    link = device()
    watcher.until(BORN)
    began = time.monotonic()
    breaks(link)
    assert watcher.until(DEAD) - began > WILL_S - 1.5  # the broker counts in whole seconds
    later = Watcher(linked("later", subscriptions=[STATE], persistent=False))
    assert later.until(DEAD)


@pytest.mark.mosquitto
def test_a_device_that_is_back_within_the_delay_has_not_died(watcher, device):
    link = device()
    watcher.until(BORN)
    breaks(link)
    link.poll(0.01)
    link.connect(PATIENCE)
    assert (link.connects, link.session_present) == (2, True)
    assert watcher.hears(WILL_S + 3.0) == []
    link.close()
    assert watcher.hears(2.0) == []  # nor is an orderly end a death


@pytest.mark.mosquitto
def test_without_a_session_that_outlives_it_a_death_is_told_at_once(watcher, device, monkeypatch):
    monkeypatch.setattr(mqtt_session, "WILL_S", 3600)
    link = device(persistent=False)
    watcher.until(BORN)
    breaks(link)
    watcher.until(DEAD)


@pytest.mark.mosquitto
def test_what_waits_for_a_receiver_is_gone_after_its_time_and_what_is_retained_is_not(device, linked, monkeypatch):
    link, sender = device(), linked("coordinator", persistent=False)
    link.close(forget=False)
    for payload, seconds, retain in ((b"short", 1, False), (b"long", 60, False), (b"kept", 1, True)):
        monkeypatch.setattr(mqtt_session, "EXPIRY_S", seconds)
        assert sender.publish("to/z1" if not retain else "to/all", payload, retain)
    while sender.backlog:
        sender.poll(0.05)
    time.sleep(3.0)
    link.open()
    link.follow(["to/z1", "to/all"])
    deadline, found = time.monotonic() + PATIENCE, []
    while {b"long", b"kept"} - set(found):
        assert time.monotonic() < deadline, found
        found += [message.payload for message in link.poll(0.1)]
    assert link.session_present
    found += [message.payload for message in link.poll(0.5)]
    assert b"short" not in found


def connected(listener):
    """The keepalive in the CONNECT of the next client, and its name."""
    with listener.accept()[0] as client:
        client.settimeout(PATIENCE)
        first, head = client.recv(1), client.recv(1)
        if not first:  # of a process that was killed meanwhile
            return "", 0
        assert first == b"\x10"
        while head[-1] & 0x80:
            head += client.recv(1)
        size = sum((byte & 0x7F) << 7 * k for k, byte in enumerate(head))
        body = b""
        while len(body) < size:
            body += client.recv(size - len(body))
    assert body[:7] == b"\x00\x04MQTT\x05"
    keepalive, properties = int.from_bytes(body[8:10], "big"), body[10]
    name = body[11 + properties :]
    return name[2 : 2 + int.from_bytes(name[:2], "big")].decode(), keepalive


@pytest.mark.parametrize("run", [None, {"every": "1h"}], ids=["asked for", "by a schedule"])
def test_the_keepalive_of_the_file_stands_in_the_connect(run, tmp_path, stack):
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.settimeout(PATIENCE)
    url = f"mqtt://127.0.0.1:{listener.getsockname()[1]}"
    if run is None:
        target = pair(tmp_path, url, stack)["z1"]
        target.config["keepalive"] = 37
        target.write()
        target.start(ready=False)
        assert connected(listener) == ("z1", 37)
        target.daemon.kill()
    file = Path(Centre(tmp_path / "centre", url, stack).write(on_zones("input", 4)))
    raw = yaml.safe_load(file.read_text()) | {"keepalive": 41} | ({"run": run} if run else {})
    file.write_text(yaml.safe_dump(raw))
    coordinator = Daemon(tmp_path / "coordinator.log", [*HUSHGRID, "coordinator", str(file)], {})
    stack.callback(coordinator.kill)
    while (found := connected(listener))[0] != "coordinator":
        pass
    assert found == ("coordinator", 41)
