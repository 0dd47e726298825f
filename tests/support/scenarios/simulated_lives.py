"""Small fleets for the simulation, one of each pattern: a life of fifteen intervals takes a second or two."""

from pathlib import Path
from typing import Any

from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.fleet import Fleet, fleet

GAUSSIAN: Document = {
    "adjacency": {"replace-one-record": {"clip": 1.0}},
    "mechanism": "gaussian",
    "epsilon": 1.0,
    "delta": 1e-5,
    "accountant": "gdp",
}


def _records(algorithm: Document, network: Document | None = None, **problem: Any) -> Document:
    data: Document = {"synthetic": {"rows": 20, "features": 5, "seed": 1}, "normalize": "unit-rows"}
    where: Document = {"network": network} if network else {}
    if network is None:
        data["nodes"] = 4
    return {
        "hushgrid": 1,
        "name": algorithm["name"],
        "problem": {"kind": "logistic", "data": data, "row_bound": 1.0, "l2": 0.016} | problem,
        "algorithm": algorithm,
        "privacy": GAUSSIAN,
    } | where


RING: Document = {"kind": "ring", "nodes": 4}
SCENARIOS: dict[str, Document] = {
    "star": _records({"name": "ladmm", "rounds": 10, "local_updates": 1, "rho": 1.0, "eta": 1.0}, box=20.0),
    "token": _records({"name": "recal", "rounds": 20, "walk": "hamiltonian"}, RING),
    "neighbours": _records({"name": "nids", "rounds": 11, "step_size": 1.0}, RING),
    "zones": {
        "hushgrid": 1,
        "name": "zones",
        "problem": {
            "kind": "zones",
            "case": "case14",
            "zones": [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]],
            "loads": {"nonzero": "case"},
            "ac": "none",
        },
        "algorithm": {"name": "consensus-admm", "rounds": 12},
        "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0},
    },
}


def made(kind: str) -> Fleet:
    return fleet(SCENARIOS[kind], kind, Path())
