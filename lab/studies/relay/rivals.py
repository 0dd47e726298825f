"""The methods of the RECAL paper's Tables IV and V and Figures 3 and 6 on one problem: error, accuracy, processor time.

DP-ADMM [12] is `dpadmm` (minimisers), and with gradients linearised ADMM with a constant step, the ADMM [43] in which
the paper roots it; DP-ADMM [13] is `dpladmm`, DP-MRADMM [17] `mradmm`, DP-RWADMM [30] baselines/rwadmm.py. Two ways to
pay. Published: the paper says that all have the same epsilon and not how; here every method has the noise of Theorem 4,
in which a whole gradient moves by 2 c, c = 1, on its gradient or on the linear term of its minimiser. A first-order
method's message then has the same noise, by a public factor. Gate: noise on clipped gradients, or on minimisers, that
costs epsilon in all. The best of a
grid under the seed TUNED, by the error itself, which no run could see, is run under SEEDS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import inf, isfinite, nan
from time import process_time
from typing import Literal, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import dgd, dpadmm, dpladmm, extra, nids, radmm, recal
from hushgrid.kernels.algorithms.base import Rounds, Variant
from hushgrid.kernels.algorithms.iadmm import Oracle
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.graphs import Network
from hushgrid.kernels.patterns.neighbours import NodeContext
from hushgrid.kernels.privacy import accounting
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.prox import Regularizer
from hushgrid.kernels.randomness import counter_generator
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.lab.rollout.machines import AllowAll, run_rounds
from hushgrid.lab.rollout.machines import walk as hand_on
from hushgrid.lab.studies.baselines import rwadmm
from hushgrid.lab.studies.common.study import Exact, Page, Table, nowhere, on_two
from hushgrid.lab.studies.problems.relay import PENALTIES as OF_PAPER
from hushgrid.lab.studies.problems.relay import PLAIN, Problem, problems
from hushgrid.lab.studies.relay import private
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.records.gate import RowsGate

EPSILON = 12.0  #: the paper's
FIXED, FALLING = 300, 2000  #: the paper's PLF for fixed steps and for decaying ones
TUNED, SEEDS = 0, (1, 2, 3, 4, 5)
DECAYS = (1.0, 1.02)  #: R over FIXED answers
POINTS = 200  #: of a curve
ANSWERS, CLIPS = (20, 60, 200), (1.0, 4.0)  #: T and c at the gate
FEW = (1, 5, 20)  #: T of a minimiser's gate, which clips nothing
NOISES = ("published", "gate")
PUBLIC = (1.0, 1.9)  #: steps at the gate, in units of the public 1/L

Noiseless = Literal["guarded", "none"]  #: of machines that add no noise themselves
#: (rounds, variant, the parameter of the grid, L) -> a method's section.
Make = Callable[[int, Noiseless, float, float], Rounds]


class Rival(NamedTuple):
    """A rival among neighbours. `private`: the grid of its parameter under published noise, in units of the data's
    L; of the gradients' the step, of ADMM the penalty. `public`: the same at the gate, of the public L."""

    make: Make
    private: Sequence[float]
    public: Sequence[float] = PUBLIC
    PLF: int = FIXED
    minimises: bool = False  #: r is then a part of f_i, and may have no l1


def _linearised(schedule: Literal["1/sqrt(k)", "constant"]) -> Make:
    return lambda T, v, eta, L: dpladmm.Params(rounds=T, variant=v, eta=eta * L, step=1 / L, schedule=schedule)


