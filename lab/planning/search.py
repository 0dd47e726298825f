"""`hushgrid plan`: which answers, step, clip and mechanism fit a promise best, from public numbers and made-up rows
alone.

The scenario's own algorithm, network and promise are kept. Its machines and gates are played on made-up rows of the
declared shape (`synthetic`); no data file is opened. Noise is that of the declared number of rows, also where fewer are
made up: a node's answer then has the same noise about nearly the same function. It is drawn in floating point, because
there is nobody to protect.

Search: for each mechanism the answers 1, 2, 4, ... as long as they help, and for each of them the step from where the
last one was best, doubled or halved as long as that helps; then clips, steps and answers in between; then momentum and
noise by the point. What was found best is
played again on other rows and other noise, and only that is shown.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from copy import deepcopy
from functools import cached_property
from itertools import product
from math import isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET

from hushgrid.kernels.algorithms.base import gossip_of, mechanisms, walk_of
from hushgrid.kernels.algorithms.registry import PLUGGED, plug
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.kernels.types import Document, DocumentView, Vector
from hushgrid.lab.planning.choices import Choice, laid, rounds_by, tuned_key
from hushgrid.lab.planning.shape import Shape, checked, without_data
from hushgrid.lab.planning.theorems import promised
from hushgrid.lab.planning.trial import GOSSIP, Played, TrialTask, beside, made_of, plan_of, play
from hushgrid.node.config.scenario import scenario_from

TUNED_ON = (0, 1)  #: seeds of the search; what is shown has others
FIRST = 100  #: seed of what is shown
ENOUGH = 1.02  #: so near to the error after the most rounds of averaging, fewer will do
HELPS = 0.95  #: of the error: what is not better by that much is not gone on with
AS_GOOD = 0.9  #: of the error: of choices whose medians are within that, the one of the fewest answers is chosen
MOMENTA = (0.5, 0.7)  #: that are tried
LONGEST = 4000  #: answers of all nodes in one run that is played, and at least 32 of each
SHOWN = 5  #: choices that are played again
WORK_S = 40.0  #: s of one processor, about, for these


FIGURES = ("excess", "error", "beyond")  #: of a run


class Candidate(NamedTuple):
    """A choice with what it gives, over seeds."""

    title: str
    choice: Choice  #: of what stands beside: the scenario's own
    gossip: int
    excess: Vector  #: (seeds,)
    error: Vector  #: (seeds,)
    beyond: Vector  #: (seeds,)
    promised: tuple[str, float] | None = None  #: a theorem of the paper, and its bound on averaged iterates' excess


class PlanResult(NamedTuple):
    """What a plan says."""

    best: list[Candidate]  #: the least excess loss first
    chosen: Candidate  #: of these: the fewest answers that are as good but for 1 - AS_GOOD
    beside: list[Candidate]  #: the scenario as it is, without privacy, each node alone
    seeds: int
    played: int  #: runs
    nodes: int
    description: str  #: what was planned for
    rows: int  #: that were made up for each node, at most
    measure: str  #: what `error` is


def begun(plugins: Sequence[str]) -> None:
    """A worker has begun: it knows the algorithms that were plugged in. A terminal's interrupt is its caller's
    business.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plug(plugins, "--plugin")


def pool(workers: int) -> Executor:
    """Processes of this machine. They are born deaf to an interrupt, which may come before `begun`."""
    made = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begun, (tuple(PLUGGED),))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(workers):  # each call begins one
            made.submit(int)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return made


