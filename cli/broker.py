"""`hushgrid broker`: the embedded broker."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=1883, help="0: a free one [1883]")


def main(options: argparse.Namespace) -> int:
    from hushgrid.broker.servers.embedded import serve

    serve(options.port)
    return 0
