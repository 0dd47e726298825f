"""Peers in one process hand messages over as they are: a run has the bits and the byte counts of the wire."""

import numpy as np
import pytest
from msgspec.structs import replace

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.patterns.star import Closing, Minimum, W
from hushgrid.lab.benchmarks.golden import runs
from hushgrid.node import wire
from hushgrid.node.wire import Envelope, Mark

ENVELOPE = Envelope(b"r" * 16, 0, 300, Mark(b"l" * 16, 70_000, 0.5, 1.5), W(np.arange(3.0)))
BODIES = [
    *(W(np.arange(float(size))) for size in (0, 1, 31, 32, 8191, 8192, 20_000)),
    Minimum(np.arange(40.0), 0.1, np.zeros(2), pull=2.0),
    Closing(np.arange(40.0), np.arange(9000.0), np.zeros(0)),
]
NAMES = [(name, scenario, over) for name, scenario, over in runs() if not name.startswith("scenario")]


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_a_parcel_is_as_long_as_its_encoding_and_holds_what_decoding_returns(body):
    envelope = replace(ENVELOPE, body=body)
    parcel = wire.hand_over(envelope)
    payload = wire.encode(envelope)
    assert len(parcel) == len(payload)
    received, decoded = (wire.decode_envelope(form, 1 << 20) for form in (parcel, payload))
    assert wire.encode(received) == wire.encode(decoded) == payload
    assert type(received.body) is type(decoded.body)


def test_neither_the_sender_nor_another_receiver_changes_what_was_handed_over():
    parcel = wire.hand_over(ENVELOPE)
    ENVELOPE.body.w[0] = 7.0
    with pytest.raises(ValueError, match="read-only"):
        wire.decode_envelope(parcel, 1 << 20).body.w[1] = 7.0
    assert wire.decode_envelope(parcel, 1 << 20).body.w.tolist() == [0.0, 1.0, 2.0]
    ENVELOPE.body.w[0] = 0.0


@pytest.mark.parametrize(("limit", "entry"), [(100, 1.0), (1 << 20, np.nan), (1 << 20, 2.0**41)])
def test_a_parcel_that_the_wire_would_refuse_is_refused(limit, entry):
    parcel = wire.hand_over(replace(ENVELOPE, body=W(np.full(30, entry))))
    with pytest.raises(wire.Malformed):
        wire.decode_envelope(parcel, limit)


@pytest.mark.runs
@pytest.mark.parametrize(("scenario", "over"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES])
def test_every_algorithm_has_the_bits_and_the_byte_counts_of_the_wire(scenario, over, monkeypatch):
    sent = []
    monkeypatch.setattr(wire, "hand_over", lambda envelope, plain=wire.hand_over: sent.append(1) or plain(envelope))
    try:
        direct = run(scenario, set=over)
    except HushgridError as error:
        with pytest.raises(type(error)):
            run(scenario, set=over | {"run.record": "transcript"})
        return
    assert sent
    sent.clear()
    encoded = run(scenario, set=over | {"run.record": "transcript"})
    assert not sent
    assert {k: v.tobytes() for k, v in direct.solution.items()} == {k: v.tobytes() for k, v in encoded.solution.items()}
    assert repr(direct.history) == repr(encoded.history)
