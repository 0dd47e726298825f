"""I-ADMM, PI-ADMM1 and 2 and W-ADMM (docs/papers/pi-admm.md, finding 3.1): the token tells x_i, y_i and the gradients.

By (5) u_i = x_i - y_i/rho changes by N times what the token changes at agent i, and it starts at v - v = 0 whatever v
is. By (4b) or (13)

    x_i+ = ( N (z+ - z) + gamma z + x_i )/(1 + gamma),     y_i+ = rho (x_i+ - u_i+)

so that an error in the guess of x_i shrinks by 1/(1 + gamma) a visit, and y_i is a gradient of f_i. Only (4b) enters,
hence it holds for exact and for first-order updates alike. Where gamma is random, the middle of its public range is
taken for it: what that leaves is |gamma - middle| |z - x_i|/(1 + gamma), which vanishes as the walk converges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.algorithms import iadmm
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.attacks.base import Attack, Recovered
from hushgrid.lab.attacks.transcript import Transcript, Visit
from hushgrid.lab.inversion.recovered import Gradients, Rows, What
from hushgrid.lab.inversion.rows import rows_of
from hushgrid.node.problems.on_graph import OnGraph
from hushgrid.node.problems.records.section import DataPlan

FORGOTTEN = 1e-9  #: what may be left of the start where gradients are used for rows
MODEL_VISITS = 10  #: visits that a ridge model is made from, where they are enough
MODELS = 16  #: nodes of which such a model is made, at most: half a second each
MODEL_WIDTH = 8  #: entries of x of such a model, at most: the unknowns grow as its square


class Exchanges(NamedTuple):
    """What the token tells of one agent, a row a visit."""

    when: NDArray[np.int64]  #: (V,) the activation, from 0
    z: Matrix  #: (V, p) the token it was given
    sent: Matrix  #: (V, p) the token it sent
    moved: Matrix  #: (V, p) how far u_i moved, N (sent - z)

    @property
    def u(self) -> Matrix:
        """(V, p) x_i - y_i/rho after each visit."""
        return np.cumsum(self.moved, axis=0)


def exchanges_of(visits: Iterable[Visit]) -> dict[int, Exchanges]:
    """What the token tells of each agent that was visited."""
    seen: dict[int, list[Visit]] = {}
    for visit in visits:
        seen.setdefault(visit.i, []).append(visit)
    exchanges = {}
    for i, each in seen.items():
        z, sent = (
            np.array([pair[0] for pair in pairs]) for pairs in ([v.before for v in each], [v.after for v in each])
        )
        live = np.array([v.live for v in each], dtype=np.float64)
        exchanges[i] = Exchanges(np.array([v.k for v in each], dtype=np.int64), z, sent, live[:, None] * (sent - z))
    return exchanges


def forward(agent: Exchanges, rho: float, gamma: float = 1.0, start: float = 0.0) -> tuple[Matrix, Matrix]:
    """x_i and y_i (V, p) after each visit, by the recursion above from x_i = `start` in every entry."""
    x, last = np.empty_like(agent.z), np.full(agent.z.shape[1], start)
    for v, (z, moved) in enumerate(zip(agent.z, agent.moved, strict=True)):
        last = x[v] = (moved + gamma * z + last) / (1 + gamma)
    return x, rho * (x - agent.u)


def backward(agent: Exchanges, last: Vector, missed: float | Vector = 0.0) -> Matrix:
    """x_i (V, p) after each visit, by (11) from the last one back: an error in it doubles a visit.

    missed: by how much each equation x_i+ = (N (z+ - z) + z + x_i)/2 is missed.
    """
    x = np.empty_like(agent.z)
    x[-1] = last
    for v in range(len(x) - 1, 0, -1):
        x[v - 1] = 2 * (x[v] - missed) - agent.moved[v] - agent.z[v]
    return x


def estimator(every: Mapping[int, Exchanges], N: int, rho: float) -> dict[int, tuple[Matrix, Matrix]]:
    """The paper's estimator (23): x_i and y_i (V, p) of each agent, the least-squares solution of its system A v = b.

    The unknowns are all x_i and y_i; the equations (16), which are (18) with gamma = 1, and sum_i y_i = 0 at the end;
    x_i after an agent's last visit is the token that it sent. For every values that the equations (16) are missed by
    there is one solution, so the least sum of squares is a problem of those alone: with c, a, b of x_i - y_i/rho = c at
    the start, of an equation for x_i and of one for y_i, the sum of the last y_i is s + sum (-rho c - rho a + b), s
    what it is without them. Hence c = a = rho t, b = -t, t = s/(1 + sum of squared coefficients). No iterative solver,
    no tolerance.
    """
    x_last = {i: agent.sent[-1] for i, agent in every.items()}
    s = sum(rho * (x_last[i] - agent.u[-1]) for i, agent in every.items())
    norm = sum(rho**2 * (1 + len(agent.z)) + len(agent.z) for agent in every.values())
    t = s / (1 + norm) if len(every) == N else 0 * s  # an agent that was never visited takes up what the sum lacks
    estimates = {}
    for i, agent in every.items():
        x = backward(agent, x_last[i], rho * t)
        u = rho * t + np.cumsum(agent.moved + rho * t + t / rho, axis=0)
        estimates[i] = x, rho * (x - u)
    return estimates


def model(agent: Exchanges, rho: float, gamma: tuple[float, float], L: float) -> tuple[Matrix, Vector, float] | None:
    """H (p, p), h (p,) of f_i' = H x - h and the residual, from exact updates of least squares; None: too few visits.

    u = x - (H x - h)/rho gives x and y = rho (x - u) from (H, h); (13) between two visits is p equations with one more
    unknown, gamma, which is known to lie in a range. Least squares over (H, h) and the gammas. L >= |H|, public.
    The residual is that of (13), relative to the changes of u.
    """
    from scipy.optimize import least_squares

    p = agent.z.shape[1]
    upper = np.triu_indices(p)
    m = len(upper[0])
    free = gamma[0] < gamma[1]
    enough = 2 + -(-(m + p) // (p - free)) if p > free else len(agent.z) + 1
    visits = max(MODEL_VISITS, enough)
    if p > MODEL_WIDTH or len(agent.z) < visits:
        return None
    u, z = agent.u[:visits], agent.z[:visits]

    def parts(v: Vector) -> tuple[Matrix, Vector, Vector]:
        H = np.zeros((p, p))
        H[upper] = v[:m]
        return H + np.triu(H, 1).T, v[m : m + p], v[m + p :] if free else np.full(visits - 1, gamma[0])

    def missed(v: Vector) -> Vector:
        H, h, gammas = parts(v)
        x = np.linalg.solve(np.eye(p) - H / rho, (u - h / rho).T).T
        residual: Vector = rho * (np.diff(x - u, axis=0) - gammas[:, None] * (z[1:] - x[1:]))
        return residual.ravel()

    drawn = (visits - 1) * free
    first = np.concatenate([np.eye(p)[upper] * L / 4, np.zeros(p), np.full(drawn, sum(gamma) / 2)])
    room = np.concatenate([np.full(m, L), np.full(p, np.inf)])
    bounds = np.concatenate([-room, np.full(drawn, gamma[0])]), np.concatenate([room, np.full(drawn, gamma[1])])
    fit = least_squares(missed, first, bounds=bounds, x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    H, h, _ = parts(fit.x)
    return H, h, float(np.linalg.norm(fit.fun) / (rho * np.linalg.norm(agent.moved[1:visits])))


class Incremental(Attack):
    """Reads x_i, y_i and the gradients off the token; the paper's own estimator beside it."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (iadmm.Params,)
    problem: ClassVar[type] = OnGraph

    def recover(self, transcript: Transcript) -> Recovered:
        p, problem = transcript.algorithm, transcript.problem
        assert isinstance(p, iadmm.Params)
        gamma, low, high = sum(p.gamma or (1.0, 1.0)) / 2, 0.0, 0.0
        if isinstance(p.start, iadmm.Uniform):
            low, high = p.start.uniform
        every = exchanges_of(v for v in transcript.visits((np.zeros(problem.size),)) if not v.idle)
        estimated = estimator(every, len(transcript.nodes), p.rho)
        what: What = "noisy answer" if gated(p) else "gradient"
        recovered = Recovered(states=("x", "y"), notes=self._notes(p))
        for i, node in enumerate(transcript.nodes):
            if i not in every:
                continue
            x, y = forward(every[i], p.rho, gamma, (low + high) / 2)
            before = np.vstack([np.full((1, problem.size), (low + high) / 2), x[:-1]])
            seen = Gradients(x if p.exact else before, y, every[i].when, what)
            recovered.gradients[node] = seen
            lx, ly = estimated[i]
            recovered.arrays |= {f"x_{node}": x, f"y_{node}": y, f"lsqr_x_{node}": lx, f"lsqr_y_{node}": ly}
            if isinstance(problem, DataPlan):
                recovered.rows |= _settled(p, transcript, i, seen)
        if isinstance(problem, DataPlan):
            recovered.add(_models(p, transcript, every))
        return recovered

    def _notes(self, p: iadmm.Params) -> list[str]:
        drawn = isinstance(p.start, iadmm.Uniform) or p.gamma or p.noise_sd
        notes = ["The token's differences tell x_i - y_i/rho, and with it the recursion of x_i: y_i is a gradient."]
        if drawn:
            notes.append(
                "What the nodes have drawn at random is not known at first, and forgotten: an error in x_i shrinks "
                "by 1/(1 + gamma) at each visit. The estimator (23) of the paper runs backwards, where it doubles: "
                "that what it finds diverges is the estimator's doing."
            )
        if p.noise_sd:
            notes.append(f"Gaussian noise of {p.noise_sd:g} on x_i stands, times rho, on each gradient.")
        return notes


