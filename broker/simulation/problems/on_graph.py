"""Simulated runs over a graph: what every kind of problem of `node/problems/on_graph.py` leaves, and what it is
worth.
"""

from __future__ import annotations

from abc import abstractmethod
from math import inf, nan, sqrt
from typing import Any

import numpy as np

from hushgrid.broker.report import quality
from hushgrid.broker.report.result import Quality
from hushgrid.broker.simulation.problems.base import Figures, Finished, Setup
from hushgrid.broker.simulation.recorders.base import Recorded, Shape, finite
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.optimality import Optimality
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.plan import step_ratio


class GraphSetup(Setup):
    """Only `device`, `child`, `objective` and `against_the_optimum` touch raw data."""

    solved: list[str] | None = None  #: the nodes that the problem solved is about; None: all
    public: Any  #: the public part of the problem, an `OnGraph`

    def __init__(self, scenario: Scenario, file: str = "scenario", public: object = None) -> None:
        """`public`: the public part, if it is known already."""
        self.public = scenario.kind.public(scenario, file) if public is None else public
        super().__init__(scenario, make_plan(scenario, self.public, file))
        nodes, every = self.plan.nodes, np.arange(self.public.size)
        self.shape = Shape(
            size=self.public.size,
            own_sizes=dict.fromkeys(nodes, self.public.size),
            shared=dict.fromkeys(nodes, every),
            position=dict.fromkeys(nodes, every),
        )
        try:
            self.lattices = self.grids()
        except InputError as error:
            raise InputError(f"{file}: privacy: {error}") from None
        tag, network = scenario.problem.__struct_config__.tag, scenario.network
        where = f"on a network of kind {network.kind}" if network is not None else "around a coordinator"
        self.description = f"{tag}, {len(self.plan.nodes)} nodes {where}"

    # --- what a kind of problem says ---

    @abstractmethod
    def grids(self) -> list[Lattice] | None:
        """The noise of an answer of each node, of what is public; None if it is none of the gate's."""

    @abstractmethod
    def objective(self, x: Vector) -> float:
        """sum_i f_i(x) + n r(x), of the nodes `solved`. x: (d,)"""

    def against_the_optimum(self, x: Vector, objective: float | None) -> dict[str, float | None]:
        """`optimality_gap` and `relative_error` of x (d,), if the optimum is known."""
        return {}

    def tested(self, seen: Recorded) -> dict[str, list[float | None]]:
        """Columns of the history, (T,) each: how good the models are on rows that nobody has learned from."""
        return {}

    def optimality(self, seen: Recorded, over: Finished, known: float | None) -> Optimality | None:
        """How far the answer can be from the optimum; None if nothing tests that. known: its relative error, if
        revealed.
        """
        return None

    @property
    def clipped(self) -> bool:
        """Whether records' gradients may be clipped, so that the optimum is another one."""
        return False

    @property
    def largest(self) -> float:
        """|x| of no answer is larger."""
        return inf

    @property
    def keys(self) -> dict[str, np.ndarray]:
        """What names the entries of x in solution.npz."""
        return {}

    # --- whatever the kind ---

    def cost(self, name: str, answers: int) -> float | None:
        t = self.plan.terms_of(name)
        assert t is not None
        return None if t.published else t.cost(answers)

    def written_out(self, resolved: Document) -> Document:
        public = self.public
        if not public.edges:
            return resolved
        resolved["network"] = {"kind": "edges", "nodes": len(public.L), "edges": [list(e) for e in public.edges]}
        return resolved

    def figures(self, seen: Recorded, over: Finished) -> Figures:
        T, self.solved = len(seen.residual), seen.extras.get("solved")
        objectives: list[float | None] = [None] * T
        last: dict[str, float | None] = {}
        if self.reveal:
            iterates = seen.common[-1:] if self.scenario.run.record == "end" else seen.common
            objectives[T - len(iterates) :] = [finite(self.objective(x)) for x in iterates]
            if T:
                last = self.against_the_optimum(seen.x, objectives[-1])
        solution = (
            {"x": seen.x}
            | {f"x_{name}": iterate[-1] for name, iterate in seen.own_iterates.items() if len(iterate)}
            | self.keys
        )
        solution |= seen.solution
        tested = self.tested(seen)
        last |= {key: column[-1] for key, column in tested.items() if column}
        return Figures(
            history=tested,
            objective=objectives,
            max_violation=[None] * T,
            expected_noise=self.expected(seen.answers),
            quality=self.judged(seen, over, last.get("relative_error")),
            solution=solution,
            at_the_end={"objective": objectives[-1] if T else None} | last,
        )

    def judged(self, seen: Recorded, over: Finished, known: float | None = None) -> Quality:
        """The verdict on the answer. known: its relative error, of a run that hides nothing."""
        n, residual, last = len(self.plan.nodes), seen.residual, None
        if residual:
            last = nan if residual[-1] is None else residual[-1]
        averaged = seen.extras.get("finish", {}).get("gossip", 0)
        before = residual[-1 - averaged] if averaged and len(residual) > averaged else None
        counts = seen.answers[-1].tolist() if residual else [0] * n
        return quality.judged(
            last,
            float(np.linalg.norm(seen.x)),
            n,
            self.spread(counts),
            self.largest,
            step_ratio(self.plan),
            over.stopped_because == "tolerance",
            before=before,
            optimality=self.optimality(seen, over, known) if residual else None,
            clipped=self.clipped,
            convex=self.public.convexity >= 0,
            alike=self.plan.algorithm.pattern != "star",
        )

    def spread(self, answers: list[int]) -> float:
        """How far apart the noise explains that the copies lie, node i having given answers[i] gradients."""
        if self.lattices is None:
            return 0.0
        total, p, algorithm = 0.0, self.public, self.plan.algorithm
        epsilon = self.terms.paper_epsilon if self.terms else inf
        for i, (count, lattice) in enumerate(zip(answers, self.lattices, strict=True)):
            L = p.L[i] if algorithm.pattern != "star" else max(p.L)
            carried = algorithm.noise_gain(i, count, L, p.graph.neighbours[i], epsilon, p.convexity)
            total += p.size * quality.mean_square(lattice) * carried
        return sqrt(total)

    def expected(self, answers: np.ndarray) -> list[float | None]:
        """Expected sum of |noise| of each row of the history. answers: (T, n), so far."""
        if self.lattices is None:
            return [None] * len(answers)
        each = np.array([lattice.expected_l1 * self.public.size for lattice in self.lattices])
        return [float(row @ each) for row in np.diff(answers, axis=0, prepend=0)]
