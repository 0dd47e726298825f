"""`hushgrid status`: a fleet without stopping a device, from what stands on its broker for the identity `watch`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hushgrid.cli.operator.place import fleet_arguments, fleet_config
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="one node, or coordinator [all of them]")
    add("--json", action="store_true", help="print JSON instead of a table")
    fleet_arguments(parser)
    add("--watch", action="store_true", help="keep the table up to date until Ctrl-C, as 'hushgrid watch' does")
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
    from hushgrid.node.config.watch import WATCH

    config = fleet_config(options)
    if options.watch:
        if options.name is not None or options.json or options.prometheus is not None:
            raise InputError("--watch: found NAME, --json or --prometheus beside it, expected the table alone")
        from hushgrid.cli.operator.live import live

        return live(config)
    seen = look(config)
    if not seen:
        raise InputError(
            f"fleet: found nobody in {config.fleet} on {config.broker}, expected a node (may {WATCH} read its topics?)"
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


def _write(path: Path, facts: Document) -> None:
    from hushgrid.broker.watch.metrics import text
    from hushgrid.kernels.errors import Stopped
    from hushgrid.node.durable import write_file

    try:
        write_file(path, text(facts).encode(), sync=False)
        path.chmod(0o644)  # node_exporter is another user
    except OSError as error:
        raise Stopped(f"{path}: {error.strerror}, expected to write the figures") from None