def _settled(p: iadmm.Params, transcript: Transcript, i: int, seen: Gradients) -> dict[str, Rows]:
    """The rows behind the gradients that are free of a random start; where gammas are drawn, behind the last
    quarter.
    """
    if p.start == "zeros" and not (p.gamma or p.noise_sd):
        return {}
    visits, first = len(seen.when), 0
    if isinstance(p.start, iadmm.Uniform):
        low, high = p.start.uniform
        distance = (high - low) / 2 * (1 + (p.gamma or (1.0, 1.0))[0]) ** -np.arange(1.0, visits + 1)
        first = int(np.searchsorted(-distance, -FORGOTTEN)) + (not p.exact)
    if p.gamma or p.noise_sd:
        first = max(first, visits - max(visits // 4, 2))
    settled = slice(max(min(first, visits - 1), 0), None)
    late = Gradients(seen.points[settled], seen.g[settled], seen.when[settled], seen.what)
    return {transcript.nodes[i]: rows_of(transcript.problem.declared(i), late)}


def _models(p: iadmm.Params, transcript: Transcript, every: Mapping[int, Exchanges]) -> Recovered:
    """The whole functions of nodes with least squares and exact updates: `H_<node>`, `h_<node>`, f_i' = H x - h."""
    problem = transcript.problem
    if problem.objective.kind != "least-squares" or problem.objective.lam or not p.exact or gated(p) or p.noise_sd:
        return Recovered()
    recovered, worst = Recovered(), 0.0
    for i, node in enumerate(transcript.nodes[:MODELS]):
        if i in every and (fit := model(every[i], p.rho, p.gamma or (1.0, 1.0), problem.L[i])) is not None:
            H, h, residual = fit
            recovered.arrays |= {f"H_{node}": H, f"h_{node}": h}
            worst = max(worst, residual)
    if count := len(recovered.arrays) // 2:
        recovered.notes.append(
            f"The whole function of {count} nodes follows from their first visits, f_i' = H x - h, whatever the gammas "
            f"were: (13) is missed by {worst:.1g} of what the token moved at most."
        )
    return recovered
