"""What goes wrong, and when: a list drawn from the seed. A part of it is one too, so that a finding can be shrunk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import Struct

from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.checker import FEW
from hushgrid.lab.simulate.fleet import Fleet, config_of, written
from hushgrid.lab.simulate.forger import LIES, forged
from hushgrid.lab.simulate.machine import Machine
from hushgrid.lab.simulate.manner import LIVE, own_file
from hushgrid.lab.simulate.manner import limit as limit_of
from hushgrid.lab.simulate.network import Broker, Weather
from hushgrid.node.privacy.marks import MarkFile, NoMark
from hushgrid.node.wire import COORDINATOR

RUN_S = 0.2  #: about how long a small fleet needs for a run
#: System calls at which a process dies, by name, and how many of them a run has about: any, and those after which less
#: is lost than before.
CALLS = {"": 140, "sync": 20, "rename": 3, "committed": 10}


class Fault(Struct, frozen=True):
    """One thing that goes wrong."""

    moment: float  #: s
    kind: str
    who: tuple[str, ...] = ()
    seconds: float = 0.0  #: how long
    amount: float = 0.0
    call: int = 0  #: at which system call from then on; 0: while it waits
    how: str = ""  #: of calls: which are counted; "": all


def drawn(
    chance: np.random.Generator,
    nodes: Sequence[str],
    first: float,
    last: float,
    number: int,
    beats: Sequence[float],
    without: Collection[str] = (),
) -> list[Fault]:
    """So many faults between two times, in order. beats: when intervals begin: most faults are meant for runs.

    without: kinds that are not to happen.
    """
    everybody = [*nodes, COORDINATOR]
    names, weights = zip(*((k, w) for k, w in SHARES.items() if k not in without), strict=True)
    kinds = chance.choice(names, size=number, p=np.array(weights) / sum(weights))
    faults = []
    for kind in kinds:
        if beats and chance.random() < 0.85:
            moment = (
                float(chance.choice(beats)) + float(chance.exponential(0.15 if chance.random() < 0.7 else 20.0)) - 0.02
            )
        else:
            moment = float(chance.uniform(first, last))
        faults.append(_one(chance, str(kind), min(max(moment, first), last), everybody))
    return sorted(faults, key=lambda fault: fault.moment)


def one_by_one(chance: np.random.Generator, kind: str, nodes: Sequence[str], beats: Sequence[float]) -> list[Fault]:
    """In each interval one machine fails, and nothing else does: its process is killed, or its power cut, at one system
    call after the other; or its card is replaced while a run goes on.
    """
    who = (str(chance.choice([*nodes, COORDINATOR])),)
    if kind == "card":
        late = chance.exponential(RUN_S, size=len(beats))
        return [_one_card(chance, beat + float(more), who) for beat, more in zip(beats, late, strict=True)]
    how = "sync" if kind == "cut" else str(chance.choice(list(CALLS)))  # until then power takes nothing
    most = CALLS[how]
    calls = 1 + (int(chance.integers(most)) + np.arange(len(beats))) % most
    return [
        Fault(beat - 0.005, kind, who, seconds=5.0, call=int(call), how=how)  # the first calls of an interval too
        for beat, call in zip(beats, calls, strict=True)
    ]


def gentle(last: float) -> list[Fault]:
    """All the time some messages are lost, doubled and overtaken, and nothing else."""
    amounts = {"loss": FEW, "double": 0.1, "overtake": 0.1}
    return [Fault(0.0, "weather", seconds=last, amount=amount, how=how) for how, amount in amounts.items()]


def _one(chance: np.random.Generator, kind: str, moment: float, everybody: Sequence[str]) -> Fault:
    one = (str(chance.choice(everybody)),)
    long = float(np.exp(chance.uniform(np.log(0.05), np.log(600.0))))
    how = str(chance.choice(list(CALLS)))
    call = int(chance.integers(CALLS[how])) + 1 if chance.random() < 0.9 else 0
    match kind:
        case "weather":
            return Fault(
                moment, kind, seconds=long, amount=float(chance.uniform(0.01, 0.4)), how=str(chance.choice(WEATHERS))
            )
        case "parted":
            some = chance.choice(everybody, size=int(chance.integers(1, len(everybody) + 1)), replace=False)
            return Fault(moment, kind, tuple(sorted(map(str, some))), seconds=long)
        case "broker":
            return _of_broker(chance, moment, min(long, 120.0), everybody)
        case "kill":
            return Fault(moment, kind, one, call=call, how=how)
        case "cut":
            return Fault(moment, kind, one, seconds=long, call=call, how=how)
        case "disk":
            how = str(chance.choice(["full", "read-only", "failing", "slow"]))
            return Fault(moment, kind, one, seconds=long, amount=float(chance.uniform(0.1, 5.0)), how=how)
        case "clock":
            size = float(np.exp(chance.uniform(np.log(1.0), np.log(1e9))))
            return Fault(moment, kind, one, amount=size if chance.random() < 0.5 else -size)
        case "sleep":
            return Fault(moment, kind, one, seconds=long)
        case "card":
            return _one_card(chance, moment, one)
        case "signal":
            return Fault(moment, kind, one, how=str(chance.choice(["reload", "restart", "begin"])))
        case "forge":
            return Fault(
                moment,
                kind,
                amount=float(chance.random()),
                call=int(chance.integers(1 << 30)),
                how=str(chance.choice(LIES)),
            )
        case "owner":
            one = (str(chance.choice(everybody[:-1])),)
            how = "budget" if chance.random() < 0.8 else "allow"
            return Fault(moment, kind, one, amount=float(chance.uniform(0.4, 2.5)), how=how)
        case "source":
            one = (str(chance.choice(everybody[:-1])),)
            return Fault(
                moment, kind, one, seconds=long, amount=float(chance.random()), how=str(chance.choice(TROUBLES))
            )
    return Fault(moment, "replay", amount=float(chance.random()))


def _one_card(chance: np.random.Generator, moment: float, who: tuple[str, ...]) -> Fault:
    """The card of one machine is replaced, or that of the coordinator with it."""
    if who != (COORDINATOR,) and chance.random() < 0.3:
        who = (*who, COORDINATOR)
    return Fault(moment, "card", who, how=str(chance.choice(["put back", "replaced"])))


def _of_broker(chance: np.random.Generator, moment: float, seconds: float, everybody: Sequence[str]) -> Fault:
    """What happens to a broker: it ends for a while, or goes on and has lost, doubled or brought back something."""
    how = str(chance.choice(BROKERS))
    some = chance.choice(everybody, size=int(chance.integers(1, len(everybody) + 1)), replace=False)
    who = tuple(sorted(map(str, some))) if how == "bridges" else ()
    amount = float(np.exp(chance.uniform(np.log(0.001), np.log(2.0))))
    return Fault(moment, "broker", who, seconds=seconds, amount=amount, how=how)


#: How often each kind is drawn.
SHARES = {
    "weather": 8.0, "parted": 4.0, "broker": 3.0, "kill": 8.0, "cut": 4.0, "disk": 3.0, "clock": 2.0, "sleep": 2.0,
    "card": 1.5, "signal": 2.0, "replay": 6.0, "forge": 6.0, "owner": 2.0, "source": 3.0,
}  # fmt: skip
WEATHERS = ["loss", "double", "overtake", "late", "all"]
BROKERS = ["forgets", "keeps", "elects", "sessions", "bridges", "old"]
TROUBLES = ["again", "changed", "half", "empty", "missing"]


class Faults:
    """Applies faults. `counts`: how many of each kind have happened."""

    def __init__(self, broker: Broker, machines: dict[str, Machine], fleet: Fleet) -> None:
        self.broker, self.machines = broker, machines
        self.world = broker.world
        self.counts: dict[str, int] = {}
        self.fleet = fleet
        self.received: list[tuple[str, bytes, bool]] = []  #: what a replay or a lie begins with
        #: what the coordinator knows of a device's ledgers: {id: number of the last spend}
        self.known: Callable[[str], dict[str, int]] = lambda name: {}
        self.changed_at: float | None = None  #: when a device had other data first
        self._old: dict[str, bytes] = {}  #: retained messages of a broker that was apart
        self._configs = dict(fleet.configs)  #: owners' files of now
        self._troubled: dict[str, int] = {}  #: devices whose data file is not as it should be
        self._weathers: list[Fault] = []

    def plan(self, faults: Sequence[Fault]) -> None:
        """All of them, each at its time."""
        for fault in faults:
            self.world.schedule(fault.moment, partial(self.happens, fault))

    def happens(self, fault: Fault) -> None:
        """It happens now."""
        self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
        who, more = fault.who[0] if len(fault.who) == 1 else "", {"seconds": fault.seconds, "amount": fault.amount}
        self.world.note("fault", who, fault=fault.kind, how=fault.how, **more)
        getattr(self, f"_{fault.kind}")(fault)

    def still(self) -> None:
        """Nothing goes wrong any more: what is off is on again."""
        broker = self.broker
        self._weathers = []
        broker.weather, broker.up = Weather(), True
        broker.apart.clear()
        broker.bridged.clear()
        for name in self.fleet.nodes:
            self._troubled[name] = 0
            self.feed(name)
            if self._configs[name] != self.fleet.configs[name]:
                self._owns(name, self.fleet.configs[name])
        for machine in self.machines.values():
            machine.disk.fault, machine.slow, machine.dies_in = "", 0.0, 0
            machine.wakes()
            machine.boot()
            machine.again()  # its owner sees that it is down

    # --- one method a kind ---

    def _weather(self, fault: Fault) -> None:
        self._weathers.append(fault)
        self._mixed()

        def over() -> None:
            self._weathers = [other for other in self._weathers if other is not fault]
            self._mixed()

        self.world.schedule(self.world.now + fault.seconds, over)

    def _mixed(self) -> None:
        weather = self.broker.weather = Weather()
        for fault in self._weathers:
            for key in ("loss", "double", "overtake"):
                if fault.how in (key, "all"):
                    setattr(weather, key, max(getattr(weather, key), fault.amount))
            if fault.how in ("late", "all"):
                weather.late = max(weather.late, 60.0 * fault.amount)

    def _parted(self, fault: Fault) -> None:
        self.broker.part(fault.who, fault.seconds)

    def _broker(self, fault: Fault) -> None:
        broker = self.broker
        match fault.how:
            case "bridges":
                broker.bridge(fault.who, 30.0 * fault.amount, fault.seconds)
                return
            case "old":  # a broker that was apart has the state of then, and gives it back
                for topic, payload in self._old.items():
                    broker.publish("a bridge", topic, payload, True)
                self._old = dict(broker.retained)
                return
            case "elects":
                broker.elect(fault.amount)
                self.world.schedule(self.world.now + min(fault.seconds, 5.0), broker.start)
                return
            case "sessions":
                broker.forget_sessions()
            case _:
                broker.stop(forget=fault.how == "forgets")
        self.world.schedule(self.world.now + fault.seconds, broker.start)

    def _kill(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.call:
            machine.dies_in, machine.dies_of, machine.cut_for = fault.call, fault.how, None
        else:
            machine.kill()

    def _cut(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.call and machine.process.alive:
            machine.dies_in, machine.dies_of, machine.cut_for = fault.call, fault.how, fault.seconds
        else:
            machine.cut(fault.seconds)

    def _disk(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.how == "slow":
            machine.slow = fault.amount
        else:
            machine.disk.fault = fault.how  # type: ignore[assignment]

        def over() -> None:
            machine.slow, machine.disk.fault = 0.0, ""

        self.world.schedule(self.world.now + fault.seconds, over)

    def _clock(self, fault: Fault) -> None:
        self.machines[fault.who[0]].jump(fault.amount)

    def _sleep(self, fault: Fault) -> None:
        self.machines[fault.who[0]].sleeps(fault.seconds)

    def _signal(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.how == "restart":
            machine.signal("stop")
            self.world.schedule(self.world.now + 1.0, partial(self._again, machine))
        else:
            machine.signal(fault.how)

    def _again(self, machine: Machine) -> None:
        """Its service is started once it has ended: it may sleep."""
        if machine.process.frozen:
            self.world.schedule(self.world.now + 1.0, partial(self._again, machine))
        else:
            machine.again()

    def _card(self, fault: Fault) -> None:
        """Cards are replaced, or copies of earlier ones are put back."""
        machines = [self.machines[name] for name in fault.who]
        for machine in machines:
            machine.cut(None)
        for machine in machines:
            self._other_card(machine, fault)

    def _other_card(self, machine: Machine, fault: Fault) -> None:
        """One machine, which is off, has another card, and is switched on."""
        copies = machine.disk.root.with_name(f"{machine.name}.copy")
        state = machine.disk.root / "state"
        if fault.how == "put back" and not copies.exists():  # the copy is made now, and put back another time
            if state.exists():
                shutil.copytree(state, copies, ignore=shutil.ignore_patterns("*-shm"))
            machine.boot()
            return
        copied = self.world.chance(f"card {fault.moment} {machine.name}").random() < 0.5
        machine.disk.emptied(keep=("mark",) if copied else ())
        if fault.how == "put back":
            shutil.copytree(copies, state)
        facts = {"known": self.known(machine.name), "mark": _mark(machine)}
        self.world.note("card", machine.name, how=fault.how, **facts)
        machine.boot()

    def _replay(self, fault: Fault) -> None:
        """Somebody repeats an old message."""
        if self.received:
            topic, payload, _ = self.received[int(fault.amount * len(self.received))]
            self.broker.publish("somebody", topic, payload, False)

    def _forge(self, fault: Fault) -> None:
        """Somebody says in another's name what that one never said."""
        if self.received:
            recent = int(fault.amount**4 * len(self.received))  # most lies are about what goes on
            topic, payload, retain = self.received[-1 - recent]
            lie = forged(payload, fault.how, np.random.Generator(np.random.Philox(fault.call)))
            if lie is not None:
                self.broker.publish("a liar", topic, lie, retain)

    def _owner(self, fault: Fault) -> None:
        """Its owner changes the budget, or allows nothing for a while."""
        name = fault.who[0]
        config = self._configs[name]
        if fault.how == "budget":
            epsilon = self.fleet.configs[name]["budget"]["epsilon"] * fault.amount
            config = config | {"budget": config["budget"] | {"epsilon": epsilon}}
        else:
            config = config | {"allow": config.get("allow", {}) | {"algorithms": []}}
        self._owns(name, config)

    def _owns(self, name: str, config: Document) -> None:
        self._configs[name] = config
        machine = self.machines[name]
        place = machine.disk.root / config_of(name)
        place.with_suffix(".new").write_bytes(written(config))
        place.with_suffix(".new").replace(place)
        self.owned(name, config)
        machine.signal("reload")

    def owned(self, name: str, config: Document) -> None:
        """What the owner of a device allows from now on, for the history."""
        limit, t = limit_of(config), self.fleet.terms[name]
        run = [t.mechanism, t.per_answer, t.answers]
        allowed = {"epsilon": limit.epsilon, "delta": limit.delta, "window_s": limit.window_s}
        self.world.note("owner", name, **allowed, retention=limit.retention_s, run=run)

    def _source(self, fault: Fault) -> None:
        """The file with its data is not as it should be, for a while."""
        name = fault.who[0]
        place, good = self._data(name)
        self._troubled[name] = turn = self._troubled.get(name, 0) + 1
        match fault.how:
            case "again":
                self.feed(name, True)
            case "missing":
                place.unlink(missing_ok=True)
            case "empty":
                place.write_bytes(b"")
            case "half":
                place.write_bytes(good[: int(fault.amount * len(good))])
            case _:
                place.with_suffix(".new").write_bytes(other(good, zone=own_file(self.fleet, name) != "rows.csv"))
                place.with_suffix(".new").replace(place)
        if fault.how in ("half", "changed") and self.changed_at is None:
            self.changed_at = self.world.now

        def over() -> None:
            if self._troubled[name] == turn:
                self._troubled[name] = 0
                self.feed(name)
                self.machines[name].again()

        self.world.schedule(self.world.now + fault.seconds, over)

    def feed(self, name: str, anyway: bool = False) -> None:
        """A device's data file is replaced in one piece, by the same data."""
        if anyway or not self._troubled.get(name):
            place, good = self._data(name)
            place.with_suffix(".new").write_bytes(good)
            place.with_suffix(".new").replace(place)

    def _data(self, name: str) -> tuple[Path, bytes]:
        """The file that a device reads its data from, and what is in it."""
        data, root = self.fleet.data[name], self.machines[name].disk.root
        file = LIVE if LIVE in data else own_file(self.fleet, name)
        return root / file, data[file]


def other(content: bytes, *, zone: bool) -> bytes:
    """Other data of the same form: of rows one is another's, of loads all are a tenth less."""
    lines = content.decode().splitlines()
    if not zone:
        return "\n".join([lines[1 % len(lines)], *lines[1:], ""]).encode()
    cells = [line.split(",") for line in lines[1:]]
    less = [",".join([*row[:-2], *(repr(0.9 * float(x)) for x in row[-2:])]) for row in cells]
    return "\n".join([lines[0], *less, ""]).encode()


def _mark(machine: Machine) -> list[object] | None:
    """What the mark file of a machine says, as a history has marks."""
    try:
        mark = MarkFile(machine.disk.root / "mark" / f"{machine.name}.mark", sync=False).read()
    except NoMark:
        return None
    return None if mark is None else [mark.ledger.hex()[:8], mark.no]
