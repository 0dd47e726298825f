"""Benchmarks of whole processes: an empty round, a run of case118, hundreds of nodes."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho

from hushgrid.benchmarks.measure import ZONES, Row, Table, against, row, timed
from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.coordinator.star import StarCoordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.simulation.progress import Progress
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.algorithms.ladmm import Agent
from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.patterns.star import W
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.privacy.budget import Allowance
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.power_flow.device import Zone, model_of
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.event_loop import link_for, serve
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

PATIENCE_S = 30.0  #: for a process of ours to be there
TARGET_MS = {"mosquitto": 2.5, "embedded": 4.0}


def brokers_here() -> list[str]:
    return ["mosquitto", "embedded"] if find_mosquitto() else ["embedded"]


# --- an empty round ---


class Idle(Agent):
    """An agent that asks its gate and then does nothing: what is left of a round is the house around the algorithm."""

    def update(self, t: int, body: W) -> None:
        self.gate.gradient(self.state.z)


class IdleMember(Member):
    """A real member; only its machine's step is empty."""

    def _assemble(self, run: bytes, plan: RunPlan) -> tuple[Driver, Allowance]:
        driver, allowance = super()._assemble(run, plan)
        real: Agent = driver.machine  # type: ignore[assignment]
        driver.machine = Idle(real.params, real.gate, real.feasible, real.shared, real.state.z, real.L)
        return driver, allowance


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
    """Milliseconds a round of a star of `nodes` processes and a coordinator, and of the bare messages alone."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch:
        for broker in brokers_here():
            place = Path(scratch, broker)
            with start(broker, place / "broker") as running:
                size, taken = _hushgrid_rounds(running.url, place, rounds, nodes)
                rival = row(f"bare paho, {running.name}", "ms", _bare_rounds(running.url, size, rounds, nodes))
                ours = row(f"hushgrid, {running.name}", "ms", taken, rival=rival)
                rows += [against(ours, TARGET_MS[broker]), rival]
        rows.append(row("one bare SQLite commit (WAL, synchronous FULL)", "ms", commits(Path(scratch), rounds)))
    about = f"an empty round of {nodes} node processes: one gate answer, ledger commit and message each, and the coordinator's"
    return Table(name="round", about=about, rows=rows)


def _hushgrid_rounds(url: str, place: Path, rounds: int, nodes: int) -> tuple[int, list[float]]:
    """Bytes of a message on average, and the milliseconds between the coordinator's commits of successive rounds."""
    fleet, setup = f"bench-{secrets.token_hex(3)}", ZoneSetup(_empty(rounds, nodes))
    at: dict[int, float] = {}

    def observe(driver: Driver, fresh: bool) -> None:
        at[driver.machine.state.t] = time.perf_counter()

    members = [(_member, (url, fleet, name, list(buses), str(place))) for name, buses in setup.zones.items()]
    with closing(Ledger(place / "coordinator.ledger", COORDINATOR)) as ledger:
        centre = StarCoordinator(fleet, setup.plan, setup.problem.case, ledger, silent_s=PATIENCE_S, observe=observe)
        with processes(members, farewell_s=2.0):
            coordinate(centre, url)
        _, _, messages, size = ledger.history(centre.run)[-1]
    times = [at[t] for t in sorted(at)]
    return round(size / messages), [1e3 * s for s in np.diff(times)[10:]]  # the first ones warm up


def _member(url: str, fleet: str, name: str, buses: list[int], place: str) -> None:
    case = load("case14")
    zone = Zone(name, case, model_of(name, "case14", tuple(buses)), loads(case, tuple(buses)))
    with closing(Ledger(Path(place) / f"{name}.ledger", name)) as ledger:
        attend(IdleMember(fleet, zone, ledger, None, simulated=Simulated()), url)


def coordinate(centre: Coordinator, url: str) -> None:
    """Its whole run; its error, where it has one."""
    link = link_for(centre, url, None)
    try:
        link.connect(PATIENCE_S)
        serve(centre, link, lambda: centre.finished)
    finally:
        link.close(clear=centre.retained, forget=True)
    if centre.error:
        raise centre.error


def attend(member: Member, url: str) -> None:
    """It takes part until the run has ended, or whoever started its process is gone."""
    link = link_for(member, url, None)
    link.connect(PATIENCE_S)
    serve(member, link, lambda: member.finished or os.getppid() == 1)
    link.close(clear=member.retained, forget=True)


