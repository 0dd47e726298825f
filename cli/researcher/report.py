"""`hushgrid report`: the report of a run, built again; or what a device's own set-points do at its own loads."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="RUN_DIR",
        type=Path,
        help="the directory of a run; or the file of a zone controller, on its device: what its set-points do at "
        "its true loads, shown here and sent to nobody",
    )
    parser.add_argument(
        "--period",
        metavar="T",
        type=int,
        help="of a run over a horizon whose map and set-points to show, from 1 [that of the highest price]",
    )


def main(options: argparse.Namespace) -> int:
    if options.path.is_file():
        print(_of_device(options.path))
        return 0
    from hushgrid.broker.report.build import build

    print(build(options.path, options.period))
    return 0


def _of_device(path: Path) -> str:
    from hushgrid.node.config.device import load_device
    from hushgrid.node.site.data_source import device_of
    from hushgrid.node.site.standing import standing_words

    config = load_device(path)
    lines = config.kind.own_report(device_of(config, str(path)), Path(config.state))
    head = f"{config.node}: its set-points at its own loads (this stays on the device)"
    return "\n  ".join([head, *lines, *standing_words(config)])
