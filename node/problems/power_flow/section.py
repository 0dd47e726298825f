"""Power flow over the zones of a case: what a scenario, a plan and a device file say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.algorithms.registry import TWO_LEVELS
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import BUSES, NODES, Bus, Case, Digest, Lipschitz, Name
from hushgrid.node.schema.sections import Loaded, Section

NAME = "zones"  #: of this kind of problem, in plans and births
VOLL = 10_000.0  #: $/MWh, the default
Solver = Literal["clarabel", "ecos", "ipopt"]
Objective = Literal["cost", "shedding"]
Recovery = Literal["polish", "none"]
BusKey = Annotated[str, Meta(pattern="^[0-9]{1,10}$")]
Stiffness = Annotated[float, Meta(gt=0, le=1e18)]
#: Of lost load. Below a cent nothing is worth being served; above, solvers lose the digits of the costs.
LostLoad = Annotated[float, Meta(ge=0.01, le=1e6, extra_json_schema={"unit": "$/MWh"})]


#: What a case holds beside buses, generators and lines, and is left out of the model.
Part = Literal["reactive-costs", "capability-curves", "dc-lines", "dispatchable-loads", "constraints"]
Parts = Annotated[tuple[Part, ...], Meta(max_length=5)]


class PublicLoads(Section, frozen=True, kw_only=True):
    """Which loads may be other than zero. Every other one counts as zero, and carries no noise."""

    nonzero: Loaded | Literal["case"]  #: buses; `case`: the entries that are not zero in the case file


PLACE = "{day}"  #: in the name of a table's file: the day, from 1
PERIODS, MOST_HOURS = 200, 48.0  #: of a horizon: a day ahead, and as much again
Hours = Annotated[float, Meta(gt=0, le=24)]
Power = Annotated[float, Meta(ge=0, le=1e6)]  #: MW, MWh
Generation = Annotated[float, Meta(ge=-1e6, le=1e6)]  #: MW
Factor = Annotated[float, Meta(ge=-1e4, le=1e4)]


class HorizonProblem(Section, frozen=True, kw_only=True):
    """So many periods that are planned together, with storage and ramps; tables are CSV files (docs/dayahead.md)."""

    periods: Annotated[int, Meta(ge=1, le=PERIODS)]  #: T
    hours: Hours = 1.0  #: of one period
    #: simulated zones' loads: period, bus, p_mw, q_mvar, a row for each bus and period [the case's own in each period]
    profiles: str | None = None
    storage: str | None = None  #: name, bus, p_mw, e_mwh, eta, cost, e_start, e_end [none]
    #: how far a generator's power changes in an hour at most, as a share of its largest: of all, or gen, per_hour [any]
    ramps: Annotated[float, Meta(gt=0, le=1e3)] | str | None = None
    availability: str | None = None  #: period, gen, value: the share of its largest power that a generator can give [1]
    price: str | None = None  #: period, gen, value: what a generator's linear cost is multiplied by [1]
    reserve: str | None = None  #: period, zone, mw: what a zone's generators could give beside what they give [none]

    def __post_init__(self) -> None:
        if self.periods * self.hours > MOST_HOURS * (1 + 1e-9):
            raise ValueError(
                f"Expected at most {MOST_HOURS:g} hours in all: {self.periods} periods of {self.hours:g} h"
            )


class StorageUnit(Struct, frozen=True, forbid_unknown_fields=True):
    """A storage unit of a plan."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    bus: Bus
    p_mw: Power
    e_mwh: Power
    eta: Annotated[float, Meta(gt=0, le=1)]
    cost: Annotated[float, Meta(ge=0, le=1e6)]  #: $/MWh
    e_start: Power
    e_end: Power


Rows = Annotated[
    dict[BusKey, Annotated[tuple[Factor, ...], Meta(min_length=1, max_length=PERIODS)]], Meta(max_length=BUSES)
]


