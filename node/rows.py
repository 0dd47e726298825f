"""Data problems: from a plan and a device's own rows to its machine and gate; and the public part of a scenario."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec.structs import replace

from hushgrid.kernels import dpp2, recal, routes
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import check_walk, cyclic_route
from hushgrid.kernels.losses import Loss
from hushgrid.kernels.machine import Machine
from hushgrid.node.allowance import Allowance
from hushgrid.node.config import Scenario
from hushgrid.node.data import Shard, classes, load
from hushgrid.node.gate import Entropy, Gate, Seeded
from hushgrid.node.ledger import Ledger
from hushgrid.node.machines import machine_of
from hushgrid.node.plan import DataPlan, RunPlan
from hushgrid.node.problem import DataProblem, Softmax, Walking
from hushgrid.node.rows_gate import RowsGate
from hushgrid.node.wire import SMALL


class Rows:
    """A device with rows of records A (m, q), b (m,). `classes`: of its labels, where they are softmax'."""

    kind: ClassVar[str] = "data"
    neighbours: ClassVar[bool] = True

    def __init__(self, name: str, shard: Shard, classes: int | None = None) -> None:
        self.name, self.shard, self.classes = name, shard, classes

    @property
    def digest(self) -> str:
        """Nothing: what is public of rows, their number and width, stands in the plan and is compared there."""
        return ""

    @property
    def dimension(self) -> int:
        return int(self.shard.A.shape[1])

    def check(self, plan: RunPlan) -> None:
        """InputError unless the plan's public part is this device's own. Nothing in its text is computed from rows."""
        p = plan.problem
        if not isinstance(p, DataPlan):
            raise InputError(f"{self.name}: found a plan for {p.kind}, expected one for rows of data")
        if self.name not in p.nodes:
            raise InputError(
                f"{self.name}: found a plan for {p.nodes[0]}..{p.nodes[-1]}, expected its own name among them"
            )
        m, q = self.shard.A.shape
        if (p.rows[routes.index(self.name)], p.features) != (m, q):
            found = f"{p.rows[routes.index(self.name)]} rows of {p.features}"
            raise InputError(f"{self.name}: found a plan for {found}, expected its own {m} rows of {q}")
        if p.objective.kind == "softmax" and self.classes is not None and p.classes != self.classes:
            raise InputError(f"{self.name}: found a plan for {p.classes} classes, expected its own {self.classes}")
        try:
            _ = self.loss(p)
        except InputError:  # its text names a row
            raise InputError(
                f"{self.name}: found a plan for {p.objective.kind}, expected one that fits its labels"
            ) from None

    def loss(self, p: DataPlan) -> Loss:
        """f_i. A row beyond the plan's bound is shortened to it: to refuse would tell that there is one."""
        A, b = self.shard
        if p.row_bound is not None:
            norms = np.linalg.norm(A, axis=1)
            A = A * np.minimum(1.0, p.row_bound / np.where(norms > 0, norms, 1.0))[:, None]
        return Loss(p.objective, A, b, p.classes, p.row_bound)

    def limit(self, plan: RunPlan) -> int:
        """Bytes of the largest message of a run on this device's edges: a token of two vectors, and who is lost."""
        assert isinstance(plan.problem, DataPlan)
        return SMALL + 16 * plan.problem.size + 80 * len(plan.problem.rows)

    def machine(
        self, plan: RunPlan, run: bytes, ledger: Ledger, noise: Entropy | Seeded, allowance: Allowance
    ) -> tuple[Machine, Gate]:
        """Its machine and its gate in a run that it has checked."""
        p, t, i = plan.problem, plan.terms, routes.index(self.name)
        assert isinstance(p, DataPlan)
        if t is not None and isinstance(plan.algorithm, recal.Params):
            step = plan.algorithm.alpha_i(i, p.L[i]) * plan.algorithm.beta_n(len(p.rows))
            t = replace(t, step=step, decay=plan.algorithm.decay or 1.0)
        gate = RowsGate(self.name, self.loss(p), t, noise, allowance)
        return machine_of(plan, run, i, gate, noise), gate


