"""A member more or less in the files of a fleet: only the values that change are written, all other text stays.

Nodes are named by their order, z1, z2, ... and n0, n1, ...: a new one is the next, and the last one is the one that can
go without giving others another name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from hushgrid.grid_cases import load
from hushgrid.grid_cases.partition import Zones
from hushgrid.grid_cases.zone.build import zones_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.problems.power_flow.section import ZonesProblem
from hushgrid.node.schema.yaml_file import parse_yaml


class Change(NamedTuple):
    """Another scenario."""

    text: str  #: of its file
    nodes: list[str]
    moved: Mapping[str, tuple[int, ...]]  #: the buses of zones that were there and have others now


def add_zone(file: Path, name: str, buses: Sequence[int]) -> Change:
    """A zone more, whose buses are taken from the others. Raises InputError if the result is no scenario."""
    zones, nodes = zones_in(file)
    _expect(name, f"z{len(nodes) + 1}", "the next zone")
    there = {bus for others in zones.values() for bus in others}
    if strange := sorted(set(buses) - there):
        raise InputError(f"--zone: found {strange[0]}, expected buses of the case")
    if emptied := [z for z, others in zones.items() if set(others) <= set(buses)]:
        raise InputError(f"--zone: found all buses of {emptied[0]}, expected one left (hushgrid fleet remove)")
    after = {z: tuple(bus for bus in others if bus not in buses) for z, others in zones.items()}
    return _with_zones(file, zones, after | {name: tuple(buses)})


def remove_zone(file: Path, name: str) -> Change:
    """A zone less. Its buses go to the zone that has the most lines to it."""
    zones, nodes = zones_in(file)
    _expect(name, nodes[-1], "the last zone: the others would change their names")
    if len(nodes) == 1:
        raise InputError(f"{name}: found the only zone, expected another one that takes its buses")
    scenario, _ = _read(file.read_text(), file)
    assert isinstance(scenario.problem, ZonesProblem)
    lines = load(scenario.problem.case).lines
    zone_of = {bus: z for z, buses in zones.items() for bus in buses}
    ties = [
        {zone_of[i], zone_of[j]} - {name}
        for i, j in zip(lines.from_bus.tolist(), lines.to_bus.tolist(), strict=True)
        if name in (zone_of[i], zone_of[j])
    ]
    neighbours = [z for tie in ties for z in tie]
    heir = max(sorted(set(neighbours)), key=neighbours.count, default=nodes[0])
    after = {z: buses + (zones[name] if z == heir else ()) for z, buses in zones.items() if z != name}
    return _with_zones(file, zones, after)


def add_node(file: Path, name: str, rows: int | None = None) -> Change:
    """A node more of a data problem. `rows`: how many it has, public [as many as the others]."""
    text = file.read_text()
    _, nodes = _read(text, file)
    _expect(name, f"n{len(nodes)}", "the next node")
    counts = _rows(text, file)
    if isinstance(counts, list):
        text = edited(text, ("problem", "data", "devices", "rows"), [*counts, counts[-1] if rows is None else rows])
    elif rows is not None and counts is not None and rows != counts:
        text = edited(text, ("problem", "data", "devices", "rows"), [*[counts] * len(nodes), rows])
    return _changed(_counted(text, file, len(nodes) + 1), file)


def remove_node(file: Path, name: str) -> Change:
    """A node less of a data problem."""
    text = file.read_text()
    _, nodes = _read(text, file)
    _expect(name, nodes[-1], "the last node: the others would change their names")
    counts = _rows(text, file)
    if isinstance(counts, list):
        text = edited(text, ("problem", "data", "devices", "rows"), counts[:-1])
    return _changed(_counted(text, file, len(nodes) - 1), file)


def edited(text: str, path: Sequence[str], value: object) -> str:
    """The text of a YAML file with another value at a key that it has; comments and order stay."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    for key in path:
        node = next(entry for entry_key, entry in node.value if entry_key.value == key)
    return text[: node.start_mark.index] + _flow(value) + text[_end(node) :]


def is_zones(file: Path) -> bool:
    """Whether a scenario is about the zones of a power system."""
    return isinstance(_read(file.read_text(), file)[0].problem, ZonesProblem)


def _flow(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def _end(node: yaml.Node) -> int:
    """Where its text ends: a block's own mark stands behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end


def _expect(name: str, expected: str, what: str) -> None:
    if name != expected:
        raise InputError(f"NAME: found {name}, expected {expected}, {what}")


def _read(text: str, file: Path) -> tuple[Scenario, list[str]]:
    scenario = scenario_from(parse_yaml(text, str(file)), str(file), file.parent)
    return scenario, scenario.kind.public(scenario, str(file)).nodes


def _changed(text: str, file: Path, moved: Mapping[str, tuple[int, ...]] | None = None) -> Change:
    return Change(text, _read(text, file)[1], moved or {})


def zones_in(file: Path) -> tuple[Zones, list[str]]:
    """The buses of each zone of a scenario, and the names of the zones in their order."""
    scenario, nodes = _read(file.read_text(), file)
    assert isinstance(scenario.problem, ZonesProblem)
    return zones_of(load(scenario.problem.case), scenario.problem.zones), nodes


def _with_zones(file: Path, before: Zones, after: Zones) -> Change:
    lists = [sorted(after[f"z{k + 1}"]) for k in range(len(after))]
    moved = {z: tuple(sorted(buses)) for z, buses in after.items() if z in before and set(buses) != set(before[z])}
    return _changed(edited(file.read_text(), ("problem", "zones"), lists), file, moved)


def _rows(text: str, file: Path) -> int | list[int] | None:
    data: Document = parse_yaml(text, str(file))["problem"].get("data", {})
    if "devices" not in data:
        raise InputError(
            f"{file}: problem.data: found rows, expected devices: {{features, rows}} (the rows are on the devices)"
        )
    rows: int | list[int] = data["devices"]["rows"]
    return rows


def _counted(text: str, file: Path, n: int) -> str:
    """With n nodes, wherever it says how many there are."""
    raw = parse_yaml(text, str(file))
    if (raw.get("network") or {}).get("kind") == "edges":
        raise InputError(f"{file}: network.edges: found a list, expected a kind of graph: add the node's edges there")
    places = [path for path in (("network", "nodes"), ("problem", "data", "nodes")) if _has(raw, path)]
    if not places:
        raise InputError(f"{file}: found no number of nodes, expected network.nodes or problem.data.nodes")
    for path in places:
        text = edited(text, path, n)
    return text


def _has(raw: Document, path: Sequence[str]) -> bool:
    node: object = raw
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node is not None
