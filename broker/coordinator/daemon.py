"""`hushgrid coordinator CONFIG`: the coordinator of a fleet of real devices, for one run or run after run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.interval_log import prune
from hushgrid.broker.coordinator.intervals import NOTES, Intervals
from hushgrid.broker.coordinator.membership import Precedence
from hushgrid.broker.coordinator.run_history import failed
from hushgrid.broker.coordinator.run_records import keep, summary
from hushgrid.broker.coordinator.status import Reporter, Views, activity
from hushgrid.broker.standby.replica import UNSIGNED, Replicated, Word
from hushgrid.broker.standby.takeover import Seat, take_over
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.kernels.types import Document
from hushgrid.node import system
from hushgrid.node.config.coordinator import FIXED, KEPT, CoordinatorConfig, load_coordinator
from hushgrid.node.config.files import with_fixed
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.config.trust import credentials_of
from hushgrid.node.log import Log, Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Tests
from hushgrid.node.problems.masking import numbers
from hushgrid.node.problems.plan import RunPlan, encode_plan, warnings
from hushgrid.node.problems.rolling import Periods
from hushgrid.node.runtime.event_loop import POLL_S, link_for, reach, serve_all
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import Unit
from hushgrid.node.schema.durations import in_words, validity
from hushgrid.node.schema.sections import Section
from hushgrid.node.served import Served
from hushgrid.node.status import moment
from hushgrid.node.transport.link import Link, Party
from hushgrid.node.transport.schemes import link_to
from hushgrid.node.wire import COORDINATOR, Instance

if TYPE_CHECKING:
    from hushgrid.node.trust.guarded import Guarded

_say = Log(COORDINATOR)


class Declared(NamedTuple):
    """The run that a configuration asks for."""

    source: str  #: where the rest of its public part is found
    plan: RunPlan
    problem: Section  #: of its scenario


def prepare(config: CoordinatorConfig, path: str) -> tuple[str, RunPlan]:
    """As `declared`: the plan, and where the rest of its public part is found."""
    source, plan, _ = declared(config, path)
    return source, plan


def declared(config: CoordinatorConfig, path: str) -> Declared:
    """The run a configuration asks for, checked without a network.

    InputError where it is one that exists in simulation only, or its members are not the scenario's.
    """
    scenario, file = load_scenario(Path(config.scenario)), config.scenario
    simulated: list[tuple[bool, str, object, str]] = [
        (scenario.algorithm.variant != "guarded", "algorithm.variant", scenario.algorithm.variant, "guarded"),
        (scenario.seed is not None, "seed", scenario.seed, "none"),
        (scenario.run.truth, "run.truth", "true", "none"),
        (scenario.run.faults is not None, "run.faults", "faults", "none"),
        (scenario.run.warm_start is not None, "run.warm_start", "a directory", "none"),
        (scenario.run.record != "summary", "run.record", scenario.run.record, "summary"),
    ]
    for wrong, key, actual, expected in simulated:
        if wrong:
            raise InputError(
                f"{file}: {key}: found {actual}, expected {expected}: devices are real (else: hushgrid run)"
            )
    problem = scenario.kind.public(scenario, file)
    if why := scenario.kind.on_devices(scenario.problem):
        raise InputError(f"{file}: {why}")
    plan = make_plan(scenario, problem, file)
    members = plan.parties
    if config.members is not None and sorted(config.members) != sorted(members):
        raise InputError(
            f"{path}: members: found {', '.join(config.members)}, expected {', '.join(members)}, the "
            f"{'sites' if plan.sites else 'nodes'} of {file}"
        )
    if (periods := plan.kind.periods(plan.problem)) is not None:
        check_day(config, periods, path)
    if config.quorum is not None and plan.kind.sites(plan.problem):
        raise InputError(f"{path}: quorum: found {config.quorum}, expected none: no zone in sites is held")
    if config.quorum is not None and config.quorum > len(members):
        raise InputError(f"{path}: quorum: found {config.quorum}, expected at most {len(members)}, the members")
    if config.quorum is not None and plan.sites and config.quorum < (m := numbers(plan).contributors):
        raise InputError(f"{path}: quorum: found {config.quorum}, expected at least {m}, the fewest sites of a round")
    return Declared(scenario.kind.source(scenario.problem), plan, scenario.problem)


def check_day(config: CoordinatorConfig, periods: Periods, path: str) -> None:
    """Raises InputError unless the intervals are the periods of the day, of all members."""
    length = periods.length_s
    if config.run is not None and abs(config.run.every_s - length) > 1e-3:
        raise InputError(
            f"{path}: run.every: found {config.run.every}, expected {in_words(length)}, a period of the horizon"
        )
    if config.quorum is not None:
        raise InputError(f"{path}: quorum: found {config.quorum}, expected none: a day is planned by all its zones")


def main(
    config: CoordinatorConfig,
    path: str,
    signals: Signals,
    *,
    once: bool = False,
    standby: bool = False,
    hand_over: bool = False,
) -> int:
    """Coordinate one run (`once`: what has stopped it is raised), or the first and then one for each SIGUSR1, or by a
    schedule.

    A run under way when the process ends is gone on with at the next start. It waits for the broker itself, for as long
    as that takes (`once`: for REACH_S). SIGTERM and SIGINT: 0.

    `standby`: after another one's death; `hand_over`: in another one's place, which ends. Without either, too, if the
    file says that there is a standby, unless `once`.
    """
    public = declared(config, path)
    with closing(Ledger(Path(config.state) / f"{COORDINATOR}.ledger", COORDINATOR)) as ledger:
        service_class = Service if config.run is None or once else Scheduled
        service = service_class(config, path, public, signals, ledger)
        if standby or hand_over or (config.standby is not None and not once):
            service.unit.ready()
            at_once = hand_over or not standby
            began = take_over(config, path, ledger, signals, _say, at_once=at_once, keys=NOTES, word=service.word)
            service.began, service.begins = began or service.began, not (standby or hand_over)
        try:
            if once:
                service.once()
            else:
                service.unit.ready()
                service.run()
        finally:
            service.unit.stopping()
    if signals:
        _say(f"stopped by {signals.asked}")
    return 0


class Service:
    """The coordinator of a fleet, run after run, and what it says of itself."""

    def __init__(
        self, config: CoordinatorConfig, path: str, public: Declared, signals: Signals, ledger: Ledger
    ) -> None:
        """`public`: what `declared` has made of the configuration."""
        self.config, self.path, self.signals, self.ledger = config, path, signals, ledger
        self.unit, self.reporter, self.views = Unit(), Reporter(config), Views(_say)
        self.began = system.machine.wall()
        self.begins = True  #: whether a run is made as it starts
        self.credentials = credentials_of(COORDINATOR, config.trust, config.tls, path, public.plan.parties)
        self._guard: Guarded | None = None  #: of the coordinator that it has now
        self.word: Word = UNSIGNED  #: how another coordinator knows what this one says
        if self.credentials is not None:
            from hushgrid.node.trust.stated import Stated

            self.word = Stated(self.credentials)
        self.replicated: Replicated | None = None  #: the coordinator of now, if there is a standby
        self._missing = ""  #: who was said not to be there
        self.wait: Callable[[], float] = lambda: inf  #: seconds until something is due that no message tells
        self._take(public)

    def once(self) -> None:
        """One run; what has stopped it is raised. The broker must be there within REACH_S."""
        coordinator, link = self._made(None)
        began = system.gmtime()
        try:
            if reach(link, self.signals):
                self._coordinate(coordinator, link)
            if coordinator.finished:
                self._keep(coordinator, began)
        finally:
            self._leave(coordinator, link)
        if error := coordinator.error:
            raise type(error)(f"{error}{coordinator.membership.paid}")

    def run(self) -> None:
        """Run after run, until somebody asks to end."""
        if why := failed(self.ledger, encode_plan(self.plan)):
            _say(Warned(f"not begun again: the last run of this plan ended with: {why}; all the same: {_again()}"))
            self._idle()
        elif not self.begins and self.ledger.runs.under_way() is None and self.ledger.runs.last() is not None:
            _say(f"the last run is over; the next run: {_again()}")
            self._idle()
        while not self.signals:
            self._look()
            self.signals.begin = False
            coordinator, link = self._made(self._absent)
            began = system.gmtime()
            try:
                self._coordinate(coordinator, link)
                if coordinator.finished:
                    self._over(coordinator, began)
                    if self.replicated is not None:
                        link.send(self.replicated.concluded())
                    self._wait(coordinator, link)
            finally:
                self._leave(coordinator, link, off=bool(self.signals))

    def _leave(self, coordinator: Coordinator, link: Link, *, off: bool = True) -> None:
        """The connection ends; `off`: with the process."""
        if not coordinator.membership.precedence.yields(link.connects):  # else these topics are another coordinator's
            self.views(coordinator, link)
            if off:
                self.reporter.publish(coordinator, link, "off")
        link.close(clear=(), forget=False)

    def _take(self, public: Declared) -> None:
        """This is what the next run asks for."""
        self.source, self.plan = public.source, public.plan
        self.tests: Tests | None = None  #: of models, on rows that the scenario names
        for warning in warnings(self.plan, self.source):
            _say(Warned(f"warning: {warning}"))
        if self.plan.algorithm.pattern == "star":  # else no model comes by here
            try:
                self.tests = self.plan.kind.tests(public.problem, self.plan.problem)
            except InputError as error:
                _say(Warned(f"models are not tested: {error}"))

    def _says(self, coordinator: Coordinator, link: Link) -> None:
        """What stands on the topics of `watch`, at every turn of the loop. Raises Refused if another coordinator of the
        fleet goes on.
        """
        coordinator.membership.precedence.check(link.connects)
        self.reporter(coordinator, link)
        self.views(coordinator, link)

    # --- a run ---

    def _made(self, missed: Callable[[Stopped], None] | None) -> tuple[Coordinator, Link]:
        config = self.config
        patience = {"wait_s": config.wait_s, "silent_s": config.silent_s, "missed": missed}
        coordinator = coordinator_of(
            config.fleet, self.plan, self.source, self.ledger, resumes=True, progress=_Rounds(), **patience
        )
        coordinator.log = _say
        return coordinator, self._linked(coordinator)

    def _linked(self, coordinator: Coordinator) -> Link:
        """A connection for this coordinator. Its standby, if there is one, is told each commit by it."""
        config = self.config
        coordinator.instance = coordinator.membership.precedence.claim(coordinator, self.began)
        again, self.replicated = self.replicated is not None, None
        if config.standby is not None:
            precedence = coordinator.membership.precedence
            self.replicated = Replicated(
                coordinator,
                config.fleet,
                lambda: coordinator.ending,
                lambda: precedence.later is not None,
                NOTES,
                self._guarded(coordinator),
                self.word,
                again=again,
            )
            coordinator.observe = self.replicated.observe
            if coordinator.driver is not None:  # it goes on with a run
                self.replicated.observe(coordinator.driver, True)
        return link_for(coordinator, config.broker, config.tls, keepalive=config.keepalive)

    def _serve(self, coordinator: Coordinator, link: Link, until: Callable[[], bool]) -> None:
        def wait() -> float:
            return min(self.wait(), self.reporter.again_s or inf)

        serve_all([(self.replicated or self._guarded(coordinator), link)], until, self.signals, wait)

    def _guarded(self, coordinator: Coordinator) -> Served:
        """The coordinator behind its guard, with keys of its own; itself, if its broker is trusted."""
        if self.credentials is None:
            return coordinator
        from hushgrid.node.trust.guarded import Guarded

        if self._guard is None or self._guard.end is not coordinator:
            self._guard = Guarded(coordinator, self.credentials, lambda: coordinator.names)
        return self._guard

    def _coordinate(self, coordinator: Coordinator, link: Link) -> None:
        """Until the run is over, or somebody asks to end; or to read the file again before all are there."""
        place, who = f"{self.config.broker}, fleet {self.config.fleet}", ", ".join(coordinator.members)
        _say(f"{self.plan.name} on {place}: waits for {who}")
        self.reporter.plans(coordinator)

        def over() -> bool:
            self.unit.shows(f"waits for the broker: {link.why}" if not link.connected else activity(coordinator))
            self._says(coordinator, link)
            return coordinator.finished or (self.signals.reload and coordinator.phase == "gathering")

        self._serve(coordinator, link, over)

    def _absent(self, error: Stopped) -> None:
        """Somebody is not there, but nobody has spent anything: the devices may simply come later."""
        if str(error) != self._missing:
            _say(Warned(f"{error}; still waiting"))
        self._missing = str(error)

    def _over(self, coordinator: Coordinator, began: time.struct_time) -> None:
        """Keeps what a run has shown."""
        self._missing = ""
        self._keep(coordinator, began)
        if coordinator.error:
            _say(Warned(f"stopped: {coordinator.error}{coordinator.membership.paid}"))

    def _keep(self, coordinator: Coordinator, began: time.struct_time) -> None:
        if coordinator.run:
            directory = Path(self.config.state) / "runs"
            _say(f"{keep(coordinator, directory, began)}: {summary(coordinator)}")
            prune(directory, KEPT)
            self.views.answered(coordinator, self.tests)
        coordinator.conclude()
        self.reporter.anew()

    # --- between runs ---

    def _wait(self, coordinator: Coordinator, link: Link) -> None:
        """Until the next run is asked for."""
        _say(f"the next run: {_again()}")
        self.unit.shows("waits for SIGUSR1")

        def roused() -> bool:
            self._says(coordinator, link)
            return self.signals.begin or self.signals.reload

        while not self._asked():
            self._serve(coordinator, link, roused)
            self._look()

    def _idle(self) -> None:
        """Nothing to coordinate, until a run is due, or asked for: no connection, unless another one stands by."""
        self.unit.shows("waits for SIGUSR1" if self.config.run is None else "waits for the next interval")
        precedence, config = Precedence(), self.config
        precedence.instance = Instance(self.ledger.id, self.ledger.runs.new_session(), self.began)
        seats: list[tuple[Seat, Link]] = []
        if config.standby is not None:
            seat = Seat(config.fleet, precedence.instance, _say, precedence.read, self.word)
            party = Party(COORDINATOR, seat.will, seat.subscriptions, config.tls, False, config.keepalive)
            seats.append((seat, link_to(config.broker, party)))

        def roused() -> bool:
            for _, link in seats:
                precedence.check(link.connects)
            return self._asked() or self.signals.reload

        try:
            while not self._asked():
                serve_all(seats, roused, self.signals, self.wait)
                self._look()
        finally:
            for _, link in seats:
                link.close(forget=False)

    def _asked(self) -> bool:
        return self.signals.begin or bool(self.signals)

    def _look(self) -> None:
        """SIGHUP: the file and its scenario again. A bad one, or one that changes what cannot change, is not taken."""
        if not self.signals.reload:
            return
        self.signals.reload = False
        with self.unit.reloading():
            try:
                read = load_coordinator(Path(self.path))
                another = (read.run is None) != (
                    self.config.run is None
                )  # runs by a schedule, or when they are asked for
                config = with_fixed(self.config, read, (*FIXED, "run") if another else FIXED, self.path, _say)
                public, self.config = declared(config, self.path), config
                self.reporter.config = config
            except InputError as error:
                _say(Warned(f"its configuration stays as it was: {error}"))
                return
            self._take(public)
            self.views.retry()
            _say(f"{self.path} was read again: {self.plan.name}, {self.plan.algorithm.name}")


class Scheduled(Service):
    """The coordinator of a fleet that runs by itself: interval after interval; SIGUSR1 begins one at once."""

    def run(self) -> None:
        intervals = self.intervals = Intervals(self.config, self.plan, self.source, self.ledger, _say)
        self.reporter.interval = intervals.last
        self.wait = lambda: intervals.schedule.left or POLL_S
        coordinator = intervals.resumed()
        while not self.signals:
            if coordinator is None:
                self._idle()
                if self.signals:
                    return
                self.signals.begin = False
                coordinator = intervals.begin()
            self._interval(coordinator)
            coordinator = None

    def _interval(self, coordinator: Coordinator) -> None:
        """One interval, of those who are there, and then the wait for the next one."""
        there = True
        self.reporter.plans(coordinator)
        following: Coordinator | None = coordinator
        while following is not None and not self.signals:
            coordinator = following
            there = self._served(coordinator, self._ended)
            following = self.intervals.without_the_absent(coordinator) if there else None
            self.reporter.refuses = tuple(self.intervals.refused)
        if self.signals and not coordinator.finished:
            return
        _say(self.intervals.end(coordinator, there))
        self.reporter.interval = interval = self.intervals.last
        if interval is not None and interval.outcome != "missed":
            until = system.machine.wall() + (validity(self.intervals.run.every_s) or 0.0)
            known: Document = {"number": interval.number, "outcome": interval.outcome, "valid_until": moment(until)}
            self.views.answered(coordinator, self.tests, known)
        self.reporter.refuses = tuple(self.intervals.refused)
        self.reporter.anew(self.intervals.schedule.left)
        while not self._asked():
            self._served(coordinator, self._rests)  # whoever comes late hears how it ended
            self._look()

    def _served(self, coordinator: Coordinator, until: Callable[[Coordinator, Link], bool]) -> bool:
        """Serves a coordinator on a connection of its own. Whether the broker was there in the end."""
        coordinator.log, coordinator.progress = _say, _Rounds()
        link = self._linked(coordinator)
        try:
            self._serve(coordinator, link, partial(until, coordinator, link))
            return link.connected
        finally:
            self._leave(coordinator, link, off=bool(self.signals))

    def _ended(self, coordinator: Coordinator, link: Link) -> bool:
        self.unit.shows(f"waits for the broker: {link.why}" if not link.connected else activity(coordinator))
        self._says(coordinator, link)
        return coordinator.finished or self.intervals.overdue(coordinator, link.connected)

    def _rests(self, coordinator: Coordinator, link: Link) -> bool:
        self.unit.shows(f"waits for the next interval, {self.intervals.schedule.number + 1}")
        self._says(coordinator, link)
        return self._asked() or self.signals.reload

    def _asked(self) -> bool:
        return super()._asked() or self.intervals.schedule.left == 0

    def _look(self) -> None:
        super()._look()
        schedule = self.intervals.schedule
        due = schedule.due
        self.intervals.declare(self.config, self.plan, self.source)
        if schedule.due != due:
            self.reporter.anew(schedule.left)


def _again() -> str:
    """What asks this process for a run."""
    return f"kill -USR1 {os.getpid()}"


class _Rounds:
    """A line each tenth of the rounds."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, t: int, total: int, residual: float | None) -> None:
        tenth = 10 * t // total
        if tenth > self.said:
            self.said = tenth
            _say(f"round {t} of {total}" + ("" if residual is None else f", residual {residual:.3g}"))
