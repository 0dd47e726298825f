"""A device's life on the wire: born, asked to join, in a run, done. Pure of sockets and clocks; any transport drives it.

What a device has decided is stored before it is said. A run it has finished or refused is never answered afresh: only
its stored last message is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from hushgrid.kernels.accounting import total_epsilon
from hushgrid.kernels.errors import HushgridError, InputError, Refused, Stopped
from hushgrid.kernels.machine import ALL, Malformed
from hushgrid.kernels.neighbours import Neighbour
from hushgrid.node import wire
from hushgrid.node.allowance import Allowance
from hushgrid.node.assemble import Device
from hushgrid.node.config import Allow, Budget
from hushgrid.node.driver import Driver
from hushgrid.node.endpoint import Endpoint
from hushgrid.node.gate import Entropy, Seeded
from hushgrid.node.ledger import Ledger, LedgerFailed
from hushgrid.node.plan import RunPlan, decode_plan
from hushgrid.node.problem import algorithms_for
from hushgrid.node.records import StoredRun
from hushgrid.node.wire import (
    COORDINATOR,
    PLAN_LIMIT,
    Birth,
    Capabilities,
    Envelope,
    Finish,
    Finished,
    Join,
    Plan,
    Progress,
    Publication,
    Refuse,
)


@dataclass(frozen=True)
class Simulated:
    """What only `hushgrid run` can give a node; nothing on the wire can."""

    seed: int | None = None


class Member(Endpoint):
    """One device. `observe(driver, fresh)` is simulation's trace, called after each commit; a device has none."""

    def __init__(
        self, fleet: str, device: Device, ledger: Ledger, budget: Budget | None, allow: Allow | None = None,
        simulated: Simulated | None = None, observe: Callable[[Driver, bool], None] | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        super().__init__(device.name, fleet, ledger, log)
        self.device, self.budget, self.allow = device, budget, allow or Allow()
        self.simulated, self.observe = simulated, observe
        self.driver: Driver | None = None
        self.allowance: Allowance | None = None
        self.last: tuple[bytes, bytes] | None = None  #: (run, payload) to repeat: the join, the refusal, the farewell
        self.outcome: Callable[[Any], None] = lambda _: None  #: given the machine's state when a run is done
        self._ended = False
        self._limit = wire.SMALL
        t = self.topics
        edges = t.edge("+" if device.neighbours else COORDINATOR, self.name)
        self._subscriptions: tuple[str, ...] = (t.all(COORDINATOR), edges, t.state(COORDINATOR))
        stored = ledger.open_run()
        if stored is not None:
            self._resume(stored)

    # --- what a transport asks ---

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return self._subscriptions

    @property
    def finished(self) -> bool:
        """A daemon stays then, `run` may end it."""
        return self._ended

    def connected(self) -> list[Publication]:
        """The birth, retained; then whatever is not proven."""
        return [self._birth(), *self._again()]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        try:
            kind, src, dst = self.topics.parse(topic)
            near = kind != "state" and self.device.neighbours and src != self.name
            if (src != COORDINATOR and not near) or (kind == "edge" and dst != self.name):
                raise Malformed("not of this device's edges")
            if kind == "state":
                return self._on_progress(wire.decode_presence(payload)) if payload else []
            planning = kind == "all" and src == COORDINATOR
            envelope = wire.decode_envelope(payload, PLAN_LIMIT if planning else self._limit)
        except Malformed as error:
            return self._drop(f"malformed: {error}")
        body = envelope.body
        if planning:
            return self._on_plan(envelope, body) if isinstance(body, Plan) else self._drop("not a plan")
        if isinstance(body, Plan | Join | Refuse | Finished) or (src != COORDINATOR and isinstance(body, Finish)):
            return self._drop("not for a device")
        if isinstance(body, Finish):
            return self._on_finish(envelope.run, body)
        return self._on_step(src, envelope, len(payload))

    def on_tick(self, now: float) -> list[Publication]:
        """Time passes: what is not proven is sent again, less and less often."""
        return self._again() if self._due_at(now) else []

    def idle(self) -> None:
        """Nothing waits: draw the noise of the next answers."""
        if self.driver and self.driver.gate:
            self.driver.gate.refill()

    # --- the run ---

    def _on_plan(self, envelope: Envelope, body: Plan) -> list[Publication]:
        run = envelope.run
        if body.members.get(self.name) is None or run != wire.run_id(body.plan, body.nonce, body.members):
            return self._drop("a plan that is not this device's, or not what its run says")
        if self.last and self.last[0] == run:
            return [self._edge(self.last[1])]
        stored = self.ledger.run(run)
        if stored is not None:
            return [self._edge(stored.last)] if stored.last else []
        if body.members[self.name] != self.session:
            return self._drop("a plan for another session")
        if told := body.marks.get(self.name):
            self.ledger.tell(told)
        try:
            driver, allowance = self._agreed(run, body.plan)
        except (InputError, Refused) as error:
            return self._leave(
                run, b"", Refuse(str(error), error.kind), "refused"
            )  # its plan is not kept: it could fill the disk
        self.ledger.join(run, body.plan)
        self.driver, self.allowance = driver, allowance
        self._ended = False
        self.log(f"joined run {run.hex()[:8]}: {allowance.plan.name}")
        return self._say(run, Join())

    def _agreed(self, run: bytes, blob: bytes) -> tuple[Driver, Allowance]:
        """A run's machine and gate, where it is this device's and its owner allows it. InputError, Refused."""
        plan = decode_plan(blob)
        self.device.check(plan)
        driver, allowance = self._assemble(run, plan)
        allowance.consent(self._answers(driver))
        return driver, allowance

    def _answers(self, driver: Driver) -> int:
        """Gate answers the plan asks for at most: none where the one answer of mode input is only repeated."""
        gate = driver.gate
        t = gate.terms if gate else None
        return 0 if gate is None or t is None or gate.knows() else t.answers

    def _on_step(self, src: str, envelope: Envelope, size: int) -> list[Publication]:
        driver = self.driver
        if driver is None or envelope.run != driver.run:
            if src == COORDINATOR and self.last and self.last[0] == envelope.run:
                return [self._edge(self.last[1])]
            return self._drop("a foreign run")
        try:
            out = driver.receive(src, envelope, size)
        except Malformed as error:
            return self._drop(str(error))
        except LedgerFailed:
            raise  # nothing was released, nothing can be stored: the process ends and starts again from its ledger
        except HushgridError as error:
            stored = self.ledger.run(driver.run)
            self.driver = None
            kind = Refused.kind if isinstance(error, Refused) else Stopped.kind  # in a run the input was right
            return self._leave(envelope.run, stored.plan if stored else b"", Refuse(str(error), kind), "refused")
        if out:
            self.last = None
        self._soon()
        return [self._edge(payload, dst) for dst, payload in out]

    def _on_finish(self, run: bytes, body: Finish) -> list[Publication]:
        stored = self.ledger.run(run)
        if stored is None:
            return self._drop("a foreign run")
        if stored.status in ("joined", "running"):
            self._end(stored, body.state, body.reason)
        # `last` stays: it may be another run's, when an old farewell comes late.
        return [self._edge(wire.encode(Envelope(run, 0, 0, self.ledger.mark, Finished())))]

    def _on_progress(self, progress: wire.Presence) -> list[Publication]:
        """The coordinator's state: a late device learns that its run is over, one not heard of is called."""
        if not isinstance(progress, Progress):
            return []
        if progress.state == "gathering":
            return [self._birth()]
        driver = self.driver
        if driver and progress.run == driver.run and progress.state != "running":
            stored = self.ledger.run(driver.run)
            if stored:
                self._end(stored, progress.state, "over when this device came back")
        return []

    def _end(self, stored: StoredRun, state: str, reason: str) -> None:
        payload = wire.encode(Envelope(stored.id, 0, 0, self.ledger.mark, Finished()))
        self.ledger.commit(stored.id, status="done" if state == "done" else "stopped", last=payload)
        if state == "done" and self.driver is not None:
            self.outcome(self.driver.machine.state)
        self.driver, self.last = None, (stored.id, payload)
        self._ended = True
        self.log(f"run {stored.id.hex()[:8]} {state}: {reason}")

    def _leave(self, run: bytes, plan: bytes, body: Refuse, status: str) -> list[Publication]:
        payload = wire.encode(Envelope(run, 0, 0, self.ledger.mark, body))
        self.ledger.join(run, plan, status)
        self.ledger.commit(run, status=status, last=payload)
        if self.driver is None:  # else another run goes on
            self.last, self._ended = (run, payload), True
        self.log(f"run {run.hex()[:8]} refused: {body.reason}")
        return [self._edge(payload)]

    def _assemble(self, run: bytes, plan: RunPlan) -> tuple[Driver, Allowance]:
        t = plan.terms
        simulated = self.simulated is not None
        allowance = Allowance(
            self.name, self.ledger, run, plan, t, self.budget, self.allow, simulated=simulated
        )  # fmt: skip
        seed = self.simulated.seed if self.simulated else None
        noise = Entropy() if seed is None else Seeded(seed, self.name)
        machine, gate = self.device.machine(plan, run, self.ledger, noise, allowance)
        self._limit = max(self.device.limit(plan), wire.SMALL)
        if isinstance(machine, Neighbour):  # it hears its neighbours' broadcasts too
            shared = tuple(self.topics.all(node) for node in machine.neighbours)
            self._subscriptions = (*self._subscriptions[:3], *shared)
        driver = Driver(self.name, run, machine, gate, self.ledger)
        driver.observe = self._committed
        return driver, allowance

    def _committed(self, driver: Driver) -> None:
        if self.observe:
            self.observe(driver, True)

    def _resume(self, stored: StoredRun) -> None:
        """The process ended in a run: go on exactly where the ledger says, where the owner still allows it."""
        try:
            self.driver, self.allowance = self._agreed(stored.id, stored.plan)
        except (InputError, Refused) as error:
            self._leave(stored.id, stored.plan, Refuse(str(error), error.kind), "refused")
            return
        if stored.state is None:
            self._say(stored.id, Join())
        elif self.observe:
            self.observe(self.driver, False)
        self.log(f"resumed run {stored.id.hex()[:8]}: {self.allowance.plan.name}")

    # --- saying ---

    def _birth(self) -> Publication:
        stored = self.ledger.open_run()
        left = None
        if (b := self.budget) is not None:
            left = b.epsilon - total_epsilon(self.ledger.totals(str(b.adjacency or "")), b.delta or 0.0)
        capabilities = Capabilities(
            version=version("hushgrid"), algorithms=algorithms_for(self.device.kind), mechanisms=("laplace", "gaussian"),
            problem=self.device.kind, digest=self.device.digest, dimension=self.device.dimension,
            adjacency=str(self.budget.adjacency) if self.budget and self.budget.adjacency else "", budget_left=left,
        )  # fmt: skip
        birth = Birth(self.session, stored.id if stored else b"", self.ledger.mark, capabilities)
        return Publication(self.topics.state(self.name), wire.encode(birth), True)

    def _say(self, run: bytes, body: Join) -> list[Publication]:
        payload = wire.encode(Envelope(run, 0, 0, self.ledger.mark, body))
        self.last = (run, payload)
        self._soon()
        return [self._edge(payload)]

    def _again(self) -> list[Publication]:
        if self.driver and self.driver.started:
            return [self._edge(payload, dst) for dst, payload in self.driver.tick()]
        return [self._edge(self.last[1])] if self.last and self.driver else []

    def _edge(self, payload: bytes, dst: str = COORDINATOR) -> Publication:
        topics = self.topics
        return Publication(topics.all(self.name) if dst == ALL else topics.edge(self.name, dst), payload)
