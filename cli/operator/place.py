"""Where the fleet is that a command looks at: its arguments, and what they mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from hushgrid.node.config.watch import WatchConfig

#: Where a machine that watches, or coordinates, has its file.
USUAL = (Path("/etc/hushgrid/watch.yaml"), Path("/etc/hushgrid/coordinator.yaml"))


def fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """--config, or --broker and --fleet."""
    add = parser.add_argument
    add(
        "--config",
        metavar="FILE",
        type=Path,
        help="the file of the identity watch; or a coordinator's or device's file, with watch.crt beside its "
        f"certificate [{USUAL[0]}, else {USUAL[1]}]",
    )
    add(
        "--broker",
        metavar="URL",
        help="instead of a file: mqtt://host:port, of a cluster several with commas between them; with --fleet",
    )
    add("--fleet", metavar="FLEET", help="instead of a file: the fleet's name; with --broker")


def fleet_config(options: argparse.Namespace) -> WatchConfig:
    """Where the fleet of these arguments is. Raises InputError if they do not say it."""
    from hushgrid.node.config.watch import WatchConfig, load_watch
    from hushgrid.node.schema.yaml_file import convert

    options_read = {"broker": options.broker, "fleet": options.fleet}
    if any(options_read.values()):
        if options.config is not None or not all(options_read.values()):
            raise InputError("found one of --broker, --fleet and --config, expected --broker and --fleet, or --config")
        return convert(options_read, WatchConfig, "--broker, --fleet")
    if options.config is not None:
        return load_watch(options.config)
    there = next((path for path in USUAL if path.exists()), None)
    if there is None:
        raise InputError(
            f"{' and '.join(str(path) for path in USUAL)}: not there, expected one of them, or --config FILE"
        )
    return load_watch(there)
