"""AC power flow at a solution of the relaxation: what the network would really do. It needs the loads: for simulation.

Generators keep their active power and hold |V_i| = sqrt(c_i); the bus with the most generation capacity takes up the
difference in losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.grid_cases.ac.network import Complexes, Point, flows, violations
from hushgrid.grid_cases.ac.power_flow import newton
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.centralised import Solution


@dataclass(frozen=True, slots=True, eq=False)
class AcCheck:
    """Powers in p.u. on the case's base."""

    converged: bool
    iterations: int
    mismatch: float  #: largest |P| or |Q| mismatch left
    voltage: Complexes  #: (buses,) complex voltages
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
    generator_bus = case.index(case.generators.bus)
    injected = solution.shed[:, 0] + 1j * solution.shed[:, 1] - buses.p_d - 1j * buses.q_d  # shed: load not served
    np.add.at(injected, generator_bus, solution.p_g + 1j * solution.q_g)
    for ends, k in ((case.dc_lines.from_bus, 0), (case.dc_lines.to_bus, 2)):
        np.add.at(injected, case.index(ends), -(solution.dc[:, k] + 1j * solution.dc[:, k + 1]))
    slack = int(np.argmax(np.bincount(generator_bus, weights=np.minimum(case.generators.p_max, 1e6), minlength=n)))
    held = np.zeros(n, np.bool_)
    held[[slack, *generator_bus]] = True
    state = newton(case, injected, np.sqrt(np.maximum(solution.c, 0.0)) + 0j, held, np.eye(n)[slack])

    v, angle = np.abs(state.voltage), np.angle(state.voltage)
    flow, over = flows(case, v, angle), violations(case, Point(v, angle, solution.p_g, solution.q_g, solution.dc))
    return AcCheck(
        converged=state.converged,
        iterations=state.iterations,
        mismatch=state.mismatch,
        voltage=state.voltage,
        losses=float(flow[:, [0, 2]].sum()),
        relaxed_losses=float(solution.flows[:, [0, 2]].sum()),
        slack=int(buses.numbers[slack]),
        slack_change=state.taken_up,
        voltage_violation=over["v"],
        thermal_violation=over["rating"],
    )
