"""`hushgrid node CONFIG`: one device, for as long as it is on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushgrid.node.assemble import Device
from hushgrid.node.config import DeviceConfig
from hushgrid.node.ledger import Ledger
from hushgrid.node.member import Member
from hushgrid.node.serve import Signals, link_for, notify, reach, serve


def device_of(config: DeviceConfig, path: str) -> tuple[Device, Callable[[Any], None]]:
    """The device's own data, and what it keeps of the machine's state when a run is done. InputError.

    What a kind of problem needs is imported with it: a device with rows never loads a case, a solver or scipy.
    """
    state = Path(config.state)
    if isinstance(config.data, str):
        from hushgrid.node.data import read_npz
        from hushgrid.node.rows import Rows, keep_model

        rows = Rows(config.node, read_npz(Path(config.data), "least-squares"), config.classes)
        return rows, lambda s: keep_model(s, state / f"{config.node}.model.npz")
    from hushgrid.node.zone_files import keep_setpoints, zone_of

    zone = zone_of(config.node, config.data, path)
    return zone, lambda s: keep_setpoints(zone, s.mean, state / f"{config.node}.setpoints.csv")


def main(config: DeviceConfig, path: str) -> int:
    """Run a device until it is told to stop."""

    def say(text: str) -> None:
        print(f"{config.node}: {text}", file=sys.stderr, flush=True)

    signals = Signals()
    device, outcome = device_of(config, path)
    state = Path(config.state)
    ledger = Ledger(state / f"{config.node}.ledger", config.node, Path(config.mark) if config.mark else None)
    if told := ledger.told():
        say(
            f"ledger behind its mark (spend {ledger.no}, the mark says {told.no}): refusing until 'hushgrid ledger accept'"
        )
    member = Member(config.fleet, device, ledger, config.budget, config.allow, log=say)
    member.outcome = outcome
    link = link_for(member, config.broker, config.tls)
    try:
        if reach(link, signals):
            say(f"ready on {config.broker}, fleet {config.fleet}, session {member.session}")
            serve(member, link, lambda: False, signals)
        notify("STOPPING=1")
    finally:
        link.close(clear=member.retained, forget=False)
        ledger.close()
    say(f"stopped by {signals.asked}")
    return 0
