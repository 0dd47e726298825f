"""Whether a fleet's coordinator lives, as its topics say: its last will, when it says that it ends, and its silence.

Of a server that goes out together with the coordinator no last will comes. So a coordinator that has a standby says in
its status when it says that again (`again_s`), and to have said nothing for twice as long is to be dead.

Without sockets and clocks: an event loop drives it, and its time stands still while the broker cannot be heard. So a
broker that is away is no death, and the same messages at the same times give the same decision.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf

from hushgrid.broker.standby.replica import UNSIGNED, Noted, Replica, Word, decode, decode_notes, notes_topic, topic
from hushgrid.kernels.machine import Malformed
from hushgrid.node import frames, status, wire
from hushgrid.node.runtime.endpoint import Clock
from hushgrid.node.wire import COORDINATOR, Birth, Death, Instance, Progress, Publication, Topics

LATEST = 1e11  #: s since 1970: a clock beyond it is nobody's, and `later` could not exceed what a broker has planted


class Watcher:
    """What a standby knows. `after`: s of its own clock from the coordinator's death until it takes over. `word`: how
    it knows what the coordinator says; its last will and its status are the broker's word.
    """

    def __init__(
        self,
        fleet: str,
        after: float,
        log: Callable[[str], None],
        word: Word = UNSIGNED,
    ) -> None:
        self.topics, self.after, self.log, self.clock, self.word = Topics(fleet), after, log, Clock(), word
        t = self.topics
        self._replicas = (topic(fleet), notes_topic(fleet))
        self.subscriptions: tuple[str, ...] = (t.state(COORDINATOR), t.status(COORDINATOR), *self._replicas)
        self.replica: Replica | None = None  #: the latest that it has heard
        self.noted: Noted | None = None  #: likewise
        self.last: Instance | None = None  #: the coordinator that was heard last
        self.dead_since: float | None = 0.0  #: s of `clock`; None: it lives. Nobody is heard of at first
        self._ended = -1  # the session that is dead: a broker retains what it said before
        self._status = b""  #: as it came last: what a broker hands over again is no news
        self._again = inf  #: s within which it says again that it lives
        self._silent_at = inf  #: s of `clock`: when its silence is its death

    @property
    def takes_over(self) -> bool:
        """Whether it is time to."""
        return self.dead_since is not None and self.clock.time - self.dead_since >= self.after

    def later(self, wall: float) -> float:
        """When this one begins, s since 1970: after the last one, whatever the clocks were."""
        return max(wall, self.last.began + 1.0) if self.last else wall

    # --- what the event loop calls ---

    @property
    def due(self) -> float:
        return self._silent_at if self.dead_since is None else self.dead_since + self.after

    @property
    def patient(self) -> bool:
        return False

    def connected(self) -> list[Publication]:
        return []

    def on_message(self, topic: str, payload: bytes) -> list[Publication]:
        """What the coordinator says of itself; what does not decode says nothing."""
        with suppress(Malformed):
            if self._take(topic, payload):
                return []
            kind, name, _ = self.topics.parse(topic)
            if (kind, name) == ("state", COORDINATOR):
                self._on_state(self._presence(topic, payload))
            elif (kind, name) == ("status", COORDINATOR) and (report := status.decode(payload)).node == COORDINATOR:
                self._on_status(report, payload)
        return []

    def on_tick(self, now: float) -> list[Publication]:
        if self.dead_since is None and self.clock.time >= self._silent_at:
            self._died("says nothing", -1)
        return []

    def idle(self) -> None:
        """There is nothing to do beforehand."""

    def refused(self, topic: str, reason: str) -> list[Publication]:
        self.log(f"the broker refuses {topic}: {reason[:200]!a}")
        return []

    # --- inside ---

    def _presence(self, topic: str, payload: bytes) -> wire.Presence:
        """Raises Malformed."""
        presence = wire.decode_presence(frames.unproven(payload))
        return presence if isinstance(presence, Death) else wire.decode_presence(self.word.open(topic, payload))

    def _take(self, topic: str, payload: bytes) -> bool:
        """Whether it is about the run, or notes. An older one than what is known says nothing. Raises Malformed."""
        if topic == self._replicas[0]:
            replica = decode(self.word.open(topic, payload))
            if self.replica is None or replica.when >= self.replica.when:
                self.replica = replica
        elif topic == self._replicas[1]:
            noted = decode_notes(self.word.open(topic, payload))
            if self.noted is None or noted.when >= self.noted.when:
                self.noted = noted
        else:
            return False
        return True

    def _on_state(self, presence: wire.Presence) -> None:
        if isinstance(presence, Birth) or (presence.by is not None and not 0 <= presence.by.began <= LATEST):
            return
        if isinstance(presence, Progress):
            if self._outlived(presence.by):  # RabbitMQ retains it yet on another server of a cluster
                return
            if presence.by is not None and presence.by != self.last:
                self._again = inf  # it has promised nothing yet
            self.last = presence.by or self.last
            self._lives()
        elif isinstance(presence, Death) and not self._outlived(presence.by):
            self._died("is gone", presence.session)

    def _on_status(self, report: status.Status, payload: bytes) -> None:
        if report.state == "off":
            if self.last is None or report.session >= self.last.session:
                self._died("says that it ends", report.session)
        elif report.session > self._ended and payload != self._status:
            self._status, self._again = payload, inf if report.again_s is None else report.again_s
            self._lives()

    def _outlived(self, by: Instance | None) -> bool:
        """Whether it is of an earlier session, or of an earlier coordinator."""
        last = self.last
        if last is None or by is None:
            return False
        return last.replaces(by) or (last.ledger == by.ledger and by.session < last.session)

    def _lives(self) -> None:
        self._ended, self._silent_at = -1, self.clock.time + 2 * self._again
        if self.dead_since is not None:
            self.dead_since = None
            self.log("the coordinator is there")

    def _died(self, how: str, session: int) -> None:
        self._ended, self._silent_at = session, inf
        if self.dead_since is None:
            self.dead_since = self.clock.time
            self.log(f"the coordinator {how}; takes over in {self.after:g} s unless it comes back")
