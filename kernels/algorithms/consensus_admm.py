"""S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, Distributed optimization and statistical learning via the
alternating direction method of multipliers, 2011, Section 7.2 (general form consensus), with over-relaxation (3.4.3).

Problem:   min  sum_p f_p(z_p)   s.t.  z_p in W_p,   w = z_p on the entries p shares,
with every local problem solved exactly. In the scaled form u_p = lambda_p / rho, s_p = w + u_p is all the state there
is, and the coordinator keeps it: a member's step is a function of the message, its gate's one answer and public data.

    w = mean over owners of s_p,   v_p = 2 w - s_p,   z_p = argmin f_p + sum_k rho_k/2 (z_k - v_k)^2,
    F_p = relaxation (z_p - w),    s_p <- s_p + F_p

Beyond the book (docs/papers/consensus-admm.md):
 - Anderson acceleration (type II; H. Walker, P. Ni, 2011) of this fixed-point iteration in y = sqrt(rho) s, with a
   safeguard: an accelerated state whose residual is more than twice that of the round before is dropped.
 - The weights rho differ by entry, and their common factor is balanced (3.4.1) finitely often: convergence is that of
   fixed weights.
 - After the last round there are two more exchanges: every member hands over what its outcome is judged by, functions
   of its gate's one answer, and is told what came of it. It is asked at multipliers lam_p that sum to zero over the
   owners of each entry, and answers with min f_p + <lam_p, z_p>, or less. By weak duality the sum over p is at most the
   least cost, whatever lam is: the optimum z* has sum_p <lam_p, z_p*> = <sum_p lam_p, w*> = 0.
 - Entries may be held: w is a constant there. What such constants make infeasible has a price that must climb from the
   marginal cost to that of lost load, by rho |z - w| a round. So these runs are steeper, and balanced more often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, inf, sqrt
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Question, Sharing, Star
from hushgrid.kernels.algorithms.entries import Entries, Totals, joined, widened
from hushgrid.kernels.algorithms.owners import coefficients, price_of_constants, same_weights
from hushgrid.kernels.machine import LARGEST, Malformed
from hushgrid.kernels.patterns.levels import ABOVE, Move, Sums, places
from hushgrid.kernels.patterns.star import (
    Close,
    Closing,
    FinalState,
    Local,
    Minimum,
    NodeContext,
    Released,
    ServerContext,
    StarCentre,
    StarMember,
    Taken,
    V,
)
from hushgrid.kernels.ranges import Count, Step
from hushgrid.kernels.types import Vector

ACCELERATED = 5  #: the first round whose next state may be accelerated
WORSE = 2.0  #: an accelerated state is dropped if its residual is so many times that of the round before
BALANCED = range(10, 151, 10)  #: rounds in which the common factor may change
HELD_EVERY = 5  #: rounds from one of them to the next if entries are held
STEEPER = 1000.0  #: the weights of a run in which entries are held, over those of others; it begins at a tenth of them
PRICED = 1.5  #: tolerances; of the cost, what entries may differ by at their own prices when a run stops
UNBALANCED = 4.0  #: it does if one residual is so many times the other
MOST_AT_ONCE, LOWEST, HIGHEST = 10.0, 0.01, 1000.0  #: of the factor: a change, and all changes together

CLOSING = 2  #: exchanges with every member after the last round


class Params(Star, tag_field="name", tag="consensus-admm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section."""

    title: ClassVar[str] = "consensus ADMM, accelerated"
    paper: ClassVar[str] = (
        "S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, Distributed optimization and statistical learning via "
        "ADMM, Section 7.2"
    )
    sharing: ClassVar[tuple[Sharing, ...]] = ("parts",)
    modes: ClassVar[tuple[str, ...]] = ("input",)
    recorded: ClassVar[tuple[str, ...]] = ("z", "lam")
    figures: ClassVar[tuple[str, ...]] = (
        "objective",
        "consensus_residual",
        "dual_residual",
        "disagreement",
        "factor",
    )
    stopping: ClassVar[tuple[float, int] | None] = (1e-4, 3)

    rounds: Count  #: the most rounds around the coordinator
    rho0: Step = 0.2  #: the penalty of flows, before balancing
    kappa: Step = (
        0.03  #: that of c, cr and si is rho0 min(kappa |y|^2, cap), y the admittance of the lines between two buses
    )
    cap: Step = 100.0  #: see kappa
    relaxation: Annotated[float, Meta(ge=1.0, lt=2.0)] = 1.7  #: alpha of (3.4.3)
    memory: Annotated[int, Meta(ge=0, le=50)] = 10  #: differences that the acceleration looks back on; 0: none

    def weights(self, stiffness: Vector) -> Vector:
        """rho_k at factor 1 of each entry, from |y|^2; nan: a flow."""
        curved = self.rho0 * np.minimum(self.kappa * np.nan_to_num(stiffness), self.cap)
        return np.where(np.isnan(stiffness), self.rho0, curved)

    def asks(self, mode: str = "") -> Question:
        return "data"

    def beside_constants(self) -> Self:
        return replace(self, rho0=min(STEEPER * self.rho0, 1e9))

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        return None  # exact steps: it converges for every penalty

    def step_of_answer(self, i: int, k: int, L: float, epsilon: float = inf, alpha: float = 0.0) -> float:
        return 0.0  # no answer enters a step by a gradient

    def agent(self, context: NodeContext) -> Agent:
        return Agent(self, context)

    def entries(self, context: ServerContext, site: str) -> Entries:
        """Those that are averaged at a site, or ABOVE."""
        return Entries(
            places(context.position, context.stiffness.size, context.sites)[site],
            self.weights(context.stiffness),
            np.isnan(context.stiffness),
            context.held,
            relaxation=self.relaxation,
            memory=self.memory,
            alone=not context.sites,
        )

    def server(self, context: ServerContext) -> Server:
        return Server(self, context)


