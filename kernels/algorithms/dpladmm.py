"""Z. Huang, R. Hu, Y. Guo, E. Chan-Tin, Y. Gong, DP-ADMM: ADMM-based distributed learning with differential privacy
(2019): linearised ADMM with noise (reference [23] of the recycled ADMM paper).

Reconstructed from the published description. The paper has a server that averages; here are neighbours, as everywhere
beside it: (8) with the loss replaced by its linearisation at f_i and |f - f_i|^2/(2 s_k), s_k a step that falls,

    f_i(k) = argmin <g_i + v, f> + r(f) + eta V_i |f|^2 + |f - f_i|^2/(2 s_k),   then (9),

v the linear term of (8), g_i the gradient of O(., D_i) at f_i, r the public regulariser. With a constant step it is the
inexact consensus ADMM of T.-H. Chang, M. Hong, X. Wang (2015), in which the RECAL paper roots Zhang and Zhu's.
`guarded`: g_i is the gate's noisy gradient. The paper adds its Gaussian noise to f_i(k), which is the same up to the
public factor 1/(2 eta V_i + 1/s_k).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import ClassVar, Literal

from hushgrid.kernels.algorithms import radmm
from hushgrid.kernels.algorithms.base import Constrained, Question
from hushgrid.kernels.jit import kernel
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.ranges import Step
from hushgrid.kernels.types import Vector


class Params(radmm.Conventional, tag_field="name", tag="dpladmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section: ADMM's keys, and the step."""

    title: ClassVar[str] = "linearised DP-ADMM"
    paper: ClassVar[str] = (
        "Z. Huang, R. Hu, Y. Guo, E. Chan-Tin, Y. Gong, DP-ADMM: ADMM-based distributed learning with differential "
        "privacy (2019)"
    )
    constrained: ClassVar[Constrained] = "all"
    step: Step  #: the gradient's step
    schedule: Literal["1/sqrt(k)", "constant"] = "1/sqrt(k)"  #: s_k = step/sqrt(k), or step

    def step_k(self, k: int) -> float:
        return self.step / sqrt(k) if self.schedule == "1/sqrt(k)" else self.step

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """s L/(2 (1 + 2 s eta)), eta the smallest eta_i(1), s of the last answer, where s_k falls.

        Where the nodes agree, v = -2 eta V_i f and the step is one of s/(1 + 2 s eta V_i) along the gradient, V_i >= 1.
        """
        s = self.step_k(self.answers)
        return max(L) * s / (2 * (1 + 2 * s * min(self.eta_i(i, 1) for i in range(len(L)))))

    def asks(self, mode: str = "") -> Question:
        return "gradient"

    def noise_gain(
        self, i: int, answers: int, L: float, neighbours: Sequence[int], epsilon: float = inf, alpha: float = 0.0
    ) -> float:
        def tau(k: int) -> float:
            return self.step_k(k) / (1 + self.step_k(k) * self.curvature(i, k, neighbours))

        return sum(tau(k) ** 2 for k in range(1, answers + 1))

    def agent(self, context: NodeContext) -> Agent:
        agent = Agent(self, context.gate, context.size, context.name, context.neighbours, report=context.report)
        agent.regularizer = context.regularizer
        return agent


@kernel
def linearised(f: Vector, g: Vector, v: Vector, quadratic: float, s: float) -> Vector:
    """argmin_x <g + v, x> + quadratic/2 |x|^2 + |x - f|^2/(2 s). Shape (d,)."""
    return (f - s * (g + v)) / (1.0 + s * quadratic)


class Agent(radmm.Agent):
    params: Params
    regularizer = Regularizer()  #: r

    def answer(self, v: Vector, k: int, f: Vector) -> Vector:
        ask = self.gate.exact_gradient if self.params.variant == "none" else self.gate.gradient
        quadratic, s = self.quadratic(k), self.params.step_k(k)
        return self.regularizer.prox(linearised(f, ask(f), v, quadratic, s), s / (1.0 + s * quadratic))
