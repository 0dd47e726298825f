"""Power flow over the zones of a case: what the rest of the program asks of this kind of problem."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Algorithm, Pattern, Sharing
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.types import Vector
from hushgrid.node.problems.feed import Feed
from hushgrid.node.problems.kind import Device, DeviceFile, Kind, Outcome, Plan, RunFacts, ScenarioSections, SiteOutcome
from hushgrid.node.problems.power_flow.rolling import HOUR_S, carried_on
from hushgrid.node.problems.power_flow.section import (
    NAME,
    PLACE,
    ZoneData,
    ZonesPlan,
    ZonesProblem,
    check_objective,
    objective_of,
)
from hushgrid.node.problems.rolling import Course, Periods
from hushgrid.node.schema.sections import Adjacency, AllowedProblem, Day, Privacy, Section

FILES = ("profiles", "storage", "ramps", "availability", "price", "reserve")  #: that a horizon may name
HOUSE_MWH = 0.02  #: that hides the day of a house without a car
FEW = 3  #: 8 n/(n + 1), the variance of a zone's sum with totals, is no less than 2 n up to here


class PowerFlow(Kind):
    name: ClassVar[str] = NAME
    sections: ClassVar[tuple[type[Section], ...]] = (ZonesProblem,)
    public_type: ClassVar[type] = ZonesPlan
    patterns: ClassVar[tuple[Pattern, ...]] = ("star",)
    sharing: ClassVar[Sharing] = "parts"
    records: ClassVar[bool] = False

    def solved(self, algorithm: Algorithm) -> str:
        return "power flow of zones"

    def unit(self, algorithm: Algorithm) -> str:
        return "a load, moved by at most beta"

    def check(self, problem: ZonesProblem, algorithm: Algorithm, file: str) -> None:
        super().check(problem, algorithm, file)
        check_objective(objective_of(problem, algorithm), algorithm, f"{file}: problem.objective")
        if problem.margins:
            self._check_margins(problem, algorithm, f"{file}: problem.margins: found true, expected false")
            if problem.horizon is not None:
                raise InputError(f"{file}: problem.margins: found true, expected false (problem.horizon)")
        if problem.contingencies and problem.horizon is None:
            raise InputError(f"{file}: problem.contingencies: found true, expected false (no problem.horizon)")
        if objective_of(problem, algorithm) == "cost":
            return
        if problem.horizon is not None:
            raise InputError(f"{file}: problem.horizon: found a section, expected none (problem.objective: shedding)")
        for key in ("voll", "ac"):
            if (entry := getattr(problem, key)) is not None:
                raise InputError(f"{file}: problem.{key}: found {entry}, expected none (problem.objective: shedding)")

    def _check_margins(self, problem: ZonesProblem, algorithm: Algorithm, refusal: str) -> None:
        if objective_of(problem, algorithm) != "cost":
            raise InputError(f"{refusal} (problem.objective: shedding)")
        if algorithm.variant == "none":
            raise InputError(f"{refusal} (algorithm.variant: none; margins are as wide as its noise asks for)")
        if problem.ac == "none":
            raise InputError(f"{refusal} (problem.ac: none; margins are of its AC optimal power flow)")

    def check_questions(self, problem: ZonesProblem, algorithm: Algorithm, privacy: Privacy, file: str) -> None:
        change = privacy.adjacency.of_loads
        if (problem.horizon is None) == bool(privacy.adjacency.day):
            found = "day" if privacy.adjacency.day else privacy.adjacency
            raise InputError(f"{file}: privacy.adjacency: found {found}, expected {self._unit_of(problem)}")
        if problem.margins and change is not None and change.relative is not None:
            raise InputError(
                f"{file}: problem.margins: found true, expected false (bounded-change: relative; the coordinator "
                "knows the digest of the capacities alone)"
            )

    def _unit_of(self, problem: ZonesProblem) -> str:
        if problem.horizon is None:
            return "bounded-change (day is of a plan with problem.horizon)"
        return (
            "day: {energy_mwh, power_factor} (problem.horizon): the noise for a bounded change in each of "
            f"{problem.horizon.periods} periods would be {problem.horizon.periods} times as large as for a day's energy"
        )

    def located(
        self, problem: ZonesProblem, network: Network | None, networked: bool, base: Path, file: str
    ) -> ZonesProblem:
        if network is not None:
            raise InputError(f"{file}: network: found a section, expected none (zones bring their own graph)")
        if problem.horizon is not None:
            files = {key: getattr(problem.horizon, key) for key in FILES}
            found = {key: str((base / file).resolve()) for key, file in files.items() if isinstance(file, str)}
            problem = replace(problem, horizon=replace(problem.horizon, **found))
        if os.path.isfile(base / problem.case):  # a path wins over a built-in name only if there is such a file
            return replace(problem, case=str((base / problem.case).resolve()))
        return problem

    def reveals(self, entry: AllowedProblem, device: Any) -> str:
        return f"the loads of its {len(device.model.buses)} buses, p and q, each with noise, and what follows from them"

    def public(self, sections: ScenarioSections, file: str) -> ZonesPlan:
        from hushgrid.node.problems.power_flow import device

        try:
            case, _, plan = device.public(sections.problem, sections.algorithm)
        except InputError as error:
            raise InputError(f"{file}: problem.{error}") from None
        device.capacities(sections.privacy.adjacency if sections.privacy else None, case, case.buses.numbers.tolist())
        return plan

    def device(self, owner: DeviceFile, path: str) -> Device:
        from hushgrid.node.problems.power_flow.files import zone_of

        return zone_of(owner.node, owner.data, path, owner.budget.adjacency, owner.allow.loads)

    def feed(self, owner: DeviceFile, path: str) -> Feed:
        from hushgrid.node.problems.power_flow.feed import ReadingsFeed, ZoneFeed

        return ReadingsFeed(owner, path) if owner.source and owner.source.rule else ZoneFeed(owner, path)

    def adjacency(self, adjacency: Adjacency, base: Path) -> Adjacency:
        change = adjacency.of_loads
        if change is None or change.of is None:
            return adjacency
        from hushgrid.node.problems.power_flow.capacity import read_capacities

        read = read_capacities((base / change.of).resolve())
        if change.digest not in (None, read.digest):
            raise InputError(f"{read.path}: found rows of digest {read.digest}, expected {change.digest}")
        return Adjacency(bounded_change=replace(change, of=str(read.path), digest=read.digest))

    def outcome(self, device: Any, state: Path) -> Outcome:
        from hushgrid.node.problems.power_flow.files import keep_setpoints

        def keep(outcome: dict[str, Vector], facts: RunFacts) -> str | None:
            problem = facts.problem if isinstance(facts.problem, ZonesPlan) else None
            return keep_setpoints(device, outcome, state / f"{device.name}.setpoints.csv", problem)

        return keep

    def site_outcome(self, device: Any, outcome: dict[str, Vector], problem: ZonesPlan, now: float) -> SiteOutcome:
        from hushgrid.node.problems.power_flow.files import site_setpoints

        return site_setpoints(device, outcome, problem, now)

    def own_report(self, device: Any, state: Path) -> list[str]:
        from hushgrid.node.problems.power_flow.own_check import own_check

        return own_check(device, state / f"{device.name}.setpoints.csv")

    def data_words(self, data: ZoneData) -> str:
        return f"{len(data.zone)} buses of {data.case}"

    def hidden(self, owner: DeviceFile, device: Any, adjacency: Adjacency) -> list[str]:
        base, beta, change = device.case.base_mva, adjacency.beta, adjacency.of_loads
        on = f"on a base of {base:g} MVA"
        if change is None:
            size = f"{beta * base:g} MW or MVAr ({beta:g} p.u. {on})"
            return [f"hidden: any one load, p or q of one bus, changed by at most {size}; k such changes count k times"]
        if adjacency.day:
            return [_day_in_words(adjacency.day)]
        if change.pair is not None:
            p, q = change.pair, change.reactive
            return [
                f"hidden: any one customer, p of one bus changed by at most {p * base:g} MW and q of the same bus by "
                f"at most {q * base:.4g} MVAr ({p:g} and {q:.4g} p.u. {on}, power factor {change.power_factor:g}); k "
                "such customers count k times"
            ]
        assert change.relative is not None
        betas = change.relative * base * device.contracts.capacity
        some = betas[betas > 0]
        span = f"here {some.min():.4g} to {some.max():.4g} MW or MVAr" if some.size else "here none"
        return [
            f"hidden: any one load, p or q of one bus, changed by at most {100 * change.relative:g} % of its "
            f"contracted capacity, {span} (capacities of digest {change.capacities[:12]}); {betas.size - some.size} "
            f"of {betas.size} have none and count as no load; k such changes count k times"
        ]

    def on_devices(self, problem: Any) -> str | None:
        return None

    def left_out(self, problem: ZonesProblem) -> list[str]:
        from hushgrid.grid_cases import load

        return load(problem.case).left_out(problem.ignore)

    def warning(self, plan: Plan, source: str) -> str | None:
        return "; ".join(filter(None, (_needless_totals(plan), self._low_value(plan, source)))) or None

    def _low_value(self, plan: Plan, source: str) -> str | None:
        from hushgrid.grid_cases import load
        from hushgrid.grid_cases.costs import highest_marginal

        if plan.problem.objective != "cost":
            return None
        voll, highest = plan.problem.voll, highest_marginal(load(source).without(plan.problem.ignore))
        if voll >= highest:
            return None
        return (
            f"problem.voll: found {voll:g} $/MWh, below the highest cost of generation, {highest:g} $/MWh: load is "
            "left unserved while generators could serve it"
        )

    def among(self, plan: ZonesPlan, present: Sequence[str]) -> ZonesPlan:
        if plan.sites:  # a constant of one site would have to be known to the others
            raise InputError(f"found {', '.join(present)} there, expected {', '.join(plan.nodes)} (problem.sites)")
        return replace(plan, zones={z: buses for z, buses in plan.zones.items() if z in present})

    def check_data(self, problem: ZonesProblem, public: ZonesPlan) -> None:
        from hushgrid.grid_cases import load
        from hushgrid.node.problems.power_flow.horizon import read_profiles

        day = problem.horizon
        if day is None or day.profiles is None:
            return
        case, file = load(problem.case), Path(day.profiles.replace(PLACE, "1"))
        buses = tuple(case.buses.numbers.tolist())
        read_profiles(file, buses, case.base_mva, day.periods, others=buses)

    def sites(self, problem: ZonesPlan) -> dict[str, list[str]]:
        return dict(problem.sites)

    def periods(self, problem: ZonesPlan) -> Periods | None:
        day = problem.horizon
        return None if day is None else Periods(day.first, day.periods, day.hours * HOUR_S)

    def lasting(self, problem: ZonesPlan) -> ZonesPlan:
        return problem if problem.horizon is None else replace(problem, horizon=problem.horizon.lasting)

    def carried_on(self, problem: ZonesPlan, course: Course, began: float) -> ZonesPlan:
        return carried_on(problem, course, began)

    def source(self, problem: ZonesProblem) -> str:
        return problem.case


def _day_in_words(day: Day) -> str:
    """What a day's energy is worth, against what a house draws (SimBench LV: median 7.2 kWh, 95 % below 15.7)."""
    houses = day.energy_mwh / HOUSE_MWH
    worth = f"a house's whole day is {HOUSE_MWH * 1e3:g} kWh: this is {houses:.3g} of them"
    return (
        f"hidden: the whole day of any one customer, p of one bus changed by at most {day.energy_mwh * 1e3:.4g} kWh in "
        f"all, in whatever shape over the day, and q of the same bus by at most {day.reactive * 1e3:.4g} kvarh (power "
        f"factor {day.power_factor:g}); {worth}; k such customers count k times"
    )


def _needless_totals(plan: Plan) -> str | None:
    """What to say if the sums over its zones are no better than those of a plain release."""
    t, problem = plan.terms, plan.problem
    if t is None or t.release != "totals":
        return None
    known = None if problem.loaded is None else set(problem.loaded.p)
    most = max(len(buses) if known is None else len(known & set(buses)) for buses in problem.zones.values())
    if most > FEW:
        return None
    return (
        f"privacy.release: found totals, and no zone has more than {FEW} active loads: their sums gain nothing over "
        "plain, and each load is noisier"
    )


KIND = PowerFlow()