def keep_model(state: Any, path: Path) -> None:
    """What a walk has left on this device, replaced whole: its own vectors; the token too, where it ended here."""
    token = state.final or (state.out.vectors if state.out else ())
    own = {key: value for key, value in vars(state).items() if isinstance(value, np.ndarray)}
    temporary = path.with_suffix(".new.npz")
    np.savez(temporary, allow_pickle=False, **own, **{f"token_{k}": v for k, v in enumerate(token)})
    os.replace(temporary, path)


def public(scenario: Scenario, file: str = "scenario") -> tuple[list[Shard] | None, DataPlan]:
    """Every node's rows (None where they are on the devices), and what of the problem is public. InputError."""
    problem, network, algorithm = scenario.problem, scenario.network, scenario.algorithm
    assert isinstance(problem, DataProblem)
    assert network is not None
    try:
        graph = network.build()
        n = graph.n
        shards = None
        if (declared := problem.data.devices) is not None:
            q, m = declared.features, declared.rows
            rows = [m] * n if isinstance(m, int) else list(m)
            if len(rows) != n:
                raise InputError(
                    f"problem.data.devices.rows: found {len(rows)} numbers, expected one for each of {n} nodes"
                )
        else:
            shards = _loaded(problem, n)
            q, rows = shards[0].A.shape[1], [len(s.b) for s in shards]
        C = _classes(problem, shards)
        R = problem.row_bound
        losses = [Loss(problem.objective, s.A, s.b, C, R) for s in shards or ()]
        L = [loss.L for loss in losses] or [problem.objective.lipschitz(R or 0.0)] * n
        route: list[int] = []
        kind: Literal["random", "given", "hamiltonian", "closed-walk", "rounds"] = "random"
        if not isinstance(algorithm, Walking):
            kind = "rounds"
        elif not isinstance(algorithm.walk, str):
            check_walk(graph, algorithm.walk, algorithm.rounds)
            kind = "given"
        elif algorithm.walk == "hamiltonian":
            found = cyclic_route(graph)
            route, kind = list(found.nodes), found.kind
        if isinstance(algorithm, recal.Params):
            _check_alpha(algorithm, L)
        if isinstance(algorithm, dpp2.Params):
            algorithm.check_stable(max(map(len, graph.neighbours)), max(L))
        if kind == "rounds" and scenario.run.stop:
            raise InputError("run.stop: found a section, expected none (synchronous rounds without a centre)")
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return shards, DataPlan(
        objective=problem.objective, l1=problem.regularizer.l1, l2=problem.regularizer.l2, box=problem.box, row_bound=R,
        features=q, classes=C, rows=rows, L=L, edges=list(graph.edges), route=route, route_is=kind,
        walk_seed=scenario.seed,
    )  # fmt: skip


def _check_alpha(algorithm: recal.Params, L: Sequence[float]) -> None:
    """alpha_i in (0, 2/(L_i + 1)); where nothing is private, L_i may be known better than by its bound."""
    if isinstance(algorithm.alpha, tuple) and len(algorithm.alpha) != len(L):
        raise InputError(
            f"algorithm.alpha: found {len(algorithm.alpha)} numbers, expected one for each of {len(L)} nodes"
        )
    for i, L_i in enumerate(L):
        if (alpha := algorithm.alpha_i(i, L_i)) >= (bound := 2 / (L_i + 1)) and algorithm.variant != "none":
            raise InputError(f"algorithm.alpha: found {alpha:g} for n{i}, expected less than 2/(L_i + 1) = {bound:g}")


def _loaded(problem: DataProblem, n: int) -> list[Shard]:
    try:
        shards = load(problem.data, Path(), problem.kind, n)
    except InputError as error:
        raise InputError(f"problem.{error}" if str(error).startswith("data") else str(error)) from None
    for i, s in enumerate(shards):
        try:
            Loss(problem.objective, s.A, s.b, row_bound=problem.row_bound, classes=_classes(problem, shards))
        except InputError as error:
            raise InputError(f"problem.data: node n{i}: {error}") from None
    return shards


def _classes(problem: DataProblem, shards: Sequence[Shard] | None) -> int:
    if not isinstance(problem, Softmax):
        return 1
    if problem.classes is None and shards is None:
        raise InputError("problem.classes: missing, expected the number of classes (softmax)")
    return problem.classes or max(2, classes(shards or ()))
