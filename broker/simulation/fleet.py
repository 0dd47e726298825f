"""`hushgrid run`: a whole fleet on one machine, over the memory transport or as processes over MQTT.

Every node started here is simulated: it takes its loads from the case, and may take a seed, a published variant, no
privacy, or `truth`. The members, the coordinator, the driver and the ledgers are the ones that devices run.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from math import inf
from pathlib import Path
from typing import cast

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.report.result import Result
from hushgrid.broker.servers.choose import check_choice
from hushgrid.broker.simulation import on_brokers, results
from hushgrid.broker.simulation.interrupts import Interrupted, Interrupts
from hushgrid.broker.simulation.memory import MemoryBroker, Served
from hushgrid.broker.simulation.problems.base import Finished, Setup
from hushgrid.broker.simulation.progress import Progress
from hushgrid.broker.simulation.recorders.base import Observer
from hushgrid.broker.simulation.setup import prepare
from hushgrid.broker.simulation.started import Ledgers, Started, Transcript
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site, below_of, fleet_of
from hushgrid.broker.sites.upper import UpperMember
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.kernels.privacy.accounting import total_epsilon
from hushgrid.kernels.types import Document
from hushgrid.node import wire
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.privacy.budget import spent_in, worth_alone
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.renewal import Renewal
from hushgrid.node.problems.plan import RunPlan, warnings
from hushgrid.node.problems.records.data import Arrays
from hushgrid.node.problems.rolling import Point
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR


def run_fleet(
    checked: Scenario,
    file: str = "scenario",
    transport: str = "memory",
    out: str | Path | None = None,
    state: str | Path | None = None,
    *,
    arrays: Arrays | None = None,
    broker: str = "auto",
    progress: Progress | None = None,
    silent_s: float = 30.0,
    interrupts: Interrupts | None = None,
    before: Point | None = None,
) -> Result:
    """Run a checked scenario, as `front.run` says; arrays: its nodes' rows; file: its name in errors.

    before: where storage and generators stood when its day began.
    """
    target = Path(out) if out is not None else None
    _check(checked, file, transport, broker, target, state)
    progress = progress or Progress(quiet=True)
    setup = prepare(checked, file, arrays, before)
    if transport == "mqtt" and "://" in broker and setup.plan.sites:
        raise InputError(
            f"--broker: found {broker} with sites, expected auto, embedded or mosquitto: each site has its own"
        )
    progress.phase(f"{checked.name}: {setup.description}")
    for warning in warnings(setup.plan, checked.kind.source(checked.problem)):
        progress.phase(f"warning: {warning}")
    began = time.perf_counter()
    with nullcontext(interrupts) if interrupts else Interrupts() as signals, scratch(signals) as place:
        ledgers = Ledgers(place / "state", False, {}) if state is None else Ledgers(Path(state), True, {})
        started = Started(setup, ledgers, place, progress, signals, {})
        _open(started)
        with signals.held():
            try:
                if transport == "memory":
                    name, transcript = _memory(started)
                else:
                    name, transcript = on_brokers.run(started, broker, silent_s)
            except Stopped as error:
                raise type(error)(f"{error}{_paid(started)}") from None
        signals.check()
        wall_s = time.perf_counter() - began
        reason, travelled, per_node, centre = _read(started)
        below = _below(started)
        over = Finished(
            trace=place,
            travelled=travelled,
            centre=centre,
            stopped_because=reason,
            transport=transport,
            broker=name,
            wall_s=wall_s,
            ledgers_kept=state is not None,
            per_node=per_node,
            transcript=transcript,
            below=below,
            seconds=started.seconds,
        )
        result = setup.collect(over)
        if target is not None:
            progress.phase(f"writing {target}")
            _write(result, started, target)
    return result


def _check(
    scenario: Scenario, file: str, transport: str, broker: str, target: Path | None, state: str | Path | None
) -> None:
    """Raises InputError unless the transport is one, takes this scenario, and what is written can be."""
    if transport not in ("memory", "mqtt"):
        raise InputError(f"transport: found {transport!r}, expected memory or mqtt")
    if transport == "mqtt" and scenario.run.faults is not None:
        raise InputError(
            f"{file}: run.faults: found with transport mqtt, expected memory (faults are injected there only)"
        )
    if transport == "mqtt":
        check_choice(broker)
    if target is not None:
        results.check_out(target)
    if state is not None:
        results.check_place(Path(state), "--state")


def _open(run: Started) -> None:
    """Ledgers that outlive the run take up where they were: at no run, and with the data of now."""
    if not run.ledgers.durable:
        return
    sites = run.setup.plan.sites
    of_sites = [(name, file) for site in sites for name, file in ((site, site), (COORDINATOR, below_of(site)))]
    for name, file in [*((name, name) for name in run.members), *of_sites]:
        with closing(run.ledgers.open(name, file=file)) as ledger:
            ledger.runs.abandon()  # what an earlier run left unfinished is not gone on with
            if name in run.setup.plan.nodes:
                ledger.saw_data(run.setup.stamp)


def _write(result: Result, run: Started, target: Path) -> None:
    """The run directory, with a copy of every ledger; nothing stays of it if its writing is interrupted."""
    copies = [run.place / "ledger" / f"{name}.ledger" for name in run.members]
    copies[0].parent.mkdir()
    for name, copy in zip(run.members, copies, strict=True):
        with closing(run.ledgers.open(name)) as ledger:
            ledger.copy_to(copy)
    resolved = run.setup.resolved
    case = Path(str(resolved["problem"].get("case", "")))
    if case.suffix == ".npz":  # it may be a file of this run alone: the directory has a copy
        resolved["problem"] |= {"case": case.name}
        copies.append(case)
    try:
        results.write(result, resolved, copies, target)
    except Interrupted:
        shutil.rmtree(target, ignore_errors=True)  # it had not been there before
        raise


@contextmanager
def scratch(signals: Interrupts) -> Iterator[Path]:
    """A directory for the time of a run: a signal that comes while it is made or removed finds all of it, or
    nothing.
    """
    with signals.held():
        directory = tempfile.TemporaryDirectory(prefix="hushgrid-")
    try:
        signals.check()
        yield Path(directory.name)
    finally:
        with signals.held():
            directory.cleanup()


def _memory(run: Started) -> tuple[str, Transcript]:
    """The fleet in this process: the broker's name and, if the scenario asks for it, every message."""
    setup, scenario = run.setup, run.setup.scenario
    eavesdropper = run.eavesdropper
    crashes = scenario.run.faults is not None and scenario.run.faults.crash > 0
    with ExitStack() as stack:
        names = (*run.members, *scenario.kind.sites(setup.plan.problem))
        traces = {name: stack.enter_context(closing(setup.trace(name, run.place))) for name in names}
        opened: dict[str, Ledger] = {}

        @stack.callback
        def close() -> None:
            for ledger in opened.values():
                ledger.close()

        def build(name: str) -> Served:
            if name in opened:
                opened[name].close()
            run.signals.check()
            ledger = opened[name] = run.ledgers.open(name, buffered=not crashes)
            if name in setup.plan.sites:
                return site(run, name, opened, buffered=not crashes, observe=traces.get(name))
            if name == COORDINATOR:
                return coordinator(
                    scenario.fleet,
                    setup.plan,
                    scenario.kind.source(scenario.problem),
                    ledger,
                    **setup.beginning,
                    wait_s=inf,
                    silent_s=inf,
                    observe=traces[name],
                    progress=run.progress.round,
                )
            return Member(
                fleet_of(scenario.fleet, setup.plan.site_of.get(name, "")),
                setup.device(name),
                ledger,
                setup.budget,
                simulated=Simulated(scenario.seed),
                observe=traces[name],
            )

        members = [build(name) for name in (*run.members, *setup.plan.sites)]
        hub = MemoryBroker(members, build, scenario.run.faults, eavesdropper, setup.threads, encoded=False)
        run.progress.phase(f"{scenario.name}: {len(setup.plan.nodes)} nodes in this process")

        def centre() -> Coordinator:
            return cast(Coordinator, hub.endpoints[COORDINATOR])

        def over() -> bool:
            ends = hub.endpoints
            return ends[COORDINATOR].finished and all(ends[site].finished for site in setup.plan.sites)

        hub.run(over, run.signals)
        if run.signals() and not centre().finished:
            hub.publish(centre().stop(f"interrupted by {run.signals.name}"))
            hub.run(over)
        centre().conclude()
        run.seconds.update(hub.seconds)
        if error := centre().error:
            raise error
    return "memory", eavesdropper.lines if eavesdropper else None


