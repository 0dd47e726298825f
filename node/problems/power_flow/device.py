"""Zones: from a plan and a zone's own loads to its machine and gate, and to the coordinator's machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from math import inf
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hushgrid.grid_cases import load
from hushgrid.grid_cases.ac import presence
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.costs import require_convex, require_modelled
from hushgrid.grid_cases.partition import explicit, partition
from hushgrid.grid_cases.setpoints import released_keys
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.build import ensure_model
from hushgrid.grid_cases.zone.cost import joint_stiffness, stiffness
from hushgrid.grid_cases.zone.horizon import SNAPSHOT, Horizon
from hushgrid.grid_cases.zone.model import ZoneModel, load_model, place
from hushgrid.grid_cases.zone.projection import ZoneStep
from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.machine import Keeping
from hushgrid.kernels.patterns.star import Index, NodeContext
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.budget import BudgetCheck
from hushgrid.node.privacy.gate import Expiry, Gate
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.kind import Plan
from hushgrid.node.problems.power_flow.capacity import read_capacities
from hushgrid.node.problems.power_flow.costs import TOTALS, LocalCost
from hushgrid.node.problems.power_flow.gate import ZoneGate
from hushgrid.node.problems.power_flow.horizon import horizon_of, keys_over, over, read_horizon, units_at
from hushgrid.node.problems.power_flow.section import (
    NAME,
    VOLL,
    HorizonPlan,
    Part,
    ZonesPlan,
    ZonesProblem,
    check_sites,
    objective_of,
)
from hushgrid.node.schema.durations import UNITS, moment
from hushgrid.node.schema.sections import Adjacency, Loaded
from hushgrid.node.wire import SMALL

HOUR_S, DAY_S = UNITS["h"], UNITS["d"]


class ZoneLoss:
    """f_p(z) = |A z + d|^2 of one zone; d = (p_d, q_d) of its buses, p.u., is private. Over a horizon d is (T 2 nb,).

    `mask` (2 nb,): which entries of d may be other than zero, public; the others count as zero, whatever they are.
    """

    def __init__(
        self,
        model: ZoneModel,
        d: Vector,
        mask: np.ndarray | None = None,
        unit: Vector | None = None,
        typical: Vector | None = None,
    ) -> None:
        """`unit` (2 nb,): beta_i of each entry, p.u., if each has its own; 0: it may not be other than zero.

        `typical` (2 nb,), p.u.: the public load in place of one that counts no more [zero].
        """
        if mask is not None:
            mask = np.tile(mask, d.size // mask.size)  # the same in each period
        if unit is not None:
            mask = unit > 0 if mask is None else mask & (unit > 0)
        self.model, self.unit, self.size = model, unit, d.size
        self.periods = d.size // (2 * len(model.buses))
        self.loaded = np.arange(d.size) if mask is None else np.flatnonzero(mask)
        self.data = d if mask is None else np.where(mask, d, 0.0)
        standing = np.zeros(d.size) if typical is None else typical
        self._typical = standing if mask is None else np.where(mask, standing, 0.0)
        self._At = model.A.T
        self.row_l1, self.row_l2, self.row_nnz, self.columns = model.row_l1, model.row_l2, model.row_nnz, model.n

    def of_now(self, counted: NDArray[np.bool_]) -> Vector:
        return np.where(counted, self.data, self._typical)

    def gradient(self, z: Vector, d: Vector) -> Vector:
        result: Vector = 2.0 * (self._At @ (self.model.A @ z + d))  # zone.gradient, transposed once
        return result


class AnswerMemory:
    """Answers to be repeated, in the ledger, by the question and the data version that its owner has declared.

    The version is that of the device's data when the run is joined: nothing is ever compared with the data themselves.
    What the run has found it repeats to its end, though a newer version takes it out of the ledger meanwhile.
    """

    def __init__(self, ledger: Ledger, zone: str = "") -> None:
        """`about`: what of the question stands in no lattice: whose loads, and which."""
        self.ledger, self.data_name = ledger, f"version {ledger.data_version} of {zone}: "
        self._found: dict[bytes, bytes] = {}

    def key(self, question: str) -> bytes:
        return hashlib.sha256((self.data_name + question).encode()).digest()

    def find(self, key: bytes) -> bytes | None:
        if key not in self._found and (answer := self.ledger.answer(key)) is not None:
            self._found[key] = answer
        return self._found.get(key)


def zones_of(problem: ZonesProblem, case: Case) -> dict[str, tuple[int, ...]]:
    """The zones of a scenario: partitioned by the program, or given."""
    zones = problem.zones
    return partition(case, zones) if isinstance(zones, int) else explicit(case, zones)


def smoothness(case: Case, zones: dict[str, tuple[int, ...]]) -> float:
    """L = 2 lambda_max(A_z A_z^T), the largest over the zones: public."""
    largest = 0.0
    for buses in zones.values():
        balance = Layout.from_case(case.without_loads(), buses).balance()
        largest = max(largest, float(2 * np.linalg.eigvalsh(balance.gram())[-1]))
    return largest


def public(
    problem: ZonesProblem, algorithm: Algorithm, base: Path = Path()
) -> tuple[Case, dict[str, tuple[int, ...]], ZonesPlan]:
    """What a problem makes public: its case, its zones, and their part of the plan. InputError names the key."""
    try:
        case = load(problem.case).without(problem.ignore)
    except InputError as error:
        raise InputError(f"case: {str(error).removeprefix('case: ')}") from None
    zones = zones_of(problem, case)
    objective = objective_of(problem, algorithm)
    if objective == "cost":
        _require_modelled(case)
        require_convex(case)
        if problem.ac == "polish" and not presence.installed():
            raise InputError(f"ac: found polish, and {presence.ABSENT}")
    plan = ZonesPlan(
        case.name,
        case.public_digest(),
        {z: list(b) for z, b in zones.items()},
        smoothness(case, zones),
        objective,
        problem.voll or VOLL,
        loaded(problem, case),
        (problem.ac or "polish") if objective == "cost" else "",
        problem.margins,
        problem.ignore,
    )
    if problem.sites is not None:
        check_sites(problem.sites, sorted(zones), algorithm, "sites")
        plan = replace(plan, sites={f"s{k}": sorted(members) for k, members in enumerate(problem.sites, 1)})
    if problem.horizon is not None:
        plan = replace(plan, horizon=read_horizon(problem.horizon, case), contingencies=problem.contingencies)
        horizon_of(plan, case)
    if objective == "cost":
        wired = wiring(case, plan)
        shared = {z: [one.keys[k] for k in shared_of(one, plan)] for z, one in wired.layouts.items()}
        plan = replace(plan, stiffness=joint_stiffness(case, shared))
    return case, zones, plan


def _require_modelled(case: Case) -> None:
    try:
        require_modelled(case)
    except InputError as error:
        raise InputError(f"ignore: {error}") from None


def loaded(problem: ZonesProblem, case: Case) -> Loaded | None:
    """The public mask of a scenario's loads. Raises InputError if a bus is none of the case's."""
    if problem.loads is None:
        return None
    mask = problem.loads.nonzero
    if isinstance(mask, str):
        buses = case.buses
        return Loaded(p=buses.numbers[buses.p_d != 0].tolist(), q=buses.numbers[buses.q_d != 0].tolist())
    known = set(case.buses.numbers.tolist())
    for key in ("p", "q"):
        if foreign := [bus for bus in getattr(mask, key) if bus not in known]:
            raise InputError(f"loads.nonzero.{key}: found bus {foreign[0]}, expected buses of {case.name}")
    return Loaded(p=sorted(set(mask.p)), q=sorted(set(mask.q)))


def mask_of(plan: ZonesPlan, buses: tuple[int, ...]) -> np.ndarray | None:
    """Which of a zone's loads (2 nb,), p then q, may be other than zero; None: every one."""
    if plan.loaded is None:
        return None
    return np.concatenate([np.isin(buses, plan.loaded.p), np.isin(buses, plan.loaded.q)])


