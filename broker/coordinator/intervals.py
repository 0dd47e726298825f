"""The intervals of a fleet that runs by itself: which run each one makes, with whom, from where, and how it ended.

Nothing here has a socket: a loop (`daemon.py`) serves the coordinators that it is given, one at a time. Every interval
leaves a line in intervals.csv: an answer, a held answer, or missed and why. Causes are no functions of anybody's data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from hushgrid.broker.coordinator import in_force, kept_runs, records
from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.in_force import InForce
from hushgrid.broker.coordinator.schedule import Clocks, Remembered, Schedule
from hushgrid.broker.coordinator.star import Held
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import Failed, HushgridError, InputError, Refused, Suspended
from hushgrid.node import wire
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.config.planning import among
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.schema.durations import seconds
from hushgrid.node.wire import Plan

KEY = "schedule"  #: of the ledger's notes
#: What an interval is missed for, by the error that ended it.
CAUSES: tuple[tuple[type[HushgridError], str], ...] = (
    (Refused, "refused"),
    (Failed, "failed"),
    (InputError, "input"),
    (Suspended, "silent"),
)


class Intervals:
    """One interval after the other. `log` says what is not in the line of an interval."""

    def __init__(
        self,
        config: CoordinatorConfig,
        plan: RunPlan,
        source: str,
        ledger: Ledger,
        log: Callable[[str], None],
        clocks: Clocks | None = None,
    ) -> None:
        assert config.run is not None
        self.config, self.run, self.plan, self.source = config, config.run, plan, source
        self.ledger, self.log, self.clocks = ledger, log, clocks or Clocks()
        remembered = self._remembered()
        self.schedule = Schedule(self.run.every_s, seconds(self.run.jitter), remembered, self.clocks)
        self.directory = Path(config.state)
        self.began = time.gmtime()
        self.why_cold = ""
        self.held: dict[str, str] = {}  #: zones that are held, and since when
        self.absent: list[str] = []
        self.why_not = ""  #: there is no run without the absent

    def declare(self, config: CoordinatorConfig, plan: RunPlan, source: str) -> None:
        """The file says other things: of the next interval, and of when it is due."""
        assert config.run is not None
        self.config, self.run, self.plan, self.source = config, config.run, plan, source
        self.schedule.declare(self.run.every_s, seconds(self.run.jitter))

    def _remembered(self) -> Remembered | None:
        blob = self.ledger.note(KEY)
        try:
            return msgspec.msgpack.decode(blob, type=Remembered) if blob else None
        except msgspec.MsgspecError:
            return None

    # --- an interval ---

    def resumed(self) -> Coordinator | None:
        """The run in which the process ended, to be gone on with; None: there is none, or it is of another plan."""
        stored = self.ledger.open_run()
        if stored is None:
            return None
        announced = wire.decode_state(Plan, stored.plan)
        present = [m for m in self.plan.nodes if m in announced.members]
        try:
            plan = self._among(present)
            if encode_plan(plan) != announced.plan:
                raise InputError("of another plan")
            start, self.why_cold = self._start()
            self.absent = [m for m in self.plan.nodes if m not in present]
            held = self._held(start)
        except InputError as error:
            self.log(f"run {stored.id.hex()[:8]} is given up: {error}")
            self.ledger.abandon()
            return None
        return self._made(plan, start, held)

    def begin(self) -> Coordinator:
        """The next interval, of all members. It is remembered before anything of it is said."""
        self.ledger.keep_note(KEY, wire.encode(self.schedule.begin()))
        self.began, self.held, self.absent, self.why_not = time.gmtime(), {}, [], ""
        start, self.why_cold = self._start()
        return self._made(self.plan, start, None)

    def without_the_absent(self, coordinator: Coordinator) -> Coordinator | None:
        """The same interval of those who are there, if others were not; None if it is over."""
        if coordinator.run or coordinator.error is None or self.absent:
            return None
        present = [m for m in self.plan.nodes if m in coordinator.births]
        self.absent = [m for m in self.plan.nodes if m not in present]
        if self.config.quorum is None or not self.absent:
            return None
        if len(present) < self.config.quorum:
            self.why_not = f"{len(present)} of {len(self.plan.nodes)} there, expected {self.config.quorum}"
            return None
        start, _ = self._start()
        try:
            plan = self._among(present)
            held = self._held(start)
        except InputError as error:
            self.why_not = str(error)
            return None
        absent = (f"{m} (held since {self.held[m]})" if m in self.held else m for m in self.absent)
        self.log(f"without {', '.join(absent)}")
        return self._made(plan, start, held)

    def overdue(self, coordinator: Coordinator, broker: bool) -> bool:
        """Whether the next interval is due, and this one makes no progress: it has not begun, or `broker` is not there."""
        begun = coordinator.phase in ("running", "finishing")
        return self.schedule.left == 0 and not (begun and broker)

    def end(self, coordinator: Coordinator, broker: bool = True) -> str:
        """The interval is over, or given up: everything of it is kept. Returns a line about it. `broker`: is it there?"""
        if not coordinator.ending and coordinator.run:
            coordinator.stop("the broker is away" if not broker else "the next run is due")
        row = self.row(coordinator, broker)
        line = f"interval {row['interval']}: {row['outcome']}" + (f", {row['reason']}" if row["reason"] else "")
        if coordinator.run:
            keys = ("interval", "start", "cold", "held", "absent")
            more: dict[str, Any] = {key: row[key] for key in keys}
            more |= {"every": self.run.every_s, "start_because": self.why_cold if row["start"] == "cold" else ""}
            if self.absent and self.plan.kind.records:
                nodes, edges = coordinator.plan.nodes, coordinator.plan.problem.edges
                more["graph"] = [[nodes[i], nodes[j]] for i, j in edges]
            path = kept_runs.keep(coordinator, self.directory / "runs", self.began, more)
            line += f" ({path.name}, {row['start']} start, {row['rounds']} rounds)"
        flat = {key: " ".join(value) if isinstance(value, list | dict) else value for key, value in row.items()}
        records.note(self.directory / "intervals.csv", flat, self.run.keep)
        records.prune(self.directory / "runs", self.run.keep)
        if (left := coordinator.left()) is not None:
            in_force.keep(self.ledger, self.plan, coordinator.run, left, self.schedule.number, self.clocks)
        coordinator.conclude()
        return line

    # --- inside ---

    def _start(self) -> tuple[InForce | None, str]:
        if self.plan.algorithm.pattern != "star":
            return None, "the algorithm knows no warm start"
        return in_force.load(self.ledger, self.plan)

    def _among(self, present: list[str]) -> RunPlan:
        if present == self.plan.nodes:
            return self.plan
        plan = among(self.plan, present)
        if plan.kind.records:
            return plan
        return msgspec.structs.replace(
            plan, algorithm=cast(Star, plan.algorithm).beside_constants()
        )  # the others are held

    def _held(self, start: InForce | None) -> Held | None:
        """The zones that are absent, at what they said last. Raises InputError if that is unknown, or too old."""
        if not self.absent or self.plan.kind.records:
            return None
        self.held = {}
        for zone in self.absent:
            part = start.parts.get(zone) if start else None
            if part is None:
                raise InputError(f"{zone} is not there, and has said nothing yet at which it could be held")
            if in_force.age(part, self.schedule.number, self.run.every_s, self.clocks) > seconds(self.config.hold):
                raise InputError(f"{zone} is not there for longer than hold: {self.config.hold}")
            self.held[zone] = records.utc(time.gmtime(part.wall))
        assert start is not None
        parts = {zone: start.parts[zone] for zone in self.held}
        return Held(self.plan, *({zone: getattr(p, of) for zone, p in parts.items()} for of in ("z", "standing")))

    def _made(self, plan: RunPlan, start: InForce | None, held: Held | None) -> Coordinator:
        options: dict[str, Any] = {
            "wait_s": self.config.wait_s,
            "silent_s": self.config.silent_s,
            "every": self.run.every_s,
        }
        if plan.algorithm.pattern == "star":
            options |= {"start": start if self.run.warm_start else None, "held": held}
        if not self.run.warm_start:
            self.why_cold = "warm_start: false"
        return coordinator_of(self.config.fleet, plan, self.source, self.ledger, **options)

    def row(self, coordinator: Coordinator, broker: bool = True) -> dict[str, Any]:
        """The line of an interval that is over, or given up."""
        error = coordinator.error
        history = self.ledger.history(coordinator.run) if coordinator.run else []
        done = bool(coordinator.run) and error is None and coordinator.ending
        outcome = ("held" if self.held else "answer") if done else "missed"
        cause, reason = "", ""
        if not done and not broker:
            cause, reason = "broker", "the broker is away"
        elif not done:
            absent = (coordinator.run == b"", "absent")
            cause = next(
                (word for kind, word in CAUSES if isinstance(error, kind)), absent[1] if absent[0] else "stopped"
            )
            reason = "; ".join(filter(None, (str(error or "not all have joined"), self.why_not)))
        return {
            "interval": self.schedule.number,
            "began": records.utc(self.began),
            "ended": records.utc(time.gmtime()),
            "outcome": outcome,
            "cause": cause,
            "reason": reason,
            "run": coordinator.run.hex(),
            "start": ("warm" if coordinator.earlier else "cold") if coordinator.run else "",
            "cold": coordinator.cold if coordinator.run else [],
            "rounds": history[-1][0] if history else 0,
            "residual": history[-1][1] if history and history[-1][1] is not None else "",
            "quality": ("agreed" if coordinator.reason == "tolerance" else "rounds") if done else "",
            "held": self.held,
            "absent": self.absent,
        }
