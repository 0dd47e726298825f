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
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Struct

from hushgrid.broker.coordinator.base import GRACE_S, Coordinator
from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation.recorders.answers import traced
from hushgrid.broker.simulation.setup import setup_of
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site, below_of, fleet_of
from hushgrid.broker.sites.two_links import Seat, TwoLinks
from hushgrid.broker.sites.upper import UpperMember
from hushgrid.kernels.algorithms.registry import plug
from hushgrid.kernels.errors import HushgridError, Stopped, failure, printable
from hushgrid.kernels.types import Document
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.runtime.event_loop import POLL_S, link_for, reach, serve, serve_all
from hushgrid.node.runtime.event_loop import REACH_S as BEGIN_S
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.schema.sections import Budget
from hushgrid.node.transport.connect import several
from hushgrid.node.transport.link import Link
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, Topics

END_S = 5.0  #: for a child to end when it is asked to
HURRY_S = 1.5  #: the same where somebody waits for it: it may still be importing, and not yet hear
SAY_S = 1.0  #: for the coordinator of an interrupted run to tell its members
REACH_S = 1.0  #: for a broker to answer when what was left on it is cleared
FEW = 16  #: nodes that have a process each, where the scenario does not say
SETTLE_S = 0.3  #: for a broker to notice that a killed child is gone, and to publish its last will
TOLD = ".told"  #: a file of a site: its devices know what came of the run
AGAIN = "--again"  #: told to a child that is started after it was killed
#: For glibc: what a large vector took goes back to the system at once, and leaves no hole in the heap.
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
RESTARTS = 10_000  #: a child that keeps being killed is somebody's test, or a machine out of memory


class Child(Struct, frozen=True, kw_only=True):
    """What a process is told of one of its nodes by its parent, in a file: nothing of it can come over the wire."""

    role: Literal["node", "site", "coordinator"]
    name: str
    client_id: str
    fleet: str
    broker: str
    below: str = ""  #: of a site: the broker of its devices
    beginning: dict[str, str] = {}  #: what the coordinator is told of where the run begins
    source: str = ""  #: where the coordinator finds the public part of the problem that no plan carries
    data: Document = {}  #: what the kind of problem makes the node from
    plan: str = ""
    seed: int | None = None
    budget: Budget | None = None
    state: str
    durable: bool = True  #: whether its ledger outlives the run
    trace: str
    plugins: tuple[str, ...] = ()  #: modules from outside whose algorithms may run
    widths: dict[str, int] = {}  #: the vectors that are taken down of it
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
    """The processes of one run. `add` all of them, then `watch` until the coordinator has ended, and sites told it."""

    def __init__(self, directory: Path, sites: Sequence[str] = ()) -> None:
        self.directory, self.sites = directory, sites
        self.commands: dict[str, list[str]] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0

    def add(self, name: str, *children: Child) -> None:
        """One process, for all of these."""
        file = self.directory / f"{name}.json"
        file.write_bytes(msgspec.json.encode(children))
        self.commands[name] = [sys.executable, "-m", "hushgrid.broker.simulation.processes", str(file)]
        self._start(name)

    def _start(self, name: str, *options: str) -> None:
        *command, file = self.commands[name]
        errors: IO[bytes] = open(self.directory / f"{name}.log", "ab")  # noqa: SIM115 (the child's, closed below)
        with errors:
            self.children[name] = subprocess.Popen(
                [*command, *options, file],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                env={**GIVEN_BACK, **os.environ},
            )

    def watch(self, interrupted: Callable[[], bool], beat: Callable[[], None]) -> int:
        """Until the coordinator has ended by itself, or a while after somebody has asked: its exit code.

        Killed children are started again, but none once it was asked: a child that is still importing dies of SIGTERM.
        """
        until, ended = inf, 0.0
        while True:
            code = self.children[COORDINATOR].poll()
            if code is not None and (code >= 0 or interrupted()):
                ended = ended or time.monotonic()
                if self._told() or interrupted() or time.monotonic() > ended + GRACE_S:
                    return code
                beat()
                time.sleep(0.01)
                continue
            if interrupted():
                if until == inf:
                    until = time.monotonic() + SAY_S
                    self.children[COORDINATOR].send_signal(signal.SIGTERM)
                if time.monotonic() > until:
                    return -signal.SIGTERM
                time.sleep(0.01)
                continue
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
                self._start(name, AGAIN)
            beat()
            time.sleep(0.01)

    def _told(self) -> bool:
        """Whether every site has told its devices what came of the run."""
        return all((self.directory / f"{site}{TOLD}").exists() for site in self.sites)

    def last_line(self, name: str) -> str:
        with suppress(OSError):
            lines = (self.directory / f"{name}.log").read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it said nothing"
        return "it said nothing"

    @property
    def killed(self) -> bool:
        """Whether any child, once all have ended, has not said goodbye to the broker."""
        return any(child.returncode < 0 for child in self.children.values())

    def end(self, seconds: float = END_S) -> None:
        """Ask every child to end, and see to it that it does."""
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                child.send_signal(signal.SIGCONT)  # one that is stopped can obey, too
        until = time.monotonic() + seconds
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


