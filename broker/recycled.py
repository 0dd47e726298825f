"""`hushgrid bench recycled`: Figures 1 to 5 of X. Zhang, M. M. Khalili, M. Liu, Recycled ADMM, on Adult; Findings 5.1 and 5.2.

The paper's problem, C = 1750, rho = .22, rows of norm 1: O(f, D_i) = C/B sum_n log(1 + exp(-y_n f.x_n)) + rho/(2N) |f|^2; its
L(t) is the mean over nodes of node i's loss at its own f_i(t). B = 2000 rows a node, the paper's at N = 20, at N = 5 too:
a whole fits no cache otherwise. The private runs pay honest totals at the gate: one record replaced, everything a
node ever sends told. Equal totals, so a method with fewer answers has less noise; each is also shown with fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.broker import recycled_limits as limits
from hushgrid.broker.relay_private import ADULT, ADULT_TEST, Willing
from hushgrid.broker.study import TARGET, Exact, Panel, Table, chart, on_two, write
from hushgrid.kernels import accounting, dpadmm, dpladmm, madmm, radmm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.jit import Matrix, Vector
from hushgrid.kernels.losses import CURVATURE, Loss, Objective, logistic_value
from hushgrid.kernels.noise import counter_generator
from hushgrid.kernels.radmm import Conventional, Growth, Params, Recycled
from hushgrid.kernels.routes import name
from hushgrid.node.data import Shard, read_libsvm, unit_rows
from hushgrid.node.gate import Seeded
from hushgrid.node.plan import Terms
from hushgrid.node.rows_gate import RowsGate

COMMAND = "hushgrid bench recycled"
C, RHO, GAMMA, GROWTH = 1750.0, 0.22, 0.5, 1.04
B = 2000  #: rows of a node
TRAINED = 40_000  #: rows of Adult that nodes may have; the others test
ROUNDS, RUNS = 30, 10
DELTA = 1e-5  #: of the Gaussian mechanism, which only one rival uses
EPSILONS = (4.0, 16.0, 64.0)  #: honest totals; 2 C alpha/B is the first term's price of one answer
SHORTER = (15, 4)  #: rounds, beside ROUNDS; ADMM in 15 has as many answers as R-ADMM in 30
STEPS = (1.0, 4.0, 16.0, 64.0)  #: of linearised ADMM, in units of 1/L, L = C/4: the grid
Q2 = (0.01, 0.005, 0.003, 0.015, 0.01)  #: Figure 1(b): q1 = 1 + k q2
ETA_HAT = (1.0, 1.03, 1.02, 0.8, 1.01)


class Method(NamedTuple):
    machine: Any  #: with Agent
    params: Any
    keys: dict[str, Any]
    mechanism: str = "laplace"


METHODS = {
    "ADMM": Method(radmm, Conventional, {"eta": 1.0}),  # private: dual variable perturbation
    "R-ADMM": Method(radmm, Recycled, {"eta": 1.0, "gamma": GAMMA}),
    "MR-ADMM": Method(radmm, Params, {"eta": Growth(1.0, GROWTH), "gamma": GAMMA}),
    "M-ADMM": Method(madmm, madmm.Params, {"eta": Growth(1.0, GROWTH), "theta": 1.0}),
    "ADMM, primal": Method(dpadmm, dpadmm.Params, {"eta": 1.0, "perturb": "primal"}),
    "linearised, Laplace": Method(dpladmm, dpladmm.Params, {"eta": 1.0}),
    "linearised, Gaussian": Method(dpladmm, dpladmm.Params, {"eta": 1.0}, "gaussian"),
}
RIVALS = tuple(METHODS)


class Setting(NamedTuple):
    """One line of a figure. `keys` stand in place of the method's own."""

    figure: str
    method: str
    keys: dict[str, Any] = {}  # noqa: RUF012
    epsilon: float = inf  #: honest total; infinite: no noise
    N: int = 5
    rounds: int = ROUNDS
    runs: int = RUNS


class Found(NamedTuple):
    setting: Setting
    loss: Matrix  #: (runs, rounds) L(t); NaN where the gate refuses: an answer may not cost so little
    wrong: Vector  #: (runs,) the share of the test rows classified wrong by the mean of all f_i, at the end
    answers: int  #: of each node
    alpha: tuple[float, float]  #: the first answer's noise is exp(-alpha |eps|), and the last one's
    stated: float  #: what the method's paper says of this noise
    step: float  #: of linearised ADMM, in units of 1/L

    @property
    def last(self) -> tuple[float, float, float, float]:
        """Mean and range (largest - smallest) over runs of L and of the share that is wrong, at the end."""
        end = self.loss[:, -1]
        return float(end.mean()), float(np.ptp(end)), float(self.wrong.mean()), float(np.ptp(self.wrong))


