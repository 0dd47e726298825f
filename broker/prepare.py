"""What is public about a simulated run, prepared once: case, zones, models, plan; and the data its nodes are given."""

from __future__ import annotations

import numpy as np

from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.central import solve
from hushgrid.grid_cases.zone_model import zone_models
from hushgrid.grid_cases.zone_solvers import make_step
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.ladmm import Vector
from hushgrid.node.assemble import Zone, ZoneLoss, layout, public
from hushgrid.node.config import Scenario
from hushgrid.node.gate import PAPER_SAMPLER, Entropy, Seeded
from hushgrid.node.plan import resolved, terms
from hushgrid.node.zone_gate import expected_l1


class Setup:
    """A scenario made ready. InputError names `file` and the key. Only `loads`, `zone` and `optimum` touch raw data."""

    def __init__(self, scenario: Scenario, file: str = "scenario") -> None:
        self.case, self.zones, self.plan = public(scenario, file)
        self.scenario = resolved(scenario)
        self.terms = terms(self.plan.privacy, self.plan.algorithm)
        self.models = zone_models(self.case, [list(b) for b in self.zones.values()])
        self.keys_w, self.position, _ = layout(self.case, self.zones)
        if scenario.problem.solver != "clarabel":  # an absent one is refused here, not in a child
            first = next(iter(self.models.values()))
            make_step(first, np.ones(first.n), scenario.problem.solver)
        self.budget = scenario.privacy.budget if scenario.privacy else None

    def loads(self, name: str) -> Vector:
        """A zone's private data, p.u."""
        return loads(self.case, self.models[name].buses)

    def zone(self, name: str) -> Zone:
        return Zone(name, self.case, self.models[name], self.loads(name), self.scenario.problem.solver)

    def optimum(self) -> float | None:
        """The central optimum of the load shedding."""
        try:
            return float(solve(self.case, "shedding").value)
        except HushgridError:
            return None

    @property
    def upheld(self) -> bool | str:
        """Whether the claim holds: False (published), "not private" (none, seeded or truth), or True."""
        s, variant = self.scenario, self.scenario.algorithm.variant
        if variant == "published":
            return False
        return "not private" if variant == "none" or s.seed is not None or s.run.truth else True

    @property
    def reveal(self) -> bool:
        """Whether raw-data figures may be computed."""
        return self.upheld is not True

    @property
    def sampler(self) -> str | None:
        if self.terms is None:
            return None
        if self.terms.published:
            return PAPER_SAMPLER
        return Entropy.sampler if self.scenario.seed is None else Seeded.sampler

    @property
    def expected_l1(self) -> float | None:
        """Expected sum of |noise| of one answer of every node."""
        if self.terms is None:
            return None
        public_part = {name: ZoneLoss(m, np.zeros(2 * len(m.buses))) for name, m in self.models.items()}
        return sum(expected_l1(name, loss, self.terms) for name, loss in public_part.items())
