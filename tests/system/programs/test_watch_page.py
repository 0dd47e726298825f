"""The page of a fleet of 200 in a real browser, fed by a real broker: what an operator sees, and how soon."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from hushgrid.broker.servers.mosquitto import Mosquitto
from hushgrid.node import wire
from hushgrid.node.status import moment
from hushgrid.node.transport.mqtt import MqttLink
from tests.support.browser import Browser, chromium
from tests.support.daemons.deployed_fleet import HUSHGRID, Daemon
from tests.support.daemons.simulated_fleet import OFFERED, PATIENCE, SimulatedFleet, run_id

pytestmark = pytest.mark.mosquitto

HOSTILE = "<img src=x onerror=alert(1)>"
SOON_S = 2.0  #: within which a page must say what its broker has said, and that the broker is away
MEMORY_KB = 60_000
FLAGS = "[...document.querySelectorAll('#nodes tbody tr')].find(r => r.cells[0].textContent === '{}')?.className"


@pytest.fixture
def broker(tmp_path, mosquitto_program):
    broker = Mosquitto(tmp_path)
    broker.start()
    with broker:
        yield broker


@pytest.fixture
def fleet(broker, stack):
    fleet = SimulatedFleet(broker.url, stack)
    fleet.all_there()
    return fleet


class Watch(Daemon):
    """`hushgrid watch` on a free port of loopback."""

    def __init__(self, tmp_path, stack, *options):
        super().__init__(tmp_path / "watch.log", [*HUSHGRID, "watch", "--http", "127.0.0.1:0", *options], {"X": "own"})
        stack.callback(self.kill)
        self.wait_for("watch: http")
        self.url = re.search(r"watch: (\S+)", self.said)[1]

    @property
    def memory(self):
        with open(f"/proc/{self.child.pid}/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.fixture
def watch(fleet, tmp_path, stack):
    return Watch(tmp_path, stack, "--broker", fleet.url, "--fleet", "demo")


@pytest.fixture
def page(watch, tmp_path, stack):
    chromium()
    page = Browser(tmp_path / "profile", stack)
    page.open(watch.url)
    page.wait("document.querySelectorAll('#nodes tbody tr th').length", lambda count: count == 201)
    return page


def flagged(page, name, flag):
    return page.wait(FLAGS.format(name), lambda flags: flags is not None and flag in flags.split())


def test_what_happens_in_a_fleet_of_200_is_on_the_page_within_two_seconds(watch, fleet, page):
    took = {}
    assert page.value("document.body.classList.contains('stale')") is False

    fleet.report("d17", last="refused", refused="budget", refused_at=moment(time.time()), epsilon_left=14.0)
    fleet.settle()
    took["a refusal"] = flagged(page, "d17", "refused")

    fleet.report("d9", epsilon_left=0.0)
    fleet.settle()
    took["a spent budget"] = flagged(page, "d9", "budget")

    fleet.publish(fleet.topics.status(HOSTILE), b"{}")
    fleet.publish(fleet.topics.state("d40"), wire.encode(hostile_birth()))
    fleet.settle()
    took["a hostile name"] = page.wait("document.getElementById('broker').textContent", lambda text: HOSTILE in text)
    page.wait("document.getElementById('nodes').textContent", lambda text: HOSTILE in text)
    assert page.value("document.images.length") == 0

    fleet.interval(2, "missed", "absent")
    fleet.settle()
    took["a missed interval"] = page.wait(
        "document.querySelector('#past .bad')?.title", lambda text: "absent" in (text or "")
    )

    page.value("document.querySelector('[data-filter=refused]').click()")
    rows = "[...document.querySelectorAll('#nodes tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].textContent)"
    assert page.value(rows) == ["d17"]
    assert page.value("document.querySelector('[data-filter=\"\"] b').textContent") == "201"
    assert max(took.values()) < SOON_S
    assert watch.memory < MEMORY_KB
    assert page.console == []


def hostile_birth():
    return wire.Birth(3, b"", wire.Mark(b"l", 0), wire.Capabilities(HOSTILE, *list(fields())[1:]))


def fields():
    return (
        getattr(OFFERED, name) for name in ("version", "algorithms", "mechanisms", "problem", "digest", "dimension")
    )


def test_a_dead_broker_is_said_and_what_is_shown_is_marked_old_until_it_is_back(broker, fleet, page):
    broker.kill()
    took = page.wait("document.body.classList.contains('stale')")
    assert took < SOON_S
    assert "The broker is away since" in page.value("document.getElementById('old').textContent")
    assert page.value("document.querySelectorAll('#nodes tbody tr').length") == 201  # as it was then
    broker.start(broker.port)
    page.wait("document.body.classList.contains('stale')", lambda stale: not stale)
    flagged(page, "d1", "gone")  # nobody has come back to it


def test_a_page_whose_program_has_ended_says_that_it_is_old(watch, page):
    assert watch.end() == 0
    assert page.wait("document.body.classList.contains('stale')") < SOON_S
    assert "does not answer" in page.value("document.getElementById('old').textContent")


DEVICE = """
import sys
from hushgrid.node.transport.mqtt import MqttLink
url, topic, birth, death = sys.argv[1:]
link = MqttLink(url, "d200", will=(topic, bytes.fromhex(death)), persistent=False, keepalive=5)
link.connect(20)
link.publish(topic, bytes.fromhex(birth), retain=True)
while True:
    link.poll(1.0)
    print("up", flush=True)
