"""What a sink says of an answer: fresh, then held or old, never a second time by itself, over restarts and clocks."""

import json
import os
import stat
from math import inf
from types import SimpleNamespace

import numpy as np
import paho.mqtt.client as paho
import pytest

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node import system
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import RunFacts, SiteOutcome
from hushgrid.node.schema.durations import validity
from hushgrid.node.schema.site import MqttSink, Sink, SinkFile
from hushgrid.node.site.publisher import Publisher
from hushgrid.node.site.standing import last_standing, mark_stopped, standing_words
from hushgrid.node.transport import mqtt
from hushgrid.node.wire import Envelope, Finished, Refuse, encode
from tests.support.site.source_device import Clock
from tests.support.transport.broker_in_memory import Wire

VECTORS = {"z": np.array([1.0])}


class Device:
    """An outlet with a file, its ledger on the test's own clock, and its restarts."""

    def __init__(self, directory, **file):
        self.directory, self.said, self.clock = directory, [], Clock()
        self.path = directory / "out.json"
        self.sink = Sink(file=SinkFile(path=str(self.path), **file))
        self.why, self.more, self.tariff = "", {}, None
        self.start()

    def start(self):
        self.ledger = Ledger(self.directory / "z1.ledger", "z1", durable=False, clock=self.clock)
        kind = SimpleNamespace(
            site_outcome=lambda device, vectors, problem, now: SiteOutcome(
                {"setpoints": [{"bus": 1, "mw": 2.0}]} | self.more, why=self.why, tariff=self.tariff
            )
        )
        self.config = SimpleNamespace(
            sink=self.sink, source=None, state=str(self.directory), node="z1", fleet="demo", kind=kind
        )
        self.data_source = SimpleNamespace(device=None, reason="", subscriber=None, age=None, data_state="current")
        self.publisher = Publisher(
            self.config, str(self.directory / "z1.yaml"), self.data_source, self.ledger, self.said.append
        )

    def reload(self, sink):
        """What SIGHUP makes of another section. Raises InputError."""
        config = SimpleNamespace(**vars(self.config) | {"sink": sink})
        self.publisher.declare(config, self.publisher.sinks_of(config), self.data_source)
        self.config = config

    def restart(self):
        self.ledger.close()
        self.start()

    def answer(self, run="ab", every=900.0):
        about = RunFacts(
            run=run, name="x", reason="", every=every, residual=0.5, quality="agreed", version=3, age=12.34
        )
        self.publisher.outcome(lambda vectors, about: None)(VECTORS, about)
        return self.document

    def later(self, seconds, last=None):
        self.clock.now += seconds
        self.publisher.turn(last)
        return self.document

    @property
    def document(self):
        return json.loads(self.path.read_text())


@pytest.fixture
def device(tmp_path):
    made = Device(tmp_path)
    yield made
    made.ledger.close()


def test_an_answer_is_fresh_until_the_next_should_be_there_and_then_old(device):
    told = device.answer()
    assert (told["state"], told["age"], told["data_version"]) == ("fresh", 12.3, 3)
    assert (told["residual"], told["quality"]) == (0.5, "agreed")
    assert device.later(989)["state"] == "fresh"
    old = device.later(2)
    assert (old["state"], old["reason"], old["setpoints"]) == ("old", "no answer since", told["setpoints"])
    assert device.answer("cd")["state"] == "fresh"


def test_the_slack_is_a_tenth_of_the_interval_ten_seconds_at_least_and_never_more_than_the_interval():
    assert [validity(every) for every in (900.0, 60.0, 5.0)] == [990.0, 70.0, 10.0]
    assert validity(None) is None


def test_a_run_without_an_answer_here_holds_the_last_one_and_says_why(device):
    device.answer("ab")
    refusal = (b"\xcd" * 16, encode(Envelope(b"\xcd" * 16, 0, 0, None, Refuse("over its budget", "refused"))))
    held = device.later(600, refusal)
    assert (held["state"], held["reason"]) == ("held", "refused: over its budget")
    old = device.later(500, refusal)
    assert (old["state"], old["reason"]) == ("old", "no answer since: refused: over its budget")


def test_a_stopped_run_holds_the_last_answer_and_one_that_is_done_does_not(device):
    device.answer("cd" * 16)
    done = (b"\xcd" * 16, encode(Envelope(b"\xcd" * 16, 0, 0, None, Finished())))
    assert device.later(1, done)["state"] == "fresh"
    stopped = (b"\xef" * 16, encode(Envelope(b"\xef" * 16, 0, 0, None, Finished())))
    assert device.later(1, stopped)["reason"] == "the run was stopped"


