"""`hushgrid node`: one device."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the device's file")


def main(options: argparse.Namespace) -> int:
    from hushgrid.node.runtime.signals import Signals
    from hushgrid.node.runtime.systemd import service

    signals = Signals()  # before all that takes its time: from here on no signal but TERM and INT ends the process
    with service():
        from hushgrid.node.config.device import load_device
        from hushgrid.node.runtime import daemon

        return daemon.main(load_device(options.config), str(options.config), signals)
