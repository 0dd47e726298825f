"""The file of a coordinator of real devices."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hushgrid.kernels.algorithms.registry import plug
from hushgrid.kernels.ranges import Keepalive, Name, Seconds
from hushgrid.node.config.files import near_tls, unwrapped
from hushgrid.node.schema.sections import Section, Tls
from hushgrid.node.schema.yaml_file import convert, read_yaml

#: Keys that hold for as long as the process runs.
FIXED = ("fleet", "broker", "tls", "keepalive", "state", "plugins")


class CoordinatorConfig(Section, frozen=True, kw_only=True):
    """`hushgrid coordinator CONFIG`."""

    fleet: Name  #: the fleet's name, a part of every topic
    broker: str  #: mqtt://host:port or mqtts://host:port
    tls: Tls | None = None  #: required of mqtts
    keepalive: Keepalive = 60  #: without a word for 1.5 times as long, the broker takes it for dead
    scenario: str  #: a scenario file, relative to this one
    members: list[Name] | None = None  #: who must take part [the scenario's nodes]
    wait_s: Seconds = 60.0  #: for all members to be there
    silent_s: Seconds = 10.0  #: a member that says nothing for so long in a run ends it
    state: str  #: a directory of its own: ledger and runs
    #: modules from outside whose algorithms may run here, importable where this program runs; no other is imported
    plugins: tuple[str, ...] = ()


def load_coordinator(path: Path) -> CoordinatorConfig:
    """A coordinator's configuration; its relative paths are relative to the file."""
    raw = unwrapped(read_yaml(path), "coordinator", path)
    config = convert(raw, CoordinatorConfig, str(path))
    plug(config.plugins, str(path))
    return msgspec.structs.replace(
        config,
        tls=near_tls(config.tls, path),
        state=str((path.parent / config.state).resolve()),
        scenario=str((path.parent / config.scenario).resolve()),
    )
