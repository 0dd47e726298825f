"""The model behind the page: what a message changes, what is old, and what a view holds."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from hushgrid.broker.watch.model import CONFIRM_S, POINTS, SILENT_S, STRANGERS, Model
from hushgrid.node import status, views, wire
from hushgrid.node.status import moment
from hushgrid.node.transport.link import Message
from hushgrid.node.wire import Death, Topics
from tests.support.daemons.simulated_fleet import answer_view, birth, run_view
from tests.support.status import PLAIN

TOPICS = Topics("demo")
NOON = 1795780800.0


@pytest.fixture
def clock():
    return SimpleNamespace(now=NOON)


@pytest.fixture
def model(clock):
    model = Model("demo", "mqtt://broker", lambda: clock.now)
    model.link(True)
    return model


def say(model, name="z1", retained=False, **more):
    report = replace(PLAIN, node=name, **{"at": moment(model.clock())} | more)
    model.take(Message(TOPICS.status(name), status.encode(report), retained))


def born(model, name="z1", retained=False):
    model.take(Message(TOPICS.state(name), birth(), retained))


def row(model, name="z1"):
    return {row["node"]: row for row in model.rows()}[name]


def names(view):
    return [row["node"] for row in view["rows"]]


def test_a_view_holds_all_at_first_and_then_only_what_has_changed(model):
    for name in ("z1", "z2", "z3"):
        born(model, name)
        say(model, name)
    first = model.fleet_view()
    assert (first["whole"], names(first)) == (True, ["z1", "z2", "z3"])
    say(model, "z2", certificate_days=3)
    say(model, "z2", certificate_days=2)
    second = model.fleet_view(first["version"])
    assert (second["whole"], names(second), second["rows"][0]["flags"]) == (False, ["z2"], ["certificate"])
    assert {"broker", "runs"} & set(second) == set()
    assert names(model.fleet_view(second["version"])) == []


def test_two_that_look_at_different_times_each_get_what_they_lack(model):
    born(model)
    early = model.fleet_view()["version"]
    say(model, epsilon=10.0, epsilon_left=1.0)
    late = model.fleet_view(early)
    assert late["rows"][0]["flags"] == ["budget"]
    assert names(model.fleet_view(early)) == ["z1"]
    assert names(model.fleet_view(late["version"])) == []


def test_a_will_makes_its_node_gone(model):
    born(model)
    say(model)
    version = model.fleet_view()["version"]
    model.take(Message(TOPICS.state("z1"), wire.encode(Death(3)), False))
    assert model.fleet_view(version)["rows"][0]["flags"] == ["gone"]


def test_a_node_in_a_run_that_says_nothing_becomes_silent_as_time_passes(model, clock):
    born(model)
    say(model, state="running")
    version = model.fleet_view()["version"]
    clock.now += SILENT_S - 1
    assert model.fleet_view(version)["rows"] == []
    clock.now += 3
    late = model.fleet_view(version)
    assert late["rows"][0]["flags"] == ["silent"]
    assert late["rows"][0]["spoke"] == NOON
    say(model, state="running")
    assert row(model)["silent"] is False


def test_an_idle_node_has_nothing_to_say_and_is_not_silent(model, clock):
    born(model)
    say(model, state="idle")
    clock.now += 100 * SILENT_S
    assert row(model)["silent"] is False


def test_what_was_retained_is_of_when_its_sender_says(model, clock):
    say(model, at=moment(NOON - 3600), retained=True)
    assert row(model)["spoke"] == NOON - 3600


def test_a_lost_broker_is_in_the_next_view_with_its_time_and_reason(model, clock):
    born(model)
    version = model.fleet_view()["version"]
    clock.now += 60
    model.link(False, "connection \x1b[2Jlost")
    broker = model.fleet_view(version)["broker"]
    assert (broker["connected"], broker["since"], broker["why"]) == (False, NOON + 60, "connection ?[2Jlost")
    assert row(model)["there"] is True  # as it was then


def test_after_the_broker_is_back_only_who_is_seen_again_is_there(model, clock):
    for name in ("z1", "z2"):
        born(model, name)
        say(model, name)
    model.link(False, "lost")
    model.link(True)
    born(model, "z1", retained=True)
    assert row(model, "z2")["there"] is True  # it may still come
    clock.now += CONFIRM_S + 1
    assert [row(model, name)["there"] for name in ("z1", "z2")] == [True, False]
    born(model, "z2")
    assert row(model, "z2")["there"] is True


HOSTILE = "<img src=x onerror=alert(1)>"


def test_a_name_that_no_node_has_is_no_row_but_is_named_harmlessly(model):
    for name in (HOSTILE, "\x1b[31mred", "z1/more"):
        model.take(Message(f"hushgrid/1/demo/status/{name}", b"{}", False))
    assert model.rows() == []
    broker = model.fleet_view()["broker"]
    assert broker["strangers"] == [HOSTILE, "?[31mred", "z1/more"]
    assert broker["unreadable"] == 3
    for no in range(100):
        model.take(Message(f"hushgrid/1/demo/status/A{no}", b"{}", False))
    assert len(model.strangers) == STRANGERS


def test_a_status_that_cannot_be_read_leaves_the_one_before(model):
    say(model, certificate_days=9)
    for payload in (b"", b"{", b"\xff" * 40000, status.encode(replace(PLAIN, node="z2"))):
        if payload:
            model.take(Message(TOPICS.status("z1"), payload, False))
    assert row(model)["certificate_days"] == 9
    assert model.unreadable == 3
    model.take(Message(TOPICS.status("z1"), b"", False))  # it stands there no longer
    assert model.rows() == []
    assert model.fleet_view(2)["removed"] == ["z1"]


def test_whoever_publishes_there_are_no_more_rows_than_are_shown(model, monkeypatch):
    monkeypatch.setattr("hushgrid.broker.watch.model.NODES", 7)
    for no in range(12):
        born(model, f"x{no}")
        say(model, f"x{no}")
    assert len(model.rows()) == 7
    assert model.unreadable == 10


def test_the_residuals_of_a_run_are_kept_and_begin_anew_with_the_next(model):
    topic = TOPICS.run()
    for no in range(3):
        view = run_view(round=no, residual=1.0 / (no + 1))
        model.take(Message(topic, views.encode(view), False))
    first = model.run_view()
    assert first["begun"] is True
    assert [number for number, _ in first["points"]] == [0, 1, 2]
    model.take(Message(topic, views.encode(run_view(round=3, residual=0.2)), False))
    second = model.run_view(first["version"])
    assert (second["begun"], second["points"]) == (False, [(3, 0.2)])
    model.take(Message(topic, views.encode(run_view(run="b" * 32, round=1, residual=0.9)), False))
    third = model.run_view(second["version"])
    assert (third["begun"], third["points"]) == (True, [(1, 0.9)])


def test_a_long_run_is_thinned_out(model):
    for no in range(POINTS + 1):
        model._take_run(run_view(round=no))
    assert len(model.run_view()["points"]) == POINTS // 2 + 1


def test_a_view_of_a_run_by_another_than_the_coordinator_is_not_shown(model):
    model.take(Message(TOPICS.run("z1"), views.encode(run_view()), False))
    model.take(Message(TOPICS.answer("z1"), views.encode(answer_view()), False))
    assert (model.run, model.answer) == (None, None)


def test_nodes_that_are_named_and_not_seen_are_asked_for_by_their_topics(model):
    say(model, "coordinator", waits_for=("z2",), entries={"z1": 4})
    born(model, "z1")
    assert model.wanted() == [TOPICS.state("z2"), TOPICS.status("z2")]
