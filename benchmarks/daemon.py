"""`hushgrid bench daemon`: real daemons, a zone's and sensors' with rows: time to ready, memory, what they have loaded."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hushgrid.benchmarks.bare import PATIENCE_S
from hushgrid.benchmarks.fleet import brokers_here
from hushgrid.benchmarks.measure import ZONES, Row, Table, against, row
from hushgrid.broker.servers.choose import start
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.errors import Stopped
from hushgrid.node.problems.power_flow.device import model_of

#: What no daemon is to have loaded; and neither one with rows, what only zones need.
HEAVY = ("cvxpy", "numba", "matplotlib", "rich", "networkx", "amqtt")
OF_ZONES = ("scipy", "clarabel", "hushgrid.grid_cases")
BARS_MB = {"numpy": 50.0, "numba": 170.0}
ACTIVATIONS = 40


def daemon(starts: int = 5) -> Table:
    """Seconds until a daemon is ready, its memory then (with rows: after a run too), and what it has loaded."""
    with (
        tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch,
        start(brokers_here()[0], Path(scratch) / "broker") as running,
    ):
        rows = _zone(Path(scratch, "zone"), running.url, starts)
        for mode in BARS_MB if find_spec("numba") else ("numpy",):
            rows += _sensor(Path(scratch, mode), running.url, starts, mode)
    return Table(
        name="daemon", about=f"hushgrid node, ready as it tells systemd, caches warm, {running.name}", rows=rows
    )


def _zone(place: Path, url: str, starts: int) -> list[Row]:
    case, name, buses = load("case14"), "z1", ZONES["case14"][0]
    model_of(name, "case14", tuple(buses))  # the cache is warm, as after enrolment
    d = loads(case, tuple(buses)) * case.base_mva
    place.mkdir()
    table = [f"{b},{float(d[k])!r},{float(d[k + len(buses)])!r}" for k, b in enumerate(buses)]
    (place / "loads.csv").write_text("\n".join(["bus,p_mw,q_mvar", *table]) + "\n")
    (place / "z1.yaml").write_text(
        f"node: {name}\nfleet: bench\nbroker: {url}\nstate: state\n"
        f"data: {{case: case14, zone: {buses}, loads: loads.csv}}\n"
        "budget: {epsilon: 10.0, adjacency: {bounded-change: 0.01}}\n"
    )
    return _at_rest("case14 z1", place, "z1", starts, 75.0, HEAVY, {})


def _sensor(place: Path, url: str, starts: int, mode: str) -> list[Row]:
    """Two daemons with 500 rows of 22 features each, kernels plain or compiled."""
    place.mkdir()
    rng = np.random.default_rng(1)
    for name in ("n0", "n1"):
        np.savez(place / f"{name}.npz", A=rng.normal(size=(500, 22)) / 22, b=np.where(rng.random(500) < 0.5, 1.0, -1.0))
        (place / f"{name}.yaml").write_text(
            f"node: {name}\nfleet: {mode}\nbroker: {url}\nstate: state\ndata: {name}.npz\n"
            "labels: {classes: 2}\n"
            "budget: {epsilon: 1.0e9, adjacency: {replace-one-record: {clip: 1.0}}}\n"
        )
    (place / "scenario.yaml").write_text(
        "hushgrid: 1\nname: bench\nnetwork: {kind: path, nodes: 2}\n"
        "problem: {kind: logistic, data: {devices: {features: 22, rows: 500}}, row_bound: 1.0, l2: 0.1}\n"
        f"algorithm: {{name: recal, rounds: {ACTIVATIONS}}}\n"
        "privacy: {epsilon: 10.0, adjacency: {replace-one-record: {clip: 1.0}}}\n"
    )
    (place / "coordinator.yaml").write_text(f"fleet: {mode}\nbroker: {url}\nstate: state\nscenario: scenario.yaml\n")
    environment, what, most = {"HUSHGRID_KERNELS": mode}, f"rows, {mode}", BARS_MB[mode]
    forbidden = [
        m for m in (*HEAVY, *OF_ZONES) if mode == "numpy" or m not in ("numba", "scipy")
    ]  # numba itself looks which scipy there is
    rows = _at_rest(what, place, "n0", starts, most, forbidden, environment)
    found = [_after_a_run(place, environment) for _ in range(1 + starts)]  # the first compiles
    return [*rows[:2], against(row(f"{what}: resident after a run", "MB", found[1:]), most), *rows[2:]]


def _at_rest(
    what: str,
    place: Path,
    name: str,
    starts: int,
    most_mb: float,
    forbidden: Sequence[str],
    environment: Mapping[str, str],
) -> list[Row]:
    found = []
    for _ in range(1 + starts):  # the first fills the caches
        with _daemon(place, name, [], environment) as (child, ready):
            found.append((ready, _resident_mb(child)))
    with _daemon(place, name, ["-X", "importtime"], environment):
        pass
    log = (place / f"{name}.log").read_text()
    modules = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", log, re.MULTILINE))
    heavy = [m for m in forbidden if m in modules]
    return [
        against(row(f"{what}: time to ready", "s", [f[0] for f in found[1:]]), 1.0),
        against(row(f"{what}: resident memory", "MB", [f[1] for f in found[1:]]), most_mb),
        Row(what=f"{what}: modules loaded", unit="", value=len(modules)),
        against(Row(what=f"{what}: of these heavy: {', '.join(heavy) or 'none'}", unit="", value=len(heavy)), 0),
    ]


def _after_a_run(place: Path, environment: Mapping[str, str]) -> float:
    """MB of a daemon that has taken part in a run, its kernels loaded."""
    with _daemon(place, "n0", [], environment) as (child, _), _daemon(place, "n1", [], environment):
        ended = subprocess.run(
            [sys.executable, "-m", "hushgrid", "coordinator", str(place / "coordinator.yaml"), "--once"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if ended.returncode:
            raise Stopped(f"bench daemon: {ended.stderr.decode(errors='replace').strip().splitlines()[-1]}")
        return _resident_mb(child)


@contextmanager
def _daemon(
    place: Path, name: str, flags: list[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A daemon, ready as it tells systemd, and the seconds it took; ended by SIGTERM. Its bytecode is kept, in `place`."""
    address, log = place / f"{name}.notify", place / f"{name}.log"
    address.unlink(missing_ok=True)
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    own |= {"NOTIFY_SOCKET": str(address), "PYTHONPYCACHEPREFIX": str(place / "bytecode"), **environment}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, log.open("wb") as errors:
        told.bind(str(address))
        told.settimeout(PATIENCE_S)
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *flags, "-m", "hushgrid", "node", str(place / f"{name}.yaml")],
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
        try:
            told.recv(64)
            yield child, time.perf_counter() - began
        except TimeoutError:
            raise Stopped(f"bench daemon: not ready after {PATIENCE_S:g} s: {log.read_text()[-200:]}") from None
        finally:
            child.terminate()
            child.wait(PATIENCE_S)


def _resident_mb(child: subprocess.Popen[bytes]) -> float:
    time.sleep(0.3)  # what it draws ahead when nothing waits is drawn
    status = Path(f"/proc/{child.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
