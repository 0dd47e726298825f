"""Addresses, names and certificates of a broker: each error is one line."""

import socket
from types import SimpleNamespace

import pytest

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.transport.connect import parse_url
from hushgrid.node.transport.mqtt import MqttLink


def test_nobody_listening_is_one_line():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Stopped, match=rf"^broker {url}: Connection refused \(tried for 0.3 s\)$"):
            MqttLink(url, "a").connect(0.3)


def test_somebody_else_listening_is_one_line():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Stopped, match=r"no answer \(tried for 0.3 s\)$"):
            MqttLink(url, "a").connect(0.3)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "http://h:1",
        "mqtt://",
        "mqtt://h:x",
        "mqtt://h:0",
        "mqtt://h:70000",
        "mqtt://h/x",
        "mqtt://[::",
    ],
)
def test_a_malformed_url_is_an_input_error(url):
    with pytest.raises(InputError, match="expected mqtt://host:port or mqtts://host:port"):
        MqttLink(url, "a")


def test_a_password_in_the_url_is_an_input_error_that_does_not_repeat_it():
    with pytest.raises(InputError, match="HUSHGRID_MQTT_PASSWORD") as caught:
        MqttLink("mqtt://me:secret@h", "a")
    assert "secret" not in str(caught.value)


def test_ports_have_their_defaults():
    assert parse_url("mqtt://h") == ("h", 1883, False)
    assert parse_url("mqtts://h/") == ("h", 8883, True)
    assert parse_url("mqtt://[::1]:99") == ("::1", 99, False)


def test_a_missing_certificate_is_one_line():
    missing = SimpleNamespace(ca="/nowhere/ca.crt", cert=None, key=None)
    with pytest.raises(InputError, match=r"^tls: /nowhere/ca\.crt: No such file"):
        MqttLink("mqtts://h", "n1", tls=missing)
