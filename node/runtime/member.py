"""A device on the wire: it announces itself, joins a run, takes part, ends. It has no socket and reads no clock.

What a device decides is stored before it is sent. A run that it has finished or refused is never answered afresh: only
its last message is repeated. A stopped run may be resumed. The outcome of a run is owed until it is on the disk.

A plan that is refused costs nothing and nothing of it is stored: the run's id holds this session's number, so a later
session does not take the plan for its own. What plans may write into the ledger and the log is limited (FREE_BYTES), or
an adversary in the coordinator's place could fill the disk free of charge.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from math import inf

from hushgrid.kernels.errors import HushgridError, InputError, Refused, printable
from hushgrid.kernels.machine import ALL, Malformed
from hushgrid.kernels.patterns.neighbours import Iterate
from hushgrid.node import wire
from hushgrid.node.log import Warned
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.privacy.noise_source import noise_source
from hushgrid.node.problems.kind import Device, Outcome, Renewal
from hushgrid.node.problems.plan import RunPlan, decode_plan, scheduled
from hushgrid.node.runtime import warm_start
from hushgrid.node.runtime.capabilities import capabilities
from hushgrid.node.runtime.driver import Address, Driver, StepFailed
from hushgrid.node.runtime.endpoint import LINE, Endpoint
from hushgrid.node.runtime.outcomes import Outcomes
from hushgrid.node.runtime.renewed import renewed
from hushgrid.node.runtime.withheld import Withheld
from hushgrid.node.runtime.witness import Simulated as Simulated
from hushgrid.node.runtime.witness import Witness
from hushgrid.node.schema.sections import Allow, Budget
from hushgrid.node.wire import COORDINATOR, Birth, Envelope, Finish, Finished, Join, Plan, Progress, Publication, Refuse

FREE_BYTES = 1 << 20  #: bytes that plans may write in an hour, into ledger and log
RUN_BYTES = 1 << 10  #: bytes that a run writes besides its plan: its row, and two lines of the log
NOT_FOR_DEVICES = (Plan, Join, Refuse, Finished)  #: bodies of no edge that a device hears
REFUSALS = 64  #: the most runs whose refusal is remembered and repeated


class Member(Endpoint):
    """One device. `observe(driver, fresh)` is simulation's trace, called after each commit; a real device has none.

    `outcome` stores what a run leaves. `renew`, called before a run is joined, returns the device with its data as they
    are now. `journal` notes what the gate draws. Raises Stopped if an owed outcome cannot be written.
    """

    def __init__(
        self,
        fleet: str,
        device: Device,
        ledger: Ledger,
        budget: Budget | None,
        allow: Allow | None = None,
        simulated: Simulated | None = None,
        observe: Callable[[Driver, bool], None] | None = None,
        log: Callable[[str], None] = lambda _: None,
        *,
        outcome: Outcome | None = None,
        renew: Renewal | None = None,
        journal: NoiseJournal | None = None,
    ) -> None:
        super().__init__(device.name, fleet, ledger, log)
        self.device, self.budget, self.allow = device, budget, allow or Allow()
        self.simulated, self.observe = simulated, observe
        self.renew, self.journal = renew, journal
        self.outcomes = (
            Outcomes(ledger, outcome, log, lambda: self.renew.age if self.renew else None) if outcome else None
        )
        self.driver: Driver | None = None
        self.budget_check: BudgetCheck | None = None
        self.last: tuple[bytes, bytes] | None = None  #: (run, payload) of the last join, refusal or farewell, to repeat
        self.over: Progress | None = None  #: the run that ended last, as the coordinator says: with its rounds
        self.refusal = ""  #: why the last refusal of this session was, as a code
        self.refusals = 0  #: how many there were in this session
        self.days: Callable[[], int | None] = lambda: None  #: until its certificate ends
        self.consents = 0  #: how often its owner has changed in this session what it agrees to
        self.ended = 0  #: runs that have ended here, or were refused, in this session
        self._refused: OrderedDict[bytes, bytes] = OrderedDict()  #: refusals of plans in this session, by run
        self._free = float(FREE_BYTES)  #: bytes that plans may still write
        self._witness = Witness(device.name, ledger)
        self._now, self._ended = 0.0, False  #: time of the last tick, s; whether a run has ended
        self._withheld = Withheld()
        self._limit = wire.SMALL
        t = self.topics
        edges = t.edge("+" if device.neighbours else COORDINATOR, self.name)
        self._subscriptions: tuple[str, ...] = (t.all(COORDINATOR), edges, t.state(COORDINATOR))
        if self.outcomes:
            for owed in ledger.runs.owed():
                self.outcomes.settle(owed, self._remade)
        stored = ledger.runs.under_way()
        if stored is not None:
            self._resume(stored)

    # --- what a transport asks ---

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return self._subscriptions

    @property
    def peers(self) -> Collection[str]:
        """The names of those whose messages it needs now."""
        neighbours = getattr(self.driver.machine, "neighbours", ()) if self.driver else ()
        return (COORDINATOR, *neighbours)

    @property
    def finished(self) -> bool:
        """Whether a run has ended. A daemon stays up then; `run` may end the member."""
        return self._ended

    def connected(self) -> list[Publication]:
        """The birth, retained; then every message whose receipt is not proven."""
        self._soon()
        return [self._birth(), *self._again()]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        try:
            kind, src, dst = self.topics.parse(topic)
            from_neighbour = kind != "state" and self.device.neighbours and src != self.name
            strange = kind in wire.WATCHED or (src != COORDINATOR and not from_neighbour)
            if strange or (kind == "edge" and dst != self.name):
                raise Malformed("not of this device's edges")
            if kind == "state":
                return self._on_progress(wire.decode_presence(payload)) if payload else []
            planning = kind == "all" and src == COORDINATOR
            envelope = wire.decode_envelope(payload, wire.PLAN_LIMIT if planning else self._limit)
        except Malformed as error:
            return self._drop(f"malformed: {error}")
        body = envelope.body
        if planning:
            return self._on_plan(envelope, body) if isinstance(body, Plan) else self._drop("not a plan")
        if isinstance(body, NOT_FOR_DEVICES) or (src != COORDINATOR and isinstance(body, Finish)):
            return self._drop("not for a device")
        if isinstance(body, Finish):
            return self._on_finish(envelope.run, body)
        out = self._on_step(src, envelope, len(payload))
        return out + self._count(kind, src) if isinstance(body, Iterate) else out

    def on_tick(self, now: float) -> list[Publication]:
        """Some time has passed: messages without a proven receipt are sent again, less and less often."""
        self._free = min(self._free + max(now - self._now, 0.0) * FREE_BYTES / 3600, float(FREE_BYTES))
        self._now = now
        return self._again(self._overdue(now)) if self._due_at(now) else []

    @property
    def due(self) -> float:
        """Nothing is due without a run."""
        return inf if self.driver is None else self._due or self.clock.time

    def idle(self) -> None:
        """The answers are sent: draws noise for the next ones."""
        if self.driver and self.driver.gate:
            self.driver.gate.refill()

    def refused(self, topic: str, reason: str) -> list[Publication]:
        super().refused(topic, reason)
        return self._bar(topic)

    # --- the run ---

    def _on_plan(self, envelope: Envelope, body: Plan) -> list[Publication]:
        run, blob = envelope.run, scheduled(body.plan, body.every)
        # What is handed over in this process was never on a wire, where anybody could send another run's plan.
        genuine = self.local or run == wire.run_id(body.plan, body.nonce, body.members)
        if body.members.get(self.name) is None or not genuine:
            return self._drop("a plan that is not this device's, or not what its run says")
        if run in self._refused:
            return [self._edge(self._refused[run])]
        stored = self.ledger.runs.find(run)
        if stored is not None and stored.status == "stopped" and self._free > 0:
            self._witness.behind(body)
            return self._join(run, stored.plan or blob, stored)
        if self.driver and self.driver.run == run:
            return self._withdraw(run) if self._witness.behind(body) else [self._edge(self._joined(run))]
        if stored is not None:
            return [self._edge(stored.last)] if stored.last else []
        if body.members[self.name] != self.session:
            return self._drop("a plan for another session")
        if self._free <= 0:
            return self._drop("more plans than a device takes in an hour")
        self._witness.behind(body)
        return self._join(run, blob, None, body.warm.get(self.name, b""))

    def _withdraw(self, run: bytes) -> list[Publication]:  # others have remembered more since it joined
        self.driver, self.budget_check, self.refusal = None, None, "mark"
        return self._refuse(run, Refuse(f"{self.name}: {self.ledger.refusal}", Refused.kind))

    def _join(self, run: bytes, blob: bytes, stopped: StoredRun | None, earlier: bytes = b"") -> list[Publication]:
        """Joins a run, or refuses it. `stopped`: the run was joined before and goes on with what was paid for.

        `earlier`: the run whose end it begins at, if this device has kept it.
        """
        try:
            name, driver, budget_check = self._agreed(run, blob, new=stopped is None)
        except (InputError, Refused) as error:
            return self._refuse(run, Refuse(str(error), error.kind))
        self._free -= RUN_BYTES + (0 if stopped and stopped.plan else len(blob))
        if stopped is None:
            self.ledger.join(run, blob)
            warm_start.begin(driver, earlier)
        else:
            self.ledger.runs.reopen(run, blob)
        self.driver, self.budget_check, self._ended = driver, budget_check, False
        if self.observe and driver.started:
            self.observe(driver, False)
        self.log(f"{'joined' if stopped is None else 'resumed'} run {run.hex()[:8]}: {name}")
        return self._say_joined(run)

    def _agreed(self, run: bytes, blob: bytes, *, new: bool = False) -> tuple[str, Driver, BudgetCheck]:
        """The name, driver and budget check of a run. Raises InputError or Refused if device or owner do not agree."""
        try:
            plan = decode_plan(blob)
            if self.renew and new:
                self.device = self.renew.fitting(lambda device: device.check(plan))
                assembled, allowed = partial(self._assemble, run, plan), partial(self._budget_check, run, plan)
                self.device = renewed(self.renew, plan, self.name, assembled, allowed)
            elif self.renew:  # what it goes on with is of the ledger's data version, as at a start
                self.device = self.renew.device
            self.device.check(plan)
            driver, budget_check = self._assemble(run, plan)
            t = plan.terms_of(self.name)
            repeated = driver.gate is None or driver.gate.knows()  # the one answer of mode input
            budget_check.admit(0 if t is None or repeated else t.answers)
        except HushgridError as error:
            self.refusal = getattr(error, "refused_by", error.kind)
            raise
        except Exception as error:  # numbers that no check foresaw; no answer was drawn yet
            self._note(f"a plan that cannot be computed with: {type(error).__name__}: {printable(str(error), LINE)}")
            raise InputError(f"{self.name}: found a plan that it cannot compute with, expected another") from None
        finally:
            self.device = self.renew.device if self.renew else self.device  # what a refused plan was for is not taken
        return plan.name + self.device.remark(plan), driver, budget_check

    def _on_step(self, src: str, envelope: Envelope, size: int) -> list[Publication]:
        driver = self.driver
        if driver is None or envelope.run != driver.run:
            if self.last and self.last[0] == envelope.run:  # else from a neighbour: on its way when the run ended here
                return [self._edge(self.last[1])] if src == COORDINATOR else []
            return self._drop("a foreign run")
        try:
            out = driver.receive(src, envelope, size)
        except Malformed as error:
            return self._drop(str(error))
        except StepFailed as failed:
            return self._fail(failed)
        if out:
            self.last = None
            self._soon()
        return [self._edge(payload, dst) for dst, payload in out]

    def _on_finish(self, run: bytes, body: Finish) -> list[Publication]:
        stored = self.ledger.runs.find(run)
        if stored is None:
            return self._drop("a foreign run")
        if stored.status in ("joined", "running") and not self._end(stored, body):
            return self._drop("done before the run is complete here")
        # `last` stays: if an old farewell comes late, it belongs to another run.
        return [self._edge(self._witness.finished(run))]

    def _on_progress(self, progress: wire.Presence) -> list[Publication]:
        """The coordinator's state: a late device learns that its run is over; one that gathers gets the birth."""
        if not isinstance(progress, Progress):
            return []
        if progress.state == "gathering":
            return [self._birth()]
        if progress.state != "running":
            self.over = progress
        driver = self.driver
        if driver and progress.run == driver.run and progress.state != "running":
            stored = self.ledger.runs.find(driver.run)
            complete = driver.machine.complete  # if not, the others went on without this device, or never asked it
            why = "over when this device came back" if complete else "over without this device's part"
            if stored:
                self._end(stored, Finish("done" if complete and progress.state == "done" else "stopped", why))
        return []

    def _end(self, stored: StoredRun, finish: Finish) -> bool:
        """Ends the run. False, and nothing has changed, if the run is called done before it is complete here."""
        driver, done = self.driver, finish.state == "done"
        if done and (driver is None or not driver.machine.complete):
            return False
        payload = self._witness.finished(stored.id)
        if done and driver is not None:
            warm_start.keep(driver, stored.plan)
        ended = "stopped" if not done else "owed" if self.outcomes else "done"
        self.ledger.commit(stored.id, status=ended, last=payload)
        self.driver, self.last = None, (stored.id, payload)
        self._ended, self.ended = True, self.ended + 1
        if done and driver is not None and self.outcomes:
            self.outcomes.keep(driver, decode_plan(stored.plan), finish)
        self.log(f"run {stored.id.hex()[:8]} {finish.state}: {printable(finish.reason, LINE)}")
        return True

    def _remade(self, run: bytes, plan: RunPlan) -> Driver:
        """The driver of a stored run. Raises InputError or Refused if the device does not agree to it any more."""
        self.device.check(plan)
        return self._assemble(run, plan)[0]

    def _refuse(self, run: bytes, body: Refuse) -> list[Publication]:
        """Refuses a run, now and whenever it is announced again in this session."""
        self.ended, self.refusals = self.ended + 1, self.refusals + 1
        payload = wire.encode(Envelope(run, 0, 0, self.ledger.mark, body))
        stored = self.ledger.runs.find(run)
        if stored is not None:  # it was joined once, so the refusal is stored
            self.ledger.commit(run, status="refused", last=payload)
        self._refused[run] = payload
        while len(self._refused) > REFUSALS:
            self._refused.popitem(last=False)
        if self.driver is None:  # no other run goes on
            self.last, self._ended = (run, payload), True
        self._note(f"run {run.hex()[:8]} refused: {printable(body.reason, LINE)}")
        return [self._edge(payload)]

    def _note(self, line: str) -> None:
        """Writes a line of the log that costs no epsilon, as long as plans may still write."""
        if self._free > 0:
            self._free -= len(line)
            self.log(Warned(line))

    def _fail(self, failed: StepFailed) -> list[Publication]:
        """The run is over here, because a step failed. What was drawn is paid, and the network gets one sentence."""
        assert self.driver is not None
        run, self.driver = self.driver.run, None
        self.refusal, self.ended, self.refusals = failed.refuse.kind, self.ended + 1, self.refusals + 1
        self.last, self._ended = (run, failed.payload), True
        self.log(Warned(f"run {run.hex()[:8]} ended here: {printable(failed.detail, LINE)}"))
        return [self._edge(failed.payload)]

    def _budget_check(self, run: bytes, plan: RunPlan, version: int | None = None) -> BudgetCheck:
        """`version`: of the data that the run would have [the ledger's of now]."""
        t, limits, simulated = plan.terms_of(self.name), (self.budget, self.allow), self.simulated is not None
        of, expiring = (self.ledger, run, plan.algorithm), self.device.until is not None
        return BudgetCheck(
            self.name, *of, t, *limits, plan.question, simulated=simulated, version=version, expiring=expiring
        )

    def _assemble(self, run: bytes, plan: RunPlan) -> tuple[Driver, BudgetCheck]:
        budget_check = self._budget_check(run, plan)
        seed = self.simulated.seed if self.simulated else None
        noise = noise_source(seed, self.name)
        machine, gate = self.device.machine(plan, run, self.ledger, noise, budget_check)
        if gate is not None:
            gate.journal, gate.run, gate.version = self.journal, run, budget_check.version
            gate.released = [] if self.observe else None
        self._limit = max(self.device.limit(plan), wire.SMALL)
        if machine.hears:
            shared = tuple(self.topics.all(node) for node in machine.hears)
            self._subscriptions = (*self._subscriptions[:3], *shared)
        driver = Driver(self.name, run, machine, gate, self.ledger)
        driver.seal = self._seal
        driver.observe = lambda driver: self.observe(driver, True) if self.observe else None
        return driver, budget_check

    def _resume(self, stored: StoredRun) -> None:
        """Goes on with the run in which the process ended, from the stored state, if the owner still allows it."""
        try:
            name, self.driver, self.budget_check = self._agreed(stored.id, stored.plan)
        except (InputError, Refused) as error:
            self._refuse(stored.id, Refuse(str(error), error.kind))
            return
        if not self.driver.started:
            self._say_joined(stored.id)
        elif self.observe:
            self.observe(self.driver, False)
        self.log(f"resumed run {stored.id.hex()[:8]}: {name}")

    # --- what does not come through ---

    def _count(self, kind: str, src: str) -> list[Publication]:
        """Notices a broker that withholds a neighbour's broadcasts: then all its messages come on request alone."""
        topic = self.topics.all(src)
        if not self._withheld.heard(src, by_broadcast=kind == "all") or topic in self._withheld.topics:
            return []
        self._note(f"{src} is heard on request alone: does the access list allow {topic}?")
        return self._bar(topic)

    def _bar(self, topic: str) -> list[Publication]:
        """Notes a topic that does not come through; the birth tells the coordinator about it."""
        return [self._birth()] if self._withheld.add(topic) else []

    def _birth(self) -> Publication:
        run = self.ledger.runs.running()
        offered = capabilities(self.device, self.budget, self.ledger, self.days())
        seen, accepted = self._withheld.topics, self.ledger.marks.accepted()
        birth = Birth(self.session, run, self.ledger.mark, offered, seen, accepted, self.consents)
        return Publication(self.topics.state(self.name), wire.encode(birth), True)

    def _say_joined(self, run: bytes) -> list[Publication]:
        payload = self._joined(run)
        self.last = (run, payload)
        self._soon()
        return [self._edge(payload)]

    def _joined(self, run: bytes) -> bytes:
        warm = self.driver is not None and warm_start.begun(self.driver)
        return self._witness.join(run, warm, self.driver.stands if self.driver else 0)

    def _again(self, older: frozenset[Address] | None = None) -> list[Publication]:
        if self.driver and self.driver.started:
            try:
                return [self._edge(payload, dst) for dst, payload in self.driver.tick(older)]
            except StepFailed as failed:  # a step that waited for the restart
                return self._fail(failed)
        return [self._edge(self.last[1])] if self.last and self.driver else []

    def _edge(self, payload: bytes, dst: str = COORDINATOR) -> Publication:
        topics = self.topics
        return Publication(topics.all(self.name) if dst == ALL else topics.edge(self.name, dst), payload)
