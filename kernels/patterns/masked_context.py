"""What the machines of a masked run are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.patterns.star import Prox
from hushgrid.kernels.types import Index, Vector

Words = NDArray[np.uint64]


class Masks(Protocol):
    """The pads of one device in one run."""

    def introduction(self) -> Introduction:
        """Its key of this run, signed: the same one after a restart."""
        ...

    def meet(self, introductions: Mapping[str, Introduction]) -> None:
        """Checks all introductions, its own among them, and keeps them with the run. Raises Refused."""
        ...

    def picks(self, among: Sequence[str], k: int) -> tuple[str, ...]:
        """k others of this set, sorted, that nobody else can foresee: for the same set the same ones."""
        ...

    def pad(
        self,
        round: int,
        attempt: int,
        among: Sequence[str],
        x: Vector,
        size: int,
        neighbours: Mapping[str, bytes] | None = None,
    ) -> Words:
        """(size,) sum over j > i in `among` of m_ij, which is of this very question, less that over j < i.

        `neighbours`: the j that it has pads with, each with the digest of its own neighbours [all of the set].
        """
        ...


class Shares(Protocol):
    """What a masked round may ask of a gate."""

    def share(self, x: Vector, question: bytes) -> Index:
        """y_i at x: integers on the common grid, noise included; one answer. `about`: what else it is asked with."""
        ...


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the plan says of the masking, in numbers; all of it is public."""

    contributors: int  #: s, the fewest devices of a round
    answers: int  #: T, of a device, given up attempts among them
    g: float  #: the common grid
    largest: float  #: no honest device's entry is beyond it, in the unit of a value
    neighbours: int = 0  #: k, whom a device picks; 0: it masks with all
    draws: int = 1  #: so many sets it picks for at most


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What a member's machine is made from."""

    name: str
    gate: Shares
    masks: Masks
    terms: Terms
    start: Vector  #: (d,)
    members: Sequence[str] = ()  #: all of the plan, if it masks with few of them


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """What the coordinator's machine is made from: all of it is public."""

    members: list[str]
    terms: Terms
    start: Vector  #: (d,)
    public: Callable[[Vector], Vector]  #: the gradient, (d,), of what is public of every f_p
    prox: Prox  #: of r and the box
    tolerance: float = 0.0
    patience: int = 0
    #: Of two levels (`sites.py`): the members are sites, and these are the devices of each, and its fewest of a round.
    sites: Mapping[str, tuple[frozenset[str], int]] = field(default_factory=dict)
