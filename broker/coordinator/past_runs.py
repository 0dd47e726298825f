"""What a coordinator's ledger says of the runs before this one."""

from __future__ import annotations

from hushgrid.kernels.errors import Failed, Suspended
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun
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


def failed(ledger: Ledger, blob: bytes) -> str | None:
    """Why the last run, if it was of this very plan, ended in a step that failed: begun again it would cost again."""
    found = _last_stopped(ledger, blob, Failed.kind)
    return found[1].reason if found else None


def resumable(ledger: Ledger, blob: bytes) -> StoredRun | None:
    """The last run, if it is of this very plan and was suspended in its rounds."""
    found = _last_stopped(ledger, blob, Suspended.kind)
    return found[0] if found else None
