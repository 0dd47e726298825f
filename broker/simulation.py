"""`hushgrid run`: a whole fleet on one machine, over the memory transport or as processes over MQTT.

Every node started here is simulated: it takes its loads from the case, and may take a seed, a published variant, no
privacy, or `truth`. The members, the coordinator, the driver and the ledgers are the ones that devices run.
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import numpy as np

from hushgrid.broker import results
from hushgrid.broker.coordinator import Coordinator
from hushgrid.broker.memory import Endpoint, MemoryBroker
from hushgrid.broker.progress import Progress
from hushgrid.broker.results import Finished, Result, Trace, collect, upheld
from hushgrid.grid_cases.case import Case, loads
from hushgrid.grid_cases.zone import ZoneModel
from hushgrid.grid_cases.zone_model import zone_models
from hushgrid.grid_cases.zone_solvers import make_step
from hushgrid.kernels.accounting import total_epsilon
from hushgrid.kernels.errors import HushgridError, InputError, Stopped
from hushgrid.node.assemble import Zone, ZoneLoss, layout, public
from hushgrid.node.config import Scenario, lay, load_scenario, scenario_from
from hushgrid.node.driver import Driver
from hushgrid.node.gate import Entropy, Gate, Seeded
from hushgrid.node.ledger import Ledger
from hushgrid.node.member import Member, Simulated
from hushgrid.node.plan import encode_plan, resolved, terms
from hushgrid.node.wire import COORDINATOR, Topics

Observer = Callable[[Driver, bool], None]


class Setup:
    """Everything public about a run, prepared once: case, zones, models, plan."""

    def __init__(self, scenario: Scenario, file: str = "scenario") -> None:
        self.case, self.zones, self.plan = public(scenario, file)
        self.scenario = resolved(scenario)
        self.terms = terms(scenario.privacy, scenario.algorithm)
        self.models = zone_models(self.case, [list(b) for b in self.zones.values()])
        self.keys_w, self.position, _ = layout(self.case, self.zones)
        if scenario.problem.solver != "clarabel":  # an absent one is refused here, not in a child
            first = next(iter(self.models.values()))
            make_step(first, np.ones(first.n), scenario.problem.solver)
        self.budget = scenario.privacy.budget if scenario.privacy else None

    def zone(self, name: str) -> Zone:
        model = self.models[name]
        return Zone(name, self.case, model, loads(self.case, model.buses), self.scenario.problem.solver)

    @property
    def reveal(self) -> bool:
        """Whether raw-data figures may be computed."""
        return upheld(self.scenario) is not True

    @property
    def sampler(self) -> str | None:
        if self.terms is None:
            return None
        if self.terms.published:
            return "numpy (simulation)"
        return Entropy.sampler if self.scenario.seed is None else Seeded.sampler

    @property
    def expected_l1(self) -> float | None:
        """Expected sum of |noise| of one answer of every node."""
        if self.terms is None:
            return None
        total = 0.0
        for name, model in self.models.items():
            nothing = ZoneLoss(model, np.zeros(2 * len(model.buses)))
            total += Gate(name, nothing, self.terms, Entropy(), _Anything(), _Anything()).expected_l1
        return total


class _Anything:
    """The authority and memory of a gate that is only asked for its noise level."""

    def authorise(self, spends: list[Any]) -> None:
        raise AssertionError("this gate answers nothing")

    def committed(self, spends: list[Any]) -> None: ...

    def key(self, lattice: str, data: Any) -> bytes:
        return b""

    def find(self, key: bytes) -> bytes | None:
        return None


def member_trace(directory: Path, model: ZoneModel, reveal: bool) -> Observer:
    """Rows z^{t+1}, lambda^{t+1}, and the noise of the round as drawn, that cell only where it may be revealed."""
    width = model.n + model.shared.size + 1
    trace = Trace(directory / f"{model.name}.trace", width)

    def observe(driver: Driver, fresh: bool) -> None:
        s, gate = driver.machine.state, driver.gate
        trace.write(s.t, np.concatenate([s.mean, s.lam]))
        if reveal and fresh and gate is not None:
            drawn, gate.drawn_l1 = gate.drawn_l1, 0.0
            trace.write(s.t, np.array([drawn]), width - 1)

    return observe


def coordinator_trace(directory: Path) -> Observer:
    """Rows w^{t+1}."""
    trace: list[Trace] = []

    def observe(driver: Driver, fresh: bool) -> None:
        s = driver.machine.state
        if not trace:
            trace.append(Trace(directory / f"{COORDINATOR}.trace", s.w.size))
        trace[0].write(s.t, s.w)

    return observe


def run(
    scenario: Scenario | Mapping[str, Any] | str | Path, transport: str = "memory", out: str | Path | None = None,
    state: str | Path | None = None, seed: int | None = None, set: Mapping[str, Any] | None = None,
    *, broker: str = "auto", progress: Progress | None = None, silent_s: float = 30.0, file: str = "",
) -> Result:  # fmt: skip
    """Run a scenario and return its Result; with `out`, also leave a run directory there.

    scenario: a path, a mapping as in the YAML file, or a checked Scenario. set: dotted key paths to values laid over
    it. state: a directory whose ledgers count over runs; file: what to call a checked Scenario in errors. Raises
    InputError, Refused or Stopped, each one line.
    """
    checked = _scenario(scenario, seed, set)
    file = file or (str(scenario) if isinstance(scenario, str | Path) else "scenario")
    if transport not in ("memory", "mqtt"):
        raise InputError(f"transport: found {transport!r}, expected memory or mqtt")
    if transport == "mqtt" and checked.run.faults is not None:
        raise InputError(
            f"{file}: run.faults: found with transport mqtt, expected memory (faults are injected there only)"
        )
    if transport == "mqtt":
        from hushgrid.broker.brokers import check_choice

        check_choice(broker)
    target = Path(out) if out is not None else None
    if target is not None:
        results.check_out(target)
    if state is not None:
        results.check_place(Path(state), "--state")
    shown = progress or Progress(quiet=True)
    setup = Setup(checked, file)
    shown.phase(f"{checked.name}: {checked.problem.case} in {len(setup.zones)} zones")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hushgrid-") as scratch, ExitStack() as stack:
        place = Path(scratch)
        interrupted = stack.enter_context(_Interrupts())
        kept = Path(state) if state is not None else place / "state"
        for node in [*setup.plan.nodes, COORDINATOR]:
            if (kept / f"{node}.ledger").exists():  # what an earlier run left unfinished is not gone on with
                ledger = Ledger(kept / f"{node}.ledger", node)
                ledger.abandon()
                ledger.close()
        transported = (_memory if transport == "memory" else _mqtt)(
            setup, kept, place, shown, interrupted, broker, silent_s
        )
        name, transcript = transported
        finished = _finished(
            setup, kept, place, transport, name, time.perf_counter() - began, state is not None, transcript
        )
        result = collect(finished)
        if target is not None:
            copies = place / "ledger"
            copies.mkdir()
            for node in [*setup.plan.nodes, COORDINATOR]:
                ledger = Ledger(kept / f"{node}.ledger", node)
                ledger.copy_to(copies / f"{node}.ledger")
                ledger.close()
                result.ledgers.append(copies / f"{node}.ledger")
            shown.phase(f"writing {target}")
            results.write(result, setup.scenario, setup.zones, target)
            result.ledgers = []
    return result


def _scenario(
    given: Scenario | Mapping[str, Any] | str | Path, seed: int | None, over: Mapping[str, Any] | None
) -> Scenario:
    overrides = dict(over or {}) | ({"seed": seed} if seed is not None else {})
    if isinstance(given, Scenario):
        if overrides:
            raise InputError("set: found overrides of a checked Scenario, expected a path or a mapping")
        return given
    if isinstance(given, Mapping):
        raw = msgspec.json.decode(msgspec.json.encode(given))
        for key, value in overrides.items():
            lay(raw, key, value)
        return scenario_from(raw)
    return load_scenario(Path(given), overrides)


class _Interrupts:
    """SIGINT, SIGTERM and a terminal that closes, while a run goes on, end it in order."""

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self.before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


def _memory(
    setup: Setup,
    state: Path,
    place: Path,
    shown: Progress,
    interrupted: Callable[[], bool],
    broker: str,
    silent_s: float,
) -> tuple[str, list[dict[str, Any]] | None]:
    """The fleet in this process."""
    fleet, scenario = setup.scenario.fleet, setup.scenario
    ledgers: dict[str, Ledger] = {}
    traces = {n: member_trace(place, setup.models[n], setup.reveal) for n in setup.plan.nodes}
    trace_w = coordinator_trace(place)

    def build(name: str) -> Endpoint:
        if name in ledgers:
            ledgers[name].close()
        ledgers[name] = Ledger(state / f"{name}.ledger", name)
        if name == COORDINATOR:
            return Coordinator(
                fleet,
                setup.plan,
                setup.case,
                ledgers[name],
                wait_s=inf,
                silent_s=inf,
                observe=trace_w,
                progress=shown.round,
            )
        return Member(
            fleet,
            setup.zone(name),
            ledgers[name],
            setup.budget,
            simulated=Simulated(scenario.seed),
            observe=traces[name],
        )

    transcript: list[dict[str, Any]] | None = [] if scenario.run.record == "transcript" else None
    heard = Eavesdropper(Topics(fleet), transcript) if transcript is not None else None
    try:
        endpoints = [build(n) for n in [*setup.plan.nodes, COORDINATOR]]
        hub = MemoryBroker(endpoints, build, scenario.run.faults, heard)
        shown.phase(f"{scenario.name}: {len(endpoints) - 1} nodes in this process")

        def centre() -> Coordinator:
            found = hub.endpoints[COORDINATOR]
            assert isinstance(found, Coordinator)
            return found

        hub.run(lambda: centre().finished, interrupted)
        if interrupted() and not centre().finished:
            hub.publish(centre().stop("interrupted"))
            hub.run(lambda: centre().finished)
        centre().conclude()
        if error := centre().error:
            raise error
    finally:
        for ledger in ledgers.values():
            ledger.close()
    return "memory", transcript


def _mqtt(
    setup: Setup,
    state: Path,
    place: Path,
    shown: Progress,
    interrupted: Callable[[], bool],
    broker: str,
    silent_s: float,
) -> tuple[str, list[dict[str, Any]] | None]:
    """The fleet as processes: coordinator and nodes, each its own, through a real broker."""
    from hushgrid.broker.brokers import OwnBroker, start
    from hushgrid.broker.processes import Child, Fleet, Outcome, sweep

    scenario, suffix = setup.scenario, secrets.token_hex(3)
    fleet = f"{scenario.fleet}-{suffix}"
    transcript: list[dict[str, Any]] | None = [] if scenario.run.record == "transcript" else None
    state.mkdir(parents=True, exist_ok=True)
    children = Fleet(place)
    outcome = place / "outcome.json"
    with start(broker, place / "broker") as running:
        shown.phase(f"broker: {running.name}")
        spy = Spy(running.url, fleet, transcript) if transcript is not None else None
        try:
            common = Child(
                role="coordinator", name=COORDINATOR, client_id=f"{COORDINATOR}-{suffix}", fleet=fleet, broker=running.url,
                case=scenario.problem.case, state=str(state), trace=str(place), outcome=str(outcome),
                plan=encode_plan(setup.plan).decode(), silent_s=silent_s,
            )  # fmt: skip
            for name, buses in setup.zones.items():
                node = msgspec.structs.replace(
                    common, role="node", name=name, client_id=f"{name}-{suffix}", buses=list(buses), seed=scenario.seed,
                    solver=scenario.problem.solver, budget=setup.budget, reveal=setup.reveal,
                )  # fmt: skip
                children.add(node)
            children.add(common)
            shown.phase(f"{scenario.name}: {len(setup.plan.nodes)} node processes and a coordinator")

            def beat() -> None:
                with suppress(OSError, ValueError):
                    shown.round(
                        *msgspec.json.decode(
                            (place / "outcome.progress").read_bytes(), type=tuple[int, int, float | None]
                        )
                    )
                if spy:
                    spy.listen()

            code = children.watch(interrupted, beat)
            if not outcome.exists():
                raise Stopped(f"the coordinator ended with exit code {code}: {children.last_line(COORDINATOR)}")
            error = msgspec.json.decode(outcome.read_bytes(), type=Outcome).error()
            if error:
                raise error
        finally:
            children.end()
            if spy:
                spy.close()
            if children.killed and not isinstance(running, OwnBroker):
                sweep(running.url, Topics(fleet), list(children.children))
        return running.name, transcript


class Eavesdropper:
    """Everything that travels, as a transcript's lines."""

    def __init__(self, topics: Topics, lines: list[dict[str, Any]]) -> None:
        self.topics, self.lines = topics, lines

    def __call__(self, topic: str, payload: bytes) -> None:
        _, src, dst = self.topics.parse(topic)
        self.lines.append(
            {
                "n": len(self.lines) + 1,
                "src": src,
                "dst": dst,
                "topic": topic,
                "bytes": base64.b64encode(payload).decode(),
            }
        )


