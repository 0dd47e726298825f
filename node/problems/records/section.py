"""Problems whose data are rows of records: what a scenario, a plan and a device file say of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Declared, Nonconvex, Objective
from hushgrid.kernels.problems.losses import Kind as LossKind
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.ranges import (
    ENTRIES,
    NODES,
    Classes,
    Digest,
    Features,
    Magnitude,
    RowCount,
    Seed,
    Weight,
)
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.on_graph import ClosedWalk, Constants, Edges, Ids, OnGraph, RouteIs
from hushgrid.node.problems.records.data import Data
from hushgrid.node.schema.sections import Section

NAME = "data"  #: of this kind of problem, in plans and births

#: Of least squares. The gate counts on it under bounded-change, whose rounding grows with labels
#: (rows_gate.LABEL_BOUND).
Label = Annotated[float, Meta(ge=-1e4, le=1e4)]


class Elastic(Section, frozen=True, kw_only=True):
    """r(x) = l1 |x|_1 + l2/2 |x|_2^2."""

    l1: Weight = 0.0  #: weight of |x|_1
    l2: Weight = 0.0  #: weight of 1/2 |x|_2^2


class DataProblem(Section, tag_field="kind", frozen=True, kw_only=True):
    """f_i(x) = scale * mean_j loss(x; a_j, b_j) + its public terms; each node's rows (a_j, b_j) are private."""

    kind: ClassVar[LossKind]
    counts_classes: ClassVar[bool] = False  #: whether labels are classes, whose number is public
    data: Data  #: where the rows are
    #: factor of the mean loss; share: m_i/sum m, so that sum_i f_i is the mean loss over all rows
    scale: Magnitude | Literal["share"] = 1.0
    l2: Weight = 0.0  #: ridge: l2/2 |x|^2 in every f_i
    nonconvex: Nonconvex | None = None  #: a penalty that stops growing, in every f_i
    regularizer: Elastic = Elastic()  #: r(x), common to all: the network minimises sum_i f_i(x) + n r(x)
    box: Magnitude | None = None  #: |x_k| <= box, a hard constraint
    row_bound: Magnitude | None = None  #: R >= |a|_2 of every row, public; required of guarded [the largest row norm]
    #: A file of rows that the model is tested on, in any format that nodes' rows have. Nothing protects them:
    #: they are public
    test: str | None = None

    @property
    def declared_classes(self) -> int | None:
        """C as the scenario states it; 1 of what has none; None: one more than the largest label of all."""
        return getattr(self, "classes", None) if self.counts_classes else 1

    @property
    def objective(self) -> Objective:
        """What is public of every f_i; under `scale: share` each has its own scale (`DataPlan.own`)."""
        scale = 1.0 if self.scale == "share" else self.scale
        return Objective(kind=self.kind, scale=scale, l2=self.l2, nonconvex=self.nonconvex)

    @property
    def r(self) -> Regularizer:
        return Regularizer(l1=self.regularizer.l1, l2=self.regularizer.l2, box=self.box or inf)


class LeastSquares(DataProblem, tag_field="kind", tag="least-squares", frozen=True, kw_only=True):
    kind: ClassVar[LossKind] = "least-squares"


class Logistic(DataProblem, tag_field="kind", tag="logistic", frozen=True, kw_only=True):
    kind: ClassVar[LossKind] = "logistic"


class Softmax(DataProblem, tag_field="kind", tag="softmax", frozen=True, kw_only=True):
    kind: ClassVar[LossKind] = "softmax"
    counts_classes: ClassVar[bool] = True
    #: C; required of guarded [one more than the largest label of all]
    classes: Annotated[int, Meta(ge=2, le=10_000)] | None = None


def shared(objective: Objective, rows: Sequence[int], i: int) -> Objective:
    """The objective of node i under `scale: share`. rows: m of every node."""
    return replace(objective, scale=rows[i] / sum(rows))


class Labels(Section, frozen=True, kw_only=True):
    """The public range of a device's labels b: `classes` (softmax, or logistic: 2),
    or `low` and `high` (least squares).

    A label beyond the range is moved into it (`node.rows.clamped`), so that no refusal depends on a label.
    """

    classes: Annotated[int, Meta(ge=2, le=10_000)] | None = None  #: C: softmax 0..C-1; 2: logistic, by sign
    low: Label | None = None  #: least squares
    high: Label | None = None  #: least squares

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if self.classes is not None:
            good = ends == (None, None)
        else:
            good = self.low is not None and self.high is not None and self.low < self.high
        if not good:
            keys = {"classes": self.classes, "low": self.low, "high": self.high}
            written = ", ".join(f"{key}: {value}" for key, value in keys.items() if value is not None)
            raise InputError(f"labels: found {written or 'nothing'}, expected classes, or low and high with low < high")

    def __str__(self) -> str:
        return f"{self.classes} classes" if self.classes else f"{self.low:g} to {self.high:g}"

    def fit(self, kind: LossKind, classes: int) -> bool:
        """Whether a problem of this kind, with so many classes if it is softmax, is one for such labels."""
        if self.classes is None:
            return kind == "least-squares"
        return (kind, classes) == ("softmax", self.classes) or (kind, self.classes) == ("logistic", 2)


