"""Neighbouring data sets of a node that adds up a statistic: the pair that differs most, and a typical one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hushgrid.kernels.types import Vector
from hushgrid.lab.audit.answers import Answer, Quiet, answers_of, honest_sum
from hushgrid.lab.audit.canaries import PAIRS, Canary, moved
from hushgrid.lab.rollout.machines import AllowAll
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.device import Rows
from hushgrid.node.problems.records.files import Shard

Record = tuple[Vector, float]  #: features (q,), and the label


def records(plan: RunPlan, node: str) -> Iterator[tuple[Record, Record]]:
    """Pairs of records whose parts of the sum lie as far apart as any: opposed, or along two columns, or one of them
    zero.
    """
    p, t = plan.problem, plan.terms_of(node)
    assert t is not None
    read, q = p.statistic.read(p.features), p.features

    def record(column: int, value: float) -> Record:
        a = np.zeros(q + 1)
        a[column] = value
        return a[:q], float(a[q])

    edges = getattr(p.statistic, "edges", None)
    if edges is not None:
        yield record(read[0], edges[0]), record(read[0], edges[-1])
        return
    c = t.clip
    yield record(read[0], c), record(read[0], -c)
    yield record(read[0], c), record(read[-1], c)
    yield record(read[0], c), record(read[0], 0.0)


def answers(plan: RunPlan, node: str, shards: tuple[Shard, Shard]) -> list[Answer]:
    """What both gates release, without noise."""
    gates: list[Any] = [Rows(node, shard).gate(plan, Quiet(), AllowAll()) for shard in shards]  # type: ignore[arg-type]
    if gates[0].masked is not None:
        return [honest_sum(gates, np.zeros(plan.problem.size))]
    return answers_of(gates, lambda gate: gate.statistic())


def of_sums(plan: RunPlan, node: str, shard: Shard | None) -> tuple[Canary, Canary | None]:
    """The worst pair, all other records zero; and of a node's own records the pair of median distance."""
    t, p = plan.terms_of(node), plan.problem
    assert t is not None
    m, k = p.rows[p.position(node)], min(t.records, p.rows[p.position(node)])

    def made(a: Record) -> Shard:
        A, b = np.zeros((m, p.features)), np.zeros(m)
        A[:k], b[:k] = a
        return Shard(A, b)

    tried = [answers(plan, node, (made(one), made(other))) for one, other in records(plan, node)]
    worst = max(tried, key=lambda candidate: moved(candidate[0]))
    what = f"{k} records" if k > 1 else "a record"
    canary = Canary(f"{what} replaced, all others zero", worst * t.answers, moved(worst[0]), False)
    return canary, typical(plan, node, shard) if shard is not None else None


def typical(plan: RunPlan, node: str, shard: Shard) -> Canary:
    """A record of the node's own replaced by another of its own."""
    t = plan.terms_of(node)
    assert t is not None
    dice, k = np.random.Generator(np.random.Philox(key=2)), min(t.records, len(shard.b))

    def replaced(i: int, j: int) -> list[Answer]:
        A, b = shard.A.copy(), shard.b.copy()
        A[i : i + k], b[i : i + k] = A[j], b[j]
        return answers(plan, node, (shard, Shard(A, b)))

    pairs = dice.integers(0, len(shard.b), size=(PAIRS, 2))
    median = sorted((replaced(i, j) for i, j in pairs.tolist()), key=lambda a: moved(a[0]))[PAIRS // 2]
    description = f"a record of {node} replaced by another of its own, the median of {PAIRS} pairs"
    return Canary(description, median * t.answers, moved(median[0]), True)
