"""Lies: a message that was sent, with one thing in it changed, as whoever holds the broker can send it in any name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels.machine import Malformed
from hushgrid.lab.simulate.recorder import LARGEST
from hushgrid.node import wire
from hushgrid.node.wire import Birth, Death, Envelope, Finish, Join, Mark, Plan, Presence, Progress

LIES = ["run", "epoch", "seq", "higher", "lower", "session", "state", "ledger", "value"]


def forged(payload: bytes, lie: str, chance: np.random.Generator) -> bytes | None:
    """The message with that changed; None if it has no such thing, or is no message."""
    changed: Envelope | Presence | None = None
    try:
        changed = _enveloped(wire.decode_envelope(payload, LARGEST), lie, chance)
    except Malformed:
        with suppress(Malformed):
            changed = _present(wire.decode_presence(payload), lie, chance)
    return None if changed is None else wire.encode(changed)


def _enveloped(envelope: Envelope, lie: str, chance: np.random.Generator) -> Envelope | None:
    body, up = envelope.body, int(chance.integers(-3, 4))
    match lie:
        case "run":
            return replace(envelope, run=chance.bytes(16))
        case "epoch":
            return replace(envelope, epoch=max(envelope.epoch + up, 0))
        case "seq":
            return replace(envelope, seq=max(envelope.seq + up, 0))
        case "higher" | "lower" | "ledger":
            change = _marked(lie, chance)
            if isinstance(body, Plan):
                return replace(envelope, body=replace(body, marks={k: change(m) for k, m in body.marks.items()}))
            if isinstance(body, Join) and body.seen:
                return replace(envelope, body=replace(body, seen=tuple((k, change(m)) for k, m in body.seen)))
            return None if envelope.mark is None else replace(envelope, mark=change(envelope.mark))
        case "value" if not isinstance(body, Plan):
            vectors = {
                key: value for key in body.__struct_fields__ if isinstance(value := getattr(body, key), np.ndarray)
            }
            return (
                replace(envelope, body=replace(body, **{k: -2.0 * v for k, v in vectors.items()})) if vectors else None
            )
        case "session" if isinstance(body, Plan):
            return replace(envelope, body=replace(body, members={k: max(s + up, 0) for k, s in body.members.items()}))
        case "state" if isinstance(body, Finish):
            return replace(envelope, body=replace(body, state="stopped" if body.state == "done" else "done"))
        case "state" if isinstance(body, Plan):
            return replace(envelope, body=replace(body, nonce=chance.bytes(16)))
        case "state":
            return replace(envelope, body=Finish("done" if up > 0 else "stopped", "a lie"))
    return None


def _present(presence: Presence, lie: str, chance: np.random.Generator) -> Presence | None:
    up = int(chance.integers(-3, 4))
    match presence:
        case Birth() if lie == "session":
            return replace(presence, session=max(presence.session + up, 0))
        case Birth() if lie == "run":
            return replace(presence, run=chance.bytes(16))
        case Birth() if lie in ("higher", "lower", "ledger"):
            return replace(presence, mark=_marked(lie, chance)(presence.mark))
        case Birth() if lie == "state":
            return Death(presence.session)
        case Progress() if lie == "run":
            return replace(presence, run=chance.bytes(16))
        case Progress() if lie == "state":
            others = [state for state in ("running", "done", "stopped") if state != presence.state]
            return replace(presence, state=others[int(chance.integers(2))])
    return None


def _marked(lie: str, chance: np.random.Generator) -> Callable[[Mark], Mark]:
    """How a mark is changed: it says more, or less, or names another ledger."""
    size = int(np.exp(chance.uniform(0, np.log(1e4))))
    if lie == "ledger":
        return lambda mark: replace(mark, ledger=chance.bytes(16))
    if lie == "lower":
        return lambda mark: replace(mark, no=max(mark.no - size, 0), epsilon=mark.epsilon / 2, mu2=mark.mu2 / 2)
    return lambda mark: replace(mark, no=mark.no + size, epsilon=mark.epsilon * 1.5, mu2=mark.mu2 * 1.5)
