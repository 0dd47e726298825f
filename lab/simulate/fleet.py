"""The files of a fleet of real devices, made from a scenario whose devices are simulated."""

from __future__ import annotations

import copy
import json
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import yaml

from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.simulation.problems.records import RowNodes
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.wire import COORDINATOR

BROKER = "mqtt://127.0.0.1:1883"  #: nobody listens there: links are simulated
FLEET = "simulated"
PLENTY = 1e6  #: epsilon of a device whose budget is not what is tried
HOUR_S = 3600.0
AUTHORITY = "authority"  #: whose certificate is no member's


class Fleet(NamedTuple):
    """Of a scenario: the configuration of each machine, and what else its folder has, as {file name: content}."""

    name: str
    nodes: list[str]
    configs: dict[str, Document]
    data: dict[str, dict[str, bytes]]
    terms: dict[str, Terms]
    every: float = HOUR_S  #: s between two intervals
    rounds: int = 1  #: of a run

    @property
    def files(self) -> dict[str, dict[str, bytes]]:
        """All that each machine's folder has."""
        return {name: {config_of(name): written(self.configs[name])} | more for name, more in self.data.items()}


def config_of(name: str) -> str:
    """The name of a machine's configuration."""
    return "coordinator.yaml" if name == COORDINATOR else "device.yaml"


def fleet(raw: Document, file: str, base: Path, *, keys: Document | None = None) -> Fleet:
    """The fleet of a scenario; keys: more of the coordinator's file. Raises InputError if it is none for devices."""
    scenario = scenario_from(raw, file, base)
    _refuse(scenario, file)
    setup = prepare(scenario, file)
    configs, data, terms = dict[str, Document](), dict[str, dict[str, bytes]](), dict[str, Terms]()
    for name in setup.plan.nodes:
        t = setup.plan.terms_of(name)
        assert t is not None
        configs[name], data[name] = _device(setup, name, scenario)
        terms[name] = t
    if scenario.privacy is not None and scenario.privacy.masked:
        _mask(configs, data, terms)
    every = _hours(setup) * HOUR_S
    configs[COORDINATOR] = {
        "fleet": FLEET,
        "broker": BROKER,
        "state": "state",
        "scenario": "scenario.yaml",
        "run": {"every": f"{every:g}s", "warm_start": False},
        **(keys or {}),
    }
    public_part, more = _public(raw, setup, base)
    data[COORDINATOR] = {"scenario.yaml": written(public_part)} | more
    return Fleet(scenario.name, setup.plan.nodes, configs, data, terms, every, setup.plan.running.rounds)


def _refuse(scenario: Scenario, file: str) -> None:
    """Raises InputError if devices never take part in such a run."""
    if scenario.privacy is None:
        raise InputError(f"{file}: privacy: found none, expected a section: devices always add noise")
    variant = scenario.algorithm.variant
    if variant != "guarded":
        raise InputError(f"{file}: algorithm.variant: found {variant}, expected guarded: devices take no other")


def _device(setup: Setup, name: str, scenario: Scenario) -> tuple[Document, dict[str, bytes]]:
    """Its file, and what it names."""
    assert scenario.privacy is not None
    node: Document = {
        "node": name,
        "fleet": FLEET,
        "broker": BROKER,
        "state": "state",
        "mark": f"mark/{name}.mark",
    }
    section, files = _loads(setup, name) if isinstance(setup, ZoneSetup) else _rows(setup, name, scenario)
    unit = json.loads(json.dumps(_unit(scenario)))
    return node | section | {"budget": {"epsilon": PLENTY, "delta": 1e-5, "adjacency": unit}}, files


def _unit(scenario: Scenario) -> Document:
    """The adjacency as its section says it."""
    assert scenario.privacy is not None
    adjacency: Document = msgspec.to_builtins(scenario.privacy.adjacency)
    return {key: value for key, value in adjacency.items() if value is not None}


