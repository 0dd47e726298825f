"""Brokers of sites, each bridged to the fleet's broker: which topics cross, and who may do what on either side.

The site's broker connects to the fleet's as an identity of its own. That one may publish there what the site's devices
may say to others, and read what others may say to them; what they say among themselves stays at the site. So no site
speaks for another's devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hushgrid.broker.enrolment.lists.access import ANY, Access, Rights, matches
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Name
from hushgrid.node.schema.sections import Section
from hushgrid.node.transport.connect import Address, parse_urls


class BridgeSection(Section, frozen=True, kw_only=True):
    """A site with a broker of its own, in fleet.yaml; its name is an identity."""

    broker: str  #: mqtts://host:port, as the site's devices reach it
    members: list[Name]


def check_bridges(bridges: Mapping[str, BridgeSection], nodes: Collection[str], taken: Collection[str]) -> None:
    """Raises InputError unless each has a name of its own and devices that no other has. `taken`: names that are."""
    site_of: dict[str, str] = {}
    for name, bridge in bridges.items():
        if name in nodes or name in taken:
            raise InputError(f"--bridge: found the name {name}, expected one that nobody else has")
        if len(urls := parse_urls(bridge.broker)) != 1 or not urls[0].tls:
            raise InputError(f"--bridge: {name}: found {bridge.broker}, expected mqtts://host:port")
        if not bridge.members:
            raise InputError(f"--bridge: {name}: found no devices, expected some")
        for member in bridge.members:
            if member not in nodes:
                raise InputError(f"--bridge: {name}: found {member}, expected some of {', '.join(nodes)}")
            if member in site_of:
                raise InputError(f"--bridge: found {member} in {site_of[member]} and in {name}, expected it in one")
            site_of[member] = name


def upper(access: Access, bridges: Mapping[str, BridgeSection], without: Collection[str] = ()) -> Access:
    """The rights at the fleet's broker: a site's devices connect elsewhere, and its bridge stands for them.

    `without`: sites that were put out.
    """
    below = {member for bridge in bridges.values() for member in bridge.members}
    here = tuple(rights for rights in access.rights if rights.name not in below)
    across = (crossing(access, name, one.members) for name, one in bridges.items() if name not in without)
    return replace(access, rights=(*here, *across))


def lower(access: Access, members: Collection[str]) -> Access:
    """The rights at a site's broker: its devices alone."""
    return replace(access, rights=tuple(rights for rights in access.rights if rights.name in members))


def crossing(access: Access, name: str, members: Collection[str]) -> Rights:
    """What the bridge `name` of these devices publishes and reads at the fleet's broker."""
    inside = lower(access, members).rights
    outside = [rights for rights in access.rights if rights.name not in members]
    read = _common((rights.publish for rights in inside), [rights.read for rights in outside])
    written = _common((rights.read for rights in inside), [rights.publish for rights in outside])
    return Rights(name, "bridge", publish=read, read=written, subscribe=written)


def _common(topics: Iterable[Sequence[str]], patterns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Those of `topics` that are within a pattern."""
    exact = {pattern for some in patterns for pattern in some if ANY not in pattern}
    wide = {pattern for some in patterns for pattern in some if ANY in pattern}
    every = dict.fromkeys(topic for some in topics for topic in some)
    return tuple(t for t in every if t in exact or any(matches(pattern, t) for pattern in wide))


def connection(rights: Rights, above: Address, folder: Path) -> str:
    """What mosquitto.conf of the site, in `folder`, has for its bridge."""
    certs = f"{folder}/certs"
    topics = "".join(
        [f"topic {topic} out 1\n" for topic in rights.publish] + [f"topic {topic} in 1\n" for topic in rights.read]
    )
    return f"""
# To the fleet's broker, as {rights.name}, which may say and hear there what crosses and nothing else. Nothing is kept
# while it is away: nodes resend, and what is retained is said again when it is back.
connection {rights.name}
address {above.host}:{above.port}
remote_clientid {rights.name}
cleansession true
notifications false
keepalive_interval 10
restart_timeout 1 8
bridge_attempt_unsubscribe false
bridge_cafile {certs}/ca.crt
bridge_certfile {certs}/broker.crt
bridge_keyfile {certs}/broker.key
bridge_tls_version tlsv1.2
{topics}"""
