"""Looks for a promise that a fleet breaks: many short lives of it, each under its own seed, and much goes wrong."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import msgspec
from msgspec import Struct

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.checker import Finding, check
from hushgrid.lab.simulate.faults import Fault, drawn, gentle, one_by_one
from hushgrid.lab.simulate.fleet import Fleet
from hushgrid.lab.simulate.manner import USUAL, Manner, dressed, plain
from hushgrid.lab.simulate.manner import drawn as drawn_manner
from hushgrid.lab.simulate.simulation import QUIET, Simulation, switched_on
from hushgrid.lab.simulate.world import World
from hushgrid.node.wire import COORDINATOR

INTERVALS = 15  #: of a life
#: Shares of lives: in a storm everything goes wrong; in the others little does, so that much is promised of them.
LIVES = {"storm": 0.5, "kill": 0.16, "cut": 0.1, "card": 0.14, "gentle": 0.1}
GOLDEN = 0.5 * (5**0.5 - 1)  #: the multiples of this, modulo 1, spread evenly: so do kinds over seeds that follow
INTERVAL_S = 60.0  #: of a processor that one may take: a small fleet's takes a tenth of a second
FAULTS = 100  #: drawn for a life; messages that are lost, late, doubled or overtaken come on top
PATIENCE = 60  #: lives that a finding is shrunk by
CYCLE = 4  #: events of a trace that repeat together, at the most
#: Kinds of events that explain a finding.
TOLD = (
    "fault", "kill", "cut", "card", "start", "exit", "error", "ledger", "accepted", "spent", "begins", "ends",
)  # fmt: skip


class Life(Struct, frozen=True):
    """One life of a fleet, to be lived again: `--replay` reads this."""

    scenario: Document
    seed: int
    intervals: int
    faults: list[Fault]
    manner: Manner = USUAL


class Broken(Struct, frozen=True):
    """A promise that was broken, in the shortest life that breaks it, and what led to that."""

    promise: str
    text: str
    life: Life
    trace: list[Document]


class Report(Struct):
    """What was tried, and what broke."""

    lives: int = 0
    intervals: int = 0
    answered: int = 0  #: of them
    same: int = 0  #: of those, bit for bit as in the quiet run
    events: int = 0
    counts: dict[str, int] = {}
    seconds: float = 0.0
    broken: list[Broken] = []

    @property
    def faults(self) -> int:
        return sum(self.counts.values())


def quiet(fleet: Fleet, seed: int, manner: Manner = USUAL) -> dict[tuple[str, str], str]:
    """What each device leaves of an interval in which nothing goes wrong: {(device, file): digest}.

    A walk at random is another one in each run: of what differs between two quiet intervals nothing is expected, and
    nothing in a manner in which each run begins where the last one has ended, or somebody lies.
    """
    few = any(t.masked and t.masked.contributors < len(fleet.nodes) for t in fleet.terms.values())
    if few or not manner.same:  # a round of few contributors is asked again of others, if one of them is silent
        return {}
    simulation, findings = live(fleet, Life({}, seed, 2, [], manner), {})
    runs = list(simulation.outcomes().values())
    if len(runs) != 2:
        wrong = next(map(str, findings), f"{len(runs)} outcomes")
        raise InputError(f"scenario: found {wrong} in two intervals without a fault, expected two answers")
    return {key: digest for key, digest in runs[0].items() if runs[1].get(key) == digest}


def expected_of(fleet: Fleet, life: Life) -> dict[tuple[str, str], str]:
    """As `quiet`; nothing if that has failed: then the life is broken too, and says why."""
    try:
        return quiet(fleet, life.seed, life.manner)
    except InputError:
        return {}


def live(fleet: Fleet, life: Life, expected: dict[tuple[str, str], str]) -> tuple[Simulation, list[Finding]]:
    """One life, and what broke in it."""
    with place() as folder:
        simulation = Simulation(dressed(fleet, life.manner), life.seed, folder, life.faults, expected, life.manner.fed)
        try:
            with bounded(life.intervals * INTERVAL_S):
                simulation.run(life.intervals)
        except (RuntimeError, Endless) as error:
            simulation.world.note("defect", "", trace=str(error))
    return simulation, check(simulation.world.history)


def life_of(scenario: Document, fleet: Fleet, seed: int, intervals: int = INTERVALS, faults: int = FAULTS) -> Life:
    """The life of a seed: what goes wrong in it is drawn."""
    last = max(intervals - QUIET, 0) * fleet.every
    world = World(seed)
    first = switched_on(world, COORDINATOR)  # its schedule keeps that beat
    beats = [first + fleet.every * k for k in range(max(intervals - QUIET, 0))]
    kind, chance = kind_of(seed), world.chance("faults")
    if kind == "gentle":
        return Life(scenario, seed, intervals, gentle(last))
    if kind != "storm":
        return Life(scenario, seed, intervals, one_by_one(chance, kind, fleet.nodes, beats), plain(chance, fleet))
    manner = drawn_manner(world.chance("manner"), fleet)
    chosen = drawn(chance, fleet.nodes, 0.0, last, faults, beats, manner.without)
    return Life(scenario, seed, intervals, chosen, manner)


def kind_of(seed: int) -> str:
    """The kind of a seed's life."""
    place = seed * GOLDEN % 1.0
    for kind, share in LIVES.items():
        place -= share
        if place < 0:
            return kind
    return next(iter(LIVES))