def sweep(url: str, topics: Topics, nodes: Sequence[str], kept: Sequence[str] = ()) -> None:
    """Clear what a killed child has left on a broker that is not ours: its last will, retained, and a kept session."""
    link = MqttLink(url, f"sweep-{topics.fleet}", subscriptions=[topics.state(n) for n in nodes], persistent=False)
    with suppress(Stopped):
        link.connect(REACH_S)
        until = time.monotonic() + SETTLE_S
        while (remaining := until - time.monotonic()) > 0:
            for message in link.poll(remaining):
                if message.payload:
                    link.publish(message.topic, b"", retain=True)
        link.close()
    for client_id in kept if several(url) else ():  # a connection to one server keeps none
        link = MqttLink(url, client_id)
        with suppress(Stopped):
            link.connect(REACH_S)
            link.close(forget=True)


def main(argv: list[str]) -> int:
    """A process of simulated nodes, or of the coordinator, until its parent ends it."""
    *options, file = argv
    children = msgspec.json.decode(Path(file).read_bytes(), type=list[Child])
    first = children[0]
    # A run under way waits as long for a broker that is not its own as for a node; one that begins is told at once.
    patience = max(BEGIN_S, first.silent_s) if AGAIN in options or several(first.broker) else BEGIN_S
    try:
        plug(first.plugins, "--plugin")
        match first.role:
            case "coordinator":
                return _coordinator(first, patience)
            case "site":
                return _site(first, patience, again=AGAIN in options)
        return _nodes(children, patience)
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


@cache
def _plan(blob: str) -> RunPlan:
    """Of all the nodes of a process: what is taken down of them depends on its pattern."""
    return decode_plan(blob.encode())


def _nodes(children: list[Child], patience: float) -> int:
    """`patience`: s for the broker to be there."""
    signals = Signals()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a node has four files open
    with ExitStack() as stack:
        seats = [stack.enter_context(_seat(child)) for child in children]
        if reach(
            seats[0][1], signals, patience
        ):  # tells whether the broker takes us; the others come while they are served
            serve_all(seats, lambda: False, lambda: bool(signals) or orphaned())
    return 0


@contextmanager
def _seat(child: Child) -> Iterator[tuple[Member, Link]]:
    """A node on its ledger, and its connection."""
    plan = _plan(child.plan)
    device = setup_of(plan.kind).node(child.name, child.data)
    observe = traced(plan, child.name, Path(child.trace), child.reveal, child.widths)
    ledger = Ledger(Path(child.state) / f"{child.name}.ledger", child.name, durable=child.durable)
    member = Member(child.fleet, device, ledger, child.budget, simulated=Simulated(child.seed), observe=observe)
    member.log = lambda text: print(f"{child.name}: {printable(text)}", flush=True)
    link = link_for(member, child.broker, passing_id=child.client_id)
    try:
        yield member, link
    finally:
        link.close(clear=member.retained, forget=True)
        ledger.close()