def site(
    run: Started, name: str, opened: dict[str, Ledger], *, buffered: bool, observe: Observer | None = None
) -> Site:
    """A site of the fleet in this process, with its two ledgers, which are among those `opened`."""
    setup, fleet, file = run.setup, run.setup.scenario.fleet, below_of(name)

    def begin(plan: RunPlan, among: list[str] | None) -> SiteCoordinator:
        source = setup.scenario.kind.source(setup.scenario.problem)
        if file in opened:  # of before a crash
            opened[file].close()
        below = opened[file] = run.ledgers.open(COORDINATOR, buffered=buffered, file=file)
        return SiteCoordinator(name, fleet_of(fleet, name), plan, source, below, among=among, observe=observe)

    return Site(UpperMember(setup.site(name), fleet, opened[name]), begin)


def _read(run: Started) -> tuple[str, list[tuple[int, float, int, int]], dict[str, Document], bytes | None]:
    """Why the run ended, what travelled and the last state, from the coordinator's ledger; each node's account, from
    its own.
    """
    with closing(run.ledgers.open(COORDINATOR)) as ledger:
        last = ledger.runs.last(state=run.setup.reads_state)
        if last is None or last.status != "done":
            raise Stopped(f"{run.setup.plan.name}: the coordinator's ledger has no finished run")
        farewell = wire.decode_envelope(last.last or b"", wire.SMALL).body
        travelled = ledger.runs.history(last.id)
    per_node = {}
    for name in run.setup.plan.nodes:
        with closing(run.ledgers.open(name)) as ledger:
            its = ledger.runs.last() if run.setup.plan.sites else None  # its site's run
            per_node[name] = _account(run.setup, ledger, its.id if its else last.id)
    return farewell.reason if isinstance(farewell, wire.Finish) else "", travelled, per_node, last.state


