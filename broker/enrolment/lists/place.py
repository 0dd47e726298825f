"""Where a broker stands: what its configuration says beside the rights."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """`folder` holds the broker's files, and its certificates in `certs`."""

    folder: str
    port: int
    root: bool = False  #: whether the files are root's, and mosquitto must not give root up
    plugin: str = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so"  #: of mosquitto's dynamic security
    largest: int = 5 << 20  #: bytes of a message; a plan has at most 4 MiB
