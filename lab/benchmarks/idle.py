"""`hushgrid bench idle`: daemons between runs: how often they wake, what they write to the disk, processor time,
memory.

Three fleets stand at once: one whose last run is over, one whose coordinator waits for a member that is not there, and
one whose broker is away from the start. Each daemon has a small disk of its own, if this is run as root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hushgrid.broker.servers.choose import start
from hushgrid.broker.servers.process import free_port
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S
from hushgrid.lab.benchmarks.common.measure import Row, Table, against
from hushgrid.lab.benchmarks.common.served import brokers_here
from hushgrid.lab.benchmarks.daemon import (
    ROWS_MB,
    SENSORS,
    ZONE_MB,
    ZONE_NAMES,
    daemon,
    private_mb,
    resident_mb,
    sensors,
    zones,
)
from hushgrid.lab.benchmarks.ledger import ROUNDS, RUN_KB, disk_of_its_own, written
from hushgrid.node.wire import COORDINATOR

WAKES, WRITTEN_KB, SHARE = 20.0, 0.0, 5.0  #: at most, a minute; in all; % of a processor
RESIDENT_MB = {"zone": ZONE_MB, "sensor": ROWS_MB["numpy"]}
PRIVATE_MB = {"zone": 48.0}
SETTLE_S = 60.0  #: until the waits between attempts, and between calls for births, are as long as they get
SECONDS = "HUSHGRID_BENCH_IDLE_S"  #: of the environment: how long is measured


@dataclass
class Seen:
    """A daemon that stands, and what its system counts of it."""

    what: str  #: zone, sensor, coordinator
    child: subprocess.Popen[bytes]
    disk: Path | None  #: its own; None: not counted
    before: dict[str, float] = field(default_factory=dict)

    def counts(self) -> dict[str, float]:
        """Wake-ups, processor seconds and bytes written since it began."""
        tasks = [Path(task) for task in Path(f"/proc/{self.child.pid}/task").iterdir()]
        status = [line for task in tasks for line in (task / "status").read_text().splitlines()]
        counts = {
            "wakes": sum(float(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches")),
            "processor": sum(float((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks),
        }
        if self.disk and (size := written(self.disk)) is not None:
            counts["written"] = size
        return counts

    def rows(self, where: str, seconds: float) -> list[Row]:
        now, what = self.counts(), f"{self.what}, {where}"
        grown = {key: now[key] - before for key, before in self.before.items()}
        minutes = seconds / 60
        rows = [
            against(Row(what=f"{what}: wake-ups a minute", unit="", value=grown["wakes"] / minutes), WAKES),
            against(Row(what=f"{what}: of a processor", unit="%", value=100 * grown["processor"] / seconds), SHARE),
        ]
        if "written" in grown:
            rows.append(against(Row(what=f"{what}: written", unit="kB", value=grown["written"] / 1e3), WRITTEN_KB))
        for name, size, most in (
            ("resident memory", resident_mb(self.child), RESIDENT_MB),
            ("private memory", private_mb(self.child), PRIVATE_MB),
        ):
            one = Row(what=f"{what}: {name}", unit="MB", value=size)
            rows.append(against(one, most[self.what]) if self.what in most else one)
        return rows


class Standing:
    """Daemons of one fleet, started in order."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place, self.stack = place, stack
        self.seen: dict[str, Seen] = {}

    def start(self, what: str, name: str) -> None:
        state = self.place / "state" / name
        disk = self.stack.enter_context(disk_of_its_own(self.place / f"{name}.img", state))
        # As in its unit: it feeds the watchdog too. The note of what is drawn is in memory.
        environment = {"WATCHDOG_USEC": "60000000", "RUNTIME_DIRECTORY": str(self.place)}
        child, _ = self.stack.enter_context(daemon(self.place, name, (), environment, state / "log"))
        self.seen[name] = Seen(what, child, state if disk else None)

    def wait_for(self, text: str, count: int = 1) -> None:
        """Waits until the coordinator has said `text` so often."""
        log, deadline = self.place / "state" / COORDINATOR / "log", time.monotonic() + PATIENCE_S
        while log.read_text().count(text) < count:
            if time.monotonic() > deadline:
                raise Stopped(f"bench idle: no {text!r} after {PATIENCE_S:g} s: {log.read_text()[-200:]}")
            time.sleep(0.1)

    def runs(self) -> None:
        """Two runs: the first one makes the files. What each daemon writes in the second is kept in `before`."""
        self.wait_for("the next run:")
        for seen in self.seen.values():
            seen.before = seen.counts()
        self.seen[COORDINATOR].child.send_signal(signal.SIGUSR1)
        self.wait_for("the next run:", 2)

    def run_rows(self) -> list[Row]:
        """After `runs`: what was written."""
        rows = []
        for name in (next(iter(self.seen)), COORDINATOR):
            seen = self.seen[name]
            if "written" in seen.before:
                size = (seen.counts()["written"] - seen.before["written"]) / 1e3
                one = Row(what=f"{seen.what}: written in a run of {ROUNDS} rounds", unit="kB", value=size)
                rows.append(one if name == COORDINATOR else against(one, RUN_KB))
        return rows


