"""Statistics of records that are summed over nodes: what a scenario and a plan say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, cast, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.problems.losses import Kind as LossKind
from hushgrid.kernels.problems.statistics import STATISTICS, AnyStatistic, Order, Statistic
from hushgrid.kernels.ranges import NODES, Digest, Features, RowCount
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.on_graph import Ids, OnGraph, RouteIs
from hushgrid.node.problems.records.data import Data
from hushgrid.node.schema.sections import Section

NAME = "statistics"  #: of this kind of problem, in plans


class StatisticProblem(Section, tag_field="kind", frozen=True, kw_only=True):
    """S = sum_i S_i, each node's S_i a sum over its own records; each node's rows (a_j, b_j) are private."""

    kind: ClassVar[LossKind] = "least-squares"  #: how labels are read: any number is one
    described_by: ClassVar[tuple[type, ...]] = ()  #: the classes whose comments say what the other keys mean
    data: Data  #: where the rows are

    @property
    def statistic(self) -> Statistic:
        statistic = STATISTICS[str(self.__struct_config__.tag)]
        return statistic(**{key: getattr(self, key) for key in statistic.__struct_fields__})


def section_of(statistic: type[Statistic]) -> type[StatisticProblem]:
    """The scenario section of a statistic: `data`, and the statistic's own keys, each with its default."""
    hints = get_type_hints(statistic, include_extras=True)
    keys = [
        (f.name, hints[f.name]) if f.required else (f.name, hints[f.name], f.default)
        for f in msgspec.structs.fields(statistic)
    ]
    section = msgspec.defstruct(
        f"{statistic.__name__}Problem",
        keys,
        bases=(StatisticProblem,),
        namespace={"described_by": statistic.__mro__, "__module__": __name__, "__doc__": statistic.__doc__},
        tag_field="kind",
        tag=str(statistic.__struct_config__.tag),
        frozen=True,
        kw_only=True,
    )
    return cast(type[StatisticProblem], section)


SECTIONS: tuple[type[StatisticProblem], ...] = tuple(section_of(statistic) for statistic in STATISTICS.values())
globals().update(
    {section.__name__: section for section in SECTIONS}
)  # pickled by name: a sweep's workers get scenarios


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
        """Raises InputError unless its parts belong together: a device computes with them, whoever wrote them."""
        super().check(algorithm)
        try:
            self.statistic.check(self.features)
        except InputError as error:
            raise InputError(f"plan: problem: {error}") from None
