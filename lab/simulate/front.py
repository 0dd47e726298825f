"""`hushgrid simulate`: from a scenario to a report of what was tried, and files of what broke."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.checker import Finding
from hushgrid.lab.simulate.fleet import Fleet, fleet
from hushgrid.lab.simulate.search import INTERVALS, Broken, Report, life_of, live, quiet, search
from hushgrid.node.schema.yaml_file import read_yaml
from hushgrid.scenarios import find

HOURS = 24  #: intervals of a day
BASE = "base"  #: of a scenario in a file of ours: the folder that its relative paths begin in


def simulate(
    scenario: Path | None,
    *,
    faults: int = 1000,
    seed: int = 1,
    days: int | None = None,
    jobs: int | None = None,
    history: Path | None = None,
    out: Path = Path(),
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Lives of the scenario's fleet until so many faults have happened, or a promise is broken.

    Raises InputError if the scenario is none for devices, or a number is no count.
    """
    for name, value in (("--faults", faults), ("--days", days), ("--jobs", jobs)):
        if value is not None and value < 1:
            raise InputError(f"{name}: found {value}, expected at least 1")
    if scenario is None:
        raise InputError("SCENARIO: found none, expected a scenario, or --replay FILE")
    path = find(scenario)
    raw = read_yaml(path) | {BASE: str(path.parent.resolve())}
    made = _made(raw, str(path))
    intervals = INTERVALS if days is None else days * HOURS
    if history is not None:
        life = life_of(raw, made, seed, intervals)
        simulation, _ = live(made, life, quiet(made, seed, life.manner))
        write_history(history, simulation.world.history)
        say(f"{history}: the history of seed {seed}, {len(simulation.world.history)} events")
    report = search(raw, made, faults, seed, intervals=intervals, jobs=jobs)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.counts.items(), key=lambda pair: -pair[1]))
    answered = f"{report.answered} answered, {report.same} of them bit for bit as in a quiet run"
    lived = f"{report.lives} lives, {report.intervals} intervals ({answered})"
    say(f"{made.name}: {lived}, {report.faults} faults in {report.seconds:.0f} s")
    say(f"  {kinds}")
    for number, broken in enumerate(report.broken, 1):
        copied = out / f"{made.name}-{broken.life.seed}-{number}.json"
        copied.write_bytes(msgspec.json.format(msgspec.json.encode(broken)))
        for line in _words(broken):
            say(line)
        say(f"  hushgrid simulate --replay {copied}")
    if not report.broken:
        say("  every promise was kept")
    return report


def replay(path: Path, history: Path | None = None) -> list[Finding]:
    """What breaks in the life that a file of `simulate` holds. Raises InputError if it is no such file."""
    try:
        life = msgspec.json.decode(path.read_bytes(), type=Broken).life
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a file of hushgrid simulate") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: found other content ({error}), expected a file of hushgrid simulate") from None
    made = _made(life.scenario, str(path))
    simulation, findings = live(made, life, quiet(made, life.seed, life.manner))
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
