"""A simulated run, prepared once (the plan, the data of its nodes), and its result.

The result is put together here: a recorder reads what its pattern has left, and the kind of problem computes its
figures from that. Figures that are computed from raw data or from the noise are filled in only if the run is not
private. If a run's claim is upheld, nothing here reads a load or a row once the nodes have theirs.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from hushgrid.broker.report.claims import reasons
from hushgrid.broker.report.result import Quality, Result
from hushgrid.broker.simulation.recorders.answers import traced
from hushgrid.broker.simulation.recorders.base import Observer, Over, Recorded, Shape, Widths, recorder
from hushgrid.grid_cases.case import Case
from hushgrid.kernels.types import Document
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.privacy.noise_source import PAPER_SAMPLER, SeededNoise, SystemNoise
from hushgrid.node.problems import masking_words
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.versions import version

#: Keys of result.json for every kind of problem; a figure that a kind does not give is null.
BEHIND = 1 << 16  #: bytes of a trace that may wait in memory
FIGURES = ("objective", "optimality_gap", "relative_error", "consensus_residual", "max_violation")


@dataclass(kw_only=True)
class Finished(Over):
    """A finished run, as the transport hands it over: where the traces are, how it ended, what was sent."""

    stopped_because: str
    transport: str
    broker: str
    wall_s: float  #: wall time, s
    ledgers_kept: bool  #: whether the ledgers count over several runs
    per_node: dict[str, Document]  #: each node's privacy account, by its name
    transcript: list[Document] | None  #: every message, if the scenario asks for it
    below: tuple[int, int] = (0, 0)  #: messages and bytes between sites and their devices
    seconds: Mapping[str, float] = field(default_factory=dict)  #: that answering took, in each fleet


@dataclass(kw_only=True)
class Figures:
    """What a kind of problem computes of a run with T rows of history."""

    objective: list[float | None]  #: (T,) the objective at the common iterate
    max_violation: list[float | None]  #: (T,) the largest violation of a constraint
    expected_noise: list[float | None]  #: (T,) the expected sum of |noise|
    quality: Quality
    solution: dict[str, np.ndarray]  #: arrays of solution.npz, by name
    setpoints: list[tuple[object, ...]] = field(default_factory=list)  #: rows of setpoints.csv
    at_the_end: Document = field(default_factory=dict)  #: figures of result.json, by key
    history: dict[str, list[float | None]] = field(default_factory=dict)  #: further columns, (T,) each
    #: Header and rows of further tables, by name: <name>.csv.
    tables: dict[str, tuple[Sequence[str], list[tuple[object, ...]]]] = field(default_factory=dict)


class Setup(ABC):
    """A scenario made ready to run. Only `device`, `child` and `figures` read raw data."""

    own_figures: tuple[str, ...] = ()  #: keys of result.json that this problem adds to FIGURES
    reads_state: bool = True  #: whether the result needs the coordinator's last state, which may be large
    threads: int = 1  #: on so many its nodes compute at a time, where they are in one process

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
        """Whether figures of raw data and of the noise may be computed."""
        return self.upheld is not True

    @property
    def beginning(self) -> dict[str, str]:
        """What the coordinator is told of where the run begins."""
        earlier = self.scenario.run.warm_start
        return {} if earlier is None else {"warm": earlier}

    @property
    def sampler(self) -> str | None:
        """How the noise is drawn, in the words of the report; None without privacy."""
        if self.terms is None:
            return None
        if self.terms.published:
            return PAPER_SAMPLER
        return SystemNoise.sampler if self.scenario.seed is None else SeededNoise.sampler

    # --- what a kind of problem says ---

    description: str  #: the problem in a few words
    notes: tuple[str, ...] = ()  #: what was changed in the data when they were read
    stamp: str = ""  #: how the data file looks from outside; another stamp is a new data version
    network: Case | None = None  #: of zones: the case without its loads
    test: Document | None = None  #: what the models are tested on, if anything
    shape: Shape  #: what a recorder needs to read the run back

    @abstractmethod
    def device(self, name: str) -> Device:
        """A node with its data."""

    def site(self, name: str) -> Device:
        """What a site of two levels has, as a member of the fleet above."""
        raise NotImplementedError

    def site_child(self, name: str, place: Path) -> Document:
        """What another process makes that from, with `site_of`; files for it as of `child`."""
        raise NotImplementedError

    @classmethod
    def site_of(cls, name: str, data: Document) -> Device:
        """In another process: what a site has, from what `site_child` returned."""
        raise NotImplementedError

    @abstractmethod
    def child(self, name: str, place: Path) -> Document:
        """What another process makes this node from, with `node`. Files for it are written to the directory `place`."""

    @classmethod
    @abstractmethod
    def node(cls, name: str, data: Document) -> Device:
        """In another process: the node with its data, from what `child` returned."""

    @abstractmethod
    def figures(self, seen: Recorded, over: Finished) -> Figures:
        """The figures of the run's answer."""

    @abstractmethod
    def cost(self, name: str, answers: int) -> float | None:
        """The total epsilon of this many answers of a node; None if none can be stated."""

    @abstractmethod
    def written_out(self, resolved: Document) -> Document:
        """The resolved scenario, with the choices of the program filled in."""

    # --- whatever the kind and the pattern ---

    @property
    def resolved(self) -> Document:
        """The scenario with every default and every choice of the program written out."""
        scenario, planned = self.scenario, self.plan.privacy
        if scenario.privacy is not None and planned is not None:
            privacy = replace(scenario.privacy, accountant=planned.accountant, answers=planned.answers)
            scenario = replace(scenario, privacy=privacy)
        return self.written_out(drop_none(scenario))

    def widths(self, name: str) -> Widths:
        """The vectors that `trace` records of a node, or of the coordinator, and their lengths."""
        return recorder(self.plan).widths(self.plan, self.shape, name)

    def trace(self, name: str, place: Path) -> Observer:
        """The observer that records a node, or the coordinator, of a run in this process, in the directory `place`."""
        return traced(self.plan, name, place, self.reveal, self.widths(name), BEHIND)

    @np.errstate(over="ignore", invalid="ignore")  # iterates that diverge
    def collect(self, over: Finished) -> Result:
        """The result of the run: everything that RUN_DIR holds, from the traces."""
        seen = recorder(self.plan).recorded(self.plan, self.shape, over, self.reveal)
        figures = self.figures(seen, over)
        history: dict[str, list[float | int | None]] = {
            "round": list(range(1, len(seen.residual) + 1)),
            "objective": list(figures.objective),
            "consensus_residual": list(seen.residual),
            "max_violation": list(figures.max_violation),
            "noise_l1": list(seen.noise),
            "noise_l1_expected": list(figures.expected_noise),
            "messages": list(seen.messages),
            "bytes": list(seen.bytes),
            **figures.history,
        }
        if self.terms is not None:
            for i, name in enumerate(self.plan.nodes):
                costs = {a: self.cost(name, a) for a in np.unique(seen.answers[:, i]).tolist()}
                history[f"epsilon_{name}"] = [costs[a] for a in seen.answers[:, i].tolist()]
        trajectory = seen.trajectory if self.scenario.run.record == "trajectory" else None
        summary = self._summary(seen, figures, over)
        return Result(
            summary, history, figures.solution, figures.setpoints, trajectory, over.transcript, tables=figures.tables,
            case=self.network,
        )  # fmt: skip

    def _summary(self, seen: Recorded, figures: Figures, over: Finished) -> Document:
        """result.json."""
        plan, last = self.plan, figures.at_the_end
        last |= {
            "consensus_residual": seen.residual[-1] if seen.residual else None,
            "max_violation": figures.max_violation[-1] if figures.max_violation else None,
        }
        return {
            "name": plan.name,
            "algorithm": plan.algorithm.name,
            "variant": plan.algorithm.variant,
            "transport": over.transport,
            "broker": over.broker,
            "nodes": len(plan.nodes),
            "lost": seen.extras.get("lost"),
            "solved": seen.extras.get("solved"),
            "frozen": seen.extras.get("frozen"),
            "walk": seen.extras.get("walk"),
            "rounds_done": seen.rounds_done,
            **({"finish": seen.extras["finish"]} if "finish" in seen.extras else {}),
            "stopped_because": over.stopped_because,
            "quality": msgspec.to_builtins(figures.quality),
            **({"test": self.test} if self.test else {}),
            **{key: last.get(key) for key in (*FIGURES, *self.own_figures)},
            "messages": seen.total_messages + over.below[0],
            "bytes": seen.total_bytes + over.below[1],
            **(_levels(over, seen, self.scenario.fleet) if plan.sites else {}),
            "wall_s": round(over.wall_s, 3),
            "privacy": self._privacy(over, seen.capped),
            "notes": list(self.notes),
            "versions": versions(),
        }

    def _privacy(self, over: Finished, capped: list[str]) -> Document:
        t, plan = self.terms, self.plan
        common = {
            "per_node": over.per_node,
            "upheld": self.upheld,
            "findings": reasons(plan),
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
            **masking_words.figures(t),
        } | common


def _most(per_node: dict[str, Document]) -> Document:
    """What the node with the largest spend has spent; epsilon None if it is unbounded."""
    spent: list[Document] = [node["spent"] for node in per_node.values()]
    return max(spent, key=lambda s: inf if s["epsilon"] is None else s["epsilon"])


def drop_none(value: Any) -> Any:
    """The value in plain dicts and lists, without keys whose value is None."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {k: drop_none(v) for k, v in value.items() if v is not None}
    return [drop_none(v) for v in value] if isinstance(value, list) else value


def versions() -> dict[str, str]:
    """The versions of Python, the machine and the packages that computed this run."""
    installed = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("hushgrid", "numpy", "scipy", "clarabel", "msgspec", "paho-mqtt"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def _levels(over: Finished, seen: Recorded, fleet: str) -> Document:
    """What went on in each of two levels. `fleet`: the upper one's name."""
    above, together = over.seconds.get(fleet, 0.0), sum(over.seconds.values())
    rows = {
        "in_sites": (*over.below, together - above),
        "between_sites": (seen.total_messages, seen.total_bytes, above),
    }
    return {
        key: {"messages": m, "bytes": b, "seconds": round(s, 3) if over.seconds else None}
        for key, (m, b, s) in rows.items()
    }
