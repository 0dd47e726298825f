"""`hushgrid case solve`: the central solution of a case, its prices, and the AC optimum beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case, Floats, loads
from hushgrid.grid_cases.costs import VOLL
from hushgrid.kernels.errors import Stopped
from hushgrid.kernels.types import Document
from hushgrid.node.columns import columns

if TYPE_CHECKING:
    from hushgrid.grid_cases.ac.opf import AcDispatch, NoDispatch
    from hushgrid.grid_cases.centralised import Solution

LINE_LIMITS = {"rating": "ratings of lines", "angle": "angles of lines"}
OTHER_LIMITS = {
    "v": "voltages of buses",
    "p": "active power of generators",
    "q": "reactive power of generators",
    "capability": "capability curves of generators",
    "dc": "dc lines",
}


def solve(name: str, objective: str, as_json: bool, ac: bool = False, ignore: Sequence[str] = ()) -> str:
    """The central solution. In $/h, or p.u.^2 of load shed; it is of a relaxation, so no dispatch.
    Generators and lines are counted by their row in the case file, from 1.

    Least cost serves every load if that is possible, else what it can at the value of lost load. `ac`: with the
    objective cost, the AC optimum beside it; with shedding, what the network would do at this generation.
    """
    from hushgrid.grid_cases import centralised as central

    entire, optimum = load(name), None
    case = entire.without(ignore)
    if objective == "cost":
        s, voll, optimum = _least_cost(case, ac)
    else:
        s, voll = central.solve(case, objective), None
    base = case.base_mva
    facts: Document = {
        "case": case.name,
        "objective": objective,
        "value": s.value,
        "unit": "$/h" if objective == "cost" else "p.u.^2",
        "status": s.status,
        "generation_mw": float(s.p_g.sum() * base),
        "load_mw": float(case.buses.p_d.sum() * base),
        "largest_mismatch_mw": float(np.abs(s.shed).max() * base),
        "generators": _generators(case, s.p_g, s.q_g),
        **({"dc_lines": _dc_lines(case, s.dc)} if len(case.dc_lines) else {}),
        "left_out": entire.left_out(ignore),
    }
    if objective == "cost":
        facts |= {"cost": s.cost, "voll": voll, **_slack(s.shed, base), "prices": _prices(case, s)}
    if ac:
        facts["ac"] = _ac_figures(case, s) if objective == "shedding" else _optimum_figures(case, s, optimum)
    return json.dumps(facts, indent=2) if as_json else _told(facts)


def _told(facts: Document) -> str:
    """The central solution in lines."""
    ac, header = facts.get("ac", {}), ["generator", "bus", "MW", "MVAr"]
    rows = [[e["row"], e["bus"], f"{e['p_mw']:.2f}", f"{e['q_mvar']:.2f}"] for e in facts["generators"]]
    if "generators" in ac:
        header += ["AC MW", "AC MVAr"]
        rows = [[*row, f"{e['p_mw']:.2f}", f"{e['q_mvar']:.2f}"] for row, e in zip(rows, ac["generators"], strict=True)]
    lines = ""
    if ac:
        lines = _ac_lines(ac) if facts["objective"] == "shedding" else _optimum_lines(ac)
    value = f"{facts['value']:{'.2f' if facts['objective'] == 'cost' else '.6g'}} {facts['unit']}"
    dc = [
        [e["row"], e["from"], e["to"], f"{e['p_from_mw']:.2f}", f"{-e['p_to_mw']:.2f}"]
        for e in facts.get("dc_lines", ())
    ]
    dc_header = ["dc line", "from", "to", "MW in", "MW out"]
    if dc and "dc_lines" in ac:
        dc_header += ["AC MW in", "AC MW out"]
        carried = [[f"{e['p_from_mw']:.2f}", f"{-e['p_to_mw']:.2f}"] for e in ac["dc_lines"]]
        dc = [[*row, *more] for row, more in zip(dc, carried, strict=True)]
    return (
        f"{facts['case']}: {facts['objective']} {value} ({facts['status']}; "
        "second-order-cone relaxation)\n"
        + "".join(f"  {line}\n" for line in facts["left_out"])
        + f"  generation {facts['generation_mw']:.2f} MW for {facts['load_mw']:.2f} MW of load, "
        f"largest mismatch at a bus {facts['largest_mismatch_mw']:.3g} MW\n"
        + _slack_line(facts)
        + lines
        + columns(rows, header, indent=2)
        + (f"\n{columns(dc, dc_header, indent=2)}" if dc else "")
    )


def _least_cost(case: Case, ac: bool) -> tuple[Solution, float | None, AcDispatch | NoDispatch | None]:
    """The relaxation's solution, the value of lost load if one was needed, and the AC optimum at the same."""
    from hushgrid.grid_cases import centralised as central
    from hushgrid.grid_cases.ac.network import relaxed
    from hushgrid.grid_cases.ac.opf import AcSolver, NoDispatch
    from hushgrid.grid_cases.ac.presence import ABSENT, installed
    from hushgrid.grid_cases.ac.program import Program

    solution: AcDispatch | NoDispatch | None = None
    for voll in (None, VOLL):
        try:
            s = central.solve(case, "cost", voll)
        except Stopped:
            if voll is None:
                continue
            raise
        if ac and not installed():
            solution = NoDispatch("absent", ABSENT)
        elif ac:
            start = relaxed(case, dict(zip(s.keys, s.z.tolist(), strict=True)))
            solution = AcSolver(Program.from_case(case, voll)).solve(
                loads(case, tuple(case.buses.numbers.tolist())), start
            )
            if isinstance(solution, NoDispatch) and solution.reason == "failed" and voll is None:
                continue
        break
    return s, voll, solution


