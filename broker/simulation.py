"""`hushgrid run`: a whole fleet on one machine, over the memory transport or as processes over MQTT.

Every node started here is simulated: it takes its loads from the case, and may take a seed, a published variant, no
privacy, or `truth`. The members, the coordinator, the driver and the ledgers are the ones that devices run.
"""

from __future__ import annotations

import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from hushgrid.broker import results
from hushgrid.broker.brokers import OwnBroker, check_choice, start
from hushgrid.broker.coordinator import Coordinator
from hushgrid.broker.memory import MemoryBroker
from hushgrid.broker.prepare import Setup, coordinator, prepare
from hushgrid.broker.processes import Child, Fleet, Outcome, deal, sweep
from hushgrid.broker.progress import Progress
from hushgrid.broker.results import Finished, Result
from hushgrid.broker.traces import Eavesdropper, Spy
from hushgrid.kernels.accounting import total_epsilon
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node import wire
from hushgrid.node.config import Scenario, load_scenario, scenario_from
from hushgrid.node.endpoint import Endpoint
from hushgrid.node.ledger import Ledger
from hushgrid.node.member import Member, Simulated
from hushgrid.node.plan import encode_plan
from hushgrid.node.wire import COORDINATOR, Topics
from hushgrid.node.yaml_file import lay


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
        check_choice(broker)
    target = Path(out) if out is not None else None
    if target is not None:
        results.check_out(target)
    if state is not None:
        results.check_place(Path(state), "--state")
    shown = progress or Progress(quiet=True)
    setup = prepare(checked, file)
    shown.phase(f"{checked.name}: {setup.about}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hushgrid-") as scratch, ExitStack() as stack:
        place = Path(scratch)
        interrupted = stack.enter_context(_Interrupts())
        kept = Path(state) if state is not None else place / "state"
        nodes = [*setup.plan.nodes, COORDINATOR]
        for node in nodes:
            if (kept / f"{node}.ledger").exists():  # what an earlier run left unfinished is not gone on with
                with closing(_ledger(kept, node)) as ledger:
                    ledger.abandon()
        if transport == "memory":
            name, heard = _memory(setup, kept, place, shown, interrupted)
        else:
            name, heard = _mqtt(setup, kept, place, shown, interrupted, broker, silent_s)
        wall_s = time.perf_counter() - began
        reason, travelled, per_node, centre = _read(setup, kept)
        result = setup.collect(
            Finished(
                setup, place, reason, travelled, transport, name, wall_s, state is not None, per_node,
                centre, heard.lines if heard else None,
            )
        )  # fmt: skip
        if target is not None:
            copies = [place / "ledger" / f"{node}.ledger" for node in nodes]
            copies[0].parent.mkdir()
            for node, copy in zip(nodes, copies, strict=True):
                with closing(_ledger(kept, node)) as ledger:
                    ledger.copy_to(copy)
            shown.phase(f"writing {target}")
            results.write(result, setup, copies, target)
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
        try:
            raw = msgspec.json.decode(msgspec.json.encode(given))
        except TypeError as error:
            raise InputError(f"scenario: {error}, expected what a YAML file can hold") from None
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
    setup: Setup, state: Path, place: Path, shown: Progress, interrupted: Callable[[], bool]
) -> tuple[str, Eavesdropper | None]:
    """The fleet in this process."""
    scenario, fleet = setup.scenario, setup.scenario.fleet
    case = setup.child(COORDINATOR, place).get("case", "")
    heard = Eavesdropper(fleet) if scenario.run.record == "transcript" else None
    with ExitStack() as stack:
        nodes = [*setup.plan.nodes, COORDINATOR]
        traces = {n: stack.enter_context(closing(setup.trace(n, place))) for n in nodes}
        ledgers: dict[str, Ledger] = {}

        @stack.callback
        def close() -> None:
            for ledger in ledgers.values():
                ledger.close()

        def build(name: str) -> Endpoint:
            if name in ledgers:
                ledgers[name].close()
            ledger = ledgers[name] = _ledger(state, name)
            if name == COORDINATOR:
                return coordinator(
                    fleet,
                    setup.plan,
                    case,
                    ledger,
                    wait_s=inf,
                    silent_s=inf,
                    observe=traces[name],
                    progress=shown.round,
                )
            return Member(
                fleet,
                setup.device(name),
                ledger,
                setup.budget,
                simulated=Simulated(scenario.seed),
                observe=traces[name],
            )

        hub = MemoryBroker([build(n) for n in nodes], build, scenario.run.faults, heard)
        shown.phase(f"{scenario.name}: {len(setup.plan.nodes)} nodes in this process")

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
    return "memory", heard


