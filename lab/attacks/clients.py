"""Rounds around a coordinator with several local steps: members are simulated until they answer as they did.

What travels is then no gradient, but still a function of the rows: the algorithm's own machine, run on guessed rows
with what the coordinator has sent, must give what the member has answered. Its answers differ from those of a member
without data by a part that lies in the span of the rows (without a box), so that only their coordinates there are
fitted, by least squares. A fit begins with the rows that would have answered so with one step a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from hushgrid.kernels.algorithms import fedavg, ladmm
from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.kernels.problems.losses import Declared, Loss, public_gradient
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.attacks.base import Attack, Recovered
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.classes import Spanned, fit, ways
from hushgrid.lab.inversion.recovered import NONE, Rows
from hushgrid.node.problems.machines import place
from hushgrid.node.problems.records.section import DataPlan

ROUNDS = 6  #: that a fit uses, the first ones; its residual is that of all
STARTS = 3  #: of a fit
LARGEST = 8  #: rows of a node; more unknowns take too long
FOUND = 1e-8  #: a fit that leaves less is taken
HOPELESS = 1e-3  #: of what lies outside of the span of m rows: no m rows explain it
STEPS = 25  #: Jacobians of a fit, at most

Gradient = Callable[[Vector], Vector]


class Clients(Attack):
    """Finds the rows whose simulated member answers what was heard."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (ladmm.Params, fedavg.Params)
    problem: ClassVar[type] = DataPlan

    def fits(self, transcript: Transcript) -> bool:
        return super().fits(transcript) and getattr(transcript.algorithm, "local_updates", 1) > 1

    def recover(self, transcript: Transcript) -> Recovered:
        rows = {node: rows_of_member(Member(transcript, i)) for i, node in enumerate(transcript.nodes)}
        E = getattr(transcript.algorithm, "local_updates", 1)
        notes = [f"Star with {E} local steps: what travels is no gradient. Members were simulated on guessed rows."]
        if transcript.algorithm.variant != "none":
            notes.append("Every local step has noise on its gradient, which a simulated member does not have.")
        return Recovered(rows=rows, notes=notes)


class KnownGradient:
    """In the gate's place: a gradient that is known."""

    def __init__(self, gradient: Gradient) -> None:
        self.gradient = self.exact_gradient = gradient

    def perturb(self, x: Vector) -> Vector:
        return x


class Member:
    """What was heard of one member: what it was sent and what it answered, round by round."""

    def __init__(self, transcript: Transcript, i: int) -> None:
        self.transcript, self.i, node = transcript, i, transcript.nodes[i]
        self.steps: int = getattr(transcript.algorithm, "local_updates", 1)  #: E
        self.f: Declared = transcript.problem.declared(i)
        every = [(down[node], up[node].z) for _, down, up in transcript.rounds(W, Z)]
        self.sent, self.answered = [w for w, _ in every], np.array([z for _, z in every]).reshape(len(every), -1)

    def answers(self, gradient: Gradient, rounds: int | None = None) -> Matrix:
        """(T, d) what it would answer in the first `rounds` if this were the gradient of its function."""
        plan: Any = self.transcript.plan
        nothing: Any = None
        gate: Any = KnownGradient(gradient)
        machine = plan.running.agent(place(plan, b"", self.i, gate, nothing))
        answers = []
        for t, w in enumerate(self.sent[:rounds], 1):
            machine.update(t, w)
            answers.append(machine.answer_body().z)
        return np.array(answers)

    def public(self, x: Vector) -> Vector:
        o = self.f.objective
        return public_gradient(x, o.l2, o.lam, o.omega)

    def of_rows(self, A: Matrix, b: Vector, rounds: int | None = None) -> Matrix:
        """What it would answer with these rows."""
        return self.answers(Loss(self.f.objective, A, b, self.f.classes).gradient, rounds)


class Start(NamedTuple):
    """Where a fit begins: coordinates of the rows in their span, and their labels."""

    V: Matrix  #: (m, m)
    labels: Vector  #: (m,)


