"""Who is told the outcome of a run: a file, a topic of the local broker, a program. Set-points are post-processing.

The last safe answer stays in force when an interval is missed, and once it is older than it may be, the device's own
timer says so. What fails here is said in the device's log and tried again; it never disturbs a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.types import Vector
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.config.site import group_of
from hushgrid.node.durable import write_file
from hushgrid.node.log import Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Outcome, RunFacts
from hushgrid.node.schema.site import Sink, Told
from hushgrid.node.site.home_assistant import available, discovery, health
from hushgrid.node.site.hook import Hook
from hushgrid.node.site.intake import Intake
from hushgrid.node.site.kept_values import running
from hushgrid.node.site.local_link import LocalEnd, LocalLink
from hushgrid.node.site.standing import Standing, last_standing, moment, place_of, write_standing
from hushgrid.node.wire import PLAN_LIMIT, Refuse, decode_envelope

LOOK_S, HOOK_S = 10.0, 0.25  #: between two turns in which nothing happens; while the program runs
AGAIN_S = 10.0  #: until a file that could not be written is tried again
SLACK = 0.1, 10.0  #: of the interval, and s: what a run and its jitter may take at the most before an answer is old
LONGEST_S = 2**32 - 1  #: that a broker can be told to keep a message


def validity(every: float | None) -> float | None:
    """Seconds for which an answer counts: until the next one is there, with some slack; None without a schedule."""
    if every is None:
        return None
    return every + min(max(SLACK[0] * every, SLACK[1]), every)


class Ways(NamedTuple):
    """By which a sink tells."""

    sink: Sink = Sink()
    group: int | None = None  #: of its file
    hook: Hook | None = None
    teller: Teller | None = None


class Outlet:
    """Of one device. `turn` is called by the loop, at every turn."""

    now: Standing | None  #: the answer in force

    def __init__(
        self, config: DeviceConfig, path: str, intake: Intake, ledger: Ledger, log: Callable[[str], None]
    ) -> None:
        """Raises InputError if the device's file is wrong."""
        self.config, self.path, self.intake, self.ledger, self.log = config, path, intake, ledger, log
        self.by = Ways()
        self.by = self.ways(config)
        self._place = place_of(config)
        self._resume()
        #: when the file is tried again, of time.monotonic(); 0: it is written. At a start it may say that we have stopped
        self._due = time.monotonic() if self.now else 0.0
        self._last: tuple[bytes, bytes] | None = None
        self._told = ""  #: the run whose outcome came last, taken or not
        self._health: tuple[bool, str] | None = None

    def ways(self, config: DeviceConfig) -> Ways:
        """By which the owner's file has outcomes told: those that stay as they are, and new ones. InputError."""
        sink, had = config.sink or Sink(), self.by
        named = sink.file and sink.file.group
        group = group_of(named, f"{self.path}: sink.file.group") if named else None
        hook, teller = had.hook, had.teller
        if sink.exec != had.sink.exec:
            hook = Hook(sink.exec, Path(self.path).resolve().parent, self.log) if sink.exec else None
        if sink.mqtt != had.sink.mqtt:
            teller = Teller(self, sink.mqtt, self.log) if sink.mqtt else None
        return Ways(sink, group, hook, teller)

    def declare(self, config: DeviceConfig, ways: Ways, intake: Intake) -> None:
        """The owner's file has outcomes told by these `ways` from now on: also the one in force."""
        had, self.by, self.config, self.intake = self.by, ways, config, intake
        if had.hook and had.hook is not ways.hook:
            had.hook.close()
        if had.teller and had.teller is not ways.teller:
            had.teller.leave()
        if (had.sink == Sink()) != (ways.sink == Sink()):
            self._resume()
        if ways.sink.file != had.sink.file:
            self._write()

    def outcome(self, keep: Outcome) -> Outcome:
        """What stores the outcome of a run by `keep`, and then tells it, if there is anybody to be told."""

        def told(vectors: dict[str, Vector], about: RunFacts) -> str | None:
            said = keep(vectors, about)
            if self.config.sink is not None:
                self.tell(vectors, about)
            return said

        return told

    def tell(self, vectors: dict[str, Vector], about: RunFacts) -> None:
        """The outcome of a run is stored: it is in force now, unless the device has not taken it. Raises OSError."""
        self._told = about.run
        found = self.config.kind.site_outcome(self.intake.device, vectors)
        if found.why:
            self.hold(found.why)
            return
        length, now = validity(about.every), time.time()
        document = {
            "format": 1,
            "fleet": self.config.fleet,
            "node": self.config.node,
            "run": about.run,
            "name": about.name,
            "time": moment(now),
            "valid_until": None if length is None else moment(now + length),
            "state": "fresh",
            "reason": "",
            "data_state": self.intake.data_state if about.version == self.ledger.data_version else None,
            "age": None if about.age is None else round(about.age, 1),
            "data_version": about.version,
            "residual": about.residual,
            "quality": about.quality,
            **found.body,
        }
        self.now, self._expired = Standing(document, found.archive, running(self.ledger), length), False
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
            why = now.document["reason"]
            self._mark("old", f"no answer since{f': {why}' if why else ''}")
        if self._due and time.monotonic() >= self._due:
            self._write()
        if self.by.hook:
            self.by.hook.turn()
        if (
            self.by.teller
            and self.config.source
            and self._health != (said := (bool(self.intake.reason), self.intake.reason))
        ):
            self._health = said
            self.by.teller.tell()

    @property
    def wait(self) -> float:
        """Seconds after which `turn` is called at the latest though nothing happens."""
        if self.config.sink is None:
            return inf
        if self.by.hook and self.by.hook.running:
            return HOOK_S
        waits = [LOOK_S]
        if self._due:
            waits.append(self._due - time.monotonic())
        if self.left is not None:
            waits.append(self.left)
        return max(HOOK_S / 10, min(waits))

    @property
    def left(self) -> float | None:
        """Seconds for which the answer in force still counts; None if it is old, or counts until the next one."""
        now = self.now
        if now is None or now.validity is None or now.old:
            return None
        return now.validity - (running(self.ledger) - now.ran)

    def close(self) -> None:
        """From here on nobody would call the answer in force old: so it is said to be, until the next start."""
        with ExitStack() as closing:
            if self.by.teller:
                closing.callback(self.by.teller.leave)
            if self.by.hook:
                closing.callback(self.by.hook.close)
            if self.now is not None and not self.now.old:
                self.now = self.now.stopped
                self._write()
                if self.by.teller:
                    self.by.teller.tell()

    # --- inside ---

    def _overdue(self, now: Standing) -> bool:
        """By the running time, which no setting of the clock changes; at a start by the clock too, if it is right."""
        return now.validity is not None and (self._expired or running(self.ledger) - now.ran > now.validity)

    def _mark(self, state: str, reason: str) -> None:
        assert self.now is not None
        self.now = self.now.marked(state, reason)
        with suppress(OSError):  # a start marks it again
            self._keep(self.now)
        self._spread()

    def _spread(self) -> None:
        self._write()
        if self.by.teller:
            self.by.teller.tell()
        if self.by.hook and self.now:
            self.by.hook(msgspec.json.encode(self.now.document))

    def _write(self) -> None:
        file = self.by.sink.file
        if file is None or self.now is None:
            self._due = 0.0
            return
        try:
            write_standing(file, self.now, self.by.group)
        except OSError as error:
            if not self._due:
                self.log(Warned(f"sink: {file.path}: {error.strerror}, tried again"))
            self._due = time.monotonic() + AGAIN_S
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
                self._place.unlink()
        until = self.now.document["valid_until"] if self.now else None
        self._expired = until is not None and moment(time.time()) > until


