"""Small fleets, one of each pattern and kind of problem: a life of fifteen intervals takes a second or two."""

from __future__ import annotations

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
DATA: Document = {"synthetic": {"rows": 20, "features": 5, "seed": 1}, "normalize": "unit-rows"}
TOTAL: Document = {"kind": "total", "data": DATA | {"nodes": 4}}


def _records(name: str, algorithm: Document, network: Document | None = None, **problem: Any) -> Document:
    data = DATA if network else DATA | {"nodes": 4}
    where: Document = {"network": network} if network else {}
    return {
        "hushgrid": 1,
        "name": name,
        "problem": {"kind": "logistic", "data": data, "row_bound": 1.0, "l2": 0.016} | problem,
        "algorithm": algorithm,
        "privacy": GAUSSIAN,
    } | where


RING: Document = {"kind": "ring", "nodes": 4}
SCENARIOS: dict[str, Document] = {
    "star": _records("star", {"name": "ladmm", "rounds": 10, "local_updates": 1, "rho": 1.0, "eta": 1.0}, box=20.0),
    "token": _records("token", {"name": "recal", "rounds": 20, "walk": "hamiltonian"}, RING),
    "neighbours": _records("neighbours", {"name": "nids", "rounds": 11, "step_size": 1.0}, RING),
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
    "sums": _records("sums", {"name": "sum"}) | {"problem": TOTAL},
    "masked": _records("masked", {"name": "sum"})
    | {"problem": TOTAL, "privacy": GAUSSIAN | {"masked": {"corrupt": 1}}},
    "day": {
        "hushgrid": 1,
        "name": "day",
        "problem": {
            "kind": "zones",
            "case": "case5",
            "zones": [[1, 2, 5], [3, 4]],
            "loads": {"nonzero": "case"},
            "ac": "none",
            "horizon": {"periods": 3, "hours": 1, "ramps": 0.3},
        },
        "algorithm": {"name": "consensus-admm", "rounds": 12},
        "privacy": {"mode": "input", "adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}}, "epsilon": 1},
    },
}


def made(kind: str) -> Fleet:
    """The fleet of one of them."""
    return fleet(SCENARIOS[kind], kind, Path())
