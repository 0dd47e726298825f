"""`hushgrid bench ring`: a round of sixteen neighbours on a ring, beside the bare exchange of the same messages."""

from __future__ import annotations

import os
import secrets
import select
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho

from hushgrid.broker.coordinator.neighbours import NeighboursCoordinator
from hushgrid.broker.servers.choose import start
from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.errors import Stopped
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S, bare_client, commits, processes
from hushgrid.lab.benchmarks.common.measure import Row, Table, row
from hushgrid.lab.benchmarks.common.served import brokers_here, coordinate
from hushgrid.lab.benchmarks.hop import FEATURES, file_system, small
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.runtime.event_loop import link_for, serve_all
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR

WARM = 20  #: first rounds, not counted


def scenario(rounds: int, nodes: int, guarded: bool) -> Scenario:
    """DGD, the lightest of them: one message a round and node."""
    return small(nodes, guarded, name="dgd", step_size=1.0, rounds=rounds)


def ring(rounds: int = 300, nodes: int = 16, hands: int = 4) -> Table:
    """Milliseconds a round of `nodes` members in `hands` processes, and of bare paho clients in as many."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hushgrid-bench-") as scratch:
        for broker in brokers_here():
            with start(broker, Path(scratch, broker)) as running:
                runs: list[tuple[bool, float, float, list[float]]] = []
                for guarded in (True, False):
                    place = Path(scratch, f"{broker}-{guarded}")
                    runs.append((guarded, *_rounds(running.url, place, scenario(rounds, nodes, guarded), hands)))
                size = round(runs[0][2] / runs[0][1])
                place = Path(scratch, f"{broker}-bare")
                place.mkdir()
                name = running.name
                rival = row(f"bare paho, {name}", "ms", _bare_rounds(running.url, place, size, rounds, nodes, hands))
            for guarded, _, _, taken in runs:
                rows.append(row(f"round, {'guarded' if guarded else 'variant none'}, {name}", "ms", taken, rival=rival))
            rows.append(rival)
        _, messages, travelled, _ = runs[0]
        vectors = Row(what=f"bytes a round, {nodes} bare vectors", unit="bytes", value=8.0 * FEATURES * nodes)
        rows += [
            Row(what="messages a round", unit="", value=messages, rival="bare paho", ratio=messages / nodes),
            Row(
                what="bytes a round", unit="bytes", value=travelled, rival=vectors.what, ratio=travelled / vectors.value
            ),
            vectors,
            row("one bare SQLite commit (WAL, synchronous FULL)", "ms", commits(Path(scratch), rounds)),
        ]
        summary = (
            f"DGD, {nodes} members on a ring in {hands} processes, each step and spend in its ledger before it is said "
            f"({nodes} commits a round on {file_system(scratch)}); the reports to the coordinator are not counted"
        )
    return Table(name="ring", summary=summary, rows=rows)


def _rounds(url: str, place: Path, scenario: Scenario, hands: int) -> tuple[float, float, list[float]]:
    """Messages and bytes of a round, and the milliseconds from one round's last commit to the next one's."""
    fleet, setup = f"bench-{secrets.token_hex(3)}", prepare(scenario)
    nodes, rounds = setup.plan.nodes, scenario.algorithm.rounds
    members = [(_members, (url, fleet, nodes[k::hands], scenario, str(place))) for k in range(hands)]
    with closing(Ledger(place / "coordinator.ledger", COORDINATOR)) as ledger, processes(members, farewell_s=5.0):
        coordinate(NeighboursCoordinator(fleet, setup.plan, "", ledger, silent_s=PATIENCE_S), url)
    steps = np.array([np.fromfile(place / f"{name}.steps").reshape(rounds, 3) for name in nodes])
    messages, size = steps[:, -1, 1:].sum(axis=0) / rounds
    return float(messages), float(size), _between(steps[:, :, 0])


def _between(moments: np.ndarray) -> list[float]:
    """Milliseconds between the ends of successive rounds; `at` (nodes, rounds) in seconds of the machine's one
    clock.
    """
    return list(1e3 * np.diff(moments.max(axis=0))[WARM:])


def _members(url: str, fleet: str, names: list[str], scenario: Scenario, place: str) -> None:
    """Members in one process, and when each made which step, with its messages and bytes so far."""
    setup = prepare(scenario)
    with ExitStack() as stack:
        seats = [stack.enter_context(closing(_Seat(url, fleet, name, setup, place))) for name in names]
        pairs = [(seat.member, seat.link) for seat in seats]
        serve_all(pairs, lambda: all(member.finished for member, _ in pairs) or os.getppid() == 1)


class _Seat:
    def __init__(self, url: str, fleet: str, name: str, setup: Setup, place: str) -> None:
        self.steps: dict[int, tuple[float, int, int]] = {}
        self.path = Path(place) / f"{name}.steps"
        self.ledger = Ledger(Path(place) / f"{name}.ledger", name)
        self.member = Member(fleet, setup.device(name), self.ledger, None, simulated=Simulated(), observe=self.observe)
        self.link = link_for(self.member, url, None)

    def observe(self, driver: Driver, fresh: bool) -> None:
        self.steps.setdefault(driver.machine.steps, (time.perf_counter(), *driver.sent))  # type: ignore[attr-defined]

    def close(self) -> None:
        np.array([seen for t, seen in self.steps.items() if t]).tofile(self.path)
        self.link.close(clear=self.member.retained, forget=True)
        self.ledger.close()


# --- the same messages and nothing else ---


def _bare_rounds(url: str, place: Path, size: int, rounds: int, nodes: int, hands: int) -> list[float]:
    """QoS 1, TCP_NODELAY, one connection a node and one select loop a process; nothing is computed, nothing kept."""
    prefix, there = f"bare-{secrets.token_hex(3)}", set()
    client = bare_client(url, f"{prefix}-go", f"{prefix}/there/+", lambda c, data, m: there.add(m.topic))
    until = time.monotonic() + PATIENCE_S

    def wait(kind: str) -> None:
        while len(there) < nodes:
            client.loop(0.1)
            if time.monotonic() > until + (PATIENCE_S if kind == "done" else 0):
                raise Stopped(f"bench ring: {nodes - len(there)} bare nodes not {kind}")
        there.clear()

    each = [(_bare, (url, prefix, list(range(nodes))[k::hands], nodes, size, rounds, str(place))) for k in range(hands)]
    with processes(each, farewell_s=5.0):
        wait("there")
        client.publish(f"{prefix}/go", b"", qos=1)
        wait("done")
        client.disconnect()
    return _between(np.array([np.fromfile(place / f"{i}.bare") for i in range(nodes)]))


def _bare(url: str, prefix: str, numbers: list[int], nodes: int, size: int, rounds: int, place: str) -> None:
    nodes_here = [_Bare(url, prefix, i, nodes, size, rounds) for i in numbers]
    while any(len(node.moments) < rounds or node.client.want_write() for node in nodes_here) and os.getppid() != 1:
        sockets = {node.client.socket(): node.client for node in nodes_here}
        full = [s for s, client in sockets.items() if client.want_write()]
        ready, free, _ = select.select([*sockets], full, [], 1.0)
        for s in ready:
            sockets[s].loop_read()
        for s in free:
            sockets[s].loop_write()
    for node in nodes_here:
        np.array(node.moments).tofile(Path(place) / f"{node.i}.bare")
        notice = node.say("there")
        while not notice.is_published() and os.getppid() != 1:
            node.client.loop(0.1)


class _Bare:
    """A node that has message t of both neighbours says message t + 1."""

    def __init__(self, url: str, prefix: str, i: int, nodes: int, size: int, rounds: int) -> None:
        self.prefix, self.i, self.rounds, self.rest = prefix, i, rounds, os.urandom(size - 4)
        self.t, self.moments = 0, list[float]()
        self.far = {f"{prefix}/{j}": 0 for j in ((i - 1) % nodes, (i + 1) % nodes)}  #: the last message of each
        topics = [(topic, 1) for topic in (f"{prefix}/go", *self.far)]
        self.client = bare_client(url, f"{prefix}-{i}", topics, self.hear)
        self.say("there")

    def say(self, kind: str) -> paho.MQTTMessageInfo:
        topic = f"{self.prefix}/there/{self.i}" if kind == "there" else f"{self.prefix}/{self.i}"
        return self.client.publish(topic, self.t.to_bytes(4, "little") + self.rest, qos=1)

    def hear(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        if message.topic in self.far:
            self.far[message.topic] = int.from_bytes(message.payload[:4], "little")
        elif not self.t:
            self.t = 1
            self.say("next")
        while 0 < self.t <= min(self.far.values()) and len(self.moments) < self.rounds:
            self.moments.append(time.perf_counter())
            self.t += 1
            if len(self.moments) < self.rounds:
                self.say("next")
