"""What a case may hold beside buses, generators and lines: each part by the word that leaves it out.

Source: MATPOWER User's Manual, Sections 6.4 (extended optimal power flow) and 7.6.3 (dc lines), Appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid.grid_cases.elements.table import Floats, Ints, Table


@dataclass(frozen=True, slots=True, eq=False)
class CostLines(Table):
    """Convex piecewise-linear costs: that of an element at x is the largest slope x + intercept of its rows.

    So a solver that minimises cost adds one variable t an element, and t >= slope x + intercept for each row.
    """

    generator: (
        Ints  #: position in the case's generators (not the row of mpc.gen), of dc costs in its dc lines; ascending
    )
    slope: Floats  #: $/h per p.u., ascending for each element
    intercept: Floats  #: $/h


@dataclass(frozen=True, slots=True, eq=False)
class ReactiveCosts(Table):
    """Polynomial costs of reactive power."""

    generator: Ints  #: position in the case's generators, ascending
    cost_2: Floats  #: $/h per p.u.^2; the three are NaN where the file's cost is of a higher degree
    cost_1: Floats  #: $/h per p.u.
    cost_0: Floats  #: $/h


@dataclass(frozen=True, slots=True, eq=False)
class Capability(Table):
    """Sides of capability curves: p p_g + q q_g <= most."""

    generator: Ints  #: position in the case's generators, ascending
    p: Floats
    q: Floats
    most: Floats  #: p.u.


@dataclass(frozen=True, slots=True, eq=False)
class PowerFactors(Table):
    """Dispatchable loads of a constant power factor, which are generators with p_g <= 0: q_g = ratio p_g."""

    generator: Ints  #: position in the case's generators, ascending
    ratio: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DcLines(Table):
    """Two generators that are coupled: p goes in at the first bus, p - loss_0 - loss_1 p comes out at the second."""

    rows: Ints  #: 0-based row of mpc.dcline, the element id (out-of-service rows are left out)
    from_bus: Ints  #: bus number
    to_bus: Ints  #: bus number
    p_min: Floats  #: of p, p.u.; may be -inf
    p_max: Floats  #: p.u.; may be inf
    q_from_min: Floats  #: reactive power given to the first bus, p.u.
    q_from_max: Floats
    q_to_min: Floats  #: and to the second
    q_to_max: Floats
    loss_0: Floats  #: p.u.
    loss_1: Floats  #: below 1
    cost_2: (
        Floats  #: of p, $/h per p.u.^2; the three are NaN where the file's cost is of a higher degree, 0 without one
    )
    cost_1: Floats  #: $/h per p.u.
    cost_0: Floats  #: $/h

    def flow_limits(self) -> tuple[Floats, Floats]:
        """Of p, q into the line at its first bus, then at its second: least and most, each (lines, 4), p.u."""
        out = 1.0 - self.loss_1
        low = (self.p_min, -self.q_from_max, self.loss_0 - out * self.p_max, -self.q_to_max)
        high = (self.p_max, -self.q_from_min, self.loss_0 - out * self.p_min, -self.q_to_min)
        return np.stack(low, axis=1), np.stack(high, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates(Table):
    """Where buses are, for drawings: longitude and latitude in degrees, or a drawing's own units."""

    bus: Ints  #: bus number
    x: Floats
    y: Floats


_NONE, _NO = np.zeros(0), np.zeros(0, np.int64)
NO_COST_LINES = CostLines(_NO, _NONE, _NONE)
NO_REACTIVE_COSTS = ReactiveCosts(_NO, _NONE, _NONE, _NONE)
NO_CAPABILITY = Capability(_NO, _NONE, _NONE, _NONE)
NO_POWER_FACTORS = PowerFactors(_NO, _NONE)
NO_DC_LINES = DcLines(_NO, _NO, _NO, *[_NONE] * 11)

NO_COORDINATES = Coordinates(_NO, _NONE, _NONE)

#: Each word of `problem.ignore`: the case's fields that hold the part, as they are without it.
WITHOUT: dict[str, dict[str, Any]] = {
    "reactive-costs": {"reactive": NO_REACTIVE_COSTS, "reactive_lines": NO_COST_LINES},
    "capability-curves": {"capability": NO_CAPABILITY},
    "dc-lines": {"dc_lines": NO_DC_LINES, "dc_cost_lines": NO_COST_LINES},
    "dispatchable-loads": {"power_factors": NO_POWER_FACTORS},
    "constraints": {"constraints": ()},
}
NOT_MODELLED = ("constraints",)  #: what no solver here has
