"""`hushgrid study penalty-functions`: (4.2) and (4.3) of Ryu and Kim beside the projection that hushgrid takes.

Their proof of privacy replaces W_p by a penalty g_l(z) = sum_m ln(1 + exp(l h_m(z))), and l grows (Theorem 4.2). Here
the noise is at the gate, so that either is post-processing, and costs the same. A run of both shows what differs: the
digits of `federated` in the tight box, epsilon 4, the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.problems.prox import Box
from hushgrid.kernels.types import Vector
from hushgrid.lab.studies.common.study import Page, Panel, Table, chart, on_two
from hushgrid.lab.studies.papers.federated import ANSWERS, TIGHT, FederatedTask, Images, played, scenario
from hushgrid.node.config.scenario import scenario_from

LENGTHS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  #: l
HALVINGS = 60  #: of an interval that is no longer than |v|


class Penalised(NamedTuple):
    """(4.2) in the place of the box |x_k| <= bound, h = x_k - bound and -x_k - bound."""

    bound: float
    ell: float

    def value(self, x: Vector) -> Vector:
        """(d,) g_l of each entry."""
        return np.logaddexp(0, self.ell * (x - self.bound)) + np.logaddexp(0, self.ell * (-x - self.bound))

    def project(self, v: Vector, D: Vector) -> Vector:
        """(4.3): argmin sum_k D_k/2 (x_k - v_k)^2 + g_l(x_k), which lies between 0 and v. Shapes (d,)."""
        low, high = np.minimum(v, 0.0), np.maximum(v, 0.0)
        for _ in range(HALVINGS):
            x = (low + high) / 2
            slope = D * (x - v) + self.ell * (expit(self.ell * (x - self.bound)) - expit(self.ell * (-x - self.bound)))
            low, high = np.where(slope < 0, x, low), np.where(slope < 0, high, x)
        middle: Vector = (low + high) / 2
        return middle


class PenalisedTask(NamedTuple):
    images: Images
    epsilon: float
    ell: float  #: inf: the projection
    seeds: Sequence[int]


class Outcome(NamedTuple):
    """Of each seed: every node's own model, (seeds, nodes, d), and the testing error of their mean."""

    models: Vector
    error: Vector


def measured(task: PenalisedTask) -> Outcome:
    """All seeds of one l."""
    setting = FederatedTask(task.images, task.epsilon, ANSWERS, 1, TIGHT, "objective", task.seeds)
    setup = RowSetup(scenario_from(scenario(setting, 0)))
    assert setup.tests is not None
    feasible = Box(TIGHT) if task.ell == inf else Penalised(TIGHT, task.ell)
    models, errors = [], []
    for seed in task.seeds:
        *_, last = played(setup, seed, feasible)
        models.append(last)
        errors.append(setup.tests.errors(np.mean(last, axis=0)[None])[0])
    return Outcome(np.array(models), np.array(errors, np.float64))


def study(images: Images | None = None, epsilon: float = 4.0, seeds: Sequence[int] = tuple(range(5))) -> list[Page]:
    """Each l beside the projection, and Figure 2."""
    tasks = [PenalisedTask(images or Images(), epsilon, length, seeds) for length in (*LENGTHS, inf)]
    outcomes = dict(zip((*LENGTHS, inf), on_two(measured, tasks, lambda t: f"l {t.ell:g}"), strict=True))
    exact, rows = outcomes[inf], list[Sequence[str | float]]()
    for length, one in outcomes.items():
        far = np.linalg.norm(one.models - exact.models, axis=-1) / np.linalg.norm(exact.models, axis=-1)
        outside = float(np.mean(np.max(np.abs(one.models), axis=(1, 2)))) / TIGHT
        name = "projection" if length == inf else f"{length:g}"
        rows.append((name, float(far.mean()), outside, float(one.error.mean())))
    columns = ("l", "relative distance from the projection's", "largest |x_k| over the box", "testing error")
    table = Table("Theorem 4.2: what comes of (4.3) as l grows", columns, rows)
    x = np.linspace(-1, 1, 201)
    curves = {f"l = {length:g}": (x, np.logaddexp(0, length * x)) for length in (1.0, 10.0, 50.0)}
    curves["LBF, l = 10"] = (x[x < 0], -np.log(-x[x < 0]) / 10)
    picture = chart("Figure 2", [[Panel("h(z) = z", "z", "penalty", curves)]])
    return [Page("penalty-functions", [table], {"penalty-functions.svg": picture})]
