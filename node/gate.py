"""The privacy gate: all of a node's private data sit behind it, and it alone knows what has been answered.

An algorithm asks, the gate answers with noise and notes one `Spend`; after the gate everything is post-processing. An
answer is refused before it is drawn where the node's budget, its owner's consent or the plan's cap would be passed.
Noise in production comes from the exact samplers and the operating system's entropy, drawn ahead into a pool, since
the time a sampler takes tells about the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np

from hushgrid.kernels import accounting
from hushgrid.kernels.errors import Refused
from hushgrid.kernels.ladmm import Vector
from hushgrid.kernels.noise import EXACT, Lattice, counter_generator, simulated
from hushgrid.node.plan import Terms
from hushgrid.node.records import Spend

Steps = np.ndarray[Any, np.dtype[np.int64]]  #: noise, in grid steps

#: Gradients are clipped at this many p.u. a coordinate before noise is added to them (`at: gradient`), so that their
#: rounding error is bounded; no power flow comes near it, and clipping never raises a sensitivity.
GRADIENT_BOUND = 1e4
POOL = 32  #: answers the noise is drawn ahead for
LOAD_BOUND = 1e4  #: p.u.; a load beyond it is no load, and is refused when it is read
PAPER_SAMPLER = "numpy (simulation)"  #: of the published variants: floating point, numpy's own generator
ROUNDING = 1e-9  #: p.u., above 2 x 64 terms x 2^-53 x GRADIENT_BOUND: the sensitivity of what the machine computes


class Loss(Protocol):
    """f_p(z) = |A z + d|^2: d private, A public."""

    row_l1: float  #: max_i |a_i|_1
    row_l2: float  #: max_i |a_i|_2
    row_nnz: int  #: most entries of a row
    columns: int  #: entries of z

    @property
    def data(self) -> Vector: ...
    def gradient(self, z: Vector, d: Vector) -> Vector: ...


class Authority(Protocol):
    """Who decides: `authorise` raises Refused where these spends, not yet committed, would pass what is allowed."""

    def authorise(self, spends: list[Spend]) -> None: ...
    def committed(self, spends: list[Spend]) -> None: ...


class Memory(Protocol):
    """Answers that are to be repeated. `key` names a data set and a way of answering, and tells nobody else which."""

    def key(self, answer: str, data: Vector) -> bytes: ...
    def find(self, key: bytes) -> bytes | None: ...


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


def lattice_of(node: str, loss: Loss, t: Terms | None) -> Lattice | None:
    """The grid and noise of a node's answers, from public numbers alone; None where no noise of ours is added."""
    if t is None or t.published:
        return None
    sensitivity, moved = t.beta, 1
    if t.at == "gradient":
        norm = loss.row_l1 if t.mechanism == "laplace" else loss.row_l2
        moved = loss.row_nnz
        sensitivity = 2 * t.beta * norm + ROUNDING * moved
    fit = Lattice.laplace if t.mechanism == "laplace" else Lattice.gaussian
    fitted = fit(t.per_answer, sensitivity, moved)
    # Decided here, before there is an answer: at the release it would tell about the data.
    if max(LOAD_BOUND, GRADIENT_BOUND) / fitted.g > EXACT / 2:
        raise Refused(f"{node}: a grid of {fitted.g:g} p.u. is too fine to release on, expected more noise")
    return fitted


def width(loss: Loss, t: Terms) -> int:
    """Coordinates of one answer that carry noise."""
    return loss.columns if t.at == "gradient" else loss.data.size


def paper_scale(t: Terms, sensitivity: float) -> float:
    """The scale the paper gives its noise at this sensitivity."""
    return accounting.per_answer_paper(t.mechanism, t.paper_epsilon, t.paper_delta, sensitivity)


def expected_l1(node: str, loss: Loss, t: Terms) -> float:
    """Expected sum of |noise| of one answer, p.u.; of `loss` only what is public."""
    own = lattice_of(node, loss, t)
    if own is not None:
        return own.expected_l1 * width(loss, t)
    scale = paper_scale(t, t.beta if t.mode.startswith("output") else 2 * t.beta)
    return scale * loss.columns * (1.0 if t.mechanism == "laplace" else (2 / np.pi) ** 0.5)


@dataclass
class GateState:
    answers: int = 0  #: answers of this run
    total: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: sum of the noisy copies of d (mode objective)
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: the one noisy d (mode input)