def shrunk(fleet: Fleet, life: Life, promise: str, moment: float, patience: int = PATIENCE) -> Life:
    """A life with as few faults as possible that breaks the same promise. `at`: when it was broken, s."""
    expected = expected_of(fleet, life)

    def lived(faults: Sequence[Fault], intervals: int) -> Life:
        return msgspec.structs.replace(life, faults=list(faults), intervals=intervals)

    def breaks(faults: Sequence[Fault], intervals: int) -> bool:
        _, findings = live(fleet, lived(faults, intervals), expected)
        return any(finding.promise == promise for finding in findings)

    before, intervals = (
        [fault for fault in life.faults if fault.moment <= moment],
        int(moment // fleet.every) + 1 + QUIET,
    )
    if intervals >= life.intervals or not breaks(before, intervals):
        before, intervals = life.faults, life.intervals
    return lived(fewest(before, lambda faults: breaks(faults, intervals), patience), intervals)


def fewest(faults: list[Fault], breaks: Callable[[list[Fault]], bool], patience: int = PATIENCE) -> list[Fault]:
    """Of these faults, which break a promise, as few as break it too: the last ones, and of those what is needed.

    A. Zeller, R. Hildebrandt, 2002: ddmin. `patience`: the most lives.
    """

    def tried(fewer: list[Fault]) -> bool:
        nonlocal patience
        patience -= 1
        return patience >= 0 and breaks(fewer)

    size = 0
    while size < len(faults) and not tried(faults[len(faults) - size :]):
        size = max(2 * size, 1)
    faults, parts = faults[max(len(faults) - size, 0) :], 2
    while len(faults) >= 2 and patience > 0:
        size = -(-len(faults) // parts)
        for start in range(0, len(faults), size):
            fewer = faults[:start] + faults[start + size :]
            if tried(fewer):
                faults, parts = fewer, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(faults))
    return faults


def trace(history: list[Document], finding: Finding) -> list[Document]:
    """What led to a finding: what has happened since the first fault to whom it is about, and to whom a fault was meant
    for; then the event that broke the promise. Of events of one kind that follow each other, the last stands for all;
    so do the last start, error and exit of a process that starts again and again.
    """
    before = history[: finding.number]
    first = next((number for number, e in enumerate(before) if e["e"] == "fault"), 0)
    who = {finding.who, COORDINATOR, *(e["who"] for e in before if e["e"] == "fault")}
    events: list[Document] = []
    for event in before[first:]:
        if event["e"] not in TOLD or event["who"] not in who:
            continue
        events.append(event)
        _fold(events)
    return [*events, history[finding.number]]


def _fold(events: list[Document]) -> None:
    """Of the last few events, if those before them are of the same kinds, those before go, and are counted."""
    kinds = [(event["e"], event["who"]) for event in events[-2 * CYCLE :]]
    for size in range(1, CYCLE + 1):
        if len(kinds) >= 2 * size and kinds[-size:] == kinds[-2 * size : -size]:
            times = events[-2 * size].get("times", 1) + 1
            del events[-2 * size : -size]
            events[-size] = events[-size] | {"times": times}
            return


def explained(fleet: Fleet, life: Life, finding: Finding, moment: float) -> Broken:
    """The finding in its shortest life. `at`: when its promise was broken, s."""
    short = shrunk(fleet, life, finding.promise, moment)
    simulation, findings = live(fleet, short, expected_of(fleet, short))
    first = next((one for one in findings if one.promise == finding.promise), finding)
    return Broken(first.promise, str(first), short, trace(simulation.world.history, first))


def search(
    scenario: Document,
    fleet: Fleet,
    faults: int,
    seed: int,
    *,
    intervals: int = INTERVALS,
    jobs: int | None = None,
    before: Report | None = None,
) -> Report:
    """Lives until so many faults have happened; it ends with the first promise that was broken.

    before: what was tried so far, with the seeds from this one on: it goes on from there.
    """
    began, report = time.perf_counter(), before or Report()
    try:
        _search(report, scenario, fleet, faults, seed, intervals, jobs or os.cpu_count() or 1)
    finally:
        report.seconds += time.perf_counter() - began
    return report


def _search(
    report: Report, scenario: Document, fleet: Fleet, faults: int, seed: int, intervals: int, jobs: int
) -> None:
    """What is tried is added to the report."""
    if not report.lives:  # nothing has to go wrong
        _add(report, _lived(first := Life(scenario, seed, 2, []), fleet, expected_of(fleet, first)))
    if jobs == 1:
        while report.faults < faults and not report.broken:
            _add(report, _tried(scenario, fleet, seed + report.lives - 1, intervals))
        return
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        next_seed, under_way = seed + report.lives - 1, set[Future[_Tried]]()
        while (report.faults < faults and not report.broken) or under_way:
            while len(under_way) < jobs and report.faults < faults and not report.broken:
                under_way.add(pool.submit(_tried, scenario, fleet, next_seed, intervals))
                next_seed += 1
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                _add(report, future.result())


class _Tried(Struct):
    intervals: int
    answered: int
    same: int
    events: int
    counts: dict[str, int]
    broken: Broken | None


def _tried(scenario: Document, fleet: Fleet, seed: int, intervals: int) -> _Tried:
    life = life_of(scenario, fleet, seed, intervals)
    return _lived(life, fleet, expected_of(fleet, life))


def _lived(life: Life, fleet: Fleet, expected: dict[tuple[str, str], str]) -> _Tried:
    simulation, findings = live(fleet, life, expected)
    history = simulation.world.history
    broken = explained(fleet, life, findings[0], history[findings[0].number]["t"]) if findings else None
    return _Tried(life.intervals, simulation.answered, simulation.same, len(history), simulation.counts, broken)


def _add(report: Report, tried: _Tried) -> None:
    report.lives += 1
    report.intervals += tried.intervals
    report.answered += tried.answered
    report.same += tried.same
    report.events += tried.events
    report.counts = dict(sorted((Counter(report.counts) + Counter(tried.counts)).items()))
    if tried.broken is not None:
        report.broken.append(tried.broken)


class Endless(BaseException):
    """A process computes without end."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """While it is entered, so many seconds of the processor. Raises Endless. Only a main thread is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ends(number: int, frame: object) -> None:
        raise Endless(f"{seconds:g} s of a processor: a loop without end")

    before = signal.signal(signal.SIGVTALRM, ends)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def place() -> Iterator[Path]:
    """A folder in memory, if the machine has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="hushgrid-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