@dataclass
class AgentState:
    t: int  #: exchanges answered
    z: np.ndarray  #: (n,) the minimiser of the last round
    lam: np.ndarray  #: (m,) rho (z_p - v_p) on the shared entries
    value: float = 0.0  #: f_p there
    totals: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: what is told of it beside the value
    duals: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: the multipliers of its own balance
    closing: bool = False  #: the last exchange asked for all that the outcome is judged by
    bound: float = -inf  #: of f_p from below, at the multipliers that it asked with
    released: Released | None = None  #: what came of the run


class Agent(StarMember):
    """Member p. What it sends is a function of the message, of its gate's one answer, and of public data."""

    def __init__(self, params: Params, context: NodeContext) -> None:
        super().__init__("coordinator", params.rounds + CLOSING)
        assert context.local is not None
        self.gate, self.local, self.shared = context.gate, context.local, context.shared
        self.weight = params.weights(context.stiffness)
        self.released_size = context.released
        self._problem: Local | None = None
        self.state = AgentState(0, context.start.copy(), np.zeros(context.shared.size))

    @property
    def complete(self) -> bool:
        return self.state.released is not None

    def check(self, body: object) -> None:
        m = self.shared.size
        match body:
            case V(v=v, factor=factor) if v.shape == (m,) and 0 < factor <= HIGHEST:
                return
            case Close(lam=lam) if self.state.t > 0 and lam.size in (0, m):
                return
            case Released(values=values) if self.state.closing and values.size in (0, self.released_size):
                return
        raise Malformed(f"{type(body).__name__}, expected v of {m} entries and its factor, or the next of the closing")

    def update(self, t: int, body: Any) -> None:
        s = self.state
        match body:
            case V(v=v, factor=factor):
                least = self.problem.minimum(v, factor)
                s.z, s.value, s.totals, s.duals = least.z, least.value, least.totals, least.duals
                s.lam = factor * self.weight * (s.z[self.shared] - v)
                s.closing = False
            case Close(lam=lam):
                s.bound = self.problem.bound(lam) if lam.size else -inf
                s.closing = True
            case Released():
                s.released = body

    @property
    def problem(self) -> Local:
        """The local problem at the gate's one answer, made when it is asked for."""
        if self._problem is None:
            self._problem = self.local(self.gate.data(), self.weight)
        return self._problem

    def answer_body(self) -> object:
        s = self.state
        if s.released is not None:
            return Taken()
        if s.closing:
            return Closing(self.gate.data(), s.z, s.duals, s.bound)
        return Minimum(s.z[self.shared], s.value, s.totals, float(np.linalg.norm(s.lam)))

    def outcome(self) -> dict[str, Vector]:
        released = self.state.released
        values = released.values if released else np.zeros(0)
        return {"z": self.state.z, "released": values, "duals": self.state.duals}


