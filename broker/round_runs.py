"""A simulated run over nodes with rows of data, in synchronous rounds among neighbours: what it leaves.

A trace row is a function of gate answers, except its noise cell. What is computed from raw data or from the noise is
filled only where the run is not private.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.broker.prepare import Observer
from hushgrid.broker.results import Finished, Result, summarise
from hushgrid.broker.row_runs import Nothing, RowSetup, against_the_optimum, finite
from hushgrid.broker.traces import RoundTrace, round_rows
from hushgrid.kernels import dpadmm, perturbation
from hushgrid.kernels.losses import Loss
from hushgrid.node.problem import Penalized, answered, messages, minimizes
from hushgrid.node.wire import COORDINATOR

#: A node's own vectors by algorithm; x_i is the first of them, or (ADMM's f_i) the message of the round.
OWN = {"dpp2": ("x", "q"), **dict.fromkeys(("admm", "radmm", "mradmm", "dpadmm", "dpladmm", "madmm"), ("lam",))}
#: They ask their gates in the step behind a round's message; the others before it, and say the answer in it.
AFTER = ("extra", "dgd", "ppdc")


class RoundSetup(RowSetup):
    """Only `device`, `child`, `losses` and what they are used in touch raw data."""

    @property
    def own(self) -> tuple[str, ...]:
        return OWN.get(self.plan.algorithm.name, ("x",))

    def child(self, name: str, place: Path) -> dict[str, Any]:
        return super().child(name, place) | ({"own": self.own} if name != COORDINATOR else {})

    def trace(self, name: str, place: Path) -> Observer:
        return Nothing() if name == COORDINATOR else RoundTrace(place, name, self.own, self.reveal)

    @np.errstate(over="ignore", invalid="ignore")  # of iterates that have gone far out
    def collect(self, f: Finished) -> Result:
        plan, shown, t = self.plan, self.shown, self.terms
        n, d, nodes, per = len(plan.nodes), shown.size, plan.nodes, messages(plan.algorithm)
        message = 2 * d if plan.algorithm.name == "diadsp" else d
        found_rows = [round_rows(f.trace, name, d * len(self.own) + message) for name in nodes]
        T = (min(len(r) for r in found_rows) - 1) // per  # complete rounds; row 0 is the start
        rows = np.array([r[: T * per + 1] for r in found_rows])
        own = rows[:, ::per, 3 : 3 + d * len(self.own)].reshape(n, T + 1, len(self.own), d).transpose(2, 1, 0, 3)
        said = rows[:, 1:, -message:].reshape(n, T, per, message).transpose(2, 1, 0, 3)  # (per, T, n, message)
        admm = isinstance(plan.algorithm, Penalized)
        x = np.concatenate([np.zeros((1, n, d)), said[0]]) if admm else own[0]  # (T + 1, n, d); f(0) = 0
        mean = x.mean(axis=1)
        residual = [finite(np.sqrt(np.sum((x[k] - mean[k]) ** 2))) for k in range(1, T + 1)]
        objectives: list[float | None] = [None] * T
        found: dict[str, float | None] = {}
        if self.reveal:
            losses, r = self.losses, shown.regularizer
            objectives = [finite(sum(loss.value(v) for loss in losses) + n * r.value(v)) for v in mean[1:]]
            if T:
                found = against_the_optimum(losses, r, mean[-1], objectives[-1])
        # Row t - 1 is the first that has message t, and the noise of what it says.
        sent, size = np.diff(rows[:, per - 1 : -1 : per, :2].sum(axis=0), axis=0, prepend=0).T
        drawn = rows[:, :, 2].sum(axis=0)
        if plan.algorithm.name in AFTER:
            drawn = np.concatenate([[drawn[0] + drawn[1]], drawn[2:], [0.0]])
        noise = drawn[:-1].reshape(T, per).sum(axis=1)
        answers = np.array(
            [min(answered(plan.algorithm, k), t.answers) if t else 0 for k in range(1, T + 1)], dtype=np.int64
        )
        history: dict[str, list[float | int | None]] = {
            "round": list(range(1, T + 1)), "objective": list(objectives), "consensus_residual": list(residual),
            "max_violation": [None] * T,
            "noise_l1": [finite(v) for v in noise] if self.reveal and plan.algorithm.variant != "none" else [None] * T,
            "noise_l1_expected": self.expected(np.repeat(answers[:, None], n, axis=1)),
            "messages": [int(v) for v in sent], "bytes": [int(v) for v in size],
        }  # fmt: skip
        if t is not None:
            costs = [t.cost(int(a)) for a in answers]
            history |= {f"epsilon_{name}": list(costs) for name in nodes}
        summary = summarise(
            f, rounds_done=T, objective=objectives[-1] if T else None, consensus_residual=residual[-1] if T else None,
            messages=int(sent.sum()), bytes=int(size.sum()), capped=nodes if t is not None and t.capped else [], **found,
        )  # fmt: skip
        solution = {"x": mean[-1]} | {f"x_{name}": x[-1, i] for i, name in enumerate(nodes)}
        trajectory = None
        if self.scenario.run.record == "trajectory":
            trajectory = ({"f": x} if admm else {}) | dict(zip(self.own, own, strict=True))
            if plan.algorithm.name == "dpp2" and plan.algorithm.variant == "published":
                trajectory |= {"y": said[0], "z": said[1]}
        return Result(summary, history, solution, [], trajectory, f.transcript)

    def _expected_l1(self) -> np.ndarray | None:
        return None if minimizes(self.plan.algorithm) else super()._expected_l1()

    def expected(self, answers: np.ndarray) -> list[float | int | None]:
        if self.terms is None or not minimizes(self.plan.algorithm):
            return super().expected(answers)
        fresh = np.diff(answers[:, 0], prepend=0)  # all nodes answer in the same rounds
        return [self._of_minimizers(int(k)) if new else 0.0 for k, new in zip(answers[:, 0], fresh, strict=True)]

    def _of_minimizers(self, k: int) -> float:
        """Expected sum of |noise| of all nodes' answers k. What it has of the question is the penalties' curvature."""
        shown, t, p = self.shown, self.terms, self.plan.algorithm
        assert t is not None
        assert isinstance(p, Penalized)
        zero, total = np.zeros(shown.size), 0.0
        for i, (m, near) in enumerate(zip(shown.rows, shown.graph.neighbours, strict=True)):
            loss = Loss(shown.objective, np.zeros((m, shown.features)), np.ones(m), shown.classes, shown.row_bound)
            quadratic = sum(p.eta_i(i, k) + p.eta_i(j if p.of_edges else i, k) for j in near)
            if isinstance(p, dpadmm.Params) and p.perturb == "primal":
                answer = perturbation.output(loss, t.mechanism, t.per_answer, zero, quadratic)
            else:
                answer = perturbation.objective(loss, t.per_answer, zero, quadratic)
            total += answer.expected_l1(shown.size)
        return total
