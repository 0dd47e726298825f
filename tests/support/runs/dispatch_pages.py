"""Run directories at least cost, with smooth made-up figures: what a report reads, without a solver."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.dispatch import Dispatch
from hushgrid.grid_cases.partition import partition
from tests.support.runs.report_pages import CASE14_ZONES, write_run

LOADED, GENERATED = 2.593, 2.752  #: p.u. of 100 MVA


def zones_of(case: Case, count: int) -> dict[str, list[int]]:
    return CASE14_ZONES if case.name == "case14" and count == 3 else partition(case, count)


def made_up(case: Case, zones: dict[str, list[int]], source: str) -> Dispatch:
    """A dispatch of the documented form; no physics."""
    buses, lines, generators = np.arange(len(case.buses)), np.arange(len(case.lines)), np.arange(len(case.generators))
    zone_of = {bus: zone for zone, members in zones.items() for bus in members}
    flow = 0.3 * np.sin(1.0 + lines) * np.maximum(case.lines.rate, 0.1)
    tie = np.array([zone_of[a] != zone_of[b] for a, b in zip(case.lines.from_bus, case.lines.to_bus, strict=True)])
    return Dispatch(
        case=case,
        source=source,
        zone_of={bus: zone_of[bus] for bus in case.buses.numbers.tolist()},
        d=np.full((len(buses), 2), LOADED / len(buses)),
        p_g=np.full(len(generators), GENERATED / len(generators)),
        q_g=0.1 * np.cos(generators),
        v=0.94 + 0.12 * (buses % 13) / 12,
        flows=np.stack([flow, 0.1 * flow, -0.98 * flow, 0.1 * flow], axis=1),
        apart=np.where(tie, 3e-4, 0.0),
        dc=np.zeros((0, 4)),
        dc_apart=np.zeros(0),
        slack=np.zeros((len(buses), 4)),
        price=np.stack([20.0 + 7.123 * np.sin(buses), 0.1 * np.cos(buses)], axis=1),
        price_relaxed=20.5 + 7.123 * np.sin(buses),
        stored=np.zeros(len(buses)),
    )


def _accounts(privacy: dict[str, Any] | None, zones: dict[str, list[int]]) -> dict[str, Any]:
    """`privacy` of result.json with every field that it has."""
    if privacy is None:
        named = ("claimed", "spent", "adjacency", "mechanism", "accountant", "sampler", "answers", "capped")
        account: dict[str, Any] = {"claimed": None, "spent": None}
        privacy = dict.fromkeys(named) | {"findings": [], "upheld": "not private", "ledgers": "run"}
    else:
        account = {"claimed": privacy["claimed"], "spent": privacy["spent"]}
    return privacy | {"per_node": {zone: account | {"answers": 1, "ledger": None, "left": None} for zone in zones}}


def write_least_cost(
    out: Path,
    *,
    case: str = "case14",
    count: int = 3,
    source: str = "ac",
    loads: Any = "case",
    private: bool = True,
    result: dict[str, Any] | None = None,
    tables: bool = True,
) -> Path:
    """A run directory. result: fields of result.json in place of those of a run that has agreed and has an AC
    dispatch.
    """
    grid = load(case)
    zones = zones_of(grid, count)
    write_run(
        out,
        case=case,
        zones=zones,
        rounds=28,
        mode="input",
        name=f"{case}-least-cost",
        budget=None,
        upheld=True if private else "not private",
        variant="guarded" if private else "none",
    )
    scenario = yaml.safe_load((out / "scenario.yaml").read_text())
    scenario["problem"] |= {"objective": "cost", "voll": 10000.0, "ac": "polish" if source == "ac" else "none"}
    if loads is not None:
        scenario["problem"]["loads"] = {"nonzero": loads}
    scenario["algorithm"] = {"name": "consensus-admm", "rounds": 200, "variant": "guarded" if private else "none"}
    scenario["run"]["stop"] = {"tolerance": 1e-4, "patience": 3}
    (out / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False, default_flow_style=None))

    power = {
        "generation_mw": 275.2,
        "load_mw": 259.3,
        "served_mw": 259.3,
        "unserved_mw": 0.0,
        "spilled_mw": 0.0,
        "slack_mvar": 0.0,
    }
    solved = {"status": "solved", "objective": 2177.9, "iterations": 15, **power, "losses_mw": 15.9}
    told = json.loads((out / "result.json").read_text()) | {
        "algorithm": "consensus-admm",
        "variant": scenario["algorithm"]["variant"],
        "stopped_because": "tolerance",
        "quality": {
            "verdict": "agreed", "residual_relative": 6e-5, "step_ratio": None, "noise_relative": 0.0, "size": 5.7,
            "largest": None,
        },
        "objective": 2176.3,
        "optimality_gap": 0.1,
        "bound": 2176.2,
        "gap": (2177.9 - 2176.2) / 2177.9 if source == "ac" else 4.6e-5,
        "disagreement_mw": 0.0241,
        "prices": {},
        "ac": solved if source == "ac" else {"status": "left out: ac: none"},
        **power,
    }  # fmt: skip
    told |= {"privacy": _accounts(told["privacy"], zones), "lost": None, "walk": None, "notes": []}
    for key, value in (result or {}).items():
        told[key] = {**told[key], **value} if isinstance(value, dict) else value
    (out / "result.json").write_text(json.dumps(told))

    with (out / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for t, row in enumerate(rows, 1):
        row |= {
            "dual_residual": str(0.2 / t**2),
            "disagreement_mw": str(90.0 / t**2),
            "factor": "1.0",
        }
        row["objective"] = str(2176.3 * (1 - 0.5**t))
    with (out / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if tables:
        for name, (columns, body) in made_up(grid, zones, source).tables().items():
            with (out / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([columns, *body])
    return out
