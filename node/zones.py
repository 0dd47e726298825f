"""Zones: from a plan and a zone's own loads to its machine and gate, and to the coordinator's machine."""

from __future__ import annotations

import hashlib
import hmac
import os
from math import inf
from pathlib import Path
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.partition import explicit, partition
from hushgrid.grid_cases.zone import ZoneModel, load_model, place
from hushgrid.grid_cases.zone_layout import Layout
from hushgrid.grid_cases.zone_model import ensure_model
from hushgrid.grid_cases.zone_solvers import make_step
from hushgrid.kernels import ladmm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ladmm import Agent, Server, Vector
from hushgrid.node.allowance import Allowance
from hushgrid.node.gate import Entropy, Gate, Seeded
from hushgrid.node.ledger import Ledger
from hushgrid.node.plan import RunPlan, ZonesPlan
from hushgrid.node.problem import ZonesProblem
from hushgrid.node.wire import SMALL
from hushgrid.node.zone_gate import ZoneGate


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
    """Answers to be repeated, in the ledger, under a keyed digest: the ledger alone tells nothing about the data."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        path = ledger.path.with_suffix(".key")
        try:
            if not path.exists():
                new = path.with_suffix(".key.new")
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(os.urandom(32))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new, path)  # whole or not at all: an empty key would hide nothing
            self.secret = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}, expected a readable key file beside the ledger") from None
        if len(self.secret) != 32:
            raise InputError(f"{path}: found {len(self.secret)} bytes, expected a key of 32")

    def key(self, answer: str, data: Vector) -> bytes:
        return hmac.new(self.secret, answer.encode() + b"\0" + data.tobytes(), hashlib.sha256).digest()

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

    kind: ClassVar[str] = "zones"
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

    def check(self, plan: RunPlan) -> None:
        """InputError unless the plan's public part is this device's own."""
        problem = plan.problem
        if not isinstance(problem, ZonesPlan):
            raise InputError(f"{self.name}: found a plan for a problem of {problem.kind}, expected zones")
        if problem.digest != self.digest:
            raise InputError(
                f"{self.name}: found a plan for another version of the case {problem.case}, expected its own"
            )
        if tuple(sorted(problem.zones.get(self.name, ()))) != self.model.buses:
            raise InputError(
                f"{self.name}: found zone {problem.zones.get(self.name)} in the plan, expected its own {list(self.model.buses)}"
            )
        if not self.model.L <= problem.L * (1 + 1e-9) < inf:
            raise InputError(f"{self.name}: found L {problem.L} in the plan, expected at least its own {self.model.L}")

    @property
    def dimension(self) -> int:
        """Entries it exchanges."""
        return int(self.model.shared.size)

    def limit(self, plan: RunPlan) -> int:
        """Bytes of the largest message of a run on this zone's edges."""
        return SMALL + 8 * self.dimension

    def machine(
        self, plan: RunPlan, run: bytes, ledger: Ledger, noise: Entropy | Seeded, allowance: Allowance
    ) -> tuple[Agent, Gate]:
        """Its machine and its gate in a run that it has checked."""
        t, problem, params = plan.terms, plan.problem, rounds_of(plan)
        assert isinstance(problem, ZonesPlan)
        gate = ZoneGate(self.name, self.loss, t, noise, allowance, AnswerMemory(ledger))
        model, epsilon, L = self.model, t.paper_epsilon if t else inf, problem.L
        first = ladmm.weights(model.n, model.shared, params.rho_t(1, epsilon), params.eta_t(1, L))
        perturbation: ladmm.Perturbation = "none"
        if t is not None:
            perturbation = t.mode if t.mode == "output" or t.mode == "output-projected" else "gate"
        machine = Agent(
            params, gate, make_step(model, first, self.solver), model.shared, model.start, L,
            perturbation=perturbation, epsilon=epsilon,
        )  # fmt: skip
        return machine, gate


def model_of(name: str, case: str, buses: tuple[int, ...], exported: Path | None = None) -> ZoneModel:
    """The model of a zone: exported at enrolment, else from the cache or built once in a process of its own."""
    if exported is None:
        return ensure_model(case, name, buses)
    model = load_model(exported)
    if model.buses != buses:
        raise InputError(f"{exported}: found the model of buses {list(model.buses)}, expected {list(buses)} of {name}")
    return model


def rounds_of(plan: RunPlan) -> ladmm.Params:
    """The plan's parameters with the rounds its caps allow."""
    params, t = plan.algorithm, plan.terms
    assert isinstance(params, ladmm.Params)
    return replace(params, rounds=t.rounds) if t else params


def layout(case: Case, zones: dict[str, tuple[int, ...]]) -> tuple[list[str], dict[str, np.ndarray], dict[str, Vector]]:
    """Keys of w, and for each zone where its shared entries stand in w and their flat start. No model is built."""
    layouts = {z: Layout.of(case.without_loads(), buses) for z, buses in zones.items()}
    shared = {z: one.shared() for z, one in layouts.items()}
    keys, position = place({z: [layouts[z].keys[k] for k in shared[z]] for z in zones})
    return list(keys), position, {z: layouts[z].flat_start()[shared[z]] for z in zones}


def server(plan: RunPlan, case: Case) -> Server:
    """The coordinator's machine."""
    assert isinstance(plan.problem, ZonesPlan)
    _, position, start = layout(case, {z: tuple(b) for z, b in plan.problem.zones.items()})
    t, stop = plan.terms, plan.stop
    return Server(
        rounds_of(plan), position, start, epsilon=t.paper_epsilon if t else inf,
        tolerance=stop.tolerance if stop else 0.0, patience=stop.patience if stop else 0,
    )  # fmt: skip
