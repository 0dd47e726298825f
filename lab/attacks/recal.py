"""RECAL and DP-RECAL (docs/papers/dp-recal.md, finding 1.1): every gradient is on the wire, one visit late.

By (7b) x+ = prox_{nr}(x - u - beta (x - y_i)): where the proximal map can be inverted, the token tells y_i, and by (7c)
of two visits the gradient. lambda_i follows by its recursion from the public start. Where u is exact (`none`,
`guarded`) its difference tells lambda_i+ at once, by lambda_i+ = lambda_i + beta (x+ - y_i+) y_i+ too, and nothing is
hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms import recal
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Vector
from hushgrid.lab.attacks.base import Attack, Recovered
from hushgrid.lab.attacks.transcript import Transcript, Visit
from hushgrid.lab.inversion.recovered import What, gradients_of
from hushgrid.node.problems.records.section import DataPlan

Seen = dict[int, list[tuple[int, Vector, Vector]]]  #: (activation, y_i, f_i'(y_i)) of each agent, in order


class Recal(Attack):
    """Reads the gradients off the token."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (recal.Params,)
    problem: ClassVar[type] = DataPlan

    def recover(self, transcript: Transcript) -> Recovered:
        p, problem = transcript.algorithm, transcript.problem
        assert isinstance(p, recal.Params)
        n, zero = len(transcript.nodes), np.zeros(problem.size)
        alpha = [p.alpha_i(i, L) for i, L in enumerate(problem.L)]
        visits = transcript.visits((zero, zero))
        beta = p.beta_n(n)
        if p.variant == "published":
            seen = one_visit_late(visits, alpha, beta, problem.regularizer, problem.size)
            how = "x of the token tells y one visit late; the noise on u stands beside it and hides nothing of it"
        else:
            seen = at_once(visits, alpha, beta, problem.size)
            how = "the difference of u tells lambda, lambda tells y, and two y tell the gradient between them"
        named = {node: seen.get(i, []) for i, node in enumerate(transcript.nodes)}
        what: What = "noisy answer" if gated(p) else "gradient"
        return Recovered(gradients_of(named, what, problem.size), states=("y", "lam"), notes=[f"RECAL: {how}."])


def at_once(visits: Iterable[Visit], alpha: list[float], beta: float, size: int) -> Seen:
    """From tokens whose u is exact: every question and its answer, the last ones too."""
    y, lam, seen = dict[int, Vector](), dict[int, Vector](), Seen()
    for k, i, (x, u), (x_new, u_new), _ in (v for v in visits if not v.idle):
        y_i, lam_i = y.get(i, np.zeros(size)), lam.get(i, np.zeros(size))
        moved = u_new - u  # (7e)
        y_new = x_new - moved / beta
        half = lam_i + beta * (x - y_i)  # (7a)
        seen.setdefault(i, []).append((k, y_i, half - (y_new - y_i) / alpha[i]))  # (7c)
        y[i], lam[i] = y_new, lam_i + moved
    return seen


@dataclass
class Pending:
    """A visit whose gradient the next one tells."""

    k: int
    x: Vector
    x_new: Vector
    y: Vector
    lam: Vector


def one_visit_late(visits: Iterable[Visit], alpha: list[float], beta: float, r: Regularizer, size: int) -> Seen:
    """From x alone, whatever noise is on u: every question, and its answer but for an agent's last. NaN where hidden.

    Hidden are coordinates in which x+ is 0 (l1 > 0) or at the box. lambda_i is a sum over visits: once hidden, always.
    """
    last, seen = dict[int, Pending](), Seen()
    for k, i, (x, u), (x_new, _), live in (v for v in visits if not v.idle):
        v = x_new * (1.0 + live * r.l2) + live * r.l1 * np.sign(x_new)  # (7b) inverted
        y = x + (v - x + u) / beta
        y[((x_new == 0) & (r.l1 > 0)) | (np.abs(x_new) >= r.box)] = np.nan
        if (then := last.get(i)) is None:
            y, lam = np.zeros(size), np.zeros(size)  # the public start
        else:
            half = then.lam + beta * (then.x - then.y)
            seen.setdefault(i, []).append((then.k, then.y, half - (y - then.y) / alpha[i]))
            lam = then.lam + beta * (then.x_new - y)
        last[i] = Pending(k, x, x_new, y, lam)
    return seen
