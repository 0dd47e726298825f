"""DPP2 (docs/papers/dpp2.md, finding 4.1): eta hides nothing, the gradients are on the wire but for noise that decays.

Of the messages y and z of a round, with eta: x + w = y - (1 - eta) d by (16), f'(x) + e = z - eta q - rho P y by (17),
and d, q by (19). A secret eta is no better: by (18) x+ = x + w - G z but for alpha e, so that the next round's

    y+ - (x + w - G z) = (1 - eta+) d+  but for noise

is one unknown number in as many equations as all nodes have coordinates. Round 0 is no function of eta: d = q = 0
there. So `secret` has eta to rounding where no noise is published, and to the size of the first rounds' noise where it
is. Here eta is a constant of the plan, which travels too: `eta` is that number, `eta_unaided` what y and z tell without
it. Where nothing is published (`guarded`, `none`) y is x itself, and z - q - rho P x the gate's answer.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hushgrid.kernels.algorithms import dpp2
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.kernels.algorithms.dpp2 import merged
from hushgrid.kernels.types import Matrix, Tensor, Vector
from hushgrid.lab.attacks.base import Attack, Recovered
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import Gradients, What
from hushgrid.lab.inversion.rows import rows_of
from hushgrid.node.problems.on_graph import OnGraph
from hushgrid.node.problems.records.section import DataPlan


def secret(y: Tensor, z: Tensor, G: Matrix) -> Vector:
    """(K,) eta of every round, from messages y and z (K, N, d) alone; NaN where no message depends on it."""
    eta, d = np.full(len(y), np.nan), np.zeros_like(y[0])
    x = y[0]  # x + w of the round before, less G z: x of this one but for noise
    for k in range(len(y)):
        if size := float(np.sum(d * d)):
            eta[k] = 1.0 - float(np.sum((y[k] - x) * d)) / size
        known = eta[k] if np.isfinite(eta[k]) else 0.0  # of d = 0 it keeps nothing
        x = y[k] - (1.0 - known) * d - G @ z[k]
        d = known * d + y[k]
    return eta


def untied(y: Tensor, z: Tensor, eta: Vector, rho: float, P: Matrix) -> tuple[Tensor, Tensor]:
    """(x + w, f'(x) + e) of every round and node, (K, N, d) each, from the messages and eta (K,)."""
    x, g = np.empty_like(y), np.empty_like(z)
    d = q = np.zeros_like(y[0])
    for k in range(len(y)):
        hidden, q_new = merged(np.zeros_like(q), q, P @ y[k], float(eta[k]), rho)  # z - e without the gradient
        x[k], g[k] = y[k] - (1.0 - eta[k]) * d, z[k] - hidden
        d, q = eta[k] * d + y[k], q_new
    return x, g


def _late(p: dpp2.Params, seen: Gradients) -> Gradients:
    """The last gradients, whose noise is at most twice that of the last one."""
    noise = np.array([max(p.theta(k)) for k in range(len(seen.when))])
    quiet = noise <= 2 * noise[-1]
    return Gradients(seen.points[quiet], seen.g[quiet], seen.when[quiet], seen.what)


class Untied(Attack):
    """Takes the first tier off, whose eta the plan tells all nodes; and finds that eta without the plan."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (dpp2.Params,)
    problem: ClassVar[type] = OnGraph

    def recover(self, transcript: Transcript) -> Recovered:
        p, problem = transcript.plan.running, transcript.problem
        assert isinstance(p, dpp2.Params)
        shares = transcript.shares(2 * p.rounds, problem.size)
        K = len(shares) // 2
        if not K:
            return Recovered()
        y, z = shares[0 : 2 * K : 2], shares[1 : 2 * K : 2]
        P = np.eye(len(transcript.nodes)) - problem.graph.metropolis()
        eta = np.array([p.eta_k(k) for k in range(K)])
        x, g = untied(y, z, eta, p.rho, P)
        what: What = "noisy answer" if gated(p) else "gradient"
        recovered = Recovered(states=("x",))
        for i, node in enumerate(transcript.nodes):
            seen = recovered.gradients[node] = Gradients(x[:, i], g[:, i], np.arange(1, K + 1), what)
            if p.variant == "published" and isinstance(problem, DataPlan):
                recovered.rows[node] = rows_of(problem.declared(i), _late(p, seen))
        if p.variant != "published":
            recovered.notes.append("The first message of a round is x, the second tells the answer at it.")
            return recovered
        recovered.states = ("x", "eta")
        unaided = secret(y, z, p.alpha * np.eye(len(P)) - p.beta * P)
        recovered.arrays |= {"eta": eta, "eta_unaided": unaided}
        w, e = p.theta(K - 1)
        off = np.abs(unaided - eta)[np.isfinite(unaided)]
        recovered.notes.append(
            "Every node knows eta, which travels with the plan; with it the messages tell x + w and f'(x) + e of all "
            "nodes. "
            + (f"Without the plan they tell eta to {np.median(off):.1g}. " if len(off) else "")
            + f"What protects a gradient is the noise, and it decays: to a scale of {e:.2g} (on x {w:.2g}) in the "
            "last round."
        )
        return recovered
