"""`hushgrid watch`: a fleet, its run and a device as pages on this machine, or the fleet as a table on the terminal."""

from __future__ import annotations

import argparse
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from hushgrid.cli.operator.place import fleet_arguments, fleet_config
from hushgrid.kernels.errors import InputError

LOOPBACK = ("127.0.0.1", "::1", "localhost")  #: names of this machine for a browser on it
SHORTEST = 12  #: characters of a password


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--http", metavar="HOST:PORT", help="serve pages and /metrics there, e.g. 127.0.0.1:8080; port 0: any free one")
    fleet_arguments(parser)
    add("--device", metavar="FILE", type=Path, help="also the device of this file, offline; alone: the device only")
    add("--certificate", metavar="FILE", type=Path, help="serve by TLS; required beyond loopback, with --key")
    add("--key", metavar="FILE", type=Path, help="the key of the certificate")
    add(
        "--password-file",
        metavar="FILE",
        type=Path,
        help=f"a line user:password, of {SHORTEST} characters at least; required beyond loopback",
    )
    add(
        "--name",
        metavar="HOST",
        action="append",
        default=[],
        help="a further name by which browsers ask for the pages; may be repeated",
    )


def main(options: argparse.Namespace) -> int:
    device_alone = options.device is not None and not (options.config or options.broker or options.fleet)
    if options.http is None and options.device is None:
        for name in ("certificate", "key", "password_file", "name"):
            if getattr(options, name):
                raise InputError(f"--{name.replace('_', '-')}: found without --http, expected --http HOST:PORT")
        from hushgrid.cli.operator.live import live

        return live(fleet_config(options))
    return _serve(options, device_alone)


def _serve(options: argparse.Namespace, device_alone: bool) -> int:
    from hushgrid.broker.watch.device import DeviceFile
    from hushgrid.broker.watch.listener import Listener
    from hushgrid.broker.watch.model import Model
    from hushgrid.broker.watch.server import Server, Site
    from hushgrid.cli.operator.live import ended_by_signal

    address = _address(options.http or "127.0.0.1:0")
    tls, login = _guard(options, address)
    hosts = frozenset(name.lower() for name in (*_names(address), *options.name))
    if not hosts:
        raise InputError(f"--http: found {options.http}, expected --name HOST too, by which browsers ask for it")
    site = Site(hosts=hosts, login=login)
    listener = None
    if not device_alone:
        config = fleet_config(options)
        site.model = Model(config.fleet, config.broker)
        listener = Listener(config, site.model)
    if options.device is not None:
        site.device = DeviceFile(options.device)
    server = Server(address.host, address.port, site, tls)
    ended = ended_by_signal()
    if listener is not None:
        listener.start()
    server.start()
    print(f"watch: {server.url}", flush=True)
    ended.wait()
    server.stop()
    if listener is not None:
        listener.stop()
    return 0


class Listening(NamedTuple):
    """Where the pages are served."""

    host: str
    port: int

    @property
    def number(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host as an address; None of a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def loopback(self) -> bool:
        return self.host == "localhost" or (self.number is not None and self.number.is_loopback)


def _address(text: str) -> Listening:
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"--http: found {text!r}, expected HOST:PORT, for example 127.0.0.1:8080")
    return Listening(host, int(port))


def _names(address: Listening) -> tuple[str, ...]:
    """The names that the address has by itself."""
    if address.loopback:
        return (*LOOPBACK, address.host)
    return () if address.number is not None and address.number.is_unspecified else (address.host,)


def _guard(options: argparse.Namespace, address: Listening) -> tuple[ssl.SSLContext | None, str | None]:
    """TLS and login, which whoever is not on this machine must have. Raises InputError if one is missing or wrong."""
    if not address.loopback and not (options.certificate and options.key and options.password_file):
        raise InputError(
            f"--http: found {options.http}, which others can reach, expected --certificate, --key and --password-file "
            "too, or 127.0.0.1"
        )
    if (options.certificate is None) != (options.key is None):
        raise InputError("found one of --certificate and --key, expected both")
    context = None
    if options.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(options.certificate, options.key, password="")
        except (OSError, ValueError) as error:  # ssl.SSLError is one
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{options.certificate}: {why}, expected a certificate in PEM and its key") from None
    return context, None if options.password_file is None else _login(options.password_file)


def _login(path: Path) -> str:
    try:
        line = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a line user:password") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: found no text, expected a line user:password") from None
    if mode & 0o007:
        raise InputError(f"{path}: found mode {mode:o}, which everybody may read, expected 600 or 640")
    user, _, password = line.partition(":")
    if not user or len(password) < SHORTEST or "\n" in line:
        raise InputError(f"{path}: found another form, expected a line user:password of {SHORTEST} characters at least")
    return line
