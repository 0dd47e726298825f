"""Judges a history: whether any promise was broken. It imports nothing of the program that it judges.

    python checker.py HISTORY

A history is a file of JSON lines, in order of time. The promises:

 - heard: a mark that leaves is in the ledger, and on the disk; what was heard of a ledger is at most what it has spent.
 - paid: an answer that was drawn is in the ledger before the process that starts again sends anything.
 - once: two messages of one number in one run say the same.
 - marks: a ledger's mark never falls; one that was put back, or another in its place, spends nothing before its owner
   accepts, as long as somebody remembers.
 - budget: no window of running time holds more than its owner allows.
 - record: every interval that began has one line, which says how it ended.
 - answered: once the faults have stopped, an interval is answered by all.
 - outcome: what a run has left is on the disk, at the latest after the next start.
 - bits: an interval that all have answered leaves the same outcome as in the quiet run.
 - defect: no process ends by an error that it has not foreseen.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]
COORDINATOR = "coordinator"


class Finding(NamedTuple):
    """A promise that was broken, by the event of this number."""

    promise: str
    number: int
    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: event {self.number}, {self.who}: {self.text}"


class _Device:
    """What is known of one device."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = defaultdict(int)  #: number of the last spend, by ledger
        self.heard: dict[str, int] = defaultdict(int)  #: the highest mark that has left, by ledger
        self.drawn: set[str] = set()  #: answers since its ledger was known to have all of them
        self.paid = 0  #: spends since then
        self.said: dict[tuple[Any, ...], str] = {}  #: digest of each message
        self.killed = self.cut = False  #: how its process has ended last
        self.foreign = ""  #: its ledger was put back or replaced, and its owner has not accepted that
        self.remembered: dict[str, int] = {}  #: what others knew then
        self.past: list[tuple[float, float]] = []  #: (running time, epsilon) of its spends


def check(events: Iterable[Event], budgets: dict[str, Event] | None = None) -> list[Finding]:
    """All that is wrong. budgets: {device: {epsilon, window_s}} of devices with pure budgets."""
    found: list[Finding] = []
    devices: dict[str, _Device] = defaultdict(_Device)
    forgetful = False  # nobody but a device itself remembers its marks

    for number, event in enumerate(events):
        kind, who = event["e"], event["who"]
        device = devices[who]

        def wrong(promise: str, text: str) -> None:
            found.append(Finding(promise, number, who, text))  # noqa: B023

        if kind == "defect":
            wrong("defect", event["trace"].strip().splitlines()[-1])
        elif kind in ("kill", "cut"):
            device.killed, device.cut = True, device.cut or kind == "cut"
        elif kind == "card":
            if who == COORDINATOR:
                forgetful = True
            else:
                device.foreign, device.remembered = event["how"], dict(device.heard)
        elif kind == "accepted":
            device.foreign, device.paid, device.drawn = "", 0, set()
            device.spent[event["id"]] = max(device.spent[event["id"]], event["no"])
        elif kind == "ledger" and who != COORDINATOR:
            _opened(device, event, wrong)
        elif kind == "drawn":
            device.drawn.add(event["digest"])
        elif kind == "spent":
            if device.foreign and not forgetful and any(device.remembered.values()):
                wrong(
                    "marks", f"a ledger that was {device.foreign} spends answer {event['no']} before its owner accepts"
                )
            if event["no"] != device.spent[event["id"]] + 1 and device.spent[event["id"]]:
                wrong("paid", f"answer {event['no']} follows answer {device.spent[event['id']]}")
            device.spent[event["id"]] = event["no"]
            device.paid += 1
            if budgets and who in budgets:
                _within(device, event, budgets[who], wrong)
        elif kind == "send" and "no" in event and event["body"] != "Death" and who != COORDINATOR:
            _sent(device, event, wrong)
        elif kind == "unanswered":
            wrong("answered", event["text"])
        elif kind == "unrecorded":
            wrong("record", event["text"])
        elif kind == "unpaid":
            wrong("outcome", event["text"])
        elif kind == "other bits":
            wrong("bits", event["text"])
    return found


def _opened(device: _Device, event: Event, wrong: Any) -> None:
    """A process has opened its ledger."""
    ledger, no = event["id"], event["no"]
    if not device.foreign and no < device.heard[ledger]:
        wrong("marks", f"the ledger begins at {no}, and {device.heard[ledger]} was heard of it")
    if device.foreign or device.cut:  # a power cut may take the note of what is drawn
        device.drawn, device.paid = set(), 0
    device.paid += max(no - device.spent[ledger], 0)  # committed as its process died, or paid for what was noted
    device.spent[ledger] = no if not device.foreign else max(no, 0)
    device.killed = device.cut = False


def _sent(device: _Device, event: Event, wrong: Any) -> None:
    mark = event.get("mark")
    if mark is not None:
        ledger, no = mark
        if no > event["no"] or no > device.spent[ledger]:
            wrong(
                "heard", f"{event['body']} says {no} answers, its ledger has {min(event['no'], device.spent[ledger])}"
            )
        if event["unsynced"]:
            wrong("heard", f"{event['body']} leaves before what it says is on the disk")
        if not device.foreign and no < device.heard[ledger] and event["body"] == "Birth":
            wrong("marks", f"a birth says {no}, and {device.heard[ledger]} was heard before")
        device.heard[ledger] = max(device.heard[ledger], no)
    if len(device.drawn) > device.paid and not device.foreign:
        wrong("paid", f"{len(device.drawn)} answers were drawn, {device.paid} are paid, and {event['body']} leaves")
    if event.get("iterate") and event["seq"]:
        key = (event["run"], event["epoch"], event["seq"], event["dst"], event["body"])
        if device.said.setdefault(key, event["iterate"]) != event["iterate"]:
            wrong("once", f"message {event['seq']} of run {event['run']} has two contents")


def _within(device: _Device, event: Event, budget: Event, wrong: Any) -> None:
    device.past.append((event["ran"], event["value"]))
    window = budget.get("window_s")
    first = event["ran"] - window if window else float("-inf")
    total = sum(value for ran, value in device.past if ran > first)
    if total > budget["epsilon"] * (1 + 1e-9):
        wrong("budget", f"epsilon {total:g} within its window, {budget['epsilon']:g} is allowed")


def main(path: str) -> int:
    events = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    found = check(events)
    for finding in found:
        print(finding)
    print(f"{len(events)} events, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
