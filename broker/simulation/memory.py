"""The memory transport: a broker in this process, deterministic, with injectable faults. Same endpoints as on MQTT.

Faults are drawn per message from one seeded generator: a message is lost, delivered twice, or overtakes others; the
receiver crashes (before it has read the message, or after it has committed and before it has published) and starts
again from its store. The answer must not change.

Without faults members whose messages come next may compute in threads: all that follows from it is in the order of one
after the other, so it gives the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid.kernels.errors import Stopped
from hushgrid.node.config.scenario import Faults
from hushgrid.node.wire import COORDINATOR, ROOT, Publication

TICK_S = 1.0  #: virtual seconds that pass when nothing is on its way
LIMIT_S = 20_000.0  #: virtual seconds after which nothing can come any more


class Served(Protocol):
    """What is driven here: an endpoint, or a site with its two."""

    local: bool  #: whether all its peers are in this process

    @property
    def name(self) -> str: ...
    @property
    def subscriptions(self) -> tuple[str, ...]: ...
    @property
    def will(self) -> tuple[str, bytes]: ...
    @property
    def finished(self) -> bool: ...
    def connected(self) -> list[Publication]: ...
    def on_message(self, topic: str, payload: bytes) -> list[Publication]: ...
    def on_tick(self, now: float) -> list[Publication]: ...
    def idle(self) -> None: ...


class Delivery(NamedTuple):
    dst: str
    topic: str
    payload: bytes


class MemoryBroker:
    """Routes between endpoints by topic. `rebuild(name)` starts a crashed endpoint again from its store.

    threads: on so many members compute at a time, without faults. encoded: whether messages are, though nobody listens
    and nothing is lost; else peers hand them over as they are, and nobody may listen later.
    """

    def __init__(
        self,
        endpoints: Iterable[Served],
        rebuild: Callable[[str], Served],
        faults: Faults | None = None,
        eavesdrop: Callable[[str, bytes], None] | None = None,
        threads: int = 1,
        *,
        encoded: bool = True,
    ) -> None:
        self.endpoints: dict[str, Served] = {e.name: e for e in endpoints}
        for endpoint in self.endpoints.values():
            endpoint.local = not encoded and faults is None and eavesdrop is None
        self.rebuild, self.faults, self.eavesdrop = rebuild, faults or Faults(), eavesdrop
        self.threads = 1 if faults else threads
        self.random = np.random.Generator(np.random.Philox(key=self.faults.seed))
        self.retained: dict[str, bytes] = {}
        self.queue: list[Delivery] = []
        self.crashes = 0
        self.now = 0.0  #: virtual seconds
        self.seconds: dict[str, float] = {}  #: that answering took, by the fleet of the message
        self.subscribers: dict[str, list[str]] = {}
        self.heard_by: dict[str, tuple[str, ...]] = {}  #: topic: who hears it, as long as nobody hears more
        self.topics: dict[str, tuple[str, ...]] = {}  #: what each endpoint hears
        for name in self.endpoints:
            self._follow(name)

    def run(self, until: Callable[[], bool], interrupted: Callable[[], bool] = lambda: False) -> None:
        """Deliver until `until()`; when nothing is on its way, time passes. Raises Stopped if nothing ever comes."""
        for name in list(self.endpoints):
            self.endpoints[name].on_tick(self.now)
            self._connect(name)
        with ThreadPoolExecutor(self.threads) if self.threads > 1 else nullcontext() as pool:
            while not until() and not interrupted():
                if not self.queue:
                    self.tick()
                elif pool is None or not self._deliver_together(pool):
                    self._deliver(self._next())

    def tick(self) -> None:
        """Time passes."""
        self.now += TICK_S
        if self.now > LIMIT_S:
            raise Stopped(f"nothing happened for {LIMIT_S:g} virtual seconds, expected the run to end")
        for e in list(self.endpoints.values()):
            self.publish(e.on_tick(self.now))
            e.idle()

    def _follow(self, name: str) -> None:
        """What an endpoint hears may grow when it joins a run."""
        topics, before = self.endpoints[name].subscriptions, self.topics.get(name, ())
        if topics is not before:
            self.topics[name] = topics
            self.heard_by.clear()
            for topic in topics:
                if topic not in before:
                    self.subscribers.setdefault(topic, []).append(name)

    def _connect(self, name: str) -> None:
        self._follow(name)
        e = self.endpoints[name]
        for topic in e.subscriptions:
            if topic in self.retained:
                self.queue.append(Delivery(name, topic, self.retained[topic]))
        self.publish(e.connected())

    def publish(self, publications: list[Publication]) -> None:
        for topic, payload, retain in publications:
            if self.eavesdrop:
                self.eavesdrop(topic, payload)
            if retain:
                self.retained[topic] = payload
                if not payload:
                    del self.retained[topic]
            for name in self._hearers(topic):
                if not (self.faults.loss and self._happens(self.faults.loss)):
                    self.queue.append(Delivery(name, topic, payload))
                    if self.faults.duplicate and self._happens(self.faults.duplicate):
                        self.queue.append(Delivery(name, topic, payload))

    def _hearers(self, topic: str) -> tuple[str, ...]:
        if topic not in self.heard_by:
            *root, _, dst = topic.split("/")  # `+` stands for a source, nowhere else
            patterns = topic, "/".join([*root, "+", dst])
            self.heard_by[topic] = tuple(name for p in patterns for name in self.subscribers.get(p, ()))
        return self.heard_by[topic]

    def _next(self) -> Delivery:
        first = 0
        if self.faults.reorder and len(self.queue) > 1 and self._happens(self.faults.reorder):
            first = int(self.random.integers(len(self.queue)))
        return self.queue.pop(first)

    def _deliver_together(self, pool: Executor) -> bool:
        """Whether the messages that come next were for several members, and have been delivered to them."""
        batch: dict[str, Delivery] = {}
        for delivery in self.queue:
            if delivery.dst == COORDINATOR or delivery.dst in batch:
                break
            batch[delivery.dst] = delivery
        if len(batch) < 2:
            return False
        del self.queue[: len(batch)]
        answers = pool.map(self._answer, batch.values())
        for name, out in zip(batch, answers, strict=True):
            self._follow(name)
            self.publish(out)
            self.endpoints[name].idle()
        return True

    def _deliver(self, delivery: Delivery) -> None:
        e = self.endpoints[delivery.dst]
        if self.faults.crash and self._happens(self.faults.crash):
            self.crashes += 1
            if self._happens(0.5):
                e.on_message(delivery.topic, delivery.payload)  # committed, and never published
            # With the connection goes what was on its way: the resends carry everything,
            # no broker's queue is relied on.
            self.queue = [d for d in self.queue if d.dst != delivery.dst]
            topic, payload = e.will
            self.endpoints[delivery.dst] = self.rebuild(delivery.dst)
            self.publish([Publication(topic, payload, True)])
            self._connect(delivery.dst)
            return
        began = time.perf_counter()
        out = e.on_message(delivery.topic, delivery.payload)
        self._answered(delivery.topic, began)
        self._follow(delivery.dst)
        self.publish(out)
        e.idle()

    def _answer(self, delivery: Delivery) -> list[Publication]:
        began = time.perf_counter()
        out = self.endpoints[delivery.dst].on_message(delivery.topic, delivery.payload)
        self._answered(delivery.topic, began)
        return out

    def _answered(self, topic: str, began: float) -> None:
        fleet = topic.removeprefix(ROOT).split("/", 2)[1]
        self.seconds[fleet] = self.seconds.get(fleet, 0.0) + time.perf_counter() - began

    def _happens(self, probability: float) -> bool:
        return bool(self.random.random() < probability)
