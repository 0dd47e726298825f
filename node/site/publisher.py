"""Who is told the outcome of a run: a file, a topic of the local broker, a program. Set-points are post-processing.

The last safe answer stays in force when an interval is missed, and once it is older than it may be, the device's own
timer says so. What fails here is said in the device's log and tried again; it never disturbs a run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.types import Vector
from hushgrid.node import system
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.config.site import group_of
from hushgrid.node.durable import write_file
from hushgrid.node.log import Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Outcome, RunFacts
from hushgrid.node.schema.durations import moment, validity
from hushgrid.node.schema.site import MqttSink, Sink
from hushgrid.node.site.data_source import DataSource
from hushgrid.node.site.exec_sink import ExecSink
from hushgrid.node.site.home_assistant import available, discovery, health, tariff
from hushgrid.node.site.local_link import LocalEnd, LocalLink
from hushgrid.node.site.standing import Standing, last_standing, place_of, write_standing
from hushgrid.node.site.value_store import running
from hushgrid.node.wire import PLAN_LIMIT, Refuse, decode_envelope

LOOK_S, HOOK_S = 10.0, 0.25  #: between two turns in which nothing happens; while the program runs
AGAIN_S = 10.0  #: until a file that could not be written is tried again
LONGEST_S = 2**32 - 1  #: that a broker can be told to keep a message


NO_ANSWER = "no answer since"


class Sinks(NamedTuple):
    """By which a sink tells."""

    sink: Sink = Sink()
    group: int | None = None  #: of its file
    program: ExecSink | None = None
    mqtt: MqttPublisher | None = None


class Publisher:
    """Of one device. `turn` is called by the loop, at every turn."""

    now: Standing | None  #: the answer in force

    def __init__(
        self, config: DeviceConfig, path: str, data_source: DataSource, ledger: Ledger, log: Callable[[str], None]
    ) -> None:
        """Raises InputError if the device's file is wrong."""
        self.config, self.path, self.data_source, self.ledger, self.log = config, path, data_source, ledger, log
        self.sinks = Sinks()
        self.sinks = self.sinks_of(config)
        self._place = place_of(config)
        self._resume()
        #: when the file is tried again, of time.monotonic(); 0: it is written.
        #: At a start it may say that we have stopped
        self._due = system.machine.monotonic() if self.now else 0.0
        self._last: tuple[bytes, bytes] | None = None
        self._told = ""  #: the run whose outcome came last, taken or not
        self._health: tuple[bool, str] | None = None

    def sinks_of(self, config: DeviceConfig) -> Sinks:
        """By which the owner's file has outcomes told: those that stay as they are, and new ones.
        Raises InputError if it is wrong.
        """
        sink, had = config.sink or Sink(), self.sinks
        named = sink.file and sink.file.group
        group = group_of(named, f"{self.path}: sink.file.group") if named else None
        program, mqtt = had.program, had.mqtt
        if sink.exec != had.sink.exec:
            program = ExecSink(sink.exec, Path(self.path).resolve().parent, self.log) if sink.exec else None
        if sink.mqtt != had.sink.mqtt:
            mqtt = MqttPublisher(self, sink.mqtt, self.log) if sink.mqtt else None
        return Sinks(sink, group, program, mqtt)

    def declare(self, config: DeviceConfig, sinks: Sinks, data_source: DataSource) -> None:
        """The owner's file has outcomes told by these `ways` from now on: also the one in force."""
        had, self.sinks, self.config, self.data_source = self.sinks, sinks, config, data_source
        if had.program and had.program is not sinks.program:
            had.program.close()
        if had.mqtt and had.mqtt is not sinks.mqtt:
            had.mqtt.leave()
        if (had.sink == Sink()) != (sinks.sink == Sink()):
            self._resume()
        if sinks.sink.file != had.sink.file:
            self._write()

    def outcome(self, keep: Outcome) -> Outcome:
        """What stores the outcome of a run by `keep`, and then tells it, if there is anybody to be told."""

        def stored(vectors: dict[str, Vector], facts: RunFacts) -> str | None:
            line = keep(vectors, facts)
            if self.config.sink is not None:
                self.tell(vectors, facts)
            return line

        return stored

    def tell(self, vectors: dict[str, Vector], facts: RunFacts) -> None:
        """The outcome of a run is stored: it is in force now, unless the device has not taken it. Raises OSError."""
        self._told = facts.run
        now = system.machine.wall()
        outcome = self.config.kind.site_outcome(self.data_source.device, vectors, facts.problem, now)
        if outcome.why:
            self.hold(outcome.why)
            return
        length = validity(facts.every)
        document = {
            "format": 1,
            "fleet": self.config.fleet,
            "node": self.config.node,
            "run": facts.run,
            "name": facts.name,
            "time": moment(now),
            "valid_until": None if length is None else moment(now + length),
            "state": "fresh",
            "reason": "",
            "data_state": self.data_source.data_state if facts.version == self.ledger.data_version else None,
            "age": None if facts.age is None else round(facts.age, 1),
            "data_version": facts.version,
            "residual": facts.residual,
            "quality": facts.quality,
            **outcome.body,
        }
        ran = running(self.ledger)
        self.now = Standing(document, outcome.archive, ran, length, outcome.tariff, facts.every or 0.0)
        self._expired = False
        self._keep(self.now)
        self._spread()

    def hold(self, reason: str) -> None:
        """An interval had no answer, for this reason: the last one stays in force."""
        if self.now is None or self.now.old:
            return
        self._mark("held", reason)

    def turn(self, last: tuple[bytes, bytes] | None = None) -> None:
        """What is due. `last`: (run, last message) of the run that has ended here last; None while another goes on."""
        if self.config.sink is None:
            return
        if last is not None and last != self._last:
            self._last = last
            if last[0].hex() != self._told:
                self.hold(_reason(last[1]))
        now = self.now
        if now is not None and not now.old and self._overdue(now):
            self._go_on(now)
        if self._due and system.machine.monotonic() >= self._due:
            self._write()
        if self.sinks.program:
            self.sinks.program.turn()
        if (
            self.sinks.mqtt
            and self.config.source
            and self._health != (state := (bool(self.data_source.reason), self.data_source.reason))
        ):
            self._health = state
            self.sinks.mqtt.tell()

    @property
    def wait(self) -> float:
        """Seconds after which `turn` is called at the latest though nothing happens."""
        if self.config.sink is None:
            return inf
        if self.sinks.program and self.sinks.program.running:
            return HOOK_S
        waits = [LOOK_S]
        if self._due:
            waits.append(self._due - system.machine.monotonic())
        if self.remaining is not None:
            waits.append(self.remaining)
        return max(HOOK_S / 10, min(waits))

    @property
    def remaining(self) -> float | None:
        """Seconds for which the answer in force still counts; None if it is old, or counts until the next one."""
        now = self.now
        if now is None or now.validity is None or now.old:
            return None
        return now.validity - (running(self.ledger) - now.ran)

    def close(self) -> None:
        """From here on nobody would call the answer in force old: so it is said to be, until the next start."""
        with ExitStack() as closing:
            if self.sinks.mqtt:
                closing.callback(self.sinks.mqtt.leave)
            if self.sinks.program:
                closing.callback(self.sinks.program.close)
            if self.now is not None and not self.now.old:
                self.now = self.now.stopped
                self._write()
                if self.sinks.mqtt:
                    self.sinks.mqtt.tell()

    # --- inside ---

    def _overdue(self, now: Standing) -> bool:
        """By the running time, which no setting of the clock changes; at a start by the clock too, if it is right."""
        return now.validity is not None and (self._expired or running(self.ledger) - now.ran > now.validity)

    def _go_on(self, now: Standing) -> None:
        """There is no newer answer: over a horizon its next period counts, else the answer is old."""
        why = now.document["reason"]
        reason = why if why.startswith(NO_ANSWER) else f"{NO_ANSWER}{f': {why}' if why else ''}"
        following = now.following(reason)
        while following and self._expired and moment(system.machine.wall()) > following.document["valid_until"]:
            following = following.following(reason)
        if following is None:
            self._mark("old", reason)
            return
        self.now, self._expired = following, False
        with suppress(OSError):
            self._keep(following)
        self._spread()

    def _mark(self, state: str, reason: str) -> None:
        assert self.now is not None
        self.now = self.now.marked(state, reason)
        with suppress(OSError):  # a start marks it again
            self._keep(self.now)
        self._spread()

    def _spread(self) -> None:
        self._write()
        if self.sinks.mqtt:
            self.sinks.mqtt.tell()
        if self.sinks.program and self.now:
            self.sinks.program(msgspec.json.encode(self.now.document))

    def _write(self) -> None:
        file = self.sinks.sink.file
        if file is None or self.now is None:
            self._due = 0.0
            return
        try:
            write_standing(file, self.now, self.sinks.group)
        except OSError as error:
            if not self._due:
                self.log(Warned(f"sink: {file.path}: {error.strerror}, tried again"))
            self._due = system.machine.monotonic() + AGAIN_S
        else:
            self._due = 0.0

    def _keep(self, standing: Standing) -> None:
        """For the next start. Raises OSError."""
        write_file(self._place, msgspec.msgpack.encode(standing), mode=0o600)

    def _resume(self) -> None:
        """Takes the answer in force as it was kept; without a sink nothing is in force, and nothing is kept."""
        self.now = None
        if self.config.sink is not None:
            self.now = last_standing(self.config)
        else:
            with suppress(OSError):
                system.machine.unlink(self._place)
        until = self.now.document["valid_until"] if self.now else None
        self._expired = until is not None and moment(system.machine.wall()) > until


