"""What goes wrong, and when: a list drawn from the seed. A part of it is one too, so that a finding can be shrunk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from hushgrid.lab.simulate.machine import Machine
from hushgrid.lab.simulate.network import Broker, Weather
from hushgrid.node.privacy.marks import MarkFile, NoMark
from hushgrid.node.wire import COORDINATOR

CALLS = 80  #: system calls within which a process dies that is to be killed at one


class Fault(Struct, frozen=True):
    """One thing that goes wrong."""

    at: float  #: s
    kind: str
    who: tuple[str, ...] = ()
    seconds: float = 0.0  #: how long
    amount: float = 0.0
    call: int = 0  #: at which system call from then on; 0: while it waits
    how: str = ""


def drawn(
    chance: np.random.Generator, nodes: Sequence[str], first: float, last: float, number: int, beats: Sequence[float]
) -> list[Fault]:
    """So many faults between two times, in order. beats: when intervals begin: most faults are meant for runs."""
    everybody = [*nodes, COORDINATOR]
    names, weights = zip(*SHARES.items(), strict=True)
    kinds = chance.choice(names, size=number, p=np.array(weights) / sum(weights))
    faults = []
    for kind in kinds:
        if beats and chance.random() < 0.85:
            at = float(chance.choice(beats)) + float(chance.exponential(0.15 if chance.random() < 0.7 else 20.0)) - 0.02
        else:
            at = float(chance.uniform(first, last))
        faults.append(_one(chance, str(kind), min(max(at, first), last), everybody))
    return sorted(faults, key=lambda fault: fault.at)


def _one(chance: np.random.Generator, kind: str, at: float, everybody: Sequence[str]) -> Fault:
    one = (str(chance.choice(everybody)),)
    long = float(np.exp(chance.uniform(np.log(0.05), np.log(600.0))))
    call = int(chance.integers(1, CALLS)) if chance.random() < 0.9 else 0
    match kind:
        case "weather":
            return Fault(
                at, kind, seconds=long, amount=float(chance.uniform(0.01, 0.4)), how=str(chance.choice(WEATHERS))
            )
        case "parted":
            some = chance.choice(everybody, size=int(chance.integers(1, len(everybody) + 1)), replace=False)
            return Fault(at, kind, tuple(sorted(map(str, some))), seconds=long)
        case "broker":
            return Fault(at, kind, seconds=min(long, 120.0), how="forgets" if chance.random() < 0.5 else "keeps")
        case "kill":
            return Fault(at, kind, one, call=call)
        case "cut":
            return Fault(at, kind, one, seconds=long, call=call)
        case "disk":
            how = str(chance.choice(["full", "read-only", "failing", "slow"]))
            return Fault(at, kind, one, seconds=long, amount=float(chance.uniform(0.1, 5.0)), how=how)
        case "clock":
            size = float(np.exp(chance.uniform(np.log(1.0), np.log(1e9))))
            return Fault(at, kind, one, amount=size if chance.random() < 0.5 else -size)
        case "sleep":
            return Fault(at, kind, one, seconds=long)
        case "card":
            how = str(chance.choice(["put back", "replaced"]))
            return Fault(at, kind, one, how=how)
        case "signal":
            return Fault(at, kind, one, how=str(chance.choice(["reload", "restart", "begin"])))
    return Fault(at, "replay", amount=float(chance.random()))


#: How often each kind is drawn.
SHARES = {
    "weather": 8.0, "parted": 4.0, "broker": 3.0, "kill": 8.0, "cut": 4.0, "disk": 3.0, "clock": 2.0, "sleep": 2.0,
    "card": 1.5, "signal": 2.0, "replay": 6.0,
}  # fmt: skip
WEATHERS = ["loss", "double", "overtake", "late", "all"]


class Faults:
    """Applies faults. `counts`: how many of each kind have happened."""

    def __init__(self, broker: Broker, machines: dict[str, Machine]) -> None:
        self.broker, self.machines = broker, machines
        self.world = broker.world
        self.counts: dict[str, int] = {}
        self.heard: list[tuple[str, bytes]] = []  #: what a replay chooses from
        self._weathers: list[Fault] = []

    def plan(self, faults: Sequence[Fault]) -> None:
        """All of them, each at its time."""
        for fault in faults:
            self.world.at(fault.at, partial(self.happens, fault))

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
        for machine in self.machines.values():
            machine.disk.fault, machine.slow, machine.dies_at = "", 0.0, 0
            machine.wakes()
            machine.boot()

    # --- one method a kind ---

    def _weather(self, fault: Fault) -> None:
        self._weathers.append(fault)
        self._mixed()

        def over() -> None:
            self._weathers = [other for other in self._weathers if other is not fault]
            self._mixed()

        self.world.at(self.world.now + fault.seconds, over)

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
        self.broker.stop(forget=fault.how == "forgets")
        self.world.at(self.world.now + fault.seconds, self.broker.start)

    def _kill(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.call:
            machine.dies_at, machine.cut_for = machine.calls + fault.call, None
        else:
            machine.kill()

    def _cut(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.call and machine.process.alive:
            machine.dies_at, machine.cut_for = machine.calls + fault.call, fault.seconds
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

        self.world.at(self.world.now + fault.seconds, over)

    def _clock(self, fault: Fault) -> None:
        self.machines[fault.who[0]].jump(fault.amount)

    def _sleep(self, fault: Fault) -> None:
        self.machines[fault.who[0]].sleeps(fault.seconds)

    def _signal(self, fault: Fault) -> None:
        machine = self.machines[fault.who[0]]
        if fault.how == "restart":
            machine.signal("stop")
            self.world.at(self.world.now + 1.0, partial(self._again, machine))
        else:
            machine.signal(fault.how)

    def _again(self, machine: Machine) -> None:
        """Its service is started once it has ended: it may sleep."""
        if machine.process.frozen:
            self.world.at(self.world.now + 1.0, partial(self._again, machine))
        else:
            machine.again()

    def _card(self, fault: Fault) -> None:
        """Its card is replaced, or a copy of an earlier one is put back."""
        machine = self.machines[fault.who[0]]
        copies = machine.disk.root.with_name(f"{machine.name}.copy")
        state = machine.disk.root / "state"
        machine.cut(None)
        if fault.how == "put back" and not copies.exists():  # the copy is made now, and put back another time
            if state.exists():
                shutil.copytree(state, copies, ignore=shutil.ignore_patterns("*-shm"))
            machine.boot()
            return
        kept = self.world.chance(f"card {fault.at}").random() < 0.5
        machine.disk.emptied(keep=("mark",) if kept else ())
        if fault.how == "put back":
            shutil.copytree(copies, state)
        self.world.note("card", machine.name, how=fault.how, mark=_mark(machine))
        machine.boot()

    def _replay(self, fault: Fault) -> None:
        """Somebody repeats an old message."""
        if self.heard:
            topic, payload = self.heard[int(fault.amount * len(self.heard))]
            self.broker.publish("somebody", topic, payload, False)


def _mark(machine: Machine) -> list[object] | None:
    """What the mark file of a machine says, as a history has marks."""
    try:
        mark = MarkFile(machine.disk.root / "mark" / f"{machine.name}.mark", sync=False).read()
    except NoMark:
        return None
    return None if mark is None else [mark.ledger.hex()[:8], mark.no]
