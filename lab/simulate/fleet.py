"""The files of a fleet of real devices, made from a scenario whose devices are simulated."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.wire import COORDINATOR

BROKER = "mqtt://127.0.0.1:1883"  #: nobody listens there: links are simulated
FLEET = "simulated"
PLENTY = 1e6  #: epsilon of a device whose budget is not what is tried


class Fleet(NamedTuple):
    """Of a scenario: what each machine's folder has, as {file name: content}."""

    name: str
    nodes: list[str]
    files: dict[str, dict[str, bytes]]
    every: float  #: s between two intervals


def fleet(raw: Document, file: str, base: Path, *, every: str = "1h", keys: Document | None = None) -> Fleet:
    """The fleet of a scenario; keys: more of the coordinator's file. Raises InputError if it is none for devices."""
    scenario = scenario_from(raw, file, base)
    setup = prepare(scenario, file)
    devices = {name: _device(setup, name) for name in setup.plan.nodes}
    shown = _public(raw, setup)
    coordinator: Document = {
        "fleet": FLEET,
        "broker": BROKER,
        "state": "state",
        "scenario": "scenario.yaml",
        "run": {"every": every, "warm_start": False},
        **(keys or {}),
    }
    files = devices | {
        COORDINATOR: {"coordinator.yaml": _yaml(coordinator), "scenario.yaml": _yaml(shown)},
    }
    return Fleet(scenario.name, setup.plan.nodes, files, 3600.0)


def _device(setup: Setup, name: str) -> dict[str, bytes]:
    privacy = setup.scenario.privacy
    if privacy is None:
        raise InputError("privacy: found none, expected a section: devices always add noise")
    adjacency = privacy.adjacency
    node: Document = {
        "node": name,
        "fleet": FLEET,
        "broker": BROKER,
        "state": "state",
        "mark": f"mark/{name}.mark",
    }
    files: dict[str, bytes] = {}
    if isinstance(setup, ZoneSetup):
        buses = sorted(setup.plan.problem.zones[name])
        p, q = np.split(setup.loads(name) * setup.case.base_mva, 2)
        rows = [f"{b},{x!r},{y!r}" for b, x, y in zip(buses, p.tolist(), q.tolist(), strict=True)]
        files["loads.csv"] = "\n".join(["bus,p_mw,q_mvar", *rows, ""]).encode()
        node["data"] = {"case": setup.problem.case, "zone": buses, "loads": "loads.csv"}
        unit: Document = {"bounded-change": adjacency.bounded_change}
    else:
        A, b = setup.device(name).shard  # type: ignore[attr-defined]
        files["rows.csv"] = (
            "\n".join(
                ",".join(map(repr, (*row, label))) for row, label in zip(A.tolist(), b.tolist(), strict=True)
            ).encode()
            + b"\n"
        )
        node["data"] = "rows.csv"
        kind = getattr(setup.scenario.problem, "kind", "")
        node["labels"] = {"classes": 2} if kind == "logistic" else {"low": -10.0, "high": 10.0}
        unit = {"replace-one-record": {"clip": adjacency.replace_one_record.clip}}  # type: ignore[union-attr]
    node["budget"] = {"epsilon": PLENTY, "delta": 1e-5, "adjacency": unit}
    return {"device.yaml": _yaml({"node": node})} | files


def _public(raw: Document, setup: Setup) -> Document:
    """The scenario as a coordinator of devices has it: without data, seeds and faults."""
    shown = copy.deepcopy(raw)
    shown.pop("seed", None)
    shown.pop("run", None)
    if not isinstance(setup, ZoneSetup):
        first = setup.device(setup.plan.nodes[0]).shard  # type: ignore[attr-defined]
        rows = [setup.device(name).shard.A.shape[0] for name in setup.plan.nodes]  # type: ignore[attr-defined]
        data: Document = {"devices": {"features": first.A.shape[1], "rows": rows}}
        if "network" not in raw:
            data["nodes"] = len(rows)
        shown["problem"]["data"] = data
        shown["problem"].pop("test", None)
    if isinstance(raw.get("run"), dict) and "stop" in raw["run"]:
        shown["run"] = {"stop": raw["run"]["stop"]}
    return shown


def _yaml(document: Document) -> bytes:
    return yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False).encode()
