"""`hushgrid run` in one process, a round of it beside a bare numpy loop of the same arithmetic and as much noise.

Both are measured in processor time and in turn, so that what else the machine does slows neither. The loop has no
gate, no ledger and no messages, and its noise is numpy's. What is common to all rounds of a run is left out: a round is
measured between the run's first tenth and its end. Rings without noise stand beside decent-bench's DGD, too, where the
environment's DECENT names a Python that has it.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hushgrid.broker.simulation.fleet import run_fleet
from hushgrid.broker.simulation.inputs import lay_rows
from hushgrid.broker.simulation.progress import Progress
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Document, Matrix, Vector
from hushgrid.lab.benchmarks.common.measure import Row, Table, against, as_text, row
from hushgrid.node.config.scenario import scenario_from

PRIVATE: Document = {
    "adjacency": {"replace-one-record": {"clip": 1.0}},
    "mechanism": "gaussian",
    "delta": 1e-5,
    "epsilon": 10.0,
}
ALGORITHMS: dict[str, Document] = {
    "star": {"name": "fedavg", "step_size": 1.0},
    "ring": {"name": "dgd", "step_size": 1.0},
    "token": {"name": "recal", "walk": "hamiltonian", "alpha": 0.378},
}


DECENT = "HUSHGRID_DECENT_BENCH"
OWN_MS = 0.04  #: wanted, a node and round, beyond the arithmetic


class Case(NamedTuple):
    """A run. `pattern`: a key of ALGORITHMS."""

    pattern: str
    nodes: int
    d: int
    rows: int
    rounds: int
    masked: bool = False
    private: bool = True

    @property
    def words(self) -> str:
        kind = f"{'masked ' * self.masked}{self.pattern}{', no noise' * (not self.private)}"
        return f"{kind}, {self.nodes} nodes, {self.d} x {self.rows}"

    @property
    def limit(self) -> float:
        """What a round may take, in rounds of the bare loop."""
        return 5.0 if self.nodes < 60 and self.d < 100_000 else 3.0

    @property
    def decent_limit(self) -> float:
        """What a round may take, in rounds of decent-bench."""
        return 2.0 if self.nodes < 60 else 1.0


CASES = (
    Case("star", 8, 105, 500, 300),
    Case("star", 60, 105, 500, 60),
    Case("star", 500, 105, 500, 10),
    Case("star", 60, 10, 500, 60),
    Case("star", 8, 1000, 500, 100),
    Case("star", 8, 10_000, 50, 60),
    Case("star", 8, 100_000, 4, 30),
    Case("ring", 8, 105, 500, 300),
    Case("ring", 60, 105, 500, 50),
    Case("ring", 500, 105, 500, 10),
    Case("token", 8, 105, 500, 1200),
    Case("token", 60, 105, 500, 1200),
    Case("token", 500, 105, 500, 1500),
    Case("star", 8, 105, 500, 100, masked=True),
    Case("star", 60, 105, 500, 30, masked=True),
    Case("ring", 8, 105, 500, 300, private=False),
    Case("ring", 60, 105, 500, 60, private=False),
)


def simulator(cases: tuple[Case, ...] = CASES, repeats: int = 3) -> Table:
    rows: list[Row] = []
    for case in cases:
        data = rows_of(case)
        taken = [(_round_ms(case, data), 1e3 * _bare(case, data), _decent_ms(case)) for _ in range(repeats)]
        ours, bare, decent = np.array(taken).T
        rival = row(f"{case.words}: bare loop", "ms", bare.tolist())
        mine = row(case.words, "ms", ours.tolist(), rival=rival, ratio=float(np.median(ours / bare)))
        rows += [against(mine, case.limit, "ratio"), rival]
        if not np.isnan(decent).any():
            rival = row(f"{case.words}: decent-bench", "ms", decent.tolist())
            mine = row(case.words, "ms", ours.tolist(), rival=rival, ratio=float(np.median(ours / decent)))
            rows += [against(mine, case.decent_limit, "ratio"), rival]
        steps = 1 if case.pattern == "token" else case.nodes
        own = row(f"{case.words}: of our own, a node", "ms", ((ours - bare) / steps).tolist())
        rows.append(against(own, OWN_MS))
    return Table(name="simulator", summary="a round, or a hop, of hushgrid run; processor time, one process", rows=rows)


def _decent_ms(case: Case) -> float:
    """Milliseconds a round of decent-bench; nan where it is not installed, or has no such run."""
    python = os.environ.get(DECENT)
    if python is None or case.private or case.pattern != "ring":
        return float("nan")
    script = Path(__file__).with_name("decent.py")
    arguments = map(str, (case.nodes, case.d, case.rows, case.rounds))
    return float(subprocess.run([python, script, *arguments], check=True, capture_output=True, text=True).stdout)


class Stamps(Progress):
    """Takes down the processor time at each round."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.taken: list[tuple[int, float]] = []

    def round(self, t: int, total: int, residual: float | None) -> None:
        self.taken.append((t, time.process_time()))


