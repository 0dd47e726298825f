"""`hushgrid node`: one device."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the device's file")
    parser.add_argument(
        "--stopped",
        action="store_true",
        help="run nothing: mark the file of the sink as old, because the device has ended",
    )


def main(options: argparse.Namespace) -> int:
    if options.stopped:
        from hushgrid.node.config.device import load_device
        from hushgrid.node.site.standing import mark_stopped

        mark_stopped(load_device(options.config), str(options.config))
        return 0
    from hushgrid.node.runtime.signals import Signals
    from hushgrid.node.runtime.systemd import service

    signals = Signals()  # before all that takes its time: from here on no signal but TERM and INT ends the process
    with service():
        from hushgrid.node.config.device import load_device
        from hushgrid.node.runtime import daemon

        return daemon.main(load_device(options.config), str(options.config), signals)
