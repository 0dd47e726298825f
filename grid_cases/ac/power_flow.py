"""AC power flow: what a network does when set-points meet the loads as they are. Small: numpy and scipy only.

Newton's method in polar coordinates (Tinney, Hart, 1967), with the active power that the generators take up together as
one more unknown. Generators that can hold the voltage at their bus do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from hushgrid.grid_cases.ac.network import Complexes, Point, bus_admittance, excess, flows
from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.elements.parts import NO_COST_LINES, WITHOUT, Capability, PowerFactors
from hushgrid.grid_cases.elements.table import rows_but
from hushgrid.kernels.errors import InputError

TOLERANCE = 1e-8  #: of the mismatch, p.u.
MOST_ITERATIONS = 30
AMPLE = 1e3  #: p.u.: the headroom of a generator without a limit
Coupled = TypeVar("Coupled", Capability, PowerFactors)
LEAST = 1e-4  #: p.u.: less headroom than this is none, an interior-point solver's distance from a limit


@dataclass(frozen=True, slots=True, eq=False)
class Newton:
    """What Newton's method came to; of its last iterate where it did not converge."""

    converged: bool
    iterations: int
    mismatch: float  #: largest |P| or |Q| mismatch left, p.u.
    voltage: Complexes  #: (buses,)
    taken_up: float  #: active power given beyond the injections, shared as asked, p.u.
    power: Complexes  #: (buses,) power that each bus gives to the network, p.u.


def newton(case: Case, injected: Complexes, voltage: Complexes, held: NDArray[np.bool_], share: Floats) -> Newton:
    """Solve for angles, for |V| where it is not held, and for the active power taken up.

    injected: (buses,) generation less load, p.u.; its imaginary part counts where |V| is not held. voltage: (buses,)
    start, whose magnitudes are held at `held`. share: (buses,) of the power taken up, sums to 1; the angle stays at the
    bus with the largest share.
    """
    n, Y = len(case.buses), bus_admittance(case)
    angles, sizes, V = np.delete(np.arange(n), np.argmax(share)), np.flatnonzero(~held), voltage.astype(np.complex128)
    taken_up, beyond = 0.0, np.concatenate([-share, np.zeros(len(sizes))])[:, None]
    for iteration in range(MOST_ITERATIONS + 1):
        current = Y @ V
        power = V * np.conj(current)
        off = power - injected - taken_up * share
        wrong = np.concatenate([off.real, off.imag[sizes]])
        mismatch = float(np.abs(wrong).max(initial=0.0))
        if mismatch < TOLERANCE or iteration == MOST_ITERATIONS or not np.isfinite(mismatch):
            break
        # dS/dangle = j diag(V) conj(diag(I) - Y diag(V)); dS/d|V| = diag(V) conj(Y diag(V/|V|)) + diag(conj(I) V/|V|)
        unit = V / np.abs(V)
        by_angle = 1j * sparse.diags_array(V) @ np.conj(sparse.diags_array(current) - Y @ sparse.diags_array(V))
        by_size = sparse.diags_array(V) @ np.conj(Y @ sparse.diags_array(unit)) + sparse.diags_array(
            np.conj(current) * unit
        )
        by = sparse.hstack([by_angle.tocsc()[:, angles], by_size.tocsc()[:, sizes]], format="csr")
        jacobian = sparse.hstack([sparse.vstack([by.real, by.imag[sizes]]), sparse.csr_array(beyond)])
        try:
            step = splu(jacobian.tocsc()).solve(-wrong)
        except RuntimeError:  # exactly singular
            break
        angle, size = np.angle(V), np.abs(V)
        angle[angles] += step[: len(angles)]
        size[sizes] += step[len(angles) : -1]
        taken_up += float(step[-1])
        V = size * np.exp(1j * angle)
    return Newton(mismatch < TOLERANCE, iteration, mismatch, V, taken_up, power)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A network at set-points and at loads that these were not made for. Powers in p.u. on the case's base."""

    converged: bool  #: where it is not, the figures are those of Newton's last iterate
    iterations: int
    mismatch: float  #: largest |P| or |Q| mismatch left
    point: Point  #: voltages and generation as they are then
    flows: Floats  #: (lines, 4) p_F, q_F, p_T, q_T
    imbalance: float  #: active power that the generators give beyond their set-points, together
    headroom: float  #: of the generators together: what they can give or take before one reaches a limit
    q_unheld: float  #: |reactive power| needed at the reference bus where no generator holds a voltage
    excess: dict[str, Floats]  #: how far each limit is passed, as `network.excess`

    @property
    def losses(self) -> float:
        """Active power lost in the lines."""
        return float(self.flows[:, [0, 2]].sum())

    @property
    def uncovered(self) -> float:
        """Active power of the imbalance that no generator has the headroom for."""
        return max(0.0, abs(self.imbalance) - self.headroom)

    @property
    def violations(self) -> dict[str, float]:
        """The largest of each kind of limit: v, p, q, rating in p.u., angle in rad."""
        return {kind: float(by.max(initial=0.0)) for kind, by in self.excess.items()}


