"""What puts a live connection out, by kind of broker: no list of revoked certificates does (measured on each).

mosquitto reads the lists again at SIGHUP and leaves whoever is connected alone; the authority then connects once as the
name, which by the rules of MQTT ends the older connection. The other kinds end it by a command of their own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from hushgrid.broker.enrolment.authority import Authority, write_key
from hushgrid.broker.enrolment.directory import FleetDirectory
from hushgrid.broker.enrolment.lists.choose import BrokerKind
from hushgrid.broker.watch.nodes import look
from hushgrid.kernels.errors import Stopped, printable
from hushgrid.node.config.watch import WATCH, WatchConfig
from hushgrid.node.schema.sections import Tls
from hushgrid.node.transport.mqtt import MqttLink
from hushgrid.node.wire import Topics

MINUTE = timedelta(minutes=1)  #: lifetime of the certificate that the authority connects with
CONNECT_S = 5.0  #: for the broker to take the authority


class Cut(NamedTuple):
    """How one kind of broker ends the connections of a name that was put out."""

    reload: str  #: what makes the broker read its lists again, or has it end the connection; run by --apply
    commands: tuple[str, ...] = ()  #: what else is to be run there
    takes_over: bool = False  #: the authority connects as the name
    clears: bool = False  #: and clears what the name has retained, while the access list still lets it

    def again(self, path: Path, name: str) -> str:
        """All that is to be done by hand."""
        last = (f"hushgrid fleet cut {path} {name}",) if self.takes_over else ()
        return "; ".join((self.reload, *last, *self.commands))


def mosquitto(name: str) -> Cut:
    """It reads both lists at SIGHUP. A box that has been cut cannot come back."""
    return Cut("systemctl reload mosquitto", takes_over=True, clears=True)


def dynsec(name: str) -> Cut:
    """The list of revoked certificates at SIGHUP; rights by command. After `disableClient` it would come back."""
    return Cut("systemctl reload mosquitto", (f"mosquitto_ctrl dynsec deleteClient {name}",), takes_over=True)


def nats(name: str) -> Cut:
    """The configuration that hushgrid fleet writes has no such user any more: a reload ends the connection."""
    return Cut("nats-server --signal reload")


def rabbitmq(name: str) -> Cut:
    """Its connections end with the user."""
    return Cut(f"rabbitmqctl delete_user {name}")


def emqx(name: str) -> Cut:
    """After a kick alone it would come back, and a ban alone may leave it connected."""
    ban = f'{{"as": "clientid", "who": "{name}"}}'
    post = f"curl -u KEY:SECRET -H 'Content-Type: application/json' -d '{ban}' http://127.0.0.1:18083/api/v5/banned"
    return Cut(f"{post} && emqx ctl clients kick {name}")


KINDS: dict[BrokerKind, Callable[[str], Cut]] = {
    "mosquitto": mosquitto,
    "dynsec": dynsec,
    "nats": nats,
    "rabbitmq": rabbitmq,
    "emqx": emqx,
}


def cut_of(directory: FleetDirectory, name: str) -> Cut:
    """How the fleet's broker ends a connection of `name`."""
    return KINDS[directory.kind](name)


def run(command: str) -> None:
    """Runs what makes a broker, or a coordinator, read again. Raises Stopped if it fails."""
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        text = f": {printable(last[0], 200)}" if last else ""
        raise Stopped(f"--apply: {printable(command, 200)}: ended with {done.returncode}{text}")


@contextmanager
def for_a_minute(directory: FleetDirectory, name: str, authority: Authority) -> Iterator[Tls]:
    """A certificate of `name` that lasts for a minute, on no list of revoked ones, and a key that is gone after use."""
    key = ec.generate_private_key(ec.SECP256R1())
    signed = authority.sign(name, key.public_key(), MINUTE)
    with TemporaryDirectory(prefix="hushgrid-") as place:
        files = [Path(place) / f"{name}.{ending}" for ending in ("crt", "key")]
        files[0].write_bytes(signed.public_bytes(Encoding.PEM))
        write_key(key, files[1])
        yield Tls(ca=str(directory.path / "ca.crt"), cert=str(files[0]), key=str(files[1]))


def take_over(directory: FleetDirectory, name: str, authority: Authority, clear: bool = False) -> None:
    """Connects once as `name`, which ends the connection that it has. `clear`: what it has retained is cleared too.

    Raises Stopped if the broker is not there, or refuses.
    """
    topics = Topics(directory.fleet)
    with for_a_minute(directory, name, authority) as tls:
        link = MqttLink(directory.broker_of(name), name, tls=tls, persistent=False)
        link.connect(CONNECT_S)
        link.close(clear=(topics.state(name), topics.status(name)) if clear else ())


def in_use(directory: FleetDirectory, authority: Authority) -> dict[str, str]:
    """The number of the certificate that each connected name says it has connected with.

    Seen as `watch`, whose own connection is back a moment later. Raises Stopped if the broker is not there.
    """
    with for_a_minute(directory, WATCH, authority) as tls:
        seen = look(WatchConfig(fleet=directory.fleet, broker=directory.broker, tls=tls))
    return {name: node.status.certificate for name, node in seen.items() if node.there and node.status}
