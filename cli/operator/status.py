"""`hushgrid status`: a fleet without stopping a device, from what stands on its broker for the identity `watch`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document

#: Where a machine that watches, or coordinates, has its file.
USUAL = (Path("/etc/hushgrid/watch.yaml"), Path("/etc/hushgrid/coordinator.yaml"))


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="one node, or coordinator [all of them]")
    add("--json", action="store_true", help="print JSON instead of a table")
    add(
        "--config",
        metavar="FILE",
        type=Path,
        help="the file of the identity watch; or a coordinator's or device's file, with watch.crt beside its "
        f"certificate [{USUAL[0]}, else {USUAL[1]}]",
    )
    add("--broker", metavar="URL", help="instead of a file: mqtt://host:port; with --fleet")
    add("--fleet", metavar="FLEET", help="instead of a file: the fleet's name; with --broker")
    add(
        "--prometheus",
        metavar="FILE",
        type=Path,
        help="write the figures for node_exporter's textfile collector, in one piece",
    )


def main(options: argparse.Namespace) -> int:
    from hushgrid.broker.watch.nodes import look
    from hushgrid.broker.watch.rows import rows
    from hushgrid.cli.operator.fleet_table import table

    config = _config(options)
    seen = look(config)
    if not seen:
        raise InputError(
            f"fleet: found nobody in {config.fleet} on {config.broker}, "
            f"expected a node (may {_watch()} read its topics?)"
        )
    if options.name is not None:
        if options.name not in seen:
            raise InputError(f"NAME: found {options.name}, expected one of {', '.join(seen)}")
        seen = {options.name: seen[options.name]}
    facts = rows(config.fleet, seen)
    if options.prometheus is not None:
        _write(options.prometheus, facts)
    if options.json:
        print(json.dumps(facts, indent=2))
    elif options.prometheus is None:
        print(table(facts))
    return 0


def _config(options: argparse.Namespace) -> Any:
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


def _watch() -> str:
    from hushgrid.node.config.watch import WATCH

    return WATCH


def _write(path: Path, facts: Document) -> None:
    from hushgrid.broker.watch.metrics import text
    from hushgrid.kernels.errors import Stopped
    from hushgrid.node.durable import write_file

    try:
        write_file(path, text(facts).encode(), sync=False)
        path.chmod(0o644)  # node_exporter is another user
    except OSError as error:
        raise Stopped(f"{path}: {error.strerror}, expected to write the figures") from None
