"""Machine + gate + ledger + wire: the one place that orders commit and publish.

Every message goes through `receive`: what is of a foreign epoch, sender, type or dimension, or a second different body
for the same (epoch, seq), is refused before it touches the machine's state. Whatever the machine then wants, its
gate's spends, its state and its sends are one transaction, and only what is committed is handed out for publishing.
A step that sends and spends nothing needs no commit: the peers resend until our answer proves that we have it.

An answer drawn is an answer paid. The coordinator chooses the plan's numbers and its own messages, so a step can be made
to fail as a function of an answer: what a failing step drew is committed with the run's end, and whatever failed, the
network is told one constant sentence. Only what the gate refuses before it draws is said, since it is decided by
public numbers alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from hushgrid.kernels.errors import Failed, HushgridError, Refused
from hushgrid.kernels.machine import Machine, Malformed, Proceeding, Step
from hushgrid.node import wire
from hushgrid.node.privacy.gate import Exhausted, Gate, GateState
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.wire import Envelope, Refuse

#: All that the network ever hears of a step that failed, whatever failed and however.
FAILED = "its step failed, or left the bounds of an iterate; what was drawn for it is paid, its own log says more"


class Stored(Struct, frozen=True):
    """A driver's row in the ledger."""

    machine: bytes
    gate: bytes | None
    seen: dict[str, tuple[int, int, bytes]]
    sent: tuple[int, int]
    taken: tuple[int, int]


def epoch_of(body: Any) -> int:
    """The epoch a message belongs to: a token's; rounds have one."""
    return getattr(body, "epoch", 0)


class StepFailed(Exception):
    """The run is over here: `detail` is for the device's own log, `payload` is committed as its last word."""

    def __init__(self, refuse: Refuse, payload: bytes, detail: str) -> None:
        super().__init__(detail)
        self.refuse, self.payload, self.detail = refuse, payload, detail


