"""How far from the optimum an answer of data nodes can be: a test of what they have released, which costs nothing.

The network minimises F(x) = mean_i f_i(x) + r(x). Answer k of node i is G_i(x_i^k) + xi_i^k: G_i the gradient of f_i
(its clipped, Huberised form where records are clipped), x_i^k the point at which it was asked, xi noise of a public
law. Over the last K answers of each node let g = mean_i mean_k a_i^k, and s q the norm that the mean of the noise
passes with a chance of 1 - CONFIDENCE at most. f_i' is L_i-Lipschitz, clipped or not, so at the point x that is handed
out

    |mean_i f_i'(x) - g| <= e = s q + mean_i L_i mean_k |x_i^k - x|.

Without kinks a gradient of F at x is at most B = |g + l2_r x| + e. With an l1 term or a box, y = prox_{r/L}(x - g/L), L
the mean of L_i, has a subgradient of F of at most B = 2 L |x - y| + e: L (x - y) - g is one of r at y. In both cases, F
being mu-strongly convex, the optimum is within |x - y| + B/mu of x (y = x without kinks).

A private minimiser x~ = argmin f_i + <v, .> + c/2 |.|^2 with noise tells the gradient -(v + c x~) in the same way: at
the minimiser itself, which lies within the noise that was added to it.

A masked run has released sums alone: there the coordinator's mean answer takes the place of all nodes'.
K is the number of answers with the smallest B; the chance is shared among the numbers tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, sqrt
from typing import Literal, NamedTuple

import numpy as np

from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Matrix, Vector

CONFIDENCE = 0.999  #: of every bound
RELATIVE = 0.05  #: an answer is solved if the optimum is proven this near, relative to its own norm
STILL = 1e-3  #: without strong convexity: if B is at most this share of the first answers' gradient

Noise = Literal["none", "gaussian", "laplace", "spherical"]


class NodeAnswers(NamedTuple):
    """What one node was asked last and has answered, K answers in their order."""

    first: Vector  #: (d,) its first answer of all
    x: Matrix  #: (K, d) where it was asked
    answer: Matrix  #: (K, d)
    scale: Vector  #: (K,) of the noise of each answer: a standard deviation, or Laplace's b
    drift: Vector  #: (K,) scale of the noise that was added to the point itself (private minimisers); 0: none
    curvature: Vector  #: (K,) that noise is in the answer too, times this
    slack: Vector  #: (K,) what the answer may be off besides
    L: float  #: the smoothness constant of its f_i


class Optimality(NamedTuple):
    """A bound of how far the answer is from the optimum."""

    solved: bool  #: the optimum is proven to be as near as RELATIVE, or STILL says so where F is not strongly convex
    gradient: float  #: a (sub)gradient of F there is no larger
    moving: float  #: the mean gradient over the last answers is no smaller; 0: nothing can be said
    wanted: float  #: `gradient` of a solved answer is no larger
    relative: float = inf  #: |x - x*|/|x*| is no larger
    gap: float = inf  #: F(x) - F(x*) is no larger
    confidence: float = CONFIDENCE


def noise_norm(kind: Noise, scales: Vector, d: int, chance: float) -> float:
    """What the norm of a sum of independent noises of these scales, (d,) each, passes with at most this chance.

    gaussian: Laurent and Massart (2000), Lemma 1. laplace (coordinates), spherical (density exp(-|x|/b)): Chernoff's
    bound of each coordinate, united.
    """
    if kind == "none" or not np.any(scales):
        return 0.0
    if kind == "gaussian":
        t = log(1 / chance)
        return float(np.linalg.norm(scales)) * sqrt(d + 2 * sqrt(d * t) + 2 * t)
    power = 1.0 if kind == "laplace" else (d + 1) / 2
    largest = float(np.max(scales))
    rates = np.geomspace(1e-4, 0.999, 400)[:, None] / largest
    moments = -power * np.sum(np.log1p(-((rates * scales) ** 2)), axis=1)
    return sqrt(d) * float(np.min((log(2 * d / chance) + moments) / rates[:, 0]))


def of_answers(
    x: Vector, nodes: Sequence[NodeAnswers], kind: Noise, mu: float, r: Regularizer, drifts: Noise = "none"
) -> Optimality | None:
    """The bound of the answer x (d,); None if a node has answered nothing. mu: F is mu-strongly convex, or 0.

    `kind`: the law of the answers' noise; `drifts`: that of the noise added to a minimiser.
    """
    most = min((len(node.x) for node in nodes), default=0)
    if not most or not np.all(np.isfinite(x)):
        return None
    tries = [1 << j for j in range(most.bit_length()) if 1 << j <= max(len(node.x) for node in nodes)]
    chance = (1 - CONFIDENCE) / (len(tries) + 1)
    bounds = [_bound(x, nodes, K, kind, drifts, mu, r, chance) for K in tries]
    gradient, moving, distance, aside = min(bounds)
    size = float(np.linalg.norm(x))
    relative = distance / (size - distance) if distance < size else inf
    if mu > 0:
        wanted = (RELATIVE / (1 + RELATIVE) * size - aside) * mu
        gap = gradient**2 / (2 * mu) if aside == 0 else inf
    else:
        first = np.mean([node.first for node in nodes], axis=0)
        scales = np.array([node.scale[0] for node in nodes]) / len(nodes)
        wanted, gap = STILL * max(float(np.linalg.norm(first)) - noise_norm(kind, scales, x.size, chance), 0.0), inf
    return Optimality(gradient <= wanted, gradient, moving, wanted, relative, gap)


def exact(x: Vector, g: Vector, L: float, mu: float, r: Regularizer, first: Vector) -> Optimality:
    """The same from the gradient g (d,) of mean_i f_i at x itself, of runs that hide nothing. first: that at 0."""
    zero = np.zeros(1)
    optimality = of_answers(x, [NodeAnswers(first, x[None], g[None], zero, zero, zero, zero, L)], "none", mu, r)
    return optimality._replace(confidence=1.0) if optimality else Optimality(False, inf, inf, 0.0, confidence=1.0)


def _bound(
    x: Vector,
    nodes: Sequence[NodeAnswers],
    K: int,
    kind: Noise,
    drifts: Noise,
    mu: float,
    r: Regularizer,
    chance: float,
) -> tuple[float, float, float, float]:
    """(B, the least that the gradient can be, |x - x*|, |x - y|) by the last K answers of each node."""
    n, d = len(nodes), x.size
    g, scales, off = np.zeros(d), [], 0.0
    answers = sum(min(K, len(node.x)) for node in nodes)
    for node in nodes:
        last = slice(-K, None)
        k = len(node.x[last])
        g += np.mean(node.answer[last], axis=0) / n
        scales.append(node.scale[last] / (n * k))
        far = node.L * np.linalg.norm(node.x[last] - x, axis=1) + node.slack[last]
        if drifts != "none":
            norms = [noise_norm(drifts, np.array([b]), d, chance / answers) for b in node.drift[last].tolist()]
            far = far + (node.L + node.curvature[last]) * np.array(norms)
        off += float(np.mean(far)) / n
    noise = noise_norm(kind, np.concatenate(scales), d, chance)
    e = noise + off
    unsure = noise if drifts == "none" else e  # what was averaged where it was asked is the gradient there
    L = float(np.mean([node.L for node in nodes]))
    if r.l1 == 0 and r.box == inf:
        norm, aside = float(np.linalg.norm(g + r.l2 * x)), 0.0
        B, moving = norm + e, max(norm - unsure, 0.0)
    else:
        y = r.prox(x - g / L, 1 / L)
        aside = float(np.linalg.norm(x - y))
        B, moving = 2 * L * aside + e, max(L * aside - unsure, 0.0)
    return B, moving, aside + (B / mu if mu > 0 else inf), aside
