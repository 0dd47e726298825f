"""The intervals of a fleet that runs by itself: which run each one makes, with whom, from where, and how it ended.

Nothing here has a socket: a loop (`daemon.py`) serves the coordinators that it is given, one at a time. Every interval
leaves a line in intervals.csv: an answer, a held answer, or missed and why. Causes are no functions of anybody's data.

A member that is not there when a run is made, or refuses to join it, is absent for this interval: the run is made again
at once without it, as long as there is a quorum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from hushgrid.broker.coordinator import interval_log, run_records, warm_start
from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.membership import PATIENCE, Refusals
from hushgrid.broker.coordinator.schedule import Clocks, Moment, Remembered, Schedule, periods
from hushgrid.broker.coordinator.star import Held
from hushgrid.broker.coordinator.warm_start import MemberState, WarmState
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import Failed, HushgridError, InputError, Refused, Suspended
from hushgrid.kernels.types import Document
from hushgrid.node import wire
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.config.planning import among
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.problems.rolling import Course
from hushgrid.node.schema.durations import seconds
from hushgrid.node.wire import Birth, Plan

KEY, DAY = "schedule", "day"  #: of the ledger's notes
NOTES = (KEY, DAY, warm_start.KEY, interval_log.LAST)  #: all of them that an interval goes by
Noted = TypeVar("Noted")
#: What an interval is missed for, by the error that ended it.
CAUSES: tuple[tuple[type[HushgridError], str], ...] = (
    (Refused, "refused"),
    (Failed, "failed"),
    (InputError, "input"),
    (Suspended, "silent"),
)


class Day(msgspec.Struct, frozen=True):
    """Of plans over a day: when the first began, and what they have come to."""

    began: Moment
    course: Course


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
        self.ledger, self.log, self.clocks = ledger, log, clocks or Clocks()
        self.day = self._noted(DAY, Day)
        self.config, self.run, self.source = config, config.run, source
        self.declared, self.plan = plan, self._of_day(plan)  #: as the file has it, and of the interval of now
        remembered = self._noted(KEY, Remembered)
        self.schedule = Schedule(self.run.every_s, seconds(self.run.jitter), remembered, self.clocks)
        self.directory = Path(config.state)
        self.refusals = Refusals()
        self.why_cold = ""
        self.last = interval_log.last(self.ledger, self.directory / "intervals.csv")  #: the last interval, for `watch`
        self._anew()

    def _anew(self) -> None:
        """Nothing is known of an interval that begins."""
        self.began, self.began_s = time.gmtime(self.clocks.wall()), self.ledger.spends.running
        self.held: dict[str, str] = {}  #: zones that are held, and since when
        self.absent: list[str] = []
        self.refused: dict[str, str] = {}  #: of the absent, and of those who have ended a run: why
        self.why_not = ""  #: there is no run without the absent
        self._possible: dict[tuple[str, ...], bool] = {}

    def declare(self, config: CoordinatorConfig, plan: RunPlan, source: str) -> None:
        """The file says other things: of the next interval, and of when it is due."""
        assert config.run is not None
        self.config, self.run, self.source = config, config.run, source
        self.declared, self.plan = plan, self._of_day(plan)
        self.schedule.declare(self.run.every_s, seconds(self.run.jitter))

    def _noted(self, key: str, kind: type[Noted]) -> Noted | None:
        blob = self.ledger.note(key)
        try:
            return msgspec.msgpack.decode(blob, type=kind) if blob else None
        except msgspec.MsgspecError:
            return None

    # --- an interval ---

    def resumed(self) -> Coordinator | None:
        """The run in which the process ended, to be gone on with; None: there is none, or it is of another plan."""
        stored = self.ledger.runs.under_way()
        if stored is None:
            self._cut_off()
            return None
        announced = wire.decode_state(Plan, stored.plan)
        try:
            made = self._coordinator([m for m in self.plan.parties if m in announced.members])
            if encode_plan(made.plan) != announced.plan:
                raise InputError("of another plan")
        except InputError as error:
            self.log(f"run {stored.id.hex()[:8]} is given up: {error}")
            self.ledger.runs.abandon()
            self._cut_off()
            return None
        return made

    def _cut_off(self) -> None:
        """The interval that began last has a line: its process may have ended before it had a run, or one to go on
        with.
        """
        path, number = self.directory / "intervals.csv", self.schedule.number
        if number <= max(interval_log.numbered(path), self.last.number if self.last else 0):
            return
        moment = interval_log.utc(self.began)
        row: Document = dict.fromkeys(interval_log.COLUMNS, "") | {"interval": number, "ended": moment}
        row |= {"outcome": "missed", "cause": "stopped", "reason": "the coordinator ended meanwhile"}
        interval_log.note(path, row, self.run.keep)
        self.last = interval_log.count(self.ledger, self.last, row | {"held": {}, "absent": [], "refused": []})

    def begin(self) -> Coordinator:
        """The next interval, of all members. It is remembered before anything of it is said."""
        age = self._turn()
        self.ledger.keep_note(KEY, wire.encode(self.schedule.begin(age)))
        self._anew()
        return self._coordinator(self.plan.parties)

    def without_the_absent(self, coordinator: Coordinator) -> Coordinator | None:
        """The same interval of those who are there and do not refuse, if others do not; None if it is over."""
        present = coordinator.membership.present
        if coordinator.error is None or coordinator.driver is not None or present == coordinator.members:
            return None
        self._hear(coordinator)
        self.absent = [m for m in self.plan.parties if m not in present]
        if self.config.quorum is None:
            return None
        try:
            following = self._coordinator(present)
        except InputError as error:
            self.why_not = str(error)
            return None
        self.log(f"without {', '.join(map(self._with_reason, self.absent))}")
        coordinator.conclude()  # nobody has done anything in it
        return following

    # --- what a coordinator asks (`refusals.Fewer`) ---

    def possible(self, present: list[str]) -> bool:
        if self.config.quorum is None:
            return False
        who = tuple(present)
        if who not in self._possible:
            try:
                self._possible[who] = bool(self._without(present))
            except InputError:
                self._possible[who] = False
        return self._possible[who]

    def passed_over(self, member: str, birth: Birth) -> str:
        number, others = self.schedule.number, self.config.quorum is not None
        return self.refusals.standing(member, birth, number, without=others)

    def overdue(self, coordinator: Coordinator, broker: bool) -> bool:
        """Whether the next interval is due, and this one makes no progress: it has not begun, or `broker` is not
        there.
        """
        begun = coordinator.phase in ("running", "finishing")
        return self.schedule.left == 0 and not (begun and broker)

    def end(self, coordinator: Coordinator, broker: bool = True) -> str:
        """The interval is over, or given up: everything of it is kept. Returns a line about it. `broker`: is it
        there?
        """
        if not coordinator.ending and coordinator.run:
            coordinator.stop("the broker is away" if not broker else "the next run is due")
        self._hear(coordinator)
        row = self.row(coordinator, broker)
        if row["outcome"] != "missed":
            self.refusals.forget(coordinator.members)
        line = f"interval {row['interval']}: {row['outcome']}" + (f", {row['reason']}" if row["reason"] else "")
        if coordinator.run:
            keys = ("interval", "period", "start", "cold", "held", "absent", "refused")
            more: dict[str, Any] = {key: row[key] for key in keys if row[key] != ""}
            more |= {"every": self.run.every_s, "start_because": self.why_cold if row["start"] == "cold" else ""}
            if self.absent and self.plan.kind.records and not self.plan.sites:
                nodes, edges = coordinator.plan.nodes, coordinator.plan.problem.edges
                more["graph"] = [[nodes[i], nodes[j]] for i, j in edges]
            path = run_records.keep(coordinator, self.directory / "runs", self.began, more)
            line += f" ({path.name}, {row['start']} start, {row['rounds']} rounds)"
        flat = {key: " ".join(value) if isinstance(value, list | dict) else value for key, value in row.items()}
        interval_log.note(self.directory / "intervals.csv", flat, self.run.keep)
        self.last = interval_log.count(self.ledger, self.last, row)
        interval_log.prune(self.directory / "runs", self.run.keep)
        if (final := coordinator.final_state()) is not None:
            warm_start.keep(self.ledger, self.plan, coordinator.run, final, self.schedule.number, self.clocks)
        self._follow(coordinator)
        coordinator.conclude()
        return line

    # --- inside ---

    def _of_day(self, plan: RunPlan) -> RunPlan:
        """The plan from the period on that the last interval has begun with."""
        if self.day is None or plan.kind.periods(plan.problem) is None:
            return plan
        problem = plan.kind.carried_on(plan.problem, self.day.course, self.day.began.wall)
        return msgspec.structs.replace(plan, problem=problem)

    def _turn(self) -> float | None:
        """An interval begins: with which period of the day. Returns the age of the first day, s; None: there is none.

        The first day begins with its first plan: what no plan has touched stands as the tables say.
        """
        problem = self.declared.problem
        if self.declared.kind.periods(problem) is None:
            return None
        digest = problem.digest
        day = self.day
        if day is None or not day.course.points or day.course.digest != digest:
            day = Day(self.clocks.moment(), Course())
        age = self.clocks.since(day.began)
        # A clock that is before the first day counts nothing.
        period = periods(age, self.run.every_s) if age >= 0 else day.course.period
        self.day = Day(day.began, msgspec.structs.replace(day.course, period=period, digest=digest))
        self.ledger.keep_note(DAY, wire.encode(self.day))
        self.plan = self._of_day(self.declared)
        return age

    def _follow(self, coordinator: Coordinator) -> None:
        """Where the day stands once a plan is followed."""
        if self.day is not None and (points := coordinator.points()):
            self.day = Day(self.day.began, self.day.course.followed(points))
            self.ledger.keep_note(DAY, wire.encode(self.day))

    def _start(self) -> tuple[WarmState | None, str]:
        if self.plan.algorithm.pattern != "star":
            return None, "the algorithm knows no warm start"
        return warm_start.load(self.ledger, self.plan)

    def _coordinator(self, present: list[str]) -> Coordinator:
        """The coordinator of a run of these members. Raises InputError if there can be none."""
        plan, held, since = self._without(present)
        self.absent, self.held = [m for m in self.plan.parties if m not in present], since
        start, self.why_cold = self._start()
        return self._made(plan, start, held, present)

    def _without(self, present: list[str]) -> tuple[RunPlan, Held | None, dict[str, str]]:
        """The plan of a run of these members, those that it holds, and since when. Raises InputError if there is
        none.
        """
        absent = [m for m in self.plan.parties if m not in present]
        if not absent:
            return self.plan, None, {}
        if len(present) < (self.config.quorum or 0):
            raise InputError(f"{len(present)} of {len(self.plan.parties)} there, expected {self.config.quorum}")
        if self.plan.sites:  # the plan allows for so few of them
            return self.plan, None, {}
        plan = among(self.plan, present)
        if plan.kind.records:
            return plan, None, {}
        parts = self._parts(absent)
        since = {zone: interval_log.utc(time.gmtime(part.wall)) for zone, part in parts.items()}
        z, standing = ({zone: getattr(part, of) for zone, part in parts.items()} for of in ("z", "standing"))
        algorithm = cast(Star, plan.algorithm).beside_constants()  # the others are held
        return msgspec.structs.replace(plan, algorithm=algorithm), Held(self.plan, z, standing), since

    def _parts(self, absent: list[str]) -> dict[str, MemberState]:
        """What these zones said last. Raises InputError if that is unknown, or too long ago."""
        start, _ = self._start()
        parts = {zone: start.parts[zone] for zone in absent if start and zone in start.parts}
        for zone in absent:
            if zone not in parts:
                raise InputError(f"{zone} is not there, and has said nothing yet at which it could be held")
            if warm_start.age(parts[zone], self.schedule.number, self.run.every_s, self.clocks) > seconds(
                self.config.hold
            ):
                raise InputError(f"{zone} is not there for longer than hold: {self.config.hold}")
        return parts

    def _with_reason(self, member: str) -> str:
        """An absent member, since when it is held, and why it refuses, as far as that is so."""
        since = f"held since {self.held[member]}" if member in self.held else ""
        reason = "; ".join(filter(None, (since, self.refused.get(member))))
        return f"{member} ({reason})" if reason else member

    def _hear(self, coordinator: Coordinator) -> None:
        """Notes who has refused, in joining a run or in its rounds."""
        number, midway = self.schedule.number, coordinator.driver is not None
        for member, error in coordinator.membership.refusals.items():
            birth = coordinator.membership.births.get(member)
            noted = member in self.refused or (birth and self.passed_over(member, birth))  # it was not asked again
            self.refused[member] = str(error)
            if noted:
                continue
            complete = not self.absent
            times = self.refusals.note(member, birth, number, str(error), midway=midway, complete=complete)
            if complete and times == PATIENCE:
                self.log(f"{member} has refused {PATIENCE} times in a row: it is asked again once its birth is another")

    def _made(self, plan: RunPlan, start: WarmState | None, held: Held | None, present: list[str]) -> Coordinator:
        options: dict[str, Any] = {
            "wait_s": self.config.wait_s,
            "silent_s": self.config.silent_s,
            "every": self.run.every_s,
            "fewer": self,
        }
        if plan.sites:
            options |= {"among": present}
        if plan.algorithm.pattern == "star":
            options |= {"start": start if self.run.warm_start else None, "held": held}
        if not self.run.warm_start:
            self.why_cold = "warm_start: false"
        return coordinator_of(self.config.fleet, plan, self.source, self.ledger, **options)

    def row(self, coordinator: Coordinator, broker: bool = True) -> dict[str, Any]:
        """The line of an interval that is over, or given up."""
        error = coordinator.error
        history = self.ledger.runs.history(coordinator.run) if coordinator.run else []
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
            late = f"{', '.join(coordinator.waiting)} not there when the next interval was due"
            reason = "; ".join(filter(None, (str(error or late), self.why_not)))
        away = set(self.absent)
        if not done and broker:
            away |= {*coordinator.members} - {*coordinator.membership.present}
        return {
            "interval": self.schedule.number,
            "began": interval_log.utc(self.began),
            "ended": interval_log.utc(time.gmtime(self.clocks.wall())),
            "outcome": outcome,
            "cause": cause,
            "reason": reason,
            "run": coordinator.run.hex(),
            "start": ("warm" if coordinator.announcement.earlier else "cold") if coordinator.run else "",
            "cold": coordinator.cold if coordinator.run else [],
            "rounds": history[-1][0] if history else 0,
            "residual": history[-1][1] if history and history[-1][1] is not None else "",
            "quality": ("agreed" if coordinator.reason == "tolerance" else "rounds") if done else "",
            "held": self.held,
            "absent": [m for m in self.plan.parties if m in away],
            "refused": [m for m in self.plan.parties if m in {*self.refused, *coordinator.membership.refusals}],
            "began_s": round(self.began_s, 1),
            "ended_s": round(self.ledger.spends.running, 1),
            "period": planned.first if (planned := self.plan.kind.periods(self.plan.problem)) else "",
        }
