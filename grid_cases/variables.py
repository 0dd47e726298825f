"""Which elements a zone sees, where their variables stand in z, and the constraints (D.2d)-(D.2l) on them.

Variables of a zone: p_g, q_g of its generators; p_F, q_F, p_T, q_T of the lines that touch it; c_i = |V_i|^2 of its
buses and the adjacent ones; cr + i si = V_i conj(V_j) for each adjacent pair i < j (parallel lines share it); the same
four flows of the dc lines that touch it, p_F + p_T being what such a line loses.
Departures from Appendix D, with reasons: s_i is eliminated into f_p, for with (D.2b), (D.2c) in it the feasible set
would depend on the loads; (D.2f)-(D.2i) carry the signs of V_i conj(V_j) (they are printed with a + between w^RI).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.kernels.errors import InputError

DC_FLOWS = ("dc_pF", "dc_qF", "dc_pT", "dc_qT")  #: keys: into a dc line at its first and at its second bus


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Which elements a zone sees, and where their variables stand in z."""

    case: Case
    buses: tuple[int, ...]  #: own, ascending
    keys: tuple[str, ...]
    generators: Ints  #: positions in case.generators, own buses only
    lines: Ints  #: positions in case.lines, touching an own bus
    seen: Ints  #: own and adjacent bus numbers, ascending
    pairs: Ints  #: (pairs, 2) bus numbers i < j joined by those lines, ascending
    p_g: Ints  #: positions in z, and so on; q_g stands after p_g
    p_F: Ints  #: q_F, p_T, q_T stand after p_F
    c: Ints
    cr: Ints  #: si stands after cr
    dc: Ints  #: positions in case.dc_lines, touching an own bus
    dc_p_F: Ints  #: positions in z; q_F, p_T, q_T stand after it

    @classmethod
    def from_case(cls, case: Case, buses: Iterable[int]) -> Layout:
        """The layout of the zone with these own buses."""
        numbers = tuple(sorted(buses))
        network = case.lines
        generators = np.flatnonzero(np.isin(case.generators.bus, numbers))
        lines = np.flatnonzero(np.isin(network.from_bus, numbers) | np.isin(network.to_bus, numbers))
        ends = np.stack([network.from_bus[lines], network.to_bus[lines]], axis=1)
        seen = np.union1d(np.array(numbers, np.int64), ends)
        pairs = np.unique(np.sort(ends, axis=1), axis=0)
        dc = np.flatnonzero(np.isin(case.dc_lines.from_bus, numbers) | np.isin(case.dc_lines.to_bus, numbers))
        first = np.cumsum([0, 2 * len(generators), 4 * len(lines), len(seen), 2 * len(pairs)])
        keys = (
            *(f"{kind}:{row}" for row in case.generators.rows[generators] for kind in ("pg", "qg")),
            *(f"{kind}:{row}" for row in network.rows[lines] for kind in ("pF", "qF", "pT", "qT")),
            *(f"c:{bus}" for bus in seen),
            *(f"{kind}:{i}-{j}" for i, j in pairs for kind in ("cr", "si")),
            *(f"{kind}:{row}" for row in case.dc_lines.rows[dc] for kind in DC_FLOWS),
        )
        return cls(
            case,
            numbers,
            keys,
            generators,
            lines,
            seen,
            pairs,
            p_g=first[0] + 2 * np.arange(len(generators)),
            p_F=first[1] + 4 * np.arange(len(lines)),
            c=first[2] + np.arange(len(seen)),
            cr=first[3] + 2 * np.arange(len(pairs)),
            dc=dc,
            dc_p_F=first[4] + 4 * np.arange(len(dc)),
        )

    def shared(self, diagonal: bool = False) -> Ints:
        """Positions in z of the consensus: of each cut line the four flows, cr and si, which another zone holds too, of
        a cut dc line its flows; with `diagonal` also c of a line's end buses (the flows already force these)."""
        buses, network = np.array(self.buses), self.case.lines
        inside = np.isin(network.from_bus, buses) & np.isin(network.to_bus, buses)
        cut = self.lines[~inside[self.lines]]
        ends = np.stack([network.from_bus[cut], network.to_bus[cut]], axis=1)
        common = {f"{kind}:{row}" for row in network.rows[cut] for kind in ("pF", "qF", "pT", "qT")}
        common |= {f"{kind}:{min(pair)}-{max(pair)}" for pair in ends.tolist() for kind in ("cr", "si")}
        dc = self.case.dc_lines
        inside = np.isin(dc.from_bus, buses) & np.isin(dc.to_bus, buses)
        common |= {f"{kind}:{row}" for row in dc.rows[self.dc[~inside[self.dc]]] for kind in DC_FLOWS}
        if diagonal:
            common |= {f"c:{bus}" for bus in ends.ravel()}
        return np.array([k for k, key in enumerate(self.keys) if key in common], np.int64)

    def paid(self) -> tuple[Ints, Ints]:
        """Which of the case's controls (`costs.of_controls`) the zone pays for, ascending, and where they stand in z.

        Active power of its generators; reactive power where it costs something; dc lines that begin in the zone.
        """
        case, g = self.case, self.generators
        ng, dc = len(case.generators), self.dc
        reactive = np.isin(g, np.concatenate([case.reactive.generator, case.reactive_lines.generator]))
        begun = np.isin(case.dc_lines.from_bus[dc], self.buses)
        return (
            np.concatenate([g, ng + g[reactive], 2 * ng + dc[begun]]),
            np.concatenate([self.p_g, self.p_g[reactive] + 1, self.dc_p_F[begun]]),
        )

    def flat_start(self) -> Floats:
        """c = cr = 1, the rest 0, shape (n,)."""
        z = np.zeros(len(self.keys))
        z[self.c] = z[self.cr] = 1.0
        return z

    def balance(self) -> Matrix:
        """A of (D.2b), (D.2c) without the loads, shape (2 nb, n): p of each own bus, then q."""
        case, nb = self.case, len(self.buses)
        network, buses = case.lines, np.array(self.buses, np.int64)
        rows, columns, values = list[Ints](), list[Ints](), list[Floats]()

        def add(bus: Ints, column: Ints, p: float | Floats, q_column: Ints, q: float | Floats) -> None:
            mine = np.flatnonzero(np.isin(bus, buses))
            row = np.searchsorted(buses, bus[mine])
            for place, column_of, value in ((row, column, p), (row + nb, q_column, q)):
                rows.append(place)
                columns.append(column_of[mine])
                values.append(np.broadcast_to(value, bus.shape)[mine])

        add(network.from_bus[self.lines], self.p_F, 1.0, self.p_F + 1, 1.0)
        add(network.to_bus[self.lines], self.p_F + 2, 1.0, self.p_F + 3, 1.0)
        add(case.dc_lines.from_bus[self.dc], self.dc_p_F, 1.0, self.dc_p_F + 1, 1.0)
        add(case.dc_lines.to_bus[self.dc], self.dc_p_F + 2, 1.0, self.dc_p_F + 3, 1.0)
        add(case.generators.bus[self.generators], self.p_g, -1.0, self.p_g + 1, -1.0)
        shunts = case.index(self.seen)
        add(self.seen, self.c, case.buses.g_s[shunts], self.c, -case.buses.b_s[shunts])
        data = np.concatenate(values)
        entries = np.flatnonzero(data)
        places = np.concatenate(rows)[entries], np.concatenate(columns)[entries]
        return Matrix.from_entries((2 * nb, len(self.keys)), *places, data[entries])

    def angle_limits(self) -> tuple[Floats, Floats]:
        """tan of the angle limits of each pair, in its direction i < j, shape (pairs,); parallel lines intersected."""
        network, low, high = self.case.lines, np.full(len(self.pairs), -np.inf), np.full(len(self.pairs), np.inf)
        for line, pair in zip(self.lines, self.pair_of_line(), strict=True):
            limits = network.angle_min[line], network.angle_max[line]
            if network.from_bus[line] > network.to_bus[line]:
                limits = -limits[1], -limits[0]
            low[pair] = max(low[pair], _tan(limits[0]))
            high[pair] = min(high[pair], _tan(limits[1]))
        empty = np.flatnonzero(low > high)
        if len(empty):
            i, j = self.pairs[empty[0]]
            raise InputError(
                f"case {self.case.name}: found disjoint angle limits on parallel lines {i}-{j}, expected a common angle"
            )
        return low, high

    def pair_of_line(self) -> Ints:
        """Position in `pairs` of each line's pair, shape (lines,)."""
        network = self.case.lines
        low = np.minimum(network.from_bus, network.to_bus)[self.lines]
        high = np.maximum(network.from_bus, network.to_bus)[self.lines]
        base = int(self.seen.max()) + 1
        return np.searchsorted(self.pairs[:, 0] * base + self.pairs[:, 1], low * base + high)

    def constraints(self, z: Any) -> list[Any]:
        """(D.2d)-(D.2l) as cvxpy constraints on the variable z of shape (n,); every row in p.u."""
        import cvxpy as cp

        case, constraints = self.case, list[Any]()
        generators, network = case.generators, case.lines
        places = case.index(self.seen)
        constraints += _within(z[self.c], case.buses.v_min[places] ** 2, case.buses.v_max[places] ** 2)  # (D.2d)
        g = self.generators
        if len(g):  # (D.2e)
            constraints += _within(z[self.p_g], generators.p_min[g], generators.p_max[g])
            constraints += _within(z[self.p_g + 1], generators.q_min[g], generators.q_max[g])
        constraints += self._couplings(z)
        if not len(self.lines):
            return constraints

        line, pair = self.lines, self.pair_of_line()
        c_i = z[self.c[np.searchsorted(self.seen, network.from_bus[line])]]
        c_j = z[self.c[np.searchsorted(self.seen, network.to_bus[line])]]
        direction = np.where(network.from_bus[line] < network.to_bus[line], 1.0, -1.0)
        cr, si = z[self.cr[pair]], cp.multiply(direction, z[self.cr[pair] + 1])  # V_i conj(V_j), i the from-bus
        p_F, q_F, p_T, q_T = (z[self.p_F + k] for k in range(4))
        ff, ft, tf, tt = admittance(case, line)
        times = cp.multiply
        constraints += [
            p_F == times(ft.real, cr) + times(ft.imag, si) + times(ff.real, c_i),  # (D.2f)
            q_F == times(ft.real, si) - times(ft.imag, cr) - times(ff.imag, c_i),  # (D.2g)
            p_T == times(tf.real, cr) - times(tf.imag, si) + times(tt.real, c_j),  # (D.2h)
            q_T == -times(tf.real, si) - times(tf.imag, cr) - times(tt.imag, c_j),  # (D.2i)
        ]
        rated = np.flatnonzero(network.rate[line] > 0)
        if len(rated):  # (D.2j)
            rate = network.rate[line][rated]
            constraints += [cp.SOC(rate, cp.vstack([p[rated], q[rated]])) for p, q in ((p_F, q_F), (p_T, q_T))]

        low, high = self.angle_limits()
        cr, si = z[self.cr], z[self.cr + 1]
        limited = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        lower, upper = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
        if len(limited):  # (D.2k); below 90 degrees also means cr >= 0
            constraints.append(cr[limited] >= 0)
        if len(lower):
            constraints.append(si[lower] >= times(low[lower], cr[lower]))
        if len(upper):
            constraints.append(si[upper] <= times(high[upper], cr[upper]))
        c_i = z[self.c[np.searchsorted(self.seen, self.pairs[:, 0])]]
        c_j = z[self.c[np.searchsorted(self.seen, self.pairs[:, 1])]]
        constraints.append(cp.SOC((c_i + c_j) / 2, cp.vstack([cr, si, (c_i - c_j) / 2])))  # (D.2l), one cone a pair
        return constraints

    def _couplings(self, z: Any) -> list[Any]:
        """Capability curves and power factors of generators; limits and losses of dc lines."""
        import cvxpy as cp

        case, result, times = self.case, list[Any](), cp.multiply
        place = np.full(len(case.generators), -1)
        place[self.generators] = self.p_g
        curves, factors, dc = case.capability, case.power_factors, case.dc_lines
        curved, fixed = place[curves.generator] >= 0, place[factors.generator] >= 0
        if curved.any():
            p = place[curves.generator[curved]]
            result.append(times(curves.p[curved], z[p]) + times(curves.q[curved], z[p + 1]) <= curves.most[curved])
        if fixed.any():
            p = place[factors.generator[fixed]]
            result.append(z[p + 1] == times(factors.ratio[fixed], z[p]))
        if len(self.dc):
            for k, (low, high) in enumerate(zip(*(limit[self.dc].T for limit in dc.flow_limits()), strict=True)):
                result += _within(z[self.dc_p_F + k], low, high) if k != 2 else []  # the losses say p_T
            p_F, p_T = z[self.dc_p_F], z[self.dc_p_F + 2]
            result.append(p_F + p_T == dc.loss_0[self.dc] + times(dc.loss_1[self.dc], p_F))
        return result


def _tan(angle: float) -> float:
    return math.tan(angle) if math.isfinite(angle) else angle


def _within(x: Any, low: Floats, high: Floats) -> list[Any]:
    """low <= x <= high entry by entry: equalities where both agree, nothing where a side is infinite."""
    fixed = low == high
    lower, upper = np.isfinite(low) & ~fixed, np.isfinite(high) & ~fixed
    parts = []
    if fixed.any():
        parts.append(x[np.flatnonzero(fixed)] == low[fixed])
    if lower.any():
        parts.append(x[np.flatnonzero(lower)] >= low[lower])
    if upper.any():
        parts.append(x[np.flatnonzero(upper)] <= high[upper])
    return parts


def admittance(case: Case, line: Ints) -> tuple[Any, Any, Any, Any]:
    """Y^ff, Y^ft, Y^tf, Y^tt of these lines, complex, p.u., each of shape (lines,)."""
    network = case.lines
    y = 1.0 / (network.r[line] + 1j * network.x[line])
    ratio = network.tap[line] * np.exp(1j * network.shift[line])
    to = y + 0.5j * network.b[line]
    return to / np.abs(ratio) ** 2, -y / np.conj(ratio), -y / ratio, to
