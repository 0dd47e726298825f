"""Whether a run's answer is one: `quality` of result.json, the verdict beside the one on privacy.

Everything here is a function of the plan and of what was released: of an upheld run it reads no row, no load and no
noise as drawn. Five verdicts, the first that applies:

 - diverged: the answer is not finite, or larger than any answer of the problem can be (`largest_answer`), or the nodes
   lie farther apart than that and than the noise explains.
 - solved: of rows, the optimum is proven, or tested, to be within 0.05 of the answer
   (`kernels/problems/optimality.py`), and the nodes agree; of zones that have agreed as below, the cost of what is
   dispatched is within 0.01 of a proven lower bound.
 - agreed, if nothing tests optimality: the residual is at most 0.05 of the answer's size, or `run.stop` was met. Nodes
   that agree need not have the optimum. Of zones with a bound only where the relaxation is solved, but too loose to
   prove more of the AC dispatch; farther from the bound it is not-converged.
 - noise-limited: the residual is at most what the answers' noise explains, and so is the gradient that is left.
 - not-converged.

A sum has no copies: it is solved if its noise is at most 0.05 of its size, and noise-limited otherwise.

Rounds of averaging after the last answer make any vectors agree, noise too. What nodes had before them is said beside
the verdict (`averaged`).

**The largest answer.** Let x be what n nodes tend to without noise, mu = l2 + r's l2, and s_j the slope of record j's
loss at its margins t_j. Then 0 = <n^-1 sum_i f_i'(x) + r'(x), x>, in which the nonconvex term and the box's normal
count nonnegative and the slopes, for every record at least, -<s_j, t_j> <= l(0) - l(t_j) <= l(0) = ln C by convexity (C
= 2 for logistic), clipped or not, since clipping multiplies s_j by a number from 0 to 1. So with c the scale

    mu |x|^2 + l1 |x|_1 <= c ln C:   |x| <= sqrt(c ln C / mu),   |x| <= c ln C / l1,   |x| <= sqrt(d) box.

Of least squares l(0) has no bound where labels have none; where each gradient is clipped to c', mu |x| <= c c'. Sums
weighted by public numbers, to which penalties of nodes lead, obey the same.

**What noise explains.** Answer k of node i carries noise xi of known law, and enters the node's own copy through a step
tau_k that is public (a gradient's step; of a minimiser under objective perturbation 1/mu, mu the curvature of its very
question; of one under output perturbation 1). If nothing of it were ever averaged away, the copies would lie

    N = sqrt(sum_i sum_k tau_k^2 E|xi_ik|^2)

apart (root mean square, all nodes together); a stable method mixes and contracts, so that N is generous. Up to 2 N is
called noise (over d n >= 4 coordinates a Gaussian norm passes twice its root mean square with a chance below 0.003). In
mode input the loads are perturbed once and then stand still: noise explains no disagreement, N = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor, isfinite, log, log10, sqrt
from typing import Any, cast

import numpy as np
from msgspec import UNSET

from hushgrid.broker.report.result import Nearness, Quality
from hushgrid.grid_cases.zone.model import ZoneModel
from hushgrid.kernels.algorithms.base import Star
from hushgrid.kernels.privacy import perturbation
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.perturbation import Perturbation
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.optimality import Optimality
from hushgrid.kernels.problems.verdict import AGREED, SPREAD, verdict_of, verdict_of_sum
from hushgrid.kernels.types import DocumentView
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.power_flow import gate as zone_gate
from hushgrid.node.problems.records.section import DataPlan


def judged(
    residual: float | None,
    size: float,
    copies: int,
    noise: float,
    largest: float,
    ratio: float | None,
    met: bool,
    agreed: float = AGREED,
    before: float | None = None,
    optimality: Optimality | None = None,
    clipped: bool = False,
    convex: bool = True,
    alike: bool = True,
    gap: float | None = None,
    distance: float | None = None,
) -> Quality:
    """The verdict. `residual`: None where no round was made. `copies`: n; `largest`: inf where no bound is known.

    `before`: the residual before the rounds of averaging after the last answer; None without such rounds.
    `optimality`: of rows, what is known of the distance to the optimum; None: nothing. `clipped`, `convex`: whether it
    is that of the clipped problem, and of a convex one.
    `alike`: whether the nodes' copies tend to the answer; around a coordinator each is a local step away from it.
    `gap`, `distance`: of zones, how far the cost of dispatch and of relaxation are from their proven bound, as shares
    of it; None: there is no bound.
    """
    verdict = verdict_of(
        residual,
        size,
        copies,
        noise,
        largest,
        met=met,
        agreed=agreed,
        optimality=optimality,
        alike=alike,
        gap=gap,
        distance=distance,
    )
    length = sqrt(copies) * size

    def of_size(value: float | None) -> float | None:
        return _finite(value / length) if value is not None and length > 0 else None

    return Quality(
        verdict=verdict,
        residual_relative=0.0 if residual == 0 else of_size(residual),
        step_ratio=ratio,
        noise_relative=of_size(SPREAD * noise),
        size=_finite(size),
        largest=_finite(largest),
        before_averaging=of_size(before),
        bound=nearness(optimality, clipped, convex),
        gap=gap,
    )


def nearness(known: Optimality | None, clipped: bool, convex: bool) -> Nearness | None:
    """`bound` of result.json."""
    if known is None:
        return None
    return Nearness(
        gradient=_finite(known.gradient),
        least_gradient=_finite(known.moving),
        wanted=_finite(known.wanted),
        relative_error=_finite(known.relative),
        gap=_finite(known.gap),
        confidence=known.confidence,
        clipped=clipped,
        convex=convex,
    )


def of_a_sum(size: float | None, noise: float) -> Quality:
    """The verdict on a sum, which has no copies: by its noise alone. Of what size both are, in L2; None: there is no
    sum.

    noise: what the noise's norm passes with a chance of 1 - `optimality.CONFIDENCE` at most.
    """
    relative = _finite(noise / size) if size else None
    return Quality(
        verdict=verdict_of_sum(size, noise),
        residual_relative=None,
        step_ratio=None,
        noise_relative=relative,
        size=_finite(size or 0.0),
        largest=None,
        before_averaging=None,
    )


WORD = {
    "solved": "solved",
    "agreed": "agreed",
    "noise-limited": "noise-limited",
    "not-converged": "not converged",
    "diverged": "diverged",
}


def sentence(quality: DocumentView, differing: str, feasible: bool = False) -> str:
    """The verdict's reason, from result.json's `quality`; "" where that is not one. `differing`:
    `wording.Wording.differ`.

    `feasible`: of zones, whether what is dispatched can be done (AC), so that the least cost lies below it.
    """
    verdict, apart, noise = quality.get("verdict"), quality.get("residual_relative"), quality.get("noise_relative")
    size, largest = quality.get("size"), quality.get("largest")
    if verdict not in WORD:
        return ""
    if apart is None and noise is not None:  # a sum
        return f"its noise is {percent(noise)} of its size"
    differ = differing.format(percent(apart)) if apart is not None else ""
    gap, unproven = quality.get("gap"), verdict == "not-converged" and apart is not None and apart <= AGREED
    if (bound := quality.get("bound")) is not None and verdict != "diverged":
        text = proven(verdict, bound, differ) + averaged(quality.get("before_averaging"), noise)
    elif verdict in ("agreed", "solved") or (unproven and gap is not None):
        text = (
            differ
            if apart is not None and apart <= AGREED
            else f"{differ}{', ' * bool(differ)}the stopping rule was met"
        )
        text += averaged(quality.get("before_averaging"), noise)
        text += "; whether it is the optimum was not tested" if gap is None else ""
    elif verdict == "noise-limited":
        text = f"{differ or 'the answer is zero'}, no more than the answers' noise explains"
        text += f" (up to {percent(noise)})" if noise is not None else ""
    elif verdict == "not-converged":
        explained = (
            f", more than the answers' noise explains ({percent(noise)})" if noise else ", which no noise explains"
        )
        text = differ + explained if differ else "nothing was computed, or the answer is zero and its copies are not"
    elif size is None or apart is None:
        text = "the answer is not finite"
    elif largest is not None and size > largest:
        text = f"the answer's size is {size:.3g}, and no answer of this problem is larger than {largest:.3g}"
    else:
        text = f"{differ}, more than any answer of this problem or the noise explains"
    text += f"; {distance(gap, feasible)}" if gap is not None else ""
    ratio = quality.get("step_ratio")
    return text + (f"; the step is {ratio:.2g} times its public bound" if ratio is not None else "")


def proven(verdict: str, bound: DocumentView, differ: str) -> str:
    """What is known of the distance to the optimum, from `quality.bound` of result.json."""
    sure = f", at {100 * bound['confidence']:g} % confidence" if bound["confidence"] < 1 else ""
    point = "the optimum" if bound["convex"] else "a stationary point"
    optimum = f"{point} of the clipped problem" if bound["clipped"] else point
    relative, gradient, wanted = bound["relative_error"], bound["gradient"], bound["wanted"]
    least = bound["least_gradient"]
    if verdict == "solved":
        place = f"is within {percent(relative)} of {optimum}" if relative is not None else f"stands still at {optimum}"
        return f"it {place}{sure}; {differ}"
    if verdict == "noise-limited":
        known = relative is not None and relative < 1
        place = f"it is within {percent(relative)}" if known else "how near it is cannot be said"
        return f"the answers' noise hides whether it is {optimum} ({place}{sure}); {differ}"
    if least and wanted is not None and least > wanted:
        much = f"{least / wanted:.2g} times the largest" if wanted > 0 else f"{least:.2g}, more than any"
        return (
            f"the slope of the objective over the last answers is {much} that shows {optimum} to be near{sure}; "
            f"{differ}"
        )
    if relative is not None and relative < 1:
        return f"it is not shown to be nearer than {percent(relative)} to {optimum}{sure}; {differ}"
    return (
        f"the slope of the objective may be as large as {gradient:.2g}{sure}; {differ}"
        if gradient is not None
        else differ
    )


def averaged(before: float | None, noise: float | None) -> str:
    """What agreement is worth that rounds of averaging have made: they make any vectors agree. Both are shares of the
    size.
    """
    if before is None or before <= AGREED:
        return ""
    why = "no more than" if noise is not None and before <= noise else "more than"
    return f", because they averaged; before that by {percent(before)}, {why} the answers' noise explains"


def distance(gap: float, feasible: bool) -> str:
    """How far the cost of a dispatch is from the least, rounded up. That of zones that agree only nearly may lie below
    it.
    """
    if feasible:
        return f"within {at_most(gap)} of the least cost, proven"
    return f"its cost is within {at_most(gap)} of a proven lower bound of the least"


def at_most(share: float) -> str:
    """A share in percent, rounded up to two digits; 0.01 % or more."""
    value = max(100 * share, 0.01)
    place = 10.0 ** (floor(log10(value)) - 1)
    return f"{ceil(value / place - 1e-9) * place:.3g} %"


def percent(value: float) -> str:
    """A share for reading, two digits."""
    if value == 0 or 1e-4 <= value < 100:
        return f"{100 * value:.2g} %" if value < 0.0995 else f"{100 * value:.0f} %"
    return "less than 0.01 %" if value < 1e-4 else "over 10,000 %"


def _finite(value: float) -> float | None:
    return float(value) if isfinite(value) else None


def largest_answer(problem: DataPlan, clip: float = 0.0) -> float:
    """B of the module's text: |x| of no answer is larger; inf where no bound is known. `clip`: of records' gradients,
    or 0.
    """
    o, r = problem.objective, problem.regularizer
    scale = o.scale if problem.share is UNSET else 1 / len(problem.rows)  # the mean of all nodes'
    mu, bounds = o.l2 + r.l2, [sqrt(problem.size) * r.box]
    if o.kind != "least-squares":
        most = scale * log(max(problem.classes, 2))
        bounds += [sqrt(most / mu)] if mu else []
        bounds += [most / r.l1] if r.l1 else []
    elif clip and mu:
        bounds.append(scale * clip / mu)
    return min(bounds) * (1 + 1e-9)  # an answer on its bound is held there but for rounding


# --- what noise explains ---


def mean_square(lattice: Lattice) -> float:
    """E|xi|^2 of one coordinate: at most 2 t^2 g^2 (Laplace), t^2 g^2 + g^2/12 (the rounded Gaussian)."""
    return 2 * lattice.scale**2 if lattice.kind == "laplace" else lattice.scale**2 + lattice.g**2 / 12


def spread_of_minimizers(plan: RunPlan, answers: Sequence[int]) -> float:
    """N of a data problem whose gates answer with private minimisers, node i having given answers[i] of them."""
    size = plan.problem.size
    each = (answer_noise(plan, i, k) for i, count in enumerate(answers) for k in range(1, count + 1))
    return sqrt(sum(_of_minimizer(size, *answer) for answer in each))


def _of_minimizer(d: int, answer: Perturbation, mu: float) -> float:
    """tau^2 E|xi|^2 of one answer: |eps| of density exp(-alpha |eps|) is Gamma(d, 1/alpha)."""
    lattice_part = d * mean_square(answer.lattice)
    return lattice_part + (d * (d + 1) / answer.alpha**2 / mu**2 if answer.alpha else 0.0)


def answer_noise(plan: RunPlan, i: int, k: int) -> tuple[Perturbation, float]:
    """Node i's private minimiser k, of what is public of its question, and the curvature mu of that question."""
    problem: DataPlan = plan.problem
    t, algorithm = plan.terms_of(plan.nodes[i]), plan.algorithm
    assert t is not None
    assert problem.row_bound is not None
    quadratic = algorithm.curvature(i, k, problem.graph.neighbours[i])
    case = (problem.node_objective(i), problem.rows[i], problem.features, problem.classes, problem.row_bound)
    return _calibrated(
        case, t.mechanism, t.per_answer, quadratic, algorithm.by_output(t.mechanism), t.records
    ), quadratic + problem.objective.l2


