"""What travels: topics, envelopes and presence, as MessagePack of tagged structs; and the same codec for saved state.

A vector travels as its little-endian float64 bytes. Decoding checks size before it parses, and finiteness after; what
is malformed raises `Malformed` and nothing else, whatever the bytes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import astuple

from hushgrid.kernels.machine import LARGEST, Malformed
from hushgrid.kernels.patterns import levels, masked, neighbours, star, token

COORDINATOR = "coordinator"
ROOT = "hushgrid/1"
PLAN_LIMIT = 4 << 20  #: bytes; a plan names every zone's buses
BARRED = 8  #: topics that a birth names at most
WATCHED = ("status", "run", "answer")  #: kinds of topics that are for `watch` alone: no node hears them
USUAL = 256  #: characters of a topic, at most: of such a one it is remembered how it reads
SMALL = 4096  #: bytes of an envelope beside its vectors
CLAIMS = 16  #: marks of ledgers that are not its sender's that a message names at most

WIRE = 1  #: what is said here. Raised by a change that the program of the number before does not understand
OLDER: tuple[int, ...] = ()  #: the older numbers that this program speaks too


Every = Annotated[float, Meta(gt=0, le=1e9)]  #: s


class Mark(Struct, array_like=True, frozen=True):
    """How far a ledger has come: kept by every peer, so that a restored old ledger is noticed.

    `no` is the last spend's number; the sums price the spends up to it (Laplace epsilon, Gaussian mu^2).
    """

    ledger: Annotated[bytes, Meta(max_length=16)]
    no: Annotated[int, Meta(ge=0, le=1 << 48)]
    epsilon: Annotated[float, Meta(ge=0)] = 0.0
    mu2: Annotated[float, Meta(ge=0)] = 0.0
    nonprivate: bool = False


Accepted = Annotated[tuple[Mark, ...], Meta(max_length=CLAIMS)]
Seen = Annotated[
    tuple[tuple[str, Mark], ...], Meta(max_length=CLAIMS)
]  #: marks of peers whose spends its sender received

Number = Annotated[int, Meta(ge=1, le=1 << 16)]  #: of a wire


class Capabilities(Struct, frozen=True):
    """What a device offers, in its birth: public facts only. A field is added with a default,
    so that older births decode.
    """

    version: str
    algorithms: tuple[str, ...]
    mechanisms: tuple[str, ...]
    problem: str
    digest: str  #: of the public part of its problem: the case without loads, its zone
    dimension: int  #: entries it exchanges
    adjacency: str = ""
    budget_left: float | None = None
    wire: Number = 1  #: a birth without it is of a program from before the numbers, which all speak 1
    older: Annotated[tuple[Number, ...], Meta(max_length=16)] = ()  #: other numbers that it speaks
    certificate_days: int | None = None  #: until its certificate ends, by its own clock
    recounts: bool = False  #: it knows the recount of a token; one that does not leaves what lost nodes have added


def common(spoken: tuple[int, ...], offered: tuple[int, ...] | None = None) -> int | None:
    """The highest number that both parties speak: they can work together. None: they cannot,
    whatever their versions.
    """
    return max({*spoken} & {*((WIRE, *OLDER) if offered is None else offered)}, default=None)


class Birth(Struct, tag="birth", frozen=True):
    """Retained on state/<node>: alive, in this session, and in this run (or none)."""

    session: int
    run: bytes
    mark: Mark
    capabilities: Capabilities
    barred: Annotated[tuple[str, ...], Meta(max_length=BARRED)] = ()  #: topics that its broker keeps from it
    accepted: Accepted = ()  #: marks of the device's earlier ledgers that this one has counted as its own
    consents: Annotated[int, Meta(ge=0)] = 0  #: how often its owner has changed in this session what it agrees to


class Instance(Struct, array_like=True, frozen=True):
    """Which coordinator it is, if a fleet has two: its ledger, its session, when its process began, s since 1970."""

    ledger: Annotated[bytes, Meta(max_length=16)]
    session: int
    began: float

    def replaces(self, other: Instance) -> bool:
        """Whether it is another one that began later: of two, one replaces the other."""
        return self.ledger != other.ledger and (self.began, self.ledger) > (other.began, other.ledger)


class Death(Struct, tag="death", frozen=True, omit_defaults=True):
    """The last will on state/<node>."""

    session: int
    by: Instance | None = None  #: a coordinator's; older programs name none


class Progress(Struct, tag="run", frozen=True, omit_defaults=True):
    """Retained on state/coordinator: a late node reads it and stops."""

    run: bytes
    round: int
    state: Literal["running", "done", "stopped", "gathering"]  #: gathering, not retained: who is there says so again
    by: Instance | None = None  #: older programs name none


class Plan(Struct, tag="plan", frozen=True):
    """Coordinator to all: join this run. `run` of the envelope is the digest of plan, nonce and members."""

    plan: bytes
    nonce: bytes
    members: dict[str, int]
    marks: dict[str, Mark]  #: of each member the most important of its marks that are remembered
    every: Every | None = None  #: s from this run to the next, of a fleet that runs by itself
    warm: dict[str, bytes] = {}  #: member: the run at whose end it begins; else at the flat start
    beside: dict[str, tuple[Mark, ...]] = {}  #: and all others, of members that have had several ledgers

    def marks_of(self, member: str) -> tuple[Mark, ...]:
        """All that this member is told of its ledgers."""
        first = self.marks.get(member)
        return (*(() if first is None else (first,)), *self.beside.get(member, ()))


class Join(Struct, tag="join", frozen=True):
    """The plan is stored."""

    warm: bool = False  #: it has kept the end of the run that the plan names, and begins there; else at the flat start
    stands: Annotated[
        int, Meta(ge=-1)
    ] = -1  #: number of its last message in this run; 0: it is new in it; -1: not said
    accepted: Accepted | None = None  #: as in its birth; None: not said
    seen: Seen = ()  #: beyond what the plan says of them


class Refuse(Struct, tag="refuse", frozen=True):
    """A device will not (or not further) take part. Figures of its ledger, never of its data."""

    reason: str
    kind: str = "refused"  #: of kernels/errors.py: refused | input | failed | stopped


class Finish(Struct, tag="finish", frozen=True):
    """Coordinator to a member: the run is over, and how."""

    state: Literal["done", "stopped"]
    reason: str
    kind: str = ""  #: of a stopped run: refused | input | failed | stopped | suspended: it can be gone on with
    residual: float | None = None  #: consensus residual of the last round
    quality: Annotated[str, Meta(max_length=32)] = ""  #: agreed | rounds: made, without having agreed before their end


class Finished(Struct, tag="finished", frozen=True):
    """A member has stored that the run is over."""

    seen: Seen = ()  #: as in its join


Control = Plan | Join | Refuse | Finish | Finished
Receipt = (
    token.Ack | token.Answer | neighbours.Reached
)  #: how things stand with its sender now: a later one may say more
Custody = Receipt | token.Held | token.Notice | neighbours.Begin | neighbours.Lack
Exchange = star.Message | masked.Message | levels.Message  #: of a star: whoever has one has all before it
Iterate = Exchange | token.Token | neighbours.Iterate  #: the algorithms' own messages: what a run counts
Body = Control | Custody | Iterate
EXCHANGES, ITERATES = frozenset(get_args(Exchange)), frozenset(get_args(Iterate))
Presence = Birth | Death | Progress


class Envelope(Struct, array_like=True, frozen=True):
    """Every message on an edge: its run, the epoch of the run, its number on this edge, the sender's mark, the body."""

    run: bytes
    epoch: Annotated[int, Meta(ge=0)]
    seq: Annotated[int, Meta(ge=0)]
    mark: Mark | None
    body: Body


