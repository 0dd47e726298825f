"""How many honest shares are in every sum that can be decoded, where each device masks with few others.

A round's set S has s devices, of which t are corrupt. Each honest device picks k others of its set, uniformly, by its
own entropy, *after* the set was named to it, and shares a pad with each of them. It also adds a pad with every device
that is said to have picked it. A pad that only one side has added never cancels. So a set K of honest messages can be
decoded only if no device of K has picked an honest one outside of K: K is **closed**. That some picks were withheld, or
made up, adds no closed set, because each device knows its own picks. So picks need no signature, and nobody has to
confirm them.

**Theorem.** Let n devices have at most t corrupt ones, h = s - t, and let each device draw at most D times, each time
for a set of s or more that may depend on all draws before. The probability that some closed set has m honest devices is
at most

    C(n - t, m) (D q_m)^m,    q_m = C(t + m - 1, k) / C(s - 1, k).

*Proof.* Fix K, |K| = m, and for each of its devices one of its D draws. A draw for a set of s' >= s devices, at most t
of them corrupt, avoids the honest outside of K only if all k picks are among the t corrupt and m - 1 others of K at
most: C(t + m - 1, k)/C(s' - 1, k) <= q_m, whatever was drawn before. The m devices draw independently. There are D^m
choices of draws, and at most C(n - t, m) sets K; with fewer corrupt devices, count some honest ones among the corrupt.

So each decoded sum has h' honest shares at least, but for a probability of sum_{m < h'} C(n - t, m) (D q_m)^m, which is
an additional delta of the whole run. h' is a little below h, because a few devices that nobody has picked can be left
out of a sum. As in J. Bell, K. Bonawitz, A. Gascon, T. Lepoint, M. Raykova, Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead (CCS 2020), but without their recovery of lost masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.types import Vector

ROOM = 1e-6  #: of the logarithms, which are exact to 1e-9


class MaskGraph(NamedTuple):
    """Who may mask with whom, in public numbers."""

    nodes: int  #: n
    contributors: int  #: s, the fewest devices of a set
    corrupt: int  #: t
    neighbours: int  #: k, the picks of each device
    draws: int = 1  #: D, the most sets for which a device picks in one run

    @property
    def honest(self) -> int:
        """h"""
        return self.contributors - self.corrupt


def log_bounds(graph: MaskGraph) -> Vector:
    """(h - 1,) ln of the bound on the probability that some m honest devices are closed, m = 1, 2, ...; at most 0."""
    n, s, t, k, draws = graph
    m = np.arange(1, max(graph.honest, 1), dtype=np.float64)
    alone = np.minimum(np.log(draws) + _log_ratio(t + m - 1, s - 1, k), 0.0)
    bounds: Vector = np.minimum(_log_choose(n - t, m) + m * alone + ROOM, 0.0)
    return bounds


def exposure(graph: MaskGraph, shares: int) -> float:
    """A bound on the probability that some sum of fewer than so many honest shares can be decoded in a run."""
    return float(min(np.sum(np.exp(log_bounds(graph)[: shares - 1])), 1.0))


@lru_cache(maxsize=64)
def fewest_shares(graph: MaskGraph, exposed: float) -> int:
    """h': so many honest shares are in each sum, but for a probability of `exposed` in a run; 0: none that is known."""
    sums = np.cumsum(np.exp(log_bounds(graph)))
    allowed = int(np.searchsorted(sums, exposed, side="right"))  # sizes 1 .. allowed are closed too seldom to count
    return allowed + 1 if allowed or graph.honest == 1 else 0


def fewest_neighbours(graph: MaskGraph, exposed: float, share: float = 0.95) -> int:
    """The smallest k with which each sum has `share` of the honest shares, but for a probability of `exposed`."""

    def enough(k: int) -> bool:
        return fewest_shares(graph._replace(neighbours=k), exposed) >= max(share * graph.honest, 1)

    most, high = graph.contributors - 1, 1  # of all with all it is known
    while high < most and not enough(high):
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        k = (low + high) // 2
        low, high = (low, k) if enough(k) else (k, high)
    return high


def chosen(uniform: Iterable[int], others: Sequence[str], k: int) -> tuple[str, ...]:
    """k of the others, sorted, each set of k equally likely: the first k steps of Fisher's and Yates's shuffle.

    uniform: words below 2^64. A word that would favour some of the others is passed over.
    """
    shuffled, stream = list(others), iter(uniform)
    for a in range(k):
        rest = len(shuffled) - a
        b = a + next(word for word in stream if word < (1 << 64) - (1 << 64) % rest) % rest
        shuffled[a], shuffled[b] = shuffled[b], shuffled[a]
    return tuple(sorted(shuffled[:k]))


def _log_ratio(free: Vector, all_: int, k: int) -> Vector:
    """ln C(free, k)/C(all_, k): k picks of `all_` are all among `free` of them; -inf if these are fewer than k."""
    picked = np.arange(k, dtype=np.float64)
    logs = np.full(free.shape, -np.inf)
    some = free >= k
    total = np.zeros(int(np.count_nonzero(some)))
    for j in picked:
        total += np.log((free[some] - j) / (all_ - j))
    logs[some] = total
    return logs


def _log_choose(n: int, m: Vector) -> Vector:
    """ln C(n, m)."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1, dtype=np.float64)))])
    chosen = m.astype(np.int64)
    logs: Vector = factorials[n] - factorials[chosen] - factorials[n - chosen]
    return logs
