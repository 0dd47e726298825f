"""A simulated run over nodes with rows of data, by a baton: what is prepared, and what it leaves.

A trace row is a function of gate answers, except its noise cell. What is computed from raw data or from the noise is
filled only where the run is not private; of an upheld run nothing here reads a row once the nodes have theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.broker.prepare import Observer, Setup
from hushgrid.broker.results import Finished, Result, summarise
from hushgrid.broker.traces import WalkTrace, walk_rows, walk_start
from hushgrid.broker.watcher import lost
from hushgrid.kernels import recal
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.losses import Loss
from hushgrid.kernels.prox import Regularizer
from hushgrid.kernels.routes import index
from hushgrid.node.assemble import make_plan
from hushgrid.node.config import Scenario
from hushgrid.node.driver import Driver
from hushgrid.node.problem import minimizes
from hushgrid.node.rows import Rows, public
from hushgrid.node.rows_gate import expected_l1
from hushgrid.node.wire import COORDINATOR

LARGEST = 2000  #: unknowns of a central optimum, which takes their cube
#: The vectors of a token and of a node, by algorithm; a node's first is its x_i.
RECAL = ("x", "u"), ("y", "lam")
ADMM = ("z",), ("x", "y")


class Nothing:
    """The coordinator of a baton sees no iterate: nothing is taken down of it."""

    def __call__(self, driver: Driver, fresh: bool) -> None: ...
    def close(self) -> None: ...


class RowSetup(Setup):
    """Only `device`, `child`, `losses` and what they are used in touch raw data."""

    def __init__(self, scenario: Scenario, file: str = "scenario") -> None:
        shards, shown = public(scenario, file)
        if shards is None:
            raise InputError(
                f"{file}: problem.data.devices: found rows that are on devices, expected files, libsvm, csv or synthetic "
                "(simulated nodes need rows)"
            )
        self.shards = shards
        super().__init__(*make_plan(scenario, shown, file))
        self.shown = shown
        try:
            self.expected_l1 = self._expected_l1()  # which needs every node's grid
        except InputError as error:
            raise InputError(f"{file}: privacy: {error}") from None
        network = scenario.network
        assert network is not None
        self.about = f"{shown.objective.kind}, {len(shards)} nodes on a network of kind {network.kind}"

    def device(self, name: str) -> Rows:
        return Rows(name, self.shards[index(name)], self.shown.classes)

    def child(self, name: str, place: Path) -> dict[str, Any]:
        if name == COORDINATOR:
            return {}
        path = place / f"{name}.npz"
        A, b = self.shards[index(name)]
        np.savez(path, allow_pickle=False, A=A, b=b)
        return {"rows": str(path), "classes": self.shown.classes}

    def trace(self, name: str, place: Path) -> Observer:
        return Nothing() if name == COORDINATOR else WalkTrace(place, name, self.reveal)

    def written_out(self, resolved: dict[str, Any]) -> dict[str, Any]:
        shown = self.shown
        resolved["network"] = {"kind": "edges", "nodes": len(shown.rows), "edges": [list(e) for e in shown.edges]}
        return resolved

    @property
    def losses(self) -> list[Loss]:
        """Every node's f_i: raw data."""
        return [self.device(name).loss(self.shown) for name in self.plan.nodes]

    @np.errstate(over="ignore", invalid="ignore")  # of a walk that has gone far out
    def collect(self, f: Finished) -> Result:
        plan, shown, t = self.plan, self.shown, self.terms
        n, d, nodes = len(plan.nodes), shown.size, plan.nodes
        of_token, of_node = RECAL if isinstance(plan.algorithm, recal.Params) else ADMM
        width = d * (len(of_token) + len(of_node))
        rows, undone = walk_rows(f.trace, width)
        T = len(rows)
        active = rows[:, 0].astype(np.int64) - 1
        tokens, own = np.split(rows[:, 3:].reshape(T, -1, d), [len(of_token)], axis=1)
        starts = np.array([walk_start(f.trace, name, d * len(of_node)) for name in nodes]).reshape(n, -1, d)
        ends = [min(k + n, T) for k in range(0, T, n)]  # of the blocks of n activations
        final, residual = _consensus(starts[:, 0], active, own[:, 0], ends)
        objectives: list[float | None] = [None] * len(ends)
        found: dict[str, float | None] = {}
        if self.reveal:  # a block's objective costs what the gradients of its n activations did
            losses, r = self.losses, shown.regularizer
            objectives = [
                finite(sum(loss.value(tokens[k - 1, 0]) for loss in losses) + n * r.value(tokens[k - 1, 0]))
                for k in ends
            ]
            if T:
                found = against_the_optimum(losses, r, tokens[-1, 0], objectives[-1])
        visits = np.zeros((len(ends), n), dtype=np.int64)
        np.add.at(visits, (np.arange(T) // n, active), 1)
        for k, i in undone:
            visits[min(k, T - 1) // n, i] += 1  # what a step that was undone has spent stays spent
        visits = np.cumsum(visits, axis=0)
        answers = np.minimum(visits, t.answers) if t else visits
        history: dict[str, list[float | int | None]] = {
            "round": list(range(1, len(ends) + 1)), "objective": list(objectives),
            "consensus_residual": list(residual), "max_violation": [None] * len(ends),
            "noise_l1": _by_block(rows[:, 2], ends) if self.reveal and t else [None] * len(ends),
            "noise_l1_expected": self.expected(answers), "messages": _by_block((rows[:, 1] > 0).astype(float), ends, int),
            "bytes": _by_block(rows[:, 1], ends, int),
        }  # fmt: skip
        if t is not None:
            costs = {a: None if t.published else t.cost(a) for a in np.unique(answers).tolist()}
            history |= {f"epsilon_{name}": [costs[a] for a in answers[:, i].tolist()] for i, name in enumerate(nodes)}
        capped = [name for i, name in enumerate(nodes) if t and len(ends) and visits[-1, i] > t.answers]
        summary = summarise(
            f, rounds_done=T, objective=objectives[-1] if T else None, consensus_residual=residual[-1] if T else None,
            messages=int(np.sum(rows[:, 1] > 0)), bytes=int(np.sum(rows[:, 1])), capped=capped,
            lost=lost(f.centre) if f.centre else [], walk={"kind": shown.route_is, "cycle": shown.route or None}, **found,
        )  # fmt: skip
        solution = {"x": tokens[-1, 0] if T else np.zeros(d)} | {f"x_{name}": final[i] for i, name in enumerate(nodes)}
        trajectory = None
        if self.scenario.run.record == "trajectory":
            first = np.zeros((1, len(of_token), d))
            stacked = np.concatenate([first, tokens])
            trajectory = {"active": active} | {key: stacked[:, k] for k, key in enumerate(of_token)}
            trajectory |= {key: own[:, k] for k, key in enumerate(of_node)}
        return Result(summary, history, solution, [], trajectory, f.transcript)

    def _expected_l1(self) -> np.ndarray | None:
        """Expected sum of |noise| of one answer of each node, of what is public; None where it is none of the gate's."""
        t, shown = self.terms, self.shown
        if t is None or t.published or minimizes(self.plan.algorithm):  # the minimisers' noise depends on the question
            return None

        @cache
        def of(m: int) -> float:
            A, b = np.zeros((m, shown.features)), np.ones(m)
            return expected_l1(self.plan.name, Loss(shown.objective, A, b, shown.classes, shown.row_bound), t)

        return np.array([of(m) for m in shown.rows])

    def expected(self, answers: np.ndarray) -> list[float | int | None]:
        """Expected sum of |noise| of each block."""
        each = self.expected_l1
        fresh = np.diff(answers, axis=0, prepend=0)
        return [None if each is None else float(row @ each) for row in fresh]


def _consensus(
    start: np.ndarray, active: np.ndarray, own: np.ndarray, ends: Sequence[int]
) -> tuple[np.ndarray, list[float | None]]:
    """Every node's x_i (n, d) at the end, and sqrt(sum_i |x_i - mean x|^2) at the end of each block."""
    x, done = start.copy(), 0
    residual: list[float | None] = []
    for k in ends:
        for step in range(done, k):
            x[active[step]] = own[step]
        done = k
        residual.append(finite(np.sqrt(np.sum((x - x.mean(axis=0)) ** 2))))
    return x, residual


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _by_block(values: np.ndarray, ends: Sequence[int], kind: type = float) -> list[float | int | None]:
    """Sums over the blocks; None where a value is not known."""
    parts = np.split(values, ends[:-1]) if ends else []
    return [kind(total) if np.isfinite(total := float(np.sum(part))) else None for part in parts]


def against_the_optimum(
    losses: list[Loss], r: Regularizer, x: np.ndarray, objective: float | None
) -> dict[str, float | None]:
    """What is not known to be an optimum, or to be the only one, is not compared with."""
    from hushgrid.broker.optimum import optimum

    try:
        best = optimum(losses, r) if x.size <= LARGEST else None
    except InputError:
        best = None
    if best is None or not best.convex or objective is None:
        return {}
    length = float(np.linalg.norm(best.x))
    return {
        "optimality_gap": finite(objective - best.value),
        "relative_error": finite(float(np.linalg.norm(x - best.x)) / length) if best.unique and length else None,
    }