class Gate:
    """One run's gate.

    `spends` and `repeat` are what the driver commits with the step; `memory` finds an earlier answer on this data set.
    """

    def __init__(
        self, node: str, loss: Loss, terms: Terms | None, noise: Entropy | Seeded,
        authority: Authority, memory: Memory,
    ) -> None:  # fmt: skip
        self.node, self.loss, self.terms, self.noise = node, loss, terms, noise
        self.authority, self.memory = authority, memory
        self.state = GateState()
        self.spends: list[Spend] = []
        self.repeat: list[tuple[bytes, bytes]] = []
        self.drawn_l1 = 0.0  #: sum of |noise| since the last reading: for simulation's reports, never sent or stored
        self.lattice = lattice_of(node, loss, terms)

    # --- what an algorithm may ask ---

    def gradient(self, x: Vector) -> Vector:
        """f'(x) plus noise: one answer (mode input: the first call only)."""
        t = self._terms()
        if t.published:
            self._spend(self._published_spend(2 * t.beta, honest=True))
            return self.loss.gradient(x, self.loss.data) + self._paper_noise(x.size, 2 * t.beta)
        if t.mode == "input":
            return self.loss.gradient(x, self.data())
        if t.at == "gradient":
            exact = np.clip(self.loss.gradient(x, self.loss.data), -GRADIENT_BOUND, GRADIENT_BOUND)
            return self._release(exact)
        total = self._release(self.loss.data)
        if self.state.answers > 1:
            total = self.state.total + total
        self.state.total = total
        return self.loss.gradient(x, total / self.state.answers)  # the running mean of its own noisy copies is free

    def data(self) -> Vector:
        """The data plus noise: once per data set and plan, repeated for that set."""
        if not self.state.kept.size:
            key = self._key(self._noise_lattice())
            known = self.memory.find(key)
            if known is None:
                known = self._release(self.loss.data).tobytes()
                self.repeat.append((key, known))
            self.state.kept = np.frombuffer(known)
        return self.state.kept

    def exact_gradient(self, x: Vector) -> Vector:
        """f'(x) without noise. A node with a finite budget refuses it; under (3.4) `perturb` pays instead."""
        if self.terms is None:
            self._spend(Spend(self.state.answers + 1, "nonprivate", inf, inf, 0.0, 0.0, "", "none"))
        elif not (self.terms.published and self.terms.mode.startswith("output")):
            raise Refused(f"{self.node}: an exact gradient was asked for in a private run")
        return self.loss.gradient(x, self.loss.data)

    def perturb(self, x: Vector) -> Vector:
        """(3.4): x plus the paper's noise. The baseline, in simulation only."""
        beta = self._terms().beta
        self._spend(self._published_spend(beta, honest=False))
        return x + self._paper_noise(x.size, beta)

    # --- what the driver asks ---

    def knows(self) -> bool:
        """Whether the run will only repeat an answer already given (mode input, the same data and plan)."""
        if self.lattice is None or self._terms().mode != "input":
            return False
        return self.memory.find(self._key(self.lattice)) is not None

    def refill(self) -> None:
        """Draw noise for the next answers; called after the last publish."""
        if self.lattice is not None and not self.state.kept.size:
            self.noise.refill(
                self.lattice, width(self.loss, self._terms()), 1 if self._terms().mode == "input" else POOL
            )

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

    def _key(self, lattice: Lattice) -> bytes:
        return self.memory.key(f"{lattice!r} {self.noise.source}", self.loss.data)

    def _spend(self, spend: Spend) -> None:
        cap = self.terms.answers if self.terms else None
        if cap is not None and self.state.answers >= cap:
            raise Refused(f"{self.node}: {self.state.answers} answers given, one more asked, the plan's cap is {cap}")
        self.authority.authorise([*self.spends, spend])
        self.spends.append(spend)
        self.state.answers += 1

    def _release(self, value: Vector) -> Vector:
        t, lattice = self._terms(), self._noise_lattice()
        spent = lattice.epsilon if t.mechanism == "laplace" else lattice.mu
        self._spend(
            Spend(self.state.answers + 1, t.mechanism, spent, lattice.sensitivity, lattice.scale, lattice.g, t.adjacency,
                  self.noise.sampler)
        )  # fmt: skip
        n = self.noise.take(lattice, value.size, self.state.answers)
        self.drawn_l1 += float(np.sum(np.abs(n))) * lattice.g
        return lattice.release(value, n)

    def _paper_noise(self, size: int, sensitivity: float) -> Vector:
        t = self._terms()
        if isinstance(self.noise, Seeded):
            generator = self.noise.generator(self.state.answers)
        else:
            generator = np.random.default_rng()
        xi: Any = simulated(t.mechanism, paper_scale(t, sensitivity), size, generator)
        self.drawn_l1 += float(np.sum(np.abs(xi)))
        return np.asarray(xi, dtype=np.float64)

    def _published_spend(self, sensitivity: float, *, honest: bool) -> Spend:
        """What the paper's noise really costs where that can be said: at 2 beta |a_i|; infinite for (3.4)."""
        t = self._terms()
        scale = paper_scale(t, sensitivity)
        norm = self.loss.row_l1 if t.mechanism == "laplace" else self.loss.row_l2
        true = sensitivity * norm
        value = true / scale if honest else inf
        kind = t.mechanism if honest else "nonprivate"
        return Spend(self.state.answers + 1, kind, value, true, scale, 0.0, t.adjacency, PAPER_SAMPLER)
