"""The files of a fleet's broker, by its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from hushgrid.broker.enrolment.lists import dynsec, emqx, mosquitto, nats, rabbitmq
from hushgrid.broker.enrolment.lists.access import Access
from hushgrid.broker.enrolment.lists.place import Place, is_roots

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


def broker_files(kind: BrokerKind, access: Access, folder: Path, port: int) -> dict[str, str]:
    """All that a broker of this kind reads in `folder` beside certificates, by name."""
    return FORMS[kind](access, Place(str(folder), port, root=is_roots(folder), plugin=_plugin()))


def _plugin() -> str:
    """mosquitto's dynamic security plugin on this machine, or where Debian has it."""
    installed = sorted(str(file) for file in Path("/usr").glob("lib*/*/mosquitto_dynamic_security.so"))
    return installed[0] if installed else Place._field_defaults["plugin"]
