"""`hushgrid node CONFIG`: one device, for as long as it is on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from hushgrid.kernels.errors import InputError, Stopped, printable
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.durable import stamp
from hushgrid.node.privacy.drawn import Drawn
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Device
from hushgrid.node.runtime.event_loop import link_for, reach, serve
from hushgrid.node.runtime.member import Member
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import notify


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
            self.log(f"the data stay as they were: {error}")
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


def main(config: DeviceConfig, path: str) -> int:
    """Run a device until it is told to stop."""

    def say(text: str) -> None:
        print(f"{config.node}: {printable(text)}", file=sys.stderr, flush=True)

    signals = Signals()
    state = Path(config.state)
    ledger = Ledger(state / f"{config.node}.ledger", config.node, Path(config.mark) if config.mark else None)
    intake = Intake(config, path, ledger, say)
    if why := ledger.refusal:
        if ledger.lost_mark:  # its disk may come back: tried again, with a pause, by whoever restarts us
            ledger.close()
            raise Stopped(f"{config.node}: {why}")
        say(f"refuses every run: {why}")
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

    def look() -> bool:
        """SIGHUP: has the data file been replaced?"""
        if signals.reload:
            signals.reload = False
            intake()
        return False

    try:
        if reach(link, signals):
            say(f"ready on {config.broker}, fleet {config.fleet}, session {member.session}")
            serve(member, link, look, signals)
        notify("STOPPING=1")
        drawn.close()
    finally:
        link.close(clear=member.retained, forget=False)
        ledger.close()
    say(f"stopped by {signals.asked}")
    return 0