def test_a_dispatch_that_the_device_does_not_take_leaves_the_last_one(device):
    before = device.answer("ab")
    device.why = "beyond a limit"
    held = device.answer("cd")
    assert (held["run"], held["state"], held["reason"]) == (before["run"], "held", "beyond a limit")


def test_an_answer_of_a_run_without_a_schedule_never_becomes_old(device):
    assert device.answer(every=None)["valid_until"] is None
    assert device.later(1e7)["state"] == "fresh"


def test_no_setting_of_the_clock_makes_an_answer_old_while_the_device_runs(device, monkeypatch):
    device.answer()
    monkeypatch.setattr(system.machine, "wall", lambda: 4e9)
    assert device.later(10)["state"] == "fresh"


def test_the_answer_in_force_survives_a_restart_and_is_old_after_a_long_absence(device, monkeypatch):
    before = device.answer()
    device.path.unlink()
    device.restart()
    assert device.publisher.now.document == before
    device.later(991)
    assert device.document["state"] == "old"
    device.answer("cd")
    monkeypatch.setattr(system.machine, "wall", lambda: 4e9)
    device.restart()
    assert device.later(1)["state"] == "old"


def test_the_own_report_says_how_old_the_data_of_the_answer_in_force_were(device):
    config = device.publisher.config
    assert standing_words(config) == []
    told = device.answer("abcdef0123")
    (line,) = standing_words(config)
    assert line == (
        f"the answer in force is of {told['time']}, good until {told['valid_until']}: run abcdef01, data version 3, "
        "12.3s old when it was made"
    )


def test_a_file_has_its_mode_and_is_replaced_in_one_piece(tmp_path):
    device = Device(tmp_path, mode="640")
    device.answer()
    assert stat.S_IMODE(os.stat(device.path).st_mode) == 0o640
    inode = os.stat(device.path).st_ino
    with device.path.open() as file:
        device.answer("cd")
        assert json.loads(file.read())["run"] == "ab"
    assert os.stat(device.path).st_ino != inode
    device.ledger.close()


def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(tmp_path, monkeypatch):
    device = Device(tmp_path)
    device.path.mkdir()
    device.publisher.tell(VECTORS, RunFacts("ab", "x", "", 900.0, None, None, 1, None))
    assert len(device.said) == 1
    assert "tried again" in device.said[0]
    device.path.rmdir()
    device.publisher.turn()
    assert not device.path.exists()  # not at once
    now = system.machine.monotonic()
    monkeypatch.setattr(system.machine, "monotonic", lambda: now + 11)
    device.publisher.turn()
    assert device.document["run"] == "ab"
    assert len(device.said) == 1
    device.ledger.close()


def test_a_group_that_is_none_is_a_line_at_the_start(tmp_path):
    with pytest.raises(InputError, match=r"sink\.file\.group: found 'no-such-group', expected a group of this machine"):
        Device(tmp_path, group="no-such-group")


def test_another_file_has_the_answer_in_force_at_once_and_the_next_one(device):
    told = device.answer("ab")
    other = device.directory / "other.json"
    device.reload(Sink(file=SinkFile(path=str(other), mode="640")))
    assert json.loads(other.read_text()) == told
    assert stat.S_IMODE(os.stat(other).st_mode) == 0o640
    device.answer("cd")
    assert (json.loads(other.read_text())["run"], device.document["run"]) == ("cd", "ab")


def test_without_a_sink_nobody_is_told_and_what_is_old_does_not_come_back_with_one(device):
    device.answer("ab")
    sink = device.sink
    device.reload(None)
    assert not device.publisher.now
    device.publisher.outcome(lambda vectors, about: None)(VECTORS, RunFacts("cd", "x", "", 900.0, None, None, 1, None))
    assert device.document["run"] == "ab"
    device.publisher.turn()
    assert device.publisher.wait == inf
    device.path.unlink()
    device.reload(sink)
    assert not device.path.exists()
    assert device.answer("ef")["run"] == "ef"
    device.sink = None
    device.restart()
    device.sink = sink
    device.restart()
    assert device.publisher.now is None


def test_a_file_that_waits_to_be_written_is_let_go_with_its_sink(device):
    device.path.mkdir()
    device.publisher.tell(VECTORS, RunFacts("ab", "x", "", 900.0, None, None, 1, None))
    device.reload(Sink(exec=["true"]))
    assert device.publisher.wait > 1


