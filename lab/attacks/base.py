"""What an attack declares, and what it recovers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.types import DocumentView, Vector
from hushgrid.lab.attacks.answers import Judged
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.inversion.recovered import CONSISTENT, Gradients, Rows, What
from hushgrid.lab.inversion.scores import Pairs, Truth, pairs


@dataclass(frozen=True, eq=False)
class Loads:
    """The loads of a zone, by least squares on what it has told."""

    EXPLAINED: ClassVar[float] = CONSISTENT  #: of a residual
    SURE: ClassVar[float] = 0.01  #: p.u.

    d: Vector  #: (2 nb,) p.u., p of its buses, then q
    residual: float  #: |said - explained|/|said|
    unsure: float  #: p.u.: how far from these loads may lie that explain it as well
    what: What  #: gradient: the loads themselves; noisy answer: the gate's copy of them

    @property
    def consistent(self) -> bool:
        """Whether these loads, and none that are far from them, explain what was heard."""
        return self.residual <= self.EXPLAINED and self.unsure <= self.SURE


@dataclass(eq=False)
class Recovered:
    """What attacks have recovered from a run."""

    gradients: dict[str, Gradients] = field(default_factory=dict)  #: by node
    rows: dict[str, Rows] = field(default_factory=dict)  #: of nodes whose rows the attack has found without gradients
    loads: dict[str, Loads] = field(default_factory=dict)  #: of zones
    states: tuple[str, ...] = ()  #: which vectors of the nodes: x, y, lam, eta
    arrays: dict[str, NDArray[np.float64]] = field(default_factory=dict)  #: further arrays of recovered.npz, by name
    recycled: float | None = None  #: R- and MR-ADMM: the largest deviation of an even message from public values
    notes: list[str] = field(default_factory=list)  #: sentences on this very run, for the page

    def add(self, other: Recovered) -> None:
        """Takes over what another attack has recovered; what both have stays as it is."""
        self.gradients = other.gradients | self.gradients
        self.rows = other.rows | self.rows
        self.loads = other.loads | self.loads
        self.arrays = other.arrays | self.arrays
        self.states = tuple(dict.fromkeys((*self.states, *other.states)))
        self.recycled = other.recycled if self.recycled is None else self.recycled
        self.notes += other.notes


class Attack(ABC):
    """One way to attack the runs of some algorithms."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]]  #: those that it attacks, by their sections' types
    problem: ClassVar[type | tuple[type, ...]]  #: the type of a plan's public part, or some

    def fits(self, transcript: Transcript) -> bool:
        """Whether it can attack this run."""
        return isinstance(transcript.plan.algorithm, self.algorithms) and isinstance(
            transcript.plan.problem, self.problem
        )

    @abstractmethod
    def recover(self, transcript: Transcript) -> Recovered:
        """What the messages give away. It is a function of public numbers and of what travelled."""


@dataclass(frozen=True, eq=False)
class Attacked:
    """What `hushgrid attack` has found. shape: of rows as images, if they are any."""

    transcript: Transcript
    recovered: Recovered
    rows: Mapping[str, Rows]
    truths: Mapping[str, Truth]  #: empty without --truth
    answers: Mapping[str, Judged]  #: of nodes whose gradients are a gate's noisy answers
    shape: tuple[int, int] | None
    scores: DocumentView | None

    def beside(self, node: str) -> Pairs | None:
        """The rows of a node beside the true ones; None if these are not known."""
        if node not in self.truths:
            return None
        problem = self.transcript.problem
        return pairs(problem.declared(self.transcript.place[node]), self.rows[node], self.truths[node])


def context_of(transcript: Transcript, i: int, gate: object) -> NodeContext:
    """What the machine of neighbour i is made from: all of it is public but its gate."""
    problem = transcript.problem
    return NodeContext(
        gate=gate,
        name=transcript.nodes[i],
        neighbours=[transcript.nodes[j] for j in problem.graph.neighbours[i]],
        graph=problem.graph,
        index=i,
        size=problem.size,
        L=problem.L,
        regularizer=problem.regularizer,
        report=1,
    )