class Spy:
    """An eavesdropper's own connection to a broker."""

    def __init__(self, url: str, fleet: str, lines: list[dict[str, Any]]) -> None:
        from hushgrid.node.mqtt import MqttLink

        self.hear = Eavesdropper(Topics(fleet), lines)
        self.link = MqttLink(
            url, f"eavesdropper-{os.getpid()}", will=None, subscriptions=[f"hushgrid/1/{fleet}/#"], persistent=False
        )
        self.link.connect(10.0)

    def listen(self) -> None:
        for message in self.link.poll(0.0):
            self.hear(message.topic, message.payload)

    def close(self) -> None:
        self.listen()
        self.link.close()


def _finished(
    setup: Setup, state: Path, place: Path, transport: str, broker: str, wall_s: float, kept: bool,
    transcript: list[dict[str, Any]] | None,
) -> Finished:  # fmt: skip
    """How the run ended, read from the coordinator's ledger; what each node has spent, from its own."""
    ledger = Ledger(state / f"{COORDINATOR}.ledger", COORDINATOR)
    try:
        last = ledger.last_run()
        if last is None or last.status != "done":
            raise Stopped(f"{setup.plan.name}: the coordinator's ledger has no finished run")
        from hushgrid.node import wire

        farewell = wire.decode_envelope(last.last or b"", wire.SMALL).body
        travelled = ledger.history(last.id)
    finally:
        ledger.close()
    reason = farewell.reason if isinstance(farewell, wire.Finish) else ""
    t = setup.terms
    per_node = {}
    for name in setup.plan.nodes:
        own = Ledger(state / f"{name}.ledger", name)
        try:
            per_node[name] = _account(setup, own, last.id)
        finally:
            own.close()
    return Finished(
        plan=setup.plan, terms=t, scenario=setup.scenario, models=setup.models, keys_w=setup.keys_w, position=setup.position,
        trace=place, rounds_done=max((r[0] for r in travelled), default=0), stopped_because=reason, travelled=travelled,
        transport=transport, broker=broker, wall_s=wall_s, ledgers_kept=kept, per_node=per_node, sampler=setup.sampler,
        base_mva=setup.case.base_mva, loads=lambda z: loads(setup.case, setup.models[z].buses),
        optimum=lambda: _optimum(setup.case), expected_l1=setup.expected_l1, transcript=transcript,
    )  # fmt: skip


