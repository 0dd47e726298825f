"""How many rows a node needs for a loss: the question of Theorems VI.1 and VI.2 of X. Zhang, M. M. Khalili, M. Liu,
Recycled ADMM, answered by runs on made-up rows of other numbers.

The theorems say how the number grows, with constants that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from math import exp, log
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import DocumentView
from hushgrid.lab.planning.search import FIRST, HELPS, Search, description_of, line
from hushgrid.lab.planning.shape import Shape, checked, without_data
from hushgrid.lab.planning.trial import made_of, together

FEWEST = 4  #: rows of a node
MOST = 10**6


class Needed(NamedTuple):
    """Rows of the median node, and what a run with as many has given."""

    rows: int
    made: int  #: of them were made up, at most
    beyond: tuple[float, ...]  #: of each seed: expected loss beyond that of the best model of all
    without: tuple[float, ...]  #: and of the model that all rows together give without privacy: Theorem VI.1
    error: float  #: the median one, with privacy

    @property
    def middle(self) -> float:
        return float(np.median(self.beyond))


class Samples(NamedTuple):
    """The answer."""

    description: str
    measure: str  #: what `error` is
    tried: tuple[Needed, ...]  #: the fewest rows first
    enough: int | None  #: rows of the median node that are about enough; None: none are


def scaled(shape: Shape, factor: float) -> Shape:
    """The same nodes with so many times their rows."""
    return shape._replace(rows=tuple(max(FEWEST, round(m * factor)) for m in shape.rows))


def median(shape: Shape) -> int:
    return sorted(shape.rows)[len(shape.rows) // 2]


def samples(
    raw: DocumentView,
    loss: float,
    file: str = "scenario",
    *,
    rows: int | None = None,
    features: int | None = None,
    seeds: int | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Samples:
    """How many rows a node needs so that its model's expected loss is at most so far beyond the best one's.

    The scenario as it stands, with more rows or fewer. Raises InputError, one line. rows: to begin with.
    """
    shape = checked(raw, file, rows, features)
    which = range(FIRST, FIRST + (seeds or 7))

    def play(factor: float) -> tuple[Needed, Search]:
        many = scaled(shape, factor)
        with closing(Search(without_data(raw, many), many, file, workers or 1)) as search:
            search.play([search.stated], which)
            if why := next((search.known[search.stated, seed].why for seed in which), ""):
                raise InputError(why if why.startswith(file) else f"{file}: {why}")
            one = line(search, search.stated, which, "as it stands")
            without = [run.beyond[0] for run in search.each(together, [search.task(search.stated, s) for s in which])]
        say(f"{median(many):,} rows a node")
        made, error = max(made_of(many, search.plan.problem.classes)), float(np.median(one.error))
        return Needed(median(many), made, tuple(one.beyond.tolist()), tuple(without), error), search

    here, search = play(1.0)
    tried, factor = [here], 1.0
    more = here.middle > loss
    while (tried[-1].middle > loss) == more and FEWEST < tried[-1].rows < MOST:
        factor *= 4.0 if more else 0.25
        tried.append(play(factor)[0])
        if more and tried[-1].middle > tried[-2].middle * HELPS:
            break  # what is left is of the iteration or of the regularizer
    tried.sort()
    return Samples(description_of(search), search.measure, tuple(tried), between(tried, loss))


def between(tried: Sequence[Needed], loss: float) -> int | None:
    """Where the loss is met: between two numbers of rows, in logarithms."""
    enough = [k for k, one in enumerate(tried) if one.middle <= loss]
    if not enough:
        return None
    if (k := enough[0]) == 0:
        return tried[0].rows
    few, many = tried[k - 1], tried[k]
    low = max(many.middle, loss / 4)  # below zero there is no logarithm
    share = log(few.middle / loss) / log(few.middle / low)
    return round(exp(log(few.rows) + share * (log(many.rows) - log(few.rows))))
