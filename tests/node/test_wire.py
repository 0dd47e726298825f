"""The wire: what decodes is right, and everything else is malformed and nothing worse."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hushgrid.kernels.algorithms.ladmm import AgentState, ServerState
from hushgrid.kernels.machine import LARGEST, Malformed
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node import wire
from hushgrid.node.wire import (
    Birth,
    Capabilities,
    Death,
    Envelope,
    Finish,
    Finished,
    Join,
    Mark,
    Plan,
    Progress,
    Refuse,
    Topics,
)
from tests.support import examples

LIMIT = 10_000
MARK = Mark(b"l" * 16, 3, 0.5, 0.25)
BODIES = [
    W(np.array([1.0, -0.0, 1e300])), Z(np.array([])), Join(), Finished(), Finish("done", "rounds"), Refuse("no"),
    Plan(b"{}", b"n" * 16, {"z1": 4, "z2": 1}, {"z1": MARK}),
]  # fmt: skip
ENVELOPES = [Envelope(b"r" * 16, 0, 7, MARK if i % 2 else None, body) for i, body in enumerate(BODIES)]
CAPABILITIES = Capabilities("0.1.0", ("ladmm",), ("laplace",), "zones", "d", 12, "bounded-change 0.01", 4.5)
PRESENCES = [Birth(2, b"", MARK, CAPABILITIES), Death(2), Progress(b"r" * 16, 3, "running")]
vectors = arrays(np.float64, st.integers(0, 20), elements=st.floats(-LARGEST, LARGEST))


def decodes(payload):
    """Both decoders read these bytes or call them malformed."""
    with suppress(Malformed):
        wire.decode_envelope(payload, LIMIT)
    with suppress(Malformed):
        wire.decode_presence(payload)


@given(vectors, st.binary(min_size=16, max_size=16), st.integers(0, 2**62), st.integers(0, 2**62))
def test_an_envelope_arrives_as_it_was_sent(vector, run, epoch, seq):
    for body in (W(vector), Z(vector)):
        got = wire.decode_envelope(wire.encode(Envelope(run, epoch, seq, MARK, body)), LIMIT)
        assert (got.run, got.epoch, got.seq, got.mark, type(got.body)) == (run, epoch, seq, MARK, type(body))
        sent, arrived = (getattr(x, type(body).__name__.lower()) for x in (body, got.body))
        assert arrived.tobytes() == sent.tobytes()  # bit for bit, the sign of zero too
        assert arrived.flags.writeable


@pytest.mark.parametrize("value", [*BODIES[2:], *PRESENCES], ids=lambda v: type(v).__name__)
def test_every_other_message_arrives_as_it_was_sent(value):
    if value in PRESENCES:
        assert wire.decode_presence(wire.encode(value)) == value
    else:
        assert wire.decode_envelope(wire.encode(Envelope(b"r", 0, 0, None, value)), LIMIT).body == value


@examples.of(400)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_malformed_and_nothing_else(payload):
    decodes(payload)


@pytest.mark.runs
@examples.of(400)
@given(st.sampled_from([*ENVELOPES, *PRESENCES]), st.data())
def test_a_mutated_message_is_read_or_malformed_and_nothing_else(value, data):
    payload = bytearray(wire.encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    decodes(bytes(payload))


@pytest.mark.parametrize("value", [*ENVELOPES, *PRESENCES], ids=lambda v: type(getattr(v, "body", v)).__name__)
def test_a_truncated_or_prolonged_message_is_malformed(value):
    payload = wire.encode(value)
    decode = wire.decode_presence if value in PRESENCES else lambda p: wire.decode_envelope(p, LIMIT)
    for cut in range(len(payload)):
        with pytest.raises(Malformed):
            decode(payload[:cut])
    with pytest.raises(Malformed):
        decode(payload + b"\0")


def test_size_is_checked_before_anything_is_parsed():
    payload = wire.encode(Envelope(b"r", 0, 1, None, W(np.zeros(1000))))
    assert wire.decode_envelope(payload, len(payload)).body.w.size == 1000
    with pytest.raises(Malformed, match=f"{len(payload)} bytes, at most {len(payload) - 1} expected"):
        wire.decode_envelope(payload, len(payload) - 1)
    with pytest.raises(Malformed, match="bytes, at most"):
        wire.decode_envelope(b"\xc1" * 100, 99)  # not even MessagePack
    with pytest.raises(Malformed, match="bytes, at most 4096 expected"):
        wire.decode_presence(wire.encode(Progress(b"r" * 5000, 1, "running")))


@pytest.mark.parametrize(
    "header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 5000]
)
def test_what_claims_to_be_huge_or_deep_is_malformed(header):
    payload = wire.encode(Envelope(b"r", 0, 1, None, W(np.zeros(1))))
    with pytest.raises(Malformed):
        wire.decode_envelope(payload[: -len(b"\xc4\x08" + bytes(8))] + header, LIMIT)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.001 * LARGEST, -1.8e308])
@pytest.mark.parametrize("body", [W, Z])
def test_a_vector_with_an_entry_that_is_not_finite_or_beyond_its_bound_is_malformed(body, value):
    payload = wire.encode(Envelope(b"r", 0, 1, None, body(np.array([0.0, value]))))
    with pytest.raises(Malformed, match="not finite"):
        wire.decode_envelope(payload, LIMIT)


@pytest.mark.parametrize("raw", [b"1234567", "12345678", [1.0], 1.0, None])
def test_a_vector_is_float64_bytes(raw):
    payload = msgspec.msgpack.encode([b"r", 0, 1, None, {"type": "ladmm.w", "w": raw}])
    with pytest.raises(Malformed):
        wire.decode_envelope(payload, LIMIT)


@pytest.mark.parametrize(
    "mark",
    [[b"l" * 16, -1], [b"l" * 16, 2**63], [b"l" * 17, 1], [b"l" * 16, 1, -1.0], [b"l" * 16, 1, float("nan")],
     [b"l" * 16, 1, 1.0, float("nan")], [b"l" * 16, 1.5], ["l", 1]],
    ids=str,
)  # fmt: skip
def test_a_mark_no_ledger_can_have_is_malformed(mark):
    with pytest.raises(Malformed):
        wire.decode_envelope(msgspec.msgpack.encode([b"r", 0, 1, mark, {"type": "join"}]), LIMIT)


@given(vectors)
def test_equal_values_give_equal_bytes(vector):
    reversed_view = vector[::-1].copy()[::-1]  # the same numbers, laid out backwards
    big_endian = vector.astype(">f8")
    assert wire.encode(W(vector)) == wire.encode(W(reversed_view)) == wire.encode(W(big_endian))


def test_only_vectors_travel():
    with pytest.raises(TypeError, match="2 dimensions"):
        wire.encode(W(np.zeros((2, 2))))


@given(vectors, vectors, st.floats(allow_nan=False))
def test_a_machines_state_is_restored_bit_for_bit(a, b, residual):
    agent = AgentState(3, a, b, a)
    centre = ServerState(2, a, {"n0": b, "n1": a}, {"n0": a}, {"n1": Z(b)}, 4, residual, None)
    for state in (agent, centre):
        blob = wire.encode(state)
        again = wire.decode_state(type(state), blob)
        assert type(again) is type(state)
        assert wire.encode(again) == blob
    assert wire.decode_state(ServerState, wire.encode(centre)).z["n0"].tobytes() == b.tobytes()


def test_a_runs_id_depends_on_every_part_and_not_on_the_members_order():
    run = wire.run_id(b"plan", b"nonce", {"a": 1, "b": 2})
    assert len(run) == 16
    assert run == wire.run_id(b"plan", b"nonce", {"b": 2, "a": 1})
    others = [
        (b"plan", b"nonce", {"a": 1, "b": 3}),
        (b"plan", b"nonce", {"a": 1}),
        (b"plann", b"once", {"a": 1, "b": 2}),
    ]
    assert len({run, *(wire.run_id(*other) for other in others)}) == 4


def test_topics_name_the_directed_edge():
    t = Topics("demo")
    assert t.parse(t.edge("z1", "coordinator")) == ("edge", "z1", "coordinator")
    assert t.parse(t.all("coordinator")) == ("all", "coordinator", "")
    assert t.parse(t.state("z1")) == ("state", "z1", "")
    assert t.parse(t.status("z1")) == ("status", "z1", "")
    assert t.parse(t.run()) == ("run", "coordinator", "")
    assert t.parse(t.answer()) == ("answer", "coordinator", "")


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.sampled_from(["hushgrid", "1", "demo", "edge", "all", "", "+", "z1"]), max_size=7).map("/".join),
    )
)
def test_any_other_topic_is_malformed(topic):
    try:
        kind, src, dst = Topics("demo").parse(topic)
    except Malformed:
        return
    assert topic == "/".join(["hushgrid/1/demo", kind, src, *([dst] if kind == "edge" else [])])


@pytest.mark.parametrize("name", ["z1\x1b[2J", "z\n1", "Z1", "z.1", "z1\x9b", "", "z" * 65, "z1\n", "+"])
def test_what_is_no_name_of_a_node_is_no_part_of_a_topic(name):
    """Some brokers take any text; a terminal would take an escape sequence as a command."""
    t = Topics("demo")
    for topic in (
        t.state(name),
        t.status(name),
        t.run(name),
        t.answer(name),
        t.all(name),
        t.edge(name, "z1"),
        t.edge("z1", name),
    ):
        with pytest.raises(Malformed) as error:
            t.parse(topic)
        assert str(error.value).isprintable()


@dataclass
class Renamed:
    encoded_names: ClassVar[dict[str, str]] = {"stable_rounds": "calm"}

    t: int
    stable_rounds: int = 0
    w: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class AsStored:
    t: int
    calm: int = 0
    w: dict[str, np.ndarray] = field(default_factory=dict)


def test_a_state_keeps_the_names_under_which_an_older_program_has_stored_it():
    vector = {"n0": np.arange(3.0)}
    assert wire.encode(Renamed(4, 2, vector)) == wire.encode(AsStored(4, 2, vector))
    restored = wire.decode_state(Renamed, wire.encode(AsStored(4, 2, vector)))
    assert (restored.t, restored.stable_rounds, restored.w["n0"].tolist()) == (4, 2, [0.0, 1.0, 2.0])
    assert wire.decode_state(Renamed, wire.encode({"t": 4})) == Renamed(4)
