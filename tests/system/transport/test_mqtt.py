"""The MQTT link, on the real brokers: what it delivers, what it drops, and that it says so."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.transport.mqtt import MqttLink

PATIENCE = 60.0  # seconds until a test gives up; none depends on how long a thing takes


@pytest.fixture
def link():
    """link(url, name, *subscriptions, ...): a connected link, closed with the test."""
    links = []

    def make(url, name, *subscriptions, **options):
        links.append(MqttLink(url, name, subscriptions=subscriptions, **options))
        links[-1].connect(PATIENCE)
        return links[-1]

    yield make
    for made in links:
        made.close()


def until(condition, *links):
    """Polls the links until the condition holds; returns what they received."""
    deadline, received = time.monotonic() + PATIENCE, []
    while not condition(received):
        assert time.monotonic() < deadline, f"still waiting, with {received[-3:]}"
        for one in links:
            received += one.poll(0.01)
    return received


def test_messages_travel_both_ways_in_order(any_broker, link):
    a, b = link(any_broker.url, "a", "to/a"), link(any_broker.url, "b", "to/b")
    for i in range(300):
        assert a.publish("to/b", b"%d" % i)
        assert b.publish("to/a", b"%d" % i)
    expected = [b"%d" % i for i in range(300)]
    received = until(lambda r: len(r) >= 600, a, b)
    assert [m.payload for m in received if m.topic == "to/a"] == expected
    assert [m.payload for m in received if m.topic == "to/b"] == expected
    assert not any(m.retained for m in received)
    assert a.foreign == b.foreign == a.dropped == b.dropped == 0


def test_the_newest_protocol_that_the_broker_speaks_is_spoken(any_broker, link):
    expected = "MQTT 3.1.1" if any_broker.name.startswith("embedded") else "MQTT 5"
    assert link(any_broker.url, "a", "x").protocol == expected


def test_a_retained_birth_is_seen_by_whoever_comes_later_and_is_gone_when_cleared(any_broker, link):
    early = link(any_broker.url, "early", "state/+")
    node = MqttLink(any_broker.url, "n1", will=("state/n1", b"dead"))
    node.connect(PATIENCE)
    node.publish("state/n1", b"alive", retain=True)
    assert until(len, early) == [("state/n1", b"alive", False)]
    late = link(any_broker.url, "late", "state/+")
    assert until(len, late) == [("state/n1", b"alive", True)]

    node.close(clear=["state/n1"])
    assert until(len, early) == [("state/n1", b"", False)]  # and no will: the next message is another's
    after = link(any_broker.url, "after", "state/+")
    after.publish("state/after", b"alive", retain=True)
    assert until(len, after) == [("state/after", b"alive", False)]
    assert until(len, early) == [("state/after", b"alive", False)]
    after.close(clear=["state/after"])


def test_what_was_published_before_the_goodbye_arrives(any_broker, link):
    b = link(any_broker.url, "b", "to/b")
    a = MqttLink(any_broker.url, "a")
    a.connect(PATIENCE)
    for i in range(300):
        a.publish("to/b", b"%d" % i)
    a.close()
    assert {m.payload for m in until(lambda r: len(r) >= 300, b)} == {b"%d" % i for i in range(300)}
    assert a.dropped == 0


def test_nobody_is_sent_what_he_did_not_subscribe_to(any_broker, link):
    a = link(any_broker.url, "a", "state/+")
    a.publish("state/a", b"alive", retain=True)
    until(len, a)
    b = link(any_broker.url, "b", "to/b")
    b.publish("to/b", b"1")
    assert until(len, b) == [("to/b", b"1", False)]
    assert b.foreign == 0


def test_a_killed_process_leaves_its_will_behind(any_broker, link):
    watcher = link(any_broker.url, "watcher", "state/n1")
    code = (
        "import sys; from hushgrid.node.transport.mqtt import MqttLink\n"
        "link = MqttLink(sys.argv[1], 'n1', will=('state/n1', b'dead')); link.connect(10)\n"
        "link.publish('state/n1', b'alive', True)\n"
        "while True: link.poll(1)"
    )
    with subprocess.Popen([sys.executable, "-c", code, any_broker.url]) as child:
        try:
            assert until(len, watcher)[0].payload == b"alive"
        finally:
            child.kill()
    assert until(len, watcher)[0].payload == b"dead"
    late = link(any_broker.url, "late", "state/n1")
    assert until(len, late) == [("state/n1", b"dead", True)]


def test_the_link_comes_back_after_the_broker_was_killed_and_nothing_stale_comes_with_it(any_broker, link):
    a, b = link(any_broker.url, "a", "to/a"), link(any_broker.url, "b", "to/b")
    any_broker.kill()
    until(lambda _: a.disconnects == b.disconnects == 1, a, b)
    assert not a.connected
    assert not a.publish("to/b", b"into the void")
    assert a.dropped == 1

    any_broker.restart()
    until(lambda _: a.connects == b.connects == 2, a, b)
    assert a.connected
    assert a.publish("to/b", b"again")
    assert until(len, b, a) == [("to/b", b"again", False)]


def test_a_topic_that_is_followed_later_is_heard_from_then_on_and_after_a_restart_of_the_broker(any_broker, link):
    a, b = link(any_broker.url, "a", "to/a"), link(any_broker.url, "b")
    a.follow(("to/a", "all/b"))
    until(lambda _: not a._session.unacknowledged, a)
    b.publish("all/b", b"1")
    assert [m.payload for m in until(lambda r: r, a)] == [b"1"]
    any_broker.restart()
    until(lambda _: a.connects == b.connects == 2, a, b)
    b.publish("all/b", b"2")
    assert [m.payload for m in until(lambda r: r, a)] == [b"2"]
    a.follow(("to/a",))
    b.publish("all/b", b"3")
    b.publish("to/a", b"4")
    assert [m.payload for m in until(lambda r: r, a)] == [b"4"]


def test_poll_tells_at_once_when_the_connection_comes_or_goes(any_broker, link):
    a = link(any_broker.url, "a", "to/a")
    any_broker.kill()
    assert a.poll(PATIENCE) == []
    assert (a.connected, a.disconnects) == (False, 1)
    any_broker.restart()
    assert a.poll(PATIENCE) == []
    assert (a.connected, a.connects) == (True, 2)


def test_poll_wakes_for_another_descriptor(any_broker, link):
    a = link(any_broker.url, "a", "to/a")
    reading, writing = os.pipe()
    try:
        a.poll(0, [reading])
        assert a.readable == []
        os.write(writing, b"!")
        assert a.poll(PATIENCE, [reading]) == []
        assert a.readable == [reading]
    finally:
        os.close(reading)
        os.close(writing)


def test_a_large_message_arrives_whole(any_broker, link):
    a, b = link(any_broker.url, "a"), link(any_broker.url, "b", "to/b")
    payload = os.urandom(300_000)
    a.publish("to/b", payload)
    assert until(len, b, a) == [("to/b", payload, False)]


def test_a_message_above_the_limit_is_counted_and_not_handed_over(any_broker, link):
    a, b = link(any_broker.url, "a"), link(any_broker.url, "b", "to/b", payload_limit=1000)
    a.publish("to/b", bytes(1001))
    a.publish("to/b", bytes(1000))
    assert [len(m.payload) for m in until(len, b, a)] == [1000]
    assert b.oversize == 1


def test_a_second_connection_of_the_same_client_ends_the_first(any_broker, link):
    first = link(any_broker.url, "twin")
    second = link(any_broker.url, "twin", "to/twin")
    assert first.poll(PATIENCE) == []
    assert not first.connected
    first.close()
    second.publish("to/twin", b"mine")
    assert until(len, second)[0].payload == b"mine"


def test_a_forgotten_session_is_gone(any_broker, link):
    a = link(any_broker.url, "a", "to/a")
    a.close(forget=True)
    link(any_broker.url, "b").publish("to/a", b"too late")
    again = link(any_broker.url, "a", "to/a")
    assert not again.session_present
    again.publish("to/a", b"mine")
    assert until(len, again) == [("to/a", b"mine", False)]


@pytest.mark.mosquitto
@pytest.mark.parametrize("protocol", [paho.MQTTv5, paho.MQTTv311])
def test_only_a_session_that_is_not_forgotten_keeps_its_messages(mosquitto, link, protocol):
    def connect():
        made = MqttLink(mosquitto.url, "a", subscriptions=["to/a"])
        made._attempts.server.protocol = protocol
        made.connect(PATIENCE)
        return made

    sender = link(mosquitto.url, "b")
    connect().close(forget=False)
    sender.publish("to/a", b"kept")
    until(lambda _: not sender.backlog, sender)
    again = connect()
    assert again.session_present
    assert until(len, again) == [("to/a", b"kept", False)]
    again.close(forget=True)
    sender.publish("to/a", b"lost")
    until(lambda _: not sender.backlog, sender)
    fresh = connect()
    assert not fresh.session_present
    assert fresh.poll(0.1) == []
    fresh.close()


@pytest.mark.mosquitto
@pytest.mark.parametrize("how", ["poll", "turn and send", "turn"])
def test_what_nobody_has_acted_upon_comes_again_after_a_crash(mosquitto, link, how):
    a, b = MqttLink(mosquitto.url, "a", subscriptions=["to/a"]), link(mosquitto.url, "b")
    a.connect(PATIENCE)
    b.publish("to/a", b"1")
    until(lambda _: not b.backlog, b)
    select.select([a.sock], [], [], PATIENCE)
    taken = a.poll(0) if how == "poll" else a.turn(True)
    assert [m.payload for m in taken] == [b"1"]
    if how == "turn and send":
        a.send([("from/a", b"2", False)])
    a.sock.close()  # as a crash would

    again = link(mosquitto.url, "a", "to/a")
    assert again.session_present
    b.publish("to/a", b"last")
    received = until(lambda r: any(m.payload == b"last" for m in r), again, b)
    assert [m.payload for m in received] == ([b"1"] if how == "turn" else []) + [b"last"]


@pytest.mark.mosquitto
def test_what_an_older_session_was_subscribed_to_is_not_handed_over(mosquitto, link):
    link(mosquitto.url, "a", "old", "new").close(forget=False)
    a, b = link(mosquitto.url, "a", "new"), link(mosquitto.url, "b")
    b.publish("old", b"1")
    b.publish("new", b"2")
    assert until(len, a, b) == [("new", b"2", False)]
    assert a.foreign == 1


@pytest.mark.mosquitto
def test_a_publication_that_the_access_list_forbids_is_refused_visibly(start_mosquitto, link, tmp_path):
    (tmp_path / "acl").write_text("topic read #\ntopic write mine/#\n")
    broker = start_mosquitto(acl=tmp_path / "acl")
    a = link(broker.url, "a", "#")
    for _ in range(2):
        a.publish("yours/x", b"1")
    a.publish("mine/x", b"2")
    assert until(len, a) == [("mine/x", b"2", False)]
    assert a.refused == [("yours/x", "Not authorized")]


@pytest.mark.mosquitto
def test_a_subscription_that_the_broker_forbids_is_refused_visibly(start_mosquitto, link, tmp_path):
    plugins = list(Path("/usr").glob("lib*/**/mosquitto_dynamic_security.so"))
    if not plugins:
        pytest.skip("mosquitto's dynamic security plugin is not installed")
    allow = {"publishClientSend": True, "publishClientReceive": True, "subscribe": False, "unsubscribe": True}
    (tmp_path / "rules.json").write_text(json.dumps({"defaultACLAccess": allow}))
    broker = start_mosquitto(config=[f"plugin {plugins[0]}", f"plugin_opt_config_file {tmp_path / 'rules.json'}"])
    a = link(broker.url, "a", "x")
    assert a.connected
    assert a.refused == [("x", "Not authorized")]


@pytest.mark.mosquitto
def test_a_publication_above_the_brokers_limit_is_refused_and_the_connection_stays(start_mosquitto, link):
    broker = start_mosquitto(config=["max_packet_size 2000"])
    a = link(broker.url, "a", "x")
    assert not a.publish("x", bytes(3000))
    assert a.refused[0][0] == "x"
    a.publish("x", bytes(1000))
    assert [len(m.payload) for m in until(len, a)] == [1000]
    assert a.disconnects == 0


@pytest.mark.mosquitto
def test_no_more_is_sent_unacknowledged_than_the_broker_is_ready_for(start_mosquitto, link):
    broker = start_mosquitto(config=["max_inflight_messages 3"])
    a = link(broker.url, "a", "x")
    for i in range(50):
        assert a.publish("x", b"%d" % i)
        assert len(a._session.unacked) <= 3
    assert [m.payload for m in until(lambda r: len(r) >= 50, a)] == [b"%d" % i for i in range(50)]


def test_publishing_faster_than_the_broker_takes_it_drops_instead_of_filling_the_memory(embedded, link):
    a = link(embedded.url, "a")
    os.kill(embedded.pid, signal.SIGSTOP)
    try:
        taken = sum(a.publish("x", bytes(1 << 20)) for _ in range(100))
    finally:
        os.kill(embedded.pid, signal.SIGCONT)
    assert 1 <= taken < 64
    assert a.dropped == 100 - taken
    until(lambda _: not a.backlog, a)
    assert a.publish("x", b"again")


@pytest.mark.mosquitto
def test_user_and_password_come_from_the_environment(start_mosquitto, tmp_path, monkeypatch):
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    try:
        subprocess.run(["mosquitto_passwd", "-b", passwords, "u", "secret"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("mosquitto_passwd is not installed")
    broker = start_mosquitto(password=passwords)
    with pytest.raises(Stopped, match=f"^broker {broker.url}: refused: Not authorized$"):
        MqttLink(broker.url, "a").connect(PATIENCE)
    monkeypatch.setenv("HUSHGRID_MQTT_USER", "u")
    monkeypatch.setenv("HUSHGRID_MQTT_PASSWORD", "secret")
    a = MqttLink(broker.url, "a")
    a.connect(PATIENCE)
    a.close()


def test_every_address_of_a_name_is_tried(any_broker, link):
    assert link(any_broker.url.replace("127.0.0.1", "localhost"), "a", "x").connected


@pytest.mark.mosquitto
def test_over_tls_each_side_proves_its_name(start_mosquitto, link, certificates, tmp_path):
    (tmp_path / "acl").write_text("pattern readwrite of/%u\n")
    broker = start_mosquitto(tls=certificates("broker"), acl=tmp_path / "acl")
    assert broker.url.startswith("mqtts://")
    n1 = link(broker.url, "n1", "of/n1", tls=certificates("n1"))
    payload = os.urandom(100_000)
    n1.publish("of/n1", payload)
    n1.publish("of/n2", payload)
    assert until(len, n1)[0].payload == payload
    until(lambda _: n1.refused, n1)
    assert n1.refused == [("of/n2", "Not authorized")]

    with pytest.raises(Stopped, match="its certificate is not accepted: "):
        MqttLink(broker.url, "n1", tls=certificates("n1", ca="stranger")).connect(PATIENCE)
    with pytest.raises(Stopped, match=r"it may not accept our certificate \(tried for 5 s\)$"):
        MqttLink(broker.url, "n1", tls=certificates("")).connect(5)


def test_tls_where_the_url_says_none_is_an_input_error(certificates):
    with pytest.raises(InputError, match="expected mqtts://"):
        MqttLink("mqtt://h", "n1", tls=certificates("n1"))
