"""`hushgrid bench [NAME]`: what hushgrid costs, beside what it could cost at best, measured in the same run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import clarabel
import numpy as np
from scipy import sparse

from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.grid_cases.zone.projection import FEASIBILITY, TOLERANCE, ZoneStep
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.types import Vector
from hushgrid.lab.benchmarks.common import measure, runs, simulator
from hushgrid.lab.benchmarks.common.measure import ZONES, Row, Table, against, row, timed
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import SystemNoise
from hushgrid.node.problems.power_flow.centre import centre
from hushgrid.node.schema.sections import Allow


def main(name: str | None, as_json: bool = False) -> int:
    """Run one benchmark, or all, and print tables, or JSON. Raises InputError for a name that is none."""
    from hushgrid.lab.benchmarks import (
        continuous,
        daemon,
        day,
        fleet,
        hop,
        idle,
        ledger,
        masks,
        opf,
        ring,
        rounds,
        timing,
        walk,
    )
    from hushgrid.lab.benchmarks.scale import coordinator, size, wide

    benchmarks: dict[str, Callable[[], Table]] = {
        "step": step,
        "noise": noise,
        "round": fleet.rounds,
        "hop": hop.hop,
        "ring": ring.ring,
        "coordinator": coordinator.coordinators,
        "wide": wide.wide,
        "size": size.size,
        "case118": fleet.case118,
        "nodes": fleet.nodes,
        "daemon": daemon.daemons,
        "idle": idle.idle,
        "walk": walk.walk,
        "dpp2": rounds.dpp2,
        "simulator": simulator.simulator,
        "runs": runs.runs,
        "sweep": runs.sweep,
        "ledger": ledger.ledger,
        "opf": opf.opf,
        "day": day.day,
        "warm": continuous.warm,
        "masks": masks.masks,
        "timing": timing.timing,
    }
    if name is not None and name not in benchmarks:
        raise InputError(f"bench: found {name!r}, expected one of {', '.join(benchmarks)}")
    tables = []
    for benchmark in [benchmarks[name]] if name else benchmarks.values():
        tables.append(benchmark())
        if not as_json:
            print(measure.as_text(tables[-1]) + "\n", flush=True)
    print(measure.as_json(tables) if as_json else measure.footer())
    return 0


# --- one local step of a zone ---


def step(cases: tuple[tuple[str, str], ...] = (("case14", "z1"), ("case118", "z3")), rounds: int = 60) -> Table:
    """A zone's local step as its daemon takes it, beside the bare solver on the same data."""
    rows: list[Row] = []
    for case, zone in cases:
        complete, bare = _steps(case, zone, rounds)
        rival = row(f"{case} {zone}: clarabel update + solve alone", "ms", bare)
        ratios = np.array(complete) / np.array(bare)  # of the same solve: what slows the machine slows both
        ours = row(
            f"{case} {zone}: gate, spend, step, dual", "ms", complete, rival=rival, ratio=float(np.median(ratios))
        )
        rows += [against(ours, 1.3, "ratio"), rival]
    return Table(name="step", summary="one local update of a zone (E = 1), mode objective, exact noise", rows=rows)


class _Kept:
    """A projection that keeps the last problem it was given."""

    def __init__(self, within: ZoneStep) -> None:
        self.within = within

    def project(self, v: Vector, D: Vector) -> Vector:
        self.v, self.D = v, D
        return self.within.project(v, D)