class HorizonPlan(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public part of a horizon; generators by their numbers in the case file, counted from 1."""

    periods: Annotated[int, Meta(ge=1, le=PERIODS)]
    hours: Hours = 1.0
    storage: Annotated[tuple[StorageUnit, ...], Meta(max_length=BUSES)] = ()
    ramps: Annotated[dict[BusKey, Annotated[float, Meta(gt=0, le=1e3)]], Meta(max_length=BUSES)] = {}
    availability: Rows = {}
    price: Rows = {}
    reserve: Annotated[dict[Name, tuple[Power, ...]], Meta(max_length=NODES)] = {}
    #: The period that this plan begins with, of a day that is carried on; tables and loads are of the whole day.
    first: Annotated[int, Meta(ge=1, le=PERIODS)] = 1
    #: MWh of each storage unit then; (): as the units say
    energy: Annotated[tuple[Power, ...], Meta(max_length=BUSES)] = ()
    #: MW of each generator in the period before; {}: nothing went before
    before: Annotated[dict[BusKey, Generation], Meta(max_length=BUSES)] = {}
    #: s since 1970 at which period 1 began, by the coordinator's clock; 0: it does not say
    began: Annotated[int, Meta(ge=0, le=2**40)] = 0

    def __post_init__(self) -> None:
        if self.first > self.periods:
            raise ValueError(f"Expected a first period of at most {self.periods}: {self.first}")

    @property
    def left(self) -> int:
        """How many periods are planned."""
        return self.periods - self.first + 1

    @property
    def lasting(self) -> HorizonPlan:
        """What of it is the same for the plans of all days: without forecasts, and without where a day stands."""
        return HorizonPlan(self.periods, self.hours, self.storage, self.ramps)


class ZonesProblem(Section, tag_field="kind", tag="zones", frozen=True, kw_only=True):
    """Power flow over the zones of a case; each zone's loads are private."""

    case: str  #: a built-in case (`hushgrid case list`) or the path of a MATPOWER .m file
    #: how many (the program draws the borders), or each zone's bus numbers
    zones: Annotated[int, Meta(ge=1)] | list[list[int]]
    #: least generation cost with lost load at `voll`, or least squared load shedding, the paper's [cost for
    #: consensus-admm, shedding for ladmm]
    objective: Objective | None = None
    #: two levels: the zones of each site s1, s2, ..., every zone in one; each site averages what its own zones share
    #: alone, and the fleet's coordinator the rest [one level]
    sites: Annotated[tuple[tuple[Name, ...], ...], Meta(max_length=NODES)] | None = None
    voll: LostLoad | None = None  #: the value of lost load; cost [10000]
    #: a public mask: which loads may be other than zero [every one, and each carries noise]
    loads: PublicLoads | None = None
    #: cost: what makes a dispatch of the relaxation's solution, an AC optimal power flow from there [polish]
    ac: Recovery | None = None
    #: cost: the AC optimal power flow keeps away from limits, by how uncertain the noise leaves what comes
    margins: bool = False
    #: what of the case's own is left out: `objective: cost` refuses a case with a part that is neither modelled nor
    #: named here
    ignore: Parts = ()
    solver: Solver = "clarabel"  #: of a zone's step
    horizon: HorizonProblem | None = None  #: cost: periods that are planned together [a snapshot]
    #: over a horizon: a power flow of each period with each line out, `contingencies.csv`; a check, no constraint
    contingencies: bool = False


class ZoneData(Section, frozen=True, kw_only=True):
    """A zone controller's data: the public case, its own buses, and its private loads (bus, p_mw, q_mvar)."""

    case: str  #: the public network: a built-in case or a MATPOWER file; its loads are not used
    zone: list[int]  #: this zone's bus numbers
    #: private: a CSV file of bus, p_mw, q_mvar. Beside a `source` what counts until its first good value [none]
    loads: str | None = None
    #: the same over a horizon: a CSV file of period, bus, p_mw, q_mvar, of as many periods as a plan has. Beside
    #: `source.rule` public [none]
    profiles: str | None = None
    #: that a period of `profiles` lasts: over longer ones the same noise would hide less energy [24, shared by
    #: them; of `loads` and of a source 1]
    hours: Hours | None = None
    ignore: Parts = ()  #: what of the case's own is left out, as in the scenario
    model: str | None = None  #: the zone's public model, exported by `hushgrid case zones` [made at the start]
    solver: Solver = "clarabel"  #: of the zone's step


class ZonesPlan(Struct, tag_field="kind", tag="zones", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The public part of a zones problem."""

    case: Case  #: the case's own name
    digest: Digest  #: of the case without its loads
    zones: Annotated[dict[Name, Annotated[list[Bus], Meta(max_length=BUSES)]], Meta(max_length=NODES)]
    L: Lipschitz  #: 2 lambda_max(A_z A_z^T), the largest over the zones
    objective: Objective = "shedding"
    voll: LostLoad = VOLL
    loaded: Loaded | None = None  #: the mask of the loads; None: every one may be other than zero
    ac: Recovery | Literal[""] = ""
    margins: bool = False  #: of the AC optimal power flow, `grid_cases.ac.margins`
    ignore: Parts = ()  #: parts that its case is without
    #: cost: |y|^2 of c at the buses where a zone's own lines do not show it, p.u.: an entry has one weight in all zones
    stiffness: Annotated[dict[BusKey, Stiffness], Meta(max_length=BUSES)] = {}
    horizon: HorizonPlan | None = None  #: cost: None: a snapshot
    contingencies: bool = False  #: of the coordinator's tables, `grid_cases.ac.contingencies`
    #: cost: the zones of each site, of two levels; {}: one level
    sites: Annotated[dict[Name, Annotated[list[Name], Meta(max_length=NODES)]], Meta(max_length=NODES)] = {}

    @property
    def kind(self) -> str:
        return NAME

    @property
    def nodes(self) -> list[str]:
        return sorted(self.zones)

    @property
    def description(self) -> str:
        return f"{self.case} in {len(self.zones)} zones"

    @property
    def constants(self) -> tuple[Sequence[float], int]:
        return [self.L], 1

    @property
    def held(self) -> bool:
        """The limits of a zone hold its variables."""
        return True

    def visits(self, algorithm: Algorithm, stated: bool) -> tuple[int, ...]:
        return ()

    def check(self, algorithm: Algorithm) -> None:
        """Whether zones and case belong together is for a device to say, which has the case."""
        check_objective(self.objective, algorithm, "plan: problem.objective")
        if self.horizon is not None and self.objective != "cost":
            raise InputError(f"plan: problem.horizon: found a section, expected none (objective: {self.objective})")
        if self.sites:
            check_sites(list(self.sites.values()), self.nodes, algorithm, "plan: problem.sites")
        algorithm.check(*self.constants, convexity=0.0)


def objective_of(problem: ZonesProblem, algorithm: Algorithm) -> Objective:
    """What is minimised: as the scenario says, else what the algorithm is for."""
    return problem.objective or ("cost" if exact(algorithm) else "shedding")


def exact(algorithm: Algorithm) -> bool:
    """Whether the algorithm solves each zone's problem exactly: it is for costs, which a gradient step is not."""
    return algorithm.asks() == "data"


def check_sites(sites: Sequence[Sequence[str]], zones: Sequence[str], algorithm: Algorithm, where: str) -> None:
    """Raises InputError unless the algorithm runs in two levels, and every zone is in one site."""
    if algorithm.name not in TWO_LEVELS:
        raise InputError(f"{where}: found {len(sites)} sites, expected none (algorithm.name: {algorithm.name})")
    if len(sites) < 2 or not all(sites):
        raise InputError(
            f"{where}: found {list(map(len, sites))} zones, expected two sites or more, none of them empty"
        )
    dealt = Counter(zone for site in sites for zone in site)
    for zone in sorted({*zones, *dealt}):
        if dealt[zone] != (zone in zones):
            wrong = f"{zone} in {dealt[zone]} sites" if zone in zones else f"zone {zone}"
            raise InputError(f"{where}: found {wrong}, expected each of {', '.join(zones)} in one")


def check_objective(objective: Objective, algorithm: Algorithm, where: str) -> None:
    """Raises InputError unless the algorithm minimises this."""
    if (objective == "cost") != exact(algorithm):
        expected = "cost" if exact(algorithm) else "shedding"
        raise InputError(f"{where}: found {objective}, expected {expected} (algorithm.name: {algorithm.name})")
