"""Simulated runs over nodes with rows of data: what is prepared, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.broker.report import quality
from hushgrid.broker.simulation.problems.base import Finished
from hushgrid.broker.simulation.problems.cache import once
from hushgrid.broker.simulation.problems.masks import identities, maker, makers, saved
from hushgrid.broker.simulation.problems.on_graph import GraphSetup
from hushgrid.broker.simulation.recorders.answers import last_answers
from hushgrid.broker.simulation.recorders.base import Recorded, finite
from hushgrid.broker.sites.upper import SiteDevice
from hushgrid.kernels.algorithms.base import walk_of
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.centralised import Optimum, optimum
from hushgrid.kernels.problems.losses import Kind, Loss
from hushgrid.kernels.problems.optimality import RELATIVE, Noise, Optimality, exact, of_answers
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.types import Document, Vector
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.masking import MakeMasks, noise_shares
from hushgrid.node.problems.records.data import Arrays, Data, Loaded, load
from hushgrid.node.problems.records.device import Checked, Rows, checked, public
from hushgrid.node.problems.records.files import Shard, read_npz
from hushgrid.node.problems.records.gate import lattice_of
from hushgrid.node.problems.records.held_out import KEY, HeldOut
from hushgrid.node.problems.records.section import DataPlan, DataProblem
from hushgrid.node.wire import COORDINATOR

if TYPE_CHECKING:
    from hushgrid.node.masks.identity import Identity

Losses = dict[tuple[str, float | None, int], Loss]  #: by node, row_bound and classes
LARGEST = 2000  #: unknowns of a central optimum, which takes their cube


class RowNodes(GraphSetup):
    """Simulated nodes with rows of records. Only `device` and `child` touch raw data."""

    def __init__(self, scenario: Scenario, file: str, loaded: Loaded | None, plan: object) -> None:
        """`loaded`: every node's rows. `plan`: the public part of the problem."""
        if loaded is None:
            raise InputError(
                f"{file}: problem.data.devices: found rows that are on devices, expected files, libsvm, csv or "
                "synthetic (simulated nodes need rows)"
            )
        self.shards, self.features, self.notes = loaded
        super().__init__(scenario, file, plan)
        self.description = ", ".join([self.description, *self.notes])

    def device(self, name: str) -> Rows:
        return Rows(name, self.shards[index(name)], masks=self._masks.get(name))

    def site(self, name: str) -> SiteDevice:
        return SiteDevice(name, self._masks[name])

    def site_child(self, name: str, place: Path) -> Document:
        return saved(self._identities, name, place)

    @classmethod
    def site_of(cls, name: str, data: Document) -> SiteDevice:
        masks = maker(name, data)
        assert masks is not None
        return SiteDevice(name, masks)

    @cached_property
    def _masks(self) -> Mapping[str, MakeMasks]:
        return makers(self.plan)

    @cached_property
    def _identities(self) -> Mapping[str, Identity]:
        return identities(self.plan)

    def child(self, name: str, place: Path) -> Document:
        path = place / f"{name}.npz"
        A, b = self.shards[index(name)]
        np.savez(path, allow_pickle=False, A=A, b=b)
        return {"rows": str(path)} | saved(self._identities, name, place)

    @classmethod
    def node(cls, name: str, data: Document) -> Rows:
        rows = read_npz(Path(data["rows"]), "least-squares")  # labels were checked with the scenario
        return Rows(name, rows, masks=maker(name, data))


