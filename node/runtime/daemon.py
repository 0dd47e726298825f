"""`hushgrid node CONFIG`: one device, for as long as it is on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hushgrid.kernels.errors import Stopped, printable
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.privacy.drawn import Drawn
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.event_loop import link_for, reach, serve
from hushgrid.node.runtime.member import Member
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import notify
from hushgrid.node.site.intake import Intake


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
            intake.look()
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
