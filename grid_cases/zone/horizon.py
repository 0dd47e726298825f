"""A case over T periods of h hours: what is public of it beside the case, and what of it a zone sees.

Storage and ramps couple the periods of one zone only, so zones share in each period what they share in a snapshot:

    e_kt = e_k,t-1 + h (eta c_kt - d_kt / eta),  0 <= e_kt <= E_k,  0 <= c_kt, d_kt <= P_k,  e_kT >= e_end
    |p_gt - p_g,t-1| <= h r_g p_max,g            t >= 2, and t = 1 where a plan went before
    p_min,g <= p_gt <= a_gt p_max,g              availability a
    sum_g (a_gt p_max,g - p_gt) >= R_zt          reserve of a zone's generators

c and d are the charging and discharging power of storage k, e its energy at the end of a period.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hushgrid.grid_cases.case import Case, CostLines, Floats, Ints
from hushgrid.grid_cases.elements.table import Table, rows_but

NO_NUMBERS = np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Storage(Table):
    """Storage units, one entry each. Powers in MW, energies in MWh."""

    bus: Ints
    p_mw: Floats  #: P: the most that it charges or discharges with
    e_mwh: Floats  #: E: its capacity
    eta: Floats  #: of charging, and of discharging
    cost: Floats  #: $/MWh of charging, and of discharging
    e_start: Floats
    e_end: Floats  #: at least so much is left at the end

    def at(self, buses: Ints) -> Storage:
        """Those at these buses."""
        return rows_but(self, ~np.isin(self.bus, buses))


NO_STORAGE = Storage(np.zeros(0, np.int64), *[NO_NUMBERS] * 6)


@dataclass(frozen=True, slots=True, eq=False)
class Horizon:
    """T periods of a case with ng generators; what is left out limits nothing."""

    periods: int = 1
    hours: float = 1.0  #: of one period
    storage: Storage = NO_STORAGE
    ramp: Floats = field(default_factory=lambda: NO_NUMBERS)  #: r (ng,), of p_max an hour; inf: none; (0,): none at all
    availability: Floats = field(default_factory=lambda: np.zeros((0, 0)))  #: a (T, ng); (0, 0): 1
    price: Floats = field(default_factory=lambda: np.zeros((0, 0)))  #: (T, ng) factors of c1; (0, 0): 1
    reserve: Mapping[str, Floats] = field(default_factory=dict)  #: R (T,) MW, by zone
    before: Floats = field(default_factory=lambda: NO_NUMBERS)  #: p_g (ng,) of the period before the first, p.u.
    first: int = 1  #: the number of the first period in its day

    def available(self, case: Case, generators: Ints) -> Floats:
        """a p_max of these generators, (T, len(generators)), p.u."""
        highest = np.tile(case.generators.p_max[generators], (self.periods, 1))
        if not self.availability.size:
            return highest
        shares = self.availability[:, generators]
        return np.where(shares < 1, shares * highest, highest)

    def price_of(self, generators: Ints) -> Floats:
        """The factors of these generators' prices, (T, len(generators))."""
        if not self.price.size:
            return np.ones((self.periods, len(generators)))
        return self.price[:, generators]

    def steps_of(self, case: Case, generators: Ints) -> Floats:
        """h r p_max of these generators, (len(generators),), p.u.; inf: none."""
        if not self.ramp.size:
            return np.full(len(generators), np.inf)
        rates = self.ramp[generators]
        return np.where(np.isfinite(rates), self.hours * rates * case.generators.p_max[generators], np.inf)

    def case(self, case: Case, t: int) -> Case:
        """The case of period t (from 0): what its generators can give there, and what that costs."""
        every = np.arange(len(case.generators))
        most, factors = self.available(case, every)[t], self.price_of(every)[t]
        if np.array_equal(most, case.generators.p_max) and np.all(factors == 1):
            return case
        generators = replace(case.generators, p_max=most, cost_1=case.generators.cost_1 * factors)
        lines = case.piecewise
        times = factors[lines.generator]
        priced = CostLines(lines.generator, lines.slope * times, lines.intercept * times)
        return replace(case, generators=generators, piecewise=priced)

    def paths(self, case: Case, storage: Storage, values: Floats) -> Floats:
        """What storage takes from the buses of the case in each period, (T, nb) p.u.

        values: (3, T, K) charging and discharging MW and energy MWh of these units.
        """
        taken = np.zeros((self.periods, len(case.buses)))
        places = case.index(storage.bus)
        for t in range(self.periods):
            np.add.at(taken[t], places, (values[0, t] - values[1, t]) / case.base_mva)
        return taken

    def limits(self, case: Case) -> tuple[Floats, Floats]:
        """The least and the most that a generator may give in each period, (T, ng) each, p.u.: in the first within a
        ramp of the period before, as far as its availability lets it.
        """
        every = np.arange(len(case.generators))
        high = self.available(case, every)
        low = np.tile(case.generators.p_min, (self.periods, 1))
        if self.before.size:
            steps = self.steps_of(case, every)
            low[0] = np.clip(self.before - steps, low[0], high[0])
            high[0] = np.clip(self.before + steps, low[0], high[0])
        return low, high

    def around(self, case: Case, p_g: Floats) -> tuple[Floats, Floats]:
        """How low and how high a generator may be in each period, (T, ng) each, p.u., so that whatever is chosen within
        keeps the ramps around a plan p_g (T, ng): what the plan leaves of a ramp is shared by the two periods.
        """
        every = np.arange(len(case.generators))
        steps, most = self.steps_of(case, every), self.available(case, every)
        room = np.full((self.periods + 1, len(every)), np.inf)
        room[1:-1] = np.maximum(steps - np.abs(np.diff(p_g, axis=0)), 0.0) / 2
        if self.before.size:  # what went before stands: all that is left is this plan's
            room[0] = np.maximum(steps - np.abs(p_g[0] - self.before), 0.0)
        free = np.minimum(room[:-1], room[1:])
        inside = np.clip(p_g, case.generators.p_min, most)
        return np.maximum(inside - free, case.generators.p_min), np.minimum(inside + free, most)


SNAPSHOT = Horizon()