class Search:
    """Plays choices on made-up rows, several at once, and remembers what came of them."""

    def __init__(self, raw: Document, shape: Shape, file: str, workers: int) -> None:
        """`raw`: a scenario without its data."""
        self.raw, self.shape, self.file = raw, shape, file
        self.scenario = scenario_from(deepcopy(raw), file)
        self.plan = plan_of(raw, file)
        self.rounds = rounds_by(self.scenario, len(shape.rows))
        self.known: dict[tuple[Choice, int], Played] = {}
        self.pool = pool(workers) if workers > 1 else None

    def close(self) -> None:
        """At once, whatever they compute: also if a signal to the whole group has ended them already."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()

    def task(self, choice: Choice, seed: int) -> TrialTask:
        return TrialTask(laid(self.raw, choice, self.rounds), self.shape, seed, self.file)

    def each(self, work: Callable[[TrialTask], Any], tasks: Sequence[TrialTask]) -> list[Any]:
        if self.pool is None:
            return [work(t) for t in tasks]
        try:
            return list(self.pool.map(work, tasks))
        except BrokenProcessPool:
            raise Stopped("a process that plays runs was ended from outside, or ran out of memory") from None

    def play(self, choices: Iterable[Choice], seeds: Sequence[int]) -> None:
        """Every one under every seed, those that are known already left out."""
        missing = [key for key in product(dict.fromkeys(choices), seeds) if key not in self.known]
        trials = self.each(play, [self.task(*key) for key in missing])
        self.known.update(zip(missing, trials, strict=True))

    def error(self, choice: Choice) -> float:
        """What is searched by: the mean excess loss over the seeds of the search, after all rounds of averaging."""
        self.play([choice], TUNED_ON)
        return float(np.mean([self.known[choice, seed].excess[-1] for seed in TUNED_ON]))

    def along(self, start: Choice, key: str, factor: float) -> Choice:
        """The best choice from `start` on, `key` multiplied or divided by `factor` as long as that helps."""
        best, least = start, self.error(start)
        for way in (factor, 1 / factor):
            while True:
                next_ = moved(best, key, way)
                if next_ is None or (error := self.error(next_)) >= least * HELPS:
                    break
                best, least = next_, error
            if best != start:
                break
        return best

    @property
    def measure(self) -> str:
        """What `error` is."""
        return "rms error" if self.plan.problem.objective.kind == "least-squares" else "rows wrong"

    # --- what may be chosen ---

    @cached_property
    def step(self) -> float | None:
        """The scenario's own step, or 1/L halved until it is allowed; None if the algorithm declares none."""
        key = tuned_key(type(self.scenario.algorithm))
        value = getattr(self.scenario.algorithm, key) if key else None
        value = getattr(value, "start", value)
        if isinstance(value, tuple):
            return None
        if not key:
            return None
        if isinstance(value, float | int):
            return float(value)
        steps = [float(f"{2.0**-k / max(self.plan.problem.L):.3g}") for k in range(30)]
        return next((step for step in steps if self.allowed(step)), steps[0])

    def allowed(self, step: float) -> bool:
        try:
            plan_of(laid(self.raw, self.stated._replace(step=step), self.rounds), self.file)
        except InputError:
            return False
        return True

    @property
    def stated(self) -> Choice:
        """The scenario as it stands."""
        p = self.scenario.privacy
        assert p is not None
        return Choice(None, None, None, p.mechanism, p.accountant)

    @property
    def promises(self) -> list[tuple[str, str]]:
        """Mechanisms with the accountants of the least cost that keep the scenario's promise: with a delta, or pure."""
        p, allowed = self.scenario.privacy, mechanisms(self.scenario.algorithm)
        assert p is not None
        if self.scenario.algorithm.variant != "guarded" or p.sensitivity == "pointwise" or p.masked:
            allowed = (p.mechanism,)
        known = [("gaussian", "gdp"), ("laplace", "pure-optimal")] if p.delta else [("laplace", "pure-basic")]
        return [(m, a) for m, a in known if m in allowed]

    def clips(self, mechanism: str) -> list[float]:
        """The middle one first: from a third of the longest gradient to all of it."""
        p = self.scenario.privacy
        assert p is not None
        if p.adjacency.replace_one_record is None:
            return []
        clip, problem = p.adjacency.replace_one_record.clip, self.plan.problem
        if self.scenario.algorithm.asks() == "minimiser":
            return [max(clip, problem.row_bound or clip)]
        if problem.objective.kind == "least-squares":
            return [clip, clip / 2, 2 * clip]
        longest = (problem.row_bound or clip) * (sqrt(2) if problem.objective.kind == "softmax" else 1.0)
        if mechanism == "laplace":  # in L1: a row of q alike entries is sqrt(q) times as long there
            longest *= sqrt(problem.features * (2 if problem.objective.kind == "softmax" else 1))
        return [round(longest * share, 4) for share in (0.7, 0.5, 0.35, 1.0)]

    def besides(self, mechanism: str) -> list[Document]:
        """What is tried with the best of a mechanism, where the scenario says nothing of it: momentum,
        pointwise noise.
        """
        algorithm, p, changes = self.scenario.algorithm, self.scenario.privacy, list[Document]()
        assert p is not None
        if getattr(algorithm, "momentum", None) is UNSET:
            changes += [{"momentum": m} for m in MOMENTA]
        if (
            mechanism == "gaussian"
            and p.sensitivity is UNSET
            and not p.masked
            and p.adjacency.replace_one_record is not None
            and algorithm.variant == "guarded"
            and algorithm.asks(p.mode) == "gradient"
            and self.plan.problem.objective.kind == "logistic"
        ):
            changes.append({"pointwise": True})
        return changes

    @property
    def ladder(self) -> list[int | None]:
        """Numbers of answers, the fewest first."""
        algorithm = self.scenario.algorithm
        if walk_of(algorithm) is not None and not isinstance(walk_of(algorithm), str):
            return [None]  # a given walk is what it is
        most = max(32, LONGEST // len(self.shape.rows))
        return [2**k for k in range(most.bit_length()) if 2**k <= most]

    def of_mechanism(self, mechanism: str, accountant: str) -> list[Choice]:
        """The best choices of one mechanism."""
        clips = self.clips(mechanism)
        here = Choice(None, self.step, clips[0] if clips else None, mechanism, accountant)
        best: list[Choice] = []
        for answers in self.ladder:
            here = self.along(here._replace(answers=answers), "step", 2.0)
            best.append(here)
            errors = [self.error(c) for c in best]
            if len(best) > 3 and min(errors[-2:]) > min(errors) / HELPS:  # twice in a row more answers have not helped
                break
        here = min(best, key=self.error)
        for clip in clips[1:]:
            best.append(self.along(here._replace(clip=clip), "step", 2.0))
        here = min(best, key=self.error)
        for key, factor in (("step", sqrt(2)), ("answers", sqrt(2)), ("step", sqrt(2))):
            best.append(here := self.along(here, key, factor))
        for change in self.besides(mechanism):
            here = self.along(min(best, key=self.error)._replace(**change), "step", 2.0)
            best.append(self.along(here, "answers", 2.0))
        return best


def moved(choice: Choice, key: str, factor: float) -> Choice | None:
    """The choice with one number multiplied; None where there is none, or it does not change."""
    if key == "step":
        step = None if choice.step is None else float(f"{choice.step * factor:.3g}")
        changed = choice._replace(step=step)
    else:
        answers = None if choice.answers is None else max(1, round(choice.answers * factor))
        changed = choice._replace(answers=answers)
    return None if changed == choice else changed


def seconds_of(search: Search, choice: Choice) -> float:
    """About how long one run takes on one processor."""
    p, n = search.plan.problem, len(search.shape.rows)
    plan = plan_of(search.task(choice, 0).raw, search.file)
    answers = plan.terms.answers if plan.terms else 0
    made, sweeps = max(made_of(search.shape, p.classes)), 10 if plan.algorithm.asks() == "minimiser" else 1
    each: float = 4e-4 + 1e-6 * p.size + 4e-9 * sweeps * made * p.size
    return n * answers * each


def line(search: Search, choice: Choice, seeds: Sequence[int], title: str = "") -> Candidate:
    """A choice with what came of it: with the fewest rounds of averaging that are enough."""
    each = [search.known[choice, seed] for seed in seeds]
    alike = any(len(run.excess) == 1 for run in each)  # nothing is averaged, or a run came to no end
    excess, error, beyond = (
        np.array([getattr(run, name)[:1] if alike else getattr(run, name) for run in each]) for name in FIGURES
    )
    medians, k = np.median(excess, axis=0), 0
    if title and not alike:  # as it stands: with the rounds that the scenario says
        k = int(np.argmin(np.abs(np.array(GOSSIP) - gossip_of(search.scenario.algorithm))))
    elif isfinite(medians[-1]):
        k = int(np.flatnonzero(medians <= medians[-1] * ENOUGH)[0])
    bound = promised(plan_of(search.task(choice, 0).raw, search.file))
    return Candidate(title, choice, GOSSIP[k], excess[:, k], error[:, k], beyond[:, k], bound)


def planned(
    raw: DocumentView,
    file: str = "scenario",
    *,
    rows: int | None = None,
    features: int | None = None,
    seeds: int | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> PlanResult:
    """The plan of a scenario's mapping. Raises InputError, one line.

    rows: of all nodes together; features: of a row; where the scenario does not say. seeds: how many are shown [as many
    as there is time for, 5 to 20]. workers: processes [one a core].
    """
    shape = checked(raw, file, rows, features)
    with ExitStack() as stack:
        search = Search(without_data(raw, shape), shape, file, workers or os.cpu_count() or 1)
        stack.callback(search.close)
        tried: list[Choice] = []
        for mechanism, accountant in search.promises:
            tried += search.of_mechanism(mechanism, accountant)
            say(f"{len(search.known)} runs on made-up rows: {mechanism} is looked through")
        good = sorted({c for c in tried if isfinite(search.error(c))}, key=search.error)
        if not good:
            why = next((run.why for run in search.known.values() if run.why), "no run came to an end")
            raise InputError(why if why.startswith(file) else f"{file}: {why}")
        finalists = distinct(good)
        stated = search.stated
        cost = sum(seconds_of(search, c) for c in (*finalists, stated))
        n = seeds or int(min(20, max(5, WORK_S / cost)))
        which = range(FIRST, FIRST + n)
        search.play([*finalists, stated], which)
        say(f"{len(search.known)} runs on made-up rows: the best are played on {n} others")
        best = sorted((line(search, c, which) for c in finalists), key=middle)
        sides = search.each(beside, [search.task(stated, seed) for seed in which])
    scenario = line(search, stated, which, "as the scenario is")
    others = []
    for k, title in enumerate(("without privacy", "each alone")):
        excess, error, beyond = (np.array([getattr(s[k], name)[0] for s in sides]) for name in FIGURES)
        others.append(Candidate(title, stated, 0, excess, error, beyond))
    made = max(made_of(shape, search.plan.problem.classes))
    chosen = min((li for li in best if middle(li) <= middle(best[0]) / AS_GOOD), key=lambda li: li.choice.answers or 0)
    return PlanResult(
        best,
        chosen,
        [scenario, *others],
        n,
        len(search.known),
        len(shape.rows),
        description_of(search),
        made,
        search.measure,
    )


def middle(line: Candidate) -> float:
    """The median excess loss."""
    return float(np.median(line.excess))


def distinct(good: Sequence[Choice]) -> list[Choice]:
    """The best few, and the best of each mechanism among them."""
    chosen = list(good[:SHOWN])
    for mechanism in dict.fromkeys(c.mechanism for c in good):
        if mechanism not in {c.mechanism for c in chosen}:
            chosen[-1] = next(c for c in good if c.mechanism == mechanism)
    return chosen


def description_of(search: Search) -> str:
    """What was planned for, in a few words."""
    p, s = search.scenario.privacy, search.scenario
    assert p is not None
    m, n = search.shape.rows, len(search.shape.rows)
    sizes = f"{m[0]:,}" if len(set(m)) == 1 else f"{min(m):,} to {max(m):,}"
    delta = f", delta {p.delta:g}" if p.delta else ""
    levels = f" in {len(p.masked.sites.dealt(n))} sites" if p.masked and p.masked.sites else ""
    masked = f", masked{levels} (at most {p.masked.corrupt} corrupt)" if p.masked else ""
    return (
        f"{s.name}: epsilon {p.epsilon:g}{delta} of each node, {p.adjacency}{masked}; {s.algorithm.name} on {n} nodes "
        f"of {sizes} rows of {search.shape.features} features"
    )
