"""A loop that has nothing to do sleeps, with its broker and without, and acts at once when a signal comes."""

import os
import signal
import socket
import threading
import time
from contextlib import closing
from itertools import pairwise

import pytest

from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime import event_loop
from hushgrid.node.runtime.event_loop import link_for, serve
from hushgrid.node.transport.attempts import LAST_DELAY_S, PATIENT_S
from tests.support.transport.relay import Relay, up

PATIENCE = 60.0  # seconds until a test gives up


class Idle(Relay):
    """A relay that nothing is due for, unless `due` is set."""

    due = float("inf")


@pytest.fixture
def idle(tmp_path):
    """idle(url): an idle endpoint and its link."""
    links = []
    with closing(Ledger(tmp_path / "n.ledger", "n")) as ledger:

        def make(url):
            endpoint = Idle("n0", "n0", ledger)
            links.append(link_for(endpoint, url))
            return endpoint, links[-1]

        yield make
        for link in links:
            link.close()


def turns_in(seconds, endpoint, link):
    """How often the loop woke in that time."""
    began, count = time.monotonic(), 0

    def until():
        nonlocal count
        count += 1
        return time.monotonic() - began >= seconds

    ended = threading.Timer(seconds + 0.2, os.kill, (os.getpid(), signal.SIGUSR2))
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    ended.start()
    try:
        serve(endpoint, link, until, wait=lambda: float("inf"))
    finally:
        ended.join()
        signal.signal(signal.SIGUSR2, before)
    return count


def test_an_idle_endpoint_is_not_woken(any_broker, idle):
    endpoint, link = idle(any_broker.url)
    serve(endpoint, link, up([link]))
    assert turns_in(6.0, endpoint, link) <= 4  # 20 a minute would be 2; and the beginning, what is left, the end
    assert link.connected


def test_nor_is_one_whose_broker_is_away(tmp_path, idle):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint, link = idle(f"mqtt://127.0.0.1:{unused.getsockname()[1]}")
        link.open()
        link._attempts.delay = PATIENT_S  # as it is after half a minute
        assert turns_in(12.0, endpoint, link) <= 8
    assert endpoint.told[0].startswith("the broker is away: ")
    assert len(endpoint.told) == 1


def test_a_signal_ends_the_sleep_at_once(any_broker, idle):
    endpoint, link = idle(any_broker.url)
    serve(endpoint, link, up([link]))
    asked = []
    before = signal.signal(signal.SIGUSR2, lambda *_: asked.append(time.monotonic()))
    try:
        for _ in range(3):
            sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR2))
            sender.start()
            serve(endpoint, link, lambda: bool(asked), wait=lambda: float("inf"))
            assert time.monotonic() - asked.pop() < 0.2
            sender.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert signal.set_wakeup_fd(-1) == -1  # the loop gives it back


def test_the_watchdog_is_fed_though_nothing_happens(any_broker, idle, monkeypatch, tmp_path):
    said = []
    monkeypatch.setenv("WATCHDOG_USEC", "1500000")
    monkeypatch.setattr(event_loop, "notify", lambda line: said.append((line, time.monotonic())))
    endpoint, link = idle(any_broker.url)
    serve(endpoint, link, lambda: len(said) > 6, wait=lambda: float("inf"))
    fed = [at for line, at in said if line == "WATCHDOG=1"]
    assert all(0.3 < b - a < 1.0 for a, b in pairwise(fed))


def test_what_falls_due_is_done_when_it_is_due(any_broker, idle):
    endpoint, link = idle(any_broker.url)
    serve(endpoint, link, up([link]))
    endpoint.due = endpoint.clock.time + 1.0
    seen = []

    def on_tick(now):
        seen.append((now, time.monotonic()))
        if now >= endpoint.due:
            endpoint.due = float("inf")
        return []

    endpoint.on_tick = on_tick
    began = time.monotonic()
    serve(endpoint, link, lambda: bool(seen) and endpoint.due == float("inf"), wait=lambda: float("inf"))
    assert 0.9 < time.monotonic() - began < 1.5
    assert len(seen) <= 5


def test_a_message_after_a_long_sleep_finds_the_time_told(any_broker, idle, monkeypatch):
    monkeypatch.setattr(event_loop, "LONGEST_S", 3.0)
    endpoint, link = idle(any_broker.url)
    serve(endpoint, link, up([link]))
    ticks, order = [], []
    endpoint.on_tick = lambda now: ticks.append(now) or order.append("tick") or []
    endpoint.on_message = lambda topic, payload: order.append("message") or []
    sender, _ = idle(any_broker.url)
    sender.name = "n1"
    publisher = link_for(sender, any_broker.url)
    publisher.connect(PATIENCE)
    late = threading.Timer(2.0, publisher.publish, ("hushgrid/1/many/edge/n1/n0", b"1"))
    late.start()
    serve(endpoint, link, lambda: "message" in order, wait=lambda: float("inf"))
    late.join()
    publisher.close()
    assert order[-2:] == ["tick", "message"]
    assert 1.8 < ticks[-1] - ticks[0] < 2.5  # the sleep counts, for it was meant


@pytest.mark.mosquitto
def test_one_that_waits_for_its_broker_in_a_run_tries_more_often(mosquitto, idle):
    endpoint, link = idle(mosquitto.url)
    serve(endpoint, link, up([link]))
    endpoint.due = 0.0  # a run has begun since
    mosquitto.kill()
    serve(endpoint, link, lambda: link.waiting)
    assert not link.patient
    link._attempts.delay = PATIENT_S
    tried = link.due
    serve(endpoint, link, lambda: link.waiting and link.due != tried)
    assert link._attempts.delay == LAST_DELAY_S


@pytest.mark.mosquitto
def test_time_slept_while_the_broker_was_away_is_nobodys_silence(mosquitto, idle):
    endpoint, link = idle(mosquitto.url)
    ticks, over = [], threading.Event()
    endpoint.on_tick = lambda now: ticks.append(now) or []
    serve(endpoint, link, up([link]))
    mosquitto.kill()

    def returns():
        time.sleep(2.0)
        mosquitto.start(mosquitto.port)
        over.wait()  # a broker ends with the thread that has started it

    again = threading.Thread(target=returns)
    again.start()
    ends = time.monotonic() + PATIENCE
    try:
        serve(
            endpoint,
            link,
            lambda: (link.connects == 2 and len(ticks) > 1 and link.connected) or time.monotonic() > ends,
            wait=lambda: 5.0,
        )
    finally:
        over.set()
        again.join()
    assert link.connects == 2
    assert ticks[-1] - ticks[0] < 1.0