def _slack(shed: Floats, base: float) -> dict[str, float]:
    """Load not served and power spilled, summed over the buses, MW and MVAr; shed: (buses, 2) p.u."""
    from hushgrid.grid_cases.ac.opf import COUNTS

    counted = np.where(np.abs(shed) > COUNTS, shed, 0.0) * base
    (p, q), (minus_p, minus_q) = np.maximum(counted, 0).sum(axis=0), np.maximum(-counted, 0).sum(axis=0)
    parts = {"unserved_mw": p, "spilled_mw": minus_p, "unserved_mvar": q, "spilled_mvar": minus_q}
    return {name: float(value) for name, value in parts.items()}


def _slack_line(facts: Document) -> str:
    if facts.get("voll") is None:
        return ""
    return (
        f"  {facts['unserved_mw']:.2f} MW and {facts['unserved_mvar']:.2f} MVAr of load are not served, "
        f"{facts['spilled_mw']:.2f} MW and {facts['spilled_mvar']:.2f} MVAr are spilled, "
        f"at {facts['voll']:g} $/MWh; cost of generation {facts['cost']:.2f} $/h\n"
    )


def _prices(case: Case, solution: Solution) -> dict[str, float]:
    """$/MWh by bus number."""
    return {} if solution.prices is None else _by_bus(case, solution.prices)


def _by_bus(case: Case, prices: Floats) -> dict[str, float]:
    return {str(bus): price for bus, price in zip(case.buses.numbers.tolist(), prices[:, 0].tolist(), strict=True)}


def _optimum_figures(case: Case, solution: Solution, optimum: AcDispatch | NoDispatch | None) -> Document:
    """The AC optimum beside the relaxation's; without one, its status and why."""
    from hushgrid.grid_cases.ac.network import binding
    from hushgrid.grid_cases.ac.opf import AcDispatch

    if not isinstance(optimum, AcDispatch):
        return {} if optimum is None else {"status": optimum.reason, "why": optimum.why}
    base, lines, g, limits = case.base_mva, case.lines, case.generators, binding(case, optimum.point)
    ends = list(zip((lines.rows + 1).tolist(), lines.from_bus.tolist(), lines.to_bus.tolist(), strict=True))
    named = {
        kind: [dict(zip(("row", "from", "to"), ends[k], strict=True)) for k in limits[kind]] for kind in LINE_LIMITS
    }
    return {
        "status": optimum.status,
        "iterations": optimum.iterations,
        "value": optimum.objective,
        "cost": optimum.cost,
        "gap_percent": 100 * (optimum.objective - solution.value) / optimum.objective,
        **_slack(optimum.slack[:, [0, 2]] - optimum.slack[:, [1, 3]], base),
        "generation_mw": float(optimum.p_g.sum() * base),
        "losses_mw": optimum.losses * base,
        "relaxed_losses_mw": float(solution.flows[:, [0, 2]].sum() * base),
        "v_min_pu": float(optimum.v.min()),
        "v_max_pu": float(optimum.v.max()),
        "mismatch_pu": optimum.mismatch,
        "violation": optimum.violations,
        "binding": {
            "v": case.buses.numbers[limits["v"]].tolist(),
            "p": (g.rows[limits["p"]] + 1).tolist(),
            "q": (g.rows[limits["q"]] + 1).tolist(),
            "capability": (g.rows[case.capability.generator[limits["capability"]]] + 1).tolist(),
            "dc": (case.dc_lines.rows[limits["dc"]] + 1).tolist(),
            **named,
        },
        "generators": _generators(case, optimum.p_g, optimum.q_g),
        **({"dc_lines": _dc_lines(case, optimum.dc)} if len(case.dc_lines) else {}),
        "prices": _by_bus(case, optimum.price),
    }