def _below(run: Started) -> tuple[int, int]:
    """Messages and bytes between sites and their devices; (0, 0) without sites."""
    messages, size = 0, 0
    for name in run.setup.plan.sites:
        with closing(run.ledgers.open(COORDINATOR, file=below_of(name))) as ledger:
            last = ledger.runs.last()
            history = ledger.runs.history(last.id) if last else []
            messages, size = messages + history[-1][2], size + history[-1][3]
    return messages, size


def _paid(run: Started) -> str:
    """What a run that ended badly has cost the node that spent most, for its last line; nothing if it cost nothing."""
    most, setup = 0.0, run.setup
    for name in setup.plan.nodes if setup.terms else ():
        if run.ledgers.exist(name):
            with closing(run.ledgers.open(name)) as ledger:
                last = ledger.runs.last(state=False)
                spent = _account(setup, ledger, last.id)["spent"]["epsilon"] if last else 0.0
                most = max(most, inf if spent is None else spent)
    return f"; spent of a node at most: epsilon {most:.6g}" if most else ""


def _account(setup: Setup, ledger: Ledger, run: bytes) -> Document:
    """One node: claimed, spent in this run, spent in its ledger over all runs, and what is left of its budget."""
    t = setup.plan.terms_of(ledger.node)
    if t is None:
        return {"claimed": None, "spent": None, "ledger": None, "left": None}
    answered = ledger.spends.answers(run)
    delta = (setup.budget.delta if setup.budget else None) or t.delta
    total = total_epsilon(ledger.spends.totals(t.adjacency), delta)
    if total > t.epsilon and ledger.spends.answers() == answered and t.growth == 1:
        total = t.epsilon if not t.published else total  # the run's own accountant is the better bound
    levels: Document = {}
    if t.masked is not None and t.masked.sites is not None:
        for key in ("at_site", "alone"):
            shares = ledger.spends.shares(t.adjacency, at_site=key == "at_site")
            levels[key] = {"epsilon": _number(worth_alone(sum(shares), delta)), "delta": delta}
    remaining = max(setup.budget.epsilon - total, 0.0) if setup.budget else None
    if setup.budget and setup.budget.span:
        remaining = Renewal(ledger, setup.budget, t.adjacency, delta).left
    return {
        "claimed": {"epsilon": t.epsilon, "delta": t.delta},
        "spent": {"epsilon": _number(total if t.published else spent_in(ledger, run, t)), "delta": t.delta},
        "answers": answered,
        "cap": t.answers,
        "ledger": {"epsilon": _number(total), "delta": delta},
        "left": remaining,
        **levels,
    }


def _number(value: float) -> float | None:
    """JSON has no infinity: null, which the report reads as unbounded."""
    return value if value != inf else None