class Publication(NamedTuple):
    """Something to publish, QoS 1."""

    topic: str
    payload: bytes
    retain: bool = False


def run_id(plan: bytes, nonce: bytes, members: dict[str, int]) -> bytes:
    """128 bits of SHA-256 over the plan, the coordinator's nonce and the members' session numbers."""
    digest = hashlib.sha256()
    for part in (plan, nonce, msgspec.msgpack.encode(sorted(members.items()))):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()[:16]


class Topics(NamedTuple):
    """The topics of one fleet: one per directed edge of the graph."""

    fleet: str

    def edge(self, src: str, dst: str) -> str:
        """What one says to one other: the algorithm's messages, receipts, joining and refusing."""
        return f"{ROOT}/{self.fleet}/edge/{src}/{dst}"

    def all(self, src: str) -> str:
        """What one says to all that hear it: a plan, the beginning of rounds, a message to all neighbours."""
        return f"{ROOT}/{self.fleet}/all/{src}"

    def state(self, node: str) -> str:
        """Retained: that the node is alive, in which session and run; its last will says that it is not."""
        return f"{ROOT}/{self.fleet}/state/{node}"

    def status(self, node: str) -> str:
        """Retained, as JSON: what is public of the node, for the identity `watch`; no node hears it."""
        return f"{ROOT}/{self.fleet}/status/{node}"

    def run(self, node: str = COORDINATOR) -> str:
        """Retained, as JSON: how the run stands (`RunView`), for `watch`; at most once a second."""
        return f"{ROOT}/{self.fleet}/run/{node}"

    def answer(self, node: str = COORDINATOR) -> str:
        """Retained, as JSON: what the last answer says (`AnswerView`), for `watch`."""
        return f"{ROOT}/{self.fleet}/answer/{node}"

    def parse(self, topic: str) -> tuple[str, str, str]:
        """(kind, src, dst) of a topic of this fleet, both names of nodes; dst is "" but for an edge.
        Raises Malformed otherwise.
        """
        return (_parsed if len(topic) <= USUAL else _parsed.__wrapped__)(self.fleet, topic)


