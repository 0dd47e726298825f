"""A fleet of which only the topics are there: births, statuses and views as devices and a coordinator publish them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from hushgrid.node import status, views, wire
from hushgrid.node.status import Interval, Status, moment
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.views import AnswerView, RunView
from hushgrid.node.wire import Birth, Capabilities, Death, Mark, Topics

PATIENCE = 60.0
OFFERED = Capabilities("0.2.0", ("recal",), ("laplace",), "zones", "ab", 4, "bounded-change 0.01", 3.0)


def run_id(no: int) -> str:
    return f"{no:032x}"


class SimulatedFleet:
    """Publishes for all of its nodes by one connection, on a broker without an access list."""

    def __init__(self, url: str, stack: ExitStack, fleet: str = "demo", devices: int = 200) -> None:
        self.url, self.fleet, self.topics = url, fleet, Topics(fleet)
        self.names = [f"d{no}" for no in range(1, devices + 1)]
        self.link = MqttLink(url, "simulated", persistent=False)
        self.link.connect(PATIENCE)
        stack.callback(self.link.close)

    def settle(self) -> None:
        """Waits until the broker has acknowledged all."""
        deadline = time.monotonic() + PATIENCE
        while self.link.backlog:
            assert time.monotonic() < deadline
            self.link.poll(0.02)

    def publish(self, topic: str, payload: bytes) -> None:
        assert self.link.publish(topic, payload, retain=True)
        if self.link.backlog > 20000:
            self.settle()

    def status(self, name: str, **more: Any) -> Status:
        now = moment(time.time())
        plain = Status(
            node=name, version="0.2.0", wire=1, session=3, since=moment(time.time() - 86400), at=now, state="idle",
            run=run_id(1), last="done", epsilon=20.0, epsilon_left=14.5, certificate_days=700,
        )  # fmt: skip
        return replace(plain, **more)

    def report(self, name: str, **more: Any) -> None:
        self.publish(self.topics.status(name), status.encode(self.status(name, **more)))

    def born(self, name: str, run: str = "") -> None:
        self.publish(self.topics.state(name), birth(run))

    def dies(self, name: str) -> None:
        self.publish(self.topics.state(name), wire.encode(Death(3)))

    def interval(self, number: int, outcome: str = "answer", cause: str = "", **more: Any) -> None:
        """The coordinator says how an interval has ended."""
        ended = Interval(number=number, outcome=outcome, cause=cause, at=moment(time.time()), **more)
        self.report("coordinator", run=run_id(number), interval=ended, epsilon=None, epsilon_left=None)

    def run(self, **more: Any) -> None:
        self.publish(self.topics.run(), views.encode(run_view(**more)))

    def answer(self, **more: Any) -> None:
        self.publish(self.topics.answer(), views.encode(answer_view(**more)))

    def all_there(self) -> None:
        """Every device is connected and idle after a run that is done."""
        for name in self.names:
            self.born(name)
            self.report(name)
        self.interval(1, counts={"answer": 1})
        self.settle()


def birth(run: str = "", version: str = "0.2.0") -> bytes:
    return wire.encode(Birth(3, bytes.fromhex(run), Mark(b"l", 0), replace(OFFERED, version=version)))


RING = tuple((f"z{i}", f"z{i % 5 + 1}") for i in range(1, 6))


def run_view(**more: Any) -> RunView:
    plain = RunView(
        run=run_id(51), at=moment(time.time()), algorithm="recal", pattern="token", state="running", round=12,
        rounds=200, activation=60, residual=0.02, holder="z3", asked=("z3",), asked_in_all=1,
        since=moment(time.time()), nodes=5, edges=RING, edges_in_all=5,
    )  # fmt: skip
    return replace(plain, **more)


def answer_view(**more: Any) -> AnswerView:
    plain = AnswerView(
        run=run_id(50), at=moment(time.time() - 200), valid_until=moment(time.time() + 700), number=50,
        outcome="answer", kind="zones", verdict="solved", rounds=121, residual=2.1e-5, served_mw=4242.0,
        unserved_mw=0.0, cost=129660.7, gap=4.2e-4, ac="solved", ac_violation=3e-7,
        tie_flows={"z1-z2": 182.4, "z2-z3": -57.1, "z3-z4": 12.8, "z4-z5": 96.0, "z5-z1": -141.2},
        prices={bus: 38.0 + 4.0 * ((bus * 7) % 11) / 11 + (3.5 if bus > 80 else 0) for bus in range(1, 119)},
    )  # fmt: skip
    return replace(plain, **more)
