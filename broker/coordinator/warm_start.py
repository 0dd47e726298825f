"""The last state in force: what the runs before have left a coordinator, where the next one begins.

All of it is public: a function of messages that the coordinator has seen. It is kept durably once a run is done, and is
used again only for the same problem and algorithm, and only if every number is finite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from hushgrid.broker.coordinator.schedule import Clocks
from hushgrid.kernels.machine import LARGEST
from hushgrid.kernels.patterns.star import FinalState
from hushgrid.kernels.types import Vector
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.rolling import Periods, passed, to_come

KEY = "in force"  #: of the ledger's notes


class MemberState(Struct, frozen=True):
    """What one member's last run has left."""

    run: bytes  #: that run
    warm: np.ndarray  #: as in `FinalState`
    z: np.ndarray
    dual: np.ndarray  #: empty where the algorithm has none
    number: int  #: of the interval
    boot: str  #: which boot, and when: s of its clock, and of the wall clock
    at: float
    wall: float
    standing: np.ndarray = msgspec.field(
        default_factory=lambda: np.zeros(0)
    )  #: as in `FinalState`; empty where there is none


class WarmState(Struct, frozen=True):
    """The parts of all members."""

    of: str  #: problem and algorithm
    factor: float
    parts: dict[str, MemberState]
    first: int = 1  #: of a day: the period with which their runs began

    @property
    def warm(self) -> dict[str, bytes]:
        """What a plan says of it: each member's last run."""
        return {member: part.run for member, part in self.parts.items()}


def label(plan: RunPlan) -> str:
    """What must be the same for a state to be in force: everything that w and its duals depend on, but data."""
    content = msgspec.json.encode([plan.kind.lasting(plan.problem), plan.algorithm], order="deterministic")
    return hashlib.sha256(content).hexdigest()


def load(ledger: Ledger, plan: RunPlan) -> tuple[WarmState | None, str]:
    """The state in force for this plan of all members, or None and why there is none.

    Of a day it is that of the periods to come, each as the last plan of that hour has left it.
    """
    state, why = _kept(ledger, plan)
    periods = plan.kind.periods(plan.problem)
    if state is None or periods is None:
        return state, why
    parts = _each(state, lambda vector: to_come(vector, state.first, periods))
    if parts is None:
        return None, "nothing is known of these periods"
    return msgspec.structs.replace(state, first=periods.first, parts=parts), ""


def _kept(ledger: Ledger, plan: RunPlan) -> tuple[WarmState | None, str]:
    """What is kept, of all periods."""
    blob = ledger.note(KEY)
    if blob is None:
        return None, "no run was done before"
    try:
        state = wire.decode_state(WarmState, blob)
    except (msgspec.MsgspecError, ValueError):
        return None, "the state kept is not whole"
    if state.of != label(plan):
        return None, "the state kept is of another case, zones or algorithm"
    vectors = (v for part in state.parts.values() for v in (part.warm, part.z, part.dual, part.standing))
    if not all(bool(np.all(np.abs(v) <= LARGEST)) for v in vectors) or not 0 < state.factor <= 1000:
        return None, "the state kept is not finite"
    return state, ""


def _each(state: WarmState, cut: Callable[[Vector], Vector | None]) -> dict[str, MemberState] | None:
    """The parts with each vector cut; None where one does not fit."""
    parts = dict[str, MemberState]()
    for member, part in state.parts.items():
        vectors = {name: cut(getattr(part, name)) for name in ("warm", "z", "dual")}
        if any(vector is None for vector in vectors.values()):
            return None
        parts[member] = msgspec.structs.replace(part, **vectors)
    return parts


def keep(ledger: Ledger, plan: RunPlan, run: bytes, final: FinalState, number: int, clocks: Clocks) -> None:
    """Keeps what a run has left, durably; of members that had no part in it, and of periods that are over, what was
    left before.
    """
    before, _ = _kept(ledger, plan)
    when: dict[str, Any] = {"boot": clocks.boot_id(), "at": clocks.boot(), "wall": clocks.wall()}
    none = np.zeros(0)
    parts = {
        m: MemberState(
            run, warm, final.z[m], final.duals.get(m, none), number, **when, standing=final.standing.get(m, none)
        )
        for m, warm in sorted(final.warm.items())
    }
    state = WarmState(label(plan), final.factor, (before.parts if before else {}) | parts)
    if (periods := plan.kind.periods(plan.problem)) is not None:
        state = _with_periods_before(msgspec.structs.replace(state, first=periods.first), before, periods)
    ledger.keep_note(KEY, wire.encode(state))


def _with_periods_before(state: WarmState, before: WarmState | None, periods: Periods) -> WarmState:
    """The state of a plan with what was kept of the periods before it, as far as that is known."""
    if before is None or before.first > periods.first or before.parts.keys() != state.parts.keys():
        return state
    over = _each(before, lambda vector: passed(vector, before.first, periods))
    if over is None:
        return state
    parts = {
        member: msgspec.structs.replace(
            part,
            **{
                name: np.concatenate([getattr(over[member], name), getattr(part, name)])
                for name in ("warm", "z", "dual")
            },
        )
        for member, part in state.parts.items()
    }
    return msgspec.structs.replace(state, first=before.first, parts=parts)


def age(part: MemberState, number: int, every: float, clocks: Clocks) -> float:
    """How old a part is, s, by this boot's clock, else by the wall clock; never less than the intervals since then."""
    return max(clocks.since(part), (number - part.number) * every)


def fits(start: WarmState, shapes: dict[str, int]) -> bool:
    """Whether there is a part of this size for every member of a run."""
    return all(m in start.parts and start.parts[m].warm.size == size for m, size in shapes.items())


def latest(start: WarmState) -> Vector:
    """Where the last run has ended, of runs in which all have one x: a member may have been absent from it."""
    return max(start.parts.values(), key=lambda part: part.number).warm


def vectors(start: WarmState, name: str) -> dict[str, Vector]:
    """One vector of each part, by member; those that have it."""
    return {m: getattr(p, name) for m, p in start.parts.items() if getattr(p, name).size}
