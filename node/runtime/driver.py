"""Machine, gate, ledger and wire: the one place that orders commit and publish.

Every message goes through `receive`. A message of a foreign epoch, sender, type or dimension, or a second different
body for the same (epoch, seq), is refused before it changes the machine's state. What the machine then wants is one
transaction: its gate's spends, its state and its messages. Only what is committed is handed out for publishing. A step
that sends and spends nothing needs no commit: the peers send again until our answer proves that we have their message.

An answer drawn is an answer paid. The coordinator chooses the plan's numbers and its own messages, so a step can be
made to fail as a function of an answer. What a failing step drew is committed with the run's end, and the network gets
one constant sentence, whatever failed. If the gate refuses before it draws, the reason is sent, because public numbers
alone decide it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from functools import partial
from typing import NoReturn, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from hushgrid.kernels.errors import Failed, HushgridError, Refused, Stopped
from hushgrid.kernels.machine import Machine, Malformed, Proceeding, Send, Step
from hushgrid.node import pieces, wire
from hushgrid.node.pieces import Pieces, in_pieces
from hushgrid.node.privacy.gate import Exhausted, Gate, GateState
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.wire import Envelope, Refuse

#: What numbers that no check foresaw may raise, where there is no gate and so nothing to protect.
UNFORESEEN = (ArithmeticError, ValueError, IndexError)
#: The one sentence that the network gets about a step that failed after the draw, whatever failed.
FAILED = "its step failed, or left the bounds of an iterate; what was drawn for it is paid, its own log says more"


class Stored(Struct, frozen=True):
    """What a driver stores in the ledger: the encoded states of machine and gate, and its own fields of these names."""

    machine: bytes
    gate: bytes | None  #: None for the coordinator, which has no gate
    seen: dict[str, tuple[int, int, bytes]]
    sent: tuple[int, int]
    taken: tuple[int, int]


#: Messages whose classes had other names when ledgers began to hold them.
_FIRST_NAMES = {"KeyRequest": "Meet", "KeysAck": "Met", "Result": "Told", "ResultAck": "Kept"}


def stored_as(message: type) -> str:
    """The name of a class of messages in a driver's state: it stands in ledgers, so it never changes."""
    return _FIRST_NAMES.get(message.__name__, message.__name__)


def epoch_of(body: object) -> int:
    """The epoch of a message: a token's own; messages of rounds have epoch 0."""
    return getattr(body, "epoch", 0)


def incomputable(node: str, error: Exception) -> Stopped:
    """Why a run is over that a peer's numbers have made impossible."""
    return Stopped(f"{node}: found numbers that it cannot compute with: {type(error).__name__}, expected others")


class StepFailed(Exception):
    """A step failed, so the run is over here. `detail` is for the device's own log.

    `refuse` is the message to the network; `payload` is the same message encoded, which is committed already.
    """

    def __init__(self, refuse: Refuse, payload: bytes, detail: str) -> None:
        super().__init__(detail)
        self.refuse, self.payload, self.detail = refuse, payload, detail


Address = tuple[str, int]  #: of a message of a star: receiver and number


def _address(send: Send) -> Address | None:
    """None of what is no exchange: it says how things stand now, or may be all that the receiver still lacks."""
    return (send.dst, send.seq) if type(send.body) in wire.EXCHANGES else None


def _leaves(step: Step) -> bool:
    """Whether a step sends anything, or ends the run: only then is it committed."""
    return bool(step.send) or step.done is not None


