"""Which run a coordinator makes: its plan, its id, the sessions of its members, and how often it was announced."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hushgrid.kernels.errors import HushgridError
from hushgrid.node import wire
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.wire import Envelope, Finish, Mark, Plan, Progress

ANNOUNCED = 3  #: plans announced at once for members that start again before they have joined; the next ones wait,
ANNOUNCE_S = (1.0, 30.0)  #: twice as long each time: a member that comes and goes writes no ledger full


class Announcement:
    """The run of a plan, before and while it is made."""

    def __init__(self, plan: RunPlan, every: float | None) -> None:
        """`every`: s until the next run begins; None: by no schedule."""
        self.blob = encode_plan(plan)
        self.run = b""  #: id of the run; b"": there is none yet
        self.sessions: dict[str, int] = {}  #: of the members, when it was announced
        self.earlier: dict[str, bytes] = {}  #: member: the run at whose end it is to begin
        self.times = 0  #: plans since the last run that began
        self.next = 0.0  #: when the next may be, s
        self._every, self._nonce = every, b""

    def renew(self, sessions: dict[str, int], now: float) -> None:
        """Another run of the plan: its id holds the members' sessions of now."""
        self.sessions, self._nonce = sessions, os.urandom(16)
        self.run = wire.run_id(self.blob, self._nonce, sessions)
        self.times += 1
        first, longest = ANNOUNCE_S
        late = self.times - ANNOUNCED
        self.next = now + (min(first * 2.0 ** min(late, 10), longest) if late >= 0 else 0.0)

    def take(self, stored: StoredRun) -> None:
        """A run of the ledger: the same plan to the byte, with the sessions of then, which are part of its id."""
        plan = wire.decode_state(Plan, stored.plan)
        self.run, self._nonce, self.sessions = stored.id, plan.nonce, plan.members
        self._every, self.earlier = plan.every, plan.warm

    def begun(self) -> None:
        """The rounds begin: the next plan need not wait."""
        self.times, self.next = 0, 0.0

    def body(self, marks: Mapping[str, tuple[Mark, ...]]) -> Plan:
        """The plan as it is published, with what is remembered of each member's ledgers."""
        first = {member: several[0] for member, several in marks.items() if several}
        beside = {member: several[1:] for member, several in marks.items() if several[1:]}
        return Plan(self.blob, self._nonce, self.sessions, first, self._every, self.earlier, beside)

    def envelope(self, body: wire.Body) -> Envelope:
        """A message of this run that is of no round."""
        return Envelope(self.run, 0, 0, None, body)

    def farewell(self, error: HushgridError | None, reason: str, residual: float | None) -> bytes:
        """How the run has ended, for a member: stopped by an error, or done."""
        if error:
            body = Finish("stopped", str(error), error.kind)
        else:
            body = Finish("done", reason, residual=residual, quality="agreed" if reason == "tolerance" else "rounds")
        return wire.encode(self.envelope(body))

    def progress(self, done: int, *, going: bool, stopped: bool) -> Progress:
        """How far the run is, for whoever comes late."""
        return Progress(self.run, done, "running" if going else "stopped" if stopped else "done")