def scenario(case: Case) -> Document:
    """The scenario of a case, without its rows."""
    variant = {} if case.private else {"variant": "none"}
    raw: Document = {
        "hushgrid": 1,
        "name": "bench",
        "problem": {"kind": "logistic", "l2": 0.01, "row_bound": 1.0},
        "algorithm": ALGORITHMS[case.pattern] | {"rounds": case.rounds} | variant,
    }
    if case.pattern != "star":
        raw["network"] = {"kind": "ring", "nodes": case.nodes}
    if case.private:
        raw["privacy"] = PRIVATE | ({"masked": {"corrupt": case.nodes // 2}} if case.masked else {})
    return raw


def rows_of(case: Case) -> list[tuple[Matrix, Vector]]:
    """A and b of every node."""
    shards = []
    for i in range(case.nodes):
        draw = counter_generator(0, "bench simulator", i)
        A = draw.normal(size=(case.rows, case.d))
        A /= np.linalg.norm(A, axis=1, keepdims=True) * (1 + 1e-9)
        shards.append((A, np.sign(draw.normal(size=case.rows))))
    return shards


def _round_ms(case: Case, data: list[tuple[Matrix, Vector]]) -> float:
    """Milliseconds of processor time a round."""
    raw, stamps = scenario(case), Stamps()
    arrays = lay_rows(raw, data)
    run_fleet(scenario_from(raw), arrays=arrays, progress=stamps)
    first = next(s for s in stamps.taken if s[0] >= max(case.rounds // 10, 1))
    last = stamps.taken[-1]
    return 1e3 * (last[1] - first[1]) / (last[0] - first[0])


def _bare(case: Case, data: list[tuple[Matrix, Vector]]) -> float:
    """Seconds of processor time a round, or a hop, of the loop alone."""
    norms = [np.linalg.norm(A, axis=1) for A, _ in data]
    draw = np.random.default_rng(0)
    x = np.zeros((case.nodes, case.d))

    def gradient(i: int, at: Vector) -> Vector:
        A, b = data[i]
        t = A @ at
        e = np.exp(-np.abs(t))
        s = -b * np.maximum(e, b * t < 0) / (1 + e)
        if case.private:
            s *= 1 / np.maximum(np.abs(s) * norms[i], 1)
        g: Vector = (s @ A) / case.rows + 0.01 * at
        return g + draw.normal(0, 0.1, case.d) if case.private else g

    def star() -> None:
        x[:] = sum(x[0] - gradient(i, x[0]) for i in range(case.nodes)) / case.nodes

    def ring() -> None:
        x[:] = [(x[i] + x[i - 1] + x[(i + 1) % case.nodes]) / 3 - gradient(i, x[i]) for i in range(case.nodes)]

    def hop() -> None:
        at = next(order)
        x[at] = x[at - 1] - 0.378 * gradient(at, x[at - 1])

    order = itertools.cycle(range(case.nodes))
    step: Callable[[], None] = {"star": star, "ring": ring, "token": hop}[case.pattern]
    count = min(case.rounds, 300)
    step()
    began = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - began) / count


if __name__ == "__main__":
    chosen = [CASES[int(k)] for k in sys.argv[1:]] or CASES
    print(as_text(simulator(tuple(chosen))))
