"""A device's own part of a warm start: the end of a run, which it keeps, and begins the next one at.

Only machines that say so (`StarMember.remembers`) have such a part; it follows from gate answers and messages, so a
device's beginning there reveals nothing more. It is kept for runs that follow a schedule, and forgotten with the
ledger. A device that does not have what a plan names begins at the flat start, and says so when it joins.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from hushgrid.node import wire
from hushgrid.node.problems.plan import scheduled_every
from hushgrid.node.runtime.driver import Driver

KEY = "ended"  #: of the ledger's notes


class Ended(Struct, frozen=True):
    """The end of a run."""

    run: bytes
    machine: bytes  #: its machine's state


def keep(driver: Driver, plan: bytes) -> None:
    """A run is done: keeps its end, if the plan stored for it follows a schedule."""
    if _remembers(driver) and scheduled_every(plan) is not None:
        driver.ledger.keep_note(KEY, wire.encode(Ended(driver.run, wire.encode(driver.machine.state))))


def begin(driver: Driver, earlier: bytes) -> None:
    """A run that is stored, and in which nothing has happened, begins where the run `earlier` has ended, if that is
    known.

    The beginning is stored: after a restart it is the same.
    """
    blob = driver.ledger.note(KEY) if earlier and _remembers(driver) else None
    if blob is None:
        return
    try:
        ended = msgspec.msgpack.decode(blob, type=Ended)
        state = wire.decode_state(type(driver.machine.state), ended.machine)
    except (msgspec.MsgspecError, ValueError):
        return
    machine: Any = driver.machine
    if ended.run == earlier and machine.take(state):
        driver.store()


def begun(driver: Driver) -> bool:
    """Whether the run began at the end of another one."""
    return bool(getattr(driver.machine.state, "warm", False))


def _remembers(driver: Driver) -> bool:
    return bool(getattr(driver.machine, "remembers", False))
