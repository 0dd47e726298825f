"""`hushgrid broker`: the embedded broker."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=1883, help="port to listen on; 0: any free port [1883]")


def main(options: argparse.Namespace) -> int:
    from hushgrid.broker.servers.embedded import serve

    serve(options.port)
    return 0
