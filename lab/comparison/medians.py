"""The median of a figure over seeds, how sure it is, and how two points differ under the same noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[np.float64]


class Median(NamedTuple):
    """Of n values that are finite."""

    n: int
    value: float
    error: float  #: its standard error; nan of fewer than two values
    low: float  #: the first quartile
    high: float  #: the third


def median(values: Array) -> Median:
    """values: (n,); those that are not finite are left out.

    The standard error is that of the bootstrap without its resamples: the k-th smallest of n values is the median of a
    sample from them with the weight that Beta((n + 1)/2, (n + 1)/2) gives to ((k - 1)/n, k/n) (J. Maritz, R. Jarrett, A
    note on estimating the variance of the sample median, J. Amer. Statist. Assoc. 73 (1978)).
    """
    known = np.sort(values[np.isfinite(values)])
    n = known.size
    if n == 0:
        return Median(0, nan, nan, nan, nan)
    error = nan
    if n > 1:
        from scipy.special import betainc

        weights = np.diff(betainc((n + 1) / 2, (n + 1) / 2, np.arange(n + 1) / n))
        mean = float(weights @ known)
        error = sqrt(float(weights @ (known - mean) ** 2))
    low, value, high = (float(q) for q in np.quantile(known, (0.25, 0.5, 0.75)))
    return Median(n, value, error, low, high)


def numbers(frame: DataFrame, name: str) -> Array:
    """A column as floats, NaN where a cell is empty."""
    return np.asarray(frame[name].to_numpy(dtype="float64", na_value=nan))


def differences(ours: DataFrame, theirs: DataFrame, name: str) -> Array:
    """ours - theirs of a figure, seed by seed. Shape (seeds that both have,)."""
    both = ours.merge(theirs, on="seed", suffixes=("", " of the other"))
    return numbers(both, name) - numbers(both, f"{name} of the other")


def groups(frame: DataFrame) -> Iterator[tuple[dict[str, object], DataFrame]]:
    """The runs of each point, in the grid's order, with the point's values by key."""
    over = frame.attrs["over"]
    for _, runs in frame.groupby("point", sort=True):
        yield {key: runs[key].iloc[0] for key in over}, runs


def medians(frame: DataFrame, figures: Sequence[str]) -> DataFrame:
    """A row a point: its values, how many of its runs are done, and of each figure the median and its standard
    error.
    """
    from pandas import DataFrame

    rows = []
    for values, runs in groups(frame):
        done = runs[runs["status"] == "done"]
        row = values | {"runs": len(runs), "done": len(done)}
        row |= {key: " or ".join(sorted({*done[key]})) for key in ("dp",) if key not in values}
        for name in figures:
            value = median(numbers(done, name))
            row |= {name: value.value, f"{name}_se": value.error}
        rows.append(row)
    return DataFrame(rows)
