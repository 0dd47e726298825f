"""Whether a budget that is not spread evenly over a node's answers gains anything: Adult, DGD, ring of 8, one total.

Answer k of K gets a share of mu^2 (GDP) in proportion to g^k, g public and fixed beforehand: the total is the same, because
mu^2 adds up (`privacy.schedule`). Each g has step, answers and clip of its own, tuned on the league's lattice and seeds; runs
are made for all seeds at once, in floating point. `python -c "from hushgrid.lab.studies.schedule import study; study()"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from hushgrid.broker.simulation.problems.cache import Cache, using_cache
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.types import Vector
from hushgrid.lab.comparison.medians import median
from hushgrid.lab.studies.common.at_once import played
from hushgrid.lab.studies.common.tuning import Axis, Place, Search
from hushgrid.lab.studies.league import SHOWN, TUNED_ON, judge
from hushgrid.lab.studies.races import METHODS, SETTINGS

GROWTHS = (0.94, 0.97, 1.0, 1.03, 1.06, 1.1)
MOMENTUM = 0.7


def gaps(title: str, epsilon: float, growth: float, values: dict[str, float], seeds: Sequence[int]) -> Vector:
    """Of the mean model, which rounds of averaging give to every node; (S,), infinite if it is refused."""
    setting, method, of = SETTINGS[title], METHODS["DGD"], judge(title)
    point = method.point(values, epsilon, setting.graph, whole=False)
    point["algorithm"]["momentum"] = MOMENTUM
    point["privacy"]["schedule"] = {"growth": growth}
    try:
        own = played(setting.scenario("graph") | point, seeds)
    except (InputError, Refused):
        return np.full(len(seeds), inf)
    return np.array([float(of.value(X.mean(axis=0)[None])[0]) - of.least for X in own])


def tuned(title: str, epsilon: float, growth: float) -> dict[str, float]:
    """The walk's end over step, answers and clip."""
    axes = [Axis("step_size", 1.0), Axis("answers", 32, low=1), Axis("clip", 0.5**0.5, factor=2**0.5, high=1.0)]
    search, known = Search(axes, TUNED_ON, (len(TUNED_ON),)), dict[Place, Vector]()

    def error(place: Place, seed: int) -> float | None:
        return float(known[place][TUNED_ON.index(seed)]) if place in known else None

    while True:
        place, asked = search.advance(error)
        if not asked:
            return search.values(place)
        known.update({p: gaps(title, epsilon, growth, search.values(p), TUNED_ON) for p in asked})


def study(
    title: str = "Adult, ring of 8", epsilons: Sequence[float] = (1.0,), growths: Sequence[float] = GROWTHS
) -> None:
    """A line for each growth: what was chosen, and the gap over the seeds that are shown."""
    print("epsilon  growth  step  answers  clip   gap")
    with using_cache(Cache()):
        for epsilon in epsilons:
            for growth in growths:
                v = tuned(title, epsilon, growth)
                found = median(gaps(title, epsilon, growth, v, SHOWN))
                chosen = f"{v['step_size']:<5g} {v['answers']:<8g} {v['clip']:<6.3g}"
                print(f"{epsilon:<8g} {growth:<7g} {chosen} {found.value:.5f} ± {found.error:.5f}", flush=True)
