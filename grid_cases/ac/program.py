"""AC optimal power flow as a nonlinear program: its variables, bounds and rows as arrays, for any solver of such.

    minimise    sum_k c2 u_k^2 + c1 u_k + c0 + VOLL b 1'(s+ + s-) + price b 1'm                               $/h
    subject to  outflow_i(v, angle) - generation_i + d_i = s+_i - s-_i                          p, then q of each bus
                p_F^2 + q_F^2, p_T^2 + q_T^2 <= (rate - margin + m)^2                               rated lines
                angle_min <= angle_from - angle_to <= angle_max                                     limited lines
                v_min + margin - m <= v <= v_max - margin + m, and so p_g, q_g                      given margins only
                low <= a p_g + b q_g <= high                            capability curves, constant power factors

u = (p_g, q_g, p of dc lines) is what costs something; a dc line takes p at one bus and gives p - loss_0 - loss_1 p at
another. Polar coordinates; the flows are functions of (angle, v) and no variables of their own. s+ is load not served,
s- is power spilled; without a value of lost load there is neither. m is the part of a margin that is given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hushgrid.grid_cases.ac.network import Point, flow_terms
from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.costs import UNIT, VOLL, Costs, cost_scale, of_controls, require_convex, require_modelled

DC = [0, 1, 3]  #: of the flows of a dc line, those that stand in x: its losses say the third
SLACK = 5  #: where the slack stands among the parts of x


@dataclass(frozen=True, slots=True, eq=False)
class Margins:
    """Distances to keep from the limits. They are soft: giving up 1 p.u. costs `price` times the base.

    A margin is at most half of its range, so that a point that keeps it exists.
    """

    v: float = 0.0  #: of |V|, p.u.
    rating: float | Floats = 0.0  #: of a line's rating, as a fraction of it: of all, or (lines,)
    p: Floats | None = None  #: (generators,) of the active power, p.u.; None: none
    q: Floats | None = None  #: (generators,) of the reactive power, p.u.; None: none
    price: float = VOLL / 100  #: $/MWh


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A block of rows low <= g(x) <= high."""

    low: Floats
    high: Floats


