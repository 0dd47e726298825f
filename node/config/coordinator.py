"""The file of a coordinator of real devices."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hushgrid.kernels.algorithms.registry import plug
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Count, Keepalive, Name, Seconds
from hushgrid.node.config.brokers import check_clear, with_servers
from hushgrid.node.config.files import near_tls, unwrapped
from hushgrid.node.schema.durations import Duration, seconds
from hushgrid.node.schema.sections import Section, Tls
from hushgrid.node.schema.yaml_file import convert, read_yaml

#: Keys that hold for as long as the process runs.
FIXED = ("fleet", "broker", "tls", "state", "plugins", "keepalive")
SHORTEST_S = 1.0  #: of intervals
KEPT = 960  #: runs whose records stay, unless the file says another number


class Continuous(Section, frozen=True, kw_only=True):
    """Runs that begin by themselves."""

    every: Duration  #: from the beginning of one run to that of the next; what was missed is not made up for
    jitter: Duration = "0s"  #: each run begins up to so much later, drawn at random
    warm_start: bool = True  #: each run begins where the last one has ended, if its algorithm can (docs/continuous.md)
    keep: Count = KEPT  #: intervals whose records stay in the directory `state`

    @property
    def every_s(self) -> float:
        return seconds(self.every)

    def check(self, path: Path, wait_s: float, quorum: int | None) -> None:
        """Raises InputError unless the lengths fit each other, and the wait for members, s,
        if there is a quorum without some.
        """
        if self.every_s < SHORTEST_S:
            raise InputError(f"{path}: run.every: found {self.every}, expected at least {SHORTEST_S:g}s")
        if seconds(self.jitter) >= self.every_s:
            raise InputError(f"{path}: run.jitter: found {self.jitter}, expected less than run.every, {self.every}")
        shortest = self.every_s - seconds(self.jitter)  # between two runs that are due
        if quorum is not None and wait_s >= shortest:
            less = "" if shortest == self.every_s else f" less run.jitter, {self.jitter}"
            raise InputError(
                f"{path}: wait_s: found {wait_s:g}, expected less than run.every, {self.every}{less}: the next run "
                "would be due before one of a quorum begins"
            )


class CoordinatorConfig(Section, frozen=True, kw_only=True):
    """`hushgrid coordinator CONFIG`."""

    fleet: Name  #: the fleet's name, a part of every topic
    broker: str  #: mqtt://host:port or mqtts://host:port; a list of the servers of a cluster is tried in turn
    tls: Tls | None = None  #: required of mqtts
    #: its owner knows that the broker is reached without encryption over a network (mqtt:// to another machine)
    broker_in_clear: bool = False
    keepalive: Keepalive = 60  #: without a word for 1.5 times as long, the broker takes it for dead
    scenario: str  #: a scenario file, relative to this one
    members: list[Name] | None = None  #: who must take part [the scenario's nodes]
    wait_s: Seconds = 60.0  #: for all members to be there
    silent_s: Seconds = 10.0  #: a member that says nothing for so long in a run ends it
    #: runs that begin by themselves, over and over [one at the start, then one for each SIGUSR1]
    run: Continuous | None = None
    #: the fewest members that a run is made with, if others are absent when wait_s ends, or known to be gone, or refuse
    #: [all of them]
    quorum: Count | None = None
    hold: Duration = "1h"  #: zones: how long an absent one counts as it was last, if there is a quorum without it
    #: another machine waits with `--standby`, and takes over so long after this one's death; the run is told to it
    #: [there is none]
    standby: Duration | None = None
    state: str  #: a directory of its own: ledger and runs
    #: modules from outside whose algorithms may run here, importable where this program runs; no other is imported
    plugins: tuple[str, ...] = ()


def load_coordinator(path: Path) -> CoordinatorConfig:
    """A coordinator's configuration; its relative paths are relative to the file."""
    raw = with_servers(unwrapped(read_yaml(path), "coordinator", path))
    config = convert(raw, CoordinatorConfig, str(path))
    check_clear(f"{path}: ", config.broker, config.broker_in_clear)
    plug(config.plugins, str(path))
    if config.run is not None:
        config.run.check(path, config.wait_s, config.quorum)
    return msgspec.structs.replace(
        config,
        tls=near_tls(config.tls, path),
        state=str((path.parent / config.state).resolve()),
        scenario=str((path.parent / config.scenario).resolve()),
    )
