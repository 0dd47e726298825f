"""ADMM, R-ADMM, MR-ADMM, M-ADMM and both DP-ADMM (docs/papers/recycled-admm.md, finding 5.2): what messages say of a
node's gradients.

Message t of node i is f_i(t), f_i(0) = lambda_i(0) = 0. All multipliers follow from messages, and with them the linear
term v of each odd question. By the KKT condition of (8), (14) or (18) an answer f_i tells -(v + 2 sum_j eta_ij f_i),
which is O'(f_i) without noise and O'(f_i) + eps_i with a gate's. Linearised ADMM's answer tells the gradient at the
f_i before it, but for entries that r has set to 0 or the box has cut. An even message must be a function of those same
numbers, and tell nothing more. If it recycles a *stored* gradient of an inexact solve, the difference tells the data
set: `stored` has that gradient, and `named` the data set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import dpladmm, radmm
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.kernels.problems.losses import Loss
from hushgrid.kernels.types import Tensor, Vector
from hushgrid.lab.attacks.base import Attack, Recovered, context_of
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import gradients_of
from hushgrid.node.problems.on_graph import OnGraph

ROUNDING = (
    1e-9  #: of an even message relative to the values it is made of: a gradient of an inexact solve is further off
)


class Followed(NamedTuple):
    """What follows from one node's messages."""

    answers: list[tuple[int, Vector, Vector]]  #: (round, where it was taken, the gradient that it tells) of each answer
    even: list[tuple[int, Vector, Vector]]  #: (round, the even message as public values give it, as it was sent)
    stored: list[Vector]  #: the gradient that each even message was made with


def followed(agent: radmm.Agent, name: Sequence[str], i: int, F: Tensor) -> Followed:
    """Node i = name[i]'s part of messages F (T, n, d). `agent`: its machine, which is asked nothing of its gate."""
    p, place, others = agent.params, {node: k for k, node in enumerate(name)}, agent.neighbours
    f, lam, v, history = np.zeros(F.shape[2]), np.zeros(F.shape[2]), np.zeros(F.shape[2]), Followed([], [], [])
    neighbours = [place[j] for j in others]
    for t in range(1, len(F) + 1):
        before, f, k = f, F[t - 1, i], p.answer_of(t)
        sent, eta = F[t - 1][neighbours], agent.eta(k)
        if p.answer_of(t - 1) < k:
            history.answers.append((t, *gradient_told(agent, v, k, before, f)))
            lam = lam + 0.5 * radmm.disagreement(f, agent.dual_step(k), sent)
        if t < len(F) and p.answer_of(t + 1) == k:
            total, s = float(np.sum(eta)), radmm.disagreement(f, eta, sent)
            history.even.append((t + 1, radmm.recycled(f, lam, v, s, total, p.gamma), F[t, i]))
            history.stored.append((f - F[t, i]) * (2 * total + p.gamma) - 2 * lam - s)
        else:
            v = radmm.linear(f, lam, agent.eta(k + 1), sent)
    return history


def gradient_told(agent: radmm.Agent, v: Vector, k: int, before: Vector, f: Vector) -> tuple[Vector, Vector]:
    """Where answer f, number k, took its gradient, and that gradient; NaN in entries that r or the box hides."""
    q = agent.quadratic(k)
    if not isinstance(agent, dpladmm.Agent):
        return f, -(v + q * f)
    s, r = agent.params.step_k(k), agent.regularizer
    tau = s / (1.0 + s * q)
    prox = f * (1.0 + tau * r.l2) + tau * r.l1 * np.sign(f)  # of which f is the proximal map
    hidden = ((f == 0) & (r.l1 > 0)) | (np.abs(f) >= r.box)
    return before, np.where(hidden, np.nan, (before - prox * (1.0 + s * q)) / s - v)


Solve = Callable[[Loss, Vector, float], Vector]  #: argmin f(x) + <v, x> + q/2 |x|^2, as the node does it


def named(candidates: Sequence[Loss], x: Vector, g: Vector, q: float, solve: Solve) -> int:
    """The data set that, with the noise it implies, leads nearer to x. g: O'(x) + eps, as an even message tells it.

    Of the true one g - O'(x) is the very eps that its solve began with, which leads to x again, inexact as it is. Of
    KKT's right-hand side, which is a function of x, neither is told from the other.
    """
    return int(np.argmin([np.linalg.norm(solve(f, g - f.gradient(x), q) - x) for f in candidates]))


class Recycled(Attack):
    """Reads the KKT right-hand sides off the answers, and compares every even message with public values."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (radmm.Params,)
    problem: ClassVar[type] = OnGraph

    def recover(self, transcript: Transcript) -> Recovered:
        p, problem = transcript.plan.running, transcript.problem
        assert isinstance(p, radmm.Params)
        F = transcript.shares(p.rounds, problem.size)
        seen, off, far = {}, 0.0, 0.0
        recovered = Recovered(states=("x", "lam"))
        for i, node in enumerate(transcript.nodes):
            of_node = followed(p.agent(context_of(transcript, i, _Silent())), transcript.nodes, i, F)
            seen[node] = of_node.answers
            if of_node.stored:
                recovered.arrays[f"stored_{node}"] = np.array(of_node.stored)
            for _, expected, sent in of_node.even:
                off = max(off, float(np.max(np.abs(sent - expected))))
                far = max(far, float(np.max(np.abs(sent))))
        recovered.gradients = gradients_of(seen, "noisy answer" if gated(p) else "gradient", problem.size)
        recovered.notes.append(
            "An answer f tells -(v + 2 sum eta f): KKT's right-hand side, from messages and public numbers."
        )
        if p.recycles:
            recovered.recycled = off
            public = off <= ROUNDING * max(far, 1.0)
            recovered.notes.append(
                f"Even messages are {'functions of public values' if public else 'NOT functions of public values'}: "
                f"they are at most {off:.1g} away from what these give"
                + ("." if public else ", so a gradient that was stored travels in them, and identifies the data set.")
            )
        return recovered


class _Silent:
    """The gate of a machine that is asked for its public numbers alone."""

    def __getattr__(self, question: str) -> object:
        raise AssertionError(f"{question}: an eavesdropper has no gate")