def _generators(case: Case, p_g: Floats, q_g: Floats) -> list[Document]:
    rows, columns = case.generators.rows + 1, (case.generators.bus, p_g * case.base_mva, q_g * case.base_mva)
    each = zip(*(column.tolist() for column in (rows, *columns)), strict=True)
    return [{"row": row, "bus": bus, "p_mw": p, "q_mvar": q} for row, bus, p, q in each]


def _dc_lines(case: Case, dc: Floats) -> list[Document]:
    """dc: (dc lines, 4) p and q into each line at its first and at its second bus, p.u."""
    lines, names = case.dc_lines, ("p_from_mw", "q_from_mvar", "p_to_mw", "q_to_mvar")
    ends = zip((lines.rows + 1).tolist(), lines.from_bus.tolist(), lines.to_bus.tolist(), strict=True)
    flows = (dc * case.base_mva).tolist()
    return [
        {"row": row, "from": a, "to": b, **dict(zip(names, flow, strict=True))}
        for (row, a, b), flow in zip(ends, flows, strict=True)
    ]


def _first(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return " ".join(names[:most]) + more


def _optimum_lines(ac: Document) -> str:
    if "why" in ac:
        return f"  AC optimum: none; {ac['why']}\n"
    binding, slack = ac["binding"], ""
    if any(ac[name] for name in ("unserved_mw", "spilled_mw", "unserved_mvar", "spilled_mvar")):
        slack = (
            f"; {ac['unserved_mw']:.2f} MW and {ac['unserved_mvar']:.2f} MVAr are not served, "
            f"{ac['spilled_mw']:.2f} MW and {ac['spilled_mvar']:.2f} MVAr spilled"
        )
    elements = {kind: [str(k) for k in binding[kind]] for kind in OTHER_LIMITS}
    elements |= {kind: [f"{line['from']}-{line['to']}" for line in binding[kind]] for kind in LINE_LIMITS}
    limits = [
        f"{label} {_first(elements[kind])}" for kind, label in (OTHER_LIMITS | LINE_LIMITS).items() if elements[kind]
    ]
    return (
        f"  AC optimum: {ac['value']:.2f} $/h ({ac['status']} in {ac['iterations']} iterations), the relaxation is "
        f"{ac['gap_percent']:.3f} % below it{slack}\n"
        f"  losses {ac['losses_mw']:.2f} MW (relaxation: {ac['relaxed_losses_mw']:.2f} MW), voltages from "
        f"{ac['v_min_pu']:.4f} to {ac['v_max_pu']:.4f} p.u.\n"
        f"  at a limit: {'; '.join(limits) or 'nothing'}\n"
    )


def _ac_figures(case: Case, solution: Solution) -> Document:
    """The AC power flow at a central solution; null where Newton's method found none."""
    from hushgrid.grid_cases.ac.feasibility import ac_check

    check, base = ac_check(case, solution), case.base_mva
    figures = {
        "slack_bus": check.slack,
        "slack_change_mw": check.slack_change * base,
        "losses_mw": check.losses * base,
        "relaxed_losses_mw": check.relaxed_losses * base,
        "voltage_violation_pu": check.voltage_violation,
        "line_violation_mva": check.thermal_violation * base,
    }
    known = {key: value if check.converged else None for key, value in figures.items()}
    return {"converged": check.converged, "iterations": check.iterations, "mismatch_pu": check.mismatch} | known


def _ac_lines(ac: Document) -> str:
    if not ac["converged"]:
        return (
            f"  AC power flow at this generation: none found, a mismatch of {ac['mismatch_pu']:.3g} p.u. is left after "
            f"{ac['iterations']} iterations\n"
        )
    change, over = ac["slack_change_mw"], (ac["voltage_violation_pu"], ac["line_violation_mva"])
    limits = f"are passed by at most {over[0]:.3g} p.u. and {over[1]:.3g} MVA" if any(over) else "hold"
    return (
        f"  AC power flow at this generation: losses {ac['losses_mw']:.2f} MW (relaxation: "
        f"{ac['relaxed_losses_mw']:.2f} MW), so bus {ac['slack_bus']} gives {abs(change):.2f} MW "
        f"{'more' if change > 0 else 'less'}\n"
        f"  limits of voltages and lines {limits} (of generators: not looked at)\n"
    )