def _reason(last: bytes) -> str:
    """Why a run has ended without an outcome, from the last message of this device in it."""
    try:
        body = decode_envelope(last, PLAN_LIMIT).body
    except Malformed:
        return "the run was stopped"
    return f"refused: {body.reason}" if isinstance(body, Refuse) else "the run was stopped"


class MqttPublisher(LocalEnd):
    """Retained topics of the local broker: the document, whether this program is there, the source's health, and over a
    horizon the tariff.
    """

    def __init__(self, publisher: Publisher, section: MqttSink, log: Callable[[str], None]) -> None:
        config = publisher.config
        self.publisher, self.section = publisher, section
        self._described: list[tuple[str, bytes]] = []  #: what Home Assistant was told on this connection
        name, will = f"hushgrid-{config.fleet}-{config.node}-sink", (available(self.section.topic), b"offline")
        link = LocalLink(self.section.broker, name, will=will, tls=self.section.tls)
        super().__init__(link, lambda line: log(f"sink: {line}"))

    def connected(self) -> list[tuple[str, bytes, bool]]:
        self._described = []  # another broker may have taken the old one's place
        self.tell()
        return [(available(self.section.topic), b"online", True)]

    def tell(self) -> None:
        """Publishes what is in force now; a connection that is made later does it then.

        A broker of MQTT 5 keeps an answer for as long as it counts: whoever comes later finds none that is over.
        """
        if not self.link.connected:
            return
        self.link.send(self._publications())
        if (now := self.publisher.now) is not None:
            remaining = self.publisher.remaining
            expiry = None if remaining is None else min(max(1, ceil(remaining)), LONGEST_S)
            self.link.publish(self.section.topic, msgspec.json.encode(now.document), retain=True, expiry=expiry)
            if now.tariff is not None:
                self.link.publish(tariff(self.section.topic), msgspec.json.encode(now.tariff), retain=True)

    def leave(self) -> None:
        """An orderly end: the will is not published, so this says it."""
        if self.link.connected:
            self.link.publish(available(self.section.topic), b"offline", retain=True)
        self.link.close()

    def _publications(self) -> list[tuple[str, bytes, bool]]:
        """All but the answer itself."""
        config, topic, now = self.publisher.config, self.section.topic, self.publisher.now
        out: list[tuple[str, bytes, bool]] = []
        if config.source:
            data_source = self.publisher.data_source
            age = data_source.age
            body = {
                "problem": bool(data_source.reason),
                "reason": data_source.reason,
                "age": None if age is None else round(age, 1),
            }
            out.append((health(topic), msgspec.json.encode(body), True))
        if now is not None and self.section.discovery:
            described = discovery(
                config.fleet, config.node, topic, now.document, now.validity, config.source is not None, now.tariff
            )
            if described != self._described:
                self._described = described
                out += [(place, payload, True) for place, payload in described]
        return out


def ends_of(data_source: DataSource, publisher: Publisher) -> list[LocalEnd]:
    """The ends of local connections that the loop is to drive."""
    return [end for end in (data_source.subscriber, publisher.sinks.mqtt) if end is not None]
