"""What a device's status says, and when it is said: at each connection, and when a run begins or has ended."""

from __future__ import annotations

import time

from hushgrid.kernels.errors import HushgridError
from hushgrid.node import status
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.privacy.renewal import BudgetStatus, budget_status
from hushgrid.node.privacy.spend_table import boottime
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.runtime.member import Member
from hushgrid.node.status import Status
from hushgrid.node.transport.certificate import OwnCertificate
from hushgrid.node.transport.link import Link
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import WIRE


class Reporter:
    """Publishes the status of one device. It says nothing by the moment: each is that of a message of the run."""

    def __init__(self, config: DeviceConfig, member: Member, link: Link) -> None:
        self.config, self.member, self.link = config, member, link
        self.since = boottime()  #: s of running time: its clock may be set later, as after a boot in 1970
        self.certificate = OwnCertificate(None)  #: of the link
        self._said: tuple[object, ...] = ()

    def __call__(self) -> None:
        """At every turn of the loop: says it again if something is another now."""
        member, link = self.member, self.link
        now = (link.connects, member.driver, member.ended, member.over, member.budget)
        if now != self._said and link.connected:
            if now[0] != (self._said or (0,))[0]:
                self.certificate.take(time.time())
            self._said = now
            self.publish()

    def publish(self, state: status.State | None = None) -> None:
        """Says it now. `state`: another than the member's own."""
        payload = status.encode(self.status(state))
        self.link.send([(self.member.topics.status(self.member.name), payload, True)])

    def status(self, state: status.State | None = None) -> Status:
        """What is public of the device."""
        member, ledger = self.member, self.member.ledger
        stored, now = ledger.runs.last(), time.time()
        expiring = member.device.until is not None
        budget = budget_status(ledger, member.budget or self.config.budget, expiring=expiring)
        plan, over = _plan(stored), member.over
        return Status(
            node=member.name,
            version=RUNNING,
            wire=WIRE,
            session=member.session,
            since=status.moment(now - (boottime() - self.since)),
            at=status.moment(now),
            state=state or ("running" if member.driver else "idle"),
            run=stored.id.hex() if stored else "",
            last=stored.status if stored else "",
            round=over.round if over and stored and over.run == stored.id else None,
            rounds=plan.algorithm.rounds if plan else None,
            refused="mark" if ledger.refusal else member.refusal,
            epsilon_left=budget.left,
            epsilon_left_life=budget.left_life,
            window_s=budget.window_s,
            runs_out=_runs_out(plan, budget, now),
            certificate_days=member.days(),
            certificate=self.certificate.number,
        )


def _runs_out(plan: RunPlan | None, budget: BudgetStatus, now: float) -> str | None:
    """When the life's epsilon is spent: by the pace of the window, else if every run costs what this plan may."""
    if budget.runs_out_s is not None:
        return status.moment(now + budget.runs_out_s)
    every, terms = (plan.every, plan.terms) if plan else (None, None)
    if every is None or terms is None or budget.left_life is None:
        return None
    return status.moment(now + budget.left_life / terms.epsilon * every)


def _plan(stored: StoredRun | None) -> RunPlan | None:
    """The plan of a run; None if it is not kept, or cannot be read any more."""
    try:
        return decode_plan(stored.plan) if stored and stored.plan else None
    except HushgridError:
        return None