def rows_of_member(member: Member) -> Rows:
    """The rows behind what a member has answered."""
    f = member.f
    m, q = f.rows, f.features
    if f.objective.kind == "least-squares" or m > min(LARGEST, q) or not len(member.sent):
        return NONE
    empty = member.answers(member.public)
    moved = member.answered - empty
    size = float(np.linalg.norm(moved))
    if not size or len(moved) * max(f.classes - 1, 1) <= m:
        return NONE
    every = moved.reshape(-1, q)
    B = np.linalg.svd(every, full_matrices=False)[2][:m]
    outside = float(np.linalg.norm(every - every @ B.T @ B)) / size
    best = (np.inf, NONE)
    for start in starts(member, B, moved[:ROUNDS], empty[:ROUNDS]):
        V = start.V if outside > HOPELESS else fitted(member, B, start)
        residual = float(np.linalg.norm(member.of_rows(V @ B, start.labels) - member.answered)) / size
        best = min(
            best, (residual, Rows(V @ B, start.labels, "matching", residual)), key=lambda candidate: candidate[0]
        )
        if residual <= max(FOUND, 10 * outside) or outside > HOPELESS:
            break
    return best[1]


def as_one_step(member: Member, B: Matrix, moved: Matrix, empty: Matrix) -> Spanned:
    """Each round as if its gradients were one: the mean gradient that would move the answers so far, and its point.

    What constant gradients of single rounds do to the answers is found by asking the machine.
    """
    f, T, E = member.f, len(moved), member.steps
    pull = np.zeros((T, T))
    for s in range(T):
        turns = iter(np.repeat(np.arange(T), E) == s)

        def pulled(x: Vector, turns: Iterator[np.bool_] = turns) -> Vector:
            one: Vector = member.public(x) + float(next(turns))
            return one

        pull[:, s] = (member.answers(pulled, T) - empty)[:, 0]
    mean = np.linalg.solve(pull, moved).astype(np.float64)
    points: list[Vector] = []

    def slope(x: Vector) -> Vector:
        points.append(x)
        moving: Vector = member.public(x) + mean[(len(points) - 1) // E]
        return moving

    member.answers(slope, T)
    middle = np.array(points).reshape(T, E, -1).mean(axis=1)
    shape = (T, f.classes, f.features)
    return Spanned(middle.reshape(shape) @ B.T, mean.reshape(shape) @ B.T * (f.rows / f.objective.scale))


def starts(member: Member, B: Matrix, moved: Matrix, empty: Matrix) -> Iterator[Start]:
    """Where fits begin: the rows that would have answered so with one step a round."""
    s, m = as_one_step(member, B, moved, empty), len(B)
    if member.f.objective.kind == "logistic":
        mean = np.repeat(-2.0 * s.N[0] / m, m, axis=0)  # the sum of -r_j/2, r = b a
        for k in range(STARTS if m > 1 else 1):
            apart = counter_generator(k, "apart", m).normal(size=(m, m)) * float(np.linalg.norm(mean)) / m
            yield Start(mean + (apart if m > 1 else 0.0), np.ones(m))
        return
    present, sums = classes_of(s.N[0], m)
    for spread in ways(s, sums, m):
        labels = np.repeat(present, spread)
        Y = (np.arange(s.N.shape[1])[:, None] == labels).astype(np.float64)
        for k in range(STARTS if max(spread) > 1 else 1):
            yield Start(fit(s, sums, spread, Y, k), labels.astype(np.float64))


def classes_of(N: Matrix, m: int) -> tuple[np.ndarray, Matrix]:
    """The classes that rows have, and about the sum of the rows of each: the others show about the same.

    They lie near the median class; the widest gap in the distances from it tells who does not.
    """
    far = np.linalg.norm(N[:, None] - N[None], axis=2)
    centre = int(np.argmin(np.median(far, axis=1)))
    order = np.argsort(far[centre])
    steps = np.diff(far[centre][order])
    fewest = max(len(N) - m, 1)  # of the classes without a row
    empty = order[: fewest + int(np.argmax(steps[fewest - 1 :]))]
    present = np.setdiff1d(np.arange(len(N)), empty)
    return present, N[empty].mean(axis=0) - N[present]


def fitted(member: Member, B: Matrix, start: Start) -> Matrix:
    """(m, m) coordinates on B (m, q) with which the simulated member answers what was heard, near a start."""
    wanted = member.answered[:ROUNDS]
    scale = float(np.linalg.norm(wanted)) or 1.0

    def missed(v: Vector) -> Vector:
        residual = member.of_rows(v.reshape(start.V.shape) @ B, start.labels, ROUNDS) - wanted
        flat: Vector = (residual.reshape(-1, B.shape[1]) @ B.T).ravel() / scale
        return flat

    most = STEPS * (start.V.size + 1)
    solved = least_squares(missed, start.V.ravel(), method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=most)
    V: Matrix = solved.x.reshape(start.V.shape)
    return V
