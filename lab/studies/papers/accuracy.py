"""`hushgrid study accuracy`: what independent reference code found, measured again.

The figure of a run without privacy is sum_p f_p(z_p), the load shed squared in p.u., after its last round; of a private
one, whose rounds scatter, the mean over its last ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import run
from hushgrid.grid_cases import load
from hushgrid.grid_cases.centralised import solve
from hushgrid.kernels.types import Document
from hushgrid.lab.benchmarks.common.measure import ZONES
from hushgrid.lab.studies.common.study import Page, Table

LAST = 10  #: rounds a figure is the mean of
PAPER = "1/sqrt(t)"  #: the paper's eta
DEFAULT = "1/(L+sqrt(t))"

#: The paper's Section 6.1 at epsilon 0.05 an answer on case14: method: (mode, mechanism, expected)
PUBLISHED = {
    "ObjG": ("objective", "gaussian", 1.44),
    "ObjL": ("objective", "laplace", 0.36),
    "OutG": ("output", "gaussian", 59.9),
    "OutL": ("output", "laplace", 15.3),
}
#: Without privacy: (case, eta, local updates, rounds, expected)
PLAIN = (
    ("case14", PAPER, 1, 100, 0.073),
    ("case118", PAPER, 1, 100, 100.0),
    ("case118", PAPER, 5, 100, 4.8),
    ("case14", PAPER, 1, 2000, 0.0035),
    ("case118", PAPER, 1, 1000, 0.023),
    ("case14", DEFAULT, 1, 100, 0.128),
    ("case14", DEFAULT, 5, 100, 0.074),
    ("case118", DEFAULT, 1, 100, 6.4),
    ("case118", DEFAULT, 5, 100, 1.2),
)
#: Published optima of the second-order-cone relaxation, minimum cost, in $/h
COSTS = {"case14": 2175.70, "case30": 6662.2, "case57": 37529.7, "case118": 96335.9}


def tail(values: Sequence[float | int | None]) -> np.ndarray:
    """The last rounds of a history column; NaN where it is empty."""
    return np.array([np.nan if v is None else v for v in values[-LAST:]], np.float64)


def plain(case: str, eta: str, local_updates: int, rounds: int) -> Result:
    """A run without privacy."""
    return run(
        {
            "hushgrid": 1,
            "name": f"{case}-plain",
            "problem": {"kind": "zones", "case": case, "zones": ZONES[case]},
            "algorithm": {
                "name": "ladmm",
                "variant": "none",
                "rounds": rounds,
                "local_updates": local_updates,
                "eta": eta,
            },
        }
    )


def published(
    case: str, method: str, seed: int, *, epsilon: float = 0.05, local_updates: int = 1, rounds: int = 100
) -> Result:
    """One of the paper's four methods at its own scales."""
    mode, mechanism, _ = PUBLISHED[method]
    return run(
        {
            "hushgrid": 1,
            "name": f"{case}-{method}",
            "seed": seed,
            "problem": {"kind": "zones", "case": case, "zones": ZONES[case]},
            "algorithm": {
                "name": "ladmm",
                "variant": "published",
                "rounds": rounds,
                "local_updates": local_updates,
                "eta": PAPER,
            },
            "privacy": published_privacy(mode, mechanism, epsilon),
        }
    )


def published_privacy(mode: str, mechanism: str, epsilon: float) -> Document:
    """The paper's privacy section: beta = 1 %, delta = 1e-2 for the Gaussian."""
    per_answer = {"epsilon": epsilon} | ({"delta": 0.01} if mechanism == "gaussian" else {})
    return {"mechanism": mechanism, "adjacency": {"bounded-change": 0.01}, "per_answer": per_answer, "mode": mode}


def accuracy(seeds: int = 20, quick: bool = False) -> Table:
    """Measured beside expected; the last column is their ratio. `quick`: only what takes seconds."""
    rows: list[Sequence[str | float]] = []

    def add(what: str, measured: float, expected: float) -> None:
        rows.append((what, measured, expected, measured / expected if expected else nan))

    for case in ("case14", "case118"):
        add(f"{case}: central load shedding, p.u.^2", solve(load(case), "shedding").value, 0.0)
    for case, cost in COSTS.items():
        add(f"{case}: SOC-OPF minimum cost, $/h", solve(load(case), "cost").value, cost)
    for case, eta, local_updates, rounds, expected in PLAIN:
        if not quick or (case == "case14" and rounds == 100):
            objective = plain(case, eta, local_updates, rounds).objective
            assert objective is not None  # the variant none shows it
            add(f"{case}: no privacy, eta {eta}, E = {local_updates}, T = {rounds}", objective, expected)
    for method, (_, _, expected) in PUBLISHED.items():
        runs = [published("case14", method, seed) for seed in range(seeds)]
        mean = float(np.mean([tail(r.history["objective"]) for r in runs]))
        add(f"case14: {method} as published, epsilon 0.05 an answer, {seeds} seeds", mean, expected)
        violation = np.array([r.history["max_violation"] for r in runs], np.float64)
        bounds = ("1e-10", "5e-8") if method.startswith("Obj") else ("0.3 to 300", "0.3 to 300")
        rows += [
            (f"{method}: violation, median round, p.u.", float(np.median(violation)), bounds[0], ""),
            (f"{method}: violation, worst round, p.u.", float(violation.max()), bounds[1], ""),
        ]
    columns = ("", "measured", "expected", "ratio")
    return Table("Measured, and what independent reference code found", columns, rows)


def study() -> list[Page]:
    """One table."""
    return [Page("accuracy", [accuracy()], {})]
