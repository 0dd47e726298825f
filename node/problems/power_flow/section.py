"""Power flow over the zones of a case: what a scenario, a plan and a device file say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.ranges import BUSES, NODES, Bus, Case, Digest, Lipschitz, Name
from hushgrid.node.schema.sections import Section

NAME = "zones"  #: of this kind of problem, in plans and births
Solver = Literal["clarabel", "ecos", "ipopt"]


class ZonesProblem(Section, tag_field="kind", tag="zones", frozen=True, kw_only=True):
    """Power flow over the zones of a case; each zone's loads are private."""

    case: str  #: a built-in case (`hushgrid case list`) or the path of a MATPOWER .m file
    #: how many (the program draws the borders), or each zone's bus numbers
    zones: Annotated[int, Meta(ge=1)] | list[list[int]]
    solver: Solver = "clarabel"  #: of a zone's step


class ZoneData(Section, frozen=True, kw_only=True):
    """A zone controller's data: the public case, its own buses, and its private loads (bus, p_mw, q_mvar)."""

    case: str  #: the public network: a built-in case or a MATPOWER file; its loads are not used
    zone: list[int]  #: this zone's bus numbers
    loads: str  #: private: a CSV file of bus, p_mw, q_mvar
    model: str | None = None  #: the zone's public model, exported by `hushgrid case zones` [made at the start]
    solver: Solver = "clarabel"  #: of the zone's step


class ZonesPlan(Struct, tag_field="kind", tag="zones", frozen=True, forbid_unknown_fields=True):
    """The public part of a zones problem."""

    case: Case  #: the case's own name
    digest: Digest  #: of the case without its loads
    zones: Annotated[dict[Name, Annotated[list[Bus], Meta(max_length=BUSES)]], Meta(max_length=NODES)]
    L: Lipschitz  #: 2 lambda_max(A_z A_z^T), the largest over the zones

    @property
    def kind(self) -> str:
        return NAME

    @property
    def nodes(self) -> list[str]:
        return sorted(self.zones)

    @property
    def about(self) -> str:
        return f"{self.case} in {len(self.zones)} zones"

    @property
    def constants(self) -> tuple[Sequence[float], int]:
        return [self.L], 1

    @property
    def held(self) -> bool:
        """The limits of a zone hold its variables."""
        return True

    def visits(self, algorithm: Algorithm) -> int:
        return 0

    def check(self, algorithm: Algorithm) -> None:
        """Whether zones and case belong together is for a device to say, which has the case."""