STEPS = (0.01, 0.03, 0.1)  #: in units of 1/L
OWN, PENALTIES = (0.5, 2.5, 12.5), (0.05, 0.5)  #: in units of L
MINIMISED = (0.002, 0.02, 0.2)
NEIGHBOURS: dict[str, Rival] = {
    "EXTRA [27]": Rival(lambda T, v, a, L: extra.Params(rounds=T, variant=v, step_size=a / L), STEPS),
    "NIDS [28]": Rival(lambda T, v, a, L: nids.Params(rounds=T, variant=v, step_size=a / L), STEPS),
    "DGD": Rival(lambda T, v, a, L: dgd.Params(rounds=T, variant=v, step_size=a / L), STEPS),
    "ADMM [12], gradients": Rival(_linearised("constant"), OWN, PENALTIES),
    "ADMM [13]": Rival(_linearised("1/sqrt(k)"), OWN, PENALTIES, PLF=FALLING),
    "ADMM [12]": Rival(
        lambda T, v, a, L: dpadmm.Params(rounds=T, variant=v, eta=a * L), OWN, MINIMISED, minimises=True
    ),
    "MRADMM [17]": Rival(
        lambda T, v, a, L: radmm.Params(rounds=2 * T, variant=v, eta=a * L, gamma=L), OWN, MINIMISED, minimises=True
    ),
}
RECAL, RWADMM = "RECAL", "RWADMM [30]"
RHO = {"published": (2.0, 8.0, 32.0), "gate": (0.125, 0.5)}  #: of RWADMM, in units of L/2
METHODS = (RECAL, *NEIGHBOURS, RWADMM)


class GridPoint(NamedTuple):
    """A point of a method's grid: its parameter, R of the published noise or T and c at the gate."""

    parameter: float
    R: float = 1.0
    T: int = 0
    clip: float = 0.0

    def __str__(self) -> str:
        rest = f"T = {self.T}, c = {self.clip:.3g}" if self.T else f"R = {self.R:.4g}"
        return f"{self.parameter:g}, {rest}"


class RivalRun(NamedTuple):
    """One run."""

    x: Matrix  #: (K, d) the token's x, or the nodes' mean, after each activation or round
    sent: int  #: vectors in all
    PLF: int
    seconds: float  #: of the processor
    honest: float  #: epsilon by the gates' spends


class RivalCurve(NamedTuple):
    """Of the first seed, at POINTS moments."""

    sent: Vector
    error: Vector
    accuracy: Vector


class RivalLine(NamedTuple):
    """A method on a problem; medians over SEEDS."""

    problem: str
    method: str
    noise: str
    chosen: str
    PLF: float = nan
    sent: float = nan
    error: float = inf
    low: float = inf
    high: float = inf
    accuracy: float = nan
    seconds: float = nan
    honest: float = inf
    curve: RivalCurve | None = None  #: None: it was refused, or diverges


class Claimed(Exact):
    """An oracle whose gradients have the published noise, and the linear terms of its minimisers."""

    def __init__(self, loss: Loss, noise: Iterator[Vector]) -> None:
        super().__init__(loss)
        self.noise = noise

    def exact_gradient(self, x: Vector) -> Vector:
        return super().exact_gradient(x) + next(self.noise)

    def exact_minimizer(self, linear: Vector, quadratic: float) -> Vector:
        return super().exact_minimizer(linear + next(self.noise), quadratic)


def claimed_noise(p: Problem, epsilon: float, R: float, PLF: int, seed: int, i: int) -> Iterator[Vector]:
    """Agent i's noise, answer by answer: rho_t = (2 c)^2/(2 sigma_t^2), sigma_t^2 = R sigma_{t+1}^2, c = 1."""
    draw = counter_generator(seed, f"claimed n{i}", 0)
    for sd in private.attenuated((2 / private.budget(epsilon)) ** 0.5, R, PLF):
        yield draw.normal(0.0, sd, p.star.size)


def grid(method: str, noise: str) -> list[GridPoint]:
    """All points that are tried."""
    rival = NEIGHBOURS.get(method)
    steps: Sequence[float] = {RECAL: (1.0,) if noise == "published" else PUBLIC, RWADMM: RHO[noise]}.get(method, ())
    if rival:
        steps = rival.private if noise == "published" else rival.public
    if noise == "published":
        slower = FIXED / (rival.PLF if rival else FIXED)  # the same attenuation in all
        return [GridPoint(a, R=R**slower) for a, R in product(steps, DECAYS)]
    if rival and rival.minimises:
        return [GridPoint(a, T=T, clip=1.0) for a, T in product(steps, FEW)]
    return [GridPoint(a, T=T, clip=c) for a, T, c in product(steps, ANSWERS, CLIPS)]


