"""`hushgrid coordinator CONFIG`: the coordinator of a fleet of real devices, for one run or run after run."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator as coordinator_of
from hushgrid.broker.coordinator.past_runs import failed
from hushgrid.kernels.errors import InputError, Stopped, printable
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan, encode_plan, warnings
from hushgrid.node.runtime.event_loop import POLL_S, link_for, reach, serve
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import notify
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
    """Coordinate one run (`once`: its exit code is ours), or the first and then one for each SIGUSR1.

    A run under way when the process ends is gone on with at the next start. SIGTERM and SIGINT: 0.
    """
    signals, again = Signals(), _Again()
    source, plan = prepare(config, path)
    ledger = Ledger(Path(config.state) / f"{COORDINATOR}.ledger", COORDINATOR)
    missing = ""
    for warning in warnings(plan, source):
        _say(f"warning: {warning}")
    try:
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


def _wait(again: _Again, signals: Signals) -> None:
    """Nothing to coordinate until somebody asks for it; systemd hears that all is well."""
    notify("READY=1")
    while not again() and not signals:
        time.sleep(POLL_S)
        notify("WATCHDOG=1")


def keep(coordinator: Coordinator, directory: Path, began: time.struct_time) -> Path:
    """What a coordinator knows of a run that is over, as <name>-<UTC time>.json: nothing a member has not sent it.

    The tables of a dispatch stand beside it, as <name>-<UTC time>-<table>.csv.
    """
    history = coordinator.ledger.history(coordinator.run)
    error = coordinator.error
    rounds, residual, messages, size = history[-1] if history else (0, None, 0, 0)
    figures, tables = coordinator.answer()
    record: dict[str, Any] = {
        "name": coordinator.plan.name,
        "run": coordinator.run.hex(),
        "algorithm": coordinator.plan.algorithm.name,
        "members": coordinator.members,
        "outcome": "stopped" if error else "done",
        "stopped_because": str(error) if error else coordinator.reason,
        "exit_code": error.exit_code if error else 0,
        "lost": coordinator.lost,
        "rounds_done": rounds,
        "consensus_residual": residual,
        "messages": messages,
        "bytes": size,
        **figures,
        "began": _utc(began),
        "ended": _utc(time.gmtime()),
        "history": [
            dict(zip(("round", "consensus_residual", "messages", "bytes"), row, strict=True)) for row in history
        ],
    }
    stamp = time.strftime("%Y%m%dT%H%M%SZ", began)
    path = directory / f"{coordinator.plan.name}-{stamp}-{coordinator.run.hex()[:8]}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (columns, rows) in tables.items():
            text = io.StringIO(newline="")
            csv.writer(text).writerows([columns, *rows])
            _replace(path.with_name(f"{path.stem}-{name}.csv"), text.getvalue())
        _replace(path, json.dumps(record, indent=2) + "\n")
    except OSError as fault:
        raise Stopped(f"{path}: {fault.strerror}, expected to write what the run has shown") from None
    return path


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)


def _utc(moment: time.struct_time) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)


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