class RowSetup(RowNodes):
    """Only `device`, `child`, `losses` and what they are used in touch raw data."""

    def __init__(self, scenario: Scenario, file: str = "scenario", arrays: Arrays | None = None) -> None:
        self.in_python = arrays is not None
        loaded, plan = public(scenario, file, arrays, check)
        super().__init__(scenario, file, loaded, plan)
        problem = scenario.problem
        tests = "tests", *of_rows(problem.data, problem.kind, None), problem.test, plan.features, plan.classes
        held_out = partial(HeldOut, problem, plan.features, plan.classes)
        self.tests = once(held_out, tests) if problem.test else None
        if self.tests is not None:
            self.test, self.description = self.tests.description, f"{self.description}, {self.tests.sentence}"
            self.own_figures = (KEY, *(f"{KEY}_{name}" for name in self.plan.nodes))

    @property
    def reads_state(self) -> bool:  # type: ignore[override]
        return self.plan.algorithm.pattern != "star"

    @property
    def keys(self) -> dict[str, np.ndarray]:
        """`keys_x` of solution.npz: the name of each entry of x, if the rows' columns have names."""
        named: list[str] = list(self.features)
        if named and self.public.classes > 1:
            named = [f"class {c}, {name}" for c in range(self.public.classes) for name in named]
        return {"keys_x": np.array(named)} if named else {}

    def device(self, name: str) -> Rows:
        return SimulatedRows(name, self.shards[index(name)], self._losses, masks=self._masks.get(name))

    @cached_property
    def _losses(self) -> Losses:
        """What runs of the sweep with these rows have made."""
        problem, public = self.scenario.problem, self.public
        source = "losses", *of_rows(problem.data, problem.kind, len(self.shards)), public.row_bound, public.classes
        return once(dict, None if self.in_python else source)

    @property
    def losses(self) -> list[Loss]:
        """Every node's f_i: raw data."""
        return [self.device(name).loss(self.public) for name in self.plan.nodes]

    @property
    def counted(self) -> list[Loss]:
        """f_i of the nodes that the problem solved is about."""
        each = zip(self.plan.nodes, self.losses, strict=True)
        return [loss for name, loss in each if self.solved is None or name in self.solved]

    def objective(self, x: Vector) -> float:
        losses = self.counted
        return float(sum(loss.value(x) for loss in losses) + len(losses) * self.public.regularizer.value(x))

    def against_the_optimum(self, x: Vector, objective: float | None) -> dict[str, float | None]:
        if x.size > LARGEST:
            return {}
        losses, r = self.counted, self.public.regularizer
        source = ("optimum", self.scenario.problem, len(self.losses), self.solved)
        return against(once(lambda: best_of(losses, r), None if self.in_python else source), x, objective)

    def tested(self, seen: Recorded) -> dict[str, list[float | None]]:
        if self.tests is None:
            return {}
        last = 1 if self.scenario.run.record == "end" else len(seen.common)
        return self.tests.columns(seen.common, seen.own_iterates, last)

    @property
    def largest(self) -> float:
        return quality.largest_answer(self.public, self.terms.clip if self.terms else 0.0)

    def optimality(self, seen: Recorded, over: Finished, known: float | None) -> Optimality | None:
        public, r, t, x = self.public, self.public.regularizer, self.terms, seen.x
        mu = max(public.convexity + r.l2, 0.0)
        if t is None or t.published:  # nothing is hidden: the very gradient tells
            losses = self.counted
            g, first = (np.mean([loss.gradient(point) for loss in losses], axis=0) for point in (x, np.zeros_like(x)))
            measured = exact(x, g, float(np.mean([loss.L for loss in losses])), mu, r, first)
            return measured if known is None else measured._replace(solved=known <= RELATIVE, relative=known)
        masked = t.masked is not None
        names = [COORDINATOR] if masked else [n for n in self.plan.nodes if self.solved is None or n in self.solved]
        lipschitz = [float(np.mean(public.L))] if masked else [public.L[self.plan.nodes.index(name)] for name in names]
        last = [last_answers(over.trace, name, x.size, L) for name, L in zip(names, lipschitz, strict=True)]
        if any(node is None for node in last):
            return None
        nodes = [node for node in last if node is not None]
        if masked:
            share = noise_shares(self.plan)[0].lattice
            nodes = [node._replace(scale=node.scale * share.scale, slack=node.slack + share.g) for node in nodes]
        law: Noise = t.mechanism
        if self.plan.algorithm.asks() != "minimiser":
            return of_answers(x, nodes, law, mu, r)
        return of_answers(x, nodes, "spherical", mu, r, law)

    @property
    def clipped(self) -> bool:
        t = self.terms
        if t is None or not t.clip or t.published:
            return False
        steepest = {"logistic": 1.0, "softmax": sqrt(2)}.get(self.public.objective.kind, inf)
        return t.clip < steepest * (self.public.row_bound or inf)

    def grids(self) -> list[Lattice] | None:
        plan, public, t = self.plan, self.public, self.terms
        if (
            t is None or t.published or self.plan.algorithm.asks() == "minimiser"
        ):  # the minimisers' noise depends on the question
            return None
        if t.masked is not None:
            return [share.lattice for share in noise_shares(plan)]

        @cache
        def grid_of(m: int, t: Terms) -> Lattice | None:
            return lattice_of(plan.name, quality.public_loss(public, public.rows.index(m)), t, t.noisiest)

        each = ((m, terms) for node, m in zip(plan.nodes, public.rows, strict=True) if (terms := plan.terms_of(node)))
        return [lattice for m, terms in each if (lattice := grid_of(m, terms))]

    def spread(self, answers: list[int]) -> float:
        if self.lattices is None and self.terms is not None and not self.terms.published:
            return quality.spread_of_minimizers(self.plan, answers)
        return super().spread(answers)

    def expected(self, answers: np.ndarray) -> list[float | None]:
        if (
            self.terms is not None
            and self.plan.algorithm.asks() == "minimiser"
            and walk_of(self.plan.algorithm) is None
        ):
            fresh = np.diff(answers[:, 0], prepend=0)
            return [self._of_minimizers(int(k)) if new else 0.0 for k, new in zip(answers[:, 0], fresh, strict=True)]
        if self.terms is not None and (
            self.terms.pointwise or self.terms.growth != 1
        ):  # the noise is each answer's own
            return [None] * len(answers)
        return super().expected(answers)

    def _of_minimizers(self, k: int) -> float:
        """Expected sum of |noise| of all nodes' answers k. What it has of the question is the penalties' curvature."""
        return sum(
            quality.answer_noise(self.plan, i, k)[0].expected_l1(self.public.size) for i in range(len(self.plan.nodes))
        )