class Driver:
    """One run of one role. Methods return (destination, payload) pairs that are committed and may be published.

    They raise LedgerFailed where the disk does not take a step (nothing has left), of a role with a gate StepFailed.
    """

    def __init__(self, node: str, run: bytes, machine: Machine, gate: Gate | None, ledger: Ledger) -> None:
        self.node, self.run, self.machine, self.gate, self.ledger = node, run, machine, gate, ledger
        self.done: str | None = None
        self.seen: dict[str, tuple[int, int, bytes]] = {}  #: sender and kind: (epoch, seq, digest) of the last taken
        #: (messages, bytes) of the algorithm itself, resends and custody not counted
        self.sent = self.taken = (0, 0)
        self.observe: Callable[[Driver], None] | None = None  #: simulation's trace, called after each commit
        self.round_of: Callable[[Any], tuple[int, float | None] | None] | None = (
            None  #: state -> (round, residual) complete
        )
        stored = ledger.run(run)
        if stored is not None and stored.state is not None:
            self._restore(stored.state)

    # --- events ---

    @property
    def started(self) -> bool:
        return self.machine.started

    def start(self) -> list[tuple[str, bytes]]:
        """The machine's first step; after a restart its unproven messages again."""
        return self.tick() if self.started else self._all(self._made(self.machine.start))

    def receive(self, sender: str, envelope: Envelope, size: int) -> list[tuple[str, bytes]]:
        """One decoded message of this run, `size` bytes. Malformed where this edge may not carry it now."""
        body = envelope.body
        if envelope.epoch != epoch_of(body):
            raise Malformed(f"foreign epoch: {envelope.epoch}, expected {epoch_of(body)}")
        key = f"{sender} {type(body).__name__}"
        digest = hashlib.sha256(wire.encode(body)).digest()[:16]
        epoch, seq, taken = self.seen.get(key, (0, -1, b""))
        if (envelope.epoch, envelope.seq) == (epoch, seq) and digest != taken and not isinstance(body, wire.Receipt):
            raise Malformed(f"second body: another one for number {seq}")
        try:
            step = self._made(lambda: self.machine.receive(sender, envelope.seq, body))
        except Malformed as error:
            raise Malformed(f"not of this edge: {error}") from None
        if not step.taken:
            return self._encode(step)
        self.seen[key] = (envelope.epoch, envelope.seq, digest)
        if isinstance(body, wire.Iterate):
            self.taken = (self.taken[0] + 1, self.taken[1] + size)
        return self._all(step)

    def act(self, step: Step) -> list[tuple[str, bytes]]:
        """What the machine was asked for beside messages and time (a suspicion): committed as a message's step is."""
        return self._finish(step)

    def tick(self) -> list[tuple[str, bytes]]:
        """The messages whose receipt is not proven yet: the same bytes again."""
        step = self.machine.tick()
        return self._encode(step) + (self._all(self._proceed()) if step.more else [])

    # --- inside ---

    def _all(self, step: Step) -> list[tuple[str, bytes]]:
        """A step and those that can be made at once behind it, each with its own commit."""
        out = self._finish(step)
        while step.more:
            step = self._proceed()
            out += self._finish(step)
        return out

    def _proceed(self) -> Step:
        return self._made(cast(Proceeding, self.machine).proceed)

    def _made(self, make: Callable[[], Step]) -> Step:
        """A step of the machine, its iterates finite and bounded. Malformed of a message that changed nothing."""
        if self.gate is None:
            return make()
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # found below
                step = make()
            if not all(wire.bounded(v) for v in self._vectors(step)):
                raise Failed(
                    f"{self.node}: an iterate is not finite or beyond its bound, expected a run that converges"
                )
        except (Malformed, LedgerFailed):
            raise
        except BaseException as error:  # of any kind: a panic of a compiled solver is no Exception
            self._fail(self.gate, error)
        return step

    def _vectors(self, step: Step) -> list[np.ndarray]:
        """What the step sends, and what its state holds of its own."""
        bodies = [v for send in step.send if isinstance(send.body, wire.Iterate) for v in astuple(send.body)]
        told = [v for value in bodies for v in (value if isinstance(value, tuple) else (value,))]
        return [v for v in (*told, *vars(self.machine.state).values()) if isinstance(v, np.ndarray)]

    def _fail(self, gate: Gate, error: BaseException) -> NoReturn:
        """The run ends here, in one transaction with what the step drew."""
        if isinstance(error, Exhausted):
            refuse = Refuse(str(error), Refused.kind)
        elif gate.terms is None:  # there is nothing to protect
            refuse = Refuse(str(error) or repr(error), getattr(error, "kind", Failed.kind))
        else:
            refuse = Refuse(f"{self.node}: {FAILED}", Failed.kind)
        mark = self.ledger.mark_after(gate.spends)
        payload = wire.encode(Envelope(self.run, 0, 0, mark, refuse))
        self.ledger.commit(self.run, spends=gate.spends, answers=gate.repeat, status="refused", last=payload)
        gate.committed()
        detail = str(error) if isinstance(error, HushgridError) else f"{type(error).__name__}: {error}"
        raise StepFailed(refuse, payload, detail) from None

    def _finish(self, step: Step) -> list[tuple[str, bytes]]:
        """Commit what the step did, then hand out what it sends; nothing to commit where it only listened."""
        if not step.send and step.done is None:
            return []
        out = self._encode(step)
        so_far = self.sent[0] + self.taken[0], self.sent[1] + self.taken[1]  # what is sent now is the next round's
        sizes = [len(o[1]) for o, send in zip(out, step.send, strict=True) if isinstance(send.body, wire.Iterate)]
        self.sent = (self.sent[0] + len(sizes), self.sent[1] + sum(sizes))
        self._commit(step, so_far)
        return out

    def _commit(self, step: Step, so_far: tuple[int, int]) -> None:
        gate = self.gate
        state = Stored(
            wire.encode(self.machine.state),
            wire.encode(gate.state) if gate else None,
            self.seen,
            self.sent,
            self.taken,
        )
        done = self.round_of(self.machine.state) if self.round_of else None
        self.ledger.commit(
            self.run,
            spends=gate.spends if gate else [],
            state=wire.encode(state),
            status="running",
            answers=gate.repeat if gate else [],
            history=(*done, *so_far) if done else None,
        )
        if gate:
            gate.committed()
        self.done = step.done or self.done
        if self.observe:
            self.observe(self)

    def _encode(self, step: Step) -> list[tuple[str, bytes]]:
        mark = self.ledger.mark_after(self.gate.spends) if self.gate else None
        return [
            (send.dst, wire.encode(Envelope(self.run, epoch_of(send.body), send.seq, mark, send.body)))
            for send in step.send
        ]

    def _restore(self, blob: bytes) -> None:
        stored = wire.decode_state(Stored, blob)
        self.machine.state = wire.decode_state(type(self.machine.state), stored.machine)
        if self.gate and stored.gate:
            self.gate.restore(wire.decode_state(GateState, stored.gate))
        self.seen, self.sent, self.taken = stored.seen, stored.sent, stored.taken
        self.done = getattr(self.machine.state, "done", None)
