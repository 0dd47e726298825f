"""The last state in force: what the runs before have left a coordinator, where the next one begins.

All of it is public: a function of messages that the coordinator has seen. It is kept durably once a run is done, and is
used again only for the same problem and algorithm, and only if every number is finite.
"""

from __future__ import annotations

import hashlib
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
from hushgrid.node.problems.power_flow import rolling
from hushgrid.node.problems.power_flow.section import HorizonPlan

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
    content = msgspec.json.encode([rolling.lasting(plan.problem), plan.algorithm], order="deterministic")
    return hashlib.sha256(content).hexdigest()


def load(ledger: Ledger, plan: RunPlan) -> tuple[WarmState | None, str]:
    """The state in force for this plan of all members, or None and why there is none."""
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
    day = rolling.horizon(plan.problem)
    if day is None:
        return state, ""
    shifted = _remaining(state, day)
    return (None, "a new day begins") if shifted is None else (shifted, "")


def _remaining(state: WarmState, day: HorizonPlan) -> WarmState | None:
    """The state without the periods that are over; None: there is none of this day's."""
    parts = dict[str, MemberState]()
    for member, part in state.parts.items():
        cut = {name: rolling.remaining(getattr(part, name), state.first, day) for name in ("warm", "z", "dual")}
        if any(vector is None for vector in cut.values()):
            return None
        parts[member] = msgspec.structs.replace(part, **cut)
    return msgspec.structs.replace(state, first=day.first, parts=parts)


def keep(ledger: Ledger, plan: RunPlan, run: bytes, final: FinalState, number: int, clocks: Clocks) -> None:
    """Keeps what a run has left, durably; of members that had no part in it, what they left before."""
    before, _ = load(ledger, plan)
    when: dict[str, Any] = {"boot": clocks.boot_id(), "at": clocks.boot(), "wall": clocks.wall()}
    none = np.zeros(0)
    parts = {
        m: MemberState(
            run, warm, final.z[m], final.duals.get(m, none), number, **when, standing=final.standing.get(m, none)
        )
        for m, warm in sorted(final.warm.items())
    }
    day = rolling.horizon(plan.problem)
    state = WarmState(label(plan), final.factor, (before.parts if before else {}) | parts, day.first if day else 1)
    ledger.keep_note(KEY, wire.encode(state))


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
