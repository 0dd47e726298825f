"""`hushgrid run` in one process, a round of it beside a bare numpy loop of the same arithmetic and as much noise.

Both are measured in processor time and in turn, so that what else the machine does slows neither. The loop has no
gate, no ledger and no messages, and its noise is numpy's. What is common to all rounds of a run is left out: a round is
measured between the run's first tenth and its end.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
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


class Case(NamedTuple):
    """A run. `pattern`: a key of ALGORITHMS; `limit`: what a round may take, in rounds of the bare loop."""

    pattern: str
    nodes: int
    d: int
    rows: int
    rounds: int
    limit: float | None = None
    masked: bool = False
    private: bool = True

    @property
    def words(self) -> str:
        kind = f"{'masked ' * self.masked}{self.pattern}{', no noise' * (not self.private)}"
        return f"{kind}, {self.nodes} nodes, {self.d} x {self.rows}"


CASES = (
    Case("star", 8, 105, 500, 300, 5.0),
    Case("star", 60, 105, 500, 60, 3.0),
    Case("star", 200, 10, 10, 40),
    Case("star", 1000, 10, 10, 10),
    Case("star", 8, 100_000, 4, 30, 3.0),
    Case("ring", 60, 105, 500, 50, 3.0),
    Case("token", 60, 105, 500, 1200),
    Case("star", 60, 105, 500, 30, masked=True),
    Case("ring", 8, 105, 500, 300, private=False),
    Case("ring", 60, 105, 500, 60, private=False),
)


def simulator(cases: tuple[Case, ...] = CASES, repeats: int = 3) -> Table:
    rows: list[Row] = []
    for case in cases:
        data = _data(case)
        pairs = [(_round_ms(case, data), 1e3 * _bare(case, data)) for _ in range(repeats)]
        ours, bare = np.array(pairs).T
        rival = row(f"{case.words}: bare loop", "ms", bare.tolist())
        mine = row(case.words, "ms", ours.tolist(), rival=rival, ratio=float(np.median(ours / bare)))
        steps = 1 if case.pattern == "token" else case.nodes
        own = row(f"{case.words}: of our own, a node", "ms", ((ours - bare) / steps).tolist())
        rows += [against(mine, case.limit, "ratio") if case.limit else mine, rival, own]
    return Table(name="simulator", summary="a round, or a hop, of hushgrid run; processor time, one process", rows=rows)


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


def _data(case: Case) -> list[tuple[Matrix, Vector]]:
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
