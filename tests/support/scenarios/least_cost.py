"""Scenarios at least cost: the public cases, their zones, and cases with other loads."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from hushgrid.grid_cases.matpower import BUILT_IN
from tests.support.paths import VECTORS

ZONES = json.loads((VECTORS / "partitions-public.json").read_text())  #: of four cases, lists of bus numbers
PRIVATE = {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0}


def scenario(case: str = "case14", zones: Any = None, private: bool = False, **problem: Any) -> dict[str, Any]:
    """A run at least cost; without privacy unless it is asked for."""
    raw: dict[str, Any] = {
        "hushgrid": 1,
        "name": "least-cost",
        "problem": {"kind": "zones", "case": case, "zones": zones or ZONES[case], **problem},
        "algorithm": {"name": "consensus-admm", "rounds": 200} | ({} if private else {"variant": "none"}),
    }
    return raw | ({"privacy": dict(PRIVATE)} if private else {})


def with_loads_times(case: str, factor: float, directory: Path) -> str:
    """The path of a built-in case's file with every load multiplied."""
    text = (resources.files("hushgrid.grid_cases") / BUILT_IN[case]).read_text()
    start = text.index("mpc.bus = [") + len("mpc.bus = [")
    end = text.index("];", start)

    def times(row: re.Match[str]) -> str:
        words = row.group(0).split()
        words[2], words[3] = (repr(float(w.rstrip(";")) * factor) for w in words[2:4])
        return "\t".join(words)

    rows = re.sub(r"^\s*\d.*$", times, text[start:end], flags=re.M)
    path = directory / f"{case}_times.m"
    path.write_text(text[:start] + rows + text[end:])
    return str(path)
