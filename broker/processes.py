"""The fleet of `hushgrid run --transport mqtt`: processes of one node or of many, watched over as systemd would.

A process killed by a signal is started again, with all its nodes, from their stores; one that ends by itself has ended
the run. They are in sessions of their own, so that Ctrl-C reaches only the parent, which ends them in order.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Struct

from hushgrid.broker.coordinator import Coordinator
from hushgrid.broker.prepare import Observer, coordinator
from hushgrid.kernels.errors import HushgridError, Stopped, failure
from hushgrid.node.assemble import Device
from hushgrid.node.config import Budget
from hushgrid.node.ledger import Ledger
from hushgrid.node.member import Member, Simulated
from hushgrid.node.mqtt import MqttLink
from hushgrid.node.plan import RunPlan, ZonesPlan, decode_plan
from hushgrid.node.serve import Signals, link_for, serve, serve_all
from hushgrid.node.wire import COORDINATOR, Topics

END_S = 5.0  #: for a child to end when it is asked to, and for a broker to answer then
FEW = 16  #: nodes that have a process each, where the scenario does not say
SETTLE_S = 0.3  #: for a broker to notice that a killed child is gone, and to publish its last will
RESTARTS = 10_000  #: a child that keeps being killed is somebody's test, or a machine out of memory


class Child(Struct, frozen=True, kw_only=True):
    """What a process is told of one of its nodes by its parent, in a file: nothing of it can come over the wire."""

    role: Literal["node", "coordinator"]
    name: str
    client_id: str
    fleet: str
    broker: str
    case: str = ""  #: of zones
    buses: list[int] = []
    solver: str = "clarabel"
    rows: str = ""  #: of data problems: a NumPy archive
    classes: int | None = None
    own: tuple[str, ...] = ()  #: of algorithms among neighbours: the vectors of a node that are taken down
    plan: str = ""
    seed: int | None = None
    budget: Budget | None = None
    state: str
    trace: str
    outcome: str = ""
    reveal: bool = False
    silent_s: float = 30.0


class Outcome(Struct, frozen=True):
    """How a run ended, as its coordinator says it: done, or the kind of its failure."""

    kind: str
    reason: str

    def error(self) -> HushgridError | None:
        return None if self.kind == "done" else failure(self.kind, self.reason)


class Fleet:
    """The processes of one run. `add` all of them, then `watch` until the coordinator has ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commands: dict[str, list[str]] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0

    def add(self, name: str, *children: Child) -> None:
        """One process, for all of these."""
        file = self.directory / f"{name}.json"
        file.write_bytes(msgspec.json.encode(children))
        self.commands[name] = [sys.executable, "-m", "hushgrid.broker.processes", str(file)]
        self._start(name)

    def _start(self, name: str) -> None:
        errors: IO[bytes] = open(self.directory / f"{name}.log", "ab")  # noqa: SIM115 (the child's, closed below)
        with errors:
            self.children[name] = subprocess.Popen(
                self.commands[name], stdin=subprocess.PIPE, stdout=errors, stderr=errors, start_new_session=True
            )

    def watch(self, interrupted: Callable[[], bool], beat: Callable[[], None]) -> int:
        """Until the coordinator has ended by itself: its exit code. Killed children are started again."""
        asked = False
        while True:
            code = self.children[COORDINATOR].poll()
            if code is not None and code >= 0:
                return code
            for name, child in list(self.children.items()):
                code = child.poll()
                if code is None:
                    continue
                if code >= 0 and name != COORDINATOR:
                    raise Stopped(f"{name} ended with exit code {code}: {self.last_line(name)}")
                self.restarts += 1
                if self.restarts > RESTARTS:
                    raise Stopped(f"{name} was killed {RESTARTS} times, expected it to live")
                if child.stdin:
                    child.stdin.close()
                self._start(name)
            if interrupted() and not asked:
                asked = True
                self.children[COORDINATOR].send_signal(signal.SIGTERM)
            beat()
            time.sleep(0.01)

    def last_line(self, name: str) -> str:
        with suppress(OSError):
            lines = (self.directory / f"{name}.log").read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it said nothing"
        return "it said nothing"

    @property
    def killed(self) -> bool:
        """Whether any child, once all have ended, has not said goodbye to the broker."""
        return any(child.returncode < 0 for child in self.children.values())

    def end(self) -> None:
        """Ask every child to end, and see to it that it does."""
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                child.send_signal(signal.SIGCONT)  # one that is stopped can obey, too
        until = time.monotonic() + END_S
        for child in self.children.values():
            try:
                child.wait(max(until - time.monotonic(), 0.05))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdin:
                child.stdin.close()


def deal(nodes: Sequence[Child], processes: int | None) -> dict[str, list[Child]]:
    """The nodes of each process, by its name, which is that of a node alone. `processes`: absent, FEW decides."""
    count = min(processes or (len(nodes) if len(nodes) <= FEW else os.cpu_count() or 1), len(nodes))
    hands = [list(nodes[k::count]) for k in range(count)]
    return {hand[0].name if len(hand) == 1 else f"{hand[0].name}-and-{len(hand) - 1}": hand for hand in hands}


