"""`hushgrid simulate`: from a scenario to a report of what was tried, and files of what broke."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.checker import Finding
from hushgrid.lab.simulate.fleet import Fleet, fleet
from hushgrid.lab.simulate.patterns import SCENARIOS
from hushgrid.lab.simulate.search import INTERVALS, Broken, Report, expected_of, life_of, live, search
from hushgrid.node.schema.yaml_file import read_yaml
from hushgrid.scenarios import find

HOURS = 24  #: intervals of a day
TURN = 2000  #: faults of a fleet before it is another's turn
BASE = "base"  #: of a scenario in a file of ours: the folder that its relative paths begin in


def simulate(
    scenarios: Sequence[Path],
    *,
    faults: int = 1000,
    seed: int = 1,
    days: int | None = None,
    jobs: int | None = None,
    history: Path | None = None,
    out: Path = Path(),
    say: Callable[[str], None] = lambda line: None,
) -> list[Report]:
    """Lives of each scenario's fleet, until so many faults have happened in all of them together; a fleet's end with
    its first broken promise. Without a scenario: the small fleets of `patterns.py`. An interrupt ends them all, and
    they say what they have tried.

    Raises InputError if a scenario is none for devices, or a number is no count.
    """
    for name, value in (("--faults", faults), ("--days", days), ("--jobs", jobs)):
        if value is not None and value < 1:
            raise InputError(f"{name}: found {value}, expected at least 1")
    raws = [_raw(find(scenario)) for scenario in scenarios] or list(SCENARIOS.values())
    fleets = [_made(raw, raw["name"]) for raw in raws]
    intervals = INTERVALS if days is None else days * HOURS
    if history is not None:
        life = life_of(raws[0], fleets[0], seed, intervals)
        simulation, _ = live(fleets[0], life, expected_of(fleets[0], life))
        write_history(history, simulation.world.history)
        say(f"{history}: the history of seed {seed}, {len(simulation.world.history)} events")
    reports = [Report() for _ in raws]

    def tell(each: Fleet, report: Report) -> None:
        _say(report, each.name, out, say)

    with _interrupted():
        _in_turns(raws, fleets, reports, -(-faults // len(raws)), seed, intervals, jobs, say, tell)
    for each, report in zip(fleets, reports, strict=True):
        if report.lives and not report.broken:  # what broke has been said
            tell(each, report)
    if len(reports) > 1:
        say(f"{len(reports)} fleets: {_sums(reports)}")
    return reports


@contextmanager
def _interrupted() -> Iterator[None]:
    """What an interrupt or a SIGTERM ends, also where a shell has told its background processes to ignore the first."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_turns(
    raws: Sequence[Document],
    fleets: Sequence[Fleet],
    reports: Sequence[Report],
    faults: int,
    seed: int,
    intervals: int,
    jobs: int | None,
    say: Callable[[str], None],
    tell: Callable[[Fleet, Report], None],
) -> None:
    """Each fleet has its turn until each has had so many faults: if somebody ends it, none has had few. What breaks a
    promise is told at once.
    """
    for turn in range(-(-faults // TURN)):
        for raw, each, report in zip(raws, fleets, reports, strict=True):
            share = min(faults, (turn + 1) * TURN)
            if report.faults < share and not report.broken:
                search(raw, each, share, seed, intervals=intervals, jobs=jobs, before=report)
                if report.broken:
                    tell(each, report)
                elif share < faults:
                    say(f"{each.name} so far: {_sums([report])}")


def _sums(reports: Sequence[Report]) -> str:
    lives, intervals = sum(r.lives for r in reports), sum(r.intervals for r in reports)
    faults = sum(r.faults for r in reports)
    return f"{lives} lives, {intervals} intervals, {faults} faults in {sum(r.seconds for r in reports):.0f} s"


def _raw(path: Path) -> Document:
    """A scenario as its file has it, and where its own relative paths begin."""
    return read_yaml(path) | {BASE: str(path.parent.resolve())}


def _say(report: Report, name: str, out: Path, say: Callable[[str], None]) -> None:
    """What was tried with one fleet, and what broke, which is written too."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.counts.items(), key=lambda pair: -pair[1]))
    answered = f"{report.answered} answered, {report.same} of them bit for bit as in a quiet run"
    lived = f"{report.lives} lives, {report.intervals} intervals ({answered})"
    say(f"{name}: {lived}, {report.faults} faults in {report.seconds:.0f} s")
    say(f"  {kinds}")
    for number, broken in enumerate(report.broken, 1):
        copied = out / f"{name}-{broken.life.seed}-{number}.json"
        copied.write_bytes(msgspec.json.format(msgspec.json.encode(broken)))
        for line in _words(broken):
            say(line)
        say(f"  hushgrid simulate --replay {copied}")
    if not report.broken:
        say("  every promise was kept")


def replay(path: Path, history: Path | None = None) -> list[Finding]:
    """What breaks in the life that a file of `simulate` holds. Raises InputError if it is no such file."""
    try:
        life = msgspec.json.decode(path.read_bytes(), type=Broken).life
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a file of hushgrid simulate") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: found other content ({error}), expected a file of hushgrid simulate") from None
    made = _made(life.scenario, str(path))
    simulation, findings = live(made, life, expected_of(made, life))
    if history is not None:
        write_history(history, simulation.world.history)
    return findings


def write_history(path: Path, history: list[Document]) -> None:
    """A line of JSON an event, as `checker.py` reads them."""
    path.write_text("".join(json.dumps(event, sort_keys=True) + "\n" for event in history), encoding="utf-8")


def _made(raw: Document, file: str) -> Fleet:
    """The fleet of a scenario that says where its own relative paths begin."""
    return fleet({key: value for key, value in raw.items() if key != BASE}, file, Path(raw.get(BASE, ".")))


def _words(broken: Broken) -> list[str]:
    """A finding, its life, and its trace."""
    faults = [
        f"  {f.moment:.3f} s: {f.kind} {' '.join(f.who)} {f.how} {f.call or ''}".rstrip() for f in broken.life.faults
    ]
    events = [f"  {json.dumps(event)[:200]}" for event in broken.trace]
    head = f"broken: {broken.text} (seed {broken.life.seed}, {len(broken.life.faults)} faults)"
    return [head, *faults, "trace:", *events]
