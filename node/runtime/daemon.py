"""`hushgrid node CONFIG`: one device, for as long as it is on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.durable import stamp
from hushgrid.node.log import Log, Warned
from hushgrid.node.privacy.drawn import Drawn
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Device
from hushgrid.node.runtime.event_loop import link_for, serve
from hushgrid.node.runtime.member import Member
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import Unit
from hushgrid.node.transport.link import Link


class Intake:
    """The device with its data as their file holds them; a file that is another one is a new data version.

    Whether it is another is judged by inode, size and time, never by what it holds: that would tell whether two data sets
    are equal. The version is raised in the ledger before the new data are used.
    """

    def __init__(self, config: DeviceConfig, path: str, ledger: Ledger, log: Callable[[str], None]) -> None:
        """Reads the data. InputError."""
        self.config, self.path, self.ledger, self.log = config, path, ledger, log
        self.file = config.file
        self.device, self._stamp = self._read()
        ledger.saw_data(self._stamp)

    def __call__(self) -> Device:
        """The device with its data of now; with those of before where the file cannot be read."""
        try:
            if self._look() != self._stamp:
                device, stamp = self._read()
                self.ledger.saw_data(stamp)
                self.device, self._stamp = device, stamp
                self.log(f"{self.file} was replaced: data version {self.ledger.data_version}")
        except InputError as error:
            self.log(Warned(f"the data stay as they were: {error}"))
        return self.device

    def _read(self) -> tuple[Device, str]:
        """Data and stamp of one and the same file, even where it is being replaced meanwhile."""
        while True:
            before = self._look()
            device = self.config.kind.device(self.config, self.path)
            if self._look() == before:
                return device, before

    def _look(self) -> str:
        try:
            return stamp(self.file)
        except OSError as error:
            raise InputError(f"{self.file}: {error.strerror}, expected this device's data") from None


class Service:
    """A device while it runs: what it says of itself, and its files read again when its owner asks."""

    def __init__(self, config: DeviceConfig, member: Member, link: Link, intake: Intake, signals: Signals) -> None:
        self.config, self.member, self.link, self.intake, self.signals = config, member, link, intake, signals
        self.unit = Unit()
        self._greeted = False

    def __call__(self) -> bool:
        """What is due besides the run, at every turn of the loop. It never ends the loop."""
        if self.signals.reload:
            self.signals.reload = False
            with self.unit.reloading():
                self.intake()
        if not self._greeted and self.link.connects:
            self._greeted = True
            at, session = self.config.broker, self.member.session
            self.member.log(f"ready on {at}, fleet {self.config.fleet}, session {session}")
        self.unit.shows(self._standing())
        return False

    def _standing(self) -> str:
        """What the device does, or waits for."""
        if not self.link.connected:
            return f"waits for the broker {self.config.broker}: {self.link.why}"
        driver = self.member.driver
        return f"in run {driver.run.hex()[:8]}" if driver else "waits for a run"


def main(config: DeviceConfig, path: str, signals: Signals) -> int:
    """Run a device until it is told to stop. It waits for the broker itself, for as long as that takes."""
    say = Log(config.node)
    state = Path(config.state)
    ledger = Ledger(state / f"{config.node}.ledger", config.node, Path(config.mark) if config.mark else None)
    intake = Intake(config, path, ledger, say)
    if why := ledger.refusal:
        if ledger.lost_mark:  # its disk may come back: tried again, with a pause, by whoever restarts us
            ledger.close()
            raise Stopped(f"{config.node}: {why}")
        say(Warned(f"refuses every run: {why}"))
    drawn = Drawn(Path(os.environ.get("RUNTIME_DIRECTORY", config.state)) / f"{config.node}.drawn", ledger)
    member = Member(
        config.fleet,
        intake.device,
        ledger,
        config.budget,
        config.allow,
        log=say,
        outcome=config.kind.outcome(intake.device, state),
        renew=intake,
        drawn=drawn,
    )
    link = link_for(member, config.broker, config.tls)
    service = Service(config, member, link, intake, signals)
    service.unit.ready()
    try:
        serve(member, link, service, signals)
        service.unit.stopping()
        drawn.close()
    finally:
        link.close(clear=member.retained, forget=False)
        ledger.close()
    say(f"stopped by {signals.asked}")
    return 0