class Ended(NamedTuple):
    """What a solver has come to."""

    status: str | None  #: solved, acceptable, or None
    word: str  #: Ipopt's own for it
    iterations: int
    x: Floats
    multipliers: Floats  #: of the rows, the objective over `scale`: what it gains if a row's value grows by 1


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Lengths: buses nb, generators ng, lines nl, rated lines nr, lines with an angle limit na, dc lines nd."""

    case: Case
    voll: float | None  #: $/MWh; None: every load is served
    margins: Margins | None
    scale: float  #: $/h by which the objective is divided
    generator_bus: Ints  #: (ng,) bus of each generator, its position
    i: Ints  #: (nl,) from bus of each line, its position
    j: Ints  #: (nl,) to bus
    terms: Floats  #: (nl, 4, 3) of `flow_terms`
    rated: Ints  #: (nr,) positions of the lines with a rating
    limited: Ints  #: (na,) positions of the lines with an angle limit
    keep_v: Floats  #: (nb,) margin of each bus, p.u.; all four empty without margins
    keep_rate: Floats  #: (nr,) p.u.
    keep_p: Floats  #: (ng,) p.u.
    keep_q: Floats  #: (ng,) p.u.
    costs: Costs  #: of u, (2 ng + nd,)
    dc_ends: tuple[Ints, Ints]  #: (nd,) each: first and second bus of the dc lines, their positions
    firm: Ints  #: positions of the buses at which there is no slack

    @classmethod
    def from_case(
        cls, case: Case, voll: float | None = VOLL, margins: Margins | None = None, firm: Ints | None = None
    ) -> Program:
        """Raises InputError for a cost that is concave, or neither a polynomial of degree <= 2 nor piecewise linear,
        and for a part of the case that is not modelled."""
        require_convex(case)
        require_modelled(case)
        lines, g, none = case.lines, case.generators, np.empty(0)
        rated = np.flatnonzero(lines.rate > 0)
        keep = (none, none, none, none)
        if margins is not None:
            p, q = (np.zeros(len(g)) if k is None else np.asarray(k) for k in (margins.p, margins.q))
            keep = (
                np.minimum(margins.v, (case.buses.v_max - case.buses.v_min) / 2),
                np.minimum(np.broadcast_to(margins.rating, len(lines))[rated], 0.5) * lines.rate[rated],
                np.minimum(p, (g.p_max - g.p_min) / 2),
                np.minimum(q, (g.q_max - g.q_min) / 2),
            )
        return cls(
            case,
            voll,
            margins,
            cost_scale(case),
            generator_bus=case.index(g.bus),
            i=case.index(lines.from_bus),
            j=case.index(lines.to_bus),
            terms=flow_terms(case),
            rated=rated,
            limited=np.flatnonzero(np.isfinite(lines.angle_min) | np.isfinite(lines.angle_max)),
            keep_v=keep[0],
            keep_rate=keep[1],
            keep_p=keep[2],
            keep_q=keep[3],
            costs=of_controls(case),
            dc_ends=(case.index(case.dc_lines.from_bus), case.index(case.dc_lines.to_bus)),
            firm=np.empty(0, np.int64) if firm is None else firm,
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of angle, v, p_g, q_g, the dc lines (p, q at the first, q at the second bus, into the line), the slack (p+,
        p-, q+, q-, each nb, or none), the margins given up (v, rating, p, q, or none), and the piecewise-linear costs
        over `scale`, as they stand in x."""
        nb, ng = len(self.case.buses), len(self.generator_bus)
        slack = 0 if self.voll is None else 4 * nb
        return nb, nb, ng, ng, 3 * len(self.case.dc_lines), slack, *map(len, self._given_up), len(self.costs.lined)

    @property
    def _given_up(self) -> tuple[Floats, ...]:
        return self.keep_v, self.keep_rate, self.keep_p, self.keep_q

    def split(self, x: Floats) -> list[Floats]:
        """The parts of x, in the order of `sizes`."""
        return np.split(x, np.cumsum(self.sizes)[:-1])

    def bounds(self) -> Part:
        """Of x. The angle of the largest generator's bus is 0."""
        b, g, infinite = self.case.buses, self.case.generators, np.full(len(self.case.buses), np.inf)
        angle = infinite.copy()
        angle[self.generator_bus[np.argmax(g.p_max)] if len(g) else 0] = 0.0
        slack, most = np.zeros(self.sizes[SLACK]), np.full(self.sizes[SLACK], np.inf)
        most.reshape(-1, len(b))[:, self.firm] = 0.0
        given_up, free = np.concatenate(self._given_up), np.full(len(self.costs.lined), np.inf)
        dc_low, dc_high = (limit[:, DC].T.ravel() for limit in self.case.dc_lines.flow_limits())
        return Part(
            np.concatenate([-angle, b.v_min, g.p_min, g.q_min, dc_low, slack, np.zeros(len(given_up)), -free]),
            np.concatenate([angle, b.v_max, g.p_max, g.q_max, dc_high, most, given_up, free]),
        )

    def rows(self) -> Part:
        """Balance p, q; ratings at the from and at the to ends; angles; then, only with margins, x + m >= low and
        x - m <= high of v, p_g and q_g; each line of a piecewise-linear cost below its t; last, `relations`."""
        case, lines = self.case, self.case.lines
        balance, rating = np.zeros(2 * len(case.buses)), np.zeros(2 * len(self.rated))
        low = [balance, rating - np.inf, lines.angle_min[self.limited]]
        high = [balance, rating, lines.angle_max[self.limited]]
        b, g = case.buses, case.generators
        for least, most, keep in (
            (b.v_min, b.v_max, self.keep_v),
            (g.p_min, g.p_max, self.keep_p),
            (g.q_min, g.q_max, self.keep_q),
        ):
            if self.margins is not None:
                infinite = np.full(len(keep), np.inf)
                low += [least + keep, -infinite]
                high += [infinite, most - keep]
        costs, sides = self.costs.lines, case.capability
        fixed = np.zeros(len(case.power_factors))
        low += [np.full(len(costs), -np.inf), np.full(len(sides), -np.inf), fixed]
        high += [-costs.intercept / self.scale, sides.most, fixed]
        return Part(np.concatenate(low), np.concatenate(high))

    @property
    def prices(self) -> Floats:
        """Of one unit of each variable behind the dc lines in x, over `scale`: the slack in units of UNIT, the margins
        in p.u., the piecewise-linear costs themselves."""
        base = self.case.base_mva / self.scale
        lost = np.full(self.sizes[SLACK], 0.0 if self.voll is None else self.voll * base * UNIT)
        given_up = np.full(sum(self.sizes[SLACK + 1 : -1]), 0.0 if self.margins is None else self.margins.price * base)
        return np.concatenate([lost, given_up, np.ones(len(self.costs.lined))])

    @property
    def cost_lines(self) -> tuple[Floats, Ints, Ints]:
        """Of each line of a piecewise-linear cost: its slope over `scale`, its place in u, and its t among all t."""
        lines = self.costs.lines
        return lines.slope / self.scale, lines.generator, np.searchsorted(self.costs.lined, lines.generator)

    @property
    def relations(self) -> tuple[Ints, Floats, Floats]:
        """Generator, a and b of each row a p_g + b q_g: sides of capability curves, then power factors."""
        sides, factors = self.case.capability, self.case.power_factors
        return (
            np.concatenate([sides.generator, factors.generator]),
            np.concatenate([sides.p, -factors.ratio]),
            np.concatenate([sides.q, np.ones(len(factors))]),
        )

    def dc_flows(self, dc: Floats) -> Floats:
        """(nd, 4) p_F, q_F, p_T, q_T of the dc lines' part of x."""
        lines, (p, q_from, q_to) = self.case.dc_lines, dc.reshape(3, -1)
        return np.stack([p, q_from, lines.loss_0 + lines.loss_1 * p - p, q_to], axis=1)

    def start(self, point: Point) -> Floats:
        """x at a point, without slack and with every margin kept."""
        dc = np.zeros((len(self.case.dc_lines), 4)) if point.dc is None else point.dc
        controls = np.concatenate([point.p_g, point.q_g, dc[:, 0]])
        costs = self.costs.each(controls)[self.costs.lined] / self.scale
        chosen = np.concatenate([point.angle, point.v, point.p_g, point.q_g, dc[:, DC].T.ravel()])
        return np.concatenate([chosen, np.zeros(sum(self.sizes[SLACK:-1])), costs])
