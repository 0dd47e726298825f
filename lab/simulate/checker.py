"""Judges a history: whether any promise was broken. It imports nothing of the program that it judges.

    python checker.py HISTORY

A history is a file of JSON lines, in order of time. The promises:

 - heard: a mark that leaves is in the ledger, and on the disk; what was heard of a ledger is at most what it has spent.
 - paid: an answer that was drawn is in the ledger before the process that starts again sends anything; no two answers
   of a run have one number, unless a start has paid for one that never left, and the data are others since.
 - once: two messages of one number in one run say the same.
 - resumed: a device that joins a run again stands there where its own messages say, unless its card was replaced, or it
   has joined another run since and had spent nothing in this one: then it may have forgotten that it was in it.
 - marks: a ledger's mark never falls; one that was put back, or another in its place, spends nothing before its owner
   accepts, as long as somebody remembers, and refuses at once if its mark file does; and no other ledger refuses,
   unless somebody has lied.
 - readings: those of a file count for no longer than their owner keeps them, from when they were read first; and a file
   that stands still is one version of the data.
 - budget: no window of a device's running time holds more than its owner allows, of what its ledger has counted, gaps
   that were accepted among it; and no window of the world's time holds more of what it really spent, whatever became of
   its ledgers, as long as the coordinator remembers them. Running time goes on no faster than the world's.
 - record: every interval that began has one line, which says how it ended.
 - answered: an interval is answered by all, once the faults have stopped, and while all that happens is that few
   messages are lost, doubled or overtaken; unless one refuses whose window may have no room for a run, or whose owner
   has ever accepted what others remember, which counts whatever they say.
 - outcome: what a run has left is on the disk, at the latest after the next start.
 - bits: an interval that all have answered leaves the same outcome as in the quiet run.
 - whole: in the end each ledger's own audit finds its sums to be those of its rows.
 - defect: no process ends by an error that it has not foreseen.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]
COORDINATOR = "coordinator"
Wrong = Callable[[str, str], None]
LACKS = {
    "unrecorded": "record",
    "unpaid": "outcome",
    "other bits": "bits",
    "not whole": "whole",
}  #: events of what is not there
GRACE_S = 1000.0  #: within which a device has taken what its owner has written: it may sleep, or be off
TAKEN = "the budget is epsilon"  #: how it says so
OVERCOME_S = 120.0  #: after a fault is over all are there again
READ_S = 0.1  #: between two readings of a real machine's clocks
#: the share of messages whose loss delays a run, and ends none: within 60 s a coordinator asks seven times for a birth,
#: and with two ways to a broker and two back all seven come to nothing with (1 - .97^4)^7 = 3e-7
FEW = 0.03


class Finding(NamedTuple):
    """A promise that was broken, by the event of this number."""

    promise: str
    number: int
    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: event {self.number}, {self.who}: {self.text}"


class Spent(NamedTuple):
    """What an answer cost, or what others remember of several."""

    moment: float
    ledger: str
    no: int
    epsilon: float  #: of a pure one
    mu2: float  #: of a Gaussian one


def spent(moment: float, ledger: str, no: int, kind: str, value: float, mu2: float = 0.0) -> Spent:
    if kind == "gaussian":
        return Spent(moment, ledger, no, 0.0, value**2)
    return Spent(moment, ledger, no, value, mu2 if kind == "gap" else 0.0)


def normal(x: float) -> float:
    """The distribution function of a standard normal number."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def within(spends: Iterable[Spent], epsilon: float, delta: float) -> bool:
    """Whether these keep (epsilon, delta): by the sum of pure ones, or by Gaussian DP, of which a pure one is a part.

    delta(epsilon) of mu is Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2).
    """
    spends, room = list(spends), 1 + 1e-9
    pure, mu2 = sum(s.epsilon for s in spends), sum(s.mu2 for s in spends)
    if not mu2 and pure <= epsilon * room:
        return True
    mu = math.sqrt(mu2 + math.pi / 2 * sum(s.epsilon**2 for s in spends))
    if not delta or not math.isfinite(mu):
        return False
    if epsilon > 700.0:  # e^epsilon would be too large: the first term is an upper bound
        return normal(-epsilon / mu + mu / 2) <= delta * (1 + 1e-6)
    spilled = normal(-epsilon / mu + mu / 2) - math.exp(epsilon) * normal(-epsilon / mu - mu / 2)
    return spilled <= delta * (1 + 1e-6)


