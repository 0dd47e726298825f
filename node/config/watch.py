"""Whoever only watches a fleet: the file of the identity `watch`, or what a coordinator's or device's file says of its
place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Name
from hushgrid.node.config.brokers import with_servers
from hushgrid.node.config.files import near_tls, unwrapped
from hushgrid.node.schema.sections import Section, Tls
from hushgrid.node.schema.yaml_file import convert, read_yaml

WATCH = "watch"  #: an identity that may read, and write nothing


class WatchConfig(Section, frozen=True, kw_only=True):
    """`hushgrid status`: where the fleet is, and the certificate of who watches it."""

    fleet: Name  #: the fleet's name, a part of every topic
    broker: str  #: mqtt://host:port or mqtts://host:port; a list of the servers of a cluster is tried in turn
    tls: Tls | None = None  #: required of mqtts
    members: tuple[Name, ...] = ()  #: asked for by name too: RabbitMQ hands what it has retained to no wildcard


def load_watch(path: Path) -> WatchConfig:
    """Where the fleet of a file is. Raises InputError if it is wrong.

    The certificate of a device's or coordinator's file is not used: that would end the connection of the process that
    has it. `watch.crt` and `watch.key` in the same folder are.
    """
    raw = read_yaml(path)
    for key in ("node", "coordinator", WATCH):
        raw = unwrapped(raw, key, path)
    another = {"node", "scenario", "state"} & set(raw)
    if another:
        raw = {key: raw[key] for key in ("fleet", "broker", "tls", "members") if key in raw}
    config = convert(with_servers(raw), WatchConfig, str(path))
    tls = near_tls(config.tls, path)
    if another and tls is not None and tls.cert is not None:
        cert, watch_files = (Path(tls.cert).with_name(f"{WATCH}.{end}") for end in ("crt", "key"))
        if not cert.exists():
            raise InputError(
                f"{cert}: No such file or directory, expected the certificate of the identity {WATCH}: the one that "
                f"{path} names belongs to a process that runs"
            )
        tls = Tls(ca=tls.ca, cert=str(cert), key=str(watch_files))
    return msgspec.structs.replace(config, tls=tls)