_named = re.compile("[a-z0-9-]{1,64}").fullmatch  # as `Name` of kernels/ranges.py


@lru_cache(maxsize=1024)  # a node hears few topics, each many times
def _parsed(fleet: str, topic: str) -> tuple[str, str, str]:
    parts = topic.split("/")
    # Brokers let any text be a part of a topic, and what is read here is shown on terminals.
    if parts[:3] == [*ROOT.split("/"), fleet] and all(map(_named, parts[4:])):
        match parts[3:]:
            case ["edge", src, dst]:
                return "edge", src, dst
            case [("all" | "state" | "status" | "run" | "answer") as kind, src]:
                return kind, src, ""
    raise Malformed(f"topic {topic[:80]!r}")


WIDE = 1 << 12  #: bytes from which on a vector is not copied before it is encoded


def encode_vector(value: object) -> bytes | memoryview:
    """The bytes of a vector, wide ones where they are. Raises TypeError or NotImplementedError for anything else."""
    vector = np.ascontiguousarray(_flat(value), dtype="<f8")
    return vector.tobytes() if vector.nbytes < WIDE else vector.data.cast("B")


def _flat(value: object) -> np.ndarray:
    """A vector. Raises TypeError or NotImplementedError for anything else."""
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(type(value))
    if value.ndim != 1:
        raise TypeError(f"an array of {value.ndim} dimensions; vectors only")
    return value


def _vector(type_: object, value: object) -> np.ndarray:
    if type_ is np.ndarray:
        if not isinstance(value, bytes) or len(value) % 8:
            raise ValueError("a vector is float64 bytes")
        return np.frombuffer(value, dtype="<f8").astype(np.float64)  # a writable copy in native order
    raise NotImplementedError(type_)


_SMALL2 = (LARGEST / 2) ** 2  #: entries whose squares sum to less are far from LARGEST, however the sum was rounded


def within(vector: np.ndarray) -> bool:
    """`bounded` of one vector, for callers that ignore overflows and invalid values already."""
    if vector.ndim == 1 and vector.dtype == np.float64 and vector.dot(vector) <= _SMALL2:  # as nearly all are
        return True
    return bool(np.logical_and.reduce(np.abs(vector) <= LARGEST))  # false for nan too


@np.errstate(over="ignore", invalid="ignore")
def bounded(*vectors: np.ndarray) -> bool:
    """Whether every entry is finite and at most LARGEST: what may be sent, and is taken."""
    return all(map(within, vectors))


_alone = np.errstate(over="ignore", invalid="ignore")(within)


def _told(type_: object, value: object) -> np.ndarray:
    vector = _vector(type_, value)
    if not _alone(vector):
        raise ValueError(f"a vector has an entry that is not finite, or beyond {LARGEST:.3g}")
    return vector


T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder(enc_hook=encode_vector)
_envelope = msgspec.msgpack.Decoder(Envelope, dec_hook=_told)
_presence = msgspec.msgpack.Decoder(Presence)


def encode(value: Any) -> bytes:
    """A struct (or a state dataclass, under the names of `Machine.state`) as bytes; equal values give equal bytes."""
    return _encoder.encode(stored_form(value))


def stored_form(value: object) -> object:
    """What of a value is encoded: of a state dataclass with other names in what is stored a mapping under these."""
    if hasattr(value, "encoded_names"):
        return {stored: getattr(value, name) for stored, name in _names_of(cast(object, type(value)))}
    return value