class _Device:
    """What is known of one device."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = defaultdict(int)  #: number of the last spend, by ledger
        self.received: dict[str, int] = defaultdict(int)  #: the highest mark that has left, by ledger
        self.run = ""  #: that it has joined last
        self.drawn: set[str] = set()  #: answers of that run, or since its ledger was known to have all of them
        self.paid = 0  #: spends since then
        self.others: dict[str, tuple[set[str], int]] = {}  #: the same of other runs, which it may join again
        self.contents: dict[tuple[object, ...], str] = {}  #: digest of each message
        self.killed = self.cut = False  #: how its process has ended last
        self.foreign = ""  #: its ledger was put back or replaced, and its owner has not accepted that
        self.replaced = False  #: whether that has ever happened: peers may remember more than its owner was told
        self.covered: dict[str, set[str]] = {}  #: the ledgers that a ledger has counted as its own
        self.remembered: dict[str, int] = {}  #: what the coordinator had on its disk of its ledgers then
        self.counted: list[Spent] = []  #: by running time: of the ledger of now, gaps among it
        self.real: list[Spent] = []  #: by the world's time: of all its ledgers
        self.limits: list[tuple[float, Event]] = []  #: what its owner allows, and until when the one before may hold
        self.accepts = False  #: whether its owner has ever accepted anything
        self.shares = False  #: whether its answers are shares of a sum
        #: ledger, and the least that running time was ahead of the world's, of spends so far
        self.clock: tuple[str, float] | None = None
        self.mark: list[Any] | None = None  #: what its mark file said then: [ledger, number]
        self.answers: dict[tuple[str, str], int] = {}  #: number of the last answer, by ledger and run
        self.opening = False  #: its process has opened its ledger, and neither drawn nor sent anything
        #: data version of each answer for which a start has paid, by ledger, run and number
        self.noted: dict[tuple[str, str, int], int] = {}
        self.stands: dict[str, int] = {}  #: number of the last iterate that it has sent, by run
        self.files: dict[tuple[str, int], tuple[int, float]] = {}  #: data version of each file, and when it was read
        self.ended: set[str] = set()  #: runs that are done
        self.outcomes: set[str] = set()  #: runs whose outcome is on the disk

    def replace(self, event: Event) -> None:
        """Its card is another: of what it has spent counts what the coordinator knows, {ledger: number}."""
        known = event.get("known")
        self.replaced, self.foreign = True, event["how"]
        self.remembered = dict(self.received) if known is None else known
        self.real = [s for s in self.real if s.no <= (known or {}).get(s.ledger, 0)]
        self.counted, self.clock = [], None
        self.mark, self.ended = event.get("mark"), set()
        self.answers, self.files, self.stands = {}, {}, {}

    def forgotten(self) -> None:
        """The coordinator's card is another too: nobody remembers what was spent on the one that was replaced."""
        if self.foreign:
            self.real = [s for s in self.real if s.ledger not in self.remembered]

    def accept(self, event: Event) -> None:
        """Its owner accepts what others remember as spent. What nobody remembers is lost."""
        ledger, no = event["id"], event["no"]
        counted = {ledger: no} | event.get("counted", {})
        through = {other for one in counted for other in self.covered.get(one, ())}
        if all(n <= counted.get(one, 0) or one in through for one, n in self.remembered.items()):
            self.foreign = ""  # else it is told more
        self.covered[ledger], self.received[ledger] = {*counted, *through}, no
        self.paid, self.drawn, self.others, self.accepts = 0, set(), {}, True
        self.counted += [spent(ran, ledger, *row) for *row, ran in event.get("rows", [])]
        self.spent[ledger] = max(self.spent[ledger], no)


