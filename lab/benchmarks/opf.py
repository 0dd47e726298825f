"""`hushgrid bench opf`: AC dispatches at least cost, found together by zones: the whole run, its parts, and its rivals.

True loads (variant none), the scenario's default stop. The zones solve the second-order-cone relaxation; one AC optimal
power flow of the whole network follows. Published figures beside: M. Alkhraijah, R. Harris, C. Coffrin, D. Molzahn,
PowerModelsADA, 2023, on 16 cores, tuned for each case; its times are those of the AC problem itself distributed.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import clarabel
import numpy as np
from scipy import sparse

from hushgrid.broker.coordinator.star import StarCoordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac.opf import AcDispatch, AcSolver
from hushgrid.grid_cases.ac.presence import installed
from hushgrid.grid_cases.ac.program import Program
from hushgrid.grid_cases.case import Floats, loads
from hushgrid.grid_cases.zone.build import zone_models
from hushgrid.grid_cases.zone.conic import UNREFINED, Cones
from hushgrid.grid_cases.zone.cost import TOLERANCE, CostStep
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.algorithms.consensus_admm import Agent, Server
from hushgrid.kernels.patterns.star import V
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S, processes
from hushgrid.lab.benchmarks.common.measure import ZONES, Row, Table, against, row
from hushgrid.lab.benchmarks.common.served import attend, brokers_here, coordinate
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import SystemNoise
from hushgrid.node.problems.power_flow.centre import centre
from hushgrid.node.problems.power_flow.costs import LocalCost
from hushgrid.node.problems.power_flow.device import Zone, model_of
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.schema.sections import Allow
from hushgrid.node.wire import COORDINATOR

CASE588 = "HUSHGRID_CASE588"  #: names the file, which is not shipped: PGLib-OPF's pglib_opf_case588_sdet.m
ROUNDS = 200


class Asked(NamedTuple):
    """A case of the table."""

    case: str
    zones: int | list[list[int]]
    goal_s: float | None  #: of the whole run
    theirs: dict[str, float]  #: PowerModelsADA's published s and rounds


CASES = {
    "14": Asked("case14", ZONES["case14"], 1.0, {"s": 1.13, "rounds": 12}),
    "118": Asked("case118", ZONES["case118"], 2.5, {}),
    "300": Asked("case300", 4, 6.0, {"s": 17.9, "rounds": 11}),
}
THEIRS = {
    "s": "PowerModelsADA as published: the AC problem distributed, 16 cores",
    "rounds": "PowerModelsADA as published: SOCP, tuned, mismatch 1e-2, gap 1 %",
}


def cases_here() -> dict[str, Asked]:
    """The cases of the table, that of 588 buses where its file is named."""
    path = os.environ.get(CASE588)
    return CASES | ({"588": Asked(path, 8, 15.0, {"s": 295.0, "rounds": 131})} if path else {})


def opf(cases: dict[str, Asked] | None = None) -> Table:
    """Rows of every case. Raises InputError if the file named by HUSHGRID_CASE588 is not one."""
    rows: list[Row] = []
    for name, request in (cases_here() if cases is None else cases).items():
        rows += measured(name, request)
    left_out = (
        "" if cases is not None or os.environ.get(CASE588) else f"; 588 is not there: {CASE588} may name its file"
    )
    left_out += "" if find_spec("qoco") else "; QOCO left out: not installed"
    left_out += "" if installed() else "; AC left out: no Ipopt"
    summary = f"zones solve the relaxation (SOC), one AC optimal power flow at the end; true loads, {brokers_here()[0]}"
    return Table(name="opf", summary=summary + left_out, rows=rows)


def measured(name: str, request: Asked) -> list[Row]:
    """The rows of one case."""
    setup = ZoneSetup(
        scenario_from(
            {
                "hushgrid": 1,
                "name": "bench-opf",
                "problem": {"kind": "zones", "case": request.case, "zones": request.zones},
                "algorithm": {"name": "consensus-admm", "rounds": ROUNDS, "variant": "none"},
            }
        )
    )
    total, after = _over_broker(setup), f"{name} in {len(setup.zones)} zones: "
    rounds, central, central_s = played(setup), *_central(setup)

    def beside(what: str, unit: str, value: float) -> list[Row]:
        """The row, and the published figure if there is one."""
        ours = Row(what=after + what, unit=unit, value=value)
        if unit not in request.theirs:
            return [ours]
        theirs = Row(what=f"{name}, {THEIRS[unit]}", unit=unit, value=request.theirs[unit])
        return [Row(what=ours.what, unit=unit, value=value, rival=theirs.what, ratio=value / theirs.value), theirs]

    run = beside("from the first message to the dispatch", "s", total.seconds)
    run[0] = run[0] if request.goal_s is None else against(run[0], request.goal_s)
    gap = 100 * (rounds.figures["objective"] - central) / central
    a_round = row(after + "a round through the broker", "ms", total.rounds_ms)
    rows = [
        *run,
        Row(what=after + "of it the AC optimal power flow, a process's start included", unit="s", value=total.ac_s),
        *_ac_alone(setup, after),
        a_round,
        *beside("rounds to the stop", "rounds", rounds.rounds),
        Row(what=after + "disagreement", unit="MW", value=rounds.figures["disagreement"] * setup.case.base_mva),
        Row(what=after + "gap to the central relaxation", unit="%", value=gap),
    ]
    bare = row(after + "clarabel update + solve alone", "ms", rounds.bare_ms)
    ratio = float(np.median(np.array(rounds.step_ms) / np.array(rounds.bare_ms)))  # of the same solve
    step = row(after + "a zone's step", "ms", rounds.step_ms, rival=bare, ratio=ratio)
    rows += [against(step, 1.3, "ratio"), bare]
    rows.append(Row(what=after + "its longest step", unit="ms", value=max(rounds.step_ms)))
    last = row(after + "the longest bound of a zone, once a run", "ms", [max(rounds.bound_ms)], rival=a_round)
    rows.append(against(last, 1.0, "ratio"))
    if rounds.qoco_ms:
        rows.append(row(after + f"QOCO update + solve alone{rounds.qoco_note}", "ms", rounds.qoco_ms, rival=bare))
    return [*rows, Row(what=after + "the central relaxation by one Clarabel", unit="s", value=central_s)]


# --- through a broker ---


class Whole(NamedTuple):
    seconds: float  #: from the first message to the last zone's word that it has its part of the dispatch
    ac_s: float  #: the exchange in which the coordinator solves it
    rounds_ms: list[float]


def _over_broker(setup: ZoneSetup) -> Whole:
    """The run with a process a zone, models read from the cache before it begins."""
    commits: list[tuple[int, float]] = []

    def observe(driver: Driver, fresh: bool) -> None:
        commits.append((driver.machine.state.t, time.perf_counter()))

    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch:
        place = Path(scratch)
        with start(brokers_here()[0], place / "broker") as running:
            fleet, case = f"bench-{secrets.token_hex(3)}", setup.problem.case
            members = [(_member, (running.url, fleet, z, case, list(b), scratch)) for z, b in setup.zones.items()]
            with closing(Ledger(place / "coordinator.ledger", COORDINATOR)) as ledger:
                run = StarCoordinator(fleet, setup.plan, case, ledger, silent_s=PATIENCE_S * 4, observe=observe)
                with processes(members, farewell_s=2.0):
                    coordinate(run, running.url)
    first, last = dict[int, float](), dict[int, float]()
    for t, moment in commits:
        first.setdefault(t, moment)
        last[t] = moment
    rounds = max(last) - 2  # two closing exchanges follow
    ends = [last[t] for t in sorted(last)]
    return Whole(ends[-1] - commits[0][1], first[rounds + 2] - last[rounds + 1], list(1e3 * np.diff(ends[1:rounds])))


def _member(url: str, fleet: str, name: str, case: str, buses: list[int], place: str) -> None:
    network = load(case)
    zone = Zone(name, network, model_of(name, case, tuple(buses)), loads(network, tuple(buses)))
    with closing(Ledger(Path(place) / f"{name}.ledger", name)) as ledger:
        attend(Member(fleet, zone, ledger, None, simulated=Simulated()), url)


# --- in this process ---


class Played(NamedTuple):
    rounds: int
    figures: dict[str, float]  #: of the last round
    step_ms: list[float]  #: all zones' steps but each one's first, which builds its solver
    bare_ms: list[float]
    bound_ms: list[float]  #: each zone's answer to the closing exchange
    qoco_ms: list[float]
    qoco_note: str


def played(setup: ZoneSetup) -> Played:
    """The rounds of the same machines without a network; each step beside bare solvers on its own data."""
    server = cast(Server, cast(Star, setup.plan.running).server(centre(setup.plan, setup.problem.case)))
    step_ms, bare_ms, qoco_ms, missed = list[float](), list[float](), list[float](), 0
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as place:
        agents, ledgers, bare = dict[str, Agent](), list[Ledger](), dict[str, Bare]()
        for name in setup.plan.nodes:
            ledgers.append(ledger := Ledger(Path(place) / f"{name}.ledger", name))
            ledger.join(run := bytes(16), b"")
            budget_check = BudgetCheck(name, ledger, run, setup.plan.algorithm, None, None, Allow(), simulated=True)
            machine, _ = setup.device(name).machine(setup.plan, run, ledger, SystemNoise(), budget_check)
            agents[name] = cast(Agent, machine)
        messages: dict[str, Any] = {send.dst: send.body for send in server.start().send}
        t = 0
        while isinstance(messages[setup.plan.nodes[0]], V):
            t += 1
            answers = {}
            for name, agent in agents.items():
                body = messages[name]
                began = time.perf_counter()
                agent.update(t, body)
                taken = 1e3 * (time.perf_counter() - began)
                agent.state.t = t
                answers[name] = agent.answer_body()
                step = cast(LocalCost, agent.problem)._step
                if name not in bare:
                    bare[name] = Bare(step._cones, step._diagonal(1.0), UNREFINED if step.horizon.periods > 1 else {})
                    continue
                P, q = step._diagonal(body.factor), step._q.copy()
                q[step._shared] -= body.factor * step.weight * body.v
                step_ms.append(taken)
                bare_ms.append(bare[name].clarabel_ms(P, q))
                if bare[name].qoco is not None:
                    alone, solved = bare[name].qoco_ms(P, q)
                    qoco_ms.append(alone)
                    missed += not solved
            for name, answer in answers.items():
                messages |= {send.dst: send.body for send in server.receive(name, t, answer).send}
        bound_ms = list[float]()
        for name, agent in agents.items():  # the rounds are over: each is asked for its bound
            began = time.perf_counter()
            agent.update(t + 1, messages[name])
            bound_ms.append(1e3 * (time.perf_counter() - began))
        for ledger in ledgers:
            ledger.close()
    note = f" ({missed} of {len(qoco_ms)} not solved)" if missed else ""
    return Played(t, server.measured, step_ms, bare_ms, bound_ms, qoco_ms, note)


class Bare:
    """A zone's step as the solvers take it, nothing around: the same cones, P and q, settings written down directly."""

    def __init__(self, cones: Cones, P: Floats, changes: Mapping[str, object]) -> None:
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.presolve_enable, settings.max_threads = False, False, 1
        settings.direct_solve_method = "qdldl"
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
        for key, value in changes.items():
            setattr(settings, key, value)
        kinds = [clarabel.ZeroConeT(cones.zero)] if cones.zero else []
        kinds += [clarabel.NonnegativeConeT(cones.nonneg)] if cones.nonneg else []
        kinds += [clarabel.SecondOrderConeT(k) for k in cones.soc]
        self._P = P
        self._solver = clarabel.DefaultSolver(_diagonal(P), np.zeros(P.size), cones.A.scipy(), cones.b, kinds, settings)
        self.qoco: Any = _qoco(cones, P) if find_spec("qoco") else None
        self._P_qoco = P

    def clarabel_ms(self, P: Floats, q: Floats) -> float:
        began = time.perf_counter()
        if np.array_equal(P, self._P):
            self._solver.update(q=q)
        else:
            self._solver.update(P=P, q=q)
            self._P = P
        np.array(self._solver.solve().x)
        return 1e3 * (time.perf_counter() - began)

    def qoco_ms(self, P: Floats, q: Floats) -> tuple[float, bool]:
        """And whether it was solved."""
        began = time.perf_counter()
        if not np.array_equal(P, self._P_qoco):
            self.qoco.update_matrix_data(P=P)
            self._P_qoco = P
        self.qoco.update_vector_data(c=q)
        status = self.qoco.solve()
        return 1e3 * (time.perf_counter() - began), str(status.status) == "QOCO_SOLVED"


