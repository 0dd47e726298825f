"""What a device's status says, and when it is said: at each connection, and when a run begins or has ended."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Protocol

import msgspec
from msgspec import Struct

from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.types import Document
from hushgrid.node import status, system
from hushgrid.node.privacy.ledger import Ledger, LedgerFailed
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.privacy.renewal import BudgetStatus, budget_status
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.runtime.member import Member
from hushgrid.node.schema.sections import Budget
from hushgrid.node.schema.trust import Trusted
from hushgrid.node.status import Status
from hushgrid.node.transport.certificate import OwnCertificate
from hushgrid.node.transport.link import Link
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import WIRE

REFUSAL = "last refusal"  #: of the ledger's notes
KEEP_S = 60.0  #: between two refusals that are remembered over restarts


class Refusal(Struct, frozen=True):
    """The last time that the device has refused, in this session or an earlier one."""

    code: str  #: the rule; "": never
    at: float  #: s since 1970, by its clock


class Owner(Protocol):
    """What the file of a device says, or of a site, that its status tells."""

    @property
    def budget(self) -> Budget | None: ...
    @property
    def trust(self) -> Trusted | None: ...


class Reporter:
    """Publishes the status of one device. It says nothing by the moment: each is that of a message of the run."""

    def __init__(self, config: Owner, member: Member, link: Link) -> None:
        self.config, self.member, self.link = config, member, link
        self.since = system.boottime()  #: s of running time: its clock may be set later, as after a boot in 1970
        self.certificate = OwnCertificate(None)  #: of the link
        self._said: tuple[object, ...] = ()
        self._refusals = 0  #: of this session
        self._refusal, self._kept = _last_refusal(member.ledger), True
        self._keep_at = -inf  #: when the ledger may be written next: plans alone must not keep its disk busy

    def __call__(self) -> None:
        """At every turn of the loop: says it again if something is another now."""
        member, link = self.member, self.link
        if member.refusals != self._refusals:
            self._refusals = member.refusals
            self._refusal, self._kept = Refusal(member.refusal, system.machine.wall()), False
        if not self._kept and system.boottime() >= self._keep_at:
            self._keep()
        now = (link.connects, member.driver, member.ended, member.over, member.budget)
        if now != self._said and link.connected:
            if now[0] != (self._said or (0,))[0]:
                self.certificate.take(system.machine.wall())
            self._said = now
            self.publish()

    def publish(self, state: status.State | None = None) -> None:
        """Says it now. `state`: another than the member's own."""
        if state == "off" and not self._kept:
            self._keep()
        payload = status.encode(self.status(state))
        self.link.send([(self.member.topics.status(self.member.name), payload, True)])

    def _keep(self) -> None:
        """Remembers the last refusal over restarts; what a disk that fails loses is a line for whoever watches."""
        self._kept, self._keep_at = True, system.boottime() + KEEP_S
        with suppress(LedgerFailed):
            self.member.ledger.keep_note(REFUSAL, msgspec.json.encode(self._refusal))

    def status(self, state: status.State | None = None) -> Status:
        """What is public of the device."""
        member, ledger = self.member, self.member.ledger
        stored, now = ledger.runs.last(state=False), system.machine.wall()
        expiring = member.device.until is not None
        limits = member.budget or self.config.budget
        budget = budget_status(ledger, limits, expiring=expiring) if limits else None
        plan, over, age = _plan(stored), member.over, ledger.data_age
        return Status(
            node=member.name,
            version=RUNNING,
            wire=WIRE,
            session=member.session,
            since=status.moment(now - (system.boottime() - self.since)),
            at=status.moment(now),
            state=state or ("running" if member.driver else "idle"),
            run=stored.id.hex() if stored else "",
            last=stored.status if stored else "",
            round=over.round if over and stored and over.run == stored.id else None,
            rounds=plan.algorithm.rounds if plan else None,
            refused="mark" if ledger.refusal else self._refusal.code,
            refused_at=status.moment(self._refusal.at) if self._refusal.code else None,
            **(_budget(limits, budget, plan, now) if limits and budget else {}),
            certificate_days=member.days(),
            certificate=self.certificate.number,
            forged=member.forgeries if self.config.trust else None,
            data_age_s=None if age is None or limits is None else 60.0 * (age // 60.0),
        )


def _budget(limits: Budget, budget: BudgetStatus, plan: RunPlan | None, now: float) -> Document:
    """The fields about what a device may spend; a site has no budget."""
    return {
        "epsilon": limits.epsilon,
        "lifetime": limits.epsilon if limits.span is None else limits.lifetime,
        "epsilon_left": budget.left,
        "epsilon_left_life": budget.left_life,
        "window_s": budget.window_s,
        "runs_out": _runs_out(plan, budget, now),
    }


def _runs_out(plan: RunPlan | None, budget: BudgetStatus, now: float) -> str | None:
    """When the life's epsilon is spent: by the pace of the window, else if every run costs what this plan may."""
    if budget.runs_out_s is not None:
        return status.moment(now + budget.runs_out_s)
    every, terms = (plan.every, plan.terms) if plan else (None, None)
    if every is None or terms is None or budget.left_life is None:
        return None
    return status.moment(now + budget.left_life / terms.epsilon * every)


def _last_refusal(ledger: Ledger) -> Refusal:
    blob = ledger.note(REFUSAL)
    with suppress(msgspec.MsgspecError):
        if blob is not None:
            return msgspec.json.decode(blob, type=Refusal)
    return Refusal("", 0.0)


def _plan(stored: StoredRun | None) -> RunPlan | None:
    """The plan of a run; None if it is not kept, or cannot be read any more."""
    try:
        return decode_plan(stored.plan) if stored and stored.plan else None
    except HushgridError:
        return None
