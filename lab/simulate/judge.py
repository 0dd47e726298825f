"""What a history alone does not show: what is on the disks of a fleet once its faults have stopped, as more events."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path

from hushgrid.kernels.types import Document
from hushgrid.node.wire import COORDINATOR

Note = Callable[..., None]
Outcomes = dict[tuple[str, str], str]  #: {(device, file): digest of what a run has left}


def outcomes(history: Iterable[Document]) -> dict[str, Outcomes]:
    """What each run has left, by run. Whose card was put back into it writes it again, from where it stood then."""
    findings: dict[str, Outcomes] = {}
    set_back: set[str] = set()
    for e in history:
        if e["e"] == "card":
            set_back.add(e["who"])
        elif e["e"] == "outcome":
            files, key = findings.setdefault(e["run"], {}), (e["who"], e["file"])
            if key not in files or e["who"] not in set_back:
                files[key] = e["digest"]
    return findings


def lines(state: Path) -> list[dict[str, str]]:
    """Of intervals, that the coordinator has written to its directory `state`."""
    path = state / "intervals.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def judge(history: list[Document], state: Path, owing: Iterable[str], note: Note) -> None:
    """What the coordinator's table lacks, whether the last interval was answered by all, who owes an outcome."""
    rows = lines(state)
    replaced = any(e["e"] == "card" and e["who"] == COORDINATOR for e in history)
    numbers = [int(row["interval"]) for row in rows]
    if numbers != list(range(1, len(rows) + 1)) and not replaced:
        note("unrecorded", COORDINATOR, text=f"intervals {numbers} have lines")
    last = rows[-1] if rows else {"outcome": "none", "absent": "", "reason": ""}
    if last["outcome"] != "answer" or last["absent"]:
        text, refused = f"the last interval: {last['outcome']}, {last['reason']}", last.get("refused") or ""
        note("unanswered", COORDINATOR, text=text, refused=refused.replace(",", " ").split())
    for name in owing:
        note("unpaid", name, text="the outcome of a run is owed after the faults have stopped")


def compare(history: list[Document], state: Path, quiet: Outcomes, note: Note, until: float = inf) -> int:
    """Whether an answer of all, of whom none was lost meanwhile, is that of a quiet run. until: s of the world, when
    other data come.

    A walk that has gone around somebody is another one, and its token has a later epoch. Returns how many are.
    """
    around = {e["run"] for e in history if e["e"] == "send" and e.get("epoch")}
    records = [json.loads(path.read_text()) for path in (state / "runs").glob("*.json")]
    known = [e for e in history if e["t"] < until]
    left, lost = outcomes(known), {record["run"]: record["lost"] for record in records}
    same = 0
    for row in lines(state):
        all_answered = row["outcome"] == "answer" and not row["absent"] and not lost.get(row["run"], True)
        if all_answered and row["run"][:8] not in around:
            results = left.get(row["run"][:8], {})
            others = [key for key, digest in results.items() if digest != quiet.get(key, digest)]
            for name, file in others:
                text = f"interval {row['interval']}, run {row['run'][:8]}: {file} is not that of the quiet run"
                note("other bits", name, text=text)
            same += bool(results.keys() & quiet.keys()) and not others
    return same