class DeclaredProblem(Section, frozen=True, kw_only=True):
    """What gives `bounded-change` of rows its meaning: under another of these numbers the same unit protects less."""

    kind: LossKind  #: of the loss
    scale: Magnitude  #: of f_i, as in the scenario
    row_bound: Magnitude  #: R >= |a|_2 of every row, as in the scenario

    def __str__(self) -> str:
        return f"{self.kind}, scale {self.scale!r}, row_bound {self.row_bound!r}"


def minimised(algorithm: Algorithm) -> str:
    """What an algorithm minimises that does not take all of a problem."""
    if algorithm.constrained == "no":
        return "sum_i f_i(x)"
    beyond = (
        f" if {algorithm.box_only_with[0]} is above {algorithm.box_only_with[1]}" if algorithm.box_only_with else ""
    )
    return f"sum_i f_i(x) over a box{beyond}"


def unsolved(algorithm: Algorithm, l1: float, l2: float, box: float | None) -> str | None:
    """What of a problem an algorithm cannot solve, regularizer or box; None if it solves it. l1, l2: of r(x)."""
    key, most = algorithm.box_only_with or ("", 0)
    if (l1 or l2) and (algorithm.constrained != "all" or (key and getattr(algorithm, key) > most)):
        return "regularizer"
    return "box" if box and algorithm.constrained == "no" else None


class DataPlan(OnGraph, tag_field="kind", tag="data", frozen=True, kw_only=True):
    """The public part of a data problem; node i of the network is called n<i>."""

    objective: Objective
    l1: Weight
    l2: Weight
    box: Magnitude | None
    row_bound: Magnitude | None
    features: Features  #: q
    classes: Classes  #: C of softmax, else 1
    rows: Annotated[list[RowCount], Meta(max_length=NODES)]  #: m_i
    L: Constants  #: L_i: of the row bound, or (variant none, where nothing is private) of the largest row
    edges: Edges
    route: ClosedWalk
    route_is: RouteIs
    walk_seed: Seed | None  #: of a seeded run; else a random walk is a function of the run's id
    digest: Digest = ""  #: rows have no public part but what stands here
    share: Literal[True] | UnsetType = UNSET  #: whether the scale of f_i is m_i/sum m
    present: Ids | UnsetType = UNSET  #: the numbers of the nodes, of a run without some; L, rows and edges are theirs

    @property
    def size(self) -> int:
        """d, the length of x."""
        return self.features * self.classes

    @property
    def dimension(self) -> int:
        """q"""
        return self.features

    @property
    def regularizer(self) -> Regularizer:
        return Regularizer(l1=self.l1, l2=self.l2, box=self.box or inf)

    @property
    def constrained(self) -> bool:
        """Whether there is a regularizer or a box."""
        return bool(self.l1 or self.l2 or self.box)

    @property
    def description(self) -> str:
        return f"{self.objective.kind}, {self.features} features, {len(self.rows)} nodes"

    @property
    def held(self) -> bool:
        """A box holds the iterates."""
        return self.box is not None

    @property
    def convexity(self) -> float:
        return self.objective.convexity

    def node_objective(self, i: int) -> Objective:
        """What is public of f_i."""
        return self.objective if self.share is UNSET else shared(self.objective, self.rows, i)

    def declared(self, i: int) -> Declared:
        """f_i without its data."""
        return Declared(self.node_objective(i), self.rows[i], self.features, self.classes, self.row_bound)

    def moved(self, i: int, t: Terms) -> float:
        """How far one change moves node i's clipped gradient, in L2."""
        return self.declared(i).sensitivity(t.clip, t.records)

    def largest(self, i: int, t: Terms) -> float:
        """No entry of that gradient is beyond it."""
        return t.clip * self.node_objective(i).scale

    def check(self, algorithm: Algorithm) -> None:
        """Raises InputError unless its parts belong together: a device computes with them, whoever wrote them."""
        n = len(self.rows)
        if len(self.L) != n or (self.classes > 1) != (self.objective.kind == "softmax"):
            raise InputError("plan: found numbers of rows, classes or L that do not fit, expected a problem")
        if self.size > ENTRIES:
            raise InputError(
                f"plan: found {self.features} features of {self.classes} classes, expected at most {ENTRIES}"
            )
        if self.row_bound is not None:
            expected = [self.node_objective(i).lipschitz(self.row_bound) for i in range(n)]
            if not all(abs(stated - L) <= 1e-9 * L for stated, L in zip(self.L, expected, strict=True)):
                raise InputError(
                    f"plan: L: found numbers from {min(self.L):g} to {max(self.L):g}, expected {min(expected):g}"
                )
        if unsolved(algorithm, self.l1, self.l2, self.box) is not None:
            raise InputError(
                f"plan: found l1, l2 or a box, expected none ({algorithm.name} minimises {minimised(algorithm)})"
            )
        super().check(algorithm)