@dataclass
class ServerState:
    encoded_names: ClassVar[Mapping[str, str]] = {"stable_rounds": "calm", "dispatch": "whole"}

    t: int  #: exchange under way
    w: np.ndarray  #: (N,) the mean of s over the owners of each entry
    s: dict[str, np.ndarray]  #: (m_p,) each: the state of the iteration
    factor: float = 1.0  #: of every weight
    rounds: int = 0  #: rounds that are complete
    ys: list[np.ndarray] = field(default_factory=list)  #: the acceleration's memory, at this factor
    Rs: list[np.ndarray] = field(default_factory=list)
    plain: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: s + F of the last round, all members in order
    norm: float = inf  #: |R| of it
    leapt: bool = False  #: the state under way is an accelerated one
    stable_rounds: int = 0  #: rounds in a row with both residuals within the tolerance
    measured: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: `Params.figures` of the last round
    residual: float = inf  #: |z - zbar| of the last round
    z: dict[str, np.ndarray] = field(default_factory=dict)  #: what each member answers in the last round
    why: str | None = None  #: why the rounds are over; the closing exchanges follow
    lam: dict[str, np.ndarray] = field(default_factory=dict)  #: (m_p,) each: the multipliers that a bound is asked at
    bound: float = -inf  #: of the least sum of all f_p from below, proven; -inf: none is known
    closing: dict[str, Closing] = field(default_factory=dict)  #: what the members have handed over
    released: dict[str, Released] = field(default_factory=dict)
    dispatch: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: the outcome, as the problem has it
    standing: dict[str, np.ndarray] = field(default_factory=dict)  #: of it, what each member goes on doing by itself
    arrived: dict[str, Minimum | Closing | Taken] = field(default_factory=dict)
    done: str | None = None
    normal: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: (k^2,) the products of the differences of Rs


def check_answer(body: object, m: int, wanted: int, widths: tuple[int, int, int]) -> None:
    """Raises Malformed unless a member that shares m entries may send this. wanted: `ServerContext.totals`."""
    match body:
        case Minimum(z=z, totals=totals, value=value):
            good = z.shape == (m,) and totals.shape == (wanted,) and abs(value) <= LARGEST
        case Closing(data=data, z=z, duals=duals, bound=bound):
            good = (data.size, z.size, duals.size) == widths and bound <= LARGEST
        case _:
            good = isinstance(body, Taken)
    if not good:
        raise Malformed(f"{type(body).__name__}, expected a minimiser of {m} entries, or what ends a run")


