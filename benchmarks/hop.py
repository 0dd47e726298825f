"""`hushgrid bench hop`: a token from one activation's commit to the next one's, beside the bare message and commit."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.benchmarks.fleet import PATIENCE_S, attend, bare_client, brokers_here, commits, coordinate, processes
from hushgrid.benchmarks.measure import Row, Table, against, row
from hushgrid.broker.coordinator.token import TokenCoordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.errors import Stopped
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

TARGET_MS = 1.0
FEATURES = 15
WARM = 100  #: first hops, not counted


def walk(hops: int, nodes: int, guarded: bool) -> Scenario:
    """RECAL around a ring: a token of about 400 bytes."""
    return small(nodes, guarded, name="recal", walk="hamiltonian", rounds=hops)


def small(nodes: int, guarded: bool, **algorithm: Any) -> Scenario:
    """A ring with little to compute, of FEATURES unknowns. Guarded, each answer spends and adds exact noise."""
    privacy = {"epsilon": 50.0, "adjacency": {"replace-one-record": {"clip": 1.0}}}
    return scenario_from(
        {
            "hushgrid": 1,
            "name": "bench",
            "network": {"kind": "ring", "nodes": nodes},
            "problem": {
                "kind": "logistic",
                "row_bound": 1.0,
                "l2": 0.1,
                "data": {"synthetic": {"rows": 20, "features": FEATURES}, "normalize": "unit-rows"},
            },
            "algorithm": algorithm | {"variant": "guarded" if guarded else "none"},
        }
        | ({"privacy": privacy} if guarded else {})
    )


def hop(hops: int = 2000, rings: tuple[int, ...] = (2, 4)) -> Table:
    """Milliseconds a hop between member processes, each hop's state (guarded: and spend) in the ledger before it is sent.

    Between two of them, as many as the ping-pong has; and around a ring of more, which share this machine's processors.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch:
        commit = row("one bare SQLite commit (WAL, synchronous FULL)", "ms", commits(Path(scratch), hops))
        for broker in brokers_here():
            with start(broker, Path(scratch, broker)) as running:
                found = []
                for nodes, guarded in product(rings, (True, False)):
                    place = Path(scratch, f"{broker}-{nodes}-{guarded}")
                    size, taken = _hops(running.url, place, walk(hops, nodes, guarded))
                    found.append((nodes, guarded, taken))
                rival = row(f"half a bare paho ping-pong, {running.name}", "ms", _ping_pong(running.url, size, hops))
            for nodes, guarded, taken in found:
                what = f"hop, {nodes} nodes, {'guarded' if guarded else 'variant none'}, {running.name}"
                rows.append(against(row(what, "ms", taken, rival=rival), TARGET_MS))
                rows.append(row(f"the same hop, {running.name}", "ms", taken, rival=commit))
            rows.append(rival)
        about = f"RECAL around a ring of member processes, a token of {size} bytes, ledgers on {file_system(scratch)}"
    return Table(name="hop", about=about, rows=[*rows, commit])


def _hops(url: str, place: Path, scenario: Scenario) -> tuple[int, list[float]]:
    """Bytes of a token, and the milliseconds between the commits of successive activations."""
    fleet, setup = f"bench-{secrets.token_hex(3)}", RowSetup(scenario)
    members = [(_member, (url, fleet, name, scenario, str(place))) for name in setup.plan.nodes]
    with closing(Ledger(place / "coordinator.ledger", COORDINATOR)) as ledger, processes(members, farewell_s=5.0):
        coordinate(TokenCoordinator(fleet, setup.plan, "", ledger, silent_s=PATIENCE_S), url)
    found = [np.fromfile(place / f"{name}.hops").reshape(-1, 3) for name in setup.plan.nodes]
    size = sum(of_node[-1, 2] for of_node in found) / (scenario.algorithm.rounds - 1)
    hop, at, _ = np.concatenate(found).T
    return round(size), list(1e3 * np.diff(at[np.argsort(hop)])[WARM:])


def _member(url: str, fleet: str, name: str, scenario: Scenario, place: str) -> None:
    """A member, and when it made which activation, with the bytes of its tokens so far.

    The clock is the machine's own, one for all processes.
    """
    hops: dict[int, tuple[float, int]] = {}

    def observe(driver: Driver, fresh: bool) -> None:
        hops.setdefault(driver.machine.state.t, (time.perf_counter(), driver.sent[1]))

    device = RowSetup(scenario).device(name)
    with closing(Ledger(Path(place) / f"{name}.ledger", name)) as ledger:
        attend(Member(fleet, device, ledger, None, simulated=Simulated(), observe=observe), url)
    np.array([(t, *seen) for t, seen in hops.items() if t]).tofile(Path(place) / f"{name}.hops")


def _ping_pong(url: str, size: int, count: int) -> list[float]:
    """Half the milliseconds of a round trip of `size` bytes and back, QoS 1, TCP_NODELAY, to a process that echoes."""
    prefix = f"bare-{secrets.token_hex(3)}"
    back: list[Any] = []
    client = bare_client(url, f"{prefix}-ping", f"{prefix}/pong", lambda c, data, message: back.append(message))
    payload, taken = os.urandom(size), []
    with processes([(_echo, (url, prefix))]):
        deadline = time.monotonic() + PATIENCE_S
        while not back:  # it says once that it is there
            client.loop(0.1)
            if time.monotonic() > deadline:
                raise Stopped(f"bench hop: no echo after {PATIENCE_S:g} s")
        for _ in range(count):
            back.clear()
            began = time.perf_counter()
            client.publish(f"{prefix}/ping", payload, qos=1)
            while not back:
                client.loop(1.0)
            taken.append(0.5e3 * (time.perf_counter() - began))
        client.disconnect()
    return taken[WARM:]


def _echo(url: str, prefix: str) -> None:
    client = bare_client(
        url,
        f"{prefix}-pong",
        f"{prefix}/ping",
        lambda c, data, message: c.publish(f"{prefix}/pong", message.payload, qos=1),
    )
    client.publish(f"{prefix}/pong", b"", qos=1)
    while os.getppid() != 1:
        client.loop(1.0)


def file_system(path: str) -> str:
    """The kind of file system a path is on, as the kernel calls it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    real = Path(path).resolve()
    return max((m for m in mounts if real.is_relative_to(m[0])), key=lambda m: len(m[0]))[1]