def _ledger(state: Path, node: str) -> Ledger:
    return Ledger(state / f"{node}.ledger", node)


def _mqtt(
    setup: Setup,
    state: Path,
    place: Path,
    shown: Progress,
    interrupted: Callable[[], bool],
    broker: str,
    silent_s: float,
) -> tuple[str, Eavesdropper | None]:
    """The fleet as processes: the coordinator its own, nodes theirs or some together, through a real broker."""
    scenario, suffix = setup.scenario, secrets.token_hex(3)
    fleet = f"{scenario.fleet}-{suffix}"
    heard = Eavesdropper(fleet) if scenario.run.record == "transcript" else None
    state.mkdir(parents=True, exist_ok=True)
    children = Fleet(place)
    outcome = place / "outcome.json"
    with start(broker, place / "broker") as running:
        shown.phase(f"broker: {running.name}")
        spy = Spy(running.url, heard) if heard is not None else None
        try:
            common = Child(
                role="coordinator", name=COORDINATOR, client_id=f"{COORDINATOR}-{suffix}", fleet=fleet, broker=running.url,
                state=str(state), trace=str(place), outcome=str(outcome), plan=encode_plan(setup.plan).decode(),
                silent_s=silent_s, **setup.child(COORDINATOR, place),
            )  # fmt: skip
            nodes = [
                msgspec.structs.replace(
                    common, role="node", name=name, client_id=f"{name}-{suffix}", seed=scenario.seed, budget=setup.budget,
                    reveal=setup.reveal, **setup.child(name, place),
                )
                for name in setup.plan.nodes
            ]  # fmt: skip
            hands = deal(nodes, scenario.run.processes)
            for process, hand in hands.items():
                children.add(process, *hand)
            children.add(COORDINATOR, common)
            shown.phase(f"{scenario.name}: {len(nodes)} nodes in {len(hands)} processes, and a coordinator")

            def beat() -> None:
                with suppress(OSError, ValueError):
                    told = (place / "outcome.progress").read_bytes()
                    shown.round(*msgspec.json.decode(told, type=tuple[int, int, float | None]))
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
                sweep(running.url, Topics(fleet), [*setup.plan.nodes, COORDINATOR])
        return running.name, heard


def _read(
    setup: Setup, state: Path
) -> tuple[str, list[tuple[int, float, int, int]], dict[str, dict[str, Any]], bytes | None]:
    """Why the run ended, what travelled and the last state, from the coordinator's ledger; each node's account, from its own."""
    with closing(_ledger(state, COORDINATOR)) as ledger:
        last = ledger.last_run()
        if last is None or last.status != "done":
            raise Stopped(f"{setup.plan.name}: the coordinator's ledger has no finished run")
        farewell = wire.decode_envelope(last.last or b"", wire.SMALL).body
        travelled = ledger.history(last.id)
    per_node = {}
    for name in setup.plan.nodes:
        with closing(_ledger(state, name)) as ledger:
            per_node[name] = _account(setup, ledger, last.id)
    return farewell.reason if isinstance(farewell, wire.Finish) else "", travelled, per_node, last.state


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
