"""A name server that does not answer: the loop goes round meanwhile, and one child at most asks for the name."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hushgrid.kernels.errors import Stopped
from hushgrid.node.transport import lookup
from hushgrid.node.transport.connect import Address
from hushgrid.node.transport.lookup import Lookup, numeric
from hushgrid.node.transport.mqtt import MqttLink

HOST = Address("broker.example", 1883, False)


def children():
    """The children of this process, by their ids."""
    found = set()
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(entry))
    return found


def waited(asked):
    deadline = time.monotonic() + 10
    while (answer := asked.answer()) is None:
        assert time.monotonic() < deadline
        time.sleep(asked.wait)
    return answer


def test_a_name_has_the_addresses_that_the_resolver_gives_and_a_number_needs_none():
    local = Address("localhost", 1883, False)
    assert waited(Lookup(local)) == lookup.resolve(local)
    assert [found[4] for found in numeric(Address("127.0.0.1", 1883, False))] == [("127.0.0.1", 1883)]
    assert [found[4][:2] for found in numeric(Address("::1", 1883, False))] == [("::1", 1883)]
    assert numeric(HOST) == []


def test_a_name_that_there_is_not_is_said_in_the_words_of_the_resolver(monkeypatch):
    def resolve(address):
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(lookup, "resolve", resolve)
    before = children()
    with pytest.raises(OSError, match="Name or service not known"):
        waited(Lookup(HOST))
    assert children() == before


def test_a_link_whose_name_server_hangs_turns_and_says_so_and_leaves_no_child(monkeypatch):
    monkeypatch.setattr(lookup, "resolve", lambda address: time.sleep(1000))
    monkeypatch.setattr(lookup, "LOOKUP_S", 0.5)
    before = children()
    link = MqttLink("mqtt://broker.example", "z1")
    link.open()
    longest, most, end = 0.0, 0, time.monotonic() + 3.0
    while time.monotonic() < end:
        began = time.monotonic()
        link.turn(False)
        longest = max(longest, time.monotonic() - began)
        most = max(most, len(children() - before))
        time.sleep(max(0.0, min(link.due - time.monotonic(), 0.2)))
    assert longest < 0.25
    assert most == 1
    assert link.why == "no name server answers"
    link.close()
    assert children() == before


def test_to_connect_by_a_name_takes_no_longer_than_it_is_given(monkeypatch, embedded):
    link = MqttLink(embedded.url.replace("127.0.0.1", "localhost"), "z1")
    link.connect(10.0)
    link.close()
    monkeypatch.setattr(lookup, "resolve", lambda address: time.sleep(1000))
    before, began = children(), time.monotonic()
    with pytest.raises(Stopped, match=r"tried for 0.3 s"):
        MqttLink("mqtt://broker.example", "z1").connect(0.3)
    assert time.monotonic() - began < 2.0
    assert children() == before


def test_a_name_that_does_not_resolve_is_one_line():
    with pytest.raises(Stopped, match=r"^broker mqtt://nowhere.invalid: .* \(tried for 0.5 s\)$"):
        MqttLink("mqtt://nowhere.invalid", "a").connect(0.5)
