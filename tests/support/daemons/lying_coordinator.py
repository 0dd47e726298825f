"""A coordinator of the adversary: it speaks the wire, keeps no rule, and writes down all it is told.

It announces any plan, asks any question of any message type, poses as other nodes, tells marks, and ends runs when it
likes. What the devices under attack say (births, joins, answers, refusals) is kept, and given out by run.
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from hushgrid.kernels.machine import Malformed
from hushgrid.node import wire
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import (
    COORDINATOR,
    Birth,
    Death,
    Envelope,
    Finish,
    Finished,
    Join,
    Mark,
    Plan,
    Progress,
    Refuse,
    Topics,
)

PATIENCE = 120.0  #: seconds until an attack gives up waiting; no outcome depends on how long a thing takes

T = TypeVar("T")
Body = Any  #: any struct of the wire


class Transcript(NamedTuple):
    """One message of a device under attack."""

    src: str
    dst: str  #: "" for a broadcast
    envelope: Envelope
    payload: bytes


class Liar:
    """Connected as `name` to the fleet's broker; it hears all that `victims` say, to whomever they say it.

    `also`: more topics to hear, for a liar who is a member himself, say.
    """

    def __init__(
        self, url: str, victims: Iterable[str], fleet: str = "demo", name: str = COORDINATOR, also: Iterable[str] = ()
    ) -> None:
        self.victims, self.topics, self.name = list(victims), Topics(fleet), name
        t = self.topics
        heard = [x for v in self.victims for x in (t.state(v), t.edge(v, "+"), t.all(v))]
        heard += also
        self.link = MqttLink(url, f"{name}-{fleet}", username=name, subscriptions=heard, persistent=False)
        self.births: dict[str, Birth] = {}
        self.born: Counter[str] = Counter()  #: births heard
        self.heard: dict[bytes, list[Transcript]] = defaultdict(list)  #: by run, each message once, in order
        self.unreadable: list[str] = []  #: why a message of theirs could not be decoded
        self.asked = 0  #: plans announced
        self.link.connect(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.link.close()

    # --- speaking ---

    def announce(
        self, plan: Mapping[str, Any] | bytes, *, marks: Mapping[str, Mark] | None = None,
        others: Iterable[str] = (), nonce: bytes | None = None, every: float | None = None,
    ) -> bytes:  # fmt: skip
        """Publish a plan to the victims (and to `others`, who need not exist); returns the run's id. Waits for
        nothing.
        """
        blob = plan if isinstance(plan, bytes) else msgspec.json.encode(plan)
        members = {v: self.birth(v).session for v in self.victims} | dict.fromkeys(others, 1)
        nonce = os.urandom(16) if nonce is None else nonce
        run = wire.run_id(blob, nonce, members)
        body = Plan(blob, nonce, members, dict(marks or {}), every=every)
        self.publish(self.topics.all(COORDINATOR), wire.encode(Envelope(run, 0, 0, None, body)))
        self.asked += 1
        return run

    def say(
        self, run: bytes, to: str, body: Body, seq: int = 0, *, src: str = COORDINATOR, epoch: int = 0,
        mark: Mark | None = None,
    ) -> None:  # fmt: skip
        """One message on the edge src -> to; `to` = "": src's broadcast. Nothing is signed: `src` may be anybody."""
        topic = self.topics.edge(src, to) if to else self.topics.all(src)
        self.publish(topic, wire.encode(Envelope(run, epoch, seq, mark, body)))

    def finish(self, run: bytes, to: str, state: str = "done", reason: str = "") -> None:
        self.say(run, to, Finish(state, reason))

    def progress(self, run: bytes, state: str) -> None:
        """What stands on the coordinator's state topic."""
        self.publish(self.topics.state(COORDINATOR), wire.encode(Progress(run, 0, state)))

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Bytes as they are. A full queue is waited for, so that a flood arrives whole."""
        deadline = time.monotonic() + PATIENCE
        while not self.link.publish(topic, payload, retain):
            assert time.monotonic() < deadline, f"the broker takes no more: {self.link.why}"
            self.pump(0.01)

    def roll_call(self, victim: str) -> None:
        """Ask who is there, until a victim says so again: by then it has dealt with all that was said before."""
        before = self.born[victim]
        self.progress(b"", "gathering")
        self.wait(lambda: self.born[victim] > before or None, f"birth of {victim}")

    # --- listening ---

    def pump(self, timeout: float = 0.0) -> None:
        """Take in what has come, waiting at most `timeout` seconds for it."""
        for message in self.link.poll(timeout):
            kind, src, dst = self.topics.parse(message.topic)
            if kind == "state":
                presence = wire.decode_presence(message.payload) if message.payload else None
                if isinstance(presence, Birth):
                    self.births[src] = presence
                    self.born[src] += 1
                elif isinstance(presence, Death) or presence is None:
                    self.births.pop(src, None)
                continue
            try:
                envelope = wire.decode_envelope(message.payload, wire.PLAN_LIMIT)
            except Malformed as error:
                self.unreadable.append(f"{src}: {error}")
                continue
            known = self.heard[envelope.run]
            if all((src, dst, message.payload) != (h.src, h.dst, h.payload) for h in known):
                known.append(Transcript(src, dst, envelope, message.payload))

    def wait(self, found: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
        """The first thing that `found` finds."""
        deadline = time.monotonic() + patience
        while (thing := found()) is None:
            assert time.monotonic() < deadline, f"no {what} within {patience:g} s"
            self.pump(0.05)
        return thing

    def birth(self, victim: str) -> Birth:
        return self.wait(lambda: self.births.get(victim), f"birth of {victim}")

    def replies(self, run: bytes, victim: str, *kinds: type[Body]) -> list[Body]:
        """What a victim has said so far in a run, of these kinds."""
        return [h.envelope.body for h in self.heard[run] if h.src == victim and isinstance(h.envelope.body, kinds)]

    def reply(self, run: bytes, victim: str, *kinds: type[Body], patience: float = PATIENCE) -> Body:
        """The first thing of these kinds that a victim says in a run."""
        names = " or ".join(k.__name__ for k in kinds)
        return self.wait(
            lambda: next(iter(self.replies(run, victim, *kinds)), None), f"{names} of {victim}", patience=patience
        )

    def joined(self, run: bytes, victim: str) -> bool:
        """Whether a victim takes part; False where it refuses."""
        return isinstance(self.reply(run, victim, Join, Refuse), Join)

    def farewell(self, run: bytes, victim: str, state: str = "done", reason: str = "") -> None:
        """End a run on a victim, and hear it say so."""
        self.finish(run, victim, state, reason)
        self.reply(run, victim, Finished)


# --- plans ---


def honest_plan(scenario: Mapping[str, Any], base: Path = Path()) -> dict[str, Any]:
    """The plan an honest coordinator would make of a scenario, as JSON values, to be spoiled by `altered`."""
    made = scenario_from(copy.deepcopy(dict(scenario)), "scenario", base)
    plan: dict[str, Any] = msgspec.json.decode(encode_plan(make_plan(made, made.kind.public(made, "scenario"))))
    return plan


def altered(plan: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A plan with other values at dotted paths. Nothing is checked: that is the device's task."""
    spoiled = copy.deepcopy(dict(plan))
    for path, value in changes.items():
        *sections, key = path.split(".")
        place: Any = spoiled
        for section in sections:
            place = place[section]
        place[key] = value
    return spoiled