class Contracts(NamedTuple):
    """What a relative change is relative to, at a zone's buses: public."""

    capacity: Vector  #: (2 nb,), p then q, p.u.
    digest: str  #: of the file that they stand in


def capacities(adjacency: Adjacency | None, case: Case, buses: Sequence[int]) -> Contracts | None:
    """The capacities of these buses, if the adjacency is a relative change. Raises InputError, which names the line."""
    change = adjacency.of_loads if adjacency else None
    if change is None or change.of is None:
        return None
    read = read_capacities(Path(change.of))
    if change.digest not in (None, read.digest):  # replaced since the owner's file, or the scenario, was read
        raise InputError(f"{read.path}: found rows of digest {read.digest}, expected {change.digest}")
    return Contracts(read.of_buses(case, buses), read.digest)


def loss_of(
    model: ZoneModel,
    d: Vector,
    problem: ZonesPlan,
    t: Terms | None,
    contracts: Contracts | None,
    typical: Vector | None = None,
    base_mva: float = 1.0,
) -> ZoneLoss:
    """A zone's loss in a run: with the entries that its plan, and under a relative change their contracts,
    let be loads.
    """
    unit = None
    if t is not None and t.day:
        if problem.horizon is None:
            raise Refused(f"{model.name}: found a day to hide in the plan, expected a plan with a horizon")
        unit = np.full(d.size, 1.0 / (problem.horizon.hours * base_mva))
    if t is not None and t.relative:
        if contracts is None:
            raise Refused(f"{model.name}: found a relative change in the plan, expected a zone with capacities")
        unit = t.relative * contracts.capacity
    return ZoneLoss(model, d, mask_of(problem, model.buses), unit, typical)