def seconds() -> float:
    """How long is measured, s. Raises InputError if the environment says no such thing."""
    text = os.environ.get(SECONDS, "60")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise InputError(f"{SECONDS}: found {text!r}, expected seconds above 0")
    return value


def idle(settle: float = SETTLE_S) -> Table:
    """What zones, sensors and coordinators do while nothing is to be done, with the broker there, and without."""
    length = seconds()
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch, ExitStack() as stack:
        place, name = Path(scratch), brokers_here()[0]
        # A broker of its own for each fleet: on one of them there is one z1, and one coordinator.
        urls = [stack.enter_context(start(name, place / f"broker-{k}")).url for k in range(3)]
        _compile(place, urls[0])
        nowhere = f"mqtt://127.0.0.1:{free_port()}"
        rests = _fleet(place / "zones", stack, urls[0], zones, ("zone", ZONE_NAMES))
        rests_too = _fleet(place / "sensors", stack, urls[1], sensors, ("sensor", SENSORS))
        waits = _fleet(place / "waits", stack, urls[2], zones, ("zone", ZONE_NAMES[:1]))
        away = _fleet(place / "away", stack, nowhere, zones, ("zone", ZONE_NAMES[:1]))
        away_too = _fleet(place / "away-too", stack, nowhere, sensors, ("sensor", SENSORS[:1]))
        rows: list[Row] = []
        for one in (rests, rests_too):
            one.runs()
            rows += one.run_rows()
        time.sleep(settle)
        standing = [
            (rests, "the run over", (ZONE_NAMES[0], COORDINATOR)),
            (rests_too, "the run over", SENSORS[:1]),
            (waits, "a member absent", (ZONE_NAMES[0], COORDINATOR)),
            (away, "the broker away", (ZONE_NAMES[0], COORDINATOR)),
            (away_too, "the broker away", SENSORS[:1]),
        ]
        stand = [(fleet.seen[node], where) for fleet, where, names in standing for node in names]
        for seen, _ in stand:
            seen.before = seen.counts()
        began = time.monotonic()
        time.sleep(length)
        taken = time.monotonic() - began
        for seen, where in stand:
            rows += seen.rows(where, taken)
    return Table(name="idle", summary=f"daemons that stand for {taken:.0f} s, {name}", rows=rows)


def _compile(place: Path, url: str) -> None:
    """A run of each kind, after which there is bytecode of everything: a device has it since it was installed."""
    for what, files, names in (("zones", zones, ZONE_NAMES), ("sensors", sensors, SENSORS)):
        files(place / f"first-{what}", f"first-{what}", url, ROUNDS)
        with ExitStack() as stack:
            fleet = Standing(place / f"first-{what}", stack)
            for name in (*names, COORDINATOR):
                fleet.start(what, name)
            fleet.wait_for("the next run:")


def _fleet(
    place: Path,
    stack: ExitStack,
    url: str,
    files: Callable[[Path, str, str, int], None],
    devices: tuple[str, tuple[str, ...]],
) -> Standing:
    """A coordinator and these devices, (what they are, their names), ready."""
    files(place, place.name, url, ROUNDS)
    fleet, (what, names) = Standing(place, stack), devices
    for name in names:
        fleet.start(what, name)
    fleet.start("coordinator", COORDINATOR)
    return fleet
