"""Rounds around a coordinator (ladmm, fedavg, fedprox on rows): with one local step, its gradient is a difference.

Linearised ADMM (docs/papers/objpert-ladmm.md): by (3.2) z+ = D^-1 (-g + z/eta + rho w + lambda), D = 1/eta + rho, and
all but g is public: w and z travel, and lambda follows from them (line 22). Federated averaging: x = w - alpha g.
A box hides the coordinates in which the answer stands at it; of federated averaging the coordinator projects, and it
hides none.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms import fedavg, ladmm
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.kernels.types import Vector
from hushgrid.lab.attacks.base import Attack, Recovered
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import What, gradients_of
from hushgrid.node.problems.records.section import DataPlan


class Star(Attack):
    """Reads the gradients off what a member was sent and what it answered."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (ladmm.Params, fedavg.Params)
    problem: ClassVar[type] = DataPlan

    def fits(self, transcript: Transcript) -> bool:
        return (
            super().fits(transcript)
            and getattr(transcript.algorithm, "local_updates", 1) == 1
            and not transcript.masked
        )

    def recover(self, transcript: Transcript) -> Recovered:
        p = transcript.algorithm
        read = _linearised if isinstance(p, ladmm.Params) else _averaged
        seen: dict[str, list[tuple[int, Vector, Vector]]] = {node: [] for node in transcript.nodes}
        for node in transcript.nodes:
            box = transcript.problem.regularizer.box if isinstance(p, ladmm.Params) else inf
            for t, z, point, g in read(transcript, node):
                seen[node].append((t, point, np.where(np.abs(z) >= box, np.nan, g)))
        noise = p.variant == "published"
        what: What = "noisy answer" if gated(p) or noise else "gradient"
        how = "the difference between what a member was sent and what it answered is its gradient"
        if noise:
            how += ", with the noise that the published method adds to it or to the answer"
        return Recovered(gradients_of(seen, what, transcript.problem.size), states=("x",), notes=[f"Star: {how}."])


def _linearised(transcript: Transcript, node: str) -> Iterator[tuple[int, Vector, Vector, Vector]]:
    """(t, z_p^{t+1}, z_p^t, the gradient there)."""
    p, problem, terms = transcript.algorithm, transcript.problem, transcript.plan.terms
    assert isinstance(p, ladmm.Params)
    epsilon = terms.paper_epsilon if terms else inf
    z, lam = np.zeros(problem.size), np.zeros(problem.size)
    for t, down, up in transcript.rounds(W, Z):
        rho, eta = p.rho_t(t, epsilon), p.eta_t(t, max(problem.L), epsilon, problem.convexity)
        w, new = down[node].w, up[node].z
        yield t, new, z, z / eta + rho * w + lam - (1 / eta + rho) * new
        z, lam = new, ladmm.dual(lam, rho, w, new)


def _averaged(transcript: Transcript, node: str) -> Iterator[tuple[int, Vector, Vector, Vector]]:
    """(t, its own model after the round, w^t, the gradient there)."""
    p = transcript.algorithm
    assert isinstance(p, fedavg.Params)
    for t, down, up in transcript.rounds(W, Z):
        w, new = down[node].w, up[node].z
        yield t, new, w, (w - new) / p.step_size
