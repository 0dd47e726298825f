"""Which transport a broker's URL names, and what every transport has to offer."""

import inspect

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.transport import link, schemes
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
