"""`hushgrid bench wide`: the most memory of each role of a run whose vectors are wide, in vectors.

The run is a whole one over MQTT: launcher, coordinator and nodes are processes. What each of them has at its most in a
run of few numbers is not counted. Files that are mapped are not the launcher's memory: the system takes it back.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np

from hushgrid.broker.simulation.fleet import run_fleet
from hushgrid.broker.simulation.inputs import lay_rows
from hushgrid.broker.simulation.progress import Progress
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks.common.measure import Row, Table, against
from hushgrid.lab.benchmarks.common.served import brokers_here
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.wire import COORDINATOR

LAUNCHER, NODE = "launcher", "a node"
VECTORS = 6.0  #: the most that a role may hold
LITTLE = 100  #: numbers of a vector of the run beside it
PERIOD_S = 0.01  #: between two looks


def wide(size: int = 1_000_000, nodes: int = 4, rounds: int = 20) -> Table:
    """The most memory of each role over that of a run of LITTLE numbers, in vectors of `size` numbers."""
    small, large = _peaks(LITTLE, nodes, rounds), _peaks(size, nodes, rounds)
    rows: list[Row] = []
    for role in (LAUNCHER, COORDINATOR, NODE):
        vectors = Row(what=f"{role}: over a run of {LITTLE} numbers", unit="vectors", value=0.0)
        over = (large[role] - small[role]) / (8 * size)
        rows += [
            against(Row(what=vectors.what, unit=vectors.unit, value=over), VECTORS),
            Row(what=f"{role}: in all", unit="MB", value=large[role] / 1e6),
        ]
    summary = f"most memory by role, {nodes} nodes, {size:g} numbers, {rounds} rounds of fedavg through a broker"
    return Table(name="wide", summary=summary, rows=rows)


def _peaks(size: int, nodes: int, rounds: int) -> dict[str, float]:
    """Bytes of each role at its most."""
    raw: Document = {
        "hushgrid": 1,
        "name": "bench",
        "problem": {"kind": "logistic", "l2": 0.01, "row_bound": 1.0},
        "algorithm": {"name": "fedavg", "step_size": 1.0, "rounds": rounds},
        "privacy": {
            "adjacency": {"replace-one-record": {"clip": 1.0}},
            "mechanism": "gaussian",
            "delta": 1e-5,
            "epsilon": 10.0,
        },
    }
    draw = counter_generator(0, "bench wide", 0)
    data = []
    for _ in range(nodes):
        row = draw.normal(size=(1, size))
        data.append((row / (np.linalg.norm(row) * (1 + 1e-9)), np.ones(1)))
    arrays = lay_rows(raw, data)
    before, peaks, over = (
        _bytes("self", "RssAnon:"),
        dict.fromkeys((LAUNCHER, COORDINATOR, NODE), 0.0),
        threading.Event(),
    )

    def look() -> None:
        while not over.wait(PERIOD_S):
            peaks[LAUNCHER] = max(peaks[LAUNCHER], _bytes("self", "RssAnon:") - before)
            for process, role in _children().items():
                peaks[role] = max(peaks[role], _bytes(process, "VmHWM:"))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        run_fleet(
            scenario_from(raw), arrays=arrays, transport="mqtt", broker=brokers_here()[0], progress=Progress(quiet=True)
        )
    finally:
        over.set()
        watcher.join()
    return peaks


def _children() -> dict[str, str]:
    """The role of each process of the fleet, by its number."""
    roles: dict[str, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            command = (place / "cmdline").read_text().split("\0")
        except (OSError, ValueError, IndexError):  # it has just ended
            continue
        if parent == os.getpid() and "hushgrid.broker.simulation.processes" in command:
            roles[place.name] = COORDINATOR if f"{COORDINATOR}.json" in command[-2] else NODE
    return roles


def _bytes(process: str, key: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return 1024.0 * sum(int(line.split()[1]) for line in lines if line.startswith(key))
