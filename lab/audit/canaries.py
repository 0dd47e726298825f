"""Neighbouring data sets for a scenario's own adjacency: the worst that is found, a pair for attacks on the noise, a
typical one.

The worst pair is made up, so that what is played with it is no function of anybody's data: all other rows and loads are
zero. It begins at pairs that are known to pull against each other with all their strength, and is improved by search,
at the gate itself: what counts is how far apart the gate's own values lie, in the mechanism's norm and in units of the
sensitivity that the gate has its noise for. A point x at which a gate is asked belongs to the plan, so it is the
adversary's to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, Vector
from hushgrid.lab.audit.answers import Answer, Likely, Quiet, answers_of, honest_sum
from hushgrid.lab.rollout.machines import AllowAll
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.device import Rows
from hushgrid.node.problems.records.files import Shard

TRIES = 200  #: steps of a search
BETTER = 1.005  #: a step must gain this: a pair that differs along one feature is easier to tell apart than its like
WORK = 1 << 26  #: numbers of rows that a search looks at, about
SHORT = 2.0**-13  #: cosine of two rows that both lie to one side of a point and still pull against each other
PAIRS = 51  #: records of its own that a typical one is the median of


class Canary(NamedTuple):
    """Two neighbouring data sets, and what a gate answers about them without noise."""

    description: str
    answers: Sequence[Likely]  #: all of a run
    moved: float  #: how far apart the values are, in units of the sensitivity that the noise is for
    computed: bool  #: whether it is computed from somebody's data

    @property
    def as_json(self) -> Document:
        return {"words": self.description, "moved": self.moved, "from_data": self.computed}


def moved(answer: Answer) -> float:
    """How far apart the values lie, in units of the sensitivity that the noise is for; of a paper's noise in its
    scale.
    """
    scale = answer.lattice.sensitivity if answer.lattice is not None else answer.scale
    return answer.distance / scale


# --- rows of records ---


class Pair(NamedTuple):
    """The rows that differ, k alike, and the point at which the gate is asked."""

    rows: tuple[Vector, Vector]  #: (q,)
    labels: tuple[float, float]
    x: Vector  #: (d,)
    k: int = 1


class RowGates:
    """A node's gate about either of two made-up data sets."""

    def __init__(self, plan: RunPlan, node: str) -> None:
        self.plan, self.node = plan, node
        p, self.i = plan.problem, plan.problem.position(node)
        self.m, self.q, self.C = p.rows[self.i], p.features, p.classes
        self.R, self.objective = p.row_bound or 1.0, p.node_objective(self.i)

    def gate(self, shard: Shard) -> Gate:
        return Rows(self.node, shard).gate(self.plan, Quiet(), AllowAll())  # type: ignore[arg-type]

    def gates(self, pair: Pair) -> list[Gate]:
        gates = []
        for a, b in zip(pair.rows, pair.labels, strict=True):
            A, labels = np.zeros((self.m, self.q)), np.full(self.m, 1.0 if self.objective.kind == "logistic" else 0.0)
            A[: pair.k], labels[: pair.k] = a, b
            gates.append(self.gate(Shard(A, labels)))
        return gates

    def answers(self, pair: Pair) -> list[Answer]:
        return self.answers_to(self.gates(pair), pair.x)

    def answers_to(self, gates: Sequence[Any], x: Vector) -> list[Answer]:
        """What both release at x."""
        if gates[0].masked is not None:
            return [honest_sum(gates, x)]
        return answers_of(gates, lambda gate: gate.gradient(x))

    # --- pairs that are known ---

    def axis(self, *entries: float) -> Vector:
        """The first entries of a row."""
        unit = np.zeros(self.q)
        unit[: len(entries)] = entries[: self.q]
        return unit

    def point(self, c: int, length: float) -> Vector:
        """x of which class c has this much along the first feature; of other losses x itself."""
        point = np.zeros((self.C, self.q))
        point[c if self.objective.kind == "softmax" else 0, 0] = length
        return point.ravel()

    def replaced(self, k: int, c: float) -> Iterator[Pair]:
        """Pairs of records, k times, whose gradients are opposed: at the start, and far out, where both are as large as
        can be.
        """
        R, kind, start = self.R, self.objective.kind, self.point(0, 0.0)
        strong = {"least-squares": (1 + 2 * c / R,) * 2, "logistic": (1.0, 1.0), "softmax": (0.0, 0.0)}[kind]
        one = self.axis(R)
        if kind == "softmax":
            yield Pair((one, -one), (0.0, 0.0), start, k)
        else:
            yield Pair((one, one), (strong[0], -strong[1]), start, k)
        if self.q > 1:
            s, far = SHORT, -40 / (SHORT * R)
            rows = self.axis(-s * R, R * sqrt(1 - s * s)), self.axis(-s * R, -R * sqrt(1 - s * s))
            to = self.point(1, far) if kind == "softmax" else self.point(0, -far)
            yield Pair(rows, strong, to, k)
        if kind == "softmax":
            yield Pair((one, one), (0.0, 1.0), start, k)

    def moved(self, beta: float) -> Pair:
        """Labels that flip, on as many rows as move the gradient by beta wherever it is asked."""
        o, softmax = self.objective, self.objective.kind == "softmax"
        t = self.plan.terms_of(self.node)
        assert t is not None
        per = o.scale / self.m * (1.0 if not softmax else sqrt(2) if t.mechanism == "gaussian" else 2.0)
        if o.kind == "least-squares":
            step = min(beta / (per * self.R), 1e4)
            return Pair((self.axis(self.R),) * 2, (step / 2, -step / 2), self.point(0, 0.0))
        k = min(self.m, max(1, ceil(beta / (per * self.R) * (1 - 1e-12))))
        row = self.axis(min(self.R, beta / (per * k)))
        return Pair((row, row), (0.0, 1.0) if softmax else (1.0, -1.0), self.point(0, 0.0), k)

    # --- search ---

    def worst(self) -> tuple[Pair, list[Answer]]:
        """The pair that moves the gate's answer farthest."""
        t = self.plan.terms_of(self.node)
        assert t is not None
        if not t.clip:
            pair = self.moved(t.beta)
            return pair, self.answers(pair)
        tried = [(pair, self.answers(pair)) for pair in self.replaced(min(t.records, self.m), t.clip)]
        best, answers = max(tried, key=lambda candidate: moved(candidate[1][0]))
        dice = np.random.Generator(np.random.Philox(key=1))
        steps = int(min(TRIES, WORK / (2 * self.m * self.q)))
        for no in range(steps):
            pair = self.beside(best, dice, 0.5 * 0.97**no)
            if moved((candidate := self.answers(pair))[0]) > BETTER * moved(answers[0]):
                best, answers = pair, candidate
        return best, answers

    def beside(self, pair: Pair, dice: np.random.Generator, by: float) -> Pair:
        """A pair near by, its rows within the bound, on the first features."""
        few = np.arange(self.q) < 3
        rows = []
        for a in pair.rows:
            new = a + by * self.R * dice.normal(size=self.q) * few
            rows.append(new * min(1.0, self.R * (1 - 1e-12) / max(float(np.linalg.norm(new)), 1e-300)))
        x = pair.x * np.exp(by * dice.normal()) + by * dice.normal(size=pair.x.size) * np.tile(
            few, pair.x.size // self.q
        )
        return pair._replace(rows=(rows[0], rows[1]), x=x)

    def aside(self, t: Any) -> list[Answer]:
        """A row or none: where it pulls, and (two answers) where it does not."""
        kind, R = self.objective.kind, self.R
        label = {"least-squares": 1.0, "logistic": 1.0, "softmax": 0.0}[kind]
        a = self.axis(R)
        pair = Pair((a, np.zeros(self.q)), (label, label), self.point(0, 0.0))
        if not t.clip:
            pair = self.moved(t.beta)
        answers = self.answers(pair)
        if t.answers > 1:  # where the row's slope is nought
            far = 1 / R if kind == "least-squares" else 60 / R
            answers += self.answers(pair._replace(x=self.point(0, far)))
        return answers


