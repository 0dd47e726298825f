"""Two versions on one wire: what the release before said is understood, what is said now it understands."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.machine import LARGEST
from hushgrid.kernels.patterns import neighbours, star, token
from hushgrid.node import versions, wire
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support.devices import wire_0_1_0 as before
from tests.support.paths import ROOT
from tests.support.scenarios import guarded_plans

RECORDED = json.loads((ROOT / "tests/vectors/wire-0.1.0.json").read_text())
VECTOR = np.array([1.0, -0.0, 1e12])
MARK = wire.Mark(b"0123456789abcdef", 3, 0.5, 0.25)
LEG = token.Leg(1, 2, "n1", ("n2",))
BODIES = [
    wire.Plan(b"{}", b"n" * 16, {"z1": 4, "z2": 1}, {"z1": MARK}),
    wire.Join(),
    wire.Refuse("no", "refused"),
    wire.Finish("stopped", "z2 silent", "stopped"),
    wire.Finished(),
    star.W(VECTOR),
    star.Z(VECTOR),
    star.V(VECTOR, 2.0),
    star.Minimum(VECTOR, 3.5, VECTOR),
    star.Close(),
    star.Closing(VECTOR, VECTOR, VECTOR),
    star.Released("solved", 1e-3, VECTOR),
    star.Taken(),
    token.Token((0, 4), LEG, 1, (VECTOR, VECTOR)),
    token.Ack(1, True),
    token.Held(1, "n2", "rounds"),
    token.Notice(2, 7, (0, 4), "n1", 5, LEG, 1, ("n2",)),
    token.Answer(4, True, "n2"),
    neighbours.Iterate(VECTOR),
    neighbours.Lack(),
    neighbours.Begin(),
    neighbours.Reached(True),
    wire.Plan(b"{}", b"n" * 16, {"z1": 4}, {"z1": MARK}, beside={"z1": (MARK,)}),
    wire.Join(True, 7, (MARK,), (("n2", MARK),)),
    wire.Finished((("n2", MARK),)),
]
CAPABILITIES = wire.Capabilities(
    versions.RUNNING, ("ladmm",), ("laplace",), "zones", "d" * 64, 12, "", 4.5, wire.WIRE, wire.OLDER
)
PRESENCES = [
    wire.Birth(2, b"", MARK, CAPABILITIES, ("hushgrid/1/demo/all/n2",), (MARK,)),
    wire.Death(2),
    wire.Progress(b"r" * 16, 3, "running"),
]


def same(old, new):
    """Every field that `old` has stands in `new` with the same value."""
    if isinstance(old, msgspec.Struct):
        names = dict(zip(new.__struct_encode_fields__, new.__struct_fields__, strict=True))
        return all(same(getattr(old, name), getattr(new, names[name])) for name in old.__struct_fields__)
    if isinstance(old, tuple):
        return len(old) == len(new) and all(map(same, old, new))
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(same(value, new[key]) for key, value in old.items())
    return old.tobytes() == new.tobytes() if isinstance(old, np.ndarray) else bool(old == new)


@pytest.mark.parametrize("name", RECORDED["envelopes"])
def test_a_message_of_the_release_before_is_understood(name):
    payload = bytes.fromhex(RECORDED["envelopes"][name])
    assert same(before.envelope(payload), wire.decode_envelope(payload, 10_000))


@pytest.mark.parametrize("name", RECORDED["presences"])
def test_a_presence_of_the_release_before_is_understood_and_its_wire_is_1(name):
    payload = bytes.fromhex(RECORDED["presences"][name])
    presence = wire.decode_presence(payload)
    assert same(before.presence(payload), presence)
    if isinstance(presence, wire.Birth):
        facts = presence.capabilities
        assert (facts.version, facts.wire, facts.older) == ("0.1.0", 1, ())
        assert wire.common((facts.wire, *facts.older)) is not None


@pytest.mark.parametrize("name", RECORDED["plans"])
def test_a_plan_of_the_release_before_is_the_same_plan_to_the_byte(name):
    blob = RECORDED["plans"][name].encode()
    assert encode_plan(decode_plan(blob)) == blob


@pytest.mark.parametrize("name", RECORDED["plans"])
def test_a_plan_made_now_has_no_key_that_the_release_before_does_not_know(name):
    def keys(value, at=""):
        if isinstance(value, dict):
            return {f"{at}.{key}" for key in value} | {k for key in value for k in keys(value[key], f"{at}.{key}")}
        return {k for item in value for k in keys(item, at)} if isinstance(value, list) else set()

    known = keys(json.loads(RECORDED["plans"][name]))
    assert keys(guarded_plans.raw_plan(name)) - known == set()


def test_a_message_of_every_kind_is_recorded():
    recorded = {bytes.fromhex(text) for text in RECORDED["envelopes"].values()}
    kinds = {type(before.envelope(payload).body).__name__ for payload in recorded}
    assert len(kinds) == len(before.Body.__args__)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_what_is_said_now_the_release_before_understands(body):
    envelope = wire.Envelope(b"r" * 16, 1, 7, MARK, body)
    read = before.envelope(wire.encode(envelope))
    assert same(read, envelope)
    assert type(read.body).__struct_config__.tag == type(body).__struct_config__.tag


@pytest.mark.parametrize("presence", PRESENCES, ids=lambda presence: type(presence).__name__)
def test_a_birth_said_now_the_release_before_understands(presence):
    assert same(before.presence(wire.encode(presence)), presence)


numbers = st.lists(st.integers(1, 1 << 16), min_size=1, max_size=17).map(tuple)


@given(numbers, numbers)
def test_two_parties_work_together_if_and_only_if_they_share_a_number_and_both_find_the_same(one, other):
    found = wire.common(one, other)
    assert found == wire.common(other, one)
    assert (found is not None) == bool({*one} & {*other})
    assert found is None or (found in one and found in other)


def test_the_largest_birth_is_within_what_is_read():
    facts = msgspec.structs.replace(CAPABILITIES, wire=1 << 16, older=(1 << 16,) * 16, budget_left=-LARGEST)
    accepted = (wire.Mark(b"l" * 16, 1 << 48, LARGEST, LARGEST, True),) * wire.CLAIMS
    assert wire.decode_presence(wire.encode(wire.Birth(2, b"r" * 16, MARK, facts, accepted=accepted)))


def test_the_largest_join_is_within_what_is_read():
    marks = (wire.Mark(b"l" * 16, 1 << 48, LARGEST, LARGEST, True),) * wire.CLAIMS
    join = wire.Join(True, 1 << 40, marks, tuple(("n" * 64, mark) for mark in marks))
    assert wire.decode_envelope(wire.encode(wire.Envelope(b"r" * 16, 1, 7, marks[0], join)), wire.SMALL)


def test_the_version_that_runs_is_the_one_that_was_loaded_whatever_is_installed_since(monkeypatch):
    monkeypatch.setattr(versions.metadata, "version", lambda package: "99")
    versions.version.cache_clear()
    try:
        assert versions.version("hushgrid") == "99"
        assert versions.RUNNING != "99"
    finally:
        versions.version.cache_clear()