# --- the problem ---


@cache
def adult() -> tuple[Shard, Shard]:
    """All 48,842 rows, of norm 1, in one fixed random order: those to learn from, those to test on."""
    parts = [read_libsvm(path, "logistic", features=123, first_index=0) for path in (ADULT, ADULT_TEST)]
    A, b = unit_rows(np.concatenate([p.A for p in parts])), np.concatenate([p.b for p in parts])
    order = np.argsort(counter_generator(0, "recycled", 0).random(len(b)))
    A, b = A[order], b[order]
    return Shard(A[:TRAINED], b[:TRAINED]), Shard(A[TRAINED:], b[TRAINED:])


def losses(N: int, rho: float = RHO) -> list[Loss]:
    """O(., D_i), B rows each."""
    A, b = adult()[0]
    objective = Objective(kind="logistic", scale=C, l2=rho / N)
    return [Loss(objective, A[i * B :][:B], b[i * B :][:B], row_bound=1.0) for i in range(N)]


def neighbours(N: int) -> list[list[int]]:
    """A graph drawn at random, 6 of 10 links (N = 5) or a quarter of them; the first seed that is connected."""
    for seed in range(1000):
        try:
            graph = Network(kind="erdos-renyi", nodes=N, density=0.6 if N < 10 else 0.25, seed=seed).build()
        except InputError:  # not connected
            continue
        return [list(near) for near in graph.neighbours]
    raise InputError(f"network: found no connected graph of {N} nodes, expected one in 1000 seeds")


def value(fs: Sequence[Loss], x: Matrix) -> float:
    """L: the mean over nodes of node i's mean loss at x_i, without the regulariser."""
    return float(np.mean([logistic_value(f.A @ xi, f.b) for f, xi in zip(fs, x, strict=True)]))


def wrong(x: Vector) -> float:
    """E: the share of the test rows that x classifies wrong."""
    A, b = adult()[1]
    return float(np.mean(np.where(A @ x >= 0, 1.0, -1.0) != b))


# --- one run ---


def fleet(method: Method, keys: dict[str, Any], gates: Sequence[Any], near: Sequence[Sequence[int]], d: int) -> list[Any]:  # fmt: skip
    params = method.params(**keys)
    return [
        method.machine.Agent(params, gate, d, name(i), [name(j) for j in near[i]], centre="")
        for i, gate in enumerate(gates)
    ]


def messages(nodes: Sequence[radmm.Agent]) -> Iterator[Matrix]:
    """f(t), (N, d): what the nodes send, round by round, in this process."""
    sent = [node.first() for node in nodes]
    at = {node.name: i for i, node in enumerate(nodes)}
    for t in range(1, nodes[0].messages + 1):
        yield np.array(sent)
        sent = [node.step(t, sent[i], {j: sent[at[j]] for j in node.neighbours}) for i, node in enumerate(nodes)]


def terms(mechanism: Any, epsilon: float, answers: int) -> Terms:
    """`answers` answers of a node that cost `epsilon` in all: pure, or (Gaussian) at DELTA by GDP; one record replaced."""
    delta, accountant = (DELTA, "gdp") if mechanism == "gaussian" else (0.0, "pure-basic")
    return Terms(
        mechanism=mechanism, adjacency="replace-one-record, clip 1", beta=0.0, mode="objective", at="data",
        published=False, accountant=accountant, answers=answers,
        per_answer=accounting.calibrate(accountant, epsilon, delta, answers), paper_epsilon=epsilon / answers,
        paper_delta=None, delta=delta, epsilon=epsilon, rounds=answers, capped=False, clip=1.0,
    )  # fmt: skip


