"""What storms have come to, as the tables of docs/reliability.md: `python -m tests.support.storm.tables FOLDER`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from tests.support.storm.fleet import Done

BROKERS = ("mosquitto", "nats", "rabbitmq")
#: Kinds of faults as the table says them.
NAMES = {
    ("kill", "one"): "one is killed",
    ("kill", "all"): "all are killed at once",
    ("freeze", "one"): "one is stopped for a while",
    ("restart", "one"): "one ends by SIGTERM",
    ("reload", "same"): "one reloads",
    ("reload", "budget"): "one reloads another budget",
    ("cut", "reset"): "one's connections are reset",
    ("cut", "silent"): "one's connections are silent",
    ("cut", "all"): "all connections are reset",
    ("broker", "kill"): "the broker is killed",
    ("broker", "freeze"): "the broker is stopped for a while",
}


class Counts(Struct):
    """Of one pattern on one broker. waits: s from each fault until the next answer, by its name."""

    broker: str
    pattern: str
    faults: int
    intervals: int
    answer: int
    held: int
    missed: int
    messages: int
    recovered_s: float
    waits: dict[str, list[float]]


def counts(broker: str, done: Done) -> Counts:
    outcomes = Counter(row["outcome"] for row in done.rows)
    waits: dict[str, list[float]] = defaultdict(list)
    for fault in done.happened:
        after = [t - fault.moment for t in done.answered if t > fault.moment]
        waits[NAMES[fault.kind, fault.how]].append(min(after, default=inf))
    of_intervals = (len(done.rows), outcomes["answer"], outcomes["held"], outcomes["missed"])
    return Counts(broker, done.pattern, len(done.happened), *of_intervals, done.messages, done.recovered_s, dict(waits))


def tables(storms: Sequence[Counts]) -> str:
    """A line a broker and pattern; then a line a kind of fault, with the brokers beside each other."""
    lines = ["| broker, fleet | faults | intervals | answered | a zone held | missed | messages | recovered in, s |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for c in storms:
        numbers = (c.faults, c.intervals, c.answer, c.held, c.missed, c.messages)
        cells = " | ".join(f"{n:,}" for n in numbers)
        lines.append(f"| {c.broker}, {c.pattern} | {cells} | {c.recovered_s:.1f} |")
    brokers = [broker for broker in BROKERS if any(c.broker == broker for c in storms)]
    lines += ["", f"| fault | {' | '.join(brokers)} |", "|---" * (1 + len(brokers)) + "|"]
    for name in NAMES.values():
        row = []
        for broker in brokers:
            waits = [s for c in storms if c.broker == broker for s in c.waits.get(name, [])]
            row.append(f"{len(waits)}: {median(waits):.1f}, {max(waits):.1f}" if waits else "0")
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def main(folder: Path) -> None:
    files = [folder / f"{broker}.json" for broker in BROKERS]
    print(
        tables(
            [c for file in files if file.exists() for c in msgspec.json.decode(file.read_bytes(), type=list[Counts])]
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
