"""Intervals of the example fleet on a cluster, in each of which a server is killed: what came of each, as a table."""

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from hushgrid.broker.enrolment.directory import CLUSTER_SILENT_S
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES, Fleet, intervals
from tests.support.transport.bridged import begun, moved
from tests.support.transport.clusters import SERVERS, of_fleet
from tests.support.transport.fleet_brokers import started

#: When a server dies: as the interval is asked for, as its run begins, in its rounds.
MOMENTS = ("asked", "begins", "in rounds")
LONGEST_S = 180.0  #: until an interval has ended, however


class Killed(NamedTuple):
    """One interval."""

    number: int
    server: int
    moment: str
    outcome: str
    cause: str
    seconds: float  #: from the death until the interval has ended
    same: bool  #: whether it has the bits of the run on one broker


def bits(fleet: Fleet) -> tuple[object, ...]:
    """The newest run: every round's residual, the cost, the set-points of each zone."""
    file = max((fleet.state("coordinator") / "runs").glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
    record = json.loads(file.read_text())
    points = tuple((fleet.state(z) / f"{z}.setpoints.csv").read_text() for z in ZONES)
    return record["outcome"], [row["consensus_residual"] for row in record["history"]], record.get("objective"), points


class KilledIntervals:
    """Three zones that answer once and repeat that, so that every interval has the same bits."""

    def __init__(self, directory: Path, kind: str, stack: ExitStack) -> None:
        one, _ = started(directory / "one", "mosquitto", "demo", stack)
        self.fleet = fleet = Fleet(directory / "deploy", one.broker, stack)
        moved(fleet, one, ZONES)
        nodes = begun(fleet, ZONES)
        assert fleet.start("coordinator", "coordinator.yaml", "", "--once").code() == 0
        for node in nodes:
            node.wait_for(" done: ")
            assert node.end() == 0
        self.expected = bits(fleet)
        self.spends = {z: fleet.spends(z) for z in ZONES}
        self.directory, self.cluster = of_fleet(directory / "F", kind, "demo", stack)
        moved(fleet, self.directory, ZONES)
        path = fleet.directory / "coordinator.yaml"
        text = path.read_text() + "run: {every: 1d, warm_start: false}\n"
        path.write_text(re.sub("^silent_s: .*$", f"silent_s: {CLUSTER_SILENT_S}", text, flags=re.M))
        self.nodes = begun(fleet, ZONES)
        self.coordinator = fleet.start("coordinator", "coordinator.yaml")
        self.ended(1)

    def ended(self, number: int) -> dict[str, str]:
        """The row of this interval, once it is there."""
        deadline = time.monotonic() + LONGEST_S
        while len(rows := intervals(self.fleet)) < number:
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.05)
        return rows[number - 1]

    def logs(self) -> str:
        said = (daemon.said[-1500:] for daemon in (self.coordinator, *self.nodes))
        return "\n".join([*said, self.cluster.logs()])

    def kill(self, number: int, server: int, moment: str) -> Killed:
        """Interval `number`, in which this server dies."""
        said = len(self.coordinator.said)
        if moment == "asked":
            self.cluster.kill(server)
        died = time.monotonic()
        self.coordinator.child.send_signal(signal.SIGUSR1)
        if moment != "asked":
            self._says("begin" if moment == "begins" else "round 20 of", said, number)
            self.cluster.kill(server)
            died = time.monotonic()
        row = self.ended(number)
        seconds = time.monotonic() - died
        return Killed(number, server + 1, moment, row["outcome"], row["cause"], seconds, self._same(row))

    def _same(self, row: dict[str, str]) -> bool:
        """The set-points of the zones may be written a moment after the coordinator's record."""
        deadline = time.monotonic() + PATIENCE
        while row["outcome"] == "answer" and bits(self.fleet) != self.expected:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return row["outcome"] == "answer"

    def _says(self, word: str, after: int, number: int) -> None:
        """Until the coordinator has said so of interval `number`, or has missed it."""
        deadline = time.monotonic() + PATIENCE
        while word not in self.coordinator.said[after:] and len(intervals(self.fleet)) < number:
            assert time.monotonic() < deadline, self.coordinator.said
            time.sleep(0.005)

    def all(self, count: int, seconds: float, show: Callable[[str], None] = lambda _: None) -> list[Killed]:
        """So many intervals, or as many as begin within so many seconds; each server in its turn, at each moment."""
        done: list[Killed] = []
        end = time.monotonic() + seconds
        while len(done) < count and time.monotonic() < end:
            k = len(done)
            server = k % SERVERS
            one = self.kill(k + 2, server, MOMENTS[(k // SERVERS) % len(MOMENTS)])
            done.append(one)
            show(row(one))
            self.cluster.start(server)
            self.cluster.wait()
        return done


def row(one: Killed) -> str:
    outcome = one.outcome if one.outcome == "answer" else f"{one.outcome}, by {one.cause}"
    return (
        f"{one.number:4}  server {one.server} {one.moment:10} {outcome:20} {one.seconds:6.1f} s"
        f"  {'same bits' if one.same else ''}"
    )


def summary(kind: str, done: list[Killed]) -> str:
    counts = Counter(one.outcome if one.outcome == "answer" else f"{one.outcome}, {one.cause}" for one in done)
    took = sorted(one.seconds for one in done if one.outcome == "answer")
    most = took[-1] if took else 0.0
    return (
        f"{kind}: {len(done)} intervals, in each a server killed: "
        + ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
        + f"; same bits as on one broker: {sum(one.same for one in done)}; from the death to the answer: median "
        f"{median(took) if took else 0.0:.1f} s, most {most:.1f} s"
    )


COUNT = int(os.environ.get("HUSHGRID_INTERVALS", "3"))
SECONDS = float(os.environ.get("HUSHGRID_INTERVALS_S", "900"))