@lru_cache(maxsize=4096)
def _calibrated(
    case: tuple[Objective, int, int, int, float],
    mechanism: Any,
    per_answer: float,
    quadratic: float,
    output: bool,
    records: int,
) -> Perturbation:
    objective, m, features, classes, row_bound = case
    loss = Loss(objective, np.zeros((m, features)), np.ones(m), classes, row_bound)
    zero = np.zeros(loss.size)
    if output:
        return perturbation.output(loss, mechanism, per_answer, zero, quadratic, records)
    return perturbation.objective(loss, per_answer, zero, quadratic, records)


def public_loss(problem: DataPlan, i: int) -> Loss:
    """A loss of as many rows as node i has, and with nothing else but what is public: what noise needs."""
    m = problem.rows[i]
    return Loss(
        problem.node_objective(i), np.zeros((m, problem.features)), np.ones(m), problem.classes, problem.row_bound
    )


def spread_of_zones(plan: RunPlan, terms: Terms | None, zones: Sequence[tuple[ZoneModel, Any]], L: float) -> float:
    """N of zones, `zones` being each one's model and public loss, at the plan's full number of answers.

    Mode objective: answer k is 2 A'(A z + d + the mean of k noises), so that noise j is in all answers from j on:
    N^2 = sum_p 4 |A_p|_F^2 s^2 sum_j (sum_{k >= j} tau_k/k)^2 over the columns that are shared; `at: gradient`: each
    answer has its own. tau = 1/(1/eta + rho).
    """
    algorithm = cast(Star, plan.algorithm)
    if terms is None or terms.published or terms.mode == "input":
        return 0.0
    rounds = range(1, terms.rounds + 1)
    tau = np.repeat([algorithm.step_of_answer(0, t, L, terms.paper_epsilon) for t in rounds], algorithm.per_round)
    if terms.at == "gradient":
        weight = float(np.sum(tau**2))
    else:
        later = np.cumsum((tau / np.arange(1, tau.size + 1))[::-1])[::-1]
        weight = float(np.sum(later**2))
    total = 0.0
    for model, loss in zones:
        lattice = zone_gate.lattice_of(model.name, loss, terms)
        assert lattice is not None
        shared = model.A.toarray()[:, model.shared]
        if loss.unit is not None:
            shared = loss.unit[:, None] * shared  # noise of one scale, in multiples of each load's own change
        entries = model.shared.size if terms.at == "gradient" else 4 * float(np.sum(shared**2))
        total += entries * mean_square(lattice) * weight
    return sqrt(total)
