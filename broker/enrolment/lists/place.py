"""Where a broker stands: what its configuration says beside the rights."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from hushgrid.node.transport.connect import Address

BROKER = "broker"  #: the name in the broker's certificate
USER = "mosquitto"  #: that it gives root's rights up for


class Place(NamedTuple):
    """`folder` holds the broker's files, and its certificates in `certs`."""

    folder: str
    port: int
    root: bool = False  #: whether the files are root's, and mosquitto must not give root up
    plugin: str = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so"  #: of mosquitto's dynamic security
    largest: int = 5 << 20  #: bytes of a message; a plan has at most 4 MiB
    cluster: tuple[Address, ...] = ()  #: its servers, if there are several

    def named(self, number: int) -> str:
        """The name of a server of the cluster, the first is 1."""
        return f"hushgrid-{number}"


def owner(folder: Path) -> tuple[int, int] | None:
    """User and group of the broker on this machine, whose files are to be theirs; None: there is no such user, we may
    not give files away, or it cannot reach the folder.
    """
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        return None
    above = all(parent.stat().st_mode & 0o001 for parent in folder.parents)
    return (user.pw_uid, user.pw_gid) if os.geteuid() == 0 and above else None


def is_roots(folder: Path) -> bool:
    """Whether its files stay root's, so that mosquitto may not give root up: it would read no list again."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False  # they go to another machine
    return os.geteuid() == 0 and owner(folder) is None