class SimulatedRows(Rows):
    """A simulated node's rows. Its f_i is made once for all runs that have the same."""

    def __init__(self, name: str, shard: Shard, losses: Losses, masks: MakeMasks | None) -> None:
        """`losses`: of the same rows."""
        super().__init__(name, shard, masks=masks)
        self.losses = losses

    def loss(self, p: DataPlan) -> Loss:
        key = self.name, p.row_bound, p.classes
        if key not in self.losses:
            self.losses[key] = super().loss(p)
        loss, objective = self.losses[key], p.node_objective(p.position(self.name))
        return loss if loss.objective == objective else replace(loss, objective=objective)


def check(problem: DataProblem, nodes: int | None, arrays: Arrays | None) -> Checked:
    """Every node's rows, read and checked; once for all runs of a sweep, unless they were given in Python."""
    source = ("checked", problem, nodes) if arrays is None else None
    return once(lambda: checked(problem, nodes, arrays, read), source)


def read(data: Data, base: Path, kind: Kind, nodes: int | None, arrays: Arrays | None) -> Loaded:
    """Every node's rows; those that were not given in Python are read once for all runs of a sweep."""
    return once(lambda: load(data, base, kind, nodes, arrays), of_rows(data, kind, nodes) if arrays is None else None)


def of_rows(data: Data, kind: Kind, nodes: int | None) -> tuple[object, ...]:
    """What rows are made of, besides their files."""
    return "rows", data, kind, nodes


def best_of(losses: list[Loss], r: Regularizer) -> Optimum | None:
    """The central optimum, if it is known to be one."""
    try:
        best = optimum(losses, r)
    except InputError:
        return None
    return best if best.convex else None


def against(best: Optimum | None, x: np.ndarray, objective: float | None) -> dict[str, float | None]:
    """What is not known to be an optimum, or to be the only one, is not compared with."""
    if best is None or objective is None:
        return {}
    length = float(np.linalg.norm(best.x))
    return {
        "optimality_gap": finite(objective - best.value),
        "relative_error": finite(float(np.linalg.norm(x - best.x)) / length) if best.unique and length else None,
    }


SETUP = RowSetup