def of_run(answers: list[Answer], gate: Gate, t: Terms) -> list[Answer]:
    """One question as often as the gate answers, each answer with its own noise."""
    if t.growth == 1:
        return answers * t.answers
    laws = [gate.lattice_at(k) for k in range(1, t.answers + 1)]
    return [replace(answer, lattice=law, scale=law.scale) for law in laws for answer in answers]


def of_rows(plan: RunPlan, node: str) -> tuple[Canary, list[Answer]]:
    """The worst pair of a node with rows, and a pair for attacks on the noise."""
    gates, t = RowGates(plan, node), plan.terms_of(node)
    assert t is not None
    pair, answers = gates.worst()
    k = f"{pair.k} records" if pair.k > 1 else "a record"
    what = f"{k} replaced, found by search" if t.clip else f"the label of {k} flipped"
    description = f"{what}, all other rows zero, asked at |x| = {float(np.linalg.norm(pair.x)):.3g}"
    return Canary(description, of_run(answers, gates.gates(pair)[0], t), moved(answers[0]), False), gates.aside(t)


def typical_row(plan: RunPlan, node: str, shard: Shard) -> Canary:
    """A record of the node's own replaced by another of its own: the pair of median distance, asked at the start."""
    gates, t = RowGates(plan, node), plan.terms_of(node)
    assert t is not None
    dice, x = np.random.Generator(np.random.Philox(key=2)), gates.point(0, 0.0)
    k = min(t.records, len(shard.b))

    def replaced(i: int, j: int) -> list[Answer]:
        A, b = shard.A.copy(), shard.b.copy()
        A[i : i + k], b[i : i + k] = A[j], b[j]
        return gates.answers_to([gates.gate(shard), gates.gate(Shard(A, b))], x)

    pairs = dice.integers(0, len(shard.b), size=(PAIRS, 2))
    replacements = sorted((replaced(i, j) for i, j in pairs.tolist()), key=lambda a: moved(a[0]))
    answers = replacements[len(replacements) // 2]
    description = f"a record of {node} replaced by another of its own, the median of {PAIRS} pairs, asked at the start"
    return Canary(description, of_run(answers, gates.gate(shard), t), moved(answers[0]), True)


# --- loads of zones ---


class Forgetful:
    """Finds no earlier answer."""

    def key(self, question: str) -> bytes:
        return question.encode()

    def find(self, key: bytes) -> bytes | None:
        return None


class LoadGates:
    """A zone's gate about either of two made-up sets of loads."""

    def __init__(self, plan: RunPlan, node: str, public: Any, loss_at: Callable[[Vector], Any]) -> None:
        """`public`: the zone's loss at no load. `loss_at`: at loads (2 nb,), p.u."""
        self.plan, self.node, self.public, self.loss_at = plan, node, public, loss_at

    def answers(self, loads: Sequence[Vector]) -> list[Answer]:
        from hushgrid.node.problems.power_flow.gate import ZoneGate

        t, size = self.plan.terms, self.public.columns
        assert t is not None
        gates = [ZoneGate(self.node, self.loss_at(d), t, Quiet(), AllowAll(), Forgetful()) for d in loads]

        def ask(gate: Any) -> Vector:
            answer: Vector = gate.data() if t.mode == "input" else gate.gradient(np.zeros(size))
            return answer

        return answers_of(gates, ask)

    def change(self, load: int) -> Vector:
        """The largest change that begins at an entry of the loads: of a customer p and, with it, q. Over a horizon all
        of a day's energy stands in one period: no shape moves the answer farther.
        """
        t, public = self.plan.terms, self.public
        assert t is not None
        change, half = np.zeros(public.size), public.size // (2 * public.periods)
        if t.relative:
            change[load] = public.unit[load]
            return change
        per_unit = public.unit if t.day else np.ones(public.size)  # p.u. a MWh
        active = load % (2 * half) < half
        change[load] = per_unit[load] * (t.beta if active or not t.pair else t.reactive)
        other = load + half
        if t.pair and active and other in public.loaded:
            change[other] = per_unit[other] * t.reactive
        return change


def of_loads(
    plan: RunPlan, node: str, public: Any, loss_at: Callable[[Vector], Any]
) -> tuple[Canary, list[Answer], Canary]:
    """The worst pair of a zone, a pair for attacks on the noise, and a typical one: half of the change.

    Raises InputError if no load of the zone may differ from zero.
    """
    gates, t = LoadGates(plan, node, public, loss_at), plan.terms
    assert t is not None
    zero = np.zeros(gates.public.size)
    if not gates.public.loaded.size:
        raise InputError(f"{node}: found no load that may be other than zero, expected one to hide")
    tried = [(int(load), gates.answers([gates.change(int(load)), zero])) for load in gates.public.loaded]
    load, answers = max(tried, key=lambda candidate: moved(candidate[1][0]))
    answered = answers * t.answers
    description = f"load {load} of {node}'s {gates.public.size} changed by the whole unit, all others zero"
    half = gates.answers([gates.change(load) / 2, zero])
    typical = Canary(
        f"the same load, changed by half of the unit: {t.adjacency}", half * t.answers, moved(half[0]), False
    )
    return Canary(description, answered, moved(answers[0]), False), answers, typical