def _steps(case: str, zone: str, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each round's update of one zone in a real run, and of the solver alone on the same problem."""
    setup = ZoneSetup(
        scenario_from(
            {
                "hushgrid": 1,
                "name": "bench-step",
                "problem": {"kind": "zones", "case": case, "zones": ZONES[case]},
                "algorithm": {"name": "ladmm", "rounds": rounds},
                "privacy": {"adjacency": {"bounded-change": 0.01}, "epsilon": 5.0},
            }
        )
    )
    server = cast(Star, setup.plan.running).server(centre(setup.plan, setup.problem.case))
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as place:
        agents: dict[str, Any] = {}
        gates, ledgers = {}, []
        for name in setup.plan.nodes:
            ledger = Ledger(Path(place) / f"{name}.ledger", name)
            ledgers.append(ledger)
            run = b"\0" * 16
            ledger.join(run, b"")
            budget_check = BudgetCheck(
                name, ledger, run, setup.plan.algorithm, setup.plan.terms_of(name), None, Allow(), simulated=True
            )
            agents[name], gates[name] = setup.device(name).machine(setup.plan, run, ledger, SystemNoise(), budget_check)
        recorder = _Kept(agents[zone].feasible)
        agents[zone].feasible = recorder
        model = setup.models[zone]
        complete, bare, alone = [], [], None
        messages = {send.dst: send.body for send in server.start().send}
        for t in range(1, rounds + 1):
            answers: dict[str, Z] = {}
            for name, machine in agents.items():
                gates[name].refill()  # the daemon draws ahead, after its last publish
                body: W = messages[name]
                began = time.perf_counter()
                machine.update(t, body)
                taken = time.perf_counter() - began
                machine.state.t = t
                answers[name] = machine.answer_body()
                if name == zone:
                    complete.append(1e3 * taken)
                    alone = alone or _bare(model, recorder.D)
                    began = time.perf_counter()
                    alone.update(P=recorder.D, q=-recorder.D * recorder.v)
                    np.array(alone.solve().x)
                    bare.append(1e3 * (time.perf_counter() - began))
                gates[name].committed()
            for name, answer in answers.items():
                messages |= {send.dst: send.body for send in server.receive(name, t, answer).send}
        for ledger in ledgers:
            ledger.close()
    return complete, bare


def _bare(model: Any, D: Vector) -> clarabel.DefaultSolver:
    """The same problem and settings, written down directly."""
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.presolve_enable, settings.max_threads = False, False, 1
    settings.direct_solve_method = "qdldl"
    settings.tol_gap_abs = settings.tol_gap_rel = TOLERANCE
    settings.tol_feas = FEASIBILITY
    cones = [clarabel.ZeroConeT(model.zero)] if model.zero else []
    cones += [clarabel.NonnegativeConeT(model.nonneg)] if model.nonneg else []
    cones += [clarabel.SecondOrderConeT(k) for k in model.soc]
    P = sparse.diags(D, format="csc")
    return clarabel.DefaultSolver(P, np.zeros(model.n), model.cone_A.scipy(), model.cone_b, cones, settings)


# --- noise ---


def noise(sizes: tuple[int, ...] = (64, 2048, 32768, 1_000_000), repeats: int = 15) -> Table:
    """Nanoseconds a coordinate of the exact samplers, fed by the operating system, beside samplers that leak."""
    lattices = {
        "discrete Laplace": Lattice.laplace(0.05, 0.01, 1),
        "rounded Gaussian": Lattice.gaussian(0.05, 0.01, 1),
    }
    rows: list[Row] = []
    generator = np.random.default_rng()
    for size in sizes:

        def each(call: Callable[[], object], size: int = size) -> list[float]:
            return [1e9 * s / size for s in timed(call, repeats)]

        for kind, lattice in lattices.items():
            float_law = generator.laplace if lattice.kind == "laplace" else generator.normal
            by_numpy, by_lattice = partial(float_law, size=size), partial(lattice.sample, size)
            rival = row(f"numpy {lattice.kind}, {size} at once", "ns", each(by_numpy))
            ours = row(f"{kind}, {size} at once", "ns", each(by_lattice), rival=rival)
            rows += [against(ours, 1000.0) if size >= 2048 else ours, rival]
    rows += _opendp(min(sizes[-1], 20_000), repeats)
    summary = "the gate's exact noise, a coordinate (numpy's leaks, OpenDP's does not)"
    return Table(name="noise", summary=summary, rows=rows)


def _opendp(size: int, repeats: int) -> list[Row]:
    """OpenDP's exact samplers on the same integers, where it is installed."""
    try:
        label = f"OpenDP {version('opendp')}"
        import opendp.prelude as dp
    except (PackageNotFoundError, ImportError):
        return []
    dp.enable_features("contrib")
    rows = []
    zeros = [0] * size
    domain = dp.vector_domain(dp.atom_domain(T=int))
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=Lattice.laplace(0.05, 0.01, 1).t)
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=int), scale=Lattice.gaussian(0.05, 0.01, 1).t)
    for name, mechanism in (("discrete Laplace", laplace), ("discrete Gaussian", gaussian)):
        taken = [1e9 * s / size for s in timed(lambda m=mechanism: m(zeros), repeats)]  # type: ignore[misc]
        rows.append(row(f"{label} {name}, {size} at once", "ns", taken))
    return rows
