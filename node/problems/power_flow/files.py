"""A zone controller's files: its private loads, and the set-points a run leaves it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.zone.model import setpoints
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Vector
from hushgrid.node.durable import write_file
from hushgrid.node.problems.power_flow.device import Zone, model_of
from hushgrid.node.problems.power_flow.gate import LOAD_BOUND
from hushgrid.node.problems.power_flow.section import ZoneData


def read_loads(path: Path, buses: tuple[int, ...], base_mva: float) -> list[float]:
    """A zone's loads from its CSV (bus, p_mw, q_mvar): p of each bus in order, then q, in p.u."""
    expected = f"a row bus,p_mw,q_mvar for each of the buses {', '.join(map(str, buses))}"
    p: dict[int, float] = {}
    q: dict[int, float] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            if [c.strip() for c in next(reader, [])] != ["bus", "p_mw", "q_mvar"]:
                raise InputError(f"{path}:1: found another header, expected bus,p_mw,q_mvar")
            for row in reader:
                if not row:
                    continue
                try:
                    bus, active, reactive = int(row[0]), float(row[1]), float(row[2])
                except (ValueError, IndexError):
                    # The row itself is private: only its place is said.
                    raise InputError(f"{path}:{reader.line_num}: found a malformed row, expected {expected}") from None
                if bus in p or bus not in buses or not max(abs(active), abs(reactive)) <= LOAD_BOUND * base_mva:
                    raise InputError(
                        f"{path}:{reader.line_num}: found bus {bus} (again, foreign, or a load beyond all bounds), expected {expected}"
                    )
                p[bus], q[bus] = active / base_mva, reactive / base_mva
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not CSV text'}, expected {expected}") from None
    if missing := [b for b in buses if b not in p]:
        raise InputError(f"{path}: found no bus {missing[0]}, expected {expected}")
    return [p[b] for b in buses] + [q[b] for b in buses]


def keep_setpoints(zone: Zone, z: Vector, path: Path) -> None:
    """What the zone's controller is to do now, as CSV, replaced whole: quantity, element, value, unit. OSError."""
    rows = [("quantity", "element", "value", "unit"), *setpoints(zone.model, z, zone.case.base_mva)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_file(path, text.getvalue().encode())


def zone_of(node: str, data: ZoneData, path: str) -> Zone:
    """The device's zone: its public model and its private loads."""
    case = load(data.case).without_loads()
    buses = tuple(sorted(data.zone))
    if not buses or len(set(buses)) != len(buses):
        raise InputError(f"{path}: data.zone: found {data.zone}, expected this zone's bus numbers, each once")
    known = set(case.buses.numbers.tolist())
    if foreign := [b for b in buses if b not in known]:
        raise InputError(f"{path}: data.zone: found bus {foreign[0]}, expected buses of {case.name}")
    d = np.array(read_loads(Path(data.loads), buses, case.base_mva))
    model = model_of(node, data.case, buses, Path(data.model) if data.model else None)
    return Zone(node, case, model, d, data.solver)
