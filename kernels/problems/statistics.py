"""Statistics that are sums over records: S(A, b) = sum_j phi(a_j), where (a_j, b_j) is a record of q features and a
label.

Columns of a record are numbered 0 to q - 1, and the label is column q.

 - histogram  phi = e_k, k the bin of one column; what lies beyond the edges is counted in the first or the last bin.
 - median     the same sum; the median is read off the noisy counts (post-processing).
 - total      phi = the columns v, shortened to |v| <= c: kWh of each hour of a day, say.
 - mean       the same, and divided by the number of records, which is public, where it is shown.
 - gram       phi = v v', v the columns shortened to |v| <= c. Its upper triangle by rows; entries beside the diagonal
   times
              sqrt 2, so that |phi|_2 is Frobenius' norm and noise on them counts half.

**Sensitivity.** One record replaced moves S by phi(a) - phi(a'), k of them by at most k times as much:

    histogram  |e_k - e_l|_2 <= sqrt 2,  |e_k - e_l|_1 <= 2
    total      |u - v| <= 2 c in L1 and L2;  sqrt 2 c in L2 where no entry is negative, for then <u, v> >= 0
    gram       |u u' - v v'|_F <= sqrt 2 c^2, for <u u', v v'> = (u . v)^2 >= 0

**No rounding.** phi is truncated, towards zero, to integers in steps of a power of two, which shortens it and changes
no sign; integers are added exactly, and brought to the noise's grid in integers. So the sensitivity is that of the
integers, and the order of records, the number of threads and the compiler change nothing. Before that v is shortened to
c (1 - 2^-30): the rounding of a norm of q entries, (q + 8) 2^-53, is less. A product of floats that is truncated is no
square any more: gram's bound has 2 e more, e = ceil(sqrt d) steps + 2^-50 c^2.

**Time.** Whoever asks sees how long an answer takes. So each record takes the same operations, whatever is in it, and
what is looked up by it lies in a processor's first cache: numpy's own search takes five times as long over values in
disorder as over equal ones (`hushgrid bench timing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, frexp, inf, log2, nan, nextafter, sqrt
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import ENTRIES
from hushgrid.kernels.types import DocumentView, Index, Matrix, Vector

Order = Literal[1, 2]  #: of the norm: 1 under Laplace noise, 2 under Gaussian
Column = Annotated[int, Meta(ge=0, le=ENTRIES)]
Columns = Annotated[tuple[Column, ...], Meta(min_length=1, max_length=10_000)]
Flags = NDArray[np.bool_]
Edge = Annotated[float, Meta(ge=-1e12, le=1e12)]

WORD = 61  #: bits of a sum of integers
SHORT = 1 - 2.0**-30  #: of c
AT_ONCE = 1 << 20  #: entries of phi that are computed together
FINEST = 2048  #: edges of a histogram: 16 kB, and as much for its counts
Edges = Annotated[tuple[Edge, ...], Meta(min_length=2, max_length=FINEST)]


def norm(v: Matrix, order: Order) -> Vector:
    """(m,) of the rows."""
    lengths: Vector = np.sum(np.abs(v), axis=1) if order == 1 else np.linalg.norm(v, axis=1)
    return lengths


class Statistic(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="name"):
    """One question to a gate: its keys in scenario and plan, its sensitivity, the sum itself, and its words.

    A subclass is all there is to say of it: the scenario's section, the plan, the gate, what an owner may narrow, the
    tables and the reports are made from it. c: the clip; k: records that one change replaces; m: records of a node.
    """

    orders: ClassVar[tuple[Order, ...]] = (1, 2)
    shortened: ClassVar[bool] = True  #: a record's columns are shortened to c; else it counts once, and c is 1
    in_order: ClassVar[bool] = True  #: neighbouring entries belong together: a report draws them as bars
    plural: ClassVar[str]  #: what several of it are called
    example: ClassVar[DocumentView] = {}  #: keys with which audits and tests ask it

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)

    def check(self, features: int) -> None:
        """Raises InputError unless it is a statistic of records of so many features."""
        read = self.read(features)
        if len({*read}) < len(read):  # else few features could be made as much work as many
            raise InputError(f"columns: found {len(read)}, some of them twice, expected each once")
        if (beyond := max(read)) > features:
            raise InputError(f"column: found {beyond}, expected 0 to {features} (the label is {features})")
        if self.size(features) > ENTRIES:
            raise InputError(f"columns: found {self.size(features)} entries of a sum, expected at most {ENTRIES}")

    def read(self, features: int) -> tuple[int, ...]:
        """The columns that it reads."""
        raise NotImplementedError

    def size(self, features: int) -> int:
        """d, the entries of S."""
        raise NotImplementedError

    def longest(self, c: float) -> float:
        """|phi| is at most that; so is each entry."""
        raise NotImplementedError

    def moved(self, order: Order, c: float, features: int, rows: int) -> Fraction:
        """|phi(a) - phi(a')| is at most that, of integers as `total` adds them."""
        raise NotImplementedError

    def phi(self, V: Matrix) -> Matrix:
        """(m, d) of the columns read, V (m, r), shortened."""
        raise NotImplementedError

    def entries(self, names: Sequence[str]) -> list[str]:
        """The names of the rows of `estimates`. `names`: of a record's numbers, the label last."""
        raise NotImplementedError

    def unit(self, features: int, rows: int) -> Vector:
        """(d,) by what the entries of S, over so many records, are multiplied in the tables."""
        return np.ones(self.size(features))

    def estimates(self, S: Vector, sd: float, features: int, rows: int) -> tuple[Vector, Vector]:
        """What S (d,) over so many records says, and the standard deviations that noise of `sd` an entry gives it."""
        unit = self.unit(features, rows)
        return S * unit, sd * unit

    @classmethod
    def added(cls, rows: int) -> str:
        """What has been added up, in a few words. `rows`: of `estimates`."""
        return f"a {cls.__struct_config__.tag} of {rows:,} entr{'y' if rows == 1 else 'ies'}"

    @classmethod
    def reveals(cls, records: int, columns: str, edges: Sequence[float] | None) -> str:
        """What answers to it may tell, for an owner.

        `columns`, `edges`: what it is narrowed to; None: whatever edges.
        """
        return f"the sum over its {records} records of {columns}"

    # --- whatever the statistic ---

    def sensitivity(self, order: Order, c: float, features: int, rows: int, k: int = 1) -> float:
        """How far k records replaced move S, rounded up."""
        return _up(k * self.moved(order, c, features, rows))

    def step(self, c: float, rows: int) -> float:
        """A power of two: the unit of the integers that are added, of which `rows` sums fit a word."""
        _, exponent = frexp(self.longest(c))
        return float(2.0 ** (exponent - (WORD - ceil(log2(rows)) if rows > 1 else WORD)))

    def total(self, A: Matrix, b: Vector, c: float, order: Order, counted: Flags | None = None) -> Index:
        """(d,) S of records A (m, q), b (m,), in steps. Its sensitivity is `sensitivity`'s, exactly.

        `counted` (m,): those of the records that count [all]; it takes the same time whichever they are.
        """
        m, q = A.shape
        step, total = self.step(c, m), np.zeros(self.size(q), dtype=np.int64)
        for V in map(self.taken, self._parts(A, b) if counted is None else self._parts(*_blank(A, b, counted))):
            long = norm(V, order)
            V = V * (c * SHORT / np.maximum(long, c * SHORT))[:, None]
            total += np.trunc(self.phi(V) / step).astype(np.int64).sum(axis=0)
        return total

    def plain(self, A: Matrix, b: Vector) -> Vector:
        """(d,) S in floating point, of records that nothing shortens."""
        total = np.zeros(self.size(A.shape[1]))
        for V in map(self.taken, self._parts(A, b)):
            total += self.phi(V).sum(axis=0)
        return total

    def on_grid(self, A: Matrix, b: Vector, c: float, order: Order, g: float, counted: Flags | None = None) -> Index:
        """(d,) S in steps of g, a power of two, rounded to the nearest. `counted`: as in `total`."""
        exact, step = self.total(A, b, c, order, counted), self.step(c, len(b))
        if g <= step:
            return exact * round(step / g)
        shift = round(log2(g / step))
        return (exact + (1 << (shift - 1))) >> shift if shift < WORD else np.zeros_like(exact)

    def taken(self, V: Matrix) -> Matrix:
        """The columns read, before they are shortened."""
        return V

    def _parts(self, A: Matrix, b: Vector) -> Iterator[Matrix]:
        """The columns read, so many records at a time."""
        read, q = self.read(A.shape[1]), A.shape[1]
        at_once = max(1, AT_ONCE // self.size(q))
        for start in range(0, len(b), at_once):
            part = slice(start, start + at_once)
            yield np.column_stack([b[part] if k == q else A[part, k] for k in read])


class Histogram(Statistic, tag_field="name", tag="histogram", frozen=True, kw_only=True):
    """How many records have their column in [edges[k], edges[k+1])."""

    shortened: ClassVar[bool] = False
    plural: ClassVar[str] = "histograms"
    example: ClassVar[DocumentView] = {"column": 0, "edges": [-1.0, 0.0, 1.0]}
    column: Column  #: which number of a record is counted: 0 to q - 1 its features, q its label
    edges: Edges  #: of the bins, ascending; what lies beyond is counted in the first or the last

    def check(self, features: int) -> None:
        super().check(features)
        if not all(low < high for low, high in pairwise(self.edges)):
            raise InputError("edges: found two that do not ascend, expected each above the one before it")

    def read(self, features: int) -> tuple[int, ...]:
        return (self.column,)

    def size(self, features: int) -> int:
        return len(self.edges) - 1

    def longest(self, c: float) -> float:
        return 1.0

    def moved(self, order: Order, c: float, features: int, rows: int) -> Fraction:
        return Fraction(2) if order == 1 else _root_up(Fraction(2))

    def total(self, A: Matrix, b: Vector, c: float, order: Order, counted: Flags | None = None) -> Index:
        return self._counts(A, b, counted) * round(1 / self.step(c, len(b)))

    def plain(self, A: Matrix, b: Vector) -> Vector:
        return self._counts(A, b).astype(np.float64)

    def _counts(self, A: Matrix, b: Vector, counted: Flags | None = None) -> Index:
        v, k = b if self.column == A.shape[1] else A[:, self.column], len(self.edges) - 1
        bins = np.clip(_reached(np.array(self.edges), v) - 1, 0, k - 1)
        if counted is not None:  # a record that does not count is in no bin
            bins = np.where(counted, bins, k)
        return np.bincount(bins, minlength=k + 1)[:k].astype(np.int64)

    def entries(self, names: Sequence[str]) -> list[str]:
        return [f"{low:g} to {high:g}" for low, high in pairwise(self.edges)]

    @classmethod
    def reveals(cls, records: int, columns: str, edges: Sequence[float] | None) -> str:
        bins = "each bin, whatever the bins" if edges is None else f"each bin of {edges[0]:g} to {edges[-1]:g}"
        return f"how many of its {records} records lie in {bins}, by {columns}"


class Median(Histogram, tag_field="name", tag="median", frozen=True, kw_only=True):
    """The median of a column, read off a noisy histogram: what travels, and what it costs, is the histogram.

    Counts below zero are taken for zero; within its bin the median lies where a straight line has it. Its error has two
    parts: a bin's width, which is public, and the noise.
    """

    in_order: ClassVar[bool] = False
    plural: ClassVar[str] = "medians"

    @classmethod
    def added(cls, rows: int) -> str:
        return f"a histogram of {rows - 1:,} bins, for its median,"

    def entries(self, names: Sequence[str]) -> list[str]:
        return [f"median of {names[self.column]}", *super().entries(names)]

    def estimates(self, S: Vector, sd: float, features: int, rows: int) -> tuple[Vector, Vector]:
        """The median, then the counts.

        Its deviation is that of the records counted below it, over how densely they lie there.

        The median is nan if no count is above zero.
        """
        counts = np.maximum(S, 0.0)
        below = np.concatenate([[0.0], np.cumsum(counts)])
        half, median, spread = below[-1] / 2, nan, inf
        if half > 0:
            k = int(np.searchsorted(below, half)) - 1  # below[k] < half <= below[k + 1]
            low, high = self.edges[k : k + 2]
            width = (high - low) / counts[k]  # of one record
            median, spread = low + width * (half - below[k]), width * sd * sqrt(len(S)) / 2
        return np.append(median, S), np.append(spread, np.full(len(S), sd))


class Total(Statistic, tag_field="name", tag="total", frozen=True, kw_only=True):
    """The sum of columns."""

    plural: ClassVar[str] = "totals"
    columns: Columns | None = None  #: which numbers of a record are added [all features]
    nonnegative: bool = False  #: a number below zero counts as zero, and noise is less by sqrt 2 (gaussian)

    def read(self, features: int) -> tuple[int, ...]:
        return self.columns or tuple(range(features))

    def size(self, features: int) -> int:
        return len(self.columns) if self.columns else features

    def longest(self, c: float) -> float:
        return c

    def moved(self, order: Order, c: float, features: int, rows: int) -> Fraction:
        return Fraction(c) * (_root_up(Fraction(2)) if self.nonnegative and order == 2 else 2)

    def taken(self, V: Matrix) -> Matrix:
        return np.maximum(V, 0.0) if self.nonnegative else V

    def phi(self, V: Matrix) -> Matrix:
        return V

    def entries(self, names: Sequence[str]) -> list[str]:
        return [names[k] for k in self.read(len(names) - 1)]


class Mean(Total, tag_field="name", tag="mean", frozen=True, kw_only=True):
    """Their mean over all records."""

    plural: ClassVar[str] = "means"
    example: ClassVar[DocumentView] = {"nonnegative": True}

    def unit(self, features: int, rows: int) -> Vector:
        return np.full(self.size(features), 1 / rows)


class Gram(Statistic, tag_field="name", tag="gram", frozen=True, kw_only=True):
    """V'V of columns: all that least squares need of the records."""

    orders: ClassVar[tuple[Order, ...]] = (2,)
    in_order: ClassVar[bool] = False
    plural: ClassVar[str] = "Gram matrices"
    columns: Columns | None = None  #: whose products are added [all features and the label]

    def read(self, features: int) -> tuple[int, ...]:
        return self.columns or tuple(range(features + 1))

    def size(self, features: int) -> int:
        r = len(self.read(features))
        return r * (r + 1) // 2

    def longest(self, c: float) -> float:
        return c * c

    def moved(self, order: Order, c: float, features: int, rows: int) -> Fraction:
        c2 = Fraction(c) ** 2
        e = ceil(sqrt(self.size(features))) * Fraction(self.step(c, rows)) + c2 / 2**50
        return _root_up(2 * c2**2) + 2 * e

    def phi(self, V: Matrix) -> Matrix:
        i, j = np.triu_indices(V.shape[1])
        return V[:, i] * V[:, j] * np.where(i == j, 1.0, sqrt(2))

    def entries(self, names: Sequence[str]) -> list[str]:
        read = self.read(len(names) - 1)
        return [f"{names[a]} * {names[b]}" for k, a in enumerate(read) for b in read[k:]]

    def unit(self, features: int, rows: int) -> Vector:
        i, j = np.triu_indices(len(self.read(features)))
        return np.where(i == j, 1.0, sqrt(0.5))

    def matrix(self, products: Vector) -> Matrix:
        """(r, r) V'V of its upper triangle, as `estimates` gives it."""
        r = round((sqrt(8 * products.size + 1) - 1) / 2)
        i, j = np.triu_indices(r)
        matrix = np.zeros((r, r))
        matrix[i, j] = matrix[j, i] = products
        return matrix

    @classmethod
    def reveals(cls, records: int, columns: str, edges: Sequence[float] | None) -> str:
        return f"sums of products, so how they go together, over its {records} records of {columns}"


AnyStatistic = Histogram | Total | Mean | Gram | Median
STATISTICS: dict[str, type[Statistic]] = {str(s.__struct_config__.tag): s for s in get_args(AnyStatistic)}  #: by kind


def _reached(edges: Vector, v: Vector) -> Index:
    """How many of the ascending edges are at most v, for each of v: bisection, the same steps for all."""
    steps = len(edges).bit_length()
    padded = np.append(edges, np.full((1 << steps) - len(edges), inf))
    counts = np.zeros(len(v), dtype=np.int64)
    for k in reversed(range(steps)):
        counts += (padded[counts + ((1 << k) - 1)] <= v).astype(np.int64) << k
    return counts


def _blank(A: Matrix, b: Vector, counted: Flags) -> tuple[Matrix, Vector]:
    """Records of zeros in place of those that do not count: they add nothing to a sum of columns or of their
    products.
    """
    return np.where(counted[:, None], A, 0.0), np.where(counted, b, 0.0)


def _up(x: Fraction) -> float:
    """The least float >= x."""
    y = float(x)
    return y if y >= x else nextafter(y, inf)


def _root_up(x: Fraction) -> Fraction:
    """A number that is at least the root of x, by few roundings."""
    root = Fraction(sqrt(x))
    while root**2 < x:
        root += root * Fraction(2) ** -53
    return root
