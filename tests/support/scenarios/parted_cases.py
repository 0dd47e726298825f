"""Cases that hold more than buses, generators and lines: MATPOWER's own, and two loads that are dispatched."""

from __future__ import annotations

from tests.support.paths import VECTORS

CASES = VECTORS / "cases"
#: Least cost of the AC network, $/h: MATPOWER's case30Q and t_case9_opfv2 (by PYPOWER 5.1.21), t_case9_dcline and
#: case9_loads by `rectangular_opf`, the last by PYPOWER too. Of the relaxation: what this program has found.
AC = {"case30Q": 623.006, "t_case9_opfv2": 6621.7376, "t_case9_dcline": 6518.8943, "case9_loads": 4849.0726}
RELAXED = {"case30Q": 607.588, "t_case9_opfv2": 6520.538, "t_case9_dcline": 6512.561, "case9_loads": 4818.228}
NAMES = list(AC)
#: Zones that every dc line of t_case9_dcline joins.
ZONES9 = [[1, 4, 5], [30, 6, 7], [2, 8, 9]]
ZONES30 = [
    [1, 2, 3, 4, 5, 6, 7, 8, 28],
    [9, 10, 11, 16, 17, 18, 19, 20, 21, 22],
    [12, 13, 14, 15, 23, 24, 25, 26, 27, 29, 30],
]


def path(name: str) -> str:
    return str(CASES / f"{name}.m")


def text(name: str) -> str:
    return (CASES / f"{name}.m").read_text()
