"""What a member's box needs besides its key: its device's file, its case and loads, and who signs for the fleet."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.cli.drafts import member
from hushgrid.node.durable import write_file
from hushgrid.node.schema.yaml_file import read_yaml

if TYPE_CHECKING:
    from hushgrid.broker.enrolment.directory import FleetDirectory


def write_all(directory: FleetDirectory) -> None:
    """A folder DIR/NAME for each device of a fleet, as its scenario has it; of rows the data are to be NAME.npz there.
    A fleet of sites has none.
    """
    if directory.of_sites:
        return
    from hushgrid.broker.enrolment.changes import is_zones, zones_in

    zones = zones_in(directory.scenario_file)[0] if is_zones(directory.scenario_file) else {}
    for name in directory.members():
        if name in zones:
            write_zone(directory, name, sorted(zones[name]), directory.path / name)
        else:
            write_rows(directory, name, f"{name}.npz", None, directory.path / name)


def write_zone(directory: FleetDirectory, name: str, buses: Sequence[int], folder: Path) -> None:
    """The files of a zone's box, with the loads of the case file."""
    scenario = directory.scenario()
    source: str = scenario.kind.source(scenario.problem)
    case = Path(source)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if case.is_file():
        shutil.copyfile(case, folder / case.name)
    member.write_loads(folder / f"loads-{name}.csv", source, buses)
    _write(directory, name, member.zone_data(name, case.name, buses), folder)


def write_rows(directory: FleetDirectory, name: str, data: str, labels: str | None, folder: Path) -> None:
    """The files of a box with rows, which are there already. labels: LOW,HIGH, of labels that are no classes."""
    problem = read_yaml(directory.scenario_file)["problem"]
    if problem["kind"] in ("logistic", "softmax"):
        span = f"{{classes: {problem.get('classes', 2)}}}"
    else:
        low, _, high = (labels or "-1,1").partition(",")
        span = f"{{low: {low}, high: {high}}}"
    _write(directory, name, member.rows_data(data, span), folder)


def _write(directory: FleetDirectory, name: str, data: str, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.give_authority(folder)
    place, raw = (directory.fleet, directory.broker_of(name)), read_yaml(directory.scenario_file)
    text = member.text(name, place, directory.scenario(), raw, data, trust=directory.trust)
    write_file(folder / f"{name}.yaml", text.encode())