def check(events: Iterable[Event], budgets: dict[str, Event] | None = None) -> list[Finding]:
    """All that is wrong. budgets: {device: {epsilon, delta, window_s}}, of a history that does not say them."""
    findings: list[Finding] = []
    devices: dict[str, _Device] = defaultdict(_Device)
    calm = _Calm()
    forgetful = False  # nobody but a device itself remembers its marks
    lied = False  # somebody has said what a device never said
    for name, budget in (budgets or {}).items():
        devices[name].limits.append((0.0, budget))

    number = 0
    for number, event in enumerate(events):
        kind, who = event["e"], event["who"]
        device = devices[who]
        device.opening = kind == "ledger" or (device.opening and kind not in ("drawn", "send"))

        def wrong(promise: str, text: str) -> None:
            findings.append(Finding(promise, number, who, text))  # noqa: B023

        if (text := calm.sees(event)) and not _excused(event, devices) and not any(d.foreign for d in devices.values()):
            wrong("answered", text)
        lied = lied or event.get("fault") == "forge"
        if kind == "defect":
            wrong("defect", event["trace"].strip().splitlines()[-1])
        elif kind in ("kill", "cut"):
            device.killed, device.cut = True, device.cut or kind == "cut"
        elif kind == "card":
            if who == COORDINATOR:
                forgetful = True
                for each in devices.values():
                    each.forgotten()
            else:
                device.replace(event)
        elif kind == "owner":
            device.limits = [*device.limits[-1:], (event["t"] + GRACE_S, event)]
        elif kind == "start" or (kind == "log" and TAKEN in event["line"]):
            device.limits = device.limits[-1:]
        elif kind == "ended":
            device.ended.add(event["run"])
        elif kind == "outcome":
            device.outcomes.add(event["run"])
        elif kind == "accepted":
            device.accept(event)
        elif kind == "ledger" and who != COORDINATOR:
            _opened(device, event, lied, wrong)
        elif kind == "drawn":
            device.drawn.add(event["digest"])
        elif kind == "spent":
            if device.foreign and (_remembered(device, event) or (not forgetful and any(device.remembered.values()))):
                wrong("marks", f"a ledger that was {device.foreign} spends answer {event['no']}, not accepted")
            if event["no"] != device.spent[event["id"]] + 1 and device.spent[event["id"]]:
                wrong("paid", f"answer {event['no']} follows answer {device.spent[event['id']]}")
            device.spent[event["id"]] = event["no"]
            device.paid += 1
            _spends(device, event, wrong)
        elif kind == "values":
            _reads(device, event, wrong)
        elif kind == "send" and "no" in event and event["body"] not in ("", "Death") and who != COORDINATOR:
            _sent(device, event, wrong)
        elif kind == "unanswered":
            if not _excused(event, devices):
                wrong("answered", event["text"])
        elif kind in LACKS:
            wrong(LACKS[kind], event["text"])
    for who, device in devices.items():
        if runs := device.ended - device.outcomes:
            text = f"run {min(runs)} is done, and has left nothing"
            findings.append(Finding("outcome", number, who, text))
    return findings


class _Calm:
    """Knows while nothing goes wrong but that few messages are lost, doubled or overtaken."""

    def __init__(self) -> None:
        self.until = 0.0  #: when what has gone wrong is over, and overcome, s
        self.began: float | None = None  #: when the interval of now began
        self.down: set[str] = set()  #: machines whose process has ended
        self.met = True  #: all have answered since a card was put back, whose sessions are counted from an earlier one

    def sees(self, event: Event) -> str:
        """What is wrong with the end of an interval in a calm; "" if nothing is."""
        kind, now = event["e"], event["t"]
        if kind == "fault" and event["fault"] in ("forge", "owner"):
            self.until = math.inf  # until somebody accepts, or allows more
        elif kind == "fault" and not _gentle(event):
            self.until = max(self.until, now + event.get("seconds", 0.0) + OVERCOME_S)
        elif kind in ("kill", "cut", "start", "exit"):
            self.until = max(self.until, now + OVERCOME_S)
            self.down = self.down - {event["who"]} if kind == "start" else self.down | {event["who"]}
        elif kind == "accepted":
            self.until = max(self.until, now + OVERCOME_S)
        elif kind == "card":
            self.met = False
        elif kind == "begins":
            self.began = now
        elif kind == "ends":
            began, self.began = self.began, None
            calm = self.met and began is not None and self.until < began and not self.down
            answered = event["outcome"] == "answer" and not event["absent"]
            self.met = self.met or answered
            if calm and not answered:
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