def stated(method: str, nodes: Sequence[radmm.Agent], gates: Sequence[RowsGate]) -> float:
    """(32) at the noise in use, the largest over nodes; of [21] and [23], which price one iteration, that of one."""
    first = gates[0]
    if "R-ADMM" not in method and method != "M-ADMM":
        return first.spends[0].value if first.spends[0].kind == "laplace" else nan
    each = []
    for node, gate in zip(nodes, gates, strict=True):
        o, rows = gate.loss.objective, gate.loss.rows
        mu = [o.l2 + node.quadratic(k) for k in range(1, len(gate.spends) + 1)]
        each.append(sum(2 * o.scale / rows * (1.4 * CURVATURE[o.kind] / m + 1 / s.scale)
                        for m, s in zip(mu, gate.spends, strict=True)))  # fmt: skip
    return float(max(each))


def run(s: Setting, seed: int, step: float = nan) -> Found:
    """One run of a setting."""
    fs, method = losses(s.N), METHODS[s.method]
    keys = method.keys | {"rounds": s.rounds, "variant": "none" if s.epsilon == inf else "guarded"} | s.keys
    if step == step:
        keys["step"] = step / (C * CURVATURE["logistic"])
    answers = method.params(**keys).answers
    gates: list[Any]
    if s.epsilon == inf:
        gates = [Exact(f) for f in fs]
    else:
        t = terms(method.mechanism, s.epsilon, answers)
        gates = [RowsGate(name(i), f, t, Seeded(seed, name(i)), Willing()) for i, f in enumerate(fs)]
    nodes = fleet(method, keys, gates, neighbours(s.N), fs[0].size)
    loss, f = np.full((1, s.rounds), nan), np.zeros((s.N, fs[0].size))
    try:
        for k, f in enumerate(messages(nodes)):
            loss[0, k] = value(fs, f)
    except InputError:  # so many answers at so little are refused before any is drawn
        if gates[0].spends:
            raise
        return Found(s, loss, np.array([nan]), answers, (nan, nan), nan, step)
    alpha, said = (inf, inf), nan
    if s.epsilon < inf:
        ends = gates[0].spends[0], gates[0].spends[-1]
        perturbed = method.machine is not dpladmm and keys.get("perturb") != "primal"
        alpha = (1 / ends[0].scale, 1 / ends[1].scale) if perturbed else (nan, nan)
        said = stated(s.method, nodes, gates)
    return Found(s, loss, np.array([wrong(f.mean(axis=0))]), answers, alpha, said, step)


def measure(s: Setting) -> Found:
    """All runs of a setting; linearised ADMM's step is the best of its grid, by the loss at the end: optimistic."""
    found = []
    for step in STEPS if METHODS[s.method].machine is dpladmm else (nan,):
        runs = [run(s, seed, step) for seed in range(s.runs if s.epsilon < inf else 1)]
        loss = np.concatenate([r.loss for r in runs])
        found.append(runs[0]._replace(loss=loss, wrong=np.concatenate([r.wrong for r in runs])))
    return min(found, key=lambda f: np.inf if np.isnan(f.last[0]) else f.last[0])


# --- the figures ---


def asked(runs: int = RUNS, rounds: int = ROUNDS, epsilons: Sequence[float] = EPSILONS) -> list[Setting]:
    """Every setting of Figures 1, 3, 4 and 5."""
    long = 2 * rounds
    plain = [Setting("1a", "ADMM", {"eta": 0.5}, N=N, rounds=long) for N in (5, 20)]
    plain += [
        Setting("1a", "R-ADMM", {"eta": 0.5, "gamma": g}, N=N, rounds=long) for N in (5, 20) for g in (0.5, 2.0, 8.0)
    ]
    for k in (1, 3, 5):
        unlike = Growth(ETA_HAT, tuple(1 + k * q for q in Q2))
        plain += [Setting("1b", "MR-ADMM", {"eta": unlike, "penalties": p}, rounds=long) for p in ("node", "edge")]
    plain += [Setting("1c", "MR-ADMM", {"eta": Growth(1.0, q)}, rounds=long) for q in (1.0, 1.01, 1.03, 1.05)]
    plain.append(Setting("3", "ADMM", rounds=rounds))  # the green curve of every other figure
    noisy = []
    for e in epsilons[1:]:
        noisy += [
            Setting("3", "MR-ADMM", {"eta": Growth(1.0, 1.01), "gamma": g}, e, 5, rounds, runs)
            for g in (0.1, 0.5, 1.0, 2.0)
        ]
        noisy += [
            Setting("4", "MR-ADMM", {"eta": Growth(1.0, q)}, e, 5, rounds, runs) for q in (1.01, 1.02, 1.03, 1.04, 1.05)
        ]
    for e in epsilons:
        noisy += [Setting("5", m, {}, e, 5, T, runs) for T in (rounds, *SHORTER) for m in RIVALS]
    return plain + noisy