class Server(StarCentre):
    """The coordinator. `position[p]` (m_p,) places p's shared entries among all N."""

    state: ServerState

    def __init__(self, params: Params, context: ServerContext, members: Sequence[str] = ()) -> None:
        """members: other than the zones, of two levels."""
        super().__init__(list(members or context.position), params.rounds)
        assert context.conclude is not None
        self.params, self.position, self.conclude = params, context.position, context.conclude
        self.tolerance, self.patience = context.tolerance, context.patience
        self.scale, self.bounds, self.totals, self.widths = (
            context.scale,
            context.bounds,
            context.totals,
            context.widths,
        )
        self.periods = context.periods
        self.held, self.size, self.zones = context.held, context.stiffness.size, sorted(context.position)
        self.averaged = places(context.position, self.size, context.sites)
        self.entries = params.entries(context, ABOVE)
        self.begun = context.warm or {p: v.copy() for p, v in context.start.items()}
        self.factor, self.lowest, self.balanced = context.factor, LOWEST, BALANCED
        here = {p: self.begun[p][self.averaged[ABOVE].inside[p]] for p in self.zones}
        self.state = self.first(here, context.factor)
        if self.held.size:
            self.lowest, self.balanced = LOWEST / STEEPER, range(HELD_EVERY, params.rounds, HELD_EVERY)
            self.entries.average(self.state)
            w, k = self.state.w, self.position
            self.state.factor = context.factor / 10  # lambda = rho u is the same
            self.state.s = {p: w[k[p]] + (s - w[k[p]]) * 10 / STEEPER for p, s in here.items()}

    def first(self, s: dict[str, Vector], factor: float) -> ServerState:
        """The state before the first round."""
        return ServerState(0, np.zeros(self.entries.size), s, factor)

    # --- the pattern ---

    def check(self, member: str, body: object) -> None:
        check_answer(body, self.position[member].size, self.totals, self.widths[member])

    def due(self, body: object) -> None:
        s = self.state
        expected = Minimum if s.why is None else Taken if s.closing else Closing
        if not isinstance(body, expected):
            raise Malformed(f"{type(body).__name__}, expected {expected.__name__} now")

    def begin(self) -> None:
        if not self.state.closing:
            self.entries.average(self.state)

    def round_body(self, member: str) -> object:
        s = self.state
        if s.closing:
            return s.released[member]
        if s.why is not None:
            return Close(s.lam[member]) if s.lam else Close()
        return V(self.entries.point(s, member), s.factor)

    def ended(self) -> str | None:
        s = self.state
        if s.closing:
            over: str | None = s.why
            return over
        if s.why is not None:
            s.closing = self.gathered()
            s.bound = self.bound_of(s.closing) if s.lam else -inf
            s.released, s.dispatch, s.standing = self.conclude(s.closing, self.measured)
            return None
        stable = self.combine()
        if not (stable or s.t == self.rounds) or not self.bounds:
            s.lam = {}
        s.rounds = s.t
        s.why = "tolerance" if stable else "rounds" if s.t == self.rounds else None
        return None

    def gathered(self) -> dict[str, Closing]:
        """What the zones have handed over."""
        return {p: self.state.arrived[p] for p in self.members}  # type: ignore[misc]

    def bound_of(self, closing: Mapping[str, Closing]) -> float:
        """Weak duality: sum_p min (f_p + <lam_p, z_p>), less what constants pay."""
        positions = [self.position[p] for p in self.zones]
        paid = price_of_constants([self.state.lam[p] for p in self.zones], positions, self.held)
        return fsum(closing[p].bound for p in self.zones) - self.scale * paid

    def final_state(self) -> FinalState:
        # The price of a constant is none of an agreement: the next run of all begins where this one has.
        s = self.state
        warm, factor = (self.begun, self.factor) if self.held.size else (s.s, s.factor)
        return FinalState(warm=warm, z=s.z, factor=factor, standing=s.standing)

    def completed(self, state: ServerState) -> int:
        return state.rounds

    @property
    def measured(self) -> dict[str, float]:
        """What the last round was worth."""
        return dict(zip(self.params.figures, self.state.measured.tolist(), strict=True))

    # --- the iteration ---

    def sums(self) -> list[Sums]:
        """Of the round, at each place; z of it is in the state."""
        s = self.state
        answers: dict[str, Minimum] = {p: s.arrived[p] for p in self.members}  # type: ignore[misc]
        s.z = {p: body.z for p, body in answers.items()}
        same_weights({p: body.pull for p, body in answers.items()}, self.entries.multipliers(s))
        return [self.entries.measured(s, [body.value for body in answers.values()])]

    def combine(self) -> bool:
        """Round t: what it was worth, whether to stop, and the next state."""
        s = self.state
        if len(s.normal) != max(len(s.ys) - 1, 0) ** 2:  # a state that a program of before has stored
            s.ys, s.Rs, s.normal = s.ys[-1:], s.Rs[-1:], np.zeros(0)
        total = joined(self.sums())
        r, dual = sqrt(total.primal), sqrt(total.dual)
        s.lam = self.entries.centred(s)
        s.measured = np.array([total.value, r, dual, 2 * total.apart, s.factor])
        s.residual = r
        room = self.tolerance * sqrt(self.size)
        agreed = r <= room + self.tolerance * sqrt(total.size)
        settled = dual <= room + self.tolerance * sqrt(total.force)
        # Of c, cr and si a little is much: what entries differ by counts by its price too. That of a constant has no
        # end.
        priced = total.worth <= PRICED * self.tolerance * max(abs(total.value) / self.scale, 1.0)
        s.stable_rounds = s.stable_rounds + 1 if agreed and settled and priced else 0
        steep = bool(self.held.size) and agreed and not settled
        least = s.factor if settled and self.periods > 1 else self.lowest
        self.advance(self.decided(total, steep, least))
        return bool(self.patience and s.stable_rounds >= self.patience)

    def decided(self, total: Totals, steep: bool, least: float) -> Move:
        """The next state: accelerated, plain, balanced, or what the safeguard goes back to.

        `steep`: the weights are to fall. With large ones the dual residual is the solver's rounding, and does not.
        `least`: of their factor. Over a horizon they do not fall for a dual residual within its tolerance: a cost that
        is almost flat, as of a voltage level, keeps it there, and what is left is to agree, which they would hinder.
        """
        s, t, none = self.state, self.state.t, np.zeros(0)
        norm = sqrt(total.step)
        if s.leapt and norm > WORSE * s.norm:
            s.leapt, s.normal, s.norm = False, none, inf
            return Move("back", s.factor, none)
        s.leapt = False
        if t in self.balanced:
            a, q = (1.0, MOST_AT_ONCE) if steep else (sqrt(total.spread), sqrt(total.far))
            if a > UNBALANCED * q or q > UNBALANCED * a:
                change = min(MOST_AT_ONCE, max(1 / MOST_AT_ONCE, a / q if q else inf))
                factor = min(HIGHEST, max(least, s.factor * change))
                if factor != s.factor:
                    s.normal, s.norm = none, inf
                    return Move("balance", factor, none)
        s.normal, s.norm = widened(s.normal, total.products), norm
        if t < ACCELERATED or not total.steps.size:
            return Move("plain", s.factor, none)
        s.leapt = True
        k = total.steps.size
        return Move("leap", s.factor, coefficients(s.normal.reshape(k, k), total.steps))

    def advance(self, move: Move) -> None:
        self.entries.move(self.state, move)
