"""Which brokers and topics a file may name: encrypted or on this machine, and the site's apart from the fleet's.

A name is never looked up: a file is judged by what it says, the same on every machine.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document
from hushgrid.node.schema.site import MqttSink, MqttSource, Sink, Source
from hushgrid.node.transport.connect import Address, parse_urls, split
from hushgrid.node.wire import ROOT

#: A sink publishes on its own topic, and on these below it.
BELOW = ("", "/available", "/source")


def with_servers(raw: Document) -> Document:
    """A file whose `broker: [URL, URL, URL]`, the servers of a cluster, is `URL,URL,URL`; any other as it is."""
    urls = raw.get("broker")
    if isinstance(urls, list) and urls and all(isinstance(url, str) for url in urls):
        return raw | {"broker": ",".join(urls)}
    return raw


def in_clear(urls: str) -> str | None:
    """The first of these URLs over which what is said crosses a network unencrypted; None: there is none.

    Raises InputError if one is wrong.
    """
    for url, address in zip(split(urls), parse_urls(urls), strict=True):
        if not address.tls and _machine(address.host) != "localhost":
            return url
    return None


def check_clear(place: str, urls: str, owned: bool) -> None:
    """Raises InputError if a server at `urls` is unencrypted and on another machine, and nobody owns that (`owned`).

    `place`: of the key `broker`, as an error line begins.
    """
    try:
        clear = in_clear(urls)
    except InputError as error:
        raise InputError(f"{place}{error}") from None
    if clear and not owned:
        raise InputError(
            f"{place}broker: found {clear}, unencrypted and not on this machine, expected mqtts://, or "
            "broker_in_clear: true in this file, of whoever owns that all on the way can read and change what is said"
        )


def check_brokers(fleet: str, owned: bool, source: Source | None, sink: Sink | None, path: Path) -> None:
    """Raises InputError unless a device's brokers are encrypted, local or owned, and its site's are not the fleet's,
    at `fleet`.

    A site's topic is neither one of the fleet's, on whatever broker, nor one for raw data and for set-points at once.
    """
    check_clear(f"{path}: ", fleet, owned)
    sections: list[tuple[str, MqttSource | MqttSink | None]] = [
        ("source.mqtt", source.mqtt if source else None),
        ("sink.mqtt", sink.mqtt if sink else None),
    ]
    for key, section in sections:
        if section is None:
            continue
        check_clear(f"{path}: {key}.", section.broker, owned)
        if same_broker(fleet, section.broker):
            raise InputError(
                f"{path}: {key}.broker: found {section.broker}, the fleet's own, expected a broker of the site"
            )
        if f"{section.topic}/".startswith(f"{ROOT}/"):
            raise InputError(
                f"{path}: {key}.topic: found {section.topic!r}, a fleet's, "
                f"expected a topic that does not begin with {ROOT}"
            )
    if source and source.mqtt and sink and sink.mqtt:
        raw = re.escape(source.mqtt.topic).replace(r"\{bus\}", "[^/]+").replace(r"\{quantity\}", "[^/]+")
        if any(re.fullmatch(raw, sink.mqtt.topic + below) for below in BELOW):
            raise InputError(
                f"{path}: sink.mqtt.topic: found {sink.mqtt.topic!r}, the source's, expected another one: "
                f"raw data are there"
            )


def _machine(host: str) -> str:
    """The host, in one spelling; "localhost" if it is this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.rstrip(".").lower()
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return "localhost" if address.is_loopback else str(address)


def same_broker(one: str, other: str) -> bool:
    """Whether both are one broker's: a URL of each is. On another machine each port counts as the same: a broker has
    several.

    On this one only the same port does: a broker of the fleet and one of the site may stand here side by side.
    """

    def alike(a: Address, b: Address) -> bool:
        here = _machine(a.host)
        return here == _machine(b.host) and (here != "localhost" or a.port == b.port)

    return any(alike(a, b) for a in parse_urls(one) for b in parse_urls(other))
