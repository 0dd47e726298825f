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
from hushgrid.node.problem import Penalized, answered, messages
from hushgrid.node.wire import COORDINATOR

#: A node's own vectors by algorithm; x_i is the first of them, or (ADMM's f_i) the message of the round.
OWN = {"dpp2": ("x", "q"), **dict.fromkeys(("admm", "radmm", "mradmm", "dpadmm", "dpladmm", "madmm"), ("lam",))}


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
        rows = [round_rows(f.trace, name, d * len(self.own) + message) for name in nodes]
        T = min(len(r) for r in rows) // per  # complete rounds
        steps = np.array([r[: T * per] for r in rows]).reshape(n, T, per, -1)
        own = steps[:, :, -1, 3 : 3 + d * len(self.own)].reshape(n, T, len(self.own), d).transpose(1, 2, 0, 3)
        start = np.zeros((1, n, d))
        said = steps[:, :, :, -message:].transpose(1, 2, 0, 3)  # (T, per, n, message)
        admm = isinstance(plan.algorithm, Penalized)
        x = np.concatenate([start, said[:, 0] if admm else own[:, 0]])  # (T + 1, n, d)
        mean = x.mean(axis=1)
        residual = [finite(np.sqrt(np.sum((x[k] - mean[k]) ** 2))) for k in range(1, T + 1)]
        objectives: list[float | None] = [None] * T
        found: dict[str, float | None] = {}
        if self.reveal:
            losses, r = self.losses, shown.regularizer
            objectives = [finite(sum(loss.value(v) for loss in losses) + n * r.value(v)) for v in mean[1:]]
            if T:
                found = against_the_optimum(losses, r, mean[-1], objectives[-1])
        sent, size = np.diff(steps[:, :, -1, :2].sum(axis=0), axis=0, prepend=0).T
        noise = steps[..., 2].sum(axis=(0, 2))
        answers = np.array(
            [min(answered(plan.algorithm, k), t.answers) if t else 0 for k in range(1, T + 1)], dtype=np.int64
        )
        history: dict[str, list[float | int | None]] = {
            "round": list(range(1, T + 1)), "objective": list(objectives), "consensus_residual": list(residual),
            "max_violation": [None] * T,
            "noise_l1": [finite(v) for v in noise] if self.reveal and plan.algorithm.variant != "none" else [None] * T,
            "noise_l1_expected": self.expected(np.repeat(answers[:, None], n, axis=1)) if not admm else [None] * T,
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
            trajectory = {"f": x} if admm else {}
            trajectory |= {key: np.concatenate([start, own[:, k]]) for k, key in enumerate(self.own)}
            if plan.algorithm.name == "dpp2" and plan.algorithm.variant == "published":
                trajectory |= {"y": said[:, 0], "z": said[:, 1]}
        return Result(summary, history, solution, [], trajectory, f.transcript)
