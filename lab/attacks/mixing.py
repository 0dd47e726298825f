"""First-order methods among neighbours: a message is a step from public numbers, so that it tells the gradient.

A node's next message is m = m_0 - s g in every coordinate, in which m_0 and the step s are functions of what travelled
before. Both are found by the algorithm's own machine, asked with a gradient 0 and a gradient 1. Its state then goes on
with the gradient that was told, so that one machine reads all rounds of DGD, EXTRA, NIDS, DMSP, PrivSGP-VR and the
method with a weakening factor. A proximal step that is not affine ends it, as does a box that cuts a message.
Published noise xi of a message stands on the gradient as xi/s.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import ClassVar, cast

import numpy as np

from hushgrid.kernels.algorithms import dgd, dmsp, extra, nids, privsgp, weakening
from hushgrid.kernels.algorithms.base import Algorithm, Rounds, gated
from hushgrid.kernels.algorithms.mixing import Mixing
from hushgrid.kernels.types import Tensor, Vector
from hushgrid.lab.attacks.base import Attack, Recovered, context_of
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import What, gradients_of
from hushgrid.node.problems.on_graph import OnGraph

ROUNDING = 1e-9  #: of a message, relative: a machine that is farther from it is not affine there

Exchange = tuple[int, Vector, Vector]  #: round, the point at which the gate was asked, its answer


class Known:
    """In the gate's place: a gradient that is known, without a paper's noise."""

    def __init__(self) -> None:
        self.answer: Vector = np.zeros(0)
        self.point: Vector = np.zeros(0)

    def gradient(self, x: Vector) -> Vector:
        self.point = x.copy()
        return self.answer

    exact_gradient = gradient

    def perturb(self, x: Vector, scale: float) -> Vector:
        return x


class Steps(Attack):
    """Reads a node's gradients off its steps."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (
        *(dgd.Params, extra.Params, nids.Params),
        *(dmsp.Params, privsgp.Params, weakening.Params),
    )
    problem: ClassVar[type] = OnGraph

    def recover(self, transcript: Transcript) -> Recovered:
        p = transcript.plan.running
        sent = transcript.shares(p.rounds, transcript.problem.size)
        exchanges = {node: exchanges_of(transcript, i, sent) for i, node in enumerate(transcript.nodes)}
        what: What = "noisy answer" if gated(p) else "gradient"
        recovered = Recovered(gradients=gradients_of(exchanges, what, transcript.problem.size), states=("x",))
        recovered.notes.append("A message is a step of public size from public numbers, and so tells the gradient.")
        if p.variant == "published":
            recovered.notes.append("The published noise of a message stands on it, divided by that step.")
        return recovered


def exchanges_of(transcript: Transcript, i: int, sent: Tensor) -> list[Exchange]:
    """The gradients of node i, round by round, from the messages `sent` (T, n, d) of all."""
    oracle, neighbours = Known(), transcript.problem.graph.neighbours[i]
    p = transcript.plan.running
    assert isinstance(p, Rounds)
    machine = cast(Mixing, p.agent(context_of(transcript, i, oracle)))
    machine.first()
    exchanges: list[Exchange] = []
    for t, (now, following) in enumerate(pairwise(sent), start=1):
        messages, before = {transcript.nodes[j]: now[j] for j in neighbours}, machine.state

        def stepped(gradient: Vector) -> Vector:
            """Its next message, had the gate answered so."""
            machine.state, oracle.answer = copy.deepcopy(before), gradient  # noqa: B023  (called in this round)
            return machine.step(t, now[i], messages).copy()  # noqa: B023

        start = stepped(np.zeros(machine.size))
        step = start - stepped(np.ones(machine.size))
        if not np.all(step):
            return exchanges
        g = (start - following[i]) / step
        if np.max(np.abs(stepped(g) - following[i])) > ROUNDING * max(float(np.max(np.abs(following))), 1.0):
            return exchanges
        exchanges.append((t, oracle.point, g))
    return exchanges
