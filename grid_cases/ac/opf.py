"""AC optimal power flow of a case at given loads: the least cost that the network itself allows.

The program is `Program`'s, solved by Ipopt (Waechter, Biegler, 2006) through casadi, which brings it. `recover` solves
it in a process of its own that ends, so that a service that needs one now and then never keeps casadi in memory;
`AcSolver` solves here, for many loads in a row. No Ipopt is an outcome, not an exception.

The program is not convex, so an answer is a local optimum; the relaxation bounds it from below.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from hushgrid.grid_cases.ac.network import Point, flat, flows, outflow, violations
from hushgrid.grid_cases.ac.presence import ABSENT, installed
from hushgrid.grid_cases.ac.program import Ended, Margins, Program
from hushgrid.grid_cases.case import Buses, Case, CostLines, Floats, Generators, Ints, Lines
from hushgrid.grid_cases.costs import UNIT, VOLL, dispatch_cost
from hushgrid.grid_cases.elements.parts import Capability, DcLines, PowerFactors, ReactiveCosts
from hushgrid.kernels.errors import InputError

COUNTS = 1e-6  #: p.u.: slack beyond it is load not served, or power spilled; less is the solver's accuracy
STEPS = "steps"  #: of a request
SLACK = ("p_unserved", "p_spilled", "q_unserved", "q_spilled")


@dataclass(frozen=True, slots=True, eq=False)
class AcDispatch:
    """Powers in p.u. on the case's base; rows follow the case's own tables (buses nb, generators ng, lines)."""

    status: str  #: solved, or acceptable: to a looser tolerance
    iterations: int
    cost: float  #: of generation and dc lines, $/h
    objective: float  #: cost and the price of the slack, $/h (and of margins given up)
    p_g: Floats  #: (ng,)
    q_g: Floats  #: (ng,)
    v: Floats  #: (nb,) voltage magnitudes
    angle: Floats  #: (nb,) rad
    flows: Floats  #: (lines, 4) p_F, q_F, p_T, q_T
    dc: Floats  #: (dc lines, 4) the same
    slack: Floats  #: (nb, 4) columns as in SLACK, >= 0
    price: Floats  #: (nb, 2) what one more MW, MVAr of load at a bus costs, $/MWh and $/MVArh
    mismatch: float  #: largest power that is not balanced at a bus, slack counted
    violations: dict[str, float]  #: the largest of each kind of limit: v, p, q, rating in p.u., angle in rad
    build_s: float  #: to build and differentiate the program
    solve_s: float

    @property
    def point(self) -> Point:
        """Its voltages and generation."""
        return Point(self.v, self.angle, self.p_g, self.q_g, self.dc)

    @property
    def losses(self) -> float:
        """Active power lost in the lines, p.u."""
        return float(self.flows[:, [0, 2]].sum() + self.dc[:, [0, 2]].sum())

    @property
    def totals(self) -> dict[str, float]:
        """The slack summed over the buses, p.u., by the names of SLACK; what does not count is left out."""
        counted = np.where(self.slack > COUNTS, self.slack, 0.0).sum(axis=0)
        return dict(zip(SLACK, counted.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class NoDispatch:
    """Why there is none."""

    reason: Literal["absent", "time", "failed"]  #: no Ipopt here; the time was up; Ipopt found no solution
    why: str  #: in a sentence


class AcSolver:
    """The program of one case, built once and solved in this process for any loads."""

    def __init__(self, program: Program, limit_s: float = 60.0) -> None:
        """limit_s: of one solve. Raises ImportError if casadi is not installed."""
        from hushgrid.grid_cases.ac.by_casadi import Solver

        begun = time.perf_counter()
        self.program = program
        self._solver = Solver(program, limit_s)
        self.build_s = time.perf_counter() - begun

    def solve(self, loads: Floats, start: Point | None = None, case: Case | None = None) -> AcDispatch | NoDispatch:
        """At loads (p_d, q_d), shape (2 nb,), p.u., from `start`, by default the flat start.

        `case`: one that differs from the program's in the limits of its generators alone, without margins.
        """
        program, begun = self.program, time.perf_counter()
        case, bounds = (program.case, None) if case is None else (case, replace(program, case=case).bounds())
        begin = program.start(start or flat(case))
        ended = self._solver.solve(loads, begin, bounds)
        return _outcome(program, case, loads, ended, self.build_s, time.perf_counter() - begun)


def _outcome(
    program: Program, case: Case, loads: Floats, ended: Ended, build_s: float, solve_s: float
) -> AcDispatch | NoDispatch:
    """What a solver has come to, as a dispatch of a case at loads (2 nb,), p.u."""
    status, word, iterations, x, multipliers = ended
    if status is None:
        late = word == "Maximum_CpuTime_Exceeded"
        return NoDispatch("time" if late else "failed", f"Ipopt ended after {iterations} iterations: {word}")
    angle, v, p_g, q_g, dc, slack, *given_up, _ = program.split(x)
    dc = program.dc_flows(dc)
    slack = np.zeros((len(v), 4)) if program.voll is None else np.maximum(slack, 0).reshape(4, -1).T * UNIT
    flow, cost = flows(case, v, angle), dispatch_cost(case, p_g, q_g, dc)
    priced = slack.sum() * (program.voll or 0.0)
    if program.margins is not None:
        priced += sum(m.sum() for m in given_up) * program.margins.price
    wrong = outflow(case, v, flow, dc) + loads.reshape(2, -1).T - (slack[:, [0, 2]] - slack[:, [1, 3]])
    np.subtract.at(wrong, program.generator_bus, np.stack([p_g, q_g], axis=1))
    return AcDispatch(
        status=status,
        iterations=iterations,
        cost=cost,
        objective=cost + float(priced) * case.base_mva,
        p_g=p_g,
        q_g=q_g,
        v=v,
        angle=angle,
        flows=flow,
        dc=dc,
        slack=slack,
        price=multipliers[: 2 * len(v)].reshape(2, -1).T * (program.scale / case.base_mva),
        mismatch=float(np.abs(wrong).max()),
        violations=violations(case, Point(v, angle, p_g, q_g, dc)),
        build_s=build_s,
        solve_s=solve_s,
    )


def recover(
    case: Case,
    loads: Floats,
    start: Point | None = None,
    voll: float | None = VOLL,
    *,
    margins: Margins | None = None,
    firm: Ints | None = None,
    limit_s: float = 60.0,
) -> AcDispatch | NoDispatch:
    """The least-cost AC dispatch at loads (p_d, q_d), shape (2 nb,), p.u., solved in a process of its own.

    start: where Ipopt begins, by default the flat start, which serves as well as any. voll: $/MWh of load not served;
    None: every load is served. firm: positions of buses at which there is no slack. limit_s: of the solve; the process
    has 30 s more to start and to build. Raises InputError for a cost that is concave or no polynomial of degree <= 2,
    for a part of the case that is not modelled, and for loads of another shape or not finite.
    """
    (outcome,) = recover_each([(case, loads)], start, voll, margins=margins, firm=firm, limit_s=limit_s)
    return outcome


def recover_each(
    problems: Sequence[tuple[Case, Floats]],
    start: Point | None = None,
    voll: float | None = VOLL,
    *,
    margins: Margins | None = None,
    firm: Ints | None = None,
    limit_s: float = 60.0,
    steps: Floats | None = None,
) -> list[AcDispatch | NoDispatch]:
    """`recover` of several cases at loads, in one process. limit_s: of one solve.

    One after the other: cases of the same network and costs share a program, whatever the limits of their generators.
    steps: (ng,), p.u., the cases are consecutive periods, and generation changes by at most so much from each to the
    next (inf: no limit): one program, in which either all have a dispatch or none has.
    """
    for case, loads in problems:
        _check(case, loads)
        Program.from_case(case, voll, margins, firm)  # what is wrong with the case is said here, not in the child
    if not installed():
        return [NoDispatch("absent", ABSENT)] * len(problems)
    request, settings = io.BytesIO(), (voll, margins, firm, limit_s)
    packed = [_packed(case, loads, start or flat(case), settings) for case, loads in problems]
    more = {} if steps is None else {STEPS: steps}
    np.savez(request, allow_pickle=False, **_numbered(packed), **more)
    command = [sys.executable, "-m", "hushgrid.grid_cases.ac.opf"]
    limit_s *= len(problems)
    try:
        done = subprocess.run(
            command, input=request.getvalue(), capture_output=True, timeout=limit_s + 30.0, check=False
        )
    except subprocess.TimeoutExpired:
        return [NoDispatch("time", f"Ipopt found no dispatch in {limit_s:g} s")] * len(problems)
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return [NoDispatch("failed", f"the process that solves it ended: {last}")] * len(problems)
    return [_answer(each) for each in _each(done.stdout)]


def _numbered(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {f"{k}/{key}": value for k, part in enumerate(parts) for key, value in part.items()}


def _each(content: bytes) -> list[dict[str, Any]]:
    """What `_numbered` has put together."""
    parts: dict[int, dict[str, Any]] = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        for name in file.files:
            if name == STEPS:
                continue
            k, _, key = name.partition("/")
            parts.setdefault(int(k), {})[key] = file[name]
    return [parts[k] for k in sorted(parts)]


def _check(case: Case, loads: Floats) -> None:
    expected = (2 * len(case.buses),)
    if np.shape(loads) != expected or not np.all(np.isfinite(loads)):
        raise InputError(f"case {case.name}: loads: found shape {np.shape(loads)}, expected {expected} finite numbers")


#: Of a packed case: what may differ between cases that share a program.
LIMITS = ("generators.p_min", "generators.p_max")
Settings = tuple[float | None, Margins | None, Ints | None, float]  #: voll, margins, firm, limit_s


#: The parts of a case that are no buses, generators or lines, each a table that may be empty.
PARTS = {
    "piecewise": CostLines,
    "reactive": ReactiveCosts,
    "reactive_lines": CostLines,
    "capability": Capability,
    "power_factors": PowerFactors,
    "dc_lines": DcLines,
    "dc_cost_lines": CostLines,
}


def _packed(case: Case, loads: Floats, start: Point, settings: Settings) -> dict[str, Any]:
    tables: dict[str, Any] = {"buses": case.buses, "generators": case.generators, "lines": case.lines, "start": start}
    tables |= {name: getattr(case, name) for name in PARTS}
    voll, margins, firm, limit_s = settings
    packed: dict[str, Any] = {"name": case.name, "base_mva": case.base_mva, "loads": loads, "limit_s": limit_s}
    if voll is not None:
        packed["voll"] = voll
    if firm is not None:
        packed["firm"] = firm
    if margins is not None:
        tables["margins"] = margins
    for table, contents in tables.items():
        columns = {f"{table}.{f.name}": getattr(contents, f.name) for f in fields(contents)}
        packed |= {key: value for key, value in columns.items() if value is not None}
    return packed


def _unpacked(packed: dict[str, Any]) -> tuple[Case, Floats, Point, Settings]:
    def table(kind: Any, name: str) -> Any:
        keys = {f.name: f"{name}.{f.name}" for f in fields(kind)}
        return kind(**{field: packed[key] for field, key in keys.items() if key in packed})

    buses, generators, lines = table(Buses, "buses"), table(Generators, "generators"), table(Lines, "lines")
    parts = {name: table(kind, name) for name, kind in PARTS.items()}
    case = Case(str(packed["name"]), float(packed["base_mva"]), buses, generators, lines, **parts)
    margins = table(Margins, "margins") if "margins.v" in packed else None
    voll = float(packed["voll"]) if "voll" in packed else None
    settings = (voll, margins, packed.get("firm"), float(packed["limit_s"]))
    return case, packed["loads"], table(Point, "start"), settings


def _told(outcome: AcDispatch | NoDispatch) -> dict[str, Any]:
    packed = {f.name: getattr(outcome, f.name) for f in fields(outcome)}
    if isinstance(outcome, AcDispatch):
        packed["kinds"], packed["violations"] = list(outcome.violations), list(outcome.violations.values())
    return packed


def _answer(packed: dict[str, Any]) -> AcDispatch | NoDispatch:
    if "why" in packed:
        return NoDispatch(packed["reason"].item(), packed["why"].item())
    packed["violations"] = dict(zip(packed.pop("kinds").tolist(), packed["violations"].tolist(), strict=True))
    return AcDispatch(**{k: v.item() if isinstance(v, np.ndarray) and v.ndim == 0 else v for k, v in packed.items()})


def _one_by_one(problems: Sequence[dict[str, Any]]) -> list[AcDispatch | NoDispatch]:
    outcomes, solvers = list[AcDispatch | NoDispatch](), dict[bytes, AcSolver]()
    for packed in problems:
        case, loads, start, (voll, margins, firm, limit_s) = _unpacked(packed)
        shared = {k: v for k, v in packed.items() if k != "loads" and k not in LIMITS and not k.startswith("start.")}
        key = b"".join(name.encode() + np.asarray(value).tobytes() for name, value in sorted(shared.items()))
        if key not in solvers:
            solvers[key] = AcSolver(Program.from_case(case, voll, margins, firm), limit_s)
            outcomes.append(solvers[key].solve(loads, start))
        else:
            outcomes.append(solvers[key].solve(loads, start, case))
    return outcomes


def _together(problems: Sequence[dict[str, Any]], steps: Floats) -> list[AcDispatch | NoDispatch]:
    from hushgrid.grid_cases.ac.by_casadi import Together

    programs, loads, starts, limit_s, begun = list[Program](), list[Floats](), list[Floats](), 0.0, time.perf_counter()
    for packed in problems:
        case, d, start, (voll, margins, firm, each_s) = _unpacked(packed)
        programs.append(Program.from_case(case, voll, margins, firm))
        loads.append(d)
        starts.append(programs[-1].start(start))
        limit_s += each_s
    solver = Together(programs, steps, limit_s)
    build_s, begun = time.perf_counter() - begun, time.perf_counter()
    ended = solver.solve(loads, starts)
    solve_s = time.perf_counter() - begun
    each = zip(programs, loads, ended, strict=True)
    return [_outcome(program, program.case, d, one, build_s, solve_s) for program, d, one in each]


def main() -> int:
    """Solve the problem on standard input and write the answer to standard output, both .npz of `recover`."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a solver that prints does not spoil the answer
    request = sys.stdin.buffer.read()
    with np.load(io.BytesIO(request), allow_pickle=False) as file:
        steps = file[STEPS] if STEPS in file.files else None
    outcomes = _one_by_one(_each(request)) if steps is None else _together(_each(request), steps)
    np.savez(answer := io.BytesIO(), allow_pickle=False, **_numbered([_told(one) for one in outcomes]))
    with out:
        out.write(answer.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
