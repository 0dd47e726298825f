"""A source of topics: the last good value of each is held until a run begins."""

from __future__ import annotations

import time
from collections.abc import Callable

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.feed import Feed, Values, document_of, whole
from hushgrid.node.schema.site import Heard
from hushgrid.node.site.local_link import LocalEnd, LocalLink
from hushgrid.node.site.sources import Reading

START_S = 10.0  #: for the topics to give a first value


class Meter(LocalEnd):
    """Hears the topics of a source. A message that is no value is noted, and changes nothing."""

    def __init__(self, heard: Heard, feed: Feed, name: str, log: Callable[[str], None]) -> None:
        """Raises InputError if the URL is wrong. `name`: of the device, for the client id."""
        self.feed = feed
        self.values: Values | None = None
        self.slots = feed.slots(heard.topic)
        self.wrong = ""  #: why the last message is no value; "" if it is one
        self._at: dict[str, float] = {}  #: when each topic had its last good value, of time.monotonic()
        link = LocalLink(heard.broker, f"hushgrid-{name}-source", tuple(self.slots), tls=heard.tls)
        super().__init__(link, lambda line: log(f"source: {line}"))

    def on_message(self, topic: str, payload: bytes) -> list[tuple[str, bytes, bool]]:
        try:
            document = document_of(payload, topic)
            self.values = self.feed.heard(self.values, self.slots[topic], document, topic)
        except InputError as error:
            self.wrong = str(error)
            return []
        self.wrong = ""
        self._at[topic] = time.monotonic()
        return []

    def wait(self, seconds: float = START_S) -> None:
        """Before the loop runs: until every topic has given a value, or the time is over."""
        self.link.open()
        until = time.monotonic() + seconds
        while not self._complete and (left := until - time.monotonic()) > 0:
            for message in self.link.poll(left):
                self.on_message(message.topic, message.payload)

    def reading(self) -> Reading:
        """The values of now. Raises InputError with the reason if they are not complete."""
        if not self._complete or self.values is None:
            missing = [topic for topic in self.slots if topic not in self._at]
            why = self.wrong or (self.link.why if not self.link.connected else "nothing has come")
            raise InputError(f"{missing[0] if missing else 'its topics'}: {why}, expected a value")
        left_out = self.wrong or ("" if self.link.connected else f"the local broker is away: {self.link.why}")
        return Reading(self.values, time.monotonic() - min(self._at.values()), left_out)

    @property
    def _complete(self) -> bool:
        return len(self._at) == len(self.slots) and whole(self.values)