class Driver:
    """One run of one role. Methods return (destination, payload) pairs that are committed and may be published.

    They raise LedgerFailed if the disk does not take a step; nothing of it has left then. If the role has a gate, they
    raise StepFailed if a step fails.
    """

    def __init__(self, node: str, run: bytes, machine: Machine, gate: Gate | None, ledger: Ledger) -> None:
        self.node, self.run, self.machine, self.gate, self.ledger = node, run, machine, gate, ledger
        self.done: str | None = None  #: why the run is over for the machine; None while it goes on
        self.seen: dict[str, tuple[int, int, bytes]] = {}  #: (epoch, seq, digest) of the last taken, by sender and kind
        self.seal: Callable[[Envelope], bytes] = wire.encode  #: or `wire.hand_over`, to peers in this process
        #: (messages, bytes) with iterates; resends and other messages are not counted
        self.sent = self.taken = (0, 0)
        self.observe: Callable[[Driver], None] | None = None  #: simulation's trace, called after each commit
        self.round_of: Callable[[object], tuple[int, float | None] | None] | None = (
            None  #: from the machine's state: (last complete round, its residual), or None
        )
        stored = ledger.runs.find(run)
        if stored is not None and stored.state is not None:
            self._restore(stored.state)

    # --- events ---

    @property
    def started(self) -> bool:
        """Whether the machine knows that the run has begun."""
        return self.machine.started

    @property
    def stands(self) -> int:
        """The number of the machine's last message, 1 or more once it has started; 0: it is new in the run."""
        return max(int(getattr(self.machine.state, "t", 0)), 1) if self.started else 0

    def start(self) -> list[tuple[str, bytes]]:
        """The machine's first step; after a restart the messages whose receipt is not proven, again."""
        return self.tick() if self.started else self._all(self._made(self.machine.start))

    def receive(self, sender: str, envelope: Envelope, size: int) -> list[tuple[str, bytes]]:
        """The machine's answer to one decoded message of this run, of `size` bytes.

        Raises Malformed if this edge may not carry the message now; then the state is unchanged.
        """
        body = envelope.body
        if envelope.epoch != epoch_of(body):
            raise Malformed(f"foreign epoch: {envelope.epoch}, expected {epoch_of(body)}")
        key = f"{sender} {stored_as(type(body))}"
        # What peers in this process hand over was never on a wire, where anybody could send a second body.
        digest = b"" if self.seal is wire.hand_over else hashlib.sha256(wire.encode(body)).digest()[:16]
        epoch, seq, taken = self.seen.get(key, (0, -1, b""))
        if (envelope.epoch, envelope.seq) == (epoch, seq) and digest != taken and not isinstance(body, wire.Receipt):
            raise Malformed(f"second body: another one for number {seq}")
        try:
            step = self._made(partial(self.machine.receive, sender, envelope.seq, body))
        except Malformed as error:
            raise Malformed(f"not of this edge: {error}") from None
        if envelope.mark is not None and sender != wire.COORDINATOR:  # a coordinator has no gate
            self.ledger.marks.peers.spent(sender, envelope.mark)
        if not step.taken:
            return self._encode(step)
        self.seen[key] = (envelope.epoch, envelope.seq, digest)
        if type(body) in wire.ITERATES:
            self.taken = (self.taken[0] + 1, self.taken[1] + size)
        return self._all(step)

    def act(self, step: Step) -> list[tuple[str, bytes]]:
        """Commits a step that neither a message nor time has caused (a suspicion), like any other step."""
        return self._finish(step)

    def tick(self, older: Collection[Address] | None = None, only: str | None = None) -> list[tuple[str, bytes]]:
        """The messages whose receipt is not proven yet, as the same bytes; with `older` of a star's those of these
        addresses alone. `only`: those for this receiver.

        Steps that can be made without a message are made, and what they send is among them.
        """
        step = self.machine.tick()
        again = step.send if only is None else tuple(send for send in step.send if send.dst == only)
        if older is not None:
            again = tuple(send for send in again if (a := _address(send)) is None or a in older)
        return self._encode(step._replace(send=again)) + (self._all(self._proceed()) if step.more else [])

    def unproven(self) -> frozenset[Address]:
        """The addresses of a star's messages whose receipt is not proven yet."""
        return frozenset(a for send in self.machine.tick().send if (a := _address(send)) is not None)

    # --- inside ---

    def _all(self, step: Step) -> list[tuple[str, bytes]]:
        """Finishes a step and all steps that can be made at once after it, each with its own commit."""
        out = self._finish(step)
        while step.more:
            step = self._proceed()
            out += self._finish(step)
        return out

    def _proceed(self) -> Step:
        return self._made(cast(Proceeding, self.machine).proceed)

    def _made(self, make: Callable[[], Step]) -> Step:
        """A step of the machine whose iterates are finite and bounded. Raises Malformed if a message was refused."""
        if self.gate is None:
            try:
                return make()
            except UNFORESEEN as error:
                raise incomputable(self.node, error) from None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                step = make()
                # What only takes a message down stands in no commit: the step that sends next looks at all of it.
                sound = not _leaves(step) or all(map(wire.within, self._vectors(step)))
            if not sound:
                raise Failed(
                    f"{self.node}: an iterate is not finite or beyond its bound, expected a run that converges"
                )
        except (Malformed, LedgerFailed):
            raise
        except BaseException as error:  # a panic of a compiled solver is no Exception
            self._fail(self.gate, error)
        return step

    def _vectors(self, step: Step) -> list[np.ndarray]:
        """The vectors that the step sends, and those of the machine's state."""
        fields = [value for send in step.send if type(send.body) in wire.ITERATES for value in astuple(send.body)]
        sent = [v for value in fields for v in (value if isinstance(value, tuple) else (value,))]
        return [v for v in (*sent, *vars(self.machine.state).values()) if isinstance(v, np.ndarray)]

    def _fail(self, gate: Gate, error: BaseException) -> NoReturn:
        """Ends the run in one transaction with what the failing step drew. Raises StepFailed."""
        if isinstance(error, Exhausted):
            refuse = Refuse(str(error), Refused.kind)
        elif gate.terms is None:  # there is nothing to protect
            refuse = Refuse(str(error) or repr(error), getattr(error, "kind", Failed.kind))
        else:
            refuse = Refuse(f"{self.node}: {FAILED}", Failed.kind)
        mark = self.ledger.marks.after(gate.spends)
        payload = wire.encode(Envelope(self.run, 0, 0, mark, refuse))
        self.ledger.commit(
            self.run, spends=gate.spends, answers=gate.repeat, status="refused", last=payload, version=gate.version
        )
        gate.committed()
        detail = str(error) if isinstance(error, HushgridError) else f"{type(error).__name__}: {error}"
        done = getattr(self.machine, "row", None)
        where = f"in round {done + 1}: " if isinstance(done, int) else ""
        raise StepFailed(refuse, payload, where + detail) from None

    def _finish(self, step: Step) -> list[tuple[str, bytes]]:
        """Commits what the step did, then returns what it sends. A step that sends nothing needs no commit."""
        if not _leaves(step):
            return []
        out = self._encode(step)
        so_far = self.sent[0] + self.taken[0], self.sent[1] + self.taken[1]  # what is sent now is the next round's
        sizes = [len(o[1]) for o, send in zip(out, step.send, strict=True) if type(send.body) in wire.ITERATES]
        self.sent = (self.sent[0] + len(sizes), self.sent[1] + sum(sizes))
        self._commit(step, so_far)
        return out

    def _commit(self, step: Step, so_far: tuple[int, int]) -> None:
        gate = self.gate
        done = self.round_of(self.machine.state) if self.round_of else None
        self.ledger.commit(
            self.run,
            spends=gate.spends if gate else [],
            state=self._stored,
            status="running",
            answers=gate.repeat if gate else [],
            history=(*done, *so_far) if done else None,
            version=gate.version if gate else None,
        )
        if gate:
            gate.committed()
        self.done = step.done or self.done
        if self.observe:
            self.observe(self)

    def store(self) -> None:
        """Stores the machine before its first step, durably."""
        self.ledger.commit(self.run, state=self._stored)

    def _stored(self) -> bytes | Pieces:
        """What `_restore` goes on from; a wide one in pieces."""
        gate = wire.encode(self.gate.state) if self.gate else None
        machine = in_pieces(self.machine.state)
        if len(machine) < pieces.WIDE:
            return wire.encode(Stored(machine.joined(), gate, self.seen, self.sent, self.taken))
        return in_pieces(Stored(cast(bytes, machine), gate, self.seen, self.sent, self.taken))

    def _encode(self, step: Step) -> list[tuple[str, bytes]]:
        """What a step sends. A message that is the same object for several receivers is encoded once."""
        mark = self.ledger.marks.after(self.gate.spends) if self.gate else None
        out, last, payload = [], None, b""
        for send in step.send:
            if last is None or send.body is not last.body or send.seq != last.seq:
                payload = self.seal(Envelope(self.run, epoch_of(send.body), send.seq, mark, send.body))
            out.append((send.dst, payload))
            last = send
        return out

    def _restore(self, blob: bytes) -> None:
        stored = wire.decode_state(Stored, blob)
        self.machine.state = wire.decode_state(type(self.machine.state), stored.machine)
        if self.gate and stored.gate:
            self.gate.restore(wire.decode_state(GateState, stored.gate))
        self.seen, self.sent, self.taken = stored.seen, stored.sent, stored.taken
        self.done = getattr(self.machine.state, "done", None)
