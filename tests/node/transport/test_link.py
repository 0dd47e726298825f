"""Which transport a broker's URL names, and what every transport has to offer."""

import inspect
import socket
from types import SimpleNamespace

import pytest

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.transport import link, schemes
from hushgrid.node.transport.connect import parse_url
from hushgrid.node.transport.link import Link, Party, register
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.transport.schemes import link_to

ASKED = {name for name in [*vars(Link), *Link.__annotations__] if not name.startswith("_")}


@pytest.mark.parametrize("url", ["mqtt://127.0.0.1", "mqtts://127.0.0.1:8883"])
def test_a_link_has_all_that_its_owner_asks_of_it(url):
    made = link_to(url, Party("n0"))
    assert isinstance(made, MqttLink)
    assert {name for name in ASKED if not hasattr(made, name)} == set()
    for name in ("open", "connect", "turn", "send", "follow", "close"):
        asked, offered = (list(inspect.signature(getattr(of, name)).parameters) for of in (Link, MqttLink))
        assert offered == asked, name


def test_what_a_party_says_of_itself_reaches_its_connection():
    party = Party("n0", will=("state/n0", b"dead"), subscriptions=("a", "b/+"), persistent=False)
    made = link_to("mqtt://127.0.0.1", party)
    assert (made._as.name, made._as.will, made._as.persistent) == ("n0", ("state/n0", b"dead"), False)
    assert made.subscriptions == ("a", "b/+")


def test_a_transport_is_added_by_registering_its_scheme(monkeypatch):
    monkeypatch.setattr(link, "MAKERS", {})
    monkeypatch.setattr(schemes, "MAKERS", link.MAKERS)
    made = []

    @register("pigeon")
    def pigeon(url, party):
        made.append((url, party))
        return "a link"

    assert link_to("pigeon://roof", Party("n0")) == "a link"
    assert made == [("pigeon://roof", Party("n0"))]


@pytest.mark.parametrize("url", ["http://h", "h:1883", ""])
def test_a_scheme_that_no_transport_has_is_an_input_error(url):
    with pytest.raises(
        InputError, match=rf"^broker: found '{url}', expected a URL that begins with one of mqtt://, mqtts://"
    ):
        link_to(url, Party("n0"))


# --- Addresses, names and certificates of a broker: each error is one line ---


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
