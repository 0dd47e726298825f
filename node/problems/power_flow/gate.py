"""The gate of a zone: f(z) = |A z + d|^2, the loads d = (p_d, q_d), p.u., private (docs/papers/power-flow.md).

Mode objective: every answer is the gradient at the running mean of its own noisy copies of d (`at: gradient`: the noise
stands on the gradient). Mode input: d plus noise, once per data version and question, then repeated: equality of two
data sets is itself a secret, so that a repeat is never decided by what the data are. The published
output perturbation (3.4) is the baseline, in simulation only.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.privacy.noise import EXACT, Lattice
from hushgrid.kernels.types import Index, Vector
from hushgrid.node.privacy.gate import Authority, Gate
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.noise_source import PAPER_SAMPLER, NoiseSource
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.power_flow.question import LOAD_BOUND, LoadQuestion, Loads

#: Gradients are clipped at this many p.u. a coordinate before noise is added to them (`at: gradient`), so that their
#: rounding error is bounded; no power flow comes near it, and clipping never raises a sensitivity.
GRADIENT_BOUND = 1e4
ROUNDING = 1e-9  #: p.u., above 2 x 64 terms x 2^-53 x GRADIENT_BOUND: the sensitivity of what the machine computes


class Loss(Loads, Protocol):
    """f_p(z) = |A z + d|^2: d private, A public."""

    row_l1: float  #: max_i |a_i|_1
    row_l2: float  #: max_i |a_i|_2
    row_nnz: int  #: most entries of a row
    columns: int  #: entries of z

    @property
    def data(self) -> Vector: ...
    def of_now(self, counted: NDArray[np.bool_]) -> Vector:
        """d with the public load in place of each entry that is not `counted` (2 nb,)."""
        ...

    def gradient(self, z: Vector, d: Vector) -> Vector: ...


class Memory(Protocol):
    """Answers that are to be repeated. `key` names a question, asked of the data version that the device declares."""

    def key(self, question: str) -> bytes: ...
    def find(self, key: bytes) -> bytes | None: ...


def lattice_of(node: str, loss: Loss, t: Terms | None, days: int = 1) -> Lattice | None:
    """The grid and noise of a node's answers, from public numbers alone; None where no noise of ours is added.

    `days`: of how many its loads are the mean.
    """
    if t is None or t.published:
        return None
    largest = max(LOAD_BOUND, GRADIENT_BOUND)
    if t.at == "gradient":
        norm = loss.row_l1 if t.mechanism == "laplace" else loss.row_l2
        moved = loss.row_nnz
        sensitivity = 2 * t.beta * norm + ROUNDING * moved
    else:
        question = LoadQuestion(loss, t, days)
        (sensitivity, moved), largest = question.sensitivity, max(question.largest, largest)
    fit = Lattice.laplace if t.mechanism == "laplace" else Lattice.gaussian
    fitted = fit(t.per_answer, sensitivity, moved)
    # Decided here, before there is an answer: at the release it would tell about the data.
    if largest / fitted.g > EXACT / 2:
        raise Refused(f"{node}: a grid of {fitted.g:g} p.u. is too fine to release on, expected more noise")
    return fitted


def width(loss: Loss, t: Terms | None) -> int:
    """Coordinates of one answer that carry noise."""
    return loss.columns if t is None or t.at == "gradient" else LoadQuestion(loss, t).width


def paper_scale(t: Terms, sensitivity: float) -> float:
    """The scale the paper gives its noise at this sensitivity."""
    return accounting.per_answer_paper(t.mechanism, t.paper_epsilon, t.paper_delta, sensitivity)


def expected_l1(node: str, loss: Loss, t: Terms) -> float:
    """Expected sum of |noise| of one answer, p.u.; of `loss` only what is public."""
    lattice = lattice_of(node, loss, t)
    if lattice is not None:
        return lattice.expected_l1 * loss.columns if t.at == "gradient" else LoadQuestion(loss, t).expected_l1(lattice)
    scale = paper_scale(t, t.beta if t.mode.startswith("output") else 2 * t.beta)
    return scale * loss.columns * (1.0 if t.mechanism == "laplace" else (2 / np.pi) ** 0.5)


def sum_error(node: str, loss: Loss, t: Terms) -> float | None:
    """Standard deviation of the sum of a zone's active loads in mode input, p.u.; of `loss` only what is public."""
    lattice = lattice_of(node, loss, t)
    return None if lattice is None or t.mode != "input" else LoadQuestion(loss, t).sum_error(lattice)