def once(p: Problem, method: str, noise: str, s: GridPoint, seed: int, epsilon: float = EPSILON) -> RivalRun:
    """One run. Raises InputError or Refused if the gate refuses the question."""
    rival, n = NEIGHBOURS.get(method), len(p.losses)
    losses, unit = p.losses, 1.0
    if rival and rival.minimises:
        unit = float(losses[0].R) if noise == "gate" else 1.0  # a minimiser's gate wants |a| <= 1: it is of z = R x
        objective = Objective(kind=losses[0].objective.kind, l2=p.regularizer.l2 / unit**2)
        losses = [Loss(objective, f.A / unit, f.b, row_bound=f.R / unit) for f in losses]
    if noise == "gate":
        t = private.terms(epsilon, private.DELTA, s.T, s.clip)
        guards = gated(losses, t, seed)
        outcome = _run(p, method, "guarded", s, guards, [f.L for f in losses], s.T, seed)
        totals = accounting.Totals()
        for spend in guards[0].spends:
            totals.add(spend.event)
        return outcome._replace(x=outcome.x / unit, honest=accounting.spent_epsilon("gdp", totals, t.delta))
    if method == RECAL:
        of_visit = private.published_noise(p, epsilon, s.R, seed)
        walk = private.ring_walk(seed)
        mine = [iter(of_visit[[k for k, holder in enumerate(walk) if holder == i]]) for i in range(n)]
        oracles = [private.Noisy(f, e) for f, e in zip(losses, mine, strict=True)]
        return _run(p, method, "published", s, oracles, p.L, 0, seed)
    PLF = rival.PLF if rival else max(np.bincount(private.ring_walk(seed)).tolist())
    gates = [Claimed(f, claimed_noise(p, epsilon, s.R, PLF, seed, i)) for i, f in enumerate(losses)]
    return _run(p, method, "none", s, gates, p.L, PLF, seed)


def gated(losses: Sequence[Loss], t: Terms, seed: int) -> list[RowsGate]:
    """A gate of these terms for each agent."""
    return [RowsGate(f"n{i}", f, t, SeededNoise(seed, f"n{i}"), AllowAll()) for i, f in enumerate(losses)]


def _run(
    p: Problem,
    method: str,
    variant: Variant,
    s: GridPoint,
    gates: Sequence[Oracle],
    L: Sequence[float],
    T: int,
    seed: int,
) -> RivalRun:
    """A walk of the token or of RW-ADMM, at random, or around the ring where each gate answers T times; or rounds."""
    n, d, graph = len(gates), p.star.size, Network(kind="ring", nodes=len(gates)).build()
    walk = [k % n for k in range(n * T)] if variant == "guarded" else private.ring_walk(seed)
    began = process_time()
    if method == RECAL:
        params = recal.Params(rounds=len(walk), variant=variant, alpha=tuple(s.parameter / (one + 1) for one in L))
        agents = [
            recal.Agent(params, g, p.regularizer, i, n, L[i], d, f"n{i}", (), nowhere) for i, g in enumerate(gates)
        ]
        start = p.start() if variant == "published" else np.zeros(d)
        for agent in agents:
            agent.state.y = start.copy()
        x = np.array([hop.token[0] for hop in hand_on(agents, walk, (start, np.zeros(d)))])
        return RivalRun(x, 2 * len(walk), max(np.bincount(walk).tolist()), process_time() - began, inf)
    if method == RWADMM:
        w = rwadmm.Params(
            variant="guarded" if variant == "guarded" else "none", rounds=len(walk),
            rho=s.parameter * max(L) / 2, update="first-order",
        )  # fmt: skip
        steps = rwadmm.run(w, gates, graph.neighbours, d, walk, L, p.regularizer)
        x = np.array([step.x.mean(axis=0) for step in steps])
        return RivalRun(x, 2 * len(walk), max(np.bincount(walk).tolist()), process_time() - began, inf)
    rival = NEIGHBOURS[method]
    made = rival.make(T, "guarded" if variant == "guarded" else "none", s.parameter, max(L))
    r = PLAIN if rival.minimises else p.regularizer
    nodes = [
        made.agent(
            NodeContext(
                gate=g, name=f"n{i}", neighbours=[f"n{j}" for j in graph.neighbours[i]], graph=graph, index=i, size=d,
                L=L, regularizer=r, report=made.rounds,
            )
        )
        for i, g in enumerate(gates)
    ]  # fmt: skip
    x = np.array([xs.mean(axis=0) for xs in run_rounds(nodes, of_messages=made.recorded[0] != "x")])
    return RivalRun(x, 2 * n * len(x), T, process_time() - began, inf)