class Zone:
    """A zone controller's own: the public model of its zone and its private loads."""

    kind: ClassVar[str] = NAME
    neighbours: ClassVar[bool] = False  #: it speaks to the coordinator alone
    until: Vector | None = None  #: (2 nb,) running time, s, until which each load counts; None: for ever
    typical: Vector | None = None  #: (2 nb,) p.u.: the public load that counts then
    days: int = 0  #: of readings, of which its loads are the mean; 0: they are what its file or source has
    hours: float = inf  #: that a period of its owner's loads lasts at the least
    begins: float = 0.0  #: s after midnight UTC at which such a day begins

    def __init__(
        self,
        name: str,
        case: Case,
        model: ZoneModel,
        d: Vector,
        solver: str = "clarabel",
        pinned: Loaded | None = None,
        contracts: Contracts | None = None,
        ignore: Sequence[Part] = (),
    ) -> None:
        """`pinned`: the mask of loads that its owner allows; None: any. `contracts`: where its change is relative.
        `ignore`: the parts that its case is without."""
        self.name, self.case, self.model, self.d, self.solver, self.pinned = name, case, model, d, solver, pinned
        self.contracts, self.ignore = contracts, frozenset(ignore)
        self._digest = case.public_digest()
        self.layout = Layout.from_case(case.without_loads(), model.buses)

    def holding(self, d: Vector) -> Zone:
        """The same zone with other loads (2 nb,), p.u. Raises InputError if they are another zone's."""
        if d.shape != self.d.shape:
            raise InputError(f"{self.name}: found {d.size} loads, expected {self.d.size}")
        other = copy(self)
        other.d = d
        return other

    def expiring(self, d: Vector, until: Vector, typical: Vector) -> Zone:
        """The same with loads of which each counts `until` a running time, s, and its `typical` one after that."""
        other = self.holding(d)
        other.until, other.typical = until, typical
        return other

    @property
    def digest(self) -> str:
        """Of the case without its loads."""
        return self._digest

    def check(self, plan: Plan) -> None:
        """Raises InputError unless the plan's public part is this device's own."""
        problem = plan.problem
        if problem.kind != NAME:
            raise InputError(f"{self.name}: found a plan for a problem of {problem.kind}, expected zones")
        if set(problem.ignore) != self.ignore:
            ignored, ignored_here = (
                ", ".join(sorted(parts)) or "nothing" for parts in (set(problem.ignore), self.ignore)
            )
            raise InputError(
                f"{self.name}: found a plan that leaves out {ignored}, expected {ignored_here} (data.ignore)"
            )
        if problem.digest != self.digest:
            raise InputError(
                f"{self.name}: found a plan for another version of the case {problem.case}, expected its own"
            )
        if tuple(sorted(problem.zones.get(self.name, ()))) != self.model.buses:
            buses = str(problem.zones.get(self.name))[:200]  # a liar's may be long
            raise InputError(f"{self.name}: found zone {buses} in the plan, expected its own {list(self.model.buses)}")
        if not self.model.L <= problem.L * (1 + 1e-9) < inf:
            raise InputError(f"{self.name}: found L {problem.L} in the plan, expected at least its own {self.model.L}")
        if self.pinned is not None and not self._allows(problem.loaded):
            raise Refused(f"{self.name}: found another mask of loads in the plan, expected the one its owner allows")
        self._check_contracts(plan.terms)
        self._check_horizon(plan)
        if problem.objective == "cost":
            require_modelled(self.case)
            require_convex(self.case)

    def _check_contracts(self, t: Terms | None) -> None:
        """A share means nothing but with the capacities that it is of."""
        if t is None or not t.relative:
            return
        digest = self.contracts.digest if self.contracts else ""
        if t.capacities != digest:
            raise Refused(
                f"{self.name}: found capacities of digest {t.capacities[:12]} in the plan, expected "
                f"{f'its own, {digest[:12]}' if digest else 'no relative change'}"
            )

    @property
    def periods(self) -> int:
        """T of its loads."""
        return self.d.size // (2 * len(self.model.buses))

    def _check_horizon(self, plan: Plan) -> None:
        """Its own loads are of as many periods, and a day is hidden as a day."""
        horizon, t, T = plan.problem.horizon, plan.terms, self.periods
        horizon_of(plan.problem, self.case)
        periods = 1 if horizon is None else horizon.periods
        if periods != T:
            raise InputError(f"{self.name}: found a plan of {periods} periods, expected {T}, as its profiles have")
        if t is not None and horizon is not None and not t.day:
            raise Refused(
                f"{self.name}: found another change than a day in a plan with a horizon, expected {{day: ...}}"
            )
        if horizon is not None and horizon.hours > self.hours * (1 + 1e-9):  # an energy would pass for a smaller one
            raise InputError(
                f"{self.name}: found periods of {horizon.hours:g} h in the plan, expected at most {self.hours:g} "
                "(data.hours)"
            )
        if self.days and horizon is not None:
            self._check_hours(horizon)

    def _check_hours(self, horizon: HorizonPlan) -> None:
        """Its readings are of the hours that the plan is about: an energy would be another at another length."""
        length = horizon.periods * horizon.hours
        if abs(length - 24) > 1e-9:
            raise InputError(f"{self.name}: found a horizon of {length:g} h in the plan, expected 24 (source.rule)")
        apart = (horizon.began - self.begins + DAY_S / 2) % DAY_S - DAY_S / 2
        if horizon.began and abs(apart) > horizon.hours * HOUR_S / 2:
            raise InputError(
                f"{self.name}: found a day that begins at {moment(horizon.began)[11:16]} UTC in the plan, expected "
                f"{moment(self.begins)[11:16]} (source.begins)"
            )

    def _allows(self, mask: Loaded | None) -> bool:
        """Whether the plan's mask is the pinned one at this zone's buses."""
        buses, pinned = set(self.model.buses), self.pinned
        return mask is not None and all(
            buses & set(getattr(mask, key)) == buses & set(getattr(pinned, key)) for key in ("p", "q")
        )

    @property
    def dimension(self) -> int:
        """Entries it shares of the lines between zones: flows, cr and si."""
        return int(self.model.shared.size)

    @property
    def public_part(self) -> str:
        loads = self.pinned and (sorted(self.pinned.p), sorted(self.pinned.q))
        return f"{self.digest} {list(self.model.buses)} {loads}"

    def remark(self, plan: Plan) -> str:
        mask = mask_of(plan.problem, self.model.buses)
        lost = 0 if mask is None else int(np.count_nonzero(self.d.reshape(-1, mask.size)[:, ~mask]))
        return f" ({lost} of its loads are not zero where the plan has none: they count as zero)" if lost else ""

    def limit(self, plan: Plan) -> int:
        """Bytes of the largest message of a run on this zone's edges."""
        return SMALL + 8 * largest_message(self.layout, plan.problem)

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, budget_check: BudgetCheck
    ) -> tuple[Keeping, Gate]:
        """Its machine and its gate in a run that it has checked.

        Of a day that is carried on the gate answers on all periods, always, and what is over is left out of its answer.
        """
        t, model, problem = plan.terms, self.model, plan.problem
        memory, horizon = AnswerMemory(ledger, f"{self.digest} {model.buses}"), horizon_of(problem, self.case)
        loss = loss_of(model, self.d, problem, t, self.contracts, self.typical, self.case.base_mva)
        gate = ZoneGate(self.name, loss, t, noise, budget_check, memory, self.days or 1)
        gate.expiry = None if self.until is None else Expiry(self.until, lambda: ledger.spends.running)
        gate.passed = (horizon.first - 1) * 2 * len(model.buses)
        one, T = shared_of(self.layout, problem), horizon.periods
        shared = over(one, model.n, T)
        stored = 3 * T * len(units_at(problem, model.buses))
        place = NodeContext(
            gate=gate,
            feasible=lambda D: ZoneStep(model, D, self.solver),
            shared=shared,
            start=np.concatenate([np.tile(model.start, T), np.zeros(stored)]),
            L=problem.L,
            mode=t.mode if t else None,
            epsilon=t.paper_epsilon if t else inf,
            patience=plan.stop.patience if plan.stop else 0,
            local=lambda d, weight: LocalCost(self.case, model, shared, weight, d, problem.voll, self.solver, horizon),
            stiffness=np.tile(stiffness(self.case, [model.keys[k] for k in one], problem.stiffness), T),
            released=T * len(released_keys(self.case, self.layout)),
        )
        return plan.running.agent(place), gate


