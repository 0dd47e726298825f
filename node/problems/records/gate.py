"""The gate of a data problem: f_i(x) = scale * mean_j loss(x; a_j, b_j) + p(x), the rows (a_j, b_j) private, p public
(docs/gate.md).

Guarded, an answer is the data's gradient on the grid plus exact noise; p'(x) is added behind the noise. Two data sets
of the same m rows, all |a_j|_2 <= row_bound, are made alike where they differ by

 - replace-one-record (clip c): one record, or any k of them (`records: k`).
   Each record's gradient is clipped to norm c, in L1 for Laplace and L2 for Gaussian noise; the sensitivity,
   rounding included, is `Loss.sensitivity(c, k)`.
 - bounded-change (beta): whatever moves the data's gradient by at most beta, in the same norm, at every point x. It is
   a promise about the gradient: one record replaced is such a change only where the loss says so (logistic in L2:
   2 scale row_bound/m <= beta; least squares: never). Nothing is clipped.

With `sensitivity: pointwise` (logistic, Gaussian, replace-one-record) grid and noise are those of a sensitivity of 1,
fixed for the run; an answer is computed in units of the sensitivity at its own point (`kernels.privacy.pointwise`),
which is public, and multiplied by it behind the noise. So the cost of an answer is the same and its noise is less.

A private minimiser (replace-one-record, where nothing is clipped: c >= row_bound) is kernels.perturbation's. Its noise
depends on the question's quadratic, so it is drawn when asked, not ahead.

Published, every answer costs infinity, because no claim is upheld:
 - DP-RECAL (L. Wang et al., Algorithm 1): the gradient is exact and the noise, which decays, stands on what is sent. An
   eavesdropper has y_i, and by it the gradient (Finding 1.1).
 - Algorithm 3.1 of Ryu and Kim: the noise, in floating point, stands on the gradient or on the result of a step, and is
   made for the sensitivity that the paper gives it (`Scaled`), of records' gradients clipped to c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import exp, inf, log, sqrt
from typing import Literal

import numpy as np

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.privacy import perturbation, pointwise
from hushgrid.kernels.privacy.noise import EXACT, Lattice
from hushgrid.kernels.privacy.perturbation import Perturbation
from hushgrid.kernels.privacy.shares import Share
from hushgrid.kernels.problems.losses import CURVATURE, Loss, U
from hushgrid.kernels.problems.minimizer import Minimizer
from hushgrid.kernels.types import Index, Vector
from hushgrid.node.privacy.gate import Answer, Authority, Gate
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.noise_source import PAPER_SAMPLER, NoiseSource
from hushgrid.node.privacy.terms import Terms

#: Labels of least squares are cut here under bounded-change, whose rounding depends on them: to refuse one would tell.
LABEL_BOUND = 1e4
ROUNDING = 2.0**-10  #: of beta: room for the rounding of two gradients; it costs as little as the grid does
POINTWISE = "privacy.sensitivity: pointwise"
LARGEST_DECAY = 1000.0  #: of ln R^answers: the first of the decaying noises is then a number


def order_of(t: Terms) -> Literal[1, 2]:
    """The norm in which sensitivities are measured."""
    return 1 if t.mechanism == "laplace" else 2


def lattice_of(node: str, loss: Loss, t: Terms | None, answer: int = 1) -> Lattice | None:
    """The grid and noise of a node's answer, from public numbers alone; None where no noise of ours is added.

    Raises InputError without a row_bound, or where no grid holds the noise.
    """
    if t is None or t.published:
        return None
    if loss.row_bound is None:
        raise InputError(f"{node}: row_bound: found none, expected R >= |a|_2 of every row (variant: guarded)")
    if t.pointwise:
        if loss.objective.kind != "logistic":
            raise InputError(f"{node}: problem.kind: found {loss.objective.kind}, expected logistic ({POINTWISE})")
        if not t.clip:
            raise InputError(
                f"{node}: privacy.adjacency: found {t.adjacency}, expected replace-one-record ({POINTWISE})"
            )
        if t.mechanism != "gaussian":
            raise InputError(f"{node}: privacy.mechanism: found {t.mechanism}, expected gaussian ({POINTWISE})")
    sensitivity = loss.sensitivity(t.clip, t.records) if t.clip else t.beta * (1 + ROUNDING)
    fit = Lattice.laplace if t.mechanism == "laplace" else Lattice.gaussian
    return fit(t.price(answer), sensitivity, loss.size)


def _own_lattice(node: str, loss: Loss, t: Terms | None, answer: int = 1) -> Lattice | None:
    """What a gate draws by: if its noise follows the point, in units of the sensitivity there."""
    lattice = lattice_of(node, loss, t, answer)
    if lattice is not None and t is not None and t.pointwise:
        return Lattice.gaussian(t.price(answer), pointwise.UNIT, loss.size)
    return lattice


#: The sensitivity of an answer's published noise, from how far one record replaced moves a gradient,
#: and the answer's number.
Scaled = Callable[[float, int], float]


def rounding(loss: Loss, x: Vector, order: Literal[1, 2]) -> float:
    """A public bound of |computed - true data gradient| in L`order` at x, for rows within row_bound = R, |b| <= B.

    With s >= |s_j|: R|x| + B (least squares), 1, sqrt 2 (softmax); in units of U = 2^-53, to first order (N. Higham,
    chapter 3): a margin errs by (q + 4) R |x| and its slope by c1 times that;
    a slope by (C + 16)(s + 1) and 2 B in its own evaluation; the mean of m products and its scaling by (m + 20) s.
    All of it times scale R; the factor 1 + 2^-10 holds what is of second order as long as m, q, d < 2^40.
    """
    o, (m, q), R = loss.objective, loss.A.shape, loss.R
    length = R * float(np.linalg.norm(x))
    B = LABEL_BOUND if o.kind == "least-squares" else 0.0
    s = {"least-squares": length + B, "logistic": 1.0, "softmax": sqrt(2)}[o.kind]
    units = CURVATURE[o.kind] * (q + 4) * length + (loss.classes + 16) * (s + 1) + 2 * B + (m + 20) * s
    return float((1 + 2.0**-10) * U * o.scale * R * units * (sqrt(loss.size) if order == 1 else 1.0))


def paper_sd(loss: Loss, t: Terms, answer: int) -> float:
    """sigma_k of DP-RECAL's k-th answer, sigma_k^2 = R sigma_{k+1}^2, the first chosen so that Theorem 4 claims
    Terms.epsilon at Terms.delta after Terms.answers = xi of them:

      rho + 2 sqrt(rho ln(1/delta)) = epsilon,   rho = sum_k rho_k,   rho_k = Delta^2/(2 sigma_k^2) = R^(k-1) rho_1,

    Delta = 4 alpha beta c as printed (Lemma 5; 2 alpha beta c would do), Terms.step = alpha beta, Terms.decay = R.
    The paper's 2c, how far a gradient moves, is 2 clip scale here, or the bounded change.
    """
    change = 2 * t.clip * loss.objective.scale if t.clip else t.beta
    Delta = 2 * t.step * change
    known = log(1 / t.delta)
    rho = (t.epsilon / (sqrt(known + t.epsilon) + sqrt(known))) ** 2
    xi, decay = t.answers, log(t.decay)
    total = xi if decay == 0 else np.expm1(-xi * decay) / np.expm1(-decay)  # sum of R^-j, j < xi: rho/rho_xi
    return float(Delta * sqrt(total / (2 * rho)) * exp((xi - answer) * decay / 2))


class RowsGate(Gate):
    """One run's gate of a node's rows. An algorithm sees of it the protocol kernels.ladmm.Oracle or
    kernels.iadmm.Oracle.

    Raises InputError, Refused if the terms cannot be met; decided, and said, from public numbers alone.
    """

    def __init__(
        self,
        node: str,
        loss: Loss,
        terms: Terms | None,
        noise: NoiseSource,
        authority: Authority,
        scaled: Scaled | None = None,
        share: Share | None = None,
    ) -> None:
        """`scaled`: of a published variant whose noise is made for a sensitivity; None: DP-RECAL's, if it is published.

        `share`: of a masked run, this node's part of the noise.
        """
        lattice = share.lattice if share else _own_lattice(node, loss, terms)
        super().__init__(node, terms, noise, authority, lattice, loss.size)
        self.loss, self.scaled, self.masked = loss, scaled, share
        self._later: dict[int, Lattice] = {}  #: of an uneven schedule
        if terms is None:
            return
        if terms.growth != 1:
            self.lattice_at(terms.noisiest)  # or it is refused now
        if terms.published and scaled is not None:
            if not terms.clip:
                raise InputError(
                    f"{node}: privacy.adjacency: found {terms.adjacency}, expected replace-one-record (published)"
                )
        elif terms.published:
            if terms.mechanism != "gaussian":
                raise InputError(f"{node}: privacy.mechanism: found {terms.mechanism}, expected gaussian (DP-RECAL)")
            if not terms.step > 0:  # its noise would be none
                raise InputError(f"{node}: step: found alpha beta = {terms.step:g}, expected a number > 0 (DP-RECAL)")
            if not 0 <= terms.answers * log(terms.decay) <= LARGEST_DECAY:
                raise InputError(
                    f"{node}: decay: found R = {terms.decay:g} over {terms.answers} answers, "
                    f"expected R >= 1 and R^answers <= e^{LARGEST_DECAY:g}"
                )
        elif not terms.clip:
            if loss.objective.kind == "least-squares":
                self.loss = replace(loss, b=np.clip(loss.b, -LABEL_BOUND, LABEL_BOUND))
            self._covered(np.zeros(loss.size), terms)

    # --- what an algorithm may ask ---

    def gradient(self, x: Vector) -> Vector:
        """f'(x) plus noise: one answer. Raises Refused if |x| is so large that bounded-change does not cover the
        rounding.
        """
        t = self._terms()
        if t.published and self.scaled is not None:
            return self.perturb(self.exact_gradient(x))
        if self.masked:
            raise Refused(f"{self.node}: an answer by itself was asked for in a masked run")
        unit, lattice = self.unit(x, t) if t.pointwise else 1.0, self._noise_lattice()
        if not t.clip:
            self._covered(x, t)
        question = np.ascontiguousarray(x).data  # its bytes, where they are
        answer = self._release(question, lambda: self._data(x, lattice, unit), unit) + self.loss.public_gradient(x)
        if self.released is not None:
            slack = lattice.g * unit * sqrt(x.size)
            self.released.append(Answer(self.state.answers, x.copy(), answer, lattice.scale * unit, slack))
        return answer

    def share(self, x: Vector, context: bytes) -> Index:
        """The data's gradient at x on the common grid plus this node's share of the noise, in grid steps: one answer.

        `about`: what else is asked with x.
        """
        lattice = self._noise_lattice()

        def steps() -> Index:
            return np.rint(self._data(x, lattice, 1.0) / lattice.g).astype(np.int64)

        return self._masked_share(self.masked, context + x.tobytes(), steps)

    def _data(self, x: Vector, lattice: Lattice, unit: float) -> Vector:
        """The gradient of the data alone, clipped, in `unit`s."""
        t, largest = self._terms(), EXACT / 2 * lattice.g  # far above c scale and any data's gradient
        loss = self._rows()
        g = loss.clipped_gradient(x, t.clip, order_of(t)) if t.clip else loss.data_gradient(x)
        # What the grid cannot hold is cut, which moves nothing apart.
        g = g / unit if t.pointwise else g
        return np.minimum(np.maximum(g, -largest, out=g), largest, out=g)

    def unit(self, x: Vector, t: Terms) -> float:
        """How far one change can move the gradient at x, by public numbers."""
        uniform = self.loss.sensitivity(t.clip, t.records)
        with np.errstate(over="ignore"):
            return pointwise.sensitivity(self.loss, x, t.clip, rounding(self.loss, x, 2), uniform, t.records)

    def exact_gradient(self, x: Vector) -> Vector:
        """f'(x) without noise: an answer of infinite cost, in simulation only.

        Published with noise for a sensitivity, the records' gradients are clipped as they are guarded:
        without that no bound of theirs is one, and a comparison with noise at the gate would be one of clips.
        """
        t = self.terms
        if t is None:
            self._nonprivate()
        elif t.published:
            k = self.state.answers + 1
            self._spend(Spend(k, "nonprivate", inf, inf, self._paper_scale(k), 0.0, t.adjacency, PAPER_SAMPLER))
        else:
            raise Refused(f"{self.node}: an exact gradient was asked for in a private run")
        if t is not None and self.scaled is not None:
            return self.loss.clipped_gradient(x, t.clip, order_of(t)) + self.loss.public_gradient(x)
        return self.loss.gradient(x)

    def perturb(self, x: Vector, scale: float | None = None) -> Vector:
        """x plus a paper's noise, in simulation; the exact gradients have paid for it.

        Laplace noise of that scale; without one, the noise that the published method gives its current answer.
        """
        if scale is not None:
            if self.terms is not None:
                raise Refused(f"{self.node}: the paper's noise was asked for in a private run")
            self.state.drawn += 1
            xi = self.noise.of_message(scale, x.size, self.state.drawn)
            self.drawn_l1 += float(np.sum(np.abs(xi)))
            return x + xi
        t = self._terms()
        if not t.published:
            raise Refused(f"{self.node}: the paper's noise was asked for in a guarded run")
        return x + self._paper_noise(self._paper_scale(self.state.answers), x.size)

    def minimizer(self, linear: Vector, quadratic: float) -> Vector:
        """argmin_x f(x) + <linear, x> + quadratic/2 |x|^2, privately: one answer.

        Laplace: by objective perturbation, logistic alone. Gaussian: by output perturbation, logistic or softmax.
        """
        t = self._minimizable()
        if t.mechanism == "gaussian":
            return self.output_minimizer(linear, quadratic)
        return self._perturbed(
            lambda: perturbation.objective(self.loss, t.per_answer, linear, quadratic, t.records),
            linear,
            quadratic,
        )

    def output_minimizer(self, linear: Vector, quadratic: float) -> Vector:
        """The same by output perturbation, whatever the mechanism: its noise is added to the minimiser."""
        t, perturb = self._minimizable(), perturbation.output
        return self._perturbed(
            lambda: perturb(self.loss, t.mechanism, t.per_answer, linear, quadratic, t.records), linear, quadratic
        )

    def exact_minimizer(self, linear: Vector, quadratic: float) -> Vector:
        """argmin_x f(x) + <linear, x> + quadratic/2 |x|^2, without noise: an answer of infinite cost."""
        self._nonprivate()
        return self._minimizer(linear, quadratic).x

    # --- inside ---

    @property
    def alike(self) -> bool:
        return self._terms().growth == 1

    def lattice_at(self, answer: int) -> Lattice:
        first, t = super().lattice_at(answer), self._terms()
        if t.growth == 1 or answer == 1:
            return first
        if answer not in self._later:
            lattice = _own_lattice(self.node, self.loss, t, answer)
            assert lattice is not None
            self._later[answer] = lattice
        return self._later[answer]

    def _paper_scale(self, answer: int) -> float:
        """Of a published answer's noise: Laplace's b, or the Gaussian's sigma."""
        t = self._terms()
        if self.scaled is None:
            return paper_sd(self.loss, t, answer)
        moved = 2 * t.clip * self.loss.objective.scale / self.loss.rows
        return self.scaled(moved, answer) / t.per_answer

    def _rows(self) -> Loss:
        """f_i as the answer that is being made has it: in place of a row that counts no more the zero row."""
        return self.loss if self.counted is None else self.loss.without(~self.counted)

    @cached_property
    def _minimizer(self) -> Minimizer:
        return Minimizer(self.loss)

    def _minimizable(self) -> Terms:
        t = self._terms()
        self._noise_lattice()
        if not t.clip >= self.loss.R:
            raise InputError(
                f"{self.node}: privacy.adjacency: found {t.adjacency}, "
                f"expected replace-one-record with a clip of at least "
                f"row_bound = {self.loss.R:g} (private minimiser: nothing is clipped)"
            )
        return t

    def _perturbed(self, calibrate: Callable[[], Perturbation], linear: Vector, quadratic: float) -> Vector:
        """A minimiser certified to tau, on the grid, plus noise: one answer. What is said of a failure is public."""
        t, noise, d = self._terms(), self.noise, self.loss.size
        try:
            p = calibrate()
        except InputError as error:
            raise InputError(f"{self.node}: {error}") from None
        k = self.state.answers + 1
        scale = 1 / p.alpha if p.alpha else p.lattice.scale
        change = p.change if p.alpha else p.lattice.sensitivity
        spend = Spend(k, t.mechanism, t.per_answer, change, scale, p.lattice.g, t.adjacency, noise.sampler)
        question = linear.tobytes() + repr(quadratic).encode()
        eps, (rounded,), n = self._draw(spend, question, lambda: noise.perturbation(p, d, k))
        self.drawn_l1 += float(np.sum(np.abs(eps if p.alpha else n * p.lattice.g)))
        v = linear + eps
        tolerance = p.tau - float(rounded) - U * float(np.linalg.norm(v))
        try:
            minimizer = self._minimizer if self.counted is None else Minimizer(self._rows())
            answer = p.lattice.release(minimizer(v, quadratic, tolerance=tolerance).x, n)
        except (Refused, InputError):  # it tells of the data
            raise Refused(
                f"{self.node}: no minimiser was certified to {p.tau:.3g}, expected one; none is released"
            ) from None
        if self.released is not None:
            gradient, scale = -(linear + quadratic * answer), 1 / p.alpha if p.alpha else 0.0
            slack = p.tau + (self.loss.L + quadratic) * p.lattice.g * sqrt(d)
            self.released.append(Answer(k, answer, gradient, scale, slack, p.lattice.scale, quadratic))
        return answer

    def _covered(self, x: Vector, t: Terms) -> None:
        error, room = rounding(self.loss, x, order_of(t)), ROUNDING / 2 * t.beta
        if not error <= room:  # true for nan too
            raise Refused(
                f"{self.node}: at |x| = {float(np.linalg.norm(x)):.3g} the gradient is rounded by up to {error:.3g}, "
                f"expected at most {room:.3g} under {t.adjacency}"
            )
