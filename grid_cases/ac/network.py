"""The network in polar coordinates: line flows, what flows out at each bus, and angles fitted to a relaxation's
point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve

from hushgrid.grid_cases.case import Case, Floats, Ints
from hushgrid.grid_cases.variables import DC_FLOWS, admittance

Complexes = NDArray[np.complex128]


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Where a network is operated, or where a solver starts. Lengths: buses nb, generators ng, dc lines nd; p.u.,
    rad.
    """

    v: Floats  #: (nb,) voltage magnitude
    angle: Floats  #: (nb,)
    p_g: Floats  #: (ng,)
    q_g: Floats  #: (ng,)
    dc: Floats | None = None  #: (nd, 4) p, q into each dc line at its first and at its second bus; None: nothing

    @property
    def voltage(self) -> Complexes:
        """(nb,) complex voltages."""
        voltage: Complexes = self.v * np.exp(1j * self.angle)
        return voltage


def flat(case: Case) -> Point:
    """|V| = 1, angles 0, every generator in the middle of its range, dc lines as near to nothing as they may be."""
    n, g = len(case.buses), case.generators
    dc = np.clip(0.0, *case.dc_lines.flow_limits())
    return Point(np.ones(n), np.zeros(n), _middle(g.p_min, g.p_max), _middle(g.q_min, g.q_max), dc)


def relaxed(case: Case, values: Mapping[str, float]) -> Point:
    """The point of a relaxation's solution, from its variables by name (pg:0, qg:0, c:4, cr:4-7, si:4-7, dc_pF:0, as in
    a zone model); a name that is missing is taken from the flat start.

    A relaxation has an angle difference atan2(si, cr) for every pair of adjacent buses, and around a loop they need not
    add up to 0: the angles are their weighted least-squares fit, weights |y| of the pair.
    """
    start, numbers = flat(case), case.buses.numbers.tolist()
    value_of = values.get
    c = np.array([value_of(f"c:{bus}", 1.0) for bus in numbers])
    p_g = [
        value_of(f"pg:{row}", default)
        for row, default in zip(case.generators.rows.tolist(), start.p_g.tolist(), strict=True)
    ]
    q_g = [
        value_of(f"qg:{row}", default)
        for row, default in zip(case.generators.rows.tolist(), start.q_g.tolist(), strict=True)
    ]
    pairs = np.unique(np.sort(np.stack([case.lines.from_bus, case.lines.to_bus], axis=1), axis=1), axis=0)
    names = [f"{i}-{j}" for i, j in pairs.tolist()]
    difference = np.arctan2([value_of(f"si:{k}", 0.0) for k in names], [value_of(f"cr:{k}", 1.0) for k in names])
    dc = np.array([[value_of(f"{kind}:{row}", 0.0) for kind in DC_FLOWS] for row in case.dc_lines.rows.tolist()])
    v, angle = np.sqrt(np.maximum(c, 0.0)), _fitted(case, pairs, difference)
    return Point(v, angle, np.array(p_g), np.array(q_g), dc.reshape(-1, 4))


def _fitted(case: Case, pairs: Ints, difference: Floats) -> Floats:
    """Angles whose differences over the pairs are nearest to these, that of the first bus 0."""
    n, lines = len(case.buses), case.lines
    if not len(pairs):
        return np.zeros(n)
    base = int(case.buses.numbers.max()) + 1
    low, high = np.minimum(lines.from_bus, lines.to_bus), np.maximum(lines.from_bus, lines.to_bus)
    pair = np.searchsorted(pairs[:, 0] * base + pairs[:, 1], low * base + high)
    weight = np.bincount(pair, weights=1 / np.abs(lines.r + 1j * lines.x), minlength=len(pairs))
    k, i, j = np.arange(len(pairs)), case.index(pairs[:, 0]), case.index(pairs[:, 1])
    ones = np.ones(len(pairs))
    over = sparse.csr_array((np.r_[ones, -ones], (np.r_[k, k], np.r_[i, j])), shape=(len(pairs), n))[:, 1:]
    weighted = over.T @ sparse.diags_array(weight)
    fitted: Floats = np.append(0.0, spsolve((weighted @ over).tocsc(), weighted @ difference))
    return fitted


def flow_terms(case: Case) -> Floats:
    """(lines, 4, 3): each of p_F, q_F, p_T, q_T = own c + b cr + e si of its line, as (own, b, e); c at its own end.

    cr + i si = V_i conj(V_j) with i the from bus; (D.2f)-(D.2i).
    """
    ff, ft, tf, tt = admittance(case, np.arange(len(case.lines)))
    terms = (
        (ff.real, ft.real, ft.imag),
        (-ff.imag, -ft.imag, ft.real),
        (tt.real, tf.real, -tf.imag),
        (-tt.imag, -tf.imag, -tf.real),
    )
    return np.moveaxis(np.array(terms), 2, 0)


