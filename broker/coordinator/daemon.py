"""`hushgrid coordinator CONFIG`: the coordinator of a fleet of real devices, for one run or run after run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.intervals import Intervals
from hushgrid.broker.coordinator.past_runs import failed
from hushgrid.broker.coordinator.records import keep
from hushgrid.kernels.errors import InputError, Stopped, printable
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan, encode_plan, warnings
from hushgrid.node.runtime.event_loop import POLL_S, link_for, reach, serve
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import notify
from hushgrid.node.transport.link import Link
from hushgrid.node.wire import COORDINATOR


def prepare(config: CoordinatorConfig, path: str) -> tuple[str, RunPlan]:
    """The run a configuration asks for, checked without a network, and where the rest of its public part is found.

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
    for wrong, key, found, expected in simulated:
        if wrong:
            raise InputError(
                f"{file}: {key}: found {found}, expected {expected}: devices are real (else: hushgrid run)"
            )
    problem = scenario.kind.public(scenario, file)
    if why := scenario.kind.on_devices(scenario.problem):
        raise InputError(f"{file}: {why}")
    _, plan = make_plan(scenario, problem, file)
    if config.members is not None and sorted(config.members) != plan.nodes:
        raise InputError(
            f"{path}: members: found {', '.join(config.members)}, expected {', '.join(plan.nodes)}, the nodes of {file}"
        )
    return scenario.kind.source(scenario.problem), plan


class _Again:
    """SIGUSR1 asks for the next run."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


def main(config: CoordinatorConfig, path: str, once: bool = False) -> int:
    """Coordinate one run (`once`: its exit code is ours), or the first and then one for each SIGUSR1, or by a schedule.

    A run under way when the process ends is gone on with at the next start. SIGTERM and SIGINT: 0.
    """
    signals, again = Signals(), _Again()
    source, plan = prepare(config, path)
    ledger = Ledger(Path(config.state) / f"{COORDINATOR}.ledger", COORDINATOR)
    missing = ""
    for warning in warnings(plan, source):
        _say(f"warning: {warning}")
    try:
        if config.run is not None and not once:
            _by_schedule(config, Intervals(config, plan, source, ledger, _say), signals, again)
            _say(f"stopped by {signals.asked}")
            return 0
        if not once and (why := failed(ledger, encode_plan(plan))):
            _say(
                f"not begun again: the last run of this plan ended with: {why}; all the same: kill -USR1 {os.getpid()}"
            )
            _wait(again, signals)
        while not signals:
            again.asked = False
            patience = {"wait_s": config.wait_s, "silent_s": config.silent_s}
            coordinator = coordinator_of(
                config.fleet, plan, source, ledger, resumes=True, progress=_Rounds(), **patience
            )
            coordinator.log = _say
            link = link_for(coordinator, config.broker, config.tls)
            began = time.gmtime()
            try:
                if not reach(link, signals):
                    break
                if not missing:
                    _say(f"{plan.name} on {config.broker}, fleet {config.fleet}: waits for {', '.join(plan.nodes)}")
                serve(coordinator, link, partial(getattr, coordinator, "finished"), signals)
                if not coordinator.finished:
                    break
                error = coordinator.error
                if coordinator.run:
                    _say(f"{keep(coordinator, Path(config.state) / 'runs', began)}: {_summary(coordinator)}")
                coordinator.conclude()
                if once:
                    if error:
                        raise type(error)(f"{error}{coordinator.paid}")
                    return 0
                if isinstance(error, Stopped) and not coordinator.run:
                    # Nobody has spent anything: the devices may simply come later.
                    if str(error) != missing:
                        _say(f"{error}; still waiting")
                    missing = str(error)
                    continue
                missing = ""
                if error:
                    _say(f"stopped: {error}{coordinator.paid}")
                _say(f"the next run: kill -USR1 {os.getpid()}")
                serve(coordinator, link, again, signals)
            finally:
                link.close(clear=(), forget=False)
    finally:
        notify("STOPPING=1")
        ledger.close()
    _say(f"stopped by {signals.asked}")
    return 0


def _by_schedule(config: CoordinatorConfig, intervals: Intervals, signals: Signals, again: _Again) -> None:
    """Interval after interval, until a signal asks to end. The broker is waited for as long as it takes."""

    def due() -> bool:
        return intervals.schedule.left == 0 or again()

    def ended(coordinator: Coordinator, link: Link) -> bool:
        return coordinator.finished or intervals.overdue(coordinator, link.connected)

    def served(coordinator: Coordinator, until: Callable[[Link], bool]) -> bool:
        """Serves a coordinator on a connection of its own; whether the broker was there in the end."""
        coordinator.log, coordinator.progress = _say, _Rounds()
        link = link_for(coordinator, config.broker, config.tls)
        try:
            serve(coordinator, link, partial(until, link), signals)
            return link.connected
        finally:
            link.close(clear=(), forget=False)

    notify("READY=1")
    coordinator = intervals.resumed()
    while not signals:
        if coordinator is None:
            _wait(due, signals)
            if signals:
                return
            again.asked = False
            coordinator = intervals.begin()
        there, over = True, False
        while not over and not signals:
            there = served(coordinator, partial(ended, coordinator))
            if not signals:
                following = intervals.without_the_absent(coordinator) if there else None
                coordinator, over = following or coordinator, following is None
        if signals:
            return
        _say(intervals.end(coordinator, there))
        served(coordinator, lambda link: due())  # whoever comes late hears how it ended
        coordinator = None


def _wait(until: Callable[[], bool], signals: Signals) -> None:
    """Nothing to coordinate until then; systemd hears that all is well."""
    notify("READY=1")
    while not until() and not signals:
        time.sleep(POLL_S)
        notify("WATCHDOG=1")


def _summary(coordinator: Coordinator) -> str:
    history = coordinator.ledger.history(coordinator.run)
    rounds, residual, messages, _ = history[-1] if history else (0, None, 0, 0)
    # The coordinator of a walk sees no iterate.
    return f"{rounds} rounds" + ("" if residual is None else f", residual {residual:.3g}, {messages} messages")


class _Rounds:
    """A line each tenth of the rounds."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, t: int, total: int, residual: float | None) -> None:
        tenth = 10 * t // total
        if tenth > self.said:
            self.said = tenth
            _say(f"round {t} of {total}" + ("" if residual is None else f", residual {residual:.3g}"))


def _say(text: str) -> None:
    print(f"{COORDINATOR}: {printable(text)}", file=sys.stderr, flush=True)
