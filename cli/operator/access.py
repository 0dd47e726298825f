"""`hushgrid fleet acl`, `verify`: who may publish and read what, as the broker reads it, and tried at the broker."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.cli.operator.enrolment import KINDS
from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from hushgrid.broker.enrolment.directory import Broker, FleetDirectory
    from hushgrid.broker.enrolment.verify.judge import Verdict

TEXTS = {
    "acl": "The access lists, from the scenario's graph and who is put out, as a kind of broker reads them.",
    "verify": "Try the access lists at the broker, as each identity: 0 all is right, 3 something forbidden arrived, "
    "1 something needed lacks. For a broker that carries nobody: each name's connection is ended.",
}


def arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the commands."""
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="the fleet's directory")
    add("--bridge", metavar="NAME", help="at the broker of this site [at the fleet's]")
    if name == "acl":
        add("--for", dest="kind", choices=KINDS, help="the kind of broker [as fleet.yaml says]")
        add("--write", action="store_true", help="all that such a broker reads, to DIR/broker, and from now on")
        return
    add("--url", metavar="URL", help="where the broker is, as seen from here [as fleet.yaml says]")
    add("--only", metavar="NAME", nargs="+", default=[], help="try as these identities [all]")
    add("--interrupt", action="store_true", help="although somebody is connected, whose connection that ends")
    add("--ca-key", metavar="FILE", type=Path, help="the authority's key [DIR/ca.key]")


def main(options: argparse.Namespace) -> int:
    """Runs one of the commands."""
    from hushgrid.broker.enrolment.directory import FleetDirectory

    directory = FleetDirectory(options.directory)
    return _acl(directory, options) if options.what == "acl" else _verify(directory, options)


def _acl(directory: FleetDirectory, options: argparse.Namespace) -> int:
    from hushgrid.broker.enrolment.lists.choose import LISTS, broker_files
    from hushgrid.node.transport.connect import parse_urls

    kind, broker = options.kind or directory.kind, _broker(directory, options)
    files = broker_files(kind, broker.access, broker.folder, parse_urls(broker.urls))
    if not options.write:
        print(files[LISTS[kind]], end="")
        return 0
    directory.use(kind)
    directory.write_broker()
    print(
        "\n".join(
            f"{directory.path / one.folder.name}/{name}" for one in directory.brokers().values() for name in files
        )
    )
    return 0


def _broker(directory: FleetDirectory, options: argparse.Namespace) -> Broker:
    from hushgrid.broker.enrolment.lists.place import BROKER

    if options.bridge is not None and options.bridge not in directory.bridges:
        expected = ", ".join(directory.bridges) or "none: the fleet has one broker"
        raise InputError(f"--bridge: found {options.bridge!r}, expected {expected}")
    return directory.brokers()[options.bridge or BROKER]


def _verify(directory: FleetDirectory, options: argparse.Namespace) -> int:
    from hushgrid.broker.enrolment.verify.run import speaks_five, verify

    broker = _broker(directory, options)
    access, url = broker.access, options.url or broker.urls
    unknown = [name for name in options.only if name not in access.names]
    if unknown:
        raise InputError(f"--only: found {unknown[0]!r}, expected one of {', '.join(access.names)}")
    authority = directory.authority(options.ca_key)
    verdict = verify(access, authority, url, directory.kind, options.only, options.interrupt)
    tried = f"{len(options.only) or len(access.names)} of {len(access.names)} identities"
    print(
        f"{directory.path}: {tried}, {directory.kind} at {url}, MQTT {'5' if speaks_five(directory.kind) else '3.1.1'}"
    )
    show(verdict)
    return verdict.code


def show(verdict: Verdict) -> None:
    """Prints what was tried, how the broker answered, and each finding."""
    print("\n".join(f"{number:7}  {what}: {reason}" for (what, reason), number in sorted(verdict.counts.items())))
    for title, lines in (
        ("this broker cannot refuse", verdict.impossible),
        ("forbidden", verdict.forbidden),
        ("lacking", verdict.lacking),
    ):
        print("".join(f"{title}: {line}\n" for line in lines), end="")
    print(f"{len(verdict.forbidden)} forbidden arrived, {len(verdict.lacking)} needed lacking")
