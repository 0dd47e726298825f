"""`hushgrid bench daemon`: real daemons, a zone's and sensors' with rows: time to ready, memory, what they have loaded.

And small fleets of real daemons for other benchmarks: three zones of case14, two sensors with rows, each with a
coordinator.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hushgrid.broker.servers.choose import start
from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.errors import Stopped
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S
from hushgrid.lab.benchmarks.common.measure import ZONES, Row, Table, against, row
from hushgrid.lab.benchmarks.common.served import brokers_here
from hushgrid.node.problems.power_flow.device import model_of
from hushgrid.node.wire import COORDINATOR

#: What no daemon is to have loaded; and neither one with rows, what only zones need.
HEAVY = ("cvxpy", "scipy", "numba", "matplotlib", "rich", "networkx", "amqtt")
OF_ZONES = ("clarabel", "hushgrid.grid_cases")
ZONE_MB = 65.0
SMALL_BYTES, SMALL_SHARE = 48_000_000, 0.05  #: a zone runs within these, of a processor
ROWS_MB = {"numpy": 50.0, "numba": 180.0}
ZONE_NAMES = ("z1", "z2", "z3")
SENSORS = ("n0", "n1")
ROWS, FEATURES = 500, 22


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
        name="daemon", summary=f"hushgrid node, ready as it tells systemd, caches warm, {running.name}", rows=rows
    )


def _zone(place: Path, url: str, starts: int) -> list[Row]:
    zones(place, "bench", url)
    return [*_measured("case14 z1", place, ZONE_NAMES, starts, ZONE_MB, HEAVY, {}), *_small(place, starts)]


def _small(place: Path, starts: int) -> list[Row]:
    """The same zone where memory and processor are little; nothing where no control group can be made.

    The others stand beside it: files that they have read are theirs.
    """
    taken, peaks, what = [], [], f"case14 z1 in {SMALL_BYTES / 1e6:g} MB, {SMALL_SHARE:.0%} of a processor"
    with ExitStack() as stack:
        for name in ZONE_NAMES[1:]:
            stack.enter_context(daemon(place, name))
        for _ in range(starts):
            try:
                group = Group(SMALL_BYTES, SMALL_SHARE)
            except Stopped:
                return []
            try:
                with daemon(place, ZONE_NAMES[0], within=group.within) as (_, ready):
                    run_once(place)
                taken.append(ready)
                peaks.append(group.peak / 1e6)
            finally:
                group.remove()
    return [
        row(f"{what}: time to ready", "s", taken),
        against(row(f"{what}: most memory, a run done", "MB", peaks), SMALL_BYTES / 1e6),
    ]


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
    name, seconds = names[0], []
    for _ in range(1 + starts):  # the first fills the caches
        with daemon(place, name, (), environment) as (child, ready):
            time.sleep(0.3)  # what it draws ahead when nothing waits is drawn
            seconds.append((ready, resident_mb(child)))
    with daemon(place, name, ["-X", "importtime"], environment):
        pass
    log = (place / f"{name}.log").read_text()
    modules = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", log, re.MULTILINE))
    heavy = [m for m in forbidden if m in modules]
    after = [_after_a_run(place, names, environment) for _ in range(1 + starts)]  # the first compiles
    return [
        against(row(f"{what}: time to ready", "s", [f[0] for f in seconds[1:]]), 1.0),
        against(row(f"{what}: resident memory", "MB", [f[1] for f in seconds[1:]]), most_mb),
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


# --- fleets ---


def zones(place: Path, fleet: str, url: str, rounds: int = 20) -> None:
    """The files of three zones of case14 and of their coordinator. Their models are in the cache, as after
    enrolment.
    """
    place.mkdir()
    case = load("case14")
    for name, buses in zip(ZONE_NAMES, ZONES["case14"], strict=True):
        model_of(name, "case14", tuple(buses))
        d = loads(case, tuple(buses)) * case.base_mva
        table = [f"{b},{float(d[k])!r},{float(d[k + len(buses)])!r}" for k, b in enumerate(buses)]
        (place / f"loads-{name}.csv").write_text("\n".join(["bus,p_mw,q_mvar", *table]) + "\n")
        (place / f"{name}.yaml").write_text(
            f"node: {name}\nfleet: {fleet}\nbroker: {url}\nstate: state/{name}\n"
            f"data: {{case: case14, zone: {buses}, loads: loads-{name}.csv}}\n"
            "budget: {epsilon: 1.0e9, adjacency: {bounded-change: 0.01}}\n"
        )
    (place / "scenario.yaml").write_text(
        f"hushgrid: 1\nname: bench\nproblem: {{kind: zones, case: case14, zones: {ZONES['case14']}}}\n"
        f"algorithm: {{name: ladmm, rounds: {rounds}}}\n"
        "privacy: {epsilon: 5.0, mode: objective, adjacency: {bounded-change: 0.01}}\n"
    )
    coordinator_file(place, fleet, url)


def sensors(place: Path, fleet: str, url: str, rounds: int = 40) -> None:
    """The files of two sensors with 500 rows of 22 features each, and of their coordinator."""
    place.mkdir()
    rng = np.random.default_rng(1)
    for name in SENSORS:
        b = np.where(rng.random(ROWS) < 0.5, 1.0, -1.0)
        np.savez(place / f"{name}.npz", A=rng.normal(size=(ROWS, FEATURES)) / FEATURES, b=b)
        (place / f"{name}.yaml").write_text(
            f"node: {name}\nfleet: {fleet}\nbroker: {url}\nstate: state/{name}\ndata: {name}.npz\n"
            "labels: {classes: 2}\n"
            "budget: {epsilon: 1.0e9, adjacency: {replace-one-record: {clip: 1.0}}}\n"
        )
    (place / "scenario.yaml").write_text(
        f"hushgrid: 1\nname: bench\nnetwork: {{kind: path, nodes: {len(SENSORS)}}}\n"
        f"problem: {{kind: logistic, data: {{devices: {{features: {FEATURES}, rows: {ROWS}}}}}, row_bound: 1.0, l2: "
        "0.1}\n"
        f"algorithm: {{name: recal, rounds: {rounds}}}\n"
        "privacy: {epsilon: 10.0, adjacency: {replace-one-record: {clip: 1.0}}}\n"
    )
    coordinator_file(place, fleet, url)


def coordinator_file(place: Path, fleet: str, url: str) -> None:
    (place / f"{COORDINATOR}.yaml").write_text(
        f"fleet: {fleet}\nbroker: {url}\nstate: state/{COORDINATOR}\nscenario: scenario.yaml\n"
    )


@contextmanager
def daemon(
    place: Path,
    name: str,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    log: Path | None = None,
    within: Sequence[str] = (),
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A daemon, ready as it tells systemd, and the seconds it took; ended by SIGTERM. Its bytecode is kept, beside
    `place`.

    `log`: the file that it writes its log to. `within`: what its command begins with.
    """
    address, log = place / f"{name}.notify", log or place / f"{name}.log"
    address.unlink(missing_ok=True)
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    variables |= {"NOTIFY_SOCKET": str(address), "PYTHONPYCACHEPREFIX": str(place.parent / "bytecode"), **environment}
    role = "coordinator" if name == COORDINATOR else "node"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, log.open("wb") as errors:
        notices.bind(str(address))
        notices.settimeout(PATIENCE_S)
        began = time.perf_counter()
        child = subprocess.Popen(
            [*within, sys.executable, *flags, "-m", "hushgrid", role, str(place / f"{name}.yaml")],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
        try:
            notices.recv(64)
            ready = time.perf_counter() - began
        except TimeoutError:
            child.kill()
            child.wait()
            raise Stopped(f"bench: {name} not ready after {PATIENCE_S:g} s: {log.read_text()[-200:]}") from None
    try:
        yield child, ready
    finally:
        child.terminate()
        child.wait(PATIENCE_S)


def run_once(place: Path) -> None:
    """One run of the daemons that are there. Raises Stopped if it does not end well."""
    ended = subprocess.run(
        [sys.executable, "-m", "hushgrid", "coordinator", str(place / f"{COORDINATOR}.yaml"), "--once"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if ended.returncode:
        raise Stopped(f"bench: {ended.stderr.decode(errors='replace').strip().splitlines()[-1]}")


def resident_mb(child: subprocess.Popen[bytes]) -> float:
    """Memory of a process now, pages that it shares with others included, MB (1e6 bytes)."""
    return _memory_mb(child, "status", "VmRSS:")


def peak_mb(child: subprocess.Popen[bytes]) -> float:
    """The most that it has ever been, MB."""
    return _memory_mb(child, "status", "VmHWM:")


def private_mb(child: subprocess.Popen[bytes]) -> float:
    """The part of it that it shares with nobody, MB."""
    return _memory_mb(child, "smaps_rollup", "Private_Clean:", "Private_Dirty:")


def _memory_mb(child: subprocess.Popen[bytes], file: str, *keys: str) -> float:
    lines = Path(f"/proc/{child.pid}/{file}").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(keys)) * 1024 / 1e6


# --- a control group ---


class Group:
    """A control group of its own, of version 2 or 1, with a limit of memory and of a processor; removed at its end.

    Raises Stopped where none can be made: not root, or no controller of memory is to be had.
    """

    def __init__(self, memory: int, share: float) -> None:
        """`memory`: bytes, none of them in a swap area. `share`: of one processor."""
        period = 100_000  # us
        quota = int(share * period)
        roots = _controllers()
        self.two = "" in roots
        self._places = {name: root / f"hushgrid-{os.getpid()}" for name, root in roots.items()}
        try:
            if self.two:
                (roots[""] / "cgroup.subtree_control").write_text("+memory +cpu")
            for place in self._places.values():
                place.mkdir(exist_ok=True)
            if self.two:
                (self.memory / "memory.max").write_text(str(memory))
                (self.memory / "memory.swap.max").write_text("0")
                (self.memory / "cpu.max").write_text(f"{quota} {period}")
            else:
                for limit in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
                    (self.memory / limit).write_text(str(memory))
                (self._places["cpu"] / "cpu.cfs_period_us").write_text(str(period))
                (self._places["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
        except (OSError, KeyError) as fault:
            self.remove()
            raise Stopped(
                f"found no control group to make ({fault}), expected root and a controller of memory"
            ) from None

    @property
    def memory(self) -> Path:
        return self._places["" if self.two else "memory"]

    @property
    def peak(self) -> int:
        """The most that was counted, bytes: what belongs to it alone, and files that nobody else had read before."""
        return int((self.memory / ("memory.peak" if self.two else "memory.max_usage_in_bytes")).read_text())

    @property
    def limit(self) -> int:
        return int((self.memory / ("memory.max" if self.two else "memory.limit_in_bytes")).read_text())

    @property
    def killed(self) -> int:
        """Processes in it that were ended for want of memory."""
        events = (self.memory / ("memory.events" if self.two else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in events.splitlines())["oom_kill"])

    @property
    def within(self) -> list[str]:
        """What a command begins with to run in it."""
        files = [str(place / "cgroup.procs") for place in self._places.values()]
        enter = " && ".join(f"echo $$ > {shlex.quote(file)}" for file in files)
        return ["sh", "-c", f'{enter} && exec "$@"', "sh"]

    def remove(self) -> None:
        """Nothing runs in it any more."""
        for place in self._places.values():
            with suppress(OSError):
                place.rmdir()


def _controllers() -> dict[str, Path]:
    """Where control groups are made: "" for version 2, else by the name of a controller."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    old = {name: Path(path) for _, path, kind, options, *_ in mounts if kind == "cgroup" for name in options.split(",")}
    if "memory" in old:
        return {name: old[name] for name in ("memory", "cpu") if name in old}
    return dict([("", Path(path)) for _, path, kind, *_ in mounts if kind == "cgroup2"][:1])
