"""What a storm has come to, as lines of the tables of docs/reliability.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from tests.support.storm.fleet import Done

#: Kinds of faults as the table says them.
NAMES = {
    ("kill", "one"): "one killed",
    ("kill", "all"): "all killed at once",
    ("freeze", "one"): "one stopped, and continued",
    ("restart", "one"): "one ended by SIGTERM, started again",
    ("reload", "same"): "one reloaded by SIGHUP",
    ("reload", "budget"): "the same, with another budget",
    ("cut", "reset"): "connections of one reset, and refused",
    ("cut", "silent"): "connections of one silent",
    ("cut", "all"): "connections of all reset, and refused",
    ("broker", "kill"): "broker killed, started again",
    ("broker", "freeze"): "broker stopped, and continued",
}


def tables(broker: str, storms: Sequence[Done]) -> str:
    """A line a pattern: | broker | pattern | faults | intervals | answered | held | missed | messages | recovery, s |.
    Then a line a kind of fault: | broker | fault | count | median, largest time until the next answer, s |.
    """
    lines = []
    for done in storms:
        outcomes = Counter(row["outcome"] for row in done.rows)
        counts = (len(done.happened), len(done.rows), outcomes["answer"], outcomes["held"], outcomes["missed"])
        numbers = " | ".join(f"{count:,}" for count in (*counts, done.messages))
        lines.append(f"| {broker} | {done.pattern} | {numbers} | {done.recovered_s:.1f} |")
    waits: dict[tuple[str, str], list[float]] = defaultdict(list)
    for done in storms:
        for fault in done.happened:
            after = [t - fault.moment for t in done.answered if t > fault.moment]
            waits[fault.kind, fault.how].append(min(after, default=float("inf")))
    for key, name in NAMES.items():
        if seconds := waits.get(key):
            lines.append(f"| {broker} | {name} | {len(seconds)} | {median(seconds):.1f}, {max(seconds):.1f} |")
    return "\n".join(lines)