def _site(child: Child, patience: float, *, again: bool) -> int:
    """A site's two ends, each on its own connection. `again`: it was killed before; `patience`: as of the others."""
    signals, of_run = Signals(), _plan(child.plan)
    device = setup_of(of_run.kind).site_of(child.name, child.data)
    observe = traced(of_run, child.name, Path(child.trace), child.reveal, child.widths) if child.widths else None
    with ExitStack() as stack:

        def ledger(file: str, name: str) -> Ledger:
            return stack.enter_context(
                closing(Ledger(Path(child.state) / f"{file}.ledger", name, durable=child.durable))
            )

        above, below = ledger(child.name, child.name), ledger(below_of(child.name), COORDINATOR)

        def begin(plan: RunPlan, among: list[str] | None) -> SiteCoordinator:
            place = child.name, fleet_of(child.fleet, child.name)
            return SiteCoordinator(
                *place, plan, child.source, below, silent_s=child.silent_s, among=among, observe=observe
            )

        def seat(lower: SiteCoordinator) -> Seat:
            return Seat(lower, link_for(lower, child.below, passing_id=f"{COORDINATOR}-{child.client_id}"))

        site = Site(UpperMember(device, child.fleet, above), begin)
        link = link_for(site.upper, child.broker, passing_id=child.client_id)
        links = TwoLinks(site, Seat(site.upper, link), seat)
        stack.callback(links.close)
        file = Path(child.trace) / f"{child.name}{TOLD}"

        def over() -> bool:
            if site.finished and (site.upper.finished or again) and not file.exists() and above.runs.last() is not None:
                file.touch()
            return False

        if reach(link, signals, patience):
            links.serve(over, lambda: bool(signals) or orphaned(), lambda: POLL_S)
    return 0


def _coordinator(child: Child, patience: float) -> int:
    """`patience`: s for the broker to be there."""
    signals = Signals()
    ledger = Ledger(Path(child.state) / f"{COORDINATOR}.ledger", COORDINATOR, durable=child.durable)
    plan = _plan(child.plan)
    observe = traced(plan, COORDINATOR, Path(child.trace), child.reveal, child.widths)
    centre = coordinator(
        child.fleet, plan, child.source, ledger, silent_s=child.silent_s, observe=observe, **child.beginning
    )
    centre.log = lambda text: print(printable(text), flush=True)
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
    there = time.monotonic()  #: when the broker was last there

    def gone() -> bool:
        """Whether it has been away for so long that nobody waits for a run of `hushgrid run` any more."""
        nonlocal there
        there = time.monotonic() if link.connected and not link.mute else there
        return time.monotonic() - there > child.silent_s

    # Concluded, and killed before it could exit: there is no run under way, and none to begin.
    over = Path(child.outcome).exists() and ledger.runs.under_way() is None
    try:
        if reach(link, signals, patience) and not over:
            there = time.monotonic()
            serve(centre, link, lambda: centre.ending or gone(), lambda: bool(signals) or orphaned())
            if not centre.ending:
                reason = f"interrupted by {signals.asked or 'the end of its parent'}"
                link.send(
                    centre.stop(
                        f"broker {child.broker}: {link.why}, away for {child.silent_s:g} s" if gone() else reason
                    )
                )
            if not Path(child.outcome).exists():
                _tell(centre, Path(child.outcome))
            serve(centre, link, lambda: centre.finished or gone())
            centre.conclude()
    finally:
        link.close(clear=centre.retained, forget=True)
        ledger.close()
    return 0


def _tell(coordinator: Coordinator, outcome: Path) -> None:
    """How the run ended, for the parent."""
    error = coordinator.error
    ending = Outcome(error.kind, str(error)) if error else Outcome("done", coordinator.reason)
    outcome.with_suffix(".new").write_bytes(msgspec.json.encode(ending))
    outcome.with_suffix(".new").rename(outcome)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
