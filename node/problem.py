"""The scenario's `problem` section, one struct a kind; and which algorithm solves which."""

from __future__ import annotations

from math import inf
from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from hushgrid.kernels import (
    dgd,
    diadsp,
    dpadmm,
    dpladmm,
    dpp2,
    extra,
    iadmm,
    ladmm,
    madmm,
    nids,
    ppdc,
    radmm,
    recal,
    wadmm,
)  # fmt: skip
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ladmm import Positive
from hushgrid.kernels.losses import Kind, Nonconvex, Objective
from hushgrid.kernels.prox import Regularizer
from hushgrid.node.data import Data

Solver = Literal["clarabel", "ecos", "ipopt"]
Number = Annotated[float, Meta(ge=0, le=1e150)]

Walking = recal.Params | iadmm.Params | wadmm.Params  #: a baton walks
#: Rounds among neighbours: gradients that are mixed, and ADMM's.
Mixing = dpp2.Params | extra.Params | nids.Params | dgd.Params | diadsp.Params | ppdc.Params
Penalized = radmm.Conventional | radmm.Recycled | radmm.Params | dpadmm.Params | dpladmm.Params | madmm.Params
Algorithm = ladmm.Params | Walking | Mixing | Penalized  #: ladmm: rounds around a coordinator
ALGORITHMS: dict[str, type[Struct]] = {p.name: p for p in get_args(Algorithm)}
#: They minimise sum_i f_i(x), without r and box.
UNREGULARIZED = (iadmm.Params, dpp2.Params, diadsp.Params, ppdc.Params, radmm.Params)
#: Published variants whose papers state no epsilon beforehand: they take noise scales, and no privacy section.
SCALED = ("iadmm", "wadmm", "dpp2", "diadsp", "ppdc")


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A section of a file: unknown keys are refused."""


class ZonesProblem(Section, tag_field="kind", tag="zones", frozen=True, kw_only=True):
    """Power flow over the zones of a case; each zone's loads are private."""

    case: str
    zones: Annotated[int, Meta(ge=1)] | list[list[int]]
    solver: Solver = "clarabel"


class Elastic(Section, frozen=True, kw_only=True):
    """r(x) = l1 |x|_1 + l2/2 |x|_2^2."""

    l1: Number = 0.0
    l2: Number = 0.0


class DataProblem(Section, tag_field="kind", frozen=True, kw_only=True):
    """f_i(x) = scale * mean_j loss(x; a_j, b_j) + its public terms; each node's rows (a_j, b_j) are private."""

    kind: ClassVar[Kind]
    data: Data
    scale: Positive = 1.0
    l2: Number = 0.0
    nonconvex: Nonconvex | None = None
    regularizer: Elastic = Elastic()
    box: Positive | None = None
    row_bound: Annotated[float, Meta(gt=0, le=1e150)] | None = None

    @property
    def objective(self) -> Objective:
        """What is public of every f_i."""
        return Objective(kind=self.kind, scale=self.scale, l2=self.l2, nonconvex=self.nonconvex)

    @property
    def r(self) -> Regularizer:
        return Regularizer(l1=self.regularizer.l1, l2=self.regularizer.l2, box=self.box or inf)


class LeastSquares(DataProblem, tag_field="kind", tag="least-squares", frozen=True, kw_only=True):
    kind: ClassVar[Kind] = "least-squares"


class Logistic(DataProblem, tag_field="kind", tag="logistic", frozen=True, kw_only=True):
    kind: ClassVar[Kind] = "logistic"


class Softmax(DataProblem, tag_field="kind", tag="softmax", frozen=True, kw_only=True):
    kind: ClassVar[Kind] = "softmax"
    classes: Annotated[int, Meta(ge=2, le=10_000)] | None = None  #: C; one more than the largest label of all


Problem = ZonesProblem | LeastSquares | Logistic | Softmax
KINDS = ("zones", "least-squares", "logistic", "softmax")


def algorithms_for(kind: str) -> tuple[str, ...]:
    """The algorithms that solve problems of this kind: zones, or data (any other)."""
    return tuple(name for name in ALGORITHMS if (name == "ladmm") == (kind == "zones"))


def answered(algorithm: Algorithm, rounds: int) -> int:
    """Gate answers of each node in the first `rounds` rounds among neighbours."""
    assert not isinstance(algorithm, Walking)
    return replace(algorithm, rounds=rounds).answers


def messages(algorithm: Algorithm) -> int:
    """Messages of a round among neighbours."""
    return 2 if isinstance(algorithm, dpp2.Params) else 1


def check_fit(problem: Problem, algorithm: Algorithm, file: str) -> None:
    """InputError unless the algorithm solves this kind of problem."""
    zones = isinstance(problem, ZonesProblem)
    kind = "zones" if isinstance(problem, ZonesProblem) else problem.kind
    if zones != isinstance(algorithm, ladmm.Params):
        known = " or ".join(algorithms_for(kind))
        raise InputError(f"{file}: algorithm.name: found {algorithm.name}, expected {known} (problem.kind: {kind})")
    if isinstance(problem, ZonesProblem):
        return
    try:
        _ = problem.objective, problem.r
    except InputError as error:
        raise InputError(f"{file}: problem.{error}") from None
    guarded = algorithm.variant == "guarded"
    if guarded and problem.row_bound is None:
        raise InputError(f"{file}: problem.row_bound: missing, expected R >= |a|_2 of every row (variant: guarded)")
    if guarded and isinstance(problem, Softmax) and problem.classes is None:
        raise InputError(f"{file}: problem.classes: missing, expected the number of classes (variant: guarded)")
    if isinstance(algorithm, UNREGULARIZED):
        r = problem.regularizer
        if r.l1 or r.l2 or problem.box:
            raise InputError(
                f"{file}: problem.{'box' if problem.box else 'regularizer'}: found a value, expected none "
                f"({algorithm.name} minimises sum_i f_i(x); l2 of the problem is a part of f_i)"
            )


def minimizes(algorithm: Algorithm) -> bool:
    """Whether its nodes ask their gates for private minimisers, not for gradients."""
    if algorithm.variant == "none" or isinstance(algorithm, dpladmm.Params):
        return False
    exact = isinstance(algorithm, iadmm.Params) and algorithm.exact and algorithm.variant == "guarded"
    return exact or isinstance(algorithm, radmm.Params)


def check_minimizer(problem: Problem, algorithm: Algorithm, mechanism: str, clip: float | None, file: str) -> None:
    """InputError unless a gate can give what is asked: objective perturbation is for logistic regression, |a| <= 1."""
    if isinstance(problem, ZonesProblem) or not minimizes(algorithm):
        return
    output = isinstance(algorithm, dpadmm.Params) and algorithm.perturb == "primal"
    R = problem.row_bound or inf
    for key, wrong, found, expected in (
        ("problem.kind", problem.kind not in ("logistic", "softmax" if output else ""), problem.kind, "logistic"),
        ("problem.nonconvex", problem.nonconvex is not None, "a term", "none"),
        ("problem.row_bound", R > 1, f"{R:g}", "at most 1"),
        ("privacy.adjacency", clip is None or clip < R, f"clip {clip}", f"replace-one-record, clip at least {R:g}"),
        ("privacy.mechanism", mechanism != "laplace" and not output, mechanism, "laplace"),
    ):
        if wrong:
            raise InputError(
                f"{file}: {key}: found {found}, expected {expected} ({algorithm.name}: private minimisers)"
            )
