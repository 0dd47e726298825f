"""Benchmarks of whole processes: an empty round, a run of case118, hundreds of nodes."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from hushgrid.broker.coordinator.star import StarCoordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.simulation.progress import Progress
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.algorithms.ladmm import Agent
from hushgrid.kernels.patterns.star import W
from hushgrid.lab.benchmarks.common.bare import (
    BARE_COMMIT,
    BLOCK,
    PATIENCE_S,
    BareCommits,
    BareRounds,
    Watch,
    echo,
    processes,
)
from hushgrid.lab.benchmarks.common.measure import ZONES, Row, Table, against, row
from hushgrid.lab.benchmarks.common.served import attend, brokers_here, coordinate
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.power_flow.device import Zone, model_of
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

CPU_MS = 0.6  #: the most processor time that an answer may take at a node, ms


# --- an empty round ---


class Idle(Agent):
    """An agent that asks its gate and then does nothing: what is left of a round is the house around the algorithm."""

    def update(self, t: int, body: W) -> None:
        self.gate.gradient(self.state.z)


class IdleMember(Member):
    """A real member; only its machine's step is empty."""

    def _assemble(self, run: bytes, plan: RunPlan) -> tuple[Driver, BudgetCheck]:
        driver, budget_check = super()._assemble(run, plan)
        real: Agent = driver.machine  # type: ignore[assignment]
        driver.machine = Idle(real.params, real.gate, real.feasible, real.shared, real.state.z, real.L)
        return driver, budget_check


def _empty(rounds: int, nodes: int) -> Scenario:
    return scenario_from(
        {
            "hushgrid": 1,
            "name": "bench-round",
            "problem": {"kind": "zones", "case": "case14", "zones": nodes},
            "algorithm": {"name": "ladmm", "rounds": rounds},
            "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 50.0},
        }
    )


def rounds(rounds: int = 400, nodes: int = 4) -> Table:
    """Milliseconds a round of a star of `nodes` processes and a coordinator, and of the bare messages alone.

    The coordinator stops every BLOCK rounds for as many bare ones: what slows this machine slows both.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-", dir=os.environ.get("HUSHGRID_BENCH_DIR")) as scratch:
        for broker in brokers_here():
            place = Path(scratch, broker)
            with start(broker, place / "broker") as running:
                rows += _beside_bare_rounds(running.url, running.name, place, rounds, nodes)
    summary = (
        f"an empty round of {nodes} node processes: one gate answer, ledger commit and message each, and the "
        "coordinator's"
    )
    return Table(name="round", summary=summary, rows=rows)


def _beside_bare_rounds(url: str, name: str, place: Path, rounds: int, nodes: int) -> list[Row]:
    fleet, setup = f"bench-{secrets.token_hex(3)}", ZoneSetup(_empty(rounds, nodes))
    members = [(_member, (url, fleet, node, list(buses), str(place))) for node, buses in setup.zones.items()]
    watch, prefix = Watch(), f"bare-{secrets.token_hex(3)}"
    echoes = [(echo, (url, f"{prefix}/down/{k}", f"{prefix}/up/{k}")) for k in range(nodes)]
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(Ledger(place / "coordinator.ledger", COORDINATOR)))
        stack.enter_context(processes(echoes))
        bare = stack.enter_context(BareRounds(url, prefix, nodes))
        commits = stack.enter_context(BareCommits(place))

        def observe(driver: Driver, fresh: bool) -> None:
            watch.seen(driver.machine.state.t, lambda: [bare.times(_size(driver), BLOCK), commits.times(BLOCK)])

        centre = StarCoordinator(fleet, setup.plan, setup.problem.case, ledger, silent_s=PATIENCE_S, observe=observe)
        stack.enter_context(processes(members, farewell_s=2.0))
        coordinate(centre, url)
    messages, commit = watch.pooled(0), watch.pooled(1)
    rival, wrote = row(f"bare paho, {name}", "ms", messages), row(f"{BARE_COMMIT}, {name}", "ms", commit)
    taken = watch.times(watch.ends)
    ratios = watch.ratios(taken, lambda times: times[0])
    ours = row(f"hushgrid, {name}", "ms", list(taken.values()), rival=rival, ratio=float(np.median(ratios)))
    at_nodes = [float(np.fromfile(place / f"{node}.cpu")[0]) for node in setup.zones]
    real = "mosquitto" in name
    return [
        against(ours, 1.8, "ratio", never=2.7) if real else ours,
        rival,
        wrote,
        against(row(f"processor time an answer at a node, {name}", "ms", at_nodes), CPU_MS),
        Row(what=f"processor time a round at the coordinator, {name}", unit="ms", value=watch.processor),
    ]


def _size(driver: Driver) -> int:
    """Bytes of a message so far, on average."""
    (sent, size), (taken, more) = driver.sent, driver.taken
    return round((size + more) / (sent + taken))


def _member(url: str, fleet: str, name: str, buses: list[int], place: str) -> None:
    case, watch = load("case14"), Watch()
    zone = Zone(name, case, model_of(name, "case14", tuple(buses)), loads(case, tuple(buses)))
    with closing(Ledger(Path(place) / f"{name}.ledger", name)) as ledger:
        seen = lambda driver, fresh: watch.seen(driver.machine.state.t)  # noqa: E731
        attend(IdleMember(fleet, zone, ledger, None, simulated=Simulated(), observe=seen), url)
    np.array([watch.processor]).tofile(Path(place) / f"{name}.cpu")


# --- a run of case118 ---


class _Stopwatch(Progress):
    """Notes when rounds are reported."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.moments: list[tuple[int, float]] = []

    def round(self, t: int, total: int, residual: float | None) -> None:
        if not self.moments or t > self.moments[-1][0]:
            self.moments.append((t, time.perf_counter()))


