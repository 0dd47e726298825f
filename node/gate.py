"""The privacy gate: all of a node's private data sit behind it, and it alone knows what has been answered.

An algorithm asks, the gate answers with noise and notes one `Spend`; after the gate everything is post-processing. An
answer is refused before it is drawn where the node's budget, its owner's consent or the plan's cap would be passed.
Noise in production comes from the exact samplers and the operating system's entropy, drawn ahead into a pool, since
the time a sampler takes tells about the noise. Here is what all gates have in common; what a gate answers depends on
its data: `zone_gate` the loads of a zone, `rows_gate` rows of records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.ladmm import Vector
from hushgrid.kernels.noise import Lattice, counter_generator, simulated
from hushgrid.node.plan import Terms
from hushgrid.node.records import Spend

Steps = np.ndarray[Any, np.dtype[np.int64]]  #: noise, in grid steps

POOL = 32  #: answers the noise is drawn ahead for
PAPER_SAMPLER = "numpy (simulation)"  #: of the published variants: floating point, numpy's own generator


class Authority(Protocol):
    """Who decides: `authorise` raises Refused where these spends, not yet committed, would pass what is allowed."""

    def authorise(self, spends: list[Spend]) -> None: ...
    def committed(self, spends: list[Spend]) -> None: ...


class Entropy:
    """Production noise: the operating system's entropy, drawn ahead for the next answers."""

    sampler = "exact, operating-system entropy"
    source = "entropy"  #: part of what an answer is kept under: an answer of known noise is never repeated as private

    def __init__(self) -> None:
        self._drawn: list[Steps] = []

    def take(self, lattice: Lattice, size: int, answer: int) -> Steps:
        if not self._drawn:
            self.refill(lattice, size, 1)
        return self._drawn.pop()

    def refill(self, lattice: Lattice, size: int, answers: int) -> None:
        """Draw for the coming answers; called when nothing waits for it."""
        if len(self._drawn) <= answers // 2:
            self._drawn.extend(lattice.sample(answers * size).reshape(answers, size))


class Seeded:
    """Simulation: the same samplers fed by a counter generator keyed by (seed, node, answer). Not private."""

    sampler = "exact, seeded (simulation: not private)"

    def __init__(self, seed: int, node: str) -> None:
        self.seed, self.node = seed, node
        self.source = f"seed {seed}"

    def generator(self, answer: int) -> np.random.Generator:
        return counter_generator(self.seed, self.node, answer)

    def take(self, lattice: Lattice, size: int, answer: int) -> Steps:
        return lattice.sample(size, entropy=self.generator(answer).bytes)

    def refill(self, lattice: Lattice, size: int, answers: int) -> None:
        """Nothing is drawn ahead: the counter generator gives each answer its own noise."""


@dataclass
class GateState:
    answers: int = 0  #: answers of this run
    drawn: int = 0  #: a paper's noises of a scale of its own (published)
    total: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: sum of the noisy copies of d (mode objective)
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: the one noisy d (mode input)


class Gate:
    """One run's gate: `lattice` (None: no noise of ours) and `width`, the coordinates of an answer that carry it.

    `spends` and `repeat` are what the driver commits with the step.
    """

    def __init__(
        self, node: str, terms: Terms | None, noise: Entropy | Seeded, authority: Authority,
        lattice: Lattice | None, width: int,
    ) -> None:  # fmt: skip
        self.node, self.terms, self.noise, self.authority = node, terms, noise, authority
        self.lattice, self.width = lattice, width
        self.state = GateState()
        self.spends: list[Spend] = []
        self.repeat: list[tuple[bytes, bytes]] = []
        self.drawn_l1 = 0.0  #: sum of |noise| since the last reading: for simulation's reports, never sent or stored

    # --- what the driver asks ---

    def knows(self) -> bool:
        """Whether the run will only repeat an answer already given."""
        return False

    def refill(self) -> None:
        """Draw noise for the next answers; called after the last publish."""
        if self.lattice is not None and (left := self._terms().answers - self.state.answers):
            self.noise.refill(self.lattice, self.width, min(POOL, left))

    def committed(self) -> None:
        """What the last step noted is in the ledger."""
        self.authority.committed(self.spends)
        self.spends, self.repeat = [], []

    def restore(self, state: GateState) -> None:
        """Back to a stored state: what was answered since is forgotten, and was never released."""
        self.state, self.spends, self.repeat = state, [], []

    # --- inside ---

    def _terms(self) -> Terms:
        if self.terms is None:
            raise Refused(f"{self.node}: a noisy answer was asked for in a run without privacy")
        return self.terms

    def _noise_lattice(self) -> Lattice:
        if self.lattice is None:
            raise Refused(f"{self.node}: a guarded answer was asked for in a published run")
        return self.lattice

    def _spend(self, spend: Spend) -> None:
        cap = self.terms.answers if self.terms else None
        if cap is not None and self.state.answers >= cap:
            raise Refused(f"{self.node}: {self.state.answers} answers given, one more asked, the plan's cap is {cap}")
        self.authority.authorise([*self.spends, spend])
        self.spends.append(spend)
        self.state.answers += 1

    def _nonprivate(self) -> None:
        """One answer without noise: epsilon = infinity, under every adjacency."""
        self._spend(Spend(self.state.answers + 1, "nonprivate", inf, inf, 0.0, 0.0, "", "none"))

    def _release(self, value: Vector) -> Vector:
        """The value on the grid plus exact noise: one answer."""
        t, lattice = self._terms(), self._noise_lattice()
        spent = lattice.epsilon if t.mechanism == "laplace" else lattice.mu
        self._spend(
            Spend(self.state.answers + 1, t.mechanism, spent, lattice.sensitivity, lattice.scale, lattice.g, t.adjacency,
                  self.noise.sampler)
        )  # fmt: skip
        n = self.noise.take(lattice, value.size, self.state.answers)
        self.drawn_l1 += float(np.sum(np.abs(n))) * lattice.g
        return lattice.release(value, n)

    def _paper_noise(self, scale: float, size: int) -> Vector:
        """The current answer's noise as a paper has it: Laplace's or the Gaussian's of this scale, in floating point."""
        of = self.noise
        generator = of.generator(self.state.answers) if isinstance(of, Seeded) else np.random.default_rng()
        xi = simulated(self._terms().mechanism, scale, size, generator)
        self.drawn_l1 += float(np.sum(np.abs(xi)))
        return xi
