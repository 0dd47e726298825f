"""`hushgrid bench daemon`: real daemons, a zone's and sensors' with rows: time to ready, memory, what they have loaded."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from hushgrid.benchmarks.fleet import brokers_here
from hushgrid.benchmarks.measure import Row, Table, against, row
from hushgrid.benchmarks.real_fleets import SENSORS, ZONE_NAMES, daemon, resident_mb, run_once, sensors, zones
from hushgrid.broker.servers.choose import start

#: What no daemon is to have loaded; and neither one with rows, what only zones need.
HEAVY = ("cvxpy", "numba", "matplotlib", "rich", "networkx", "amqtt")
OF_ZONES = ("scipy", "clarabel", "hushgrid.grid_cases")
ZONE_MB = 65.0
ROWS_MB = {"numpy": 50.0, "numba": 180.0}


def daemons(starts: int = 5) -> Table:
    """Seconds until a daemon is ready, its memory then and after a run, and what it has loaded."""
    with (
        tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch,
        start(brokers_here()[0], Path(scratch) / "broker") as running,
    ):
        rows = _zone(Path(scratch, "zone"), running.url, starts)
        for mode in ROWS_MB if find_spec("numba") else ("numpy",):
            rows += _sensor(Path(scratch, mode), running.url, starts, mode)
    return Table(
        name="daemon", about=f"hushgrid node, ready as it tells systemd, caches warm, {running.name}", rows=rows
    )


def _zone(place: Path, url: str, starts: int) -> list[Row]:
    zones(place, "bench", url)
    return _measured("case14 z1", place, ZONE_NAMES, starts, ZONE_MB, HEAVY, {})


def _sensor(place: Path, url: str, starts: int, mode: str) -> list[Row]:
    """Kernels plain or compiled."""
    sensors(place, mode, url)
    forbidden = [
        m for m in (*HEAVY, *OF_ZONES) if mode == "numpy" or m not in ("numba", "scipy")
    ]  # numba itself looks which scipy there is
    return _measured(f"rows, {mode}", place, SENSORS, starts, ROWS_MB[mode], forbidden, {"HUSHGRID_KERNELS": mode})


def _measured(
    what: str,
    place: Path,
    names: Sequence[str],
    starts: int,
    most_mb: float,
    forbidden: Sequence[str],
    environment: Mapping[str, str],
) -> list[Row]:
    name, found = names[0], []
    for _ in range(1 + starts):  # the first fills the caches
        with daemon(place, name, (), environment) as (child, ready):
            time.sleep(0.3)  # what it draws ahead when nothing waits is drawn
            found.append((ready, resident_mb(child)))
    with daemon(place, name, ["-X", "importtime"], environment):
        pass
    log = (place / f"{name}.log").read_text()
    modules = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", log, re.MULTILINE))
    heavy = [m for m in forbidden if m in modules]
    after = [_after_a_run(place, names, environment) for _ in range(1 + starts)]  # the first compiles
    return [
        against(row(f"{what}: time to ready", "s", [f[0] for f in found[1:]]), 1.0),
        against(row(f"{what}: resident memory", "MB", [f[1] for f in found[1:]]), most_mb),
        against(row(f"{what}: resident after a run", "MB", after[1:]), most_mb),
        Row(what=f"{what}: modules loaded", unit="", value=len(modules)),
        against(Row(what=f"{what}: of these heavy: {', '.join(heavy) or 'none'}", unit="", value=len(heavy)), 0),
    ]


def _after_a_run(place: Path, names: Sequence[str], environment: Mapping[str, str]) -> float:
    """MB of the first of these daemons once it has taken part in a run."""
    with ExitStack() as stack:
        first, *_ = [stack.enter_context(daemon(place, name, (), environment))[0] for name in names]
        run_once(place)
        time.sleep(0.3)
        return resident_mb(first)
