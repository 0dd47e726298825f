"""The gate's noisy answers that an attack ends with, judged: are they on the public grid, and is their noise what is
claimed?

That an answer is no multiple of the grid needs no truth: noise in floating point tells values apart, because most of
its outputs are impossible for the other value (kernels/privacy/noise.py). With the truth held aside the noise itself is
known: its size over the claimed one, and whether the same noise was used twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.losses import Loss, public_gradient
from hushgrid.kernels.types import Matrix
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import Gradients
from hushgrid.lab.inversion.scores import Truth
from hushgrid.node.problems.records.gate import lattice_of, order_of

NEAR = 1e-2  #: of a grid step: rounding on the way, 1e-12 or so, is far below a step, a thousandth of the noise


class Judged(NamedTuple):
    """Of one node's answers. The last two need the truth."""

    off_grid: float  #: the share of coordinates that are no multiple of the grid
    noise_ratio: float | None = None  #: root mean square of the noise over the claimed one's
    repeats: float | None = None  #: the share of answers whose noise an earlier one has had


def claimed(transcript: Transcript, node: str) -> Lattice | None:
    """The grid and noise of a node's answers, from the plan; None where its gate answers no gradients with noise of its
    own.
    """
    t, f = transcript.plan.terms_of(node), transcript.problem.declared(transcript.place[node])
    if t is None or t.published or t.pointwise or t.growth != 1 or transcript.algorithm.asks(t.mode) != "gradient":
        return None
    labels = np.zeros(f.rows) if f.objective.kind == "softmax" else np.ones(f.rows)
    nothing = Loss(f.objective, np.zeros((f.rows, f.features)), labels, f.classes, f.row_bound)
    return lattice_of(node, nothing, t)


def judged(transcript: Transcript, node: str, seen: Gradients | None, truth: Truth | None) -> Judged | None:
    """Of the complete answers of a guarded run; None where there are none of a grid."""
    if (
        seen is None
        or seen.what != "noisy answer"
        or not seen.complete.any()
        or (lattice := claimed(transcript, node)) is None
    ):
        return None
    f, t = transcript.problem.declared(transcript.place[node]), transcript.plan.terms_of(node)
    o, points = f.objective, seen.points[seen.complete]
    answers = seen.g[seen.complete] - np.array([public_gradient(x, o.l2, o.lam, o.omega) for x in points])
    steps = answers / lattice.g
    off = float(np.mean(np.abs(steps - np.rint(steps)) > NEAR))
    if truth is None or t is None:
        return Judged(off)
    loss = Loss(o, truth.A, truth.b, f.classes, f.row_bound)
    exact = [loss.clipped_gradient(x, t.clip, order_of(t)) if t.clip else loss.data_gradient(x) for x in points]
    noise: Matrix = answers - np.array(exact)
    deviation = lattice.scale * (2**0.5 if lattice.kind == "laplace" else 1.0)
    multiples = np.rint(noise / lattice.g).astype(np.int64)
    _, first = np.unique(multiples, axis=0, return_index=True)
    return Judged(off, float(np.sqrt(np.mean(noise**2)) / deviation), 1 - len(first) / len(multiples))
