"""What 0.1.0 decodes: its messages as it declared them, recorded. Nothing here follows the program."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

BARRED = 8


class W(Struct, tag="ladmm.w", frozen=True):
    w: np.ndarray


class Z(Struct, tag="ladmm.z", frozen=True):
    z: np.ndarray


class V(Struct, tag="star.v", frozen=True):
    v: np.ndarray
    factor: float


class Minimum(Struct, tag="star.minimum", frozen=True):
    z: np.ndarray
    value: float
    totals: np.ndarray


class Close(Struct, tag="star.close", frozen=True):
    pass


class Closing(Struct, tag="star.closing", frozen=True):
    data: np.ndarray
    z: np.ndarray
    duals: np.ndarray


class Released(Struct, tag="star.released", frozen=True):
    status: str
    disagreement: float
    values: np.ndarray


class Taken(Struct, tag="star.taken", frozen=True):
    pass


class Leg(Struct, tag="baton.leg", frozen=True):
    version: int = 0
    since: int = 0
    origin: str = ""
    without: tuple[str, ...] = ()


class Token(Struct, tag="baton.token", frozen=True):
    fences: tuple[int, ...]
    leg: Leg
    calm: int
    vectors: tuple[np.ndarray, ...]


class Ack(Struct, tag="baton.ack", frozen=True):
    epoch: int
    passed: bool


class Held(Struct, tag="baton.held", frozen=True):
    epoch: int
    to: str
    done: str | None = None


class Notice(Struct, tag="baton.notice", frozen=True):
    announced: int = 0
    barrier: int = -1
    fences: tuple[int, ...] = ()
    by: str = ""
    hop: int = 0
    leg: Leg = Leg()
    version: int = 0
    without: tuple[str, ...] = ()


class Answer(Struct, tag="baton.answer", frozen=True):
    t: int
    kept: bool
    to: str = ""


class Share(Struct, tag="neighbours.share", frozen=True):
    vector: np.ndarray


class Lack(Struct, tag="neighbours.lack", frozen=True):
    pass


class Begin(Struct, tag="neighbours.begin", frozen=True):
    pass


class Reached(Struct, tag="neighbours.reached", frozen=True):
    done: bool = False


class Mark(Struct, array_like=True, frozen=True):
    ledger: Annotated[bytes, Meta(max_length=16)]
    no: Annotated[int, Meta(ge=0, le=1 << 48)]
    epsilon: Annotated[float, Meta(ge=0)] = 0.0
    mu2: Annotated[float, Meta(ge=0)] = 0.0
    nonprivate: bool = False


class Capabilities(Struct, frozen=True):
    version: str
    algorithms: tuple[str, ...]
    mechanisms: tuple[str, ...]
    problem: str
    digest: str
    dimension: int
    adjacency: str = ""
    budget_left: float | None = None


class Birth(Struct, tag="birth", frozen=True):
    session: int
    run: bytes
    mark: Mark
    capabilities: Capabilities
    barred: Annotated[tuple[str, ...], Meta(max_length=BARRED)] = ()


class Death(Struct, tag="death", frozen=True):
    session: int


class Progress(Struct, tag="run", frozen=True):
    run: bytes
    round: int
    state: Literal["running", "done", "stopped", "gathering"]


class Plan(Struct, tag="plan", frozen=True):
    plan: bytes
    nonce: bytes
    members: dict[str, int]
    marks: dict[str, Mark]


class Join(Struct, tag="join", frozen=True):
    pass


class Refuse(Struct, tag="refuse", frozen=True):
    reason: str
    kind: str = "refused"


class Finish(Struct, tag="finish", frozen=True):
    state: Literal["done", "stopped"]
    reason: str
    kind: str = ""


class Finished(Struct, tag="finished", frozen=True):
    pass


Body = (
    Plan | Join | Refuse | Finish | Finished | Ack | Answer | Reached | Held | Notice | Begin | Lack
    | W | Z | V | Minimum | Close | Closing | Released | Taken | Token | Share
)  # fmt: skip
Presence = Birth | Death | Progress


class Envelope(Struct, array_like=True, frozen=True):
    run: bytes
    epoch: Annotated[int, Meta(ge=0)]
    seq: Annotated[int, Meta(ge=0)]
    mark: Mark | None
    body: Body


def _vector(type_: Any, value: Any) -> Any:
    if type_ is np.ndarray and isinstance(value, bytes) and len(value) % 8 == 0:
        return np.frombuffer(value, dtype="<f8")
    raise ValueError(type_)


envelope = msgspec.msgpack.Decoder(Envelope, dec_hook=_vector).decode
presence = msgspec.msgpack.Decoder(Presence).decode
