"""What a coordinator does now, or waits for: in words for systemd, and as a status for whoever watches the fleet.

What has happened, and what is due, is kept by running time, and said by the clock of the moment: somebody may set that
clock meanwhile, and nothing may seem to have begun after it has ended, or to be late by an hour.
"""

from __future__ import annotations

import time
from typing import Any

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.schedule import boottime
from hushgrid.node import status
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.status import NAMED, Status
from hushgrid.node.transport.certificate import OwnCertificate, days_of
from hushgrid.node.transport.link import Link
from hushgrid.node.versions import RUNNING
from hushgrid.node.wire import COORDINATOR, WIRE

OFTEN_S, SELDOM_S = 2.0, 30.0  #: between two statuses: if somebody else is waited for, and of a run that goes on
STATES: dict[str, status.State] = {"finishing": "over", "over": "idle"}  #: of a phase; else the phase itself


def activity(coordinator: Coordinator) -> str:
    """What a coordinator does, or waits for."""
    run = coordinator.run.hex()[:8]
    match coordinator.phase:
        case "gathering":
            return f"waits for {', '.join(coordinator.waiting)}"
        case "joining":
            return f"run {run}: waits for {', '.join(coordinator.waiting)} to join"
        case "running":
            return f"in run {run}"
        case _:
            return f"run {run} is over: waits for {', '.join(coordinator.waiting)} to hear it"


class Reporter:
    """Publishes the status of a fleet's coordinator, run after run."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self.config = config
        self.since = boottime()  #: s of running time, as all times here
        self.due: float | None = None  #: when the next run is due, if there is a schedule
        self.refuses: tuple[str, ...] = ()  #: the members that have refused in this interval, or the last one
        self.certificate = OwnCertificate(config.tls)  #: of its connection
        self._plan: dict[str, Any] = {}  #: what a device can compare itself with
        self._gone: dict[str, float] = {}
        self._waits: tuple[str, ...] = ()
        self._waited = 0.0  #: since when, of time.monotonic()
        self._said: tuple[object, ...] = ()
        self._at = -SELDOM_S

    def __call__(self, coordinator: Coordinator, link: Link, now: float | None = None) -> None:
        """At every turn of the loop: says it again if something is another now, or has been for long."""
        now = time.monotonic() if now is None else now
        if (now - self._at < OFTEN_S and coordinator.phase == "running") or not link.connected:
            return
        waits = tuple(coordinator.waiting) if coordinator.phase != "over" else ()
        if waits != self._waits:
            self._waits, self._waited = waits, now
        self._notice(coordinator)
        missing = waits if coordinator.phase != "running" else ()
        news = (link.connects, coordinator.phase, coordinator.run, missing, tuple(self._gone), self.due, self.refuses)
        if news == self._said and not (coordinator.phase == "running" and now - self._at >= SELDOM_S):
            return
        if link.connects != (self._said or (0,))[0]:
            self.certificate.take(time.time())
        self._said, self._at = news, now
        self.publish(coordinator, link, waits_s=now - self._waited if waits else None)

    def plans(self, coordinator: Coordinator) -> None:
        """The plan in force is this one's, of all members: a run without some of them says nothing of those."""
        plan, entries = coordinator.plan, {m: coordinator.dimension(m) for m in coordinator.members[:NAMED]}
        self._plan = {"problem": plan.kind.devices, "digest": plan.problem.digest[:12], "entries": entries}

    def anew(self, left: float | None = None) -> None:
        """What it has said is not true any more: a run has ended, and the next one is due in so many seconds."""
        self._said, self.due = (), None if left is None else boottime() + left

    def publish(
        self, coordinator: Coordinator, link: Link, state: status.State | None = None, waits_s: float | None = None
    ) -> None:
        """Says it now. `state`: another than that of its phase."""
        payload = status.encode(self.status(coordinator, state, waits_s))
        link.send([(coordinator.topics.status(COORDINATOR), payload, True)])

    def status(self, coordinator: Coordinator, state: status.State | None, waits_s: float | None) -> Status:
        """What is public of the coordinator."""
        stored, now, running = coordinator.ledger.runs.last(), time.time(), boottime()
        begun = coordinator.phase in ("running", "finishing")
        zero = now - running  # when running time was 0, by the clock of now
        done = coordinator.complete(coordinator.driver.machine.state) if coordinator.driver else None
        algorithm = coordinator.plan.algorithm
        return Status(
            node=COORDINATOR,
            version=RUNNING,
            wire=WIRE,
            session=coordinator.session,
            since=status.moment(zero + self.since),
            at=status.moment(now),
            state=state or STATES.get(coordinator.phase) or coordinator.phase,
            run=stored.id.hex() if stored else "",
            last=stored.status if stored else "",
            round=done[0] if done else None,
            rounds=algorithm.rounds,
            waits_for=self._waits[:NAMED],
            waits_s=None if waits_s is None else round(waits_s, 1),
            late_s=None if self.due is None or begun else round(max(running - self.due, 0.0), 1),
            due=None if self.due is None else status.moment(zero + self.due),
            gone={name: status.moment(zero + since) for name, since in list(self._gone.items())[:NAMED]},
            refuses=self.refuses[:NAMED],
            **self._plan,
            certificate_days=days_of(self.config.tls),
            certificate=self.certificate.number,
        )

    def _notice(self, coordinator: Coordinator) -> None:
        """Since when somebody has been gone: a last will says no time."""
        for name in coordinator.membership.absent:
            self._gone.setdefault(name, boottime())
        for name in coordinator.membership.births:
            self._gone.pop(name, None)
