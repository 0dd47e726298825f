"""The rows of a fleet: made of what stands on its topics, whoever wrote it,
and the same figures in Prometheus' format.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hushgrid.broker.watch.metrics import text
from hushgrid.broker.watch.nodes import fleet
from hushgrid.broker.watch.rows import rows
from hushgrid.cli.operator.fleet_table import table
from hushgrid.node import status, wire
from hushgrid.node.wire import Birth, Capabilities, Death, Mark, Progress, Topics
from tests.support.status import PLAIN

TOPICS = Topics("demo")
OFFERED = Capabilities("0.1.0", ("ladmm",), ("laplace",), "zones", "ab", 4, "bounded-change 0.01", 3.0)
CENTRE = replace(PLAIN, node="coordinator", state="gathering", waits_for=("z2",), waits_s=7.5, gone={"z2": PLAIN.at})


def born(session=3, version="0.1.0"):
    return wire.encode(Birth(session, b"", Mark(b"l", 0), replace(OFFERED, version=version)))


def seen(**said):
    """Rows by name of: state/z1 as `state_z1`, status/z1 as `status_z1`."""
    found = {}
    for key, payload in said.items():
        kind, _, name = key.partition("_")
        found[TOPICS.state(name) if kind == "state" else TOPICS.status(name)] = payload
    return {row["node"]: row for row in rows("demo", fleet(TOPICS, found))["nodes"]}


def test_a_node_is_there_by_its_birth_and_says_the_rest_by_its_status():
    row = seen(state_z1=born(), status_z1=status.encode(replace(PLAIN, epsilon_left=2.0, certificate_days=8)))["z1"]
    assert (row["there"], row["session"], row["epsilon_left"], row["certificate_days"]) == (True, 3, 2.0, 8)
    assert row["since"] == PLAIN.since


def test_without_a_status_what_the_birth_says_is_shown():
    row = seen(state_z1=born())["z1"]
    assert (row["there"], row["version"], row["epsilon_left"], row["state"]) == (True, "0.1.0", 3.0, "idle")


def test_a_status_of_an_earlier_start_says_nothing_of_this_one():
    row = seen(state_z1=born(session=4), status_z1=status.encode(PLAIN))["z1"]
    assert (row["session"], row["at"], row["since"]) == (4, None, None)


def test_whoever_died_is_gone_since_the_coordinator_saw_it_and_whoever_left_since_it_said_so():
    death = wire.encode(Death(3))
    found = seen(
        state_z2=death, status_coordinator=status.encode(CENTRE), status_z1=status.encode(replace(PLAIN, state="off"))
    )
    assert (found["z2"]["there"], found["z2"]["gone_since"], found["z2"]["late_s"]) == (False, PLAIN.at, 7.5)
    assert (found["z1"]["there"], found["z1"]["gone_since"], found["z1"]["state"]) == (False, PLAIN.at, "off")
    assert found["coordinator"]["there"]


def test_the_death_of_an_earlier_start_is_not_a_coordinators_of_now():
    said = status.encode(CENTRE)
    assert not seen(state_coordinator=wire.encode(Death(3)), status_coordinator=said)["coordinator"]["there"]
    assert seen(state_coordinator=wire.encode(Death(2)), status_coordinator=said)["coordinator"]["there"]


RUN = b"\x0a" * 16


def rounds_of(rows):
    return {name: (row["run"], row["round"], row["rounds"]) for name, row in rows.items()}


def test_a_device_has_the_rounds_of_its_run_by_its_own_status_or_by_the_coordinators_word_of_the_same_run():
    ran = replace(PLAIN, run=RUN.hex(), last="done", round=28, rounds=200)
    assert rounds_of(seen(state_z1=born(), status_z1=status.encode(ran))) == {"z1": (RUN.hex(), 28, 200)}
    under_way = status.encode(replace(ran, state="running", round=None))
    told = wire.encode(Progress(RUN, 7, "running"))
    assert rounds_of(seen(status_z1=under_way, state_coordinator=told))["z1"] == (RUN.hex(), 7, 200)
    centre = status.encode(replace(CENTRE, state="running", run=RUN.hex(), round=9, rounds=200))
    assert rounds_of(seen(status_z1=under_way, state_coordinator=told, status_coordinator=centre)) == {
        "z1": (RUN.hex(), 9, 200), "coordinator": (RUN.hex(), 9, 200), "z2": (None, None, None),
    }  # fmt: skip
    other = wire.encode(Progress(b"\x0b" * 16, 7, "running"))
    assert rounds_of(seen(status_z1=under_way, state_coordinator=other))["z1"] == (RUN.hex(), None, 200)


def test_the_coordinators_status_names_who_has_refused_the_last_run():
    centre = status.encode(replace(CENTRE, waits_for=(), refuses=("z2",)))
    found = rows("demo", fleet(TOPICS, {TOPICS.status("coordinator"): centre}))
    assert found["nodes"][0]["refuses"] == ["z2"]
    assert table(found).splitlines()[-1] == "coordinator: the last run was refused by z2"


@pytest.mark.parametrize(("days", "words"), [(59, "ends in 59 days"), (-3, "has ended 3 days ago"), (60, "")])
def test_a_certificate_that_ends_within_sixty_days_is_a_line_with_what_to_do(days, words):
    ending = status.encode(replace(PLAIN, certificate_days=days))
    last = table(rows("demo", fleet(TOPICS, {TOPICS.status("z1"): ending}))).splitlines()[-1]
    assert (last == f"z1: warning: its certificate {words}: hushgrid fleet renew") == bool(words)


def test_a_status_that_speaks_for_another_is_left_out():
    assert seen(status_z2=status.encode(PLAIN)) == {}


def test_what_a_terminal_would_take_as_a_command_is_not_printed():
    found = rows("demo", fleet(TOPICS, {TOPICS.state("z1"): born(version="1\x1b[2J\n2")}))
    assert "\x1b" not in table(found)
    assert len(table(found).splitlines()) == 2
    (family,) = [f for f in text_string_to_metric_families(text(found)) if f.name == "hushgrid_version_info"]
    assert family.samples[0].labels["node"] == "z1"


@given(
    st.dictionaries(
        st.sampled_from([*TOPICS.state("z1").split(), TOPICS.status("z1"), "other"]), st.binary(max_size=80)
    )
)
def test_bytes_of_a_stranger_are_left_out(found):
    assert json.dumps(rows("demo", fleet(TOPICS, found)))


NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS, st.none() | st.integers(-9999, 9999), st.sampled_from(["", "done", "refused"]), st.booleans())
def test_every_figure_that_was_said_is_in_prometheus_format_with_its_value(left, days, last, there):
    said = replace(PLAIN, epsilon_left=left, certificate_days=days, last=last, runs_out=PLAIN.at if there else None)
    found = {TOPICS.status("z1"): status.encode(said)} | ({TOPICS.state("z1"): born()} if there else {})
    families = {f.name: f for f in text_string_to_metric_families(text(rows("demo", fleet(TOPICS, found))))}
    values = {name: [s.value for s in family.samples] for name, family in families.items()}
    assert values["hushgrid_up"] == [float(there)]
    assert values.get("hushgrid_epsilon_left") == (None if left is None else [left])
    assert values.get("hushgrid_certificate_days") == (None if days is None else [days])
    assert ("hushgrid_last_run_info" in values) == (last != "")
    assert ("hushgrid_runs_out_timestamp_seconds" in values) == there


def test_a_name_with_an_escape_sequence_reaches_neither_the_terminal_nor_the_metrics():
    """As NATS and the embedded broker pass it on: mosquitto refuses control characters in a topic."""
    name = "z2\x1b[2J\x1b]0;owned\x07"
    birth = born()
    shown = fleet(TOPICS, {TOPICS.state("z1"): birth, TOPICS.state(name): birth, TOPICS.state("z3\n"): birth})
    assert list(shown) == ["z1"]
    found = rows("demo", shown)
    for said in (table(found), text(found)):
        assert "z1" in said
        assert "owned" not in said
        assert all(line.isprintable() for line in said.splitlines())


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_stands_on_the_topics_is_printable(name, version):
    found = rows("demo", fleet(TOPICS, {TOPICS.state(name): born(version=version)}))
    for said in (table(found), text(found)):
        assert all(line.isprintable() for line in said.split("\n"))