def model_of(
    name: str, case: str, buses: tuple[int, ...], exported: Path | None = None, ignore: Sequence[Part] = ()
) -> ZoneModel:
    """The model of a zone: exported at enrolment, else from the cache or built once in a process of its own."""
    if exported is None:
        return ensure_model(case, name, buses, ignore=ignore)
    model = load_model(exported)
    if model.buses != buses:
        raise InputError(f"{exported}: found the model of buses {list(model.buses)}, expected {list(buses)} of {name}")
    return model


class Wiring(NamedTuple):
    """What the zones share, from the case and the plan alone: no model is built. Over a horizon, in each period."""

    layouts: dict[str, Layout]
    shared: dict[str, Index]  #: where z_p has the entries that p shares
    keys: tuple[str, ...]  #: of w
    position: dict[str, Index]  #: where w has them
    own_keys: dict[str, list[str]]  #: of z_p
    horizon: Horizon = SNAPSHOT

    @property
    def start(self) -> dict[str, Vector]:
        """The flat start of the entries that each zone shares."""
        T = self.horizon.periods
        return {z: np.tile(one.flat_start(), T)[self.shared[z]] for z, one in self.layouts.items()}


def shared_of(layout: Layout, problem: ZonesPlan) -> Index:
    """The entries that a zone shares: of the lines between zones, and of exact steps the voltages at their ends."""
    return layout.shared(diagonal=problem.objective == "cost")


def wiring(case: Case, problem: ZonesPlan) -> Wiring:
    horizon = horizon_of(problem, case)
    layouts = {z: Layout.from_case(case.without_loads(), tuple(buses)) for z, buses in problem.zones.items()}
    shared = {z: over(shared_of(one, problem), len(one.keys), horizon.periods) for z, one in layouts.items()}
    own = {
        z: keys_over(one.keys, horizon, [u.name for u in units_at(problem, one.buses)]) for z, one in layouts.items()
    }
    keys, position = place({z: [own[z][k] for k in shared[z]] for z in layouts})
    return Wiring(layouts, shared, keys, position, own, horizon)


def largest_message(layout: Layout, problem: ZonesPlan) -> int:
    """Numbers in the largest message on a zone's edges."""
    m = int(shared_of(layout, problem).size)
    if problem.objective != "cost":
        return m
    T = problem.horizon.left if problem.horizon else 1
    closing = T * (len(layout.keys) + 4 * len(layout.buses) + 3 * len(units_at(problem, layout.buses)))
    return max(T * m + 2 * len(TOTALS), closing, T * len(released_keys(layout.case, layout)))
