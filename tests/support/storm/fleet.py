"""A fleet of the simulation as real daemons with certificates, on a real broker under the fleet's access list."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, closing
from heapq import heapify, heappop, heappush
from math import inf
from pathlib import Path
from typing import NamedTuple

from hushgrid.broker.enrolment.authority import DAY
from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
from hushgrid.broker.enrolment.lists.access import Access, Rights
from hushgrid.broker.servers.process import free_port
from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.faults import Fault
from hushgrid.lab.simulate.fleet import FLEET, config_of, written
from hushgrid.lab.simulate.judge import compare, judge, lines, outcomes
from hushgrid.lab.simulate.manner import ROOM, cost, own_file
from hushgrid.lab.simulate.recorder import LARGEST, digest
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.transport.link import Message
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, Topics
from tests.support.daemons.deployed_fleet import HUSHGRID, PATIENCE, Daemon
from tests.support.scenarios.simulated_lives import made
from tests.support.storm.recorded import END, MISTAKE, PLACE, Notebook, history, read
from tests.support.transport.cut_lines import Lines
from tests.support.transport.fleet_brokers import Broker

OBSERVER = "observer"
WINDOW_S, RUNS = 30.0, 20.5  #: a device's budget, and the runs that it has room for: more than are due
TIMES: Document = {"wait_s": 1.5, "silent_s": 4.0}  #: who is killed in a run is often back in it
EVERY_S = 2.0
RESTART_S = 1.0  #: after which a service that has ended by itself is started again
FORESEEN = (4,)  #: exit codes of a service that tries again: a disk, a mark or a broker that may come back
ANSWERS = ("answer", "held")
OVER = ("mend", "thaw", "open", "melt", "restore")  #: what ends a fault


class _Directory(FleetDirectory):
    """Of a fleet in which somebody may read all."""

    def access(self) -> Access:
        access, t = super().access(), Topics(self.fleet)
        read = (t.edge("+", "+"), t.all("+"), t.state("+"), t.status("+"), t.run(), t.answer())
        return Access(access.fleet, access.networked, (*access.rights, Rights(OBSERVER, "watch", (), read, read)))


class Done(NamedTuple):
    """What a storm of one fleet has come to."""

    pattern: str
    happened: list[Fault]  #: each at the time when it happened
    rows: list[dict[str, str]]  #: lines of intervals
    answered: list[float]  #: when one was answered
    recovered_s: float  #: from the last fault until one was answered by all
    history: list[Document]
    messages: int  #: that the observer has seen


class Storm:
    """One fleet in a storm. Times are those of the clock of its history."""

    def __init__(self, place: Path, kind: str, pattern: str, stack: ExitStack, mistake: str = "") -> None:
        """mistake: one of `simulated_mistakes`, of all its daemons."""
        self.environment = {MISTAKE: mistake} if mistake else {}
        self.place, self.pattern, self.stack, self.fleet = place, pattern, stack, made(pattern)
        self.fed = pattern != "zones"  #: zones give one noisy answer, and repeat it: each run leaves the same
        place.mkdir(parents=True)
        self.directory, self.broker = self._broker(kind)
        self.names = [*self.fleet.nodes, COORDINATOR]
        self.lines = Lines(self.broker.port, self.names)
        stack.callback(self.lines.close)
        self.notebook = Notebook(place / f"storm{END}")
        self.budgets = {name: self._budget(name, 1.0) for name in self.fleet.nodes}
        for name in self.names:
            self._write(name)
        self.observer, self.seen = self._observer(), dict[str, str]()
        self.daemons: dict[str, Daemon] = {}
        self.ending: dict[str, tuple[Daemon, float]] = {}  #: that have been asked to, and the pause until they start
        self.starts, self.happened = 0, list[Fault]()
        self.aimed = list[Fault]()  #: faults meant for the rounds of the next run
        self.during: list[tuple[float, Fault]] = []  #: those of this run, and when
        self.due: list[tuple[float, int, str, str]] = []  #: (time, number, what, who)
        self.opening: threading.Thread | None = None  #: the broker starts again
        self.down = False  #: the broker

    # --- its files ---

    def _broker(self, kind: str) -> tuple[FleetDirectory, Broker]:
        scenario = self.place / "scenario.yaml"
        for file, content in self.fleet.data[COORDINATOR].items():
            (self.place / file).write_bytes(content)
        file = FleetFile(fleet=FLEET, broker=f"mqtts://127.0.0.1:{free_port()}", kind=kind)  # type: ignore[arg-type]
        directory = _Directory.make(self.place / "F", file, scenario)
        directory.write_broker()
        broker = Broker(directory)
        self.stack.callback(broker.close)
        return directory, broker

    def _budget(self, name: str, share: float) -> Document:
        before: Document = self.fleet.configs[name]["budget"]
        return before | {"epsilon": share * cost(self.fleet, name, RUNS) * ROOM, "window": f"{WINDOW_S:g}s"}

    def _write(self, name: str) -> None:
        root = self.place / name
        if not root.exists():
            root.mkdir()
            for file, content in self.fleet.data[name].items():
                (root / file).write_bytes(content)
            self.directory.authority().passing(name, root, DAY)
        config = self.fleet.configs[name] | {"broker": f"mqtts://127.0.0.1:{self.lines.port(name)}"}
        config |= {"tls": {"ca": "ca.crt", "cert": f"{name}.crt", "key": f"{name}.key"}}
        if name == COORDINATOR:
            quorum = max(len(self.fleet.nodes) - 1, 1)
            config |= TIMES | {"quorum": quorum, "run": {"every": f"{EVERY_S:g}s", "warm_start": False}}
        else:
            config |= {"budget": self.budgets[name]}
            t, budget = self.fleet.terms[name], self.budgets[name]
            facts = {"epsilon": budget["epsilon"], "delta": budget.get("delta") or 0.0, "window_s": WINDOW_S}
            self.notebook.note("owner", name, **facts, run=[t.mechanism, t.per_answer, t.answers])
        new = root / "new.yaml"
        new.write_bytes(written(config))
        new.replace(root / config_of(name))

    def _observer(self) -> MqttLink:
        tls = self.directory.authority().passing(OBSERVER, self.place, DAY)
        topics = self.directory.access().rights_of(OBSERVER).read
        link = MqttLink(self.directory.broker, OBSERVER, tls=tls, subscriptions=topics, persistent=False)
        link.connect(PATIENCE)
        self.stack.callback(link.close)
        return link

    # --- its time ---

    def run(self, faults: list[Fault], seconds: float, calm: int = 2) -> Done:
        """It begins in calm, so many intervals; then the faults happen; then it is calm until all have answered."""
        for name in self.names:
            self._start(name)
        self._until(lambda: self._answers() >= calm, "no interval is answered in calm")
        began = _now()
        for number, fault in enumerate(faults):
            heappush(self.due, (began + fault.moment, number, "fault", ""))
        for name in self.fleet.nodes if self.fed else []:
            self._feed(name)
        while _now() < began + seconds:
            self._turn(faults)
        self._still()
        still = _now()
        self._until(lambda: self._recovered(still) is not None, "no interval is answered by all", fail=False)
        recovered = self._recovered(still)
        self._end()
        events = history(self.place)
        answered = [e["t"] for e in events if e["e"] == "ends" and e["outcome"] in ANSWERS]
        seconds_s = inf if recovered is None else recovered - still
        rows = lines(self.place / COORDINATOR / "state")
        return Done(self.pattern, self.happened, rows, answered, seconds_s, events, len(self.seen))

    def _turn(self, faults: list[Fault]) -> None:
        """What comes is seen, what is due happens, and who has ended by himself is started again."""
        for message in self.observer.poll(0.01):
            if self.aimed and _is_iterate(message):
                self._busy()
            if message.payload and not message.retained:
                self.seen[digest(message.payload.replace(str(self.place).encode(), b""))] = message.topic
        if self.opening is not None and not self.opening.is_alive():
            self.opening, self.down = None, False
        self._ended()
        for moment, fault in list(self.during):
            if moment <= _now():
                self.during.remove((moment, fault))
                self._happens(fault)
        while self.due and self.due[0][0] <= _now():
            _, number, what, who = heappop(self.due)
            if what == "fault" and faults[number].call:
                self.aimed.append(faults[number])
            elif what == "fault":
                self._happens(faults[number])
            else:
                getattr(self, f"_{what}")(who)

    def _busy(self) -> None:
        """The rounds of a run are under way: what is meant for one has its time."""
        self.during += [(_now() + fault.call / 1000, fault) for fault in self.aimed]
        self.aimed.clear()

    def _ended(self) -> None:
        """Who has ended is started again."""
        for name, daemon in list(self.daemons.items()):
            if daemon.child.poll() is not None:
                self._exits(name, self.daemons.pop(name), FORESEEN)
                self._later(RESTART_S, "start", name)
        for name, (daemon, seconds) in list(self.ending.items()):
            if daemon.child.poll() is not None:
                del self.ending[name]
                self._exits(name, daemon, (0,))
                self._later(seconds, "start", name)

    def _exits(self, name: str, daemon: Daemon, foreseen: tuple[int, ...]) -> None:
        code = daemon.code()
        self.notebook.note("exit", name, code=code)
        early = code < 0 and not daemon.said  # a signal has come before it listens to any
        if code not in foreseen and not early:
            self.notebook.note("defect", name, trace=f"ended with {code}: {daemon.said[-2000:]}")

    def _until(self, happened, text: str, *, fail: bool = True) -> None:  # type: ignore[no-untyped-def]
        deadline = _now() + PATIENCE
        while not happened():
            self._turn([])
            if _now() > deadline:
                assert not fail, f"{self.pattern}: {text}"
                return

    def _later(self, seconds: float, what: str, who: str) -> None:
        heappush(self.due, (_now() + seconds, -len(self.due), what, who))

    def _answers(self) -> int:
        return sum(row["outcome"] in ANSWERS for row in lines(self.place / COORDINATOR / "state"))

    def _recovered(self, since: float) -> float | None:
        """When the first interval has ended that began after that and was answered by all."""
        events, begun = read(self.place / f"{COORDINATOR}{END}"), dict[int, float]()
        for e in events:
            if e["e"] == "begins":
                begun.setdefault(e["interval"], e["t"])
            whole = e["e"] == "ends" and e["outcome"] == "answer" and not e["absent"]
            if whole and begun.get(e["interval"], 0.0) > since:
                return float(e["t"])
        return None

    # --- what happens ---

    def _happens(self, fault: Fault) -> None:
        """Whoever it is meant for may be down already: then it does not happen."""
        names = [n for n in fault.who if n in self.daemons]
        if (fault.kind == "broker" and self.down) or (fault.kind not in ("broker", "cut") and not names):
            return
        self.happened.append(Fault(_now(), fault.kind, fault.who, fault.seconds, fault.amount, how=fault.how))
        who = fault.who[0] if len(fault.who) == 1 else ""
        facts = {"seconds": fault.seconds, "amount": fault.amount}
        self.notebook.note("fault", who, fault=fault.kind, how=fault.how, **facts)
        match fault.kind:
            case "kill":
                for name in names:
                    self._kill(name, fault.seconds)
            case "freeze":
                self.daemons[names[0]].child.send_signal(signal.SIGSTOP)
                self._later(fault.seconds, "thaw", names[0])
            case "restart":
                self._restart(names[0], fault.seconds)
            case "reload":
                self._reload(names[0], fault.amount if fault.how == "budget" else 0.0, fault.seconds)
            case "cut":
                for name in fault.who:
                    (self.lines.silence if fault.how == "silent" else self.lines.cut)(name)
                    self._later(fault.seconds, "mend", name)
            case "broker":
                self.down = True
                (self.broker.kill if fault.how == "kill" else self.broker.freeze)()
                self._later(fault.seconds, "open" if fault.how == "kill" else "melt", "")

    def _feed(self, name: str) -> None:
        """Its data are measured anew, and come out the same: a window has room again for what is about them."""
        file = own_file(self.fleet, name)
        (new := self.place / name / "new.data").write_bytes(self.fleet.data[name][file])
        new.replace(self.place / name / file)
        self._later(EVERY_S, "feed", name)

    def _start(self, name: str) -> None:
        if name in self.daemons:
            return
        self.starts += 1
        role = "coordinator" if name == COORDINATOR else "node"
        self.notebook.note("start", name)
        command = [*HUSHGRID, role, str(self.place / name / config_of(name))]
        log = self.place / name / f"{self.starts}.log"
        self.daemons[name] = Daemon(log, command, {PLACE: str(self.place / f"{name}{END}")} | self.environment)
        self.stack.callback(self.daemons[name].kill)

    def _kill(self, name: str, seconds: float) -> None:
        self.daemons.pop(name).kill()
        self.notebook.note("kill", name)
        self._later(seconds, "start", name)

    def _thaw(self, name: str) -> None:
        if name in self.daemons:
            self.daemons[name].child.send_signal(signal.SIGCONT)

    def _restart(self, name: str, seconds: float) -> None:
        self._thaw(name)
        daemon = self.daemons.pop(name)
        daemon.child.send_signal(signal.SIGTERM)
        self.ending[name] = daemon, seconds

    def _reload(self, name: str, share: float, seconds: float = 0.0) -> None:
        """share: of the budget that its owner allows for so many seconds, if it is whole now; 0: as it was."""
        if share and self.budgets[name] == self._budget(name, 1.0):
            self.budgets[name] = self._budget(name, share)
            self._write(name)
            self._later(seconds, "restore", name)
        self.daemons[name].child.send_signal(signal.SIGHUP)

    def _restore(self, name: str) -> None:
        """A budget that stays small would let its device refuse nearly every run."""
        self.budgets[name] = self._budget(name, 1.0)
        self._write(name)
        if name in self.daemons:
            self.daemons[name].child.send_signal(signal.SIGHUP)

    def _mend(self, name: str) -> None:
        self.lines.mend(name)

    def _open(self, _: str) -> None:
        self.opening = threading.Thread(target=self.broker.start)
        self.opening.start()

    def _melt(self, _: str) -> None:
        self.broker.melt()
        self.down = False

    def _still(self) -> None:
        """Nothing goes wrong any more: what is off is on again."""
        self.aimed.clear()
        self.during.clear()
        over = [one for one in self.due if one[2] in OVER]
        self.due = [one for one in self.due if one[2] in ("start", "feed")]
        heapify(self.due)
        for _, _, what, who in sorted(over):
            getattr(self, f"_{what}")(who)
        while self.down:  # RabbitMQ takes a while
            self._turn([])
        for name in self.fleet.nodes:
            self._restore(name)

    def _end(self) -> None:
        """All of them end in order; then their disks are read, and the history is made whole."""
        for name in [COORDINATOR, *self.fleet.nodes]:
            if name in self.daemons:
                self._restart(name, inf)
        self._until(lambda: not self.ending, "somebody does not end")
        owing = []
        for name in self.fleet.nodes:
            root = self.place / name
            with closing(Ledger(root / "state" / f"{name}.ledger", name, root / "mark" / f"{name}.mark")) as ledger:
                behind = ledger.refusal is not None
                self.notebook.note("ledger", name, id=ledger.id.hex()[:8], no=ledger.spends.no, behind=behind)
                owing += [name] if ledger.runs.owed() else []
                for wrong in ledger.verify():
                    self.notebook.note("defect", name, trace=wrong)
        events, state = history(self.place), self.place / COORDINATOR / "state"
        judge(events, state, owing, self.notebook.note)
        if not self.fed:
            first = next(iter(outcomes(events).values()))
            compare(events, state, first, self.notebook.note)
        known = {e["digest"] for e in events if e["e"] == "send"}
        for missing in self.seen.keys() - known:
            if "/state/" not in self.seen[missing]:  # a last will is the broker's
                self.notebook.note("defect", "", trace=f"{self.seen[missing]}: a message that nobody has noted")


def _is_iterate(message: Message) -> bool:
    if ("/edge/" not in message.topic and "/all/" not in message.topic) or not message.payload:
        return False
    return isinstance(wire.decode_envelope(message.payload, LARGEST).body, wire.Iterate)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
