"""Benchmarks of whole processes: an empty round, a run of case118, a daemon at rest."""

from __future__ import annotations

import multiprocessing
import os
import re
import secrets
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho

from hushgrid.broker.brokers import find_mosquitto, start
from hushgrid.broker.measure import ZONES, Row, Table, against, row, timed
from hushgrid.broker.progress import Progress
from hushgrid.broker.rounds import Rounds
from hushgrid.broker.simulation import run
from hushgrid.broker.zone_runs import ZoneSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.ladmm import Agent, W
from hushgrid.node.allowance import Allowance
from hushgrid.node.config import Scenario, scenario_from
from hushgrid.node.driver import Driver
from hushgrid.node.ledger import Ledger
from hushgrid.node.member import Member, Simulated
from hushgrid.node.plan import RunPlan
from hushgrid.node.serve import link_for, serve
from hushgrid.node.wire import COORDINATOR
from hushgrid.node.zones import Zone, model_of

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
            "hushgrid": 1, "name": "bench-round", "problem": {"kind": "zones", "case": "case14", "zones": nodes},
            "algorithm": {"name": "ladmm", "rounds": rounds},
            "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 50.0},
        }
    )  # fmt: skip


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
        rows.append(row("one bare SQLite commit (WAL, synchronous FULL)", "ms", _commits(Path(scratch), rounds)))
    about = f"an empty round of {nodes} node processes: one gate answer, ledger commit and message each, and the coordinator's"
    return Table(name="round", about=about, rows=rows)


def _hushgrid_rounds(url: str, place: Path, rounds: int, nodes: int) -> tuple[int, list[float]]:
    """Bytes of a message on average, and the milliseconds between the coordinator's commits of successive rounds."""
    fleet, setup = f"bench-{secrets.token_hex(3)}", ZoneSetup(_empty(rounds, nodes))
    at: dict[int, float] = {}

    def observe(driver: Driver, fresh: bool) -> None:
        at[driver.machine.state.t] = time.perf_counter()

    members = [(_member, (url, fleet, name, list(buses), str(place))) for name, buses in setup.zones.items()]
    ledger = Ledger(place / "coordinator.ledger", COORDINATOR)
    with _processes(members, farewell_s=2.0):
        centre = Rounds(fleet, setup.plan, setup.case, ledger, silent_s=PATIENCE_S, observe=observe)
        link = link_for(centre, url, None)
        try:
            link.connect(PATIENCE_S)
            serve(centre, link, lambda: centre.finished)
        finally:
            link.close(clear=centre.retained, forget=True)
    history = ledger.history(centre.run)
    ledger.close()
    if centre.error:
        raise centre.error
    _, _, messages, size = history[-1]
    times = [at[t] for t in sorted(at)]
    return round(size / messages), [1e3 * s for s in np.diff(times)[10:]]  # the first ones warm up


def _member(url: str, fleet: str, name: str, buses: list[int], place: str) -> None:
    case = load("case14")
    zone = Zone(name, case, model_of(name, "case14", tuple(buses)), loads(case, tuple(buses)))
    ledger = Ledger(Path(place) / f"{name}.ledger", name)
    member = IdleMember(fleet, zone, ledger, None, simulated=Simulated())
    link = link_for(member, url, None)
    link.connect(PATIENCE_S)
    serve(member, link, lambda: member.finished or os.getppid() == 1)
    time.sleep(0.1)
    link.close(clear=member.retained, forget=True)
    ledger.close()


def _bare_rounds(url: str, size: int, rounds: int, nodes: int) -> list[float]:
    """The same messages and nothing else: QoS 1, TCP_NODELAY, each process in its own select loop."""
    prefix = f"bare-{secrets.token_hex(3)}"
    answers = 0

    def count(client: Any, data: Any, message: Any) -> None:
        nonlocal answers
        answers += 1

    client = _paho(url, f"{prefix}-centre", f"{prefix}/up/#", count)
    taken = []
    with _processes([(_echo, (url, prefix, k, size)) for k in range(nodes)]):
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

    client = _paho(url, f"{prefix}-{k}", f"{prefix}/down/{k}", answer)
    client.publish(f"{prefix}/up/{k}", payload, qos=1)
    while os.getppid() != 1:
        client.loop(1.0)


