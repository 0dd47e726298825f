"""Statistics of records that are summed over nodes: what a scenario and a plan say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems import statistics
from hushgrid.kernels.problems.losses import Kind as LossKind
from hushgrid.kernels.problems.statistics import FINEST, AnyStatistic, Column, Columns, Edge, Order
from hushgrid.kernels.ranges import NODES, Digest, Features, RowCount
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.on_graph import Ids, OnGraph, RouteIs
from hushgrid.node.problems.records.data import Data
from hushgrid.node.schema.sections import Section

NAME = "statistics"  #: of this kind of problem, in plans
Edges = Annotated[tuple[Edge, ...], Meta(min_length=2, max_length=FINEST)]


class StatisticProblem(Section, tag_field="kind", frozen=True, kw_only=True):
    """S = sum_i S_i, each node's S_i a sum over its own records; each node's rows (a_j, b_j) are private."""

    kind: ClassVar[LossKind] = "least-squares"  #: how labels are read: any number is one
    data: Data  #: where the rows are

    @property
    def statistic(self) -> AnyStatistic:
        raise NotImplementedError


class HistogramProblem(StatisticProblem, tag_field="kind", tag="histogram", frozen=True, kw_only=True):
    column: Column  #: which number of a record is counted: 0 to q - 1 its features, q its label
    edges: Edges  #: of the bins, ascending; what lies beyond is counted in the first or the last

    @property
    def statistic(self) -> AnyStatistic:
        return statistics.Histogram(column=self.column, edges=self.edges)


class TotalProblem(StatisticProblem, tag_field="kind", tag="total", frozen=True, kw_only=True):
    columns: Columns | None = None  #: which numbers of a record are added [all features]
    nonnegative: bool = False  #: a number below zero counts as zero, and noise is less by sqrt 2 (gaussian)

    @property
    def statistic(self) -> AnyStatistic:
        return statistics.Total(columns=self.columns, nonnegative=self.nonnegative)


class MeanProblem(TotalProblem, tag_field="kind", tag="mean", frozen=True, kw_only=True):
    @property
    def statistic(self) -> AnyStatistic:
        return statistics.Mean(columns=self.columns, nonnegative=self.nonnegative)


class GramProblem(StatisticProblem, tag_field="kind", tag="gram", frozen=True, kw_only=True):
    columns: Columns | None = None  #: whose products are added [all features and the label]

    @property
    def statistic(self) -> AnyStatistic:
        return statistics.Gram(columns=self.columns)


def order_of(t: Terms) -> Order:
    """The norm in which sensitivities are measured."""
    return 1 if t.mechanism == "laplace" else 2


class StatisticsPlan(OnGraph, tag_field="kind", tag="statistics", frozen=True, kw_only=True):
    """The public part of such a problem."""

    statistic: AnyStatistic
    features: Features  #: q
    rows: Annotated[list[RowCount], Meta(min_length=1, max_length=NODES)]  #: m_i
    digest: Digest = ""  #: rows have no public part but what stands here
    present: Ids | UnsetType = UNSET  #: the numbers of the nodes, of a run without some; rows are theirs

    @property
    def L(self) -> list[float]:
        """Nothing is minimised: S_i is the gradient of <S_i, x>, which is the same everywhere."""
        return [0.0] * len(self.rows)

    @property
    def edges(self) -> list[tuple[int, int]]:
        return []

    @property
    def route(self) -> list[int]:
        return []

    @property
    def route_is(self) -> RouteIs:
        return "rounds"

    @property
    def walk_seed(self) -> int | None:
        return None

    @property
    def size(self) -> int:
        """d, the entries of the sum."""
        return self.statistic.size(self.features)

    @property
    def dimension(self) -> int:
        """q"""
        return self.features

    @property
    def description(self) -> str:
        return f"{self.statistic.name} of {self.size} entries, {self.features} features, {len(self.rows)} nodes"

    @property
    def held(self) -> bool:
        return True

    def moved(self, i: int, t: Terms) -> float:
        """How far one change moves S_i, in the norm of the mechanism."""
        return self.statistic.sensitivity(order_of(t), t.clip, self.features, self.rows[i], t.records)

    def largest(self, i: int, t: Terms) -> float:
        """No entry of S_i is beyond it."""
        return self.rows[i] * self.statistic.longest(t.clip)

    def names(self, features: Sequence[str] = ()) -> list[str]:
        """Of a record's numbers, its label last."""
        return [*(features or map(str, range(self.features))), "label"]

    def among(self, present: Sequence[str]) -> StatisticsPlan:
        """The same without the nodes that are not there."""
        members = [i for i, node in enumerate(self.nodes) if node in present]
        numbers = [self.ids[i] if self.ids else i for i in members]
        return msgspec.structs.replace(self, rows=[self.rows[i] for i in members], present=numbers)

    def check(self, algorithm: Algorithm) -> None:
        """InputError unless its parts belong together: a device computes with them, whoever wrote them."""
        super().check(algorithm)
        try:
            self.statistic.check(self.features)
        except InputError as error:
            raise InputError(f"plan: problem: {error}") from None
