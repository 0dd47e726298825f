"""What races in the league: settings (a problem, how its rows are dealt, a network) and methods with what is tuned of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log
from pathlib import Path

import numpy as np

from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.algorithms.mixing import metropolis
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.graphs import Graph, Network
from hushgrid.kernels.types import Document, DocumentView, Matrix
from hushgrid.lab.studies.common.tuning import Axis, Search
from hushgrid.lab.studies.lines import races
from hushgrid.node.problems.records.data import Data, load
from hushgrid.node.problems.registry import KINDS
from hushgrid.node.schema.yaml_file import convert

DELTA = 1e-5
EPSILONS = (1.0, 10.0)  #: of the whole run, a node
SCALE = 16.0  #: of f_i: with it the steps of all methods are of one order; figures are of the mean loss, without it

# --- settings ---


@dataclass(frozen=True)
class Setting:
    """A problem, how its rows are dealt, and a network; in `scenario`s as they stand in a file."""

    title: str
    problem: DocumentView
    network: DocumentView
    tests: str = ""  #: public rows
    methods: tuple[str, ...] | None = None  #: titles [all]
    epsilons: tuple[float, ...] = (1.0,)  #: of the whole run, a node
    deal: str = ""  #: how rows of a file go to nodes, if not as the problem says: unequal, or by feature

    @property
    def graph(self) -> Graph:
        return convert(dict(self.network), Network, "league").build()

    @property
    def directory(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())

    def scenario(self, layout: str) -> Document:
        """Without algorithm and privacy. layout: graph, star (around a coordinator), or curator (one who has all
        rows).
        """
        nodes = 1 if layout == "curator" else self.graph.n
        data = self.problem["data"] | ({} if layout == "graph" else {"nodes": nodes})
        if self.deal and layout != "curator":
            data = data | {"split": {"given": str(self.dealt())}}
        problem = {**self.problem, "data": data}
        raw = {"hushgrid": 1, "name": "league", "problem": problem, "run": {"record": "end"}}
        return raw | ({"network": dict(self.network)} if layout == "graph" else {})

    def dealt(self) -> Path:
        """A file of a node number for each row: unequal, node i has i + 1 parts; by feature, sorted by the one that
        varies most.
        """
        path, n = Path("runs/league", f"{self.directory}.txt").resolve(), self.graph.n
        if not path.is_file():
            raw = {**self.problem["data"], "nodes": 1}
            A = load(convert(raw, Data, "league"), Path(), "logistic").shards[0].A
            parts = np.cumsum(np.arange(1, n + 1) if self.deal == "unequal" else np.ones(n))
            ends = np.round(parts / parts[-1] * len(A)).astype(int)
            order = (
                np.arange(len(A)) if self.deal == "unequal" else np.argsort(A[:, A.var(axis=0).argmax()], kind="stable")
            )
            nodes = np.empty(len(A), dtype=int)
            nodes[order] = np.searchsorted(ends, np.arange(len(A)), side="right")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{i}\n" for i in nodes))
        return path


ADULT: Document = {
    "kind": "logistic",
    "scale": SCALE,
    "l2": 0.001 * SCALE,
    "row_bound": 1.0,
    "data": {
        "libsvm": str(Path("scenarios/data/adult.trn.bz2")),
        "features": 123,
        "first_index": 0,
        "normalize": "unit-rows",
    },
}
MADE_UP: Document = {
    "kind": "logistic",
    "scale": SCALE,
    "l2": 0.01 * SCALE,
    "row_bound": 1.0,
    "data": {"synthetic": {"rows": 2000, "features": 10, "seed": 7}, "normalize": "unit-rows"},
}
BY_LABEL = ADULT | {"data": {**ADULT["data"], "split": {"label-skew": 1.0}}}
TESTS = "scenarios/data/adult.tst.bz2"
#: One line of each kind, where runs are long. A curator has the same rows however they are dealt, if all nodes have as
#: many.
MAIN = (
    "DGD",
    "NIDS",
    "ADMM, pure",
    "ADMM, Gaussian",
    "star: FedAvg",
    "each alone",
    "a curator with all rows",
)
#: Made-up rows are each node's own, and nobody has them all: no curator.
MORE = (
    "DGD",
    "DGD, no finishing",
    "NIDS",
    "ADMM, pure",
    "ADMM, Gaussian",
    "RECAL, cycle",
    "I-ADMM, first-order",
    "W-ADMM, first-order",
    "star: FedAvg",
    "each alone",
)
GEOMETRIC: Document = {"kind": "geometric", "nodes": 8, "radius": 0.5, "seed": 11}
RING = {"kind": "ring", "nodes": 8}
SETTINGS = {
    s.title: s
    for s in (
        Setting("Adult, ring of 8", ADULT, RING, TESTS, MAIN),
        Setting("Adult, ring of 8, epsilon 10", ADULT, RING, TESTS, MAIN, epsilons=(10.0,)),
        Setting("made-up, geometric 8", MADE_UP, GEOMETRIC, methods=MORE),
        Setting("Adult by label, ring of 8", BY_LABEL, RING, TESTS, MAIN[:-2]),
        Setting("Adult, ring of 60", ADULT, {"kind": "ring", "nodes": 60}, TESTS, MAIN),
        Setting("Adult, unequal rows, ring of 8", ADULT, RING, TESTS, MAIN, deal="unequal"),
        Setting("Adult by feature, ring of 8", ADULT, RING, TESTS, MAIN[:-1], deal="by feature"),
        Setting(
            "Adult, geometric 60", ADULT, {"kind": "geometric", "nodes": 60, "radius": 0.25, "seed": 3}, TESTS, MAIN
        ),
    )
}


# --- methods ---

AT_ONCE = ("admm", "dgd", "fedavg", "iadmm", "nids", "recal")


@dataclass(frozen=True)
class Method:
    """A line: what is fixed, and the lattice on which the rest is tuned."""

    title: str
    algorithm: DocumentView  #: of the scenario, without rounds
    start: Mapping[str, float]  #: dotted keys of the algorithm that are tuned, and where the walk begins
    privacy: DocumentView = field(default_factory=lambda: GAUSSIAN)  #: without epsilon and adjacency
    answers: int = 32  #: where the walk begins
    clips: bool = True  #: a minimiser's gate clips at the row bound and nowhere else
    layout: str = "graph"
    finishes: bool = False  #: rounds of averaging after the last answer
    alone: bool = False  #: all answers before the first message, and what a node then has

    @property
    def kind(self) -> type[Algorithm]:
        return ALGORITHMS[self.algorithm["name"]]

    @property
    def at_once(self) -> bool:
        """Whether a walk's runs are made for all seeds at once (lab/rollout/side_by_side.py); else they are a
        sweep's.
        """
        return self.algorithm["name"] in AT_ONCE and "sensitivity" not in self.privacy

    @property
    def pure(self) -> bool:
        return "delta" not in self.privacy

    @property
    def axes(self) -> list[Axis]:
        axes = [Axis(key, value) for key, value in self.start.items()]
        axes.append(Axis("answers", self.answers, low=1, high=50 if self.alone else inf))  # 50: of local_updates
        return axes + [Axis("clip", 0.5**0.5, factor=2**0.5, high=1.0)] * self.clips

    def search(self, seeds: Sequence[int] = (), levels: Sequence[int] = ()) -> Search:
        """Of minimisers two walks: from one answer with small penalties, and from four."""
        one, more = (-4,) * len(self.start), (0,) * len(self.start)
        return Search(self.axes, seeds, levels, () if self.clips else [(*one, 0), (*more, 2)])

    def point(self, values: Mapping[str, float], epsilon: float, graph: Graph, averaged: bool = True) -> Document:
        """The sections of a run: algorithm and privacy. averaged: with all rounds of averaging, else with one; the
        others is a product with W."""
        algorithm: Document = {k: dict(v) if isinstance(v, dict) else v for k, v in self.algorithm.items()}
        for key in self.start:
            first, _, rest = key.partition(".")
            if rest:
                algorithm[first] = {**algorithm.get(first, {}), rest: values[key]}
            else:
                algorithm[first] = values[key]
        answers = int(values["answers"])
        if self.alone:
            algorithm |= {"rounds": 1, "local_updates": answers}
        else:
            algorithm["rounds"] = rounds_of(self.kind, algorithm, answers, graph.n)
        if self.finishes:
            algorithm["finish"] = {"gossip": rounds_to_agree(graph) if averaged else 1}
        adjacency = {"replace-one-record": {"clip": values.get("clip", 1.0)}}
        return {"algorithm": algorithm, "privacy": {**self.privacy, "epsilon": epsilon, "adjacency": adjacency}}


GAUSSIAN: Document = {"mechanism": "gaussian", "accountant": "gdp", "delta": DELTA}
LAPLACE: Document = {"mechanism": "laplace", "accountant": "pure-basic"}


def rounds_of(kind: type[Algorithm], algorithm: DocumentView, answers: int, n: int) -> int:
    """Rounds (activations, where a token walks) in which each node answers so often (a random walk: on average)."""
    if kind.pattern == "token":
        return n * answers
    if kind.pattern == "star":
        return answers
    section = convert({**algorithm, "rounds": 4 * answers + 4}, kind, "league")
    return section.capped(answers, "objective", 0)[1]


def weights(graph: Graph) -> Matrix:
    """W of a round of averaging, (n, n)."""
    W = np.zeros((graph.n, graph.n))
    for i in range(graph.n):
        W[i, list(graph.neighbours[i])] = metropolis(graph, i)
        W[i, i] = 1.0 - W[i].sum()
    return W


def rounds_to_agree(graph: Graph) -> int:
    """Rounds of averaging that leave a hundredth of all differences, at most 1000: public, of the graph alone."""
    slowest = float(np.sort(np.abs(np.linalg.eigvalsh(weights(graph))))[-2])
    return min(1000, ceil(log(100) / -log(slowest))) if slowest > 0 else 1


def _start(grid: Sequence[DocumentView]) -> dict[str, float]:
    """The keys that a declared grid varies, with the values of the candidate in its middle."""
    flat = [_flat(keys) for keys in grid]
    middle = flat[len(flat) // 2]
    return {key: value for key, value in middle.items() if len({f[key] for f in flat}) > 1}


def _flat(keys: DocumentView) -> dict[str, float]:
    flat: dict[str, float] = {}
    for key, value in keys.items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _methods() -> dict[str, Method]:
    """Of every algorithm that solves data problems on a graph the lines that it declares; around a coordinator;
    without.
    """
    methods = []
    for name, kind in {name: ALGORITHMS[name] for name in KINDS["data"].algorithms}.items():
        if kind.pattern == "star":
            continue
        for race in races(kind):
            fixed = {"name": name, **race.keys}
            start = _start(race.grid)
            fixed |= {k: dict(v) if isinstance(v, dict) else v for k, v in race.grid[0].items() if k not in start}
            section = convert({**fixed, **race.grid[0], "rounds": 9}, kind, "league")
            finishes = kind.pattern == "neighbours"
            if section.asks() != "minimiser":
                methods.append(Method(race.title, fixed, start, finishes=finishes))
                continue
            for privacy, word in ((LAPLACE, "pure"), (GAUSSIAN, "Gaussian")):
                if word == "Gaussian" and section.by_output("laplace"):
                    continue  # under Gaussian noise all minimisers are private by output perturbation: it is ADMM
                title = f"{race.title}, {word}"
                methods.append(Method(title, fixed, start, privacy, answers=1, clips=False, finishes=finishes))
    dgd = next(m for m in methods if m.title == "DGD")
    methods += [
        Method("DGD, no finishing", dgd.algorithm, dgd.start),
        Method("DGD, pointwise", dgd.algorithm, dgd.start, {**GAUSSIAN, "sensitivity": "pointwise"}, finishes=True),
        Method("DGD, momentum .5", {**dgd.algorithm, "momentum": 0.5}, dgd.start, finishes=True),
        Method("star: FedAvg", {"name": "fedavg"}, {"step_size": 1.0}, layout="star"),
        Method("star: linearised ADMM", {"name": "ladmm"}, {"eta": 1.0, "rho": 0.1}, layout="star"),
        Method("each alone", {"name": "fedavg"}, {"step_size": 1.0}, layout="star", alone=True),
        Method("a curator with all rows", {"name": "fedavg"}, {"step_size": 1.0}, layout="curator"),
    ]
    return {m.title: m for m in methods}


METHODS = _methods()