def sweep(url: str, topics: Topics, nodes: Sequence[str]) -> None:
    """Clear what a killed child has left on a broker that is not ours: its last will, retained."""
    link = MqttLink(url, f"sweep-{topics.fleet}", subscriptions=[topics.state(n) for n in nodes], persistent=False)
    with suppress(Stopped):
        link.connect(END_S)
        until = time.monotonic() + SETTLE_S
        while (left := until - time.monotonic()) > 0:
            for message in link.poll(left):
                if message.payload:
                    link.publish(message.topic, b"", retain=True)
        link.close()


def main(argv: list[str]) -> int:
    """A process of simulated nodes, or of the coordinator, until its parent ends it."""
    children = msgspec.json.decode(Path(argv[0]).read_bytes(), type=list[Child])
    try:
        return _coordinator(children[0]) if children[0].role == "coordinator" else _nodes(children)
    except HushgridError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def orphaned() -> bool:
    """Whether the parent is gone: it holds our standard input open for as long as it lives."""
    os.set_blocking(0, False)
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


def _own(child: Child) -> tuple[Device, Observer]:
    """A simulated node's data, and what is taken down of it. What its kind of problem needs is imported with it."""
    place = Path(child.trace)
    if child.rows:
        from hushgrid.broker.traces import RoundTrace, WalkTrace
        from hushgrid.node.data import read_npz
        from hushgrid.node.rows import Rows

        rows = read_npz(Path(child.rows), "least-squares")  # its labels are checked with the plan
        device = Rows(child.name, rows, child.classes)
        if child.own:
            return device, RoundTrace(place, child.name, child.own, child.reveal)
        return device, WalkTrace(place, child.name, child.reveal)
    from hushgrid.broker.traces import MemberTrace
    from hushgrid.grid_cases import load
    from hushgrid.grid_cases.case import loads
    from hushgrid.node.zones import Zone, model_of

    case, buses = load(child.case), tuple(sorted(child.buses))
    zone = Zone(child.name, case, model_of(child.name, child.case, buses), loads(case, buses), child.solver)
    return zone, MemberTrace(place, zone.model, child.reveal)


def _nodes(children: list[Child]) -> int:
    signals = Signals()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a node has four files open
    with ExitStack() as stack:
        seats = [stack.enter_context(_seat(child)) for child in children]
        seats[0][1].connect(10.0)  # tells whether the broker takes us; the others come while they are served
        serve_all(seats, lambda: False, lambda: bool(signals) or orphaned())
    return 0


@contextmanager
def _seat(child: Child) -> Iterator[tuple[Member, MqttLink]]:
    """A node on its ledger, and its connection."""
    device, observe = _own(child)
    ledger = Ledger(Path(child.state) / f"{child.name}.ledger", child.name)
    member = Member(child.fleet, device, ledger, child.budget, simulated=Simulated(child.seed), observe=observe)
    member.log = lambda text: print(f"{child.name}: {text}", flush=True)
    link = link_for(member, child.broker, passing_id=child.client_id)
    try:
        yield member, link
    finally:
        link.close(clear=member.retained, forget=True)
        ledger.close()


def _centre_trace(child: Child, plan: RunPlan) -> Observer | None:
    if not isinstance(plan.problem, ZonesPlan):
        return None  # the coordinator of a baton sees no iterate
    from hushgrid.broker.traces import CoordinatorTrace

    return CoordinatorTrace(Path(child.trace))


def _coordinator(child: Child) -> int:
    signals = Signals()
    ledger = Ledger(Path(child.state) / f"{COORDINATOR}.ledger", COORDINATOR)
    plan = decode_plan(child.plan.encode())
    centre = coordinator(
        child.fleet, plan, child.case, ledger, silent_s=child.silent_s, observe=_centre_trace(child, plan)
    )
    centre.log = lambda text: print(text, flush=True)
    status = Path(child.outcome).with_suffix(".progress")
    last = 0.0

    def progress(t: int, total: int, residual: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.1 or t == total:
            last = now
            status.write_text(json.dumps([t, total, residual]))

    centre.progress = progress
    link = link_for(centre, child.broker, passing_id=child.client_id)
    # Concluded, and killed before it could exit: there is no run under way, and none to begin.
    over = Path(child.outcome).exists() and ledger.open_run() is None
    try:
        link.connect(10.0)
        if not over:
            serve(centre, link, lambda: centre.ending, lambda: bool(signals) or orphaned())
            if not centre.ending:
                for publication in centre.stop(f"interrupted by {signals.asked or 'the end of its parent'}"):
                    link.publish(*publication)
            if not Path(child.outcome).exists():
                _tell(centre, link, Path(child.outcome))
            serve(centre, link, lambda: centre.finished)
            centre.conclude()
    finally:
        link.close(clear=centre.retained, forget=True)
        ledger.close()
    return 0


def _tell(coordinator: Coordinator, link: MqttLink, outcome: Path) -> None:
    """How the run ended, for the parent."""
    error = coordinator.error
    if isinstance(error, Stopped) and not link.connected:
        error = Stopped(f"broker {link.url}: {link.why}; so {error}")
    told = Outcome(error.kind, str(error)) if error else Outcome("done", coordinator.reason)
    outcome.with_suffix(".new").write_bytes(msgspec.json.encode(told))
    outcome.with_suffix(".new").rename(outcome)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
