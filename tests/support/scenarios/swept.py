"""A scenario that is quick enough to be swept in a test."""

import platform
from typing import Any

platform.processor()  # dask asks for it, and Python starts a process the first time: here, not in a test

SWEPT: dict[str, Any] = {
    "hushgrid": 1,
    "name": "swept",
    "problem": {
        "kind": "logistic",
        "data": {"synthetic": {"rows": 30, "features": 3}, "normalize": "unit-rows"},
        "row_bound": 1.0,
        "l2": 0.1,
    },
    "network": {"kind": "ring", "nodes": 4},
    "algorithm": {"name": "dgd", "rounds": 5, "step_size": 0.5},
    "privacy": {
        "adjacency": {"replace-one-record": {"clip": 1.0}},
        "mechanism": "gaussian",
        "accountant": "gdp",
        "epsilon": 5.0,
        "delta": 1e-5,
    },
}