def _account(setup: Setup, ledger: Ledger, run: bytes) -> dict[str, Any]:
    """One node: claimed, spent in this run, spent in its ledger over all runs, and what is left of its budget."""
    t = setup.terms
    if t is None:
        return {"claimed": None, "spent": None, "ledger": None, "left": None}
    answered = len(ledger.spends(run))
    delta = (setup.budget.delta if setup.budget else None) or t.delta
    total = total_epsilon(ledger.totals(t.adjacency), delta)
    if total > t.epsilon and len(ledger.spends()) == answered:
        total = t.epsilon if not t.published else total  # the run's own accountant is the better bound
    left = max(setup.budget.epsilon - total, 0.0) if setup.budget else None
    spent = t.cost(answered) if not t.published else total
    return {
        "claimed": {"epsilon": t.epsilon, "delta": t.delta}, "spent": {"epsilon": _number(spent), "delta": t.delta},
        "answers": answered, "ledger": {"epsilon": _number(total), "delta": delta}, "left": left,
    }  # fmt: skip


def _number(value: float) -> float | None:
    """JSON has no infinity: null, which the report reads as unbounded."""
    return value if value != inf else None


def _optimum(case: Case) -> float | None:
    """The central optimum of the load shedding, in simulation."""
    from hushgrid.grid_cases.central import solve

    try:
        return float(solve(case, "shedding").value)
    except HushgridError:
        return None