def _diagonal(P: Floats) -> Any:
    """With its zeros in the pattern."""
    return sparse.csc_matrix((P, np.arange(P.size), np.arange(P.size + 1)), shape=(P.size, P.size))


def _qoco(cones: Cones, P: Floats) -> object:
    """QOCO (Chari, Acikmese, 2025): equalities A x = b apart from the cones h - G x."""
    qoco = import_module("qoco")
    A = cones.A.scipy()
    equal, within = A[: cones.zero].tocsc(), A[cones.zero :].tocsc()
    solver = qoco.QOCO()
    sizes = P.size, within.shape[0], cones.zero
    linear = None if not cones.zero else equal, cones.b[: cones.zero] if cones.zero else None
    c, h, soc = np.zeros(P.size), cones.b[cones.zero :], np.array(cones.soc, np.int32)
    solver.setup(
        *sizes, _diagonal(P), c, *linear, within, h, cones.nonneg, len(soc), soc, abstol=TOLERANCE, reltol=TOLERANCE
    )
    return solver


def _central(setup: ZoneSetup) -> tuple[float, float]:
    """The least cost of the whole relaxation, $/h, and the seconds to build and solve it; its model is there."""
    (model,) = zone_models(setup.case, [setup.case.buses.numbers.tolist()]).values()
    d, none = loads(setup.case, model.buses), np.zeros(0, np.int64)
    began = time.perf_counter()
    least = CostStep(setup.case, model, d, none, np.zeros(0), setup.plan.problem.voll).minimum(np.zeros(0), 1.0)
    return least.value, time.perf_counter() - began


def _ac_alone(setup: ZoneSetup, after: str) -> list[Row]:
    """The AC optimal power flow once more in this process, which runs already."""
    if not installed():
        return []
    solver = AcSolver(Program.from_case(setup.case, setup.plan.problem.voll))
    dispatch = solver.solve(loads(setup.case, tuple(setup.case.buses.numbers.tolist())))
    if not isinstance(dispatch, AcDispatch):
        return []
    what = f"AC alone in a process that runs, {dispatch.iterations} iterations"
    return [Row(what=after + what, unit="s", value=dispatch.build_s + dispatch.solve_s)]
