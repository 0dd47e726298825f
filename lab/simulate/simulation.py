"""A fleet of daemons in one process and one thread, under one seed: the production code, on machines that fail."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import cast

from hushgrid.broker.coordinator import daemon as coordinator_daemon
from hushgrid.kernels.errors import HushgridError
from hushgrid.lab.simulate.faults import Fault, Faults
from hushgrid.lab.simulate.fleet import FLEET, Fleet
from hushgrid.lab.simulate.judge import Outcomes, compare, judge, outcomes
from hushgrid.lab.simulate.machine import Machine, Signals
from hushgrid.lab.simulate.network import Broker, SimulatedLink
from hushgrid.lab.simulate.recorder import Recorder, recorded
from hushgrid.lab.simulate.world import World
from hushgrid.node.config.coordinator import load_coordinator
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime import daemon as device_daemon
from hushgrid.node.transport.link import MAKERS, Link, Party
from hushgrid.node.wire import COORDINATOR

QUIET = 3  #: intervals without faults at the end
NOTICED_S = (30.0, 3000.0)  #: after which an owner looks at what a device says
ACCEPT = "ledger accept"  #: what the last line of a device asks its owner for
STEPS, ROUND_STEPS = 10_000, 1000  #: the most of a machine in an interval, and for each round: thirty times the usual
KEPT = 5000  #: messages that a replay chooses from


class Simulation:
    """A world with a fleet in it. `place`: an empty folder, best one in memory."""

    def __init__(
        self,
        fleet: Fleet,
        seed: int,
        place: Path,
        faults: Sequence[Fault] = (),
        quiet: Outcomes | None = None,
        fed: bool = False,
    ) -> None:
        """quiet: what each device leaves of an interval without faults, as `outcomes` has it.

        fed: each device's data file is replaced once an interval, by the same data.
        """
        self.quiet, self.fed = quiet, fed
        self.same = 0  #: intervals that have left what a quiet one leaves, bit for bit
        self.fleet, self.world, self.place = fleet, World(seed), place
        self.broker = Broker(self.world, self._heard)
        self.machines: dict[str, Machine] = {}
        self.recorder = Recorder(FLEET, place, self.world.note, self._refuses)
        for name, files in fleet.files.items():
            root = place / name
            machine = Machine(self.world, name, root, partial(self._main, name, root))
            machine.renamed = partial(self.recorder.outcome_written, name)
            for file, content in files.items():
                (root / file).write_bytes(content)
            self.machines[name] = machine
        self.faults = Faults(self.broker, self.machines, fleet)
        self.faults.known = lambda name: self.recorder.known(name) if self.machines[COORDINATOR].process.alive else {}
        self.faults.plan(faults)
        self._owners, self._noticed = self.world.chance("owners"), set[str]()

    def run(self, intervals: int) -> list[dict[str, object]]:
        """So many intervals, the last of them without faults. Returns the history."""
        every, world = self.fleet.every, self.world
        with simulated(self.broker), recorded(self.recorder):
            for machine in self.machines.values():
                world.schedule(switched_on(world, machine.name), machine.boot)
            for name in self.fleet.nodes:
                self.faults.owned(name, self.fleet.configs[name])
                for k in range(intervals if self.fed else 0):
                    chance = world.chance(f"feed {name} {k}")
                    world.schedule((k + float(chance.uniform(0.1, 0.9))) * every, partial(self.faults.feed, name))
            world.schedule(max(intervals - QUIET, 0) * every, self.faults.still)
            for k in range(intervals):
                world.run((k + 1) * every, len(self.machines) * (STEPS + ROUND_STEPS * self.fleet.rounds))
            self._judge()
            for machine in self.machines.values():
                machine.powered = False
                machine.kill()
        return world.history

    @property
    def counts(self) -> dict[str, int]:
        """Faults so far, by kind."""
        return self.faults.counts | self.broker.counts

    @property
    def answered(self) -> int:
        """Intervals so far with an answer."""
        return sum(e["e"] == "ends" and e["outcome"] in ("answer", "held") for e in self.world.history)

    def outcomes(self) -> dict[str, Outcomes]:
        """What each run has left, by run."""
        return outcomes(self.world.history)

    # --- inside ---

    def _main(self, name: str, root: Path, signals: Signals) -> int:
        """What the command line does."""
        try:
            if name == COORDINATOR:
                path = root / "coordinator.yaml"
                return coordinator_daemon.main(load_coordinator(path), str(path), signals)
            path = root / "device.yaml"
            return device_daemon.main(load_device(path), str(path), signals)
        except HushgridError as error:
            self.world.note("error", name, line=str(error).replace(str(root.parent), ""))
            if ACCEPT in str(error):
                self._refuses(name)
            return error.exit_code
        except Exception:
            self.world.note("defect", name, trace=traceback.format_exc())
            return 1

    def _refuses(self, name: str) -> None:
        """Its owner notices that, after a while."""
        if name not in self._noticed:
            self._noticed.add(name)
            after = float(self._owners.uniform(*NOTICED_S))
            self.world.schedule(self.world.now + after, partial(self._accepts, self.machines[name]))

    def _accepts(self, machine: Machine) -> None:
        """The owner stops the device, accepts what others remember as spent, and starts it again."""
        machine.signal("stop")

        def accepted(signals: Signals) -> int:
            try:
                with closing(Ledger(self._ledger(machine), machine.name, self._mark(machine))) as ledger:
                    ledger.accept()
                    counted = {mark.ledger.hex()[:8]: mark.no for mark in (ledger.mark, *ledger.marks.accepted())}
                    facts = {"id": ledger.id.hex()[:8], "no": ledger.mark.no, "counted": counted}
                    self.world.note("accepted", machine.name, **facts, rows=self.recorder.rows(ledger))
            except HushgridError as error:  # its disk is full, perhaps: another time
                self.world.note("error", machine.name, line=str(error).replace(str(self.place), ""))
            return 0

        def then() -> None:
            if machine.process.alive or not machine.powered:  # it is busy, or off: another time
                self.world.schedule(self.world.now + 60.0, lambda: self._accepts(machine))
                return
            self._noticed.discard(machine.name)
            machine.once(accepted)
            self.world.schedule(self.world.now + 5.0, machine.again)

        self.world.schedule(self.world.now + 5.0, then)

    @staticmethod
    def _ledger(machine: Machine) -> Path:
        return machine.disk.root / "state" / f"{machine.name}.ledger"

    @staticmethod
    def _mark(machine: Machine) -> Path:
        return machine.disk.root / "mark" / f"{machine.name}.mark"

    def _heard(self, source: str, topic: str, payload: bytes, retain: bool) -> None:
        machine = self.machines.get(source)
        self.recorder.sent(source, topic, payload, retain, self._unsynced(machine) if machine else None)
        if source in self.machines and payload and any(kind in topic for kind in ("/edge/", "/all/", "/state/")):
            received = self.faults.received
            received.append((topic, payload, retain))
            if len(received) > 2 * KEPT:
                del received[:KEPT]

    def _unsynced(self, machine: Machine) -> bool:
        """Whether a power cut may take something of its ledger's log."""
        return machine.disk.owes(machine.disk.root / "state" / f"{machine.name}.ledger-log")

    def _judge(self) -> None:
        """What the history does not show by itself."""
        state, history, note = self.machines[COORDINATOR].disk.root / "state", self.world.history, self.world.note
        owing = [n for n, one in self.recorder.ledgers.items() if self.machines[n].process.alive and one.runs.owed()]
        judge(history, state, owing, note)
        for name, ledger in self.recorder.ledgers.items():
            if self.machines[name].process.alive and ledger.refusal is None:
                for line in ledger.verify():
                    note("not whole", name, text=line)
        if self.quiet is not None:
            self.same = compare(history, state, self.quiet, note, self.faults.changed_at or inf)


def switched_on(world: World, name: str) -> float:
    """When a machine is switched on, s."""
    return float(world.chance(f"start {name}").uniform(0, 2))


@contextmanager
def simulated(broker: Broker) -> Iterator[None]:
    """While it is entered, every link is one to this broker."""
    before = dict(MAKERS)

    def made(url: str, party: Party) -> Link:
        return cast(Link, SimulatedLink(broker, party))

    MAKERS.update(mqtt=made, mqtts=made)
    try:
        yield
    finally:
        MAKERS.clear()
        MAKERS.update(before)
