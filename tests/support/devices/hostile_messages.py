"""Messages that do not belong to a run: malformed, foreign, out of place."""

import numpy as np

from hushgrid.kernels.patterns.star import W
from hushgrid.node import wire
from hushgrid.node.wire import (
    Birth,
    Capabilities,
    Death,
    Envelope,
    Mark,
    Plan,
)

NONCE = b"n" * 16
OTHER = b"another run's id"
AHEAD = Mark(b"x" * 16, 1 << 40, 1e9, 1e9, True)  # a mark nobody may remember from a message that is dropped


def envelope(run, seq, body, *, epoch=0, mark=AHEAD):
    return wire.encode(Envelope(run, epoch, seq, mark, body))


def plan_message(blob, members, run=None, marks=None):
    run = wire.run_id(blob, NONCE, members) if run is None else run
    return wire.encode(Envelope(run, 0, 0, None, Plan(blob, NONCE, members, marks or {})))


def not_envelopes(size):
    """What is malformed on every edge whose largest message has `size` bytes."""
    good = envelope(OTHER, 1, W(np.zeros(12)))
    yield "empty", b""
    yield "bytes of something else", b"\xc1\x00hello"
    yield "truncated", good[:-3]
    yield "prolonged", good + b"\0"
    yield "over size", envelope(OTHER, 1, W(np.zeros(size)))
    for value in (np.nan, np.inf):
        yield f"{value}", envelope(OTHER, 1, W(np.array([value] * 12)))
    yield "a birth", wire.encode(Death(1))


def birth(session=77, run=b"", **over):
    facts = {
        "version": "0.1.0",
        "algorithms": ("ladmm",),
        "mechanisms": ("laplace",),
        "problem": "zones",
        "digest": "",
        "dimension": 12,
    }
    return Birth(session, run, AHEAD, Capabilities(**facts | over))