def _opened(device: _Device, event: Event, lied: bool, wrong: Wrong) -> None:
    """A process has opened its ledger."""
    ledger, no = event["id"], event["no"]
    if event["behind"] and not device.replaced and not lied:
        wrong("marks", "the ledger refuses to spend, and nobody has put it back or replaced it")
    if not device.foreign and no < device.received[ledger]:
        wrong("marks", f"the ledger begins at {no}, and {device.received[ledger]} was heard of it")
    through = device.covered.get(ledger, set())
    marked, most = device.mark or (ledger, 0)
    if device.foreign and most > (no if marked == ledger else 0) and marked not in through and not event["behind"]:
        wrong("marks", f"a ledger that was {device.foreign} does not refuse, and its mark file says {most}")
    if device.foreign and all(n <= no if one == ledger else one in through for one, n in device.remembered.items()):
        device.foreign, device.received[ledger] = "", no  # it lacks nothing that anybody remembers
    if device.foreign or device.cut:  # a power cut may take the note of what is drawn
        device.drawn, device.paid, device.others = set(), 0, {}
    device.paid += max(no - device.spent[ledger], 0)  # committed as its process died, or paid for what was noted
    device.spent[ledger] = no if not device.foreign else max(no, 0)
    for number, kind, value, mu2, ran in event.get("rows", []):  # committed as its process died
        device.counted.append(spent(ran, ledger, number, kind, value, mu2))
        device.real.append(spent(event["t"], ledger, number, kind, value, mu2))
    device.killed = device.cut = False


def _sent(device: _Device, event: Event, wrong: Wrong) -> None:
    mark = event.get("mark")
    if mark is not None:
        ledger, no = mark
        if no > event["no"] or no > device.spent[ledger]:
            wrong(
                "heard", f"{event['body']} says {no} answers, its ledger has {min(event['no'], device.spent[ledger])}"
            )
        if event["unsynced"]:
            wrong("heard", f"{event['body']} leaves before what it says is on the disk")
        if not device.foreign and no < device.received[ledger] and event["body"] == "Birth":
            wrong("marks", f"a birth says {no}, and {device.received[ledger]} was heard before")
        device.received[ledger] = max(device.received[ledger], no)
    if len(device.drawn) > device.paid and not device.foreign:
        wrong("paid", f"{len(device.drawn)} answers were drawn, {device.paid} are paid, and {event['body']} leaves")
    if event["body"] == "Join":
        _joins(device, event, wrong)
    if event.get("iterate") and event["seq"]:
        seq = event["seq"] if event["body"] != "Token" else 1  # a step that is superseded is undone
        device.stands[event["run"]] = max(seq, device.stands.get(event["run"], 0))
        key = (event["run"], event["epoch"], event["seq"], event["dst"], event["body"])
        if device.contents.setdefault(key, event["iterate"]) != event["iterate"]:
            wrong("once", f"message {event['seq']} of run {event['run']} has two contents")


def _joins(device: _Device, event: Event, wrong: Wrong) -> None:
    run = event["run"]
    if run != device.run:
        device.others[device.run] = device.drawn, device.paid  # the noise of a seed is the same in each run
        device.run, (device.drawn, device.paid) = run, device.others.pop(run, (set(), 0))
        if not any(paid == run for _, paid in device.answers):
            device.stands.pop(run, None)
    sent = device.stands.get(run, 0)
    if 0 <= event.get("stands", -1) < sent:
        wrong("resumed", f"it joins run {run} at message {event['stands']}, and has sent message {sent}")


