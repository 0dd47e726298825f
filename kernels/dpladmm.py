"""Z. Huang, R. Hu, Y. Guo, E. Chan-Tin, Y. Gong, DP-ADMM: ADMM-based distributed learning with differential privacy (2019):
linearised ADMM with noise (reference [23] of the recycled ADMM paper).

Reconstructed from the published description. The paper has a server that averages; here are neighbours, as everywhere
beside it: (8) with the loss replaced by its linearisation at f_i and |f - f_i|^2/(2 s_k), s_k a step that falls,

    f_i(k) = argmin <g_i + v, f> + eta V_i |f|^2 + |f - f_i|^2/(2 s_k),   then (9),

v the linear term of (8), g_i the gradient of O(., D_i) at f_i. `guarded`: g_i is the gate's noisy gradient. The paper adds
its Gaussian noise to f_i(k), which is the same up to the public factor 1/(2 eta V_i + 1/s_k).
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar, Literal

from hushgrid.kernels import radmm
from hushgrid.kernels.jit import Vector, kernel
from hushgrid.kernels.ladmm import Positive


class Params(
    radmm.Conventional, tag_field="name", tag="dpladmm", forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """The scenario's `algorithm` section: ADMM's keys, and the step."""

    name: ClassVar[str] = "dpladmm"
    step: Positive
    schedule: Literal["1/sqrt(k)", "constant"] = "1/sqrt(k)"  #: s_k = step/sqrt(k), or step

    def step_k(self, k: int) -> float:
        return self.step / sqrt(k) if self.schedule == "1/sqrt(k)" else self.step


@kernel
def linearised(f: Vector, g: Vector, v: Vector, quadratic: float, s: float) -> Vector:
    """argmin_x <g + v, x> + quadratic/2 |x|^2 + |x - f|^2/(2 s). Shape (d,)."""
    return (f - s * (g + v)) / (1.0 + s * quadratic)


class Agent(radmm.Agent):
    params: Params

    def answer(self, v: Vector, k: int, f: Vector) -> Vector:
        ask = self.gate.exact_gradient if self.params.variant == "none" else self.gate.gradient
        return linearised(f, ask(f), v, self.quadratic(k), self.params.step_k(k))
