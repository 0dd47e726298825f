"""The file of a device: what its owner declares and consents to, and what contradicts itself."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hushgrid.kernels.algorithms.registry import plug
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Keepalive, Name
from hushgrid.node.config.files import near_tls, unwrapped
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.power_flow.kind import KIND as POWER_FLOW
from hushgrid.node.problems.power_flow.section import ZoneData
from hushgrid.node.problems.records.kind import KIND as RECORDS
from hushgrid.node.problems.records.section import DeclaredProblem, Labels
from hushgrid.node.schema.sections import Allow, Budget, Section, Tls
from hushgrid.node.schema.yaml_file import convert, read_yaml

#: Keys that hold for as long as the process runs.
FIXED = ("node", "fleet", "broker", "tls", "keepalive", "state", "mark", "plugins")


class DeviceConfig(Section, frozen=True, kw_only=True):
    """`hushgrid node CONFIG`."""

    node: Name  #: its name: n0, n1, ... or z1, z2, ...
    fleet: Name  #: the fleet's name, a part of every topic
    broker: str  #: mqtt://host:port or mqtts://host:port
    tls: Tls | None = None  #: required of mqtts
    keepalive: Keepalive = 60  #: without a word for 1.5 times as long, the broker takes it for dead
    state: str  #: a directory of its own: ledger and outcome
    mark: str | None = None  #: a file on another disk that remembers how far the ledger has come
    data: str | ZoneData  #: of a data problem: a NumPy archive of A (m, q) and b (m,); of a zone: a section
    labels: Labels | None = None  #: the public range of its labels; required of a data problem
    #: of a data problem; required under bounded-change: a plan that differs is refused
    problem: DeclaredProblem | None = None
    budget: Budget  #: over the life of the ledger, whatever a coordinator asks
    allow: Allow = Allow()  #: what the owner consents to in one run
    #: modules from outside whose algorithms may run here, importable where this program runs; no other is imported
    plugins: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """Of the problems that it takes part in: its data say it."""
        return POWER_FLOW if isinstance(self.data, ZoneData) else RECORDS

    @property
    def file(self) -> Path:
        """Of its private data."""
        return Path(self.data.loads if isinstance(self.data, ZoneData) else self.data)


def load_device(path: Path) -> DeviceConfig:
    """A node's configuration; its relative paths are relative to the file."""
    raw = unwrapped(read_yaml(path), "node", path)
    for key in ("seed", "variant", "published", "none", "truth", "simulated"):
        if key in raw:
            raise InputError(
                f"{path}: {key}: found in a device's configuration, expected in simulation only (hushgrid run)"
            )
    config = convert(raw, DeviceConfig, str(path))
    _check_owner(config, path)
    config = _located(config, path)
    plug(config.plugins, str(path))

    def near(p: str) -> str:
        return str((path.parent / p).resolve())

    data = config.data
    if isinstance(data, str):
        data = near(data)
    else:
        data = msgspec.structs.replace(
            data,
            loads=near(data.loads),
            model=near(data.model) if data.model else None,
            case=near(data.case) if os.path.isfile(path.parent / data.case) else data.case,
        )
    return msgspec.structs.replace(
        config,
        state=near(config.state),
        tls=near_tls(config.tls, path),
        mark=near(config.mark) if config.mark else None,
        data=data,
    )


def _located(config: DeviceConfig, path: Path) -> DeviceConfig:
    """With the files that its adjacencies name."""
    found = {}
    for key, limits in (("budget", config.budget), ("allow", config.allow)):
        if limits.adjacency is not None:
            adjacency = config.kind.adjacency(limits.adjacency, path.parent)
            found[key] = msgspec.structs.replace(limits, adjacency=adjacency)
    return msgspec.structs.replace(config, **found)


def _check_owner(config: DeviceConfig, path: Path) -> None:
    """InputError unless the owner's limits are complete, of one meaning, and about the kind of data the device has."""

    def wrong(key: str, found: str, expected: str) -> InputError:
        return InputError(f"{path}: {key}: {found}, expected {expected}")

    records, labels, problem = config.kind.records, config.labels, config.problem
    adjacencies = {"budget": config.budget.adjacency, "allow": config.allow.adjacency}
    if adjacencies["budget"] is None:
        raise wrong("budget.adjacency", "missing", "e.g. {bounded-change: 0.01}")
    for key, a in adjacencies.items():
        change, replaced = (a.bounded_change, a.replace_one_record) if a else (1.0, None)
        if (change is None) == (replaced is None) or (not records and change is None):
            expected = "bounded-change (a zone)" if not records else "one of bounded-change and replace-one-record"
            raise wrong(f"{key}.adjacency", f"found {'both' if change and replaced else str(a) or '{}'}", expected)
        if records and a and a.of_loads:
            raise wrong(f"{key}.adjacency.bounded-change", "found a change of loads", "a number (a device with rows)")
    if not records:
        for key, given in (("labels", labels), ("problem", problem)):
            if given is not None:
                raise wrong(key, "found a section", "none (a zone has loads, no rows)")
        return
    if labels is None:
        raise wrong("labels", "missing", "{classes: C} or {low: ..., high: ...} (a device with rows)")
    if problem is None:
        if any(a and a.bounded_change for a in adjacencies.values()):
            raise wrong("problem", "missing", "{kind: ..., scale: ..., row_bound: ...} (adjacency bounded-change)")
    elif not labels.fit(problem.kind, labels.classes or 1):
        raise wrong("problem.kind", f"found {problem.kind}", f"one for labels of {labels}")
