"""`hushgrid study audit`: what `hushgrid audit` measures of claims that hold, of every algorithm's, and of noise that is wrong.

Games at the gate, one run with thousands of canaries, how often a bound passes the claim, and each way in which noise, clip or
sensitivity can be wrong. Nothing here reads data: worst pairs and canaries are made up.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.privacy import auditing
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.kernels.types import Vector
from hushgrid.lab.attacks import registry
from hushgrid.lab.attacks.transcript import heard
from hushgrid.lab.audit.audit import Found, audited
from hushgrid.lab.audit.one_run import OneRun, again_at_the_gate, one_run
from hushgrid.lab.studies.common.study import TARGET, Panel, Table, chart, on_two, write
from hushgrid.node.problems.records.data import Synthetic, synthetic, unit_rows

COMMAND = "hushgrid study audit"
DELTA = 1e-5
GAUSSIAN: dict[str, Any] = {"mechanism": "gaussian", "accountant": "gdp", "delta": DELTA}
LAPLACE: dict[str, Any] = {"mechanism": "laplace"}
ROWS = {"synthetic": {"rows": 20, "features": 2}, "normalize": "unit-rows"}
EPSILONS = (1.0, 4.0, 8.0)
SEEDS = 200  #: runs of which it is counted how often a bound passes the claim
FEW = 500  #: games of each row of the table of all algorithms
DOUBT = 1e-3  #: that any honest row of it is accused


def scenario(
    algorithm: dict[str, Any], privacy: dict[str, Any], kind: str = "logistic", adjacency: Any = None, **problem: Any
) -> dict[str, Any]:
    """Rows on a ring of four, or around a coordinator."""
    found: dict[str, Any] = {
        "hushgrid": 1,
        "name": "audit",
        "problem": {"kind": kind, "data": dict(ROWS), "row_bound": 1.0, "l2": 0.1} | problem,
        "algorithm": algorithm,
        "privacy": {"adjacency": adjacency or {"replace-one-record": {"clip": 1.0}}} | privacy,
    }
    if kind == "softmax":
        found["problem"]["classes"] = 3
    if ALGORITHMS[algorithm["name"]].networked:
        found["network"] = {"kind": "ring", "nodes": 4}
    else:
        found["problem"]["data"]["nodes"] = 4
    return found


def zones(algorithm: dict[str, Any], privacy: dict[str, Any], adjacency: Any = 0.01) -> dict[str, Any]:
    """Loads of case5 in two zones."""
    problem: dict[str, Any] = {"kind": "zones", "case": "case5", "zones": 2}
    if algorithm["name"] == "consensus-admm":
        problem["ac"] = "none"
    return {
        "hushgrid": 1,
        "name": "audit",
        "problem": problem,
        "algorithm": algorithm,
        "privacy": {"adjacency": {"bounded-change": adjacency}} | privacy,
    }


def dgd(rounds: int, epsilon: float, privacy: dict[str, Any], **more: Any) -> dict[str, Any]:
    return scenario({"name": "dgd", "rounds": rounds, "step_size": 0.1}, privacy | {"epsilon": epsilon}, **more)


# --- games ---


class Game(NamedTuple):
    title: str
    raw: dict[str, Any]
    games: int


GAMES = [
    *(Game("one Laplace answer", dgd(1, e, LAPLACE), 400_000) for e in (0.5, 1.0, 3.0)),
    *(Game("20 Gaussian answers", dgd(20, e, GAUSSIAN), 100_000) for e in (0.05, 1.0, 4.0, 12.0)),
    *(
        Game(
            f"private minimiser, {title}",
            scenario({"name": "admm", "rounds": 1, "eta": 1.0}, p | {"epsilon": 2.0}),
            100_000,
        )
        for title, p in (("objective perturbation", LAPLACE), ("output perturbation", GAUSSIAN))
    ),
]


class Line(NamedTuple):
    title: str
    claim: float
    measured: float
    ninety_nine: float
    power: float
    games: int
    attack: str
    seconds: float
    megabytes: float
    moved: float


def played(game: Game) -> Line:
    found = audited(game.raw, games=game.games, confidence=0.95, also=0.99)
    return line_of(game.title, found)


def line_of(title: str, found: Found, confidence: float = 0.95) -> Line:
    bounds, used = found.worst.bounds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Line(
        title, found.claim.epsilon, bounds[confidence].epsilon, bounds[0.99].epsilon, found.power, found.worst.counted,
        found.worst.attack.name, found.seconds, used, found.worst.canary.moved,
    )  # fmt: skip


# --- one run ---


class Run(NamedTuple):
    epsilon: float
    canaries: int
    seeds: tuple[int, ...]
    transport: str
    rounds: int = 20


def canaried(task: Run) -> dict[str, Any]:
    return dgd(task.rounds, task.epsilon, GAUSSIAN, kind="least-squares")


def ran(task: Run) -> tuple[Run, list[OneRun], float]:
    found = [
        one_run(canaried(task), canaries=task.canaries, transport=task.transport, broker="embedded", confidence=0.95, coins=np.random.default_rng(seed))
        for seed in task.seeds
    ]  # fmt: skip
    return task, found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ran_at_the_gate(task: Run) -> tuple[Run, list[float]]:
    """The bounds of many runs: the first is one of whole nodes, of the others the gate alone (`again_at_the_gate`)."""
    first = one_run(
        canaried(task),
        canaries=task.canaries,
        confidence=0.95,
        transport="memory",
        coins=np.random.default_rng(task.seeds[0]),
    )
    coins = (np.random.default_rng([task.canaries, seed]) for seed in task.seeds[1:])
    return task, [first.epsilon, *(bound for bound, _ in again_at_the_gate(first, coins))]


# --- every algorithm ---


def every() -> Iterator[Game]:
    """Each guarded algorithm with each mechanism, kind of problem, adjacency and mode that it takes."""
    for name, of in ALGORITHMS.items():
        algorithm = {"name": name, "rounds": 6} | dict(of.examples["guarded"][0])
        for mechanism in (LAPLACE, GAUSSIAN):
            privacy = mechanism | {"epsilon": 20.0}
            if "copies" in of.of:
                for kind in ("logistic", "least-squares", "softmax"):
                    for adjacency in ({"replace-one-record": {"clip": 1.0}}, {"bounded-change": 0.05}):
                        more = {"box": 0.5} if name == "ladmm" else {}
                        words = f"{name}, {mechanism['mechanism']}, {kind}, {next(iter(adjacency))}"
                        yield Game(words, scenario(algorithm, privacy, kind, adjacency, **more), FEW)
            if "addends" in of.of:
                for kind, statistic in STATISTICS.items():
                    raw = scenario({"name": name}, privacy, kind)
                    raw["problem"] = {"kind": kind, "data": raw["problem"]["data"], **statistic.example}
                    yield Game(f"{name}, {mechanism['mechanism']}, {kind}", raw, FEW)
            if "parts" in of.of:
                for mode in of.modes:
                    for at in ("data", "gradient") if mode == "objective" else ("data",):
                        words = f"{name}, {mechanism['mechanism']}, zones, mode {mode}{', at gradient' * (at == 'gradient')}"
                        own = (
                            {"name": name, "rounds": 6}
                            if name != "ladmm"
                            else {"name": name, "rounds": 6, "rho": 100.0}
                        )
                        yield Game(words, zones(own, privacy | {"mode": mode, "at": at}), FEW)


def tried(game: Game) -> Line | str:
    """A row; the reason where the scenario is refused."""
    try:
        return line_of(
            game.title,
            audited(game.raw, games=game.games, confidence=1 - DOUBT / ROWS_OF_ALL, also=0.99),
            1 - DOUBT / ROWS_OF_ALL,
        )
    except InputError as error:
        return str(error)


ROWS_OF_ALL = 210  #: rows of that table, at most


# --- what is wrong ---


def half(release: Any) -> Any:
    return lambda self, *given: release(self, *given) // 2


def repeated(sample: Any) -> Any:
    return lambda self, size, *given: np.repeat(sample(self, (size + 1) // 2, *given), 2)[:size]


def floating(self: Lattice, v: Vector, n: Any) -> Vector:
    dice = np.random.default_rng(3)
    return v + dice.laplace(scale=self.scale, size=v.size)


def wrong() -> list[tuple[str, Callable[[], AbstractContextManager[Any]], dict[str, Any]]]:
    """(what is wrong, how it is made so, the scenario)."""
    sample = Lattice.sample
    rows = dgd(2, 1.0, LAPLACE, kind="least-squares")
    one = {"name": "ladmm", "variant": "published", "rounds": 1}
    return [
        ("nothing", nullcontext, rows),
        ("half of the noise", lambda: patch.object(Lattice, "sample", half(sample)), rows),
        (
            "no clip",
            lambda: patch.object(Loss, "clipped_gradient", lambda self, x, c, order: self.data_gradient(x)),
            rows,
        ),
        ("every integer of the noise twice", lambda: patch.object(Lattice, "sample", repeated(sample)), rows),
        ("noise in floating point", lambda: patch.object(Lattice, "release", floating), rows),
        ("published ladmm over zones (2.2)", nullcontext, zones(one, LAPLACE | {"epsilon": 1.0})),
        ("published ladmm over rows (2.3)", nullcontext, scenario(one, LAPLACE | {"epsilon": 1.0}, box=0.5)),
    ]


def whole_runs(games: int = 100, epsilon: float = 1.0) -> Line:
    """Published RECAL, whose noise stands on messages: whole runs about two data sets, told apart by their transcripts.

    One record of n0 is replaced. The gradients that `hushgrid attack` reads of n0 are compared with those of either data set,
    and the nearer one is named: a test that is fixed beforehand, so that all games certify.
    """
    began = time.perf_counter()
    algorithm = {"name": "recal", "variant": "published", "rounds": 12, "walk": "hamiltonian"}
    raw = scenario(algorithm, GAUSSIAN | {"epsilon": epsilon}) | {"run": {"record": "transcript"}}
    shards = synthetic(Synthetic(rows=20, features=2, seed=3), "logistic", 4)
    A, b = unit_rows(shards[0].A), shards[0].b
    sets = [(A, b), (A.copy(), b.copy())]
    sets[1][0][-1], sets[1][1][-1] = -A[-1], b[-1]
    raw["problem"]["data"] = {"arrays": [list(s.A.shape) for s in shards]}
    fs = [Loss(Objective(kind="logistic", l2=raw["problem"]["l2"]), *rows, row_bound=1.0) for rows in sets]
    hits = [0, 0]
    for game in range(2 * games):
        rows = [sets[game % 2], *((unit_rows(s.A), s.b) for s in shards[1:])]
        listened = heard(run(raw | {"seed": game}, data=rows).transcript or [], "game")
        seen = registry.fitting(listened)[0].recover(listened).gradients["n0"]
        far = [sum(float(np.sum((g - f.gradient(at)) ** 2)) for at, g in zip(seen.at, seen.g, strict=True)) for f in fs]
        hits[game % 2] += far[0] < far[1]
    sure, surer = (float(auditing.epsilon_lower(hits[0], hits[1], games, DELTA, doubt)) for doubt in (0.05, 0.01))
    most = float(auditing.epsilon_lower(games, 0, games, DELTA, 0.05))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    title, seconds = f"published recal over rows (1.1), {2 * games} whole runs", time.perf_counter() - began
    return Line(title, epsilon, sure, surer, most, games, "gradients read off the token", seconds, used, 1.0)


def controls(_: int) -> list[Line]:
    found = []
    for title, made, raw in wrong():
        with made():
            found.append(played(Game(title, raw, 50_000)))
    return [*found, whole_runs()]


# --- the study ---


def tables(
    games: Sequence[Line], runs: Sequence[tuple[Run, list[OneRun], float]], seeds: Sequence[tuple[Run, list[OneRun], float]],
    gates: Sequence[tuple[Run, list[float]]], rows: Sequence[Line], refused: int, caught: Sequence[Line],
) -> list[Table]:  # fmt: skip
    cells: list[list[str | float]] = [
        [g.title, g.claim, g.measured, g.ninety_nine, g.power, f"{g.games:,}", g.attack, g.seconds, g.megabytes]
        for g in games
    ]
    own: list[list[str | float]] = [
        [t.epsilon, f"{t.canaries:,}", t.transport, len(f), float(np.median([o.epsilon for o in f])), float(np.min([o.epsilon for o in f])),
         float(np.median([o.plain for o in f])), f[0].power, float(np.median([o.seconds for o in f])), used]
        for t, f, used in runs
    ]  # fmt: skip
    passed = [often(t, [o.epsilon for o in f]) for t, f, _ in seeds] + [often(t, f) for t, f in gates]
    return [
        Table("Games at the gate", ("answers", "claimed", "measured, 95 %", "99 %", "power", "games", "attack", "s", "MB"), cells),
        Table("One run with canaries", ("claimed", "canaries", "over", "seeds", "measured, median", "least", "for any mechanism", "power", "s", "MB"), own),
        Table("How often one run passes the claim", OFTEN, passed),
        Table("What is wrong is caught", ("what is wrong", "claimed", "measured, 95 %", "99 %", "by"),
              [[c.title, c.claim, c.measured, c.ninety_nine, c.attack] for c in caught]),
        Table(f"Every algorithm, mechanism, problem, adjacency and mode ({refused} other combinations are refused)",
              ("scenario", "claimed", "measured", "power", "moved, of the sensitivity"),
              [[r.title, r.claim, r.measured, r.power, f"{r.moved:.4f}"] for r in rows]),
    ]  # fmt: skip


OFTEN = (
    "claimed",
    "canaries",
    "answers",
    "seeds",
    "above the claim",
    "largest",
    "median",
    "10 % show less than",
    "least",
)


def often(task: Run, bounds: Sequence[float]) -> list[str | float]:
    """A row of the table of many seeds."""
    above = sum(bound > task.epsilon for bound in bounds)
    spread = [float(v) for v in np.quantile(bounds, (1.0, 0.5, 0.1, 0.0))]
    return [task.epsilon, f"{task.canaries:,}", task.rounds, len(bounds), above, *spread]


def drawn(games: Sequence[Line]) -> str:
    """Measured against claimed."""
    curves = {}
    for title in dict.fromkeys(g.title for g in games):
        mine = [g for g in games if g.title == title]
        curves[title] = (np.array([g.claim for g in mine]), np.array([max(g.measured, 1e-3) for g in mine]))
    claims = np.array(sorted({g.claim for g in games}))
    curves["claimed"] = (claims, claims)
    panel = Panel("measured with 95 % confidence", "claimed epsilon", "epsilon", curves, xlog=True, marks=True)
    return chart("What games at the gate show of a claim", COMMAND, [[panel]])


def study(target: Path = TARGET) -> None:
    """Repeats the study, to docs/studies/audit-table.md."""
    began = time.perf_counter()
    games = on_two(played, GAMES, lambda g: g.title)
    runs = [Run(e, 4000, tuple(range(3)), "memory") for e in EPSILONS] + [Run(8.0, 4000, (0,), "mqtt")]
    whole = [ran(task) for task in runs]
    seeds = on_two(ran, [Run(e, 200, tuple(range(k, k + SEEDS // 4)), "memory", 6) for e in EPSILONS for k in range(0, SEEDS, SEEDS // 4)], lambda t: f"seeds {t.seeds[0]}")  # fmt: skip
    together = []
    for e in EPSILONS:
        parts = [part for part in seeds if part[0].epsilon == e]
        together.append((parts[0][0], [o for _, f, _ in parts for o in f], 0.0))
    gates = on_two(
        ran_at_the_gate,
        [Run(e, 4000, tuple(range(SEEDS)), "memory") for e in EPSILONS],
        lambda t: f"{t.epsilon:g} at the gate",
    )
    found = on_two(tried, list(every()), lambda g: g.title)
    rows = [row for row in found if isinstance(row, Line)]
    (caught,) = on_two(controls, [0], lambda _: "what is wrong")
    made = tables(games, whole, together, gates, rows, len(found) - len(rows), caught)
    write("audit-table", COMMAND, time.perf_counter() - began, made, drawn(games), target)
