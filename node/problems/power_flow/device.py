"""Zones: from a plan and a zone's own loads to its machine and gate, and to the coordinator's machine."""

from __future__ import annotations

import hashlib
from math import inf
from pathlib import Path
from typing import ClassVar

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.partition import explicit, partition
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.backends import make_step
from hushgrid.grid_cases.zone.build import ensure_model
from hushgrid.grid_cases.zone.model import ZoneModel, load_model, place
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import Keeping
from hushgrid.kernels.patterns.star import Centre, Place
from hushgrid.kernels.types import Vector
from hushgrid.node.privacy.budget import Allowance
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.problems.kind import Plan
from hushgrid.node.problems.power_flow.gate import ZoneGate
from hushgrid.node.problems.power_flow.section import NAME, ZonesPlan, ZonesProblem
from hushgrid.node.wire import SMALL


class ZoneLoss:
    """f_p(z) = |A z + d|^2 of one zone; d = (p_d, q_d) of its buses, p.u., is private."""

    def __init__(self, model: ZoneModel, d: Vector) -> None:
        self.model, self.data = model, d
        self._At = model.A.T
        self.row_l1, self.row_l2, self.row_nnz, self.columns = model.row_l1, model.row_l2, model.row_nnz, model.n

    def gradient(self, z: Vector, d: Vector) -> Vector:
        result: Vector = 2.0 * (self._At @ (self.model.A @ z + d))  # zone.gradient, transposed once
        return result


class AnswerMemory:
    """Answers to be repeated, in the ledger, by the question and the data version that its owner has declared.

    The version is that of the device's data when the run is joined: nothing is ever compared with the data themselves.
    """

    def __init__(self, ledger: Ledger, about: str = "") -> None:
        """`about`: what of the question stands in no lattice: whose loads, and which."""
        self.ledger, self.about = ledger, f"version {ledger.data_version} of {about}: "

    def key(self, question: str) -> bytes:
        return hashlib.sha256((self.about + question).encode()).digest()

    def find(self, key: bytes) -> bytes | None:
        return self.ledger.answer(key)


def zones_of(problem: ZonesProblem, case: Case) -> dict[str, tuple[int, ...]]:
    """The zones of a scenario: partitioned by the program, or given."""
    zones = problem.zones
    return partition(case, zones) if isinstance(zones, int) else explicit(case, zones)


def smoothness(case: Case, zones: dict[str, tuple[int, ...]]) -> float:
    """L = 2 lambda_max(A_z A_z^T), the largest over the zones: public."""
    largest = 0.0
    for buses in zones.values():
        balance = Layout.of(case.without_loads(), buses).balance()
        largest = max(largest, float(2 * np.linalg.eigvalsh((balance @ balance.T).toarray())[-1]))
    return largest


def public(problem: ZonesProblem) -> tuple[Case, dict[str, tuple[int, ...]], ZonesPlan]:
    """What a problem makes public: its case, its zones, and their part of the plan. InputError names the key."""
    try:
        case = load(problem.case)
    except InputError as error:
        raise InputError(f"case: {str(error).removeprefix('case: ')}") from None
    zones = zones_of(problem, case)
    plan = ZonesPlan(case.name, case.public_digest(), {z: list(b) for z, b in zones.items()}, smoothness(case, zones))
    return case, zones, plan


class Zone:
    """A zone controller's own: the public model of its zone and its private loads."""

    kind: ClassVar[str] = NAME
    neighbours: ClassVar[bool] = False  #: it speaks to the coordinator alone

    def __init__(self, name: str, case: Case, model: ZoneModel, d: Vector, solver: str = "clarabel") -> None:
        self.name, self.case, self.model, self.d, self.solver = name, case, model, d, solver
        self._digest = case.public_digest()

    @property
    def digest(self) -> str:
        """Of the case without its loads."""
        return self._digest

    @property
    def loss(self) -> ZoneLoss:
        return ZoneLoss(self.model, self.d)

    def check(self, plan: Plan) -> None:
        """InputError unless the plan's public part is this device's own."""
        problem = plan.problem
        if problem.kind != NAME:
            raise InputError(f"{self.name}: found a plan for a problem of {problem.kind}, expected zones")
        if problem.digest != self.digest:
            raise InputError(
                f"{self.name}: found a plan for another version of the case {problem.case}, expected its own"
            )
        if tuple(sorted(problem.zones.get(self.name, ()))) != self.model.buses:
            found = str(problem.zones.get(self.name))[:200]  # a liar's may be long
            raise InputError(f"{self.name}: found zone {found} in the plan, expected its own {list(self.model.buses)}")
        if not self.model.L <= problem.L * (1 + 1e-9) < inf:
            raise InputError(f"{self.name}: found L {problem.L} in the plan, expected at least its own {self.model.L}")

    @property
    def dimension(self) -> int:
        """Entries it exchanges."""
        return int(self.model.shared.size)

    def limit(self, plan: Plan) -> int:
        """Bytes of the largest message of a run on this zone's edges."""
        return SMALL + 8 * self.dimension

    def machine(
        self, plan: Plan, run: bytes, ledger: Ledger, noise: NoiseSource, allowance: Allowance
    ) -> tuple[Keeping, Gate]:
        """Its machine and its gate in a run that it has checked."""
        t, model = plan.terms, self.model
        memory = AnswerMemory(ledger, f"{self.digest} {model.buses}")
        gate = ZoneGate(self.name, self.loss, t, noise, allowance, memory)
        place = Place(
            gate=gate,
            feasible=lambda D: make_step(model, D, self.solver),
            shared=model.shared,
            start=model.start,
            L=plan.problem.L,
            mode=t.mode if t else None,
            epsilon=t.paper_epsilon if t else inf,
            patience=plan.stop.patience if plan.stop else 0,
        )
        return plan.running.agent(place), gate


def model_of(name: str, case: str, buses: tuple[int, ...], exported: Path | None = None) -> ZoneModel:
    """The model of a zone: exported at enrolment, else from the cache or built once in a process of its own."""
    if exported is None:
        return ensure_model(case, name, buses)
    model = load_model(exported)
    if model.buses != buses:
        raise InputError(f"{exported}: found the model of buses {list(model.buses)}, expected {list(buses)} of {name}")
    return model


def layout(case: Case, zones: dict[str, tuple[int, ...]]) -> tuple[list[str], dict[str, np.ndarray], dict[str, Vector]]:
    """Keys of w, and for each zone where its shared entries stand in w and their flat start. No model is built."""
    layouts = {z: Layout.of(case.without_loads(), buses) for z, buses in zones.items()}
    shared = {z: one.shared() for z, one in layouts.items()}
    keys, position = place({z: [layouts[z].keys[k] for k in shared[z]] for z in zones})
    return list(keys), position, {z: layouts[z].flat_start()[shared[z]] for z in zones}


def centre(plan: Plan, case: Case) -> Centre:
    """What the coordinator's machine is made from."""
    _, position, start = layout(case, {z: tuple(b) for z, b in plan.problem.zones.items()})
    t, stop = plan.terms, plan.stop
    return Centre(
        position=position,
        start=start,
        epsilon=t.paper_epsilon if t else inf,
        tolerance=stop.tolerance if stop else 0.0,
        patience=stop.patience if stop else 0,
    )