def test_a_section_that_is_wrong_leaves_the_ways_as_they_are(device):
    device.answer("ab")
    with pytest.raises(InputError, match="no-such-group"):
        device.reload(Sink(file=SinkFile(path=str(device.directory / "other.json"), group="no-such-group")))
    assert device.answer("cd")["run"] == "cd"
    assert not (device.directory / "other.json").exists()


# --- freshness of the data ---


@pytest.mark.parametrize("word", ["current", "last-good", "expired"])
def test_the_freshness_of_the_answer_and_of_its_data_are_two_words(device, word):
    while device.ledger.data_version < 3:  # that of the answer
        device.ledger.new_data()
    device.data_source.data_state = word
    told = device.answer()
    assert (told["state"], told["data_state"]) == ("fresh", word)
    device.data_source.data_state = "current"  # of what a later run reads
    assert device.later(991)["data_state"] == word


def test_an_answer_about_data_that_are_no_longer_those_of_now_says_nothing_of_them(device):
    while device.ledger.data_version < 4:
        device.ledger.new_data()
    assert device.answer()["data_state"] is None


def test_an_answer_that_an_earlier_release_has_kept_has_the_key_without_a_word(device):
    device.answer()
    standing = last_standing(device.config)
    del standing.document["data_state"]
    device.publisher._keep(standing)
    device.restart()
    assert device.later(1)["data_state"] is None


# --- the end of the device ---


def test_a_device_that_ends_says_that_its_answer_is_old_and_takes_it_up_again_at_its_next_start(device):
    told = device.answer()
    device.publisher.close()
    assert device.document == told | {"state": "old", "reason": "the device has stopped"}
    device.restart()
    assert device.later(1) == told
    assert device.later(990)["reason"] == "no answer since"
    device.publisher.close()
    assert device.document["reason"] == "no answer since"


def test_an_answer_that_is_held_is_held_after_a_restart_too(device):
    device.answer()
    device.publisher.hold("refused: over its budget")
    device.publisher.close()
    assert device.document["reason"] == "the device has stopped: refused: over its budget"
    device.restart()
    held = device.later(1)
    assert (held["state"], held["reason"]) == ("held", "refused: over its budget")


def test_a_sink_whose_file_cannot_be_written_ends_all_the_same(device):
    device.answer()
    device.path.unlink()
    device.path.mkdir()
    device.publisher.close()
    assert len(device.said) == 1


def test_what_has_killed_the_device_has_its_file_marked_by_a_command(device):
    """As the unit does it: nothing runs any more that could."""
    told = device.answer()
    with pytest.raises(InputError, match="held by another process, expected that the device has ended"):
        mark_stopped(device.config, "z1.yaml")
    assert device.document == told
    device.ledger.close()
    mark_stopped(device.config, "z1.yaml")
    assert device.document == told | {"state": "old", "reason": "the device has stopped"}
    device.start()
    assert device.later(1) == told


def test_a_file_that_is_old_already_stays_as_it_is_and_without_an_answer_there_is_none(device):
    device.ledger.close()
    mark_stopped(device.config, "z1.yaml")
    assert not device.path.exists()
    device.start()
    device.answer()
    old = device.later(991)
    device.ledger.close()
    mark_stopped(device.config, "z1.yaml")
    assert device.document == old
    device.path.unlink()
    device.path.mkdir()
    with pytest.raises(Stopped, match="expected to write that the device has stopped"):
        mark_stopped(device.config, "z1.yaml")
    mark_stopped(SimpleNamespace(**vars(device.config) | {"sink": None}), "z1.yaml")


# --- the local broker ---


@pytest.fixture
def told_broker(device, monkeypatch):
    """told_broker(five): a broker in memory, to which the device tells its answers from now on."""
    wires = []

    def start(five):
        wires.append(Wire(five=five))
        monkeypatch.setattr(mqtt, "Dial", lambda *_: wires[-1])
        device.reload(Sink(mqtt=MqttSink(broker="mqtt://127.0.0.1:1", topic="grid/z1")))
        link = device.publisher.sinks.mqtt.link
        server = link._attempts.server
        server.protocol, server.known = paho.MQTTv5 if five else paho.MQTTv311, True
        link.open()
        while not link.connected:
            link.turn(True)
        link.send(device.publisher.sinks.mqtt.connected())
        link.turn(True)
        return wires[-1]

    yield start
    for wire in wires:
        wire.die()
        wire.close()


