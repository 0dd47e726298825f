"""The files of a fleet's broker, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from hushgrid.broker.enrolment.lists import dynsec, emqx, mosquitto, nats, rabbitmq
from hushgrid.broker.enrolment.lists.access import Access
from hushgrid.broker.enrolment.lists.place import Place, is_roots
from hushgrid.kernels.errors import InputError
from hushgrid.node.transport.connect import Address

BrokerKind = Literal["mosquitto", "dynsec", "nats", "rabbitmq", "emqx"]
FORMS: dict[BrokerKind, Callable[[Access, Place], dict[str, str]]] = {
    "mosquitto": mosquitto.files,
    "dynsec": dynsec.files,
    "nats": nats.files,
    "rabbitmq": rabbitmq.files,
    "emqx": emqx.files,
}
#: The file of each that holds the rights alone.
LISTS: dict[BrokerKind, str] = {
    "mosquitto": "hushgrid.acl",
    "dynsec": "dynamic-security.json",
    "nats": "nats.conf",
    "rabbitmq": "definitions.json",
    "emqx": "acl.conf",
}


#: The kinds of which several servers are made one broker here, and how many: a majority is left when one dies.
CLUSTERS: tuple[BrokerKind, ...] = ("nats", "rabbitmq")
SERVERS = (1, 3, 5)
BRIDGED: BrokerKind = "mosquitto"  #: the kind of which a site's broker is bridged to the fleet's


def check_servers(kind: BrokerKind, servers: Sequence[Address]) -> None:
    """Raises InputError unless a broker of this kind can have so many servers."""
    if len(servers) > 1 and kind not in CLUSTERS:
        raise InputError(
            f"--broker: found {len(servers)} servers of kind {kind}, expected one, or --broker-kind "
            f"{' or '.join(CLUSTERS)}"
        )
    if len(servers) not in SERVERS:
        raise InputError(f"--broker: found {len(servers)} servers, expected 3 or 5: when one dies a majority is left")


def broker_files(kind: BrokerKind, access: Access, folder: Path, servers: Sequence[Address]) -> dict[str, str]:
    """All that a broker of this kind reads in `folder` beside certificates, by name. Raises InputError if it cannot
    have so many servers.
    """
    check_servers(kind, servers)
    cluster = tuple(servers) if len(servers) > 1 else ()
    place = Place(str(folder), servers[0].port, root=is_roots(folder), plugin=_plugin(), cluster=cluster)
    return FORMS[kind](access, place)


def _plugin() -> str:
    """mosquitto's dynamic security plugin on this machine, or where Debian has it."""
    installed = sorted(str(file) for file in Path("/usr").glob("lib*/*/mosquitto_dynamic_security.so"))
    return installed[0] if installed else Place._field_defaults["plugin"]
