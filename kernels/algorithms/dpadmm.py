"""T. Zhang, Q. Zhu, Dynamic differential privacy for ADMM-based distributed classification learning (2017): dual and
primal variable perturbation (reference [21] of the recycled ADMM paper).

Problem and messages are those of ADMM (8)-(9). Reconstructed from the published description, with the gate's noise:

 - dual: noise is added to the dual variable before the minimiser is computed, <2 (lambda_i + mu_i), f> in (8): this is
   objective perturbation. It is the paper's price of one iteration of one node; the gate's is that of the whole run.
 - primal: noise is added to the minimiser before it is sent. A node goes on from what it has sent, not from what it
   knows.

Without noise both are ADMM.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from hushgrid.kernels.algorithms import iadmm, radmm
from hushgrid.kernels.algorithms.base import Published
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import Vector


class Params(radmm.Conventional, tag_field="name", tag="dpadmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section: ADMM's keys, and what is perturbed."""

    title: ClassVar[str] = "DP-ADMM (variable perturbation)"
    paper: ClassVar[str] = (
        "T. Zhang, Q. Zhu, Dynamic differential privacy for ADMM-based distributed classification learning (2017)"
    )
    published: ClassVar[Published | None] = Published("gate")

    #: where the published noise stands: dual (objective perturbation) or primal (output perturbation)
    perturb: Literal["dual", "primal"] = "dual"

    def by_output(self, mechanism: str) -> bool:
        return self.perturb == "primal"

    def agent(self, context: NodeContext) -> Agent:
        return Agent(self, context.gate, context.size, context.name, context.neighbours, report=context.report)


class Oracle(iadmm.Oracle, Protocol):
    """What a node may ask of its gate: the minimiser by output perturbation too."""

    def output_minimizer(self, linear: Vector, quadratic: float) -> Vector: ...


class Agent(radmm.Agent):
    params: Params
    gate: Oracle

    def answer(self, v: Vector, k: int, f: Vector) -> Vector:
        if self.params.variant == "none" or self.params.perturb == "dual":
            return super().answer(v, k, f)
        return self.gate.output_minimizer(v, self.quadratic(k))
