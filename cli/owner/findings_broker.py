"""What `hushgrid doctor` finds of the broker: its name, the connection, TLS, whether it takes this identity,
its topics.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hushgrid.cli.owner.findings import Finding, Place, bad, ok, warn
from hushgrid.kernels.errors import HushgridError, Stopped
from hushgrid.node.config.watch import WATCH, WatchConfig, load_watch
from hushgrid.node.transport.certificate import SOON_D
from hushgrid.node.transport.connect import Address, AddressInfo, Dial, parse_urls, tls_context
from hushgrid.node.transport.lookup import Lookup, numeric
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import COORDINATOR, Topics

CONNECT_S = 10.0  #: for TCP and TLS, and for the broker to take us
ANSWERS_S = 5.0  #: for the acknowledgements of what is tried


def broker(place: Place, running: bool) -> Iterator[Finding]:
    """Each step on the way to the broker; the first that fails is the last one tried, of a cluster at each server."""
    try:
        addresses = parse_urls(place.broker)
        context = tls_context(addresses[0], place.tls)
    except HushgridError as error:
        yield bad("broker", str(error), "correct it")
        return
    reached = False
    for address in addresses:
        try:
            targets = _resolved(address)
        except OSError as error:
            yield bad("name", f"{address.host}: {error.strerror or error}", "a name server, or a line in /etc/hosts", 4)
            continue
        yield ok("name", f"{address.host} is {', '.join(dict.fromkeys(str(t[4][0]) for t in targets))}")
        finding, there = _dialled(targets, address, context)
        reached |= there
        yield finding
    if not reached:
        return
    if running:
        yield ok("identity", f"{place.name} has a process that runs; its connection is left alone")
        yield from _watched(place)
    else:
        yield from _accepted(place)


def _resolved(address: Address) -> Sequence[AddressInfo]:
    if targets := numeric(address):
        return targets
    lookup = Lookup(address)
    while (answer := lookup.answer()) is None:
        time.sleep(lookup.wait)
    return answer


def _dialled(targets: Sequence[AddressInfo], address: Address, context: ssl.SSLContext | None) -> tuple[Finding, bool]:
    """TCP and TLS to the first address that answers; nothing is said on it."""
    place, why = f"{address.host}:{address.port}", "no answer"
    for target in targets:
        began = time.monotonic()
        try:
            dial = Dial(target, address.host, context)
            try:
                _complete(dial, began + CONNECT_S)
                took = f"{1e3 * (time.monotonic() - began):.0f} ms"
                if not isinstance(dial.sock, ssl.SSLSocket):
                    return ok("connection", f"{place} answers in {took}"), True
                certificate = dial.sock.getpeercert()
                assert certificate is not None
                ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
                days = int((ends - time.time()) // 86400)
                text = f"{place} answers in {took}, {dial.sock.version()}, the broker's certificate ends in {days} days"
                if days < SOON_D:
                    return warn("connection", text, "make the broker a new one: hushgrid fleet renew"), True
                return ok("connection", text), True
            finally:
                dial.close()
        except ssl.SSLCertVerificationError as error:
            do = (
                "tls.ca is another authority's, the broker's name is another, its certificate has ended, "
                "or a clock is wrong"
            )
            return bad("connection", f"{place}: its certificate is not accepted: {error.verify_message}", do), False
        except OSError as error:
            why = error.strerror or str(error)
    return bad("connection", f"{place}: {why}", "start the broker; open its port on the way there", 4), False


def _complete(dial: Dial, deadline: float) -> None:
    poller = select.poll()
    while True:
        poller.register(dial.sock, dial.want)
        if not poller.poll(max(0.0, 1e3 * (deadline - time.monotonic()))):
            raise OSError(None, "no answer")
        fd = dial.sock.fileno()
        if dial.advance():
            return
        poller.unregister(fd)


def _accepted(place: Place) -> Iterator[Finding]:
    """As the device itself, which does not run: whether the broker takes it, and each topic that it writes."""
    topics = Topics(place.fleet)
    link = MqttLink(place.broker, place.name, tls=place.tls, subscriptions=_hears(place, topics))
    try:
        link.connect(CONNECT_S)
    except Stopped as error:
        yield bad(
            "identity", str(error), "its certificate, or its password, and the broker's configuration must agree", 4
        )
        return
    try:
        for topic in _writes(place, topics):
            link.publish(topic, b"")  # means nothing to anybody
        deadline = time.monotonic() + ANSWERS_S
        while link.connected and link.backlog and time.monotonic() < deadline:
            link.poll(0.1)
        yield ok("identity", f"{place.name} is taken, by {link.protocol}")
        for topic, reason in link.refused:
            yield bad("topic", f"{topic}: {reason}", f"does the access list allow it to {place.name}?")
        if not link.refused and link.protocol == "MQTT 5":
            yield ok("topics", f"{place.name} may write all its topics")
        elif not link.refused:
            yield warn("topics", "this broker does not say what it refuses", "nothing, if runs work")
    finally:
        link.close(forget=False)


def _hears(place: Place, topics: Topics) -> list[str]:
    if place.name == COORDINATOR:
        return [topic for m in place.members for topic in (topics.state(m), topics.edge(m, COORDINATOR))]
    return [topics.all(COORDINATOR), topics.edge(COORDINATOR, place.name), topics.state(COORDINATOR)]


def _writes(place: Place, topics: Topics) -> list[str]:
    topics_of_node = [topics.state(place.name), topics.status(place.name)]
    if place.name == COORDINATOR:
        return [*topics_of_node, topics.all(COORDINATOR), *(topics.edge(COORDINATOR, m) for m in place.members)]
    return [*topics_of_node, topics.edge(place.name, COORDINATOR)]


def _watched(place: Place) -> Iterator[Finding]:
    """What the running process is seen to say, by the identity `watch`, if its certificate is on this machine."""
    from hushgrid.broker.watch.nodes import look

    try:
        tls = place.tls
        config = WatchConfig(fleet=place.fleet, broker=place.broker) if tls is None else load_watch(Path(place.path))
        seen = look(config).get(place.name)
    except HushgridError as error:
        yield warn(
            "topics", f"not seen: {error}", f"a certificate of the identity {WATCH} shows them: hushgrid fleet enrol"
        )
        return
    if seen is None or not seen.there:
        yield bad("topics", f"{place.name} is not seen on the broker", "its journal says why", 4)
        return
    for topic in seen.birth.barred if seen.birth else ():
        yield bad("topic", topic, "does the access list allow it?")
    yield ok(
        "topics",
        f"{place.name} is seen on the broker, session "
        f"{seen.birth.session if seen.birth else seen.status and seen.status.session}",
    )