class ZoneGate(Gate):
    """One run's gate of a zone; `memory` finds an earlier answer of this data version."""

    def __init__(
        self,
        node: str,
        loss: Loss,
        terms: Terms | None,
        noise: NoiseSource,
        authority: Authority,
        memory: Memory,
        days: int = 1,
    ) -> None:
        """`days`: of how many the loads are the mean."""
        super().__init__(node, terms, noise, authority, lattice_of(node, loss, terms, days), width(loss, terms))
        self.loss, self.memory = loss, memory
        self.passed = 0  #: entries of the data, from the first on, that a run has no use for: of periods that are over
        self.question = LoadQuestion(loss, terms) if terms else None

    # --- what an algorithm may ask ---

    def gradient(self, x: Vector) -> Vector:
        """f'(x) plus noise: one answer (mode input: the first call only)."""
        self._expect_snapshot()
        t = self._terms()
        if t.published:
            self._spend(self._published_spend(2 * t.beta, honest=True))
            return self.loss.gradient(x, self.loss.data) + self._paper_noise(paper_scale(t, 2 * t.beta), x.size)
        if t.mode == "input":
            return self.loss.gradient(x, self.data())
        if t.at == "gradient":
            return self._release(
                x.tobytes(), lambda: np.clip(self.loss.gradient(x, self._loads()), -GRADIENT_BOUND, GRADIENT_BOUND)
            )
        total = self._noisy_data()
        if self.state.answers > 1:
            total = self.state.total + total
        self.state.total = total
        return self.loss.gradient(x, total / self.state.answers)  # the running mean of its own noisy copies is free

    def data(self) -> Vector:
        """The data plus noise: once per data version and question, repeated for that version, whatever the data are.

        Without privacy: the data. A node with a finite budget refuses that.
        """
        if self.terms is None:
            if not self.state.answers:
                self._nonprivate()
            return self.loss.data[self.passed :]
        if not self.state.kept.size:
            key = self._key(self._noise_lattice())
            known = self.memory.find(key)
            if known is None:
                known = self._noisy_data().tobytes()
                self.repeat.append((key, known))
            self.state.kept = np.frombuffer(known)
        return self.state.kept[self.passed :]

    def exact_gradient(self, x: Vector) -> Vector:
        """f'(x) without noise. A node with a finite budget refuses it; under (3.4) `perturb` pays instead."""
        self._expect_snapshot()
        if self.terms is None:
            self._nonprivate()
        elif not (self.terms.published and self.terms.mode.startswith("output")):
            raise Refused(f"{self.node}: an exact gradient was asked for in a private run")
        return self.loss.gradient(x, self.loss.data)

    def perturb(self, x: Vector) -> Vector:
        """(3.4): x plus the paper's noise. The baseline, in simulation only."""
        t = self._terms()
        self._spend(self._published_spend(t.beta, honest=False))
        return x + self._paper_noise(paper_scale(t, t.beta), x.size)

    # --- what the driver asks ---

    def knows(self) -> bool:
        """Whether the run will only repeat an answer already given (mode input, the same data version and question)."""
        if self.lattice is None or self._terms().mode != "input":
            return False
        return self.memory.find(self._key(self.lattice)) is not None

    def refill(self) -> None:
        """Draw noise for the next answers, unless the one of mode input is known."""
        if not self.state.kept.size:
            super().refill()

    # --- inside ---

    def _expect_snapshot(self) -> None:
        """The loss is of one set of loads: over a horizon a device answers with its loads alone. Nothing is paid."""
        if self.loss.periods > 1:
            raise Refused(f"{self.node}: a gradient was asked for over a horizon, expected a question for its loads")

    def _noisy_data(self) -> Vector:
        """One answer: d~, the data plus noise where they may be other than zero."""
        question = self._question()
        return question.answered(self._release(b"", lambda: question.exact(self._loads())))

    def _loads(self) -> Vector:
        """d as the answer that is being made has it."""
        return self.loss.data if self.counted is None else self.loss.of_now(self.counted)

    def _question(self) -> LoadQuestion:
        if self.question is None:
            raise Refused(f"{self.node}: a noisy answer was asked for in a run without privacy")
        return self.question

    def _size(self, n: Index, g: float) -> float:
        """Sum of |d~ - d|, or of the noise on a gradient."""
        t, question = self._terms(), self._question()
        if t.at == "gradient" or not (t.relative or question.sums):
            return super()._size(n, g)
        return float(np.sum(np.abs(question.answered(n.astype(np.float64) * g))))

    def _key(self, lattice: Lattice) -> bytes:
        """Of the question: everything that the answer depends on beside the data and their version."""
        return self.memory.key(f"{lattice!r} {self._terms().adjacency} {self.noise.source}{self._question().text}")

    def _published_spend(self, sensitivity: float, *, honest: bool) -> Spend:
        """What the paper's noise really costs where that can be said: at 2 beta |a_i|; infinite for (3.4)."""
        t = self._terms()
        scale = paper_scale(t, sensitivity)
        norm = self.loss.row_l1 if t.mechanism == "laplace" else self.loss.row_l2
        true = sensitivity * norm
        value = true / scale if honest else inf
        kind = t.mechanism if honest else "nonprivate"
        return Spend(self.state.answers + 1, kind, value, true, scale, 0.0, t.adjacency, PAPER_SAMPLER)