def _loads(setup: ZoneSetup, name: str) -> tuple[Document, dict[str, bytes]]:
    """Of a zone: its loads, or over a horizon their profiles."""
    buses, horizon = sorted(setup.plan.problem.zones[name]), setup.plan.problem.horizon
    periods = horizon.periods if horizon else 1
    each = (setup.loads(name) * setup.case.base_mva).reshape(periods, 2, len(buses)).tolist()
    table = [f"{t},{b},{x!r},{y!r}" for t, (p, q) in enumerate(each, 1) for b, x, y in zip(buses, p, q, strict=True)]
    key, header = ("profiles", "period,bus,p_mw,q_mvar") if horizon else ("loads", "bus,p_mw,q_mvar")
    rows = [header, *(row if horizon else row.partition(",")[2] for row in table), ""]
    section: Document = {"case": setup.problem.case, "zone": buses, key: f"{key}.csv"}
    if ignored := list(setup.problem.ignore):
        section["ignore"] = ignored
    return {"data": section}, {f"{key}.csv": "\n".join(rows).encode()}


def _rows(setup: Setup, name: str, scenario: Scenario) -> tuple[Document, dict[str, bytes]]:
    """Of a device with records: its rows, and the range of their labels."""
    assert isinstance(setup, RowNodes)
    A, b = setup.device(name).shard
    table = "\n".join(",".join(map(repr, (*row, label))) for row, label in zip(A.tolist(), b.tolist(), strict=True))
    problem = scenario.problem
    if problem.kind == "least-squares":
        labels: Document = {"low": float(np.floor(b.min())) - 1.0, "high": float(np.ceil(b.max())) + 1.0}
    else:
        labels = {"classes": max(setup.public.classes, 2)}
    node: Document = {"data": "rows.csv", "labels": labels}
    if scenario.privacy is not None and scenario.privacy.adjacency.bounded_change is not None:
        kind, bound = problem.kind, problem.row_bound
        node["problem"] = {"kind": kind, "scale": problem.scale, "row_bound": bound}
    return node, {"rows.csv": f"{table}\n".encode()}


def _hours(setup: Setup) -> float:
    """Between two intervals: a day is planned anew in each of its periods."""
    if isinstance(setup, ZoneSetup) and setup.plan.problem.horizon:
        return float(setup.plan.problem.horizon.hours)
    return 1.0


def _mask(configs: dict[str, Document], data: dict[str, dict[str, bytes]], terms: dict[str, Terms]) -> None:
    """Certificates of all members, and whom their owners trust. The same each time, as nothing that a run leaves is."""
    names = [*terms, AUTHORITY]
    pem = {name: _identity(name, number) for number, name in enumerate(names, 1)}
    peers = [pem[name][2] for name in terms]
    for name, t in terms.items():
        assert t.masked is not None
        cert, key, _ = pem[name]
        data[name] |= {"own.crt": cert, "own.key": key, "ca.crt": pem[AUTHORITY][0]}
        configs[name] |= {
            "tls": {"ca": "ca.crt", "cert": "own.crt", "key": "own.key"},
            "allow": {
                "masked": {"corrupt": t.masked.corrupt, "honest": t.masked.uncorrupted, "alone": PLENTY, "peers": peers}
            },
        }


def _identity(name: str, number: int) -> tuple[bytes, bytes, str]:
    """Certificate and key in PEM, and the certificate's fingerprint."""
    from hushgrid.node.masks.identity import lasting

    identity = lasting(name, sha256(f"simulated {name}".encode()).digest(), number)
    return *identity.pem(), identity.fingerprint


def _public(raw: Document, setup: Setup, base: Path) -> tuple[Document, dict[str, bytes]]:
    """The scenario as a coordinator of devices has it: without data, seeds and faults; and the files it names."""
    public_part, files = copy.deepcopy(raw), dict[str, bytes]()
    for key in ("seed", "run"):
        public_part.pop(key, None)
    if isinstance(setup, ZoneSetup):
        horizon = public_part["problem"].get("horizon") or {}
        horizon.pop("profiles", None)
        for key, value in horizon.items():
            if isinstance(value, str) and (base / value).is_file():
                files[f"{key}.csv"], horizon[key] = (base / value).read_bytes(), f"{key}.csv"
    else:
        assert isinstance(setup, RowNodes)
        shards = [setup.device(name).shard for name in setup.plan.nodes]
        rows = [shard.A.shape[0] for shard in shards]
        public_part["problem"]["data"] = {"devices": {"features": shards[0].A.shape[1], "rows": rows}}
        if "network" not in raw:
            public_part["problem"]["data"]["nodes"] = len(rows)
        public_part["problem"].pop("test", None)
    if isinstance(raw.get("run"), dict) and "stop" in raw["run"]:
        public_part["run"] = {"stop": raw["run"]["stop"]}
    return public_part, files


def written(document: Document) -> bytes:
    """As YAML."""
    return yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False).encode()
