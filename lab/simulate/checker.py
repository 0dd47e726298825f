"""Judges a history: whether any promise was broken. It imports nothing of the program that it judges.

    python checker.py HISTORY

A history is a file of JSON lines, in order of time. The promises:

 - heard: a mark that leaves is in the ledger, and on the disk; what was heard of a ledger is at most what it has spent.
 - paid: an answer that was drawn is in the ledger before the process that starts again sends anything.
 - once: two messages of one number in one run say the same.
 - marks: a ledger's mark never falls; one that was put back, or another in its place, spends nothing before its owner
   accepts, as long as somebody remembers; and no other ledger refuses.
 - budget: no window of running time holds more than its owner allows.
 - record: every interval that began has one line, which says how it ended.
 - answered: an interval is answered by all, once the faults have stopped, and while all that happens is that few
   messages are lost, doubled or overtaken.
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
OVERCOME_S = 120.0  #: after a fault is over all are there again
FEW = 0.1  #: the share of messages whose loss delays a run, and ends none


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
        self.mark: list[Any] | None = None  #: what its mark file said then: [ledger, number]
        self.ended: set[str] = set()  #: runs that are done
        self.outcomes: set[str] = set()  #: runs whose outcome is on the disk
        self.past: list[tuple[float, float]] = []  #: (running time, epsilon) of its spends


def check(events: Iterable[Event], budgets: dict[str, Event] | None = None) -> list[Finding]:
    """All that is wrong. budgets: {device: {epsilon, window_s}} of devices with pure budgets."""
    found: list[Finding] = []
    devices: dict[str, _Device] = defaultdict(_Device)
    calm = _Calm()
    forgetful = False  # nobody but a device itself remembers its marks

    number = 0
    for number, event in enumerate(events):
        kind, who = event["e"], event["who"]
        device = devices[who]

        def wrong(promise: str, text: str) -> None:
            found.append(Finding(promise, number, who, text))  # noqa: B023

        if (text := calm.sees(event)) and not budgets and not any(one.foreign for one in devices.values()):
            wrong("answered", text)
        if kind == "defect":
            wrong("defect", event["trace"].strip().splitlines()[-1])
        elif kind in ("kill", "cut"):
            device.killed, device.cut = True, device.cut or kind == "cut"
        elif kind == "card":
            if who == COORDINATOR:
                forgetful = True
            else:
                device.foreign, device.remembered = event["how"], dict(device.heard)
                device.mark, device.ended = event.get("mark"), set()
        elif kind == "ended":
            device.ended.add(event["run"])
        elif kind == "outcome":
            device.outcomes.add(event["run"])
        elif kind == "accepted":
            counted = {event["id"]: event["no"]} | event.get("counted", {})
            if all(no <= counted.get(ledger, 0) for ledger, no in device.remembered.items()):  # else it is told more
                device.foreign = ""
            device.paid, device.drawn = 0, set()
            device.spent[event["id"]] = max(device.spent[event["id"]], event["no"])
        elif kind == "ledger" and who != COORDINATOR:
            _opened(device, event, wrong)
        elif kind == "drawn":
            device.drawn.add(event["digest"])
        elif kind == "spent":
            if device.foreign and (_remembered(device, event) or (not forgetful and any(device.remembered.values()))):
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
    for who, device in devices.items():
        if runs := device.ended - device.outcomes:
            text = f"run {min(runs)} is done, and has left nothing"
            found.append(Finding("outcome", number, who, text))
    return found


class _Calm:
    """Knows while nothing goes wrong but that few messages are lost, doubled or overtaken."""

    def __init__(self) -> None:
        self.until = 0.0  #: when what has gone wrong is over, and overcome, s
        self.began: float | None = None  #: when the interval of now began
        self.down: set[str] = set()  #: machines whose process has ended

    def sees(self, event: Event) -> str:
        """What is wrong with the end of an interval in a calm; "" if nothing is."""
        kind, now = event["e"], event["t"]
        if kind == "fault" and not _gentle(event):
            self.until = max(self.until, now + event.get("seconds", 0.0) + OVERCOME_S)
        elif kind in ("kill", "cut", "start", "exit"):
            self.until = max(self.until, now + OVERCOME_S)
            self.down = self.down - {event["who"]} if kind == "start" else self.down | {event["who"]}
        elif kind == "accepted":
            self.until = max(self.until, now + OVERCOME_S)
        elif kind == "begins":
            self.began = now
        elif kind == "ends":
            began, self.began = self.began, None
            calm = began is not None and self.until < began and not self.down
            if calm and (event["outcome"] != "answer" or event["absent"]):
                return f"interval {event['interval']} is {event['outcome']} ({event['cause']}), and all were there"
        return ""


def _gentle(event: Event) -> bool:
    """Whether a fault harms no interval."""
    few = event["how"] in ("double", "overtake") or (event["how"] == "loss" and event.get("amount", 1.0) <= FEW)
    return event["fault"] == "weather" and few


def _remembered(device: _Device, event: Event) -> bool:
    """Whether its mark file said, when its ledger was put back or replaced, that another has spent this answer."""
    ledger, no = device.mark or ("", 0)
    return bool(no) and (event["id"] != ledger or event["no"] <= no)


def _opened(device: _Device, event: Event, wrong: Any) -> None:
    """A process has opened its ledger."""
    ledger, no = event["id"], event["no"]
    if not device.foreign and event["behind"]:
        wrong("marks", "the ledger refuses to spend, and nobody has put it back or replaced it")
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