def headroom(case: Case, p_g: Floats) -> Floats:
    """(generators,) what each can give or take at p_g before it reaches a limit, p.u.; 0 of one at a limit."""
    g = case.generators
    room = np.clip(np.minimum(g.p_max - p_g, p_g - g.p_min), 0.0, AMPLE)
    return np.where(room < LEAST, 0.0, room)


def operate(case: Case, point: Point, loads: Floats, shed: Floats | None = None) -> Operation:
    """The network at the set-points of `point` and at loads (p_d, q_d), shape (2 nb,), p.u.

    Every generator with headroom min(p_max - p, p - p_min) takes up its share of the imbalance; where none has any,
    the reference bus gives it (that of the largest generator, else the first bus). |V| is held at the buses whose
    generators have a range of reactive power. shed: (nb, 2) load that the set-points do not serve, or where negative
    power that they spill, p.u.; None: none. Raises InputError for loads of another shape or not finite.
    """
    g, n = case.generators, len(case.buses)
    if np.shape(loads) != (2 * n,) or not np.all(np.isfinite(loads)):
        raise InputError(f"case {case.name}: loads: found shape {np.shape(loads)}, expected {(2 * n,)} finite numbers")
    generator_bus, shed = case.index(g.bus), np.zeros((n, 2)) if shed is None else shed
    injected = -(loads[:n] - shed[:, 0]) - 1j * (loads[n:] - shed[:, 1])
    np.add.at(injected, generator_bus, point.p_g + 1j * point.q_g)
    if point.dc is not None:  # dc lines carry what they were set to
        for end, k in ((case.dc_lines.from_bus, 0), (case.dc_lines.to_bus, 2)):
            np.add.at(injected, case.index(end), -(point.dc[:, k] + 1j * point.dc[:, k + 1]))
    room = headroom(case, point.p_g)
    share = room / room.sum() if room.sum() > 0 else np.zeros(len(g))
    reference = int(generator_bus[np.argmax(np.minimum(g.p_max, AMPLE))]) if len(g) else 0
    by_bus: Any = np.bincount(generator_bus, weights=share, minlength=n) if share.any() else np.eye(n)[reference]
    held = np.bincount(generator_bus, weights=g.q_max > g.q_min, minlength=n) > 0
    if unheld := not held.any():
        held[reference] = True
    state = newton(case, injected, point.voltage, held, by_bus)

    v, angle = np.abs(state.voltage), np.angle(state.voltage)
    needed = state.power.imag - injected.imag  # at held buses, beyond the set-points
    after = Point(v, angle, point.p_g + state.taken_up * share, point.q_g + _reactive(case, needed * held), point.dc)
    return Operation(
        converged=state.converged,
        iterations=state.iterations,
        mismatch=state.mismatch,
        point=after,
        flows=flows(case, v, angle),
        imbalance=state.taken_up,
        headroom=float(room.sum()),
        q_unheld=float(abs(needed[reference])) if unheld else 0.0,
        excess=excess(case, after),
    )


