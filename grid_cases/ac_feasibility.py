"""AC power flow at a solution of the relaxation: what the network would really do. It needs the loads: for simulation.

Newton's method in polar coordinates (Tinney, Hart, 1967). Generators keep their active power and hold |V_i| =
sqrt(c_i); the bus with the most generation capacity takes up the difference in losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from hushgrid.grid_cases.case import Case, Floats
from hushgrid.grid_cases.centralised import Solution
from hushgrid.grid_cases.variables import admittance

TOLERANCE = 1e-8  #: of the mismatch, p.u.
MOST_ITERATIONS = 30


@dataclass(frozen=True, slots=True, eq=False)
class AcCheck:
    """Powers in p.u. on the case's base."""

    converged: bool
    iterations: int
    mismatch: float  #: largest |P| or |Q| mismatch left
    voltage: NDArray[np.complex128]  #: (buses,) complex voltages
    losses: float  #: active losses in the lines
    relaxed_losses: float  #: the same by the relaxation's flows: more where they are fictitious
    slack: int  #: bus number that takes up the difference
    slack_change: float  #: active power it gives beyond the solution
    voltage_violation: float  #: largest excess of |V| beyond its limits
    thermal_violation: float  #: largest excess of |S| of a line beyond its limit


def ac_check(case: Case, solution: Solution) -> AcCheck:
    """Solve the AC power flow at the generation, voltages and served loads of `solution`.

    Where Newton's method does not converge, `converged` is False and the figures are those of its last iterate.
    """
    buses, n = case.buses, len(case.buses)
    at = case.index(case.generators.bus)
    given = solution.shed[:, 0] + 1j * solution.shed[:, 1] - buses.p_d - 1j * buses.q_d  # shed: load not served
    np.add.at(given, at, solution.p_g + 1j * solution.q_g)
    capacity = np.bincount(at, weights=np.minimum(case.generators.p_max, 1e6), minlength=n)
    slack = int(np.argmax(capacity))
    angles = np.setdiff1d(np.arange(n), [slack])
    magnitudes = np.setdiff1d(np.arange(n), [slack, *at])

    network = case.lines
    line = np.arange(len(network))
    ff, ft, tf, tt = admittance(case, line)
    i, j = case.index(network.from_bus), case.index(network.to_bus)
    shape, count = (len(network), n), len(network)
    to_from = sparse.csr_array((np.r_[ff, ft], (np.r_[line, line], np.r_[i, j])), shape=shape)
    to_to = sparse.csr_array((np.r_[tf, tt], (np.r_[line, line], np.r_[i, j])), shape=shape)
    ends = [sparse.csr_array((np.ones(count), (line, end)), shape=shape) for end in (i, j)]
    Y = ends[0].T @ to_from + ends[1].T @ to_to + sparse.diags_array(buses.g_s + 1j * buses.b_s)

    V = np.sqrt(np.maximum(solution.c, 0.0)).astype(np.complex128)
    for iteration in range(MOST_ITERATIONS + 1):
        current = Y @ V
        off = V * np.conj(current) - given
        wrong = np.concatenate([off.real[angles], off.imag[magnitudes]])
        mismatch = float(np.abs(wrong).max(initial=0.0))
        if mismatch < TOLERANCE or iteration == MOST_ITERATIONS or not np.isfinite(mismatch):
            break
        # dS/dangle = j diag(V) conj(diag(I) - Y diag(V)); dS/d|V| = diag(V) conj(Y diag(V/|V|)) + diag(conj(I) V/|V|)
        unit = V / np.abs(V)
        by_angle = 1j * sparse.diags_array(V) @ np.conj(sparse.diags_array(current) - Y @ sparse.diags_array(V))
        by_size = sparse.diags_array(V) @ np.conj(Y @ sparse.diags_array(unit)) + sparse.diags_array(
            np.conj(current) * unit
        )
        by_angle, by_size = by_angle.tocsr()[:, angles], by_size.tocsr()[:, magnitudes]
        jacobian = sparse.block_array(
            [[by_angle.real[angles], by_size.real[angles]], [by_angle.imag[magnitudes], by_size.imag[magnitudes]]]
        )
        try:
            step = splu(jacobian.tocsc()).solve(-wrong)
        except RuntimeError:  # exactly singular
            break
        angle, size = np.angle(V), np.abs(V)
        angle[angles] += step[: len(angles)]
        size[magnitudes] += step[len(angles) :]
        V = size * np.exp(1j * angle)

    flows = [V[i] * np.conj(to_from @ V), V[j] * np.conj(to_to @ V)]
    rated = network.rate > 0
    over = [np.abs(flow[rated]) - network.rate[rated] for flow in flows]
    size = np.abs(V)
    return AcCheck(
        converged=mismatch < TOLERANCE,
        iterations=iteration,
        mismatch=mismatch,
        voltage=V,
        losses=float((flows[0] + flows[1]).real.sum()),
        relaxed_losses=float(solution.flows[:, [0, 2]].sum()),
        slack=int(buses.numbers[slack]),
        slack_change=float(off.real[slack]),
        voltage_violation=_excess(buses.v_min - size, size - buses.v_max),
        thermal_violation=_excess(*over),
    )


def _excess(*over: Floats) -> float:
    return float(np.concatenate([np.zeros(1), *over]).max())