@cache
def _names_of(type_: type[Any]) -> tuple[tuple[str, str], ...]:
    """(Its stored name, its name) of each field of a dataclass that has other names in what is stored."""
    return tuple((type_.encoded_names.get(f.name, f.name), f.name) for f in fields(type_))


class Parcel(bytes):
    """In place of an encoded envelope, the envelope itself, for peers in the same process. Its bytes are none.

    Its length is that of the encoding, so that sizes are counted as on a wire.
    """

    envelope: Envelope
    size: int
    bounded: bool  #: its vectors are

    def __len__(self) -> int:
        return self.size

    __eq__, __hash__ = object.__eq__, object.__hash__  # who compares what was published compares bytes: here are none


def hand_over(envelope: Envelope) -> Parcel:
    """A parcel with copies of the vectors, as decoding makes them, but that nobody can write to: all that hear it
    share them, and the sender may go on with its own.
    """
    vectors: list[np.ndarray] = []
    run, epoch, seq, mark, body = astuple(envelope)
    parcel = Parcel()
    parcel.envelope = Envelope(run, epoch, seq, mark, _shared(body, vectors))
    parcel.size = _size(envelope)
    parcel.bounded = bounded(*vectors)
    return parcel


def _size(value: object) -> int:
    """How long `encode(value)` is, without the bytes of its vectors being written."""
    vectors = 0

    def skip(vector: object) -> bytes:
        nonlocal vectors
        length = 8 * _flat(vector).size
        vectors += length + (0 if length < 1 << 8 else 1 if length < 1 << 16 else 3)  # its header grows from 2 bytes
        return b""

    return len(msgspec.msgpack.encode(value, enc_hook=skip)) + vectors


def _shared(value: Any, vectors: list[np.ndarray]) -> Any:
    """What is in a message, its vectors being read-only copies, which are appended to `vectors`."""
    if isinstance(value, np.ndarray):
        copy = np.array(value, dtype=np.float64)
        copy.setflags(write=False)
        vectors.append(copy)
        return copy
    if isinstance(value, Struct):
        return type(value)(*[_shared(part, vectors) for part in astuple(value)])
    if isinstance(value, tuple | list):
        return type(value)([_shared(part, vectors) for part in value])
    return {k: _shared(v, vectors) for k, v in value.items()} if isinstance(value, dict) else value


def decode_envelope(payload: bytes, limit: int) -> Envelope:
    """The envelope in `payload`, at most `limit` bytes. Raises Malformed on anything else."""
    if isinstance(payload, Parcel):
        if payload.size > limit:
            raise Malformed(f"{payload.size} bytes, at most {limit} expected")
        if not payload.bounded:
            raise Malformed(f"a vector has an entry that is not finite, or beyond {LARGEST:.3g}")
        return payload.envelope
    envelope: Envelope = _guarded(_envelope, payload, limit)
    return envelope


def decode_presence(payload: bytes) -> Presence:
    """What stands on a state topic. Raises Malformed on anything else."""
    presence: Presence = _guarded(_presence, payload, SMALL)
    return presence


def _guarded(decoder: msgspec.msgpack.Decoder[T], payload: bytes, limit: int) -> T:
    if len(payload) > limit:
        raise Malformed(f"{len(payload)} bytes, at most {limit} expected")
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError) as error:
        raise Malformed(str(error)[:200]) from None


def decode_state(type_: type[T], blob: bytes) -> T:
    """A dataclass saved by `encode`, its arrays as vectors."""
    form = _stored_form(cast(object, type_))
    decoded = msgspec.msgpack.decode(blob, type=form, dec_hook=_vector)
    if form is type_:
        return cast(T, decoded)
    names = type_.encoded_names  # type: ignore[attr-defined]
    return type_(**{f.name: getattr(decoded, names.get(f.name, f.name)) for f in fields(cast(Any, type_))})


@cache
def _stored_form(type_: type[Any]) -> type[object]:
    """The dataclass itself, or one whose fields have the stored names."""
    names = getattr(type_, "encoded_names", {})
    if not names:
        return type_
    hints = get_type_hints(type_)
    members = [(names.get(f.name, f.name), hints[f.name], _default(f)) for f in fields(type_)]
    return make_dataclass(type_.__name__, members, kw_only=True)


def _default(member: Field[object]) -> object:
    """A new field with the default of another one."""
    if member.default_factory is not MISSING:
        return field(default_factory=member.default_factory)
    return field() if member.default is MISSING else field(default=member.default)
