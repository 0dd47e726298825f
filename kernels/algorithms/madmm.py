"""X. Zhang, M. M. Khalili, M. Liu, Improving the privacy and accuracy of ADMM-based distributed algorithms (ICML 2018):
M-ADMM, penalty perturbation (reference [22] of the recycled ADMM paper), the baseline of its Figure 5.

Reconstructed from its abstract and its description there. Problem and messages are those of ADMM. Each node has a
penalty eta_i(t) of its own, which grows; the dual step is another number, theta, the same for all:

    f_i(t+1)      = argmin O(f, D_i) + <2 lambda_i + eps_i, f> + eta_i(t+1) sum_j |(f_i + f_j)/2 - f|^2
    lambda_i(t+1) = lambda_i + theta/2 sum_j (f_i(t+1) - f_j(t+1))

One theta keeps sum_i lambda_i = 0, so node penalties have the right limit here. The paper writes eps_i inside the
square, which scales it by 2 eta_i V_i: its law, not its price, is that of the gate's private minimiser, which `guarded`
asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from hushgrid.kernels.algorithms import radmm
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.ranges import FAR_DUAL, Step
from hushgrid.kernels.types import Vector


class Params(radmm.Conventional, tag_field="name", tag="madmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section: ADMM's keys, and theta, at most the smallest eta_i(1)."""

    title: ClassVar[str] = "penalty-perturbed M-ADMM"
    paper: ClassVar[str] = (
        "X. Zhang, M. M. Khalili, M. Liu, Improving the privacy and accuracy of ADMM-based distributed algorithms "
        "(2018)"
    )
    perturbed_dual: ClassVar[bool] = True  # one theta keeps sum_i lambda_i = 0, whatever the penalties
    max_step_ratio: ClassVar[float] = FAR_DUAL
    theta: Step  #: the dual step
    penalties: Literal["edge", "node"] | None = "node"  #: whose penalties the sums take

    def step_ratio(self, L: Sequence[float], degree: int) -> float | None:
        """theta over the smallest eta_i(1): the dual step of ADMM is the penalty itself, whatever the data."""
        return self.theta / min(self.eta_i(i, 1) for i in range(len(L)))

    def agent(self, context: NodeContext) -> Agent:
        return Agent(self, context.gate, context.size, context.name, context.neighbours, report=context.report)


class Agent(radmm.Agent):
    params: Params

    def dual_step(self, k: int) -> Vector:
        return np.full(len(self.neighbours), self.params.theta)
