"""The gate of a statistic: S_i = sum_j phi(a_j), the records private (docs/gate.md).

Guarded, the one answer is S_i on the grid plus exact noise; masked, it is that plus the node's share of the noise. Two
data sets of the same m records are made alike where they differ by one record, or by any k (`records: k`), whatever it
is replaced by: its part of the sum is shortened to the clip c, in L1 for Laplace and L2 for Gaussian noise
(kernels/problems/statistics.py).
"""

from __future__ import annotations

import numpy as np

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy.noise import EXACT, Lattice
from hushgrid.kernels.privacy.shares import Share
from hushgrid.kernels.types import Index, Matrix, Vector
from hushgrid.node.privacy.gate import Authority, Gate
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.statistics.section import StatisticsPlan, order_of


def check_terms(plan: StatisticsPlan, t: Terms) -> None:
    """Raises InputError if the statistic has no bound in the terms' norm or relation: a plan may say anything."""
    statistic = plan.statistic
    if order_of(t) not in statistic.orders:
        raise InputError(f"privacy.mechanism: found {t.mechanism}, expected gaussian ({statistic.name})")
    if not t.clip:
        raise InputError(f"privacy.adjacency: found {t.adjacency}, expected replace-one-record ({statistic.name})")
    if t.pointwise or t.growth != 1:
        raise InputError(f"privacy: found a sensitivity or a schedule, expected neither ({statistic.name}: one answer)")


def lattice_of(plan: StatisticsPlan, i: int, t: Terms) -> Lattice:
    """The grid and noise of node i's answer by itself, from public numbers. Raises InputError if no grid holds them."""
    fit = Lattice.laplace if t.mechanism == "laplace" else Lattice.gaussian
    lattice = fit(t.per_answer, plan.moved(i, t), plan.size)
    if not plan.largest(i, t) <= EXACT / 2 * lattice.g:
        raise InputError(
            f"{plan.nodes[i]}: found sums of up to {plan.largest(i, t) / lattice.g:.3g} grid steps, expected at most "
            "2^51"
        )
    return lattice


class StatisticGate(Gate):
    """One run's gate of a node's records A (m, q), b (m,). An algorithm sees of it the protocol
    kernels.algorithms.sum.StatisticOracle.
    """

    def __init__(
        self,
        node: str,
        records: tuple[Matrix, Vector],
        plan: StatisticsPlan,
        terms: Terms | None,
        noise: NoiseSource,
        authority: Authority,
        share: Share | None = None,
    ) -> None:
        """`share`: of a masked run, this node's part of the noise. Raises InputError, by public numbers, if no noise
        fits.
        """
        i = plan.position(node)
        if terms is not None:
            check_terms(plan, terms)
        lattice = share.lattice if share else lattice_of(plan, i, terms) if terms else None
        super().__init__(node, terms, noise, authority, lattice, plan.size)
        self.records, self.sum, self.masked = records, plan.statistic, share

    # --- what an algorithm may ask ---

    def statistic(self) -> Vector:
        """S_i plus noise: one answer."""
        if self.masked:
            raise Refused(f"{self.node}: an answer by itself was asked for in a masked run")
        lattice = self._noise_lattice()
        return self._release(b"statistic", lambda: self._steps(lattice).astype(np.float64) * lattice.g)

    def share(self, x: Vector, context: bytes) -> Index:
        """S_i on the common grid plus this node's share of the noise, in grid steps: one answer. x (d,): not read.

        `about`: what it is asked with.
        """
        lattice = self._noise_lattice()
        return self._masked_share(self.masked, context, lambda: self._steps(lattice))

    def exact_statistic(self) -> Vector:
        """S_i without noise or clip: an answer of infinite cost, in simulation only."""
        self._nonprivate()
        return self.sum.plain(*self.records)

    # --- inside ---

    def _steps(self, lattice: Lattice) -> Index:
        t = self._terms()
        return self.sum.on_grid(*self.records, t.clip, order_of(t), lattice.g, self.counted)