"""


def test_a_publisher_that_is_killed_is_gone_by_its_will(fleet, page):
    topic, birth = fleet.topics.state("d200"), wire.encode(wire.Birth(9, b"", wire.Mark(b"l", 0), OFFERED))
    fleet.report("d200", session=9)
    death = wire.encode(wire.Death(9))
    child = subprocess.Popen(
        [sys.executable, "-c", DEVICE, fleet.url, topic, birth.hex(), death.hex()], stdout=subprocess.PIPE
    )
    with child, closing(child.stdout):
        assert child.stdout.readline() == b"up\n"
        assert "gone" not in page.value(FLAGS.format("d200"))
        child.kill()
        took = flagged(page, "d200", "gone")
    assert took < 8.0


def test_the_page_runs_no_script_but_its_own(page):
    page.value(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = 1'}))"
    )
    page.value("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.owned = 2\">')")
    page.wait("document.images[0].complete")
    assert page.value("typeof window.owned") == "undefined"
    assert "Content Security Policy" in "".join(page.console)


def test_the_run_is_drawn_as_it_goes_on(watch, fleet, page):
    for no in range(1, 30):
        fleet.run(round=no, residual=0.8**no)
    fleet.answer(columns=("entry", "sum"), table=((HOSTILE, 3.5),))
    fleet.settle()
    page.open(f"{watch.url}run")
    page.wait("document.querySelectorAll('#graph .node').length", lambda count: count == 5)
    page.wait("document.querySelector('#residual canvas') !== null")
    assert page.value("document.querySelector('#graph .holder title').textContent") == "z3: holder"
    fleet.run(round=31, residual=1e-4, holder="z4")
    fleet.settle()
    took = page.wait("document.querySelector('#graph .holder title').textContent", lambda text: text == "z4: holder")
    assert took < SOON_S
    assert HOSTILE in page.value("document.getElementById('table').textContent")
    assert page.value("document.images.length") == 0
    assert [text for text in page.console if "Content Security" in text] == []


def test_a_burst_is_merged_into_at_most_four_events_a_second(watch, fleet):
    connection = http.client.HTTPConnection(watch.url.split("/")[2], timeout=PATIENCE)
    connection.request("GET", "/events/fleet")
    lines = connection.getresponse()
    known: set[str] = set()
    while len(known) < 201:
        line = lines.readline()
        known |= {row["node"] for row in json.loads(line[6:])["rows"]} if line.startswith(b"data:") else set()
    events, last, began = 0, set(), time.monotonic()
    for no in range(100):
        for name in fleet.names:
            fleet.report(name, run=run_id(2), epsilon_left=10.01 + no / 100)
    fleet.settle()
    while len(last) < 200:
        line = lines.readline()
        if line.startswith(b"data:"):
            events += 1
            last |= {row["node"] for row in json.loads(line[6:])["rows"] if row["cells"]["budget"] == "11 of 20"}
    assert events <= 4 * (time.monotonic() - began) + 2


def test_the_program_ends_by_a_signal_and_another_takes_its_port_at_once(watch, fleet, tmp_path, stack):
    port = watch.url.split(":")[2].strip("/")
    busy = subprocess.run(
        [*HUSHGRID, "watch", "--http", f"127.0.0.1:{port}", "--broker", fleet.url, "--fleet", "demo"],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert (busy.returncode, busy.stderr.count("\n")) == (2, 1)
    assert "Address already in use" in busy.stderr
    with closing(http.client.HTTPConnection(f"127.0.0.1:{port}", timeout=PATIENCE)) as connection:
        connection.request("GET", "/events/fleet")
        connection.getresponse().readline()
        watch.child.send_signal(signal.SIGINT)
        assert watch.code() == 0


def test_nobody_is_disturbed_by_who_watches(watch, fleet):
    link = MqttLink(fleet.url, "listener", subscriptions=["hushgrid/1/demo/#"], persistent=False)
    link.connect(PATIENCE)
    fleet.report("d1", session=77)
    fleet.settle()
    came, deadline = [], time.monotonic() + PATIENCE
    while not any(b'"session":77' in m.payload for m in came if not m.retained):
        assert time.monotonic() < deadline
        came += link.poll(0.1)
    link.close()
    assert {m.topic for m in came if not m.retained} == {"hushgrid/1/demo/status/d1"}