def _paho(url: str, name: str, topic: str, on_message: Callable[[Any, Any, Any], None]) -> Any:
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
def _processes(each: list[tuple[Callable[..., None], tuple[Any, ...]]], farewell_s: float = 0.0) -> Iterator[None]:
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


def _commits(place: Path, count: int) -> list[float]:
    """Milliseconds of one transaction that updates a row of a state's size, as durable as the ledger's."""
    db = sqlite3.connect(place / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
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
        "hushgrid": 1, "name": f"bench-{case}", "problem": {"kind": "zones", "case": case, "zones": ZONES[case]},
        "algorithm": {"name": "ladmm", "rounds": rounds, "local_updates": local_updates},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0, "mode": "input"},
    }  # fmt: skip
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


# --- a daemon at rest ---


def daemon(starts: int = 5) -> Table:
    """Seconds until a real zone daemon is ready, its memory, and what it has loaded."""
    case, name, buses = load("case14"), "z1", ZONES["case14"][0]
    model_of(name, "case14", tuple(buses))  # the cache is warm, as after enrolment
    d = loads(case, tuple(buses)) * case.base_mva
    with (
        tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch,
        start(brokers_here()[0], Path(scratch) / "broker") as running,
    ):
        place = Path(scratch)
        table = [f"{b},{float(d[k])!r},{float(d[k + len(buses)])!r}" for k, b in enumerate(buses)]
        (place / "loads.csv").write_text("\n".join(["bus,p_mw,q_mvar", *table]) + "\n")
        (place / "node.yaml").write_text(
            f"node: {name}\nfleet: bench\nbroker: {running.url}\nstate: {place / 'state'}\n"
            f"data: {{case: case14, zone: {buses}, loads: loads.csv}}\n"
            "budget: {epsilon: 10.0, adjacency: {bounded-change: 0.01}}\n"
        )
        found = [_daemon_once(place, []) for _ in range(starts)]
        modules = _daemon_once(place, ["-X", "importtime"])[2]
    heavy = [m for m in ("cvxpy", "numba", "matplotlib", "rich", "networkx", "amqtt") if m in modules]
    rows = [
        against(row("time to ready", "s", [f[0] for f in found]), 1.0),
        against(row("resident memory", "MB", [f[1] for f in found]), 75.0),
        Row(what="modules loaded", unit="", value=len(modules)),
        against(Row(what=f"of these heavy: {', '.join(heavy) or 'none'}", unit="", value=len(heavy)), 0),
    ]
    return Table(name="daemon", about=f"hushgrid node on case14 {name}, {running.name}, model cache warm", rows=rows)


def _daemon_once(place: Path, flags: list[str]) -> tuple[float, float, set[str]]:
    """One daemon from start to ready (as it tells systemd) to SIGTERM: seconds, MB, imported modules (-X importtime)."""
    address = place / "notify"
    address.unlink(missing_ok=True)
    errors = place / "daemon.log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, errors.open("wb") as log:
        told.bind(str(address))
        told.settimeout(PATIENCE_S)
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *flags, "-m", "hushgrid.broker.cli", "node", str(place / "node.yaml")],
            env=os.environ | {"NOTIFY_SOCKET": str(address)}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            told.recv(64)
            ready = time.perf_counter() - began
            time.sleep(0.3)
            status = Path(f"/proc/{child.pid}/status").read_text()
            resident = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
        except TimeoutError:
            raise Stopped(f"bench daemon: not ready after {PATIENCE_S:g} s: {errors.read_text()[-200:]}") from None
        finally:
            child.terminate()
            child.wait(PATIENCE_S)
    imported = re.findall(r"^import time:.*\|\s+([\w.]+)$", errors.read_text(), re.MULTILINE)
    return ready, resident, set(imported)
