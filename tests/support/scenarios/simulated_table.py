"""The first table of docs/reliability.md: `python -m tests.support.scenarios.simulated_table [FAULTS [SEED]]`."""

from __future__ import annotations

import signal
import sys
from functools import partial

from hushgrid.lab.simulate.faults import SHARES
from hushgrid.lab.simulate.front import simulate
from hushgrid.lab.simulate.patterns import SCENARIOS
from hushgrid.lab.simulate.search import Report

#: What each kind of fault is called.
NAMES = {
    "lost": "messages lost", "doubled": "messages doubled", "overtaken": "messages overtaken", "late": "messages late",
    "weather": "weathers in which they are", "replay": "old messages repeated", "forge": "messages forged",
    "parted": "some or all cut off", "broker": "broker ends, forgets, elects or bridges", "kill": "processes killed",
    "signal": "stopped, started, reloaded", "cut": "power cut", "disk": "disk full, failing, slow",
    "clock": "clock set", "sleep": "machine asleep", "card": "card replaced or put back",
    "owner": "budget or consent changed", "source": "data file half written, missing",
}  # fmt: skip


def table(reports: dict[str, Report]) -> str:
    """Markdown: a column a fleet, a line a kind of fault."""
    rows: dict[str, list[float]] = {NAMES.get(kind, kind): [] for kind in [*NAMES, *SHARES]}
    totals: dict[str, list[float]] = {}
    for report in reports.values():
        for kind in dict.fromkeys([*NAMES, *SHARES]):
            rows[NAMES.get(kind, kind)].append(report.counts.get(kind, 0))
        figures = {
            "all faults": report.faults, "lives": report.lives, "intervals": report.intervals,
            "answered": report.answered, "of them bit for bit as in a quiet run": report.same,
            "promises broken": len(report.broken), "seconds": round(report.seconds),
        }  # fmt: skip
        for name, figure in figures.items():
            totals.setdefault(name, []).append(figure)
    lines = [f"| | {' | '.join(reports)} |", "|---" * (1 + len(reports)) + "|"]
    return "\n".join(
        lines + [f"| {name} | {' | '.join(f'{n:,}' for n in row)} |" for name, row in (rows | totals).items()]
    )


def main(faults: int = 10_000, seed: int = 1) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then the table is about what was tried until then
    reports = simulate([], faults=faults, seed=seed, say=partial(print, flush=True))
    print(table(dict(zip(SCENARIOS, reports, strict=True))))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