def label(s: Setting) -> str:
    """What tells a curve from the others of its figure."""
    eta: Any = s.keys.get("eta")
    if s.method == "ADMM" and s.epsilon == inf:
        return "ADMM, no noise"
    if s.figure == "1a":
        return f"R-ADMM, γ = {s.keys['gamma']:g}"
    if s.figure == "3":
        return f"γ = {s.keys['gamma']:g}"
    if s.figure == "1b":
        return f"k = {round((eta.growth[0] - 1) / Q2[0])}, penalties of {s.keys['penalties']}s"
    return f"q₁ = {eta.growth:g}" if isinstance(eta, Growth) else s.method


def panel(title: str, found: Sequence[Found]) -> Panel:
    """L over iterations, the mean of all runs and their range."""
    curves, ranges = {}, {}
    for f in found:
        if not np.isnan(f.loss).any():
            t = np.arange(1.0, f.loss.shape[1] + 1)
            curves[label(f.setting)] = (t, f.loss.mean(axis=0))
            ranges[label(f.setting)] = (f.loss.min(axis=0), f.loss.max(axis=0))
    return Panel(title, "iteration", "average loss L(t)", curves, ranges=ranges)


def pictures(found: Sequence[Found], rounds: int, epsilons: Sequence[float]) -> tuple[str, str]:
    """Figure 1; Figures 3 to 5."""

    def of(figure: str, **like: Any) -> list[Found]:
        return [
            f for f in found if f.setting.figure == figure and all(getattr(f.setting, k) == v for k, v in like.items())
        ]

    one = [[panel(f"1(a), N = {N}", of("1a", N=N)) for N in (5, 20)],
           [panel("1(b), N = 5", of("1b")), panel("1(c), N = 5", of("1c"))]]  # fmt: skip
    green = of("3", epsilon=inf)
    private = [[panel(f"{n}, ε = {e:g}", green + of(n, epsilon=e)) for e in epsilons[1:]] for n in ("3", "4")]
    private.append([panel(f"5, ε = {e:g}", green + of("5", epsilon=e, rounds=rounds)) for e in epsilons])
    return (
        chart("Figure 1 of the Recycled ADMM paper again: no noise", COMMAND, one),
        chart("Figures 3 to 5 of the Recycled ADMM paper again, at honest totals", COMMAND, private),
    )


def tables(found: Sequence[Found]) -> list[Table]:
    plain, noisy = [], []
    for f in found:
        s, (loss, spread, error, errors) = f.setting, f.last
        if s.epsilon == inf:
            ends = f"{f.loss[0, 0]:.4f}", f"{f.loss[0, -2]:.4f}", f"{loss:.4f}"
            plain.append((s.figure, s.N, label(s), f.answers, *ends, error))
        else:
            chosen = f"step {f.step:g}/L" if f.step == f.step else ""
            row = (s.figure, s.method, label(s) if s.figure != "5" else chosen, s.rounds, f.answers, s.epsilon)
            noisy.append((*row, f.stated, *f.alpha, loss, spread, error, errors))
    return [
        Table("Figure 1: without noise", ("figure", "N", "curve", "answers", "L(1)", "L, last odd round", "L, last even round", "wrong"), plain),
        Table(
            "Figures 3 to 5: honest totals, mean and range over runs; no figure where the gate refuses",
            ("figure", "method", "curve", "rounds", "answers", "epsilon", "stated", "alpha, first", "last", "L", "range", "wrong", "range"),
            noisy,
        ),
    ]  # fmt: skip


def study(runs: int = RUNS, rounds: int = ROUNDS, epsilons: Sequence[float] = EPSILONS, target: Path = TARGET) -> None:
    """All figures and both findings, to files."""
    began = time.perf_counter()
    settings = asked(runs, rounds, epsilons)
    found = on_two(
        measure, settings, lambda s: f"figure {s.figure}: {s.method} {s.keys} ε = {s.epsilon:g}, {s.rounds} rounds"
    )
    more = [limits.figure_two(), limits.wrong_limit(), limits.told()]
    plain, private = pictures(found, rounds, epsilons)
    write("recycled-figures", COMMAND, time.perf_counter() - began, [*tables(found), *more], private, target)
    (target / "recycled-plain.svg").write_text(plain)
