"""What the nodes of a walk and their coordinator say to each other, and the legs of the walk. All of it is public.

The rules stand in `kernels/patterns/token.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field

NEVER = 2**62  #: the fence of an epoch in which no token was issued: beyond every hop


class Leg(Struct, tag="baton.leg", frozen=True):
    """The part of the walk under way: from activation `since` on, after node `origin`, around the nodes `without`."""

    version: int = 0
    since: int = 0
    origin: str = ""
    without: tuple[str, ...] = ()
    recount: bool | UnsetType = UNSET  #: it is the tour of a recount; not in the bytes of another one


#: Who makes activation k, after `node` made the one before, on this leg. Public. Stopped where nobody can.
Route = Callable[[str, int, Leg], str]


class Token(Struct, tag="baton.token", frozen=True, omit_defaults=True):
    """To the node of activation `seq`: the vectors before it. `stable_rounds` counts the hops in a row that moved them
    little.
    """

    fences: tuple[int, ...]
    leg: Leg
    stable_rounds: int = field(name="calm")
    vectors: tuple[np.ndarray, ...]
    missing: tuple[str, ...] = ()  #: the nodes that the vectors' sums are without
    counted: tuple[str, ...] = ()  #: recount: the nodes in `sums`
    sums: tuple[np.ndarray, ...] = ()

    @property
    def epoch(self) -> int:
        return len(self.fences)


class Ack(Struct, tag="baton.ack", frozen=True):
    """Token `seq` of this epoch is taken; `passed`: token `seq` + 1 too."""

    epoch: int
    passed: bool


class Held(Struct, tag="baton.held", frozen=True):
    """To the coordinator: activation `seq` - 1 is made, token `seq` goes to `to`; `done` says why it goes nowhere."""

    epoch: int
    to: str
    done: str | None = None
    missing: tuple[str, ...] | UnsetType = UNSET  #: of the token, where there are any


class Notice(Struct, tag="baton.notice", frozen=True):
    """Coordinator to all, its decision number `seq` and all before it."""

    announced: int = 0  #: the highest epoch announced: tokens of earlier ones are refused
    barrier: int = -1  #: up to this hop
    fences: tuple[int, ...] = ()  #: of the epochs decided
    by: str = ""  #: the node that issues token `hop` on `leg` in epoch len(fences)
    hop: int = 0
    leg: Leg = Leg()
    version: int = 0  #: of the legs that go around the nodes `without`
    without: tuple[str, ...] = ()
    recount: bool | UnsetType = UNSET  #: such a leg begins with a recount

    @property
    def epoch(self) -> int:
        return self.announced


class Answer(Struct, tag="baton.answer", frozen=True):
    """To the coordinator: notice `seq` is stored.

    The last activation here is `t` - 1; `holds`: token `t` is here, for `to`.
    """

    t: int
    holds: bool = field(name="kept")
    to: str = ""


def superseded(epoch: int, hop: int, fences: tuple[int, ...]) -> bool:
    """Whether a step at `hop`, taken in `epoch`, is undone by a later epoch that began at or before it."""
    return any(first <= hop for first in fences[epoch:])
