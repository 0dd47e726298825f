"""The coordinator: gathers the members' births, publishes the plan, runs the rounds, and says when it is over.

A node without a gate: same ledger file, same transaction, same restart. Pure of sockets and clocks: a transport calls
`connected`, `on_message` and `on_tick`, and publishes what they return.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import version
from typing import Any, ClassVar, Literal

from hushgrid.kernels.errors import HushgridError, InputError, Stopped, failure
from hushgrid.kernels.machine import Machine, Malformed
from hushgrid.node import wire
from hushgrid.node.driver import Driver
from hushgrid.node.endpoint import Endpoint
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import RunPlan, encode_plan
from hushgrid.node.wire import (
    COORDINATOR,
    PLAN_LIMIT,
    Birth,
    Death,
    Envelope,
    Finish,
    Finished,
    Join,
    Mark,
    Plan,
    Progress,
    Publication,
    Refuse,
)

GRACE_S = 10.0  #: how long it waits for the members' farewell

Phase = Literal["gathering", "joining", "running", "finishing", "over"]


class Coordinator(Endpoint):
    """One run over one fleet. `error` is what stopped it, once that is decided; of a run that is done, `reason` is why.

    A pattern of exchange (`broker/rounds.py`, `broker/watcher.py`) says which machine runs, and what silence means.
    """

    unit: ClassVar[str] = "rounds"  #: of `algorithm.rounds`

    def __init__(
        self, fleet: str, plan: RunPlan, ledger: Ledger, *, wait_s: float = 60.0, silent_s: float = 10.0,
        observe: Callable[[Driver, bool], None] | None = None, progress: Callable[[int, int, float | None], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(COORDINATOR, fleet, ledger)
        self.plan = plan
        self.wait_s, self.silent_s = wait_s, silent_s
        self.observe, self.progress = observe, progress
        self._shown: tuple[int, float | None] | None = None  #: what progress has last shown
        self.members = plan.nodes
        self.blob = encode_plan(plan)
        self.terms = plan.terms
        self.phase: Phase = "gathering"
        self.births: dict[str, Birth] = {}
        self.absent: dict[str, str] = {}  #: member: wall time of its last will
        self.joined: set[str] = set()
        self.parted: set[str] = set()
        self.sessions: dict[str, int] = {}
        self.nonce = b""
        self.run = b""
        self.driver: Driver | None = None
        self.marks: dict[str, Mark] = ledger.peers()
        self.reason = ""
        self.error: HushgridError | None = None
        self.wall: Callable[[], float] = time.time
        self._heard: dict[str, float] = {}  #: member: when it was last heard while waited for
        self._now = 0.0
        self._began: float | None = None
        self._ends: float | None = None
        self._resume()

    # --- what a pattern says ---

    @abstractmethod
    def machine(self) -> Machine:
        """The coordinator's machine of this plan, at its start."""

    @abstractmethod
    def dimension(self, member: str) -> int:
        """Entries of the problem that a member says it has."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """Bytes of the largest message a member may send."""

    @abstractmethod
    def complete(self, state: Any) -> tuple[int, float | None] | None:
        """(last complete round, its consensus residual) of the machine's state."""

    @property
    def lost(self) -> list[str]:
        """Members that the run went on without."""
        return []

    @abstractmethod
    def owing(self) -> list[str]:
        """Members something is expected of while the rounds go on."""

    @abstractmethod
    def overdue(self, waiting: list[str]) -> list[Publication]:
        """Time has passed in the rounds, and these still owe something: what is done about silence."""

    # --- what a transport asks ---

    @cached_property
    def subscriptions(self) -> tuple[str, ...]:
        t = self.topics
        return tuple(x for m in self.members for x in (t.state(m), t.edge(m, COORDINATOR)))

    @property
    def ending(self) -> bool:
        """How the run ends is decided, and in the ledger; the members may not know it yet."""
        return self.phase in ("finishing", "over")

    @property
    def finished(self) -> bool:
        return self.phase == "over"

    def connected(self) -> list[Publication]:
        return [*self._state(), *self._again()]

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        """One delivery. What does not belong here is counted and dropped."""
        try:
            kind, src, dst = self.topics.parse(topic)
            if src not in self.members or (kind == "edge" and dst != COORDINATOR):
                raise Malformed("not of this run's edges")
            if kind == "state":
                return self._on_presence(src, wire.decode_presence(payload)) if payload else []
            envelope = wire.decode_envelope(payload, max(self.limit, wire.SMALL))
        except Malformed as error:
            return self._drop(f"malformed: {error}")
        if envelope.run != self.run or not self.run:
            return self._drop("a foreign run")
        body, out = envelope.body, []
        if isinstance(body, Plan | Finish):
            return self._drop("not for the coordinator")
        if isinstance(body, Finished) and not self.ending:
            return self._drop("a farewell before the end")
        step = not isinstance(body, Join | Refuse | Finished)
        if step:
            if self.driver is None or self.phase != "running":
                return self._drop("before or after the rounds")
            try:
                out = self.driver.receive(src, envelope, len(payload))
            except Malformed as error:
                return self._drop(str(error))
            except Stopped as error:  # those that are left cannot go on
                return self._finish(error)
            self._show(self.driver)
        self._heard[src] = self._now
        self.absent.pop(src, None)
        self._remember(src, envelope.mark)
        match body:
            case Join():
                return self._on_join(src)
            case Refuse(reason, kind):
                return self._finish(failure(kind, reason))
            case Finished():
                return self._on_finished(src)
        return self._publish(out)

    def on_tick(self, now: float) -> list[Publication]:
        """Time passes: who is missing is noticed, what is not proven is sent again."""
        self._now = now
        if self._began is None:
            self._began = now
        waiting = self._waiting()
        for member in waiting:
            self._heard.setdefault(member, now)
        if self.phase == "gathering":
            if not waiting:
                return self._announce()  # here, not at each birth: members that keep restarting get one plan, not many
            if now - self._began > self.wait_s:
                return self._finish(
                    Stopped(f"{', '.join(waiting)} not there after {self.wait_s:g} s, expected a birth")
                )
        elif self.phase == "finishing":
            self._ends = now + GRACE_S if self._ends is None else self._ends
            if not waiting or now > self._ends:
                self.phase = "over"
                return []
        elif out := self.overdue(waiting) if self.phase == "running" else self.give_up(waiting):
            return out
        return [*self._again(), *self._call()] if self._due_at(now) else []

    def give_up(self, waiting: list[str]) -> list[Publication]:
        """End the run where one of these has been silent for too long."""
        silent = [m for m in waiting if self._now - self._heard[m] > self.silent_s]
        if not silent:
            return []
        out = self._finish(Stopped("; ".join(self._silence(m) for m in silent)))
        self.absent.update((m, "") for m in silent if m not in self.absent)  # nor is their farewell waited for
        return out

    def idle(self) -> None:
        """Nothing is drawn ahead: the coordinator has no gate."""

    def stop(self, reason: str) -> list[Publication]:
        """End the run now, cleanly: every member is told."""
        return self._finish(Stopped(reason))

    # --- gathering and joining ---

    def _on_presence(self, member: str, presence: wire.Presence) -> list[Publication]:
        if isinstance(presence, Death):
            born = self.births.get(member)
            if born is None or born.session == presence.session:
                self.absent[member] = time.strftime("%H:%M:%S", time.localtime(self.wall()))
                self.births.pop(member, None)
            return []
        if not isinstance(presence, Birth):
            return self._drop("not a birth")
        born = self.births.get(member)
        if born and born.mark.ledger == presence.mark.ledger and presence.session < born.session:
            return self._drop("a birth of an earlier session")
        self.births[member] = presence
        self.absent.pop(member, None)
        self._heard[member] = self._now
        self._remember(member, presence.mark)
        if self.phase == "running":
            return self._again(member)
        if self.phase == "joining" and presence.run == self.run:  # its birth says so: the plan is stored
            return self._on_join(member)
        if self.phase == "joining" and presence.session != self.sessions[member]:
            self.phase = "gathering"  # it has not stored this plan; a run's id holds its session, so a new run
            self._soon()
        return []

    def _announce(self) -> list[Publication]:
        try:
            for member in self.members:
                self._check(member, self.births[member].capabilities)
        except HushgridError as error:
            return self._finish(error)
        self.sessions = {m: self.births[m].session for m in self.members}
        self.nonce = os.urandom(16)
        self.run = wire.run_id(self.blob, self.nonce, self.sessions)
        self.ledger.join(self.run, wire.encode(Plan(self.blob, self.nonce, self.sessions, {})))
        self.joined = set()
        self.phase = "joining"
        self._soon()
        self._heard = dict.fromkeys(self.members, self._now)
        self.log(f"run {self.run.hex()[:8]}: {', '.join(self.members)} asked to join")
        return [*self._state(), self._plan()]

    def _check(self, member: str, c: wire.Capabilities) -> None:
        """Refuse a bad mix, naming who and what."""
        plan, t, own = self.plan, self.terms, version("hushgrid")
        wanted: list[tuple[str, str, bool, str]] = [
            ("problem", c.problem, c.problem == plan.problem.kind, plan.problem.kind),
            ("case digest", c.digest[:12], c.digest == plan.problem.digest, plan.problem.digest[:12]),
            ("version", c.version, c.version.split(".")[:2] == own.split(".")[:2], f"{own}, in its first two numbers"),
            (
                "dimension",
                str(c.dimension),
                c.dimension == self.dimension(member),
                f"{self.dimension(member)} entries",
            ),
            ("algorithms", ", ".join(c.algorithms), plan.algorithm.name in c.algorithms, plan.algorithm.name),
        ]
        if t is not None:
            wanted.append(("mechanisms", ", ".join(c.mechanisms), t.mechanism in c.mechanisms, t.mechanism))
            wanted.append(("adjacency", c.adjacency, c.adjacency in ("", t.adjacency), t.adjacency))
        for what, found, right, expected in wanted:
            if not right:
                raise InputError(f"{member}: {what}: found {found}, expected {expected}")

    def _on_join(self, member: str) -> list[Publication]:
        self.joined.add(member)
        if self.phase != "joining" or len(self.joined) < len(self.members):
            return []
        self.ledger.remember_peers(self.marks)
        return self._begin()

    def _begin(self) -> list[Publication]:
        self.phase = "running"
        self.driver = self._driver()
        self._soon()
        self._heard = dict.fromkeys(self.members, self._now)
        self.log(f"run {self.run.hex()[:8]}: {self.plan.algorithm.rounds} {self.unit} begin")
        return self._publish(self.driver.start())

    # --- the rounds ---

    def _driver(self) -> Driver:
        driver = Driver(COORDINATOR, self.run, self.machine(), None, self.ledger)
        driver.round_of = self.complete
        driver.observe = self._committed
        return driver

    def shown(self, state: Any) -> tuple[int, float | None] | None:
        """How much is done, in `unit`, and the residual: for the display of progress."""
        return self.complete(state)

    def _show(self, driver: Driver) -> None:
        done = self.shown(driver.machine.state) if self.progress else None
        if self.progress and done and done != self._shown:
            self._shown = done
            self.progress(done[0], self.plan.algorithm.rounds, done[1])

    def _committed(self, driver: Driver) -> None:
        if self.observe:
            self.observe(driver, True)

    def _publish(self, out: list[tuple[str, bytes]]) -> list[Publication]:
        driver = self.driver
        if out and driver and driver.started:
            self._soon()
        publications = [Publication(self.topics.edge(COORDINATOR, dst), payload) for dst, payload in out]
        if driver and driver.done and self.phase == "running":
            self.reason = driver.done
            publications += self._finish(None)
        return publications

    # --- the end ---

    def _finish(self, error: HushgridError | None) -> list[Publication]:
        if self.ending:
            return []
        self.error = error
        self.phase = "finishing" if self.run else "over"
        self._soon()
        if self.run:
            self.ledger.remember_peers(self.marks)
            self.ledger.commit(self.run, last=wire.encode(self._farewell()))
        return [*self._again(), *self._state()]  # who is there learns why; the retained state is for who comes late

    def _farewell(self) -> Envelope:
        error = self.error
        body = Finish("stopped", str(error), error.kind) if error else Finish("done", self.reason)
        return Envelope(self.run, 0, 0, None, body)

    def _on_finished(self, member: str) -> list[Publication]:
        self.parted.add(member)
        if not self._waiting():
            self.phase = "over"
        return []

    def conclude(self) -> None:
        """Close the run in the ledger, once its host has taken down how it ended: until then a restart goes on with it,

        says farewell again, and never begins another.
        """
        if self.run:
            self.ledger.commit(self.run, status="stopped" if self.error else "done")

    # --- inside ---

    def _resume(self) -> None:
        """The process ended in a run of this very plan: go on exactly where the ledger says."""
        stored = self.ledger.open_run()
        if stored is None:
            return
        announced = wire.decode_state(Plan, stored.plan)
        if announced.plan != self.blob:
            return
        self.run, self.nonce, self.sessions = stored.id, announced.nonce, announced.members
        self.phase = "joining"
        if stored.state is not None:
            self.phase = "running"
            self.driver = self._driver()
            self._committed(self.driver)
            self.reason = self.driver.done or ""
        if stored.last is not None:
            farewell = wire.decode_envelope(stored.last, PLAN_LIMIT).body
            assert isinstance(farewell, Finish)
            self._finish(failure(farewell.kind, farewell.reason) if farewell.state == "stopped" else None)
        elif self.reason:
            self._finish(None)

    def _waiting(self) -> list[str]:
        """Members something is expected of now."""
        if self.phase == "gathering":
            return [m for m in self.members if m not in self.births]
        if self.phase == "joining":
            return [m for m in self.members if m not in self.joined]
        if self.phase == "finishing":
            return [m for m in self.members if m not in self.parted and m not in self.absent]
        return self.owing() if self.driver else []

    def _again(self, only: str | None = None) -> list[Publication]:
        """What is not proven to have arrived."""
        if self.phase == "joining":
            return [self._plan()]
        if self.phase == "running" and self.driver:
            out = [(dst, payload) for dst, payload in self.driver.tick() if only in (None, dst)]
            return [Publication(self.topics.edge(COORDINATOR, dst), payload) for dst, payload in out]
        if self.phase == "finishing":
            payload = wire.encode(self._farewell())
            return [Publication(self.topics.edge(COORDINATOR, m), payload) for m in self._waiting()]
        return []

    def _call(self) -> list[Publication]:
        """A birth may have been lost, the last one of a member that has not joined: who is there says so again."""
        if self.phase not in ("gathering", "joining"):
            return []
        return [Publication(self.topics.state(COORDINATOR), wire.encode(Progress(b"", 0, "gathering")))]

    def _plan(self) -> Publication:
        body = Plan(self.blob, self.nonce, self.sessions, self.marks)
        return Publication(self.topics.all(COORDINATOR), wire.encode(Envelope(self.run, 0, 0, None, body)))

    def _state(self) -> list[Publication]:
        if not self.run:
            return []
        state = "running" if self.phase in ("joining", "running") else "stopped" if self.error else "done"
        done = self.complete(self.driver.machine.state) if self.driver else None
        t = done[0] if done else 0
        return [Publication(self.topics.state(COORDINATOR), wire.encode(Progress(self.run, t, state)), True)]

    def _remember(self, member: str, mark: Mark | None) -> None:
        """The highest mark ever seen of a member: what it is told when it joins."""
        if mark is None:
            return
        known = self.marks.get(member)
        if known is None or known.no == 0 or (mark.ledger == known.ledger and mark.no >= known.no):
            self.marks[member] = mark
        elif mark.ledger != known.ledger and self.phase in ("running", "finishing"):
            self.marks[member] = mark  # it was told, its owner has accepted, and it has joined

    def _silence(self, member: str) -> str:
        since = self.absent.get(member)
        if since:
            return f"{member} is gone since {since}"
        at = self.wall() - (self._now - self._heard[member])
        return f"{member} silent since {time.strftime('%H:%M:%S', time.localtime(at))} ({self._now - self._heard[member]:.0f} s)"