def flows(case: Case, v: Floats, angle: Floats) -> Floats:
    """(lines, 4) p_F, q_F, p_T, q_T at these voltages, p.u."""
    i, j = case.index(case.lines.from_bus), case.index(case.lines.to_bus)
    size, difference = v[i] * v[j], angle[i] - angle[j]
    square, b, e = np.moveaxis(flow_terms(case), 2, 0)
    c = np.stack([v[i], v[i], v[j], v[j]], axis=1) ** 2
    result: Floats = square * c + b * (size * np.cos(difference))[:, None] + e * (size * np.sin(difference))[:, None]
    return result


def outflow(case: Case, v: Floats, flow: Floats, dc: Floats | None = None) -> Floats:
    """(buses, 2) active and reactive power that leaves each bus through its lines, dc lines (nd, 4) and shunt, p.u."""
    i, j = case.index(case.lines.from_bus), case.index(case.lines.to_bus)
    out = np.stack([case.buses.g_s, -case.buses.b_s], axis=1) * (v**2)[:, None]
    np.add.at(out, i, flow[:, :2])
    np.add.at(out, j, flow[:, 2:])
    if dc is not None:
        np.add.at(out, case.index(case.dc_lines.from_bus), dc[:, :2])
        np.add.at(out, case.index(case.dc_lines.to_bus), dc[:, 2:])
    return out


def bus_admittance(case: Case) -> Any:
    """(buses, buses) complex sparse: the current that leaves each bus through its lines and shunt is Y V."""
    n, i, j = len(case.buses), case.index(case.lines.from_bus), case.index(case.lines.to_bus)
    ff, ft, tf, tt = admittance(case, np.arange(len(case.lines)))
    shunt, every = case.buses.g_s + 1j * case.buses.b_s, np.arange(n)
    places = (np.concatenate([i, i, j, j, every]), np.concatenate([i, j, i, j, every]))
    return sparse.csr_array((np.concatenate([ff, ft, tf, tt, shunt]), places), shape=(n, n))


def excess(case: Case, point: Point) -> dict[str, Floats]:
    """How far each limit is passed at a point, >= 0: v (buses,), p and q (generators,), rating (lines,), the larger of
    the two ends, capability (sides of curves, then power factors), dc (dc lines,), in p.u.; angle (lines,) in rad."""
    return {kind: np.maximum(by, 0.0) for kind, by in _beyond(case, point).items()}


def binding(case: Case, point: Point, tolerance: float = 1e-4) -> dict[str, Ints]:
    """The elements at a limit, or nearer to it than `near` (p.u., rad), by kind as in `excess`: positions in their
    tables. Generators without a choice (min = max) are left out."""
    g, beyond = case.generators, _beyond(case, point)
    sides = np.arange(len(beyond["capability"])) < len(case.capability)
    choice = {"p": g.p_min < g.p_max, "q": g.q_min < g.q_max, "capability": sides}
    return {kind: np.flatnonzero((by > -tolerance) & choice.get(kind, True)) for kind, by in beyond.items()}


def violations(case: Case, point: Point) -> dict[str, float]:
    """The largest `excess` of each kind."""
    return {kind: float(by.max(initial=0.0)) for kind, by in excess(case, point).items()}


def _beyond(case: Case, point: Point) -> dict[str, Floats]:
    """How far each element is beyond the nearer of its limits; negative inside."""
    b, g, lines = case.buses, case.generators, case.lines
    flow = flows(case, point.v, point.angle)
    apparent = np.hypot(flow[:, [0, 2]], flow[:, [1, 3]]).max(axis=1)
    difference = point.angle[case.index(lines.from_bus)] - point.angle[case.index(lines.to_bus)]
    sides, factors, (low, high) = case.capability, case.power_factors, case.dc_lines.flow_limits()
    dc = np.clip(0.0, low, high) if point.dc is None else point.dc
    curved, fixed = sides.generator, factors.generator
    beyond = sides.p * point.p_g[curved] + sides.q * point.q_g[curved] - sides.most
    return {
        "v": np.maximum(b.v_min - point.v, point.v - b.v_max),
        "p": np.maximum(g.p_min - point.p_g, point.p_g - g.p_max),
        "q": np.maximum(g.q_min - point.q_g, point.q_g - g.q_max),
        "rating": apparent - np.where(lines.rate > 0, lines.rate, np.inf),
        "angle": np.maximum(lines.angle_min - difference, difference - lines.angle_max),
        "capability": np.concatenate([beyond, np.abs(point.q_g[fixed] - factors.ratio * point.p_g[fixed])]),
        "dc": np.maximum(low - dc, dc - high).max(axis=1, initial=-np.inf),
    }


def _middle(low: Floats, high: Floats) -> Floats:
    """The middle of each range; the finite end of a half-open one, 0 of one without ends."""
    both = np.isfinite(low) & np.isfinite(high)
    ends = np.where(np.isfinite(low), low, 0.0) + np.where(np.isfinite(high), high, 0.0)
    return np.where(both, ends / 2, ends)