def _spends(device: _Device, event: Event, wrong: Wrong) -> None:
    """An answer is spent: whether its window holds it."""
    now, ran = event["t"], event["ran"]
    run, answer = (event.get("id", ""), event.get("run", "")), event.get("answer", 0)
    device.shares = device.shares or bool(event.get("honest"))
    version, keeps = event.get("version", 0), device.limits[-1][1].get("retention") if device.limits else None
    earlier = device.noted.pop((*run, answer), None)
    anew = earlier is not None and (earlier != version or keeps is not None)
    if device.opening:
        device.noted[*run, answer] = version
    if answer and answer <= device.answers.get(run, 0) and not anew:
        wrong("paid", f"answer {answer} of run {run[1]} is counted after answer {device.answers[run]}")
    device.answers[run] = max(answer, device.answers.get(run, 0))
    one = event.get("id", ""), event["no"], event.get("kind", "laplace"), event["value"]
    device.counted.append(spent(ran, *one))
    device.real.append(spent(now, *one))
    least = device.clock[1] if device.clock and device.clock[0] == one[0] else ran - now
    if ran - now > least + READ_S:  # over all spends: what is too fast by little adds up
        wrong("budget", f"running time has gained {ran - now - least:g} s on the world's")
    device.clock = one[0], min(least, ran - now)
    limits = [limit for until, limit in device.limits[:-1] if now <= device.limits[-1][0]]
    limits += [limit for _, limit in device.limits[-1:]]
    for what, spends, end in (("running time", device.counted, ran), ("the world's time", device.real, now)):
        for limit in limits:
            live = _live(spends, end, limit)
            if within(live, limit["epsilon"], limit.get("delta") or 0.0):
                break
        else:
            if limits:
                epsilon, mu2 = sum(s.epsilon for s in live), sum(s.mu2 for s in live)
                text = f"epsilon {epsilon:g}, mu^2 {mu2:g} within a window of {what}"
                wrong("budget", f"{text}, epsilon {limits[-1]['epsilon']:g} is allowed")


def _reads(device: _Device, event: Event, wrong: Wrong) -> None:
    """The values of a data version are stored, with when each was read first and until when it counts."""
    key, now = (event["id"], event["file"]), (event["version"], event["read"])
    version, read = device.files.setdefault(key, now)
    if version != now[0]:
        wrong("readings", f"file {event['file']} is data version {now[0]}, and was {version}")
    if now[1] > read + 1e-6:
        wrong("readings", f"file {event['file']} was read at {now[1]:g} s, and at {read:g} s before")
    limit = device.limits[-1][1].get("retention") if device.limits else None
    if limit is not None and event["longest"] > limit + 1e-6:
        wrong("readings", f"a reading counts for {event['longest']:g} s, {limit:g} s are allowed")


def _live(spends: list[Spent], end: float, limit: Event) -> list[Spent]:
    first = end - limit["window_s"] if limit.get("window_s") else -math.inf
    return [s for s in spends if s.moment > first]


def _excused(event: Event, devices: dict[str, _Device]) -> bool:
    """Whether an interval is missed because of devices that may have refused it, and of nobody else.

    Without one of them the others may refuse too, if what they answer is worth less among fewer.
    """
    names = event.get("refused", [])
    if not names or not set(event.get("absent", [])) <= set(names):
        return False
    may = {name for name in names if _may_refuse(devices[name])}
    return bool(may) and all(name in may or devices[name].shares for name in names)


def _may_refuse(device: _Device) -> bool:
    """Whether its budget may have no room for a run. The running time of now is at least that of its last spend."""
    if device.accepts or device.replaced or not device.limits:
        return device.accepts or device.replaced
    limit = device.limits[-1][1]
    kind, value, answers = limit["run"]
    run = [spent(0.0, "", 0, kind, value)] * answers
    end = max((s.moment for s in device.counted), default=0.0)
    return not within([*_live(device.counted, end, limit), *run], limit["epsilon"], limit["delta"])


def main(path: str) -> int:
    events = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    findings = check(events)
    for finding in findings:
        print(finding)
    print(f"{len(events)} events, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
