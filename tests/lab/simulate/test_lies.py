"""Lies of the simulation: one thing in a message is changed, and what comes out is a message all the same."""

import numpy as np
import pytest

from hushgrid.kernels.patterns.neighbours import Iterate
from hushgrid.lab.simulate.forger import LIES, forged
from hushgrid.node import wire
from hushgrid.node.wire import Birth, Capabilities, Envelope, Join, Mark, Plan, Progress

MARK = Mark(bytes(16), 7, 1.0, 0.5)
ABLE = Capabilities("1", (), (), "data", "", 4)
BODIES = [
    Envelope(bytes(16), 2, 3, MARK, Plan(b"plan", b"nonce", {"n0": 1}, {"n0": MARK})),
    Envelope(bytes(16), 2, 3, MARK, Join(seen=(("n1", MARK),))),
    Envelope(bytes(16), 2, 3, MARK, Iterate(np.ones(2))),
    Birth(4, bytes(16), MARK, ABLE),
    Progress(bytes(16), 3, "running"),
]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("message", BODIES, ids=lambda message: type(message).__name__)
def test_a_lie_is_a_message_that_can_be_read_and_says_something_else_or_there_is_none(message, lie):
    read = (
        wire.decode_presence if isinstance(message, Birth | Progress) else lambda blob: wire.decode_envelope(blob, 4096)
    )
    findings = forged(wire.encode(message), lie, np.random.Generator(np.random.Philox(1)))
    assert findings is None or (read(findings) and findings != wire.encode(message))


def test_every_lie_changes_a_plan_or_a_birth():
    seeds = [np.random.Generator(np.random.Philox(seed)) for seed in (1, 2)]
    for lie in LIES:
        assert any(forged(wire.encode(message), lie, seed) for message in BODIES for seed in seeds)


def test_what_is_no_message_becomes_no_lie():
    assert forged(b"\xc1", "run", np.random.Generator(np.random.Philox(1))) is None