def _reason(last: bytes) -> str:
    """Why a run has ended without an outcome, from the last message of this device in it."""
    try:
        body = decode_envelope(last, PLAN_LIMIT).body
    except Malformed:
        return "the run was stopped"
    return f"refused: {body.reason}" if isinstance(body, Refuse) else "the run was stopped"


class Teller(LocalEnd):
    """Retained topics of the local broker: the document, whether this program is there, and the source's health."""

    def __init__(self, outlet: Outlet, told: Told, log: Callable[[str], None]) -> None:
        config = outlet.config
        self.outlet, self.told = outlet, told
        self._described: list[tuple[str, bytes]] = []  #: what Home Assistant was told on this connection
        name, will = f"hushgrid-{config.fleet}-{config.node}-sink", (available(self.told.topic), b"offline")
        link = LocalLink(self.told.broker, name, will=will, tls=self.told.tls)
        super().__init__(link, lambda line: log(f"sink: {line}"))

    def connected(self) -> list[tuple[str, bytes, bool]]:
        self._described = []  # another broker may have taken the old one's place
        self.tell()
        return [(available(self.told.topic), b"online", True)]

    def tell(self) -> None:
        """Publishes what is in force now; a connection that is made later does it then.

        A broker of MQTT 5 keeps an answer for as long as it counts: whoever comes later finds none that is over.
        """
        if not self.link.connected:
            return
        self.link.send(self._publications())
        if (now := self.outlet.now) is not None:
            left = self.outlet.left
            expiry = None if left is None else min(max(1, ceil(left)), LONGEST_S)
            self.link.publish(self.told.topic, msgspec.json.encode(now.document), retain=True, expiry=expiry)

    def leave(self) -> None:
        """An orderly end: the will is not published, so this says it."""
        if self.link.connected:
            self.link.publish(available(self.told.topic), b"offline", retain=True)
        self.link.close()

    def _publications(self) -> list[tuple[str, bytes, bool]]:
        """All but the answer itself."""
        config, topic, now = self.outlet.config, self.told.topic, self.outlet.now
        out: list[tuple[str, bytes, bool]] = []
        if config.source:
            intake = self.outlet.intake
            age = intake.age
            body = {
                "problem": bool(intake.reason),
                "reason": intake.reason,
                "age": None if age is None else round(age, 1),
            }
            out.append((health(topic), msgspec.json.encode(body), True))
        if now is not None and self.told.discovery:
            described = discovery(
                config.fleet, config.node, topic, now.document, now.validity, config.source is not None
            )
            if described != self._described:
                self._described = described
                out += [(place, payload, True) for place, payload in described]
        return out


def ends_of(intake: Intake, outlet: Outlet) -> list[LocalEnd]:
    """The ends of local connections that the loop is to drive."""
    return [end for end in (intake.meter, outlet.by.teller) if end is not None]
