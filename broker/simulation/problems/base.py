"""What is public about a simulated run, prepared once: the plan, and the data its nodes are given; and what it leaves.

What a run leaves is put together here, once: a recorder says what its pattern has left, the kind of problem computes
its figures from that. What is computed from raw data or from the noise is filled only if the run is not private: of a
run whose claim is upheld nothing here reads a load or a row once the nodes have theirs.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from hushgrid.broker.report.result import Quality, Result
from hushgrid.broker.simulation.recorders.base import Observer, Over, Recorded, Shape, Widths, recorder
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.privacy.noise_source import PAPER_SAMPLER, SeededNoise, SystemNoise
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.plan import RunPlan, findings
from hushgrid.node.versions import version

#: Of result.json, whatever the kind of problem; what a kind does not give is null.
FIGURES = ("objective", "optimality_gap", "relative_error", "consensus_residual", "max_violation")


@dataclass(kw_only=True)
class Finished(Over):
    """What the transport hands over: where the traces are, how the run ended, what travelled."""

    stopped_because: str
    transport: str
    broker: str
    wall_s: float
    ledgers_kept: bool
    per_node: dict[str, dict[str, Any]]
    transcript: list[dict[str, Any]] | None


@dataclass(kw_only=True)
class Figures:
    """What a kind of problem makes of a run, T rows of the history."""

    objective: list[float | None]  #: (T,)
    max_violation: list[float | None]  #: (T,)
    expected_noise: list[float | None]  #: (T,) expected sum of |noise|
    quality: Quality
    solution: dict[str, np.ndarray]
    setpoints: list[tuple[Any, ...]] = field(default_factory=list)
    at_the_end: dict[str, Any] = field(default_factory=dict)  #: figures of result.json
    history: dict[str, list[float | None]] = field(default_factory=dict)  #: (T,) each: columns beside those of all runs
    tables: dict[str, tuple[Sequence[str], list[tuple[Any, ...]]]] = field(default_factory=dict)  #: <name>.csv


class Setup(ABC):
    """A scenario made ready, whatever its kind of problem. Only `device`, `child` and `figures` touch raw data."""

    own_figures: ClassVar[tuple[str, ...]] = ()  #: of result.json, beside FIGURES

    def __init__(self, scenario: Scenario, plan: RunPlan) -> None:
        self.scenario, self.plan = scenario, plan
        self.terms = plan.terms
        self.budget = scenario.privacy.budget if scenario.privacy else None

    @property
    def upheld(self) -> bool | str:
        """Whether the claim holds: False (published), "not private" (none, seeded or truth), or True."""
        s, variant = self.scenario, self.scenario.algorithm.variant
        if variant == "published":
            return False
        return "not private" if variant == "none" or s.seed is not None or s.run.truth else True

    @property
    def reveal(self) -> bool:
        """Whether raw-data figures may be computed."""
        return self.upheld is not True

    @property
    def sampler(self) -> str | None:
        if self.terms is None:
            return None
        if self.terms.published:
            return PAPER_SAMPLER
        return SystemNoise.sampler if self.scenario.seed is None else SeededNoise.sampler

    # --- what a kind of problem says ---

    about: str  #: the problem in a few words
    notes: tuple[str, ...] = ()  #: what was changed in the data on reading them
    stamp: str = ""  #: what the file of the data looks like from outside: another one is a new data version
    shape: Shape

    @abstractmethod
    def device(self, name: str) -> Device:
        """A node with its data."""

    @abstractmethod
    def child(self, name: str, place: Path) -> dict[str, Any]:
        """What a process of its own makes this node from (`node`); files for it go to `place`."""

    @classmethod
    @abstractmethod
    def node(cls, name: str, data: dict[str, Any]) -> Device:
        """In a process of its own: a node with its data, from what `child` said."""

    @abstractmethod
    def figures(self, seen: Recorded, over: Finished) -> Figures:
        """What the run's answer is worth."""

    @abstractmethod
    def cost(self, name: str, answers: int) -> float | None:
        """Epsilon of a node's answers; None if there is no honest one."""

    @abstractmethod
    def written_out(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """The resolved scenario with what the program has chosen."""

    # --- whatever the kind and the pattern ---

    @property
    def resolved(self) -> dict[str, Any]:
        """The scenario with every default and every choice of the program written out."""
        plain: dict[str, Any] = drop_none(self.scenario)
        return self.written_out(plain)

    def widths(self, name: str) -> Widths:
        """The vectors that `trace` takes down of a node, or of the coordinator."""
        return recorder(self.plan).widths(self.plan, self.shape, name)

    def trace(self, name: str, place: Path) -> Observer:
        """What is taken down of a node, or of the coordinator, while the run goes on."""
        return recorder(self.plan).observer(self.plan, name, place, self.reveal, self.widths(name))

    @np.errstate(over="ignore", invalid="ignore")  # of iterates that have gone far out
    def collect(self, over: Finished) -> Result:
        """Everything of RUN_DIR, from the traces."""
        seen = recorder(self.plan).recorded(self.plan, self.shape, over, self.reveal)
        found = self.figures(seen, over)
        history: dict[str, list[float | int | None]] = {
            "round": list(range(1, len(seen.residual) + 1)),
            "objective": list(found.objective),
            "consensus_residual": list(seen.residual),
            "max_violation": list(found.max_violation),
            "noise_l1": list(seen.noise),
            "noise_l1_expected": list(found.expected_noise),
            "messages": list(seen.messages),
            "bytes": list(seen.bytes),
            **found.history,
        }
        if self.terms is not None:
            for i, name in enumerate(self.plan.nodes):
                costs = {a: self.cost(name, a) for a in np.unique(seen.answers[:, i]).tolist()}
                history[f"epsilon_{name}"] = [costs[a] for a in seen.answers[:, i].tolist()]
        trajectory = seen.trajectory if self.scenario.run.record == "trajectory" else None
        summary = self._summary(seen, found, over)
        return Result(
            summary, history, found.solution, found.setpoints, trajectory, over.transcript, tables=found.tables
        )

    def _summary(self, seen: Recorded, found: Figures, over: Finished) -> dict[str, Any]:
        """result.json."""
        plan, last = self.plan, found.at_the_end
        last |= {
            "consensus_residual": seen.residual[-1] if seen.residual else None,
            "max_violation": found.max_violation[-1] if found.max_violation else None,
        }
        return {
            "name": plan.name,
            "algorithm": plan.algorithm.name,
            "variant": plan.algorithm.variant,
            "transport": over.transport,
            "broker": over.broker,
            "nodes": len(plan.nodes),
            "lost": seen.told.get("lost"),
            "walk": seen.told.get("walk"),
            "rounds_done": seen.rounds_done,
            "stopped_because": over.stopped_because,
            "quality": dict(found.quality),
            **{key: last.get(key) for key in (*FIGURES, *self.own_figures)},
            "messages": seen.total_messages,
            "bytes": seen.total_bytes,
            "wall_s": round(over.wall_s, 3),
            "privacy": self._privacy(over, seen.capped),
            "notes": list(self.notes),
            "versions": versions(),
        }

    def _privacy(self, over: Finished, capped: list[str]) -> dict[str, Any]:
        t, plan = self.terms, self.plan
        common = {
            "per_node": over.per_node,
            "upheld": self.upheld,
            "findings": findings(plan),
            "ledgers": "kept" if over.ledgers_kept else "run",
        }
        if t is None or plan.privacy is None:
            return common | dict.fromkeys(
                ("claimed", "spent", "adjacency", "mechanism", "accountant", "sampler", "answers", "capped")
            )
        return {
            "claimed": {"epsilon": t.epsilon, "delta": t.delta},
            "spent": _most(over.per_node),
            "adjacency": drop_none(plan.privacy.adjacency),
            "mechanism": t.mechanism,
            "accountant": t.accountant,
            "sampler": self.sampler,
            "answers": t.answers,
            "capped": capped,
        } | common


def _most(per_node: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the node that has spent most has spent; epsilon None if that is unbounded."""
    spent: list[dict[str, Any]] = [node["spent"] for node in per_node.values()]
    return max(spent, key=lambda s: inf if s["epsilon"] is None else s["epsilon"])


def drop_none(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {k: drop_none(v) for k, v in value.items() if v is not None}
    return [drop_none(v) for v in value] if isinstance(value, list) else value


def versions() -> dict[str, str]:
    """What computed this run."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("hushgrid", "numpy", "scipy", "clarabel", "msgspec", "paho-mqtt"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