def _bare_rounds(url: str, size: int, rounds: int, nodes: int) -> list[float]:
    """The same messages and nothing else: QoS 1, TCP_NODELAY, each process in its own select loop."""
    prefix = f"bare-{secrets.token_hex(3)}"
    answers = 0

    def count(client: Any, data: Any, message: Any) -> None:
        nonlocal answers
        answers += 1

    client = bare_client(url, f"{prefix}-centre", f"{prefix}/up/#", count)
    taken = []
    with processes([(_echo, (url, prefix, k, size)) for k in range(nodes)]):
        deadline = time.monotonic() + PATIENCE_S
        while answers < nodes:  # each says once that it is there
            client.loop(0.1)
            if time.monotonic() > deadline:
                raise Stopped(f"bench round: {nodes - answers} bare processes not there after {PATIENCE_S:g} s")
        payload = os.urandom(size)
        for _ in range(rounds):
            answers = 0
            began = time.perf_counter()
            for k in range(nodes):
                client.publish(f"{prefix}/down/{k}", payload, qos=1)
            while answers < nodes:
                client.loop(1.0)
            taken.append(1e3 * (time.perf_counter() - began))
        client.disconnect()
    return taken[10:]


def _echo(url: str, prefix: str, k: int, size: int) -> None:
    payload = os.urandom(size)

    def answer(client: Any, data: Any, message: Any) -> None:
        client.publish(f"{prefix}/up/{k}", payload, qos=1)

    client = bare_client(url, f"{prefix}-{k}", f"{prefix}/down/{k}", answer)
    client.publish(f"{prefix}/up/{k}", payload, qos=1)
    while os.getppid() != 1:
        client.loop(1.0)


def bare_client(
    url: str, name: str, topic: str | list[tuple[str, int]], on_message: Callable[[Any, Any, Any], None]
) -> Any:
    """A subscribed paho client on a broker of ours."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv311)
    subscribed: list[bool] = []
    client.on_socket_open = lambda c, data, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.on_connect = lambda c, *_: c.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: subscribed.append(True)
    client.on_message = on_message
    client.connect("127.0.0.1", int(url.rpartition(":")[2]), keepalive=60)
    deadline = time.monotonic() + PATIENCE_S
    while not subscribed:
        client.loop(0.1)
        if time.monotonic() > deadline:
            raise Stopped(f"bench round: {name} not subscribed after {PATIENCE_S:g} s")
    return client


@contextmanager
def processes(each: list[tuple[Callable[..., None], tuple[Any, ...]]], farewell_s: float = 0.0) -> Iterator[None]:
    """Fresh processes, ended at the end if they have not by themselves within `farewell_s`."""
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=target, args=args, daemon=True) for target, args in each]
    for process in running:
        process.start()
    try:
        yield
        for process in running:
            process.join(farewell_s)
    finally:
        for process in running:
            process.terminate()
            process.join()


def commits(place: Path, count: int) -> list[float]:
    """Milliseconds of one transaction that updates a row of a state's size, as durable as the ledger's."""
    db = sqlite3.connect(place / "bare.db", isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 100")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, state BLOB)")
    state = os.urandom(2000)

    def commit() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT OR REPLACE INTO t VALUES (1, ?)", (state,))
        db.execute("COMMIT")

    taken = [1e3 * s for s in timed(commit, count)]
    db.close()
    return taken


# --- a run of case118 ---


class _Stopwatch(Progress):
    """Notes when rounds are reported."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.at: list[tuple[int, float]] = []

    def round(self, t: int, total: int, residual: float | None) -> None:
        if not self.at or t > self.at[-1][0]:
            self.at.append((t, time.perf_counter()))


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
    whole = time.perf_counter() - began
    (first, early), (last, late) = watch.at[0], watch.at[-1]
    inside = (late - early) * rounds / max(last - first, 1)
    rows = [
        against(Row(what=f"{rounds} rounds (scaled from rounds {first} to {last})", unit="s", value=inside), 10.0),
        Row(what="whole call: models, processes, rounds, results", unit="s", value=whole),
    ]
    about = f"{case}, E = {local_updates}, T = {rounds}, {result.nodes} zones as processes, {result.broker}"
    return Table(name="case118", about=about, rows=rows)


# --- hundreds of nodes ---


def nodes(count: int = 200, activations: int = 2000) -> Table:
    """Seconds of a whole private run of I-ADMM around a ring of `count` nodes, a process a core, one connection each."""
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
    whole = time.perf_counter() - began
    (first, early), (last, late) = watch.at[0], watch.at[-1]
    rows = [Row(what="whole call: processes, joining, activations, results", unit="s", value=whole)]
    if last > first:
        each = 1e3 * (late - early) / (last - first)
        rows.append(Row(what=f"an activation (from {first} to {last})", unit="ms", value=each))
    about = f"{result.rounds_done} activations of {count} nodes in {os.cpu_count()} processes, ledgers kept, {result.broker}"
    return Table(name="nodes", about=about, rows=rows)
