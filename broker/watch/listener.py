"""The connection of the identity `watch`: a thread that feeds the model with what the broker says."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Thread

from hushgrid.broker.watch.model import Model
from hushgrid.broker.watch.nodes import presences, retains_apart, standing
from hushgrid.kernels.errors import Stopped
from hushgrid.node.config.watch import WATCH, WatchConfig
from hushgrid.node.transport.link import Message
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, Topics

KEEPALIVE_S = 4  #: a broker that is there and says nothing is noticed within as long
OFTEN, WITHIN_S = 3, 60.0  #: losses within as long, that are no accident
TURN_S = 0.25  #: how often the thread looks whether it is to end


class Listener:
    """One connection, made again whenever it is lost."""

    def __init__(self, config: WatchConfig, model: Model) -> None:
        """Raises InputError if the certificates are wrong."""
        topics = Topics(config.fleet)
        each = (topics.state, topics.status, topics.run, topics.answer)
        self.topics = list(dict.fromkeys([*presences(config), *(topic(COORDINATOR) for topic in each)]))
        self.config, self.model = config, model
        self.link = MqttLink(
            config.broker,
            WATCH,
            username=WATCH,
            tls=config.tls,
            subscriptions=self.topics,
            persistent=False,
            keepalive=KEEPALIVE_S,
        )
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _why(self, lost: list[float]) -> str:
        """Why the broker is away. Two programs of one identity end each other's connection, which no broker says."""
        another = len(lost) >= OFTEN and time.monotonic() - lost[-OFTEN] < WITHIN_S
        return self.link.why + (f" again and again: is another program connected as {WATCH}?" if another else "")

    def _look(self) -> None:
        """What stands at servers where it is not connected afterwards."""
        if retains_apart(self.config):
            with suppress(Stopped):
                stands = standing(self.config, self.topics)
                with self.model.changed:
                    for topic, payload in stands.items():
                        self.model.take(Message(topic, payload, True))

    def _run(self) -> None:
        link, model = self.link, self.model
        self._look()
        link.open()
        lost: list[float] = []  # when the connection was lost
        losses = 0
        while not self._stopping.is_set():
            messages = link.poll(TURN_S)
            lost = [*lost, *[time.monotonic()] * (link.disconnects - losses)][-OFTEN:]
            losses = link.disconnects
            with model.changed:
                before = model.version
                there = link.connected and not link.mute
                model.link(there, "" if there else self._why(lost), [topic for topic, _ in link.refused])
                for message in messages:
                    model.take(message)
                wanted = model.wanted()
                if model.version != before:
                    model.changed.notify_all()
            link.follow([*self.topics, *wanted])
        link.close()
