"""A source of topics: the last good value of each, or the rows that have come, is held until a run begins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hushgrid.kernels.errors import InputError
from hushgrid.node import system
from hushgrid.node.problems.feed import Feed, Part, Times, document_of
from hushgrid.node.schema.site import MqttSource
from hushgrid.node.site.local_link import LocalEnd, LocalLink
from hushgrid.node.site.sources import Reading

START_S = 10.0  #: for the topics to give a first value


class Subscriber(LocalEnd):
    """Hears the topics of a source. A message that is no value is noted, and changes nothing.

    A value is read when it comes. What the broker had kept before we subscribed may be of any time:
    it is no younger than the value that was held of its entry, or else a local broker that comes and goes would make it
    young each time. A row that was kept is none: it would count once more at each connection.
    """

    def __init__(
        self, section: MqttSource, feed: Feed, name: str, log: Callable[[str], None], running: Callable[[], float]
    ) -> None:
        """Raises InputError if the URL is wrong. `name`: of the device, for the client id. `running`:
        the ledger's time, s.
        """
        self.feed, self.running = feed, running
        self.slots = feed.slots(section.topic)
        self.wrong = ""  #: why the last message is no value; "" if it is one
        self._values = {name: v.copy() for name, v in feed.nothing.items()}
        self._read: Times = np.full(len(next(iter(self._values.values()))), np.nan)
        self._before: Times | None = None  #: when the values that the device holds were read
        self._good: dict[str, float] = {}  #: when each topic had its last good value, of time.monotonic()
        link = LocalLink(section.broker, f"hushgrid-{name}-source", tuple(self.slots), tls=section.tls)
        link.on_retained = lambda topic, payload: self._take(topic, payload, retained=True)
        super().__init__(link, lambda line: log(f"source: {line}"))

    def on_message(self, topic: str, payload: bytes) -> list[tuple[str, bytes, bool]]:
        self._take(topic, payload)
        return []

    def taken(self, read: Times) -> None:
        """What was read is the device's now. `read`: when each of the values that it holds was."""
        self._before = read
        if self.feed.rows:
            self._values, self._read = dict(self.feed.nothing), np.zeros(0)

    def _take(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        if retained and self.feed.rows:
            return
        try:
            part = self.feed.receive(self.slots[topic], document_of(payload, topic), topic)
        except InputError as error:
            self.wrong = str(error)
            return
        self.wrong = part.wrong
        self._good[topic] = system.machine.monotonic()
        self._rows(part) if self.feed.rows else self._entries(part, retained)

    def _rows(self, part: Part) -> None:
        most, read = self.feed.rows, np.full(len(part.places), self.running())
        self._values = {name: np.concatenate([v, part.values[name]])[-most:] for name, v in self._values.items()}
        self._read = np.concatenate([self._read, read])[-most:]

    def _entries(self, part: Part, retained: bool) -> None:
        d, now = part.values["d"], np.full(self._read.size, self.running())
        if retained:
            before = now if self._before is None else np.where(np.isnan(self._before), now, self._before)
            now = np.where(np.isnan(self._read), before, self._read)
        self._read = np.where(np.isnan(d), self._read, now)
        self._values["d"] = np.where(np.isnan(d), self._values["d"], d)

    def wait(self, seconds: float = START_S) -> None:
        """Before the loop runs: until every topic has given a value, or the time is over."""
        self.link.open()
        until = system.machine.monotonic() + seconds
        while len(self._good) < len(self.slots) and (remaining := until - system.machine.monotonic()) > 0:
            for message in self.link.poll(remaining):
                self.on_message(message.topic, message.payload)

    def reading(self) -> Reading:
        """The values of now, and why some of them are missing, if some are."""
        away = "" if self.link.connected else self.link.why
        missing = next((topic for topic in self.slots if topic not in self._good), "")
        if missing and not (self.feed.rows and self._before is not None):
            wrong = f"{missing}: {self.wrong or away or 'nothing has come'}, expected a value"
        else:
            wrong = self.wrong or (f"the local broker is away: {away}" if away else "")
        age = system.machine.monotonic() - min(self._good.values()) if self._good else 0.0
        return Reading(dict(self._values), age, wrong, read=self._read)