def operate_zone(
    case: Case,
    buses: Iterable[int],
    point: Point,
    loads: Floats,
    ties: Mapping[int, tuple[float, float]],
    converters: Mapping[tuple[int, str], tuple[float, float]] | None = None,
) -> Operation:
    """A zone alone, with the power of its tie lines fixed at the plan: what its own controller can check.

    buses: own bus numbers; every array follows the case's tables restricted to them, in their order. point: own
    voltages and set-points. loads: own (p_d, q_d), shape (2 own buses,), p.u. ties: (p, q) that leaves the zone at its
    end of a tie line, p.u., by the 0-based row of mpc.branch. converters: (p, q) into a dc line at each of its ends (F,
    T) that is in the zone, by the 0-based row of mpc.dcline. Lines inside the zone are checked, tie lines are not:
    their flow is given. Raises InputError for tie lines and ends of dc lines that are not the zone's, all of them.
    """
    numbers = np.array(sorted(buses), np.int64)
    network, inside = case.lines, [np.isin(k, numbers) for k in (case.lines.from_bus, case.lines.to_bus)]
    cut = np.flatnonzero(inside[0] ^ inside[1])
    if set(network.rows[cut].tolist()) != set(ties):
        raise InputError(
            f"case {case.name}: ties: found branch rows {sorted(ties)}, expected {sorted(network.rows[cut].tolist())}"
        )
    dc, converters = case.dc_lines, converters or {}
    terminals = {(row, "F"): bus for row, bus in zip(dc.rows.tolist(), dc.from_bus.tolist(), strict=True)}
    terminals |= {(row, "T"): bus for row, bus in zip(dc.rows.tolist(), dc.to_bus.tolist(), strict=True)}
    inner = {key: bus for key, bus in terminals.items() if bus in numbers}
    if set(inner) != set(converters):
        raise InputError(f"case {case.name}: converters: found {sorted(converters)}, expected {sorted(inner)}")
    mine = np.isin(case.generators.bus, numbers)
    zone = replace(
        case.without(WITHOUT),
        piecewise=NO_COST_LINES,
        capability=_renumbered(case.capability, mine),
        power_factors=_renumbered(case.power_factors, mine),
        buses=rows_but(case.buses, ~np.isin(case.buses.numbers, numbers)),
        generators=rows_but(case.generators, ~mine),
        lines=rows_but(network, ~(inside[0] & inside[1])),
    )
    out, end = np.zeros((len(numbers), 2)), np.where(inside[0], network.from_bus, network.to_bus)[cut]
    np.add.at(out, zone.index(end), np.array([ties[row] for row in network.rows[cut].tolist()]).reshape(-1, 2))
    for key, bus in inner.items():
        out[np.searchsorted(numbers, bus)] += converters[key]
    return operate(zone, point, np.asarray(loads) + out.T.ravel())


def _renumbered(table: Coupled, mine: NDArray[np.bool_]) -> Coupled:
    """The rows of a table about these generators alone, which are counted among themselves."""
    rows = rows_but(table, ~mine[table.generator])
    return replace(rows, generator=(np.cumsum(mine) - 1)[rows.generator])


def _reactive(case: Case, needed: Floats) -> Floats:
    """(generators,) reactive power needed at each bus, shared by its generators' ranges."""
    g, generator_bus = case.generators, case.index(case.generators.bus)
    range_ = np.clip(g.q_max - g.q_min, 0.0, AMPLE)
    bus_range = np.bincount(generator_bus, weights=range_, minlength=len(needed))[generator_bus]
    result: Floats = needed[generator_bus] * np.divide(range_, bus_range, out=np.zeros(len(g)), where=bus_range > 0)
    return result