def measure(p: Problem, method: str, noise: str, epsilon: float = EPSILON) -> RivalLine:
    """The best point of the grid under TUNED, and what it does under SEEDS."""

    def error(s: GridPoint, seed: int) -> float:
        try:
            last = p.error(once(p, method, noise, s, seed, epsilon).x[-1])
        except (InputError, Refused) as refusal:
            refusals.append(str(refusal))
            return inf
        return last if isfinite(last) else inf

    refusals: list[str] = []
    with np.errstate(all="ignore"):  # a point that diverges is not the best
        points = grid(method, noise)
        scores = [error(s, TUNED) for s in points]
        if min(scores) == inf:
            return RivalLine(p.name, method, noise, f"refused: {refusals[-1]}" if refusals else "diverges")
        best = points[int(np.argmin(scores))]
        runs = [once(p, method, noise, best, seed, epsilon) for seed in SEEDS]
    errors = [p.error(run.x[-1]) for run in runs]
    first = runs[0]
    moments = np.unique(np.linspace(0, len(first.x) - 1, POINTS).astype(int))
    curve = RivalCurve(
        (moments + 1) * (first.sent / len(first.x)),
        np.array([p.error(x) for x in first.x[moments]]),
        np.array([p.accuracy(x) for x in first.x[moments]]),
    )
    return RivalLine(
        p.name, method, noise, str(best), float(np.median([run.PLF for run in runs])),
        float(np.median([run.sent for run in runs])), float(np.median(errors)), min(errors), max(errors),
        float(np.median([p.accuracy(run.x[-1]) for run in runs])),
        float(np.median([run.seconds for run in runs])), first.honest, curve,
    )  # fmt: skip


def compared(r: Regularizer) -> list[tuple[str, str]]:
    """The methods and noises under a regulariser. With l1 no minimisers; and no gate, for there x* is 0 or nearly."""
    able = [m for m in METHODS if not (r.l1 and m in NEIGHBOURS and NEIGHBOURS[m].minimises)]
    return list(product(able, NOISES[:1] if r.l1 else NOISES))


def table(title: str, lines: Sequence[RivalLine]) -> Table:
    """Tables IV and V: a line a method."""
    columns = (
        "problem", "method", "noise", "best", "PLF", "vectors sent", "relative error", "lowest", "highest", "accuracy",
        "processor time, s", "ε by the gates' spends",
    )  # fmt: skip
    return Table(title, columns, [tuple(line[:-1]) for line in lines])


# --- Tables IV and V on Adult and ijcnn1 ---


class RivalAsk(NamedTuple):
    """One line, its problem by name."""

    problem: str
    method: str
    noise: str


def of_ask(ask: RivalAsk) -> RivalLine:
    return measure(problems()[ask.problem](), ask.method, ask.noise)


def page() -> Page:
    """All methods on the problems of Tables IV and V: on ijcnn1, the paper's set, where it is, else on Adult."""
    named = {name: OF_PAPER[r] for name in problems() if (r := name.split(", ")[-1]) in OF_PAPER}
    last = list(named)[-1].split(", ")[0]
    asks = [RivalAsk(name, *rest) for name, r in named.items() if name.startswith(last) for rest in compared(r)]
    lines = on_two(of_ask, asks, lambda a: f"{a.problem}: {a.method}, {a.noise}")
    return Page("relay-rivals", [table(f"Tables IV and V: all methods, ε = {EPSILON:g}", lines)], {})
