"""What a coordinator's ledger says of the runs before this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hushgrid.kernels.errors import Failed, Suspended
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.runtime.driver import Stored
from hushgrid.node.wire import PLAN_LIMIT, Finish, Plan


def is_of(stored: StoredRun, blob: bytes) -> bool:
    """Whether a run is of this very plan."""
    return wire.decode_state(Plan, stored.plan).plan == blob


def farewell_in(stored: StoredRun) -> Finish | None:
    """How a run has ended; None if that is not decided."""
    if stored.last is None:
        return None
    farewell = wire.decode_envelope(stored.last, PLAN_LIMIT).body
    assert isinstance(farewell, Finish)
    return farewell


def _last_stopped(ledger: Ledger, blob: bytes, kind: str) -> tuple[StoredRun, Finish] | None:
    """The last run and its farewell, if it is of this plan and was stopped in its rounds by an error of this kind."""
    last = ledger.last_run()
    if last is None or last.status != "stopped" or last.state is None:
        return None
    farewell = farewell_in(last)
    if farewell is None or farewell.kind != kind or not is_of(last, blob):
        return None
    return last, farewell


def lost(
    stored: StoredRun, member: str, stands: int, reached: Callable[[str, Mapping[str, tuple[int, int, bytes]]], int]
) -> str | None:
    """Why a member cannot go on with a stopped run, by where it says that it stands (`Join`); None: it can.

    reached: the number of the last message taken from it, by what the coordinator's driver has stored.
    """
    if stands < 0 or stored.state is None:
        return None
    number = reached(member, wire.decode_state(Stored, stored.state).seen)
    if stands >= number:
        return None
    place = f"message {stands}" if stands else "the beginning"
    return f"{member} has lost its state: it stands at {place} of the run, expected message {number}"


def failed(ledger: Ledger, blob: bytes) -> str | None:
    """Why the last run, if it was of this very plan, ended in a step that failed: begun again it would cost again."""
    found = _last_stopped(ledger, blob, Failed.kind)
    return found[1].reason if found else None


def resumable(ledger: Ledger, blob: bytes) -> StoredRun | None:
    """The last run, if it is of this very plan and was suspended in its rounds."""
    found = _last_stopped(ledger, blob, Suspended.kind)
    return found[0] if found else None
