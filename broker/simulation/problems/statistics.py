"""Simulated sums of statistics: what is prepared, and what the sum says."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hushgrid.broker.report import quality
from hushgrid.broker.report.result import Quality
from hushgrid.broker.simulation.problems.base import Figures, Finished
from hushgrid.broker.simulation.problems.records import RowNodes, read
from hushgrid.broker.simulation.recorders.base import Recorded, finite
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.types import Document, Vector
from hushgrid.node import wire
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.masking import noise_shares
from hushgrid.node.problems.records.data import Arrays
from hushgrid.node.problems.statistics import centre
from hushgrid.node.problems.statistics.gate import lattice_of
from hushgrid.node.problems.statistics.public import public
from hushgrid.node.runtime.driver import Stored


class StatisticSetup(RowNodes):
    """Only `device`, `child` and `exact` touch raw data."""

    own_figures = ("summed", "records")

    def __init__(self, scenario: Scenario, file: str = "scenario", arrays: Arrays | None = None) -> None:
        loaded, plan = public(scenario, file, arrays, read)
        super().__init__(scenario, file, loaded, plan)

    def grids(self) -> list[Lattice] | None:
        plan, t = self.plan, self.terms
        if t is None:
            return None
        if t.masked is not None:
            return [share.lattice for share in noise_shares(plan)]
        return [lattice_of(plan.problem, i, t) for i in range(len(plan.nodes))]

    def exact(self, summed: list[str]) -> Vector:
        """(d,) The sum over these nodes without noise or clip."""
        total = np.zeros(self.public.size)
        for node in summed:
            total = total + self.public.statistic.plain(*self.device(node).shard)
        return total

    def objective(self, x: Vector) -> float:
        """Nothing is minimised."""
        return float("nan")

    def figures(self, seen: Recorded, over: Finished) -> Figures:
        plan, T, summed = self.plan, len(seen.residual), summed_of(seen.extras.get("state"))
        last: Document = {"summed": summed, "records": centre.records(plan, summed)}
        solution, tables = {"x": seen.x}, {}
        if summed:
            x, sd = centre.estimates(plan, seen.x, summed)
            named = np.array(self.public.statistic.entries(self.public.names(self.features)))
            solution = {"x": x, "sd": sd, "keys_x": named}
            tables = {"sum": centre.table(plan, seen.x, summed, self.features)}
            if self.reveal:
                S = self.exact(summed)
                length = float(np.linalg.norm(S))
                last["relative_error"] = finite(float(np.linalg.norm(seen.x - S)) / length) if length else None
        return Figures(
            objective=[None] * T,
            max_violation=[None] * T,
            expected_noise=self.expected(seen.answers),
            quality=self.judged(seen, summed),
            solution=solution,
            at_the_end=last,
            tables=tables,
        )

    def judged(self, seen: Recorded, summed: list[str]) -> Quality:  # type: ignore[override]
        """A sum has no copies that could differ: it is as good as its noise is small."""
        size = float(np.linalg.norm(seen.x)) if summed else None
        return quality.of_a_sum(size, centre.noise_of(self.plan, summed))


class Said(Struct):
    """What both coordinators of a sum say in their state."""

    summed: list[str]


def summed_of(state: bytes | None) -> list[str]:
    """Whose answers are in the sum, by the coordinator's last state."""
    return wire.decode_state(Said, wire.decode_state(Stored, state).machine).summed if state else []


SETUP = StatisticSetup
