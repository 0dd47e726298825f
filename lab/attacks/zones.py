"""Zones of a power grid: the loads by least squares on everything that a zone has told.

Only entries of the lines between zones travel. Yet each message is a function of what was sent to the zone, of public
data and of d, the zone's loads, the same in all rounds; so the loads are those with which the zone's own program, run
on the public model, sends what was heard. The map is smooth in pieces (limits that hold or not), its derivative is
taken by differences. Of exact gradients (`none`) all loads of a zone follow from a few rounds, to what the solver's
tolerance leaves. In mode `input` what is found is the gate's one noisy copy. In the other private modes each answer has
noise of its own, no d explains them all, and the residual says so. Where a run hands its data over (exact steps) there
is no riddle.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any, ClassVar

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import Case
from hushgrid.grid_cases.variables import Layout
from hushgrid.grid_cases.zone.model import ZoneModel, gradient
from hushgrid.grid_cases.zone.projection import ZoneStep
from hushgrid.kernels.algorithms import consensus_admm, ladmm
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.levels import Gathered
from hushgrid.kernels.patterns.star import Closing, Feasible, NodeContext, W, Z
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.attacks.base import Attack, Loads, Recovered
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import What
from hushgrid.node.problems.power_flow.device import mask_of, model_of, shared_of
from hushgrid.node.problems.power_flow.section import ZonesPlan

LEAST = 2  #: rounds of a find: one round has other explanations, in other pieces of the map
ROUNDS = 4  #: of the fit; more make its pieces smaller
WIDEST = 40  #: loads of a zone, at most: a fit takes as the square of their number
STARTS = (0.0, 0.2, 0.5)  #: p.u., every load: tried in turn until one leads to a fit
SOLVER = 1e-8  #: tolerance of a zone's solver: what is said is known no better
STEP = 1e-4  #: p.u., of the differences
STEPS = 25  #: of the fit, at most


def demand(flow: Matrix, norms: Vector) -> Vector:
    """The loads d (n,) by least squares on objectives |A z + d|^2 (T,) told beside the flows A z (T, n) of T > n + 1
    rounds. Raises InputError if there are fewer.

    |A z + d|^2 = |A z|^2 + 2 (A z).d + |d|^2 is linear in (d, |d|^2): why no private run tells an objective.
    """
    if len(flow) <= flow.shape[1] + 1:
        raise InputError(f"objectives: found {len(flow)}, expected more than {flow.shape[1] + 1}")
    system = np.hstack([2 * flow, np.ones((len(flow), 1))])
    loads: Vector = np.linalg.lstsq(system, norms - np.sum(flow**2, axis=1), rcond=None)[0]
    return loads[:-1]


@dataclass
class Guess:
    """A gate over guessed loads."""

    model: ZoneModel
    d: Vector

    def gradient(self, x: Vector) -> Vector:
        return gradient(self.model.A, x, self.d)

    exact_gradient = gradient

    def perturb(self, x: Vector) -> Vector:
        return x


class Zone:
    """The program of a zone on the public model, with what it was sent in the first rounds."""

    def __init__(self, transcript: Transcript, case: Case, name: str, rounds: list[tuple[W, Z]]) -> None:
        self.plan, self.rounds = transcript.plan, rounds
        buses = tuple(transcript.problem.zones[name])
        self.model = model_of(name, case.name, buses)
        self.shared = shared_of(Layout.from_case(case.without_loads(), buses), transcript.problem)
        mask = mask_of(transcript.problem, buses)
        self.free = np.arange(2 * len(buses)) if mask is None else np.flatnonzero(mask)  # the others are zero
        self.iterates = np.concatenate([z.z for _, z in rounds])
        self._step: Feasible | None = None

    def loads(self, v: Vector) -> Vector:
        d = np.zeros(2 * len(self.model.buses))
        d[self.free] = v
        return d

    def sends(self, v: Vector) -> Vector:
        """What it would have said with the loads v."""
        plan = self.plan
        place = NodeContext(
            gate=Guess(self.model, self.loads(v)),
            feasible=self._feasible,
            shared=self.shared,
            start=self.model.start,
            L=plan.problem.L,
            mode=plan.terms.mode if plan.terms else None,
            epsilon=plan.terms.paper_epsilon if plan.terms else inf,
            patience=0,
        )
        running: Any = plan.running  # of a star
        agent, iterates = running.agent(place), []
        for t, (w, _) in enumerate(self.rounds, 1):
            agent.update(t, w)
            iterates.append(agent.answer_body().z)
        return np.concatenate(iterates)

    def _feasible(self, D: Vector) -> Feasible:
        if self._step is None:  # its scaling is of the first round's weights, the same each time
            self._step = ZoneStep(self.model, D, "clarabel")
        return self._step

    def fit(self) -> tuple[Vector, float, float]:
        """The loads (2 nb,) that explain best what it said, |said - explained|/|said|, and how far loads, p.u., may lie
        from these that explain it as well.
        """
        from scipy.optimize import least_squares

        size = float(np.linalg.norm(self.iterates))

        def missed(v: Vector) -> Vector:
            residual: Vector = (self.sends(v) - self.iterates) / size
            return residual

        def slope(v: Vector) -> Matrix:
            here = missed(v)
            return np.column_stack([(missed(v + STEP * e) - here) / STEP for e in np.eye(v.size)])

        best, least, unsure = np.zeros(self.free.size), inf, inf
        for start in STARTS:
            first = np.full(self.free.size, start)
            fit = least_squares(
                missed, first, jac=slope, x_scale=0.1, max_nfev=STEPS, xtol=1e-12, ftol=1e-15, gtol=1e-15
            )
            if (residual := float(np.linalg.norm(fit.fun))) < least:
                best, least = fit.x, residual
                unsure = max(residual, SOLVER) / max(float(np.linalg.svd(fit.jac, compute_uv=False)[-1]), 1e-300)
            if least <= Loads.EXPLAINED:
                break
        return self.loads(best), least, unsure if len(self.rounds) >= LEAST else inf


class Demand(Attack):
    """Fits each zone's loads to what the zone has told; reads them where they are handed over."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (ladmm.Params, consensus_admm.Params)
    problem: ClassVar[type] = ZonesPlan

    def recover(self, transcript: Transcript) -> Recovered:
        what: What = "noisy answer" if gated(transcript.algorithm) or transcript.plan.terms is not None else "gradient"
        every = [*transcript.messages, *chain.from_iterable(transcript.levels)]
        handed = {m.src: m.body.data for m in every if isinstance(m.body, Closing)}
        for each in (m.body.closing for m in every if isinstance(m.body, Gathered)):  # a site's
            handed |= {zone: closing.data for zone, closing in each.items()}
        recovered, wide = Recovered(), []
        rounds = [] if handed else [(down, up) for _, down, up in transcript.rounds(W, Z)][:ROUNDS]
        case = load(transcript.problem.case).without(transcript.problem.ignore) if rounds else None
        for name in transcript.nodes:
            if name in handed:
                recovered.loads[name] = Loads(handed[name], 0.0, 0.0, what)
            elif case is not None:
                zone = Zone(transcript, case, name, [(down[name], up[name]) for down, up in rounds])
                if zone.free.size > WIDEST:
                    wide.append(name)
                    continue
                recovered.loads[name] = Loads(*zone.fit(), what)
        recovered.arrays = {f"d_{name}": loads.d for name, loads in recovered.loads.items() if loads.consistent}
        recovered.notes.append(
            "At the end each zone hands its data over, as its gate has them."
            if handed
            else f"The loads with which each zone's program sends what was heard in the first {len(rounds)} rounds."
        )
        if wide:
            recovered.notes.append(f"Not tried of {', '.join(wide)}: more than {WIDEST} loads.")
        return recovered
