"""`hushgrid coordinator`: the coordinator of a fleet."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the coordinator's file")
    parser.add_argument("--once", action="store_true", help="end after one run, with its exit code")
    parser.add_argument(
        "--standby", action="store_true", help="wait for the death of the coordinator, then go on in its place"
    )
    parser.add_argument(
        "--hand-over", action="store_true", help="go on in the place of the coordinator at once, which ends"
    )


def main(options: argparse.Namespace) -> int:
    from hushgrid.node.runtime.signals import Signals
    from hushgrid.node.runtime.systemd import service

    signals = Signals()  # before all that takes its time: from here on no signal but TERM and INT ends the process
    with service():
        from hushgrid.node.config.coordinator import is_site, load_coordinator, load_site

        if is_site(options.config):
            from hushgrid.broker.sites import daemon as of_site
            from hushgrid.kernels.errors import InputError

            if options.once or options.standby or options.hand_over:
                raise InputError(
                    f"{options.config}: found --once, --standby or --hand-over, expected none: it is a site's file"
                )
            return of_site.main(load_site(options.config), signals)
        from hushgrid.broker.coordinator import daemon as coordinate

        return coordinate.main(
            load_coordinator(options.config),
            str(options.config),
            signals,
            once=options.once,
            standby=options.standby,
            hand_over=options.hand_over,
        )
