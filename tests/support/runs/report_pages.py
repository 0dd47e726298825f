"""A report as a reader of its HTML finds it."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hushgrid.broker.report import build as report
from hushgrid.grid_cases import load


class Page(HTMLParser):
    """The text, tags and ids of a page. A tag that is not closed in order fails."""

    VOID = frozenset({"meta", "br", "img", "hr", "input", "link"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + "\n"

    def all(self, attribute: str) -> list[str]:
        return [str(attrs[attribute]) for _, attrs in self.tags if attribute in attrs]


def html(run_dir: Path) -> str:
    return report.build(run_dir).read_text(encoding="utf-8")


CASE14_ZONES = {"z1": [1, 2, 3, 4, 5], "z2": [7, 8, 9, 10, 14], "z3": [6, 11, 12, 13]}


def write_run(
    out: Path,
    *,
    upheld: Any = True,
    variant: str = "guarded",
    mode: str = "objective",
    seed: int | None = None,
    findings: list[str] | None = None,
    case: str = "case14",
    zones: dict[str, list[int]] | None = None,
    rounds: int = 100,
    raw: bool | None = None,
    name: str = "case14-three-zones",
    epsilon: float = 5.0,
    budget: float | None = 12.0,
) -> Path:
    """A run directory of the documented form, with smooth made-up figures. raw: fill the raw-data columns."""
    zones = CASE14_ZONES if zones is None else zones
    raw = upheld is not True if raw is None else raw
    out.mkdir(parents=True, exist_ok=True)
    t = np.arange(1, rounds + 1)
    wobble = 1 + 0.3 * np.sin(7.0 * t)
    answers = 1 if mode == "input" else rounds
    spent = np.full(rounds, epsilon) if mode == "input" else epsilon * t / answers
    columns: dict[str, Any] = {
        "round": t,
        "objective": 3.0 / t * wobble + 0.4 if raw else [""] * rounds,
        "consensus_residual": 0.9 / t**1.2 * wobble + 1e-3,
        "max_violation": 1e-10 * wobble,
        "noise_l1": 2.0 * wobble if raw and variant != "none" else [""] * rounds,
        "noise_l1_expected": np.full(rounds, 2.0) if variant != "none" else [""] * rounds,
        "messages": np.full(rounds, 2 * len(zones)),
        "bytes": np.full(rounds, 432 * len(zones)),
    }
    if variant != "none":
        columns |= {f"epsilon_{zone}": spent for zone in zones}
    with (out / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))

    grid = load(case)
    zone_of = {bus: zone for zone, members in zones.items() for bus in members}
    arrays: dict[str, Any] = {}
    points: list[tuple[Any, ...]] = []
    for zone in zones:
        keys, values = [], []
        for row, bus in zip(grid.generators.rows, grid.generators.bus, strict=True):
            if zone_of[int(bus)] == zone:
                keys += [f"pg:{row}", f"qg:{row}"]
                values += [0.6 + 0.1 * row, 0.05 * row]
                points += [(zone, "p_g", row, 60 + 10.0 * row, "MW"), (zone, "q_g", row, 5.0 * row, "MVAr")]
        for row, a, b in zip(grid.lines.rows, grid.lines.from_bus, grid.lines.to_bus, strict=True):
            if zone in (zone_of[int(a)], zone_of[int(b)]):
                keys += [f"{q}:{row}" for q in ("pF", "qF", "pT", "qT")]
                values += [0.28 + 1e-4 * len(keys), -0.09, -0.28, 0.11]
        points += [(zone, "v", bus, 1.01, "p.u.") for bus in zones[zone]]
        arrays |= {f"z_{zone}": np.array(values), f"keys_{zone}": np.array(keys)}
    np.savez(out / "solution.npz", w=np.zeros(3), keys_w=np.array(["pF:7", "qF:7", "pT:7"]), **arrays)
    with (out / "setpoints.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("node", "quantity", "element", "value", "unit"), *points])

    claimed = {"epsilon": epsilon, "delta": 0.0}
    privacy: dict[str, Any] = {
        "claimed": claimed,
        "spent": claimed,
        "per_node": {z: {"claimed": claimed, "spent": {"epsilon": float(spent[-1]), "delta": 0.0}} for z in zones},
        "adjacency": {"bounded-change": 0.01},
        "mechanism": "laplace",
        "accountant": "pure-basic",
        "sampler": "exact discrete Laplace on a grid, operating-system entropy" if seed is None else "numpy, seeded",
        "answers": answers,
        "capped": [],
        "upheld": upheld,
        "findings": findings or [],
        "ledgers": "run",
    }
    result = {
        "name": name,
        "algorithm": "ladmm",
        "variant": variant,
        "transport": "mqtt",
        "broker": "mosquitto 2.0.11",
        "nodes": len(zones),
        "rounds_done": rounds,
        "stopped_because": "rounds",
        "objective": 0.431 if raw else None,
        "optimality_gap": None,
        "relative_error": None,
        "consensus_residual": float(columns["consensus_residual"][-1]) if rounds else None,
        "max_violation": 1.2e-10,
        "messages": 2 * len(zones) * rounds,
        "bytes": 432 * len(zones) * rounds,
        "wall_s": 2.61,
        "privacy": None if variant == "none" else privacy,
        "versions": {"hushgrid": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "clarabel": "0.11.1"},
    }
    (out / "result.json").write_text(json.dumps(result))
    plan = {"mechanism": "laplace", "adjacency": {"bounded-change": 0.01}, "epsilon": epsilon, "mode": mode}
    scenario = {
        "hushgrid": 1,
        "name": name,
        "problem": {"kind": "zones", "case": case, "zones": list(zones.values())},
        "algorithm": {"name": "ladmm", "variant": variant, "rounds": rounds, "rho": 100, "local_updates": 1},
        "run": {"record": "summary"},
    }
    if seed is not None:
        scenario["seed"] = seed
    if variant != "none":
        scenario["privacy"] = plan | ({"budget": {"epsilon": budget}} if budget is not None else {})
    (out / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False, default_flow_style=None))
    return out


def page(run_dir: Path) -> Page:
    return Page(html(run_dir))