def retained(wire, topic, five):
    """The last message on a topic: (document, the seconds for which the broker is to keep it)."""
    name = len(topic).to_bytes(2, "big") + topic.encode()
    body = [body for first, body in wire.received if first & 0xF1 == 0x31 and body.startswith(name)][-1]
    properties = body[len(name) + 2 :]  # after the packet's number
    if not five:
        return json.loads(properties), None
    if properties[0] == 0:
        return json.loads(properties[1:]), None
    assert properties[:2] == b"\x05\x02"
    return json.loads(properties[6:]), int.from_bytes(properties[2:6], "big")


def test_prices_and_limits_of_a_day_are_retained_beside_the_set_points(device, told_broker):
    wire, link = told_broker(False), device.publisher.sinks.mqtt.link
    of_a_day(device)
    device.publisher.tell(VECTORS, RunFacts("ab", "x", "", 3600.0, None, None, 1, None))
    link.turn(True)
    assert retained(wire, "grid/z1/tariff", False)[0] == device.tariff
    device.clock.now += 3961.0
    device.publisher.turn()
    link.turn(True)
    assert [row["value"] for row in retained(wire, "grid/z1/tariff", False)[0]["buses"]["1"]["limits"]] == [0.1, 0.2]


def test_a_broker_of_mqtt_5_keeps_an_answer_as_long_as_it_counts_and_one_that_is_old_for_ever(device, told_broker):
    device.answer(every=900.0)
    wire = told_broker(five=True)
    assert retained(wire, "grid/z1", True)[1] == 990
    device.publisher.tell(VECTORS, RunFacts("cd", "x", "", 900.0, None, None, 1, None))
    device.clock.now += 400.25
    device.publisher.hold("the run was stopped")
    document, seconds = retained(wire, "grid/z1", True)
    assert (document["run"], document["state"], seconds) == ("cd", "held", 590)
    device.clock.now += 600
    device.publisher.turn()
    document, seconds = retained(wire, "grid/z1", True)
    assert (document["state"], seconds) == ("old", None)
    device.publisher.tell(VECTORS, RunFacts("ef", "x", "", None, None, None, 1, None))
    assert retained(wire, "grid/z1", True)[1] is None  # it counts until the next one


@pytest.mark.parametrize("five", [True, False])
def test_a_device_that_ends_tells_the_broker_that_its_answer_is_old(device, told_broker, five):
    device.answer()
    wire = told_broker(five)
    assert retained(wire, "grid/z1", five) == (last_standing(device.config).document, 990 if five else None)
    device.publisher.close()
    document, seconds = retained(wire, "grid/z1", five)
    assert (document["state"], document["reason"], seconds) == ("old", "the device has stopped", None)
    last = [body for first, body in wire.received if first & 0xF1 == 0x31][-1]
    assert last.endswith(b"offline")


def hour(t):
    """What a plan has for an hour of a day that begins at midnight."""
    times = {"valid_from": f"2099-01-01T{t:02}:00:00Z", "valid_until": f"2099-01-01T{t + 1:02}:00:00Z"}
    return {"period": t + 1, "setpoints": [{"bus": 1, "mw": float(t)}]} | times


def of_a_day(device):
    device.more = hour(0) | {"day": [hour(1), hour(2)]}
    rows = [{"start": hour(t)["valid_from"], "end": hour(t)["valid_until"], "value": 0.1 * t} for t in range(3)]
    device.tariff = {"format": 1, "unit": "$/kWh", "limit_unit": "kW", "buses": {"1": {"prices": rows, "limits": rows}}}


def test_without_a_newer_plan_the_next_hours_of_the_last_one_count_one_after_the_other(tmp_path):
    device = Device(tmp_path)
    of_a_day(device)
    device.answer(every=3600.0)
    seen = [device.document["period"]]
    for _ in range(3):
        document = device.later(3600.0 if len(seen) > 1 else 3961.0)
        seen.append(document["period"])
        values = [row["value"] for row in device.publisher.now.tariff["buses"]["1"]["prices"]]
        assert values == [0.1 * t for t in range(document["period"] - 1, 3)]
    assert seen == [1, 2, 3, 3]
    assert (document["state"], document["day"], document["reason"]) == ("old", [], "no answer since")


def test_a_newer_plan_takes_the_place_of_the_hours_of_the_last_one(tmp_path):
    device = Device(tmp_path)
    of_a_day(device)
    device.answer(every=3600.0)
    assert device.later(3961.0)["state"] == "held"
    assert (device.answer("cd", every=3600.0)["state"], device.document["period"]) == ("fresh", 1)