def case118(rounds: int = 100, local_updates: int = 5, case: str = "case118") -> Table:
    """Seconds of a whole private run through a broker, zones as processes."""
    broker = brokers_here()[0]
    raw = {
        "hushgrid": 1,
        "name": f"bench-{case}",
        "problem": {"kind": "zones", "case": case, "zones": ZONES[case]},
        "algorithm": {"name": "ladmm", "rounds": rounds, "local_updates": local_updates},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0, "mode": "input"},
    }
    watch = _Stopwatch()
    began = time.perf_counter()
    result = run(raw, transport="mqtt", broker=broker, progress=watch)
    total = time.perf_counter() - began
    (first, early), (last, late) = watch.moments[0], watch.moments[-1]
    inside = (late - early) * rounds / max(last - first, 1)
    rows = [
        against(Row(what=f"{rounds} rounds (scaled from rounds {first} to {last})", unit="s", value=inside), 10.0),
        Row(what="whole call: models, processes, rounds, results", unit="s", value=total),
    ]
    summary = f"{case}, E = {local_updates}, T = {rounds}, {result.nodes} zones as processes, {result.broker}"
    return Table(name="case118", summary=summary, rows=rows)


# --- hundreds of nodes ---


def nodes(count: int = 200, activations: int = 2000) -> Table:
    """Seconds of a whole private run of I-ADMM around a ring of `count` nodes, a process a core, one connection
    each.
    """
    broker = brokers_here()[0]
    raw = {
        "hushgrid": 1,
        "name": "bench-nodes",
        "network": {"kind": "ring", "nodes": count},
        "problem": {
            "kind": "logistic",
            "row_bound": 1.0,
            "l2": 0.1,
            "data": {"synthetic": {"rows": 20, "features": 10}, "normalize": "unit-rows"},
        },
        "algorithm": {"name": "iadmm", "rho": 1.0, "rounds": activations},
        "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 50.0},
        "run": {"processes": os.cpu_count() or 1},
    }
    watch = _Stopwatch()
    began = time.perf_counter()
    result = run(raw, transport="mqtt", broker=broker, progress=watch)
    total = time.perf_counter() - began
    (first, early), (last, late) = watch.moments[0], watch.moments[-1]
    rows = [Row(what="whole call: processes, joining, activations, results", unit="s", value=total)]
    if last > first:
        each = 1e3 * (late - early) / (last - first)
        rows.append(Row(what=f"an activation (from {first} to {last})", unit="ms", value=each))
    summary = (
        f"{result.rounds_done} activations of {count} nodes in {os.cpu_count()} processes, ledgers kept, "
        f"{result.broker}"
    )
    return Table(name="nodes", summary=summary, rows=rows)
