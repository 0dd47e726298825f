"""One select loop for any endpoint and its connection: no threads; also how it is asked to end, and tells systemd."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import Stopped
from hushgrid.node.endpoint import Endpoint
from hushgrid.node.mqtt import MqttLink
from hushgrid.node.wire import Publication

if TYPE_CHECKING:
    from hushgrid.node.config import Tls

POLL_S = 0.25
REACH_S = 10.0  #: for the broker to be there at the start; whoever restarts us tries again


class Signals:
    """SIGTERM and SIGINT ask the loop to end; what is under way is finished first."""

    def __init__(self) -> None:
        self.asked = ""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.asked = signal.Signals(number).name

    def __bool__(self) -> bool:
        return bool(self.asked)


def notify(message: str) -> None:
    """One line to systemd (Type=notify), from the loop that does the work; nothing where there is no systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)


def link_for(endpoint: Endpoint, url: str, tls: Tls | None = None, passing_id: str = "") -> MqttLink:
    """The endpoint's own connection: its name is the client id, its last will its death.

    `passing_id`: the client id of a simulated endpoint, which leaves no session on the broker however it ends.
    """
    return MqttLink(
        url, passing_id or endpoint.name, will=endpoint.will, subscriptions=endpoint.subscriptions, tls=tls,
        persistent=not passing_id,
    )  # fmt: skip


def reach(link: MqttLink, asked: Signals) -> bool:
    """Connect; False where somebody has asked to end meanwhile. Stopped: no broker within 10 s."""
    try:
        link.connect(REACH_S)
    except Stopped:
        if not asked:
            raise
    return link.connected and not asked


def serve(
    endpoint: Endpoint, link: MqttLink, until: Callable[[], bool], asked: Callable[[], bool] | Signals = lambda: False
) -> None:
    """Drive an endpoint from one select loop until `until()`, or until somebody asked it to end."""
    stop: Callable[[], bool] = asked.__bool__ if isinstance(asked, Signals) else asked
    lives, losses, refused = -1, 0, 0
    watchdog = float(os.environ.get("WATCHDOG_USEC", 0)) / 3e6
    fed = 0.0
    endpoint.on_tick(time.monotonic())  # it is told the time before anything happens; nothing is due yet
    while not until() and not stop():
        if link.connected and link.connects != lives:
            _publish(link, endpoint.connected())
            if lives < 0:
                notify("READY=1")
            else:
                endpoint.log("the broker is back")
            lives = link.connects
        for message in link.poll(POLL_S):
            _publish(link, endpoint.on_message(message.topic, message.payload))
        now = time.monotonic()
        _publish(link, endpoint.on_tick(now))
        endpoint.idle()
        for topic, reason in link.refused[refused:]:
            endpoint.log(f"the broker refuses {topic}: {reason}")
        if link.disconnects != losses:
            endpoint.log(f"the broker is away: {link.why}")
        refused, losses = len(link.refused), link.disconnects
        if watchdog and now - fed > watchdog:
            notify("WATCHDOG=1")
            fed = now


def _publish(link: MqttLink, publications: list[Publication]) -> None:
    for topic, payload, retain in publications:
        link.publish(topic, payload, retain)
