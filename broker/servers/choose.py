"""Which broker a run uses: one that is there already, mosquitto, or the embedded one, started and ended with us."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.servers.mosquitto import Mosquitto, find_mosquitto
from hushgrid.broker.servers.process import OwnBroker, RunningBroker
from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.transport.connect import parse_urls
from hushgrid.node.transport.mqtt import MqttLink

if TYPE_CHECKING:
    from hushgrid.node.schema.sections import Tls

CHOICES = "auto, embedded, mosquitto, mqtt://host:port or mqtts://host:port (of a cluster: URL,URL,URL)"
REACH_S = 4.0  #: for a broker that should be there


class Embedded(OwnBroker):
    """The broker in pure Python, as a process of its own."""

    def __init__(self, directory: Path) -> None:
        try:
            version = importlib.metadata.version("amqtt")
        except importlib.metadata.PackageNotFoundError as error:
            raise InputError(
                "--broker embedded: found no amqtt, expected it installed: pip install 'hushgrid[laptop]'"
            ) from error
        super().__init__(f"embedded (amqtt {version})", directory)

    def _command(self, port: int) -> list[str]:
        module = "hushgrid.broker.servers.embedded"
        return [sys.executable, "-m", module, "--port", str(port), "--parent", str(os.getpid())]


def check_choice(choice: str) -> None:
    """Raises InputError unless `choice` is one of CHOICES; whether it is there is not asked."""
    if choice.startswith(("mqtt://", "mqtts://")):
        parse_urls(choice)
    elif choice not in ("auto", "embedded", "mosquitto"):
        raise InputError(f"--broker: found {choice!r}, expected {CHOICES}")


def start(
    choice: str,
    directory: Path,
    *,
    acl: Path | None = None,
    password: Path | None = None,
    tls: Tls | None = None,
    config: Sequence[str] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> RunningBroker:
    """The broker of `choice` (auto: mosquitto if found, else embedded), accepting connections.

    `directory` takes the log and configuration of one of ours; `acl`, `password`, `tls` and `config` are for
    mosquitto (see Mosquitto).
    Raises InputError: no such choice, or not installed. Raises Stopped: a given broker is not there,
    ours does not start, or `asked` to end meanwhile.
    """
    if choice.startswith(("mqtt://", "mqtts://")):
        link = MqttLink(choice, f"hushgrid-probe-{os.getpid()}", persistent=False)
        if not link.connect(REACH_S, stopping):
            raise Stopped(f"broker {choice}: interrupted before it answered")
        link.close()
        return RunningBroker(choice, choice)
    check_choice(choice)
    if choice == "auto":
        choice = "embedded" if find_mosquitto() is None else "mosquitto"
    directory.mkdir(parents=True, exist_ok=True)
    broker = Mosquitto(directory, acl, password, tls, config) if choice == "mosquitto" else Embedded(directory)
    broker.start(stopping=stopping)
    return broker
