"""A day of a case without profiles, made by a rule: loads by the shape of a day, one storage a zone."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import sin
from pathlib import Path

from hushgrid.grid_cases import load
from hushgrid.grid_cases.partition import partition
from hushgrid.node.problems.power_flow.horizon import PROFILES, STORAGE

#: A load in period t is SHAPE[t] (1 + .1 sin(1.7 place + .9 t)) of its own.
SHAPE = (
    *(0.62, 0.58, 0.56, 0.55, 0.56, 0.6, 0.7, 0.82, 0.9, 0.93, 0.94, 0.95),
    *(0.94, 0.92, 0.9, 0.89, 0.9, 0.95, 1.0, 0.99, 0.94, 0.86, 0.77, 0.68),
)


def by_shape(folder: Path, name: str) -> Path:
    """The scenario of a case in three zones: loads by SHAPE, one storage a zone at its largest load."""
    case = load(name)
    zones = partition(case, 3)
    numbers = case.buses.numbers.tolist()
    p, q = case.buses.p_d * case.base_mva, case.buses.q_d * case.base_mva
    rows = [
        (t + 1, bus, *(round(float(v[k]) * shape * (1 + 0.1 * sin(1.7 * (k + 1) + 0.9 * t)), 9) for v in (p, q)))
        for t, shape in enumerate(SHAPE)
        for k, bus in enumerate(numbers)
    ]
    write_table(folder / "profiles.csv", PROFILES, rows)
    units = []
    for buses in zones.values():
        here = [numbers.index(bus) for bus in sorted(buses)]
        largest, power = numbers[max(here, key=lambda k: p[k])], 0.1 * float(p[here].sum())
        units.append((f"s{largest}", largest, power, 3 * power, 0.95, 0.5, 1.5 * power, 1.5 * power))
    write_table(folder / "storage.csv", STORAGE, units)
    scenario = folder / f"day{name.removeprefix('case')}.yaml"
    scenario.write_text(
        f"hushgrid: 1\nname: {scenario.stem}\n"
        f"problem:\n  kind: zones\n  case: {name}\n  zones: {[sorted(buses) for buses in zones.values()]}\n"
        "  objective: cost\n"
        "  horizon: {periods: 24, hours: 1, profiles: profiles.csv, storage: storage.csv, ramps: 0.05}\n"
        "algorithm: {name: consensus-admm, rounds: 300}\n"
        "privacy: {mode: input, adjacency: {day: {energy_mwh: 0.02, power_factor: 0.97}}, epsilon: 1}\n"
        "run: {stop: {tolerance: 1.0e-4, patience: 3}}\n"
    )
    return scenario


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
