"""`hushgrid fleet revoke`, `cut`, `retire`: who is put out, which connections end, which certificates are over."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.cli.operator.enrolment import tell_list
from hushgrid.kernels.errors import Stopped
from hushgrid.node.columns import columns

if TYPE_CHECKING:
    from hushgrid.broker.enrolment.authority import Authority
    from hushgrid.broker.enrolment.directory import FleetDirectory

TEXTS = {
    "revoke": "Put a member out: its certificates, its rights, and its live connection.",
    "cut": (
        "End the live connections of members, once. Who has a valid certificate comes back.\n"
        "Without names: of those whose certificate has ended, or is revoked. A broker does not end them by itself."
    ),
    "retire": "Revoke older certificates of renewed members, once their new one has been seen in use.",
}


def arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the commands."""
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="the fleet's directory")
    if name == "revoke":
        add("name", metavar="NAME")
    else:
        add("names", metavar="NAME", nargs="*")
    if name != "cut":
        add_apply(parser, "makes the broker read DIR/broker again")
    add("--ca-key", metavar="FILE", type=Path, help="the authority's key [DIR/ca.key]")


def add_apply(parser: argparse.ArgumentParser, what: str) -> None:
    """The option --apply."""
    parser.add_argument(
        "--apply", metavar="COMMAND", help=f"a shell command that {what}; without it: what to run is printed"
    )


def main(options: argparse.Namespace) -> int:
    """Runs one of the commands."""
    from hushgrid.broker.enrolment.directory import FleetDirectory

    directory = FleetDirectory(options.directory)
    authority = directory.authority(options.ca_key)
    match options.what:
        case "revoke":
            revoke(directory, options.name, authority, options.apply)
        case "cut":
            _cut(directory, options.names, authority)
        case "retire":
            _retire(directory, options.names, authority, options.apply)
    return 0


def revoke(directory: FleetDirectory, name: str, authority: Authority, apply: str | None) -> None:
    """Puts a name out. The lists stand first, whatever comes of the connection.

    Raises Stopped if its live connection may still be up.
    """
    from hushgrid.broker.enrolment.cut import cut_of, run, take_over

    cut = cut_of(directory, name)
    directory.revoke(name, authority)
    path = directory.path
    print(f"{name}: its certificates are revoked, {path}/broker has it no more")
    tell_list(directory)
    if not cut.clears:
        directory.write_broker()
    try:
        if apply is not None:
            run(apply)
            if cut.takes_over:
                take_over(directory, name, authority, clear=cut.clears)
    except Stopped as error:
        raise Stopped(
            f"{error}; the list stands, its live connection may still be up: {cut.again(path, name)}"
        ) from None
    finally:
        if cut.clears:  # until here it may still clear what it has retained
            directory.write_broker()
    if apply is None:
        print(f"its live connection is up until this is run where the broker is: {cut.again(path, name)}")
        return
    if cut.clears:
        run(apply)
    print(f"{name}: its connection has ended" + "".join(f"\nthen: {command}" for command in cut.commands))


def _cut(directory: FleetDirectory, names: list[str], authority: Authority) -> None:
    from hushgrid.broker.enrolment.authority import now
    from hushgrid.broker.enrolment.cut import cut_of, take_over
    from hushgrid.broker.enrolment.lists.place import BROKER

    ended = [n for n in directory.names() if directory.is_out(n) or directory.identity(n).newest.ends <= now()]
    for name in names or [n for n in ended if n != BROKER]:
        directory.identity(name)
        cut = cut_of(directory, name)
        if cut.takes_over:
            take_over(directory, name, authority)
            print(f"{name}: its connection has ended")
        else:
            print(f"{name}: {cut.reload}")


def _retire(directory: FleetDirectory, names: list[str], authority: Authority, apply: str | None) -> None:
    from hushgrid.broker.enrolment.cut import cut_of, in_use, run

    for name in names:
        directory.identity(name)
    renewed = {
        name: older
        for name in names or directory.names()
        if (older := [one for one in directory.identity(name).certificates[:-1] if one.revoked is None])
    }
    directory.write_list(authority)
    if not renewed:
        print(f"no older certificate is valid; {directory.path}/broker/crl.pem is written anew")
        return
    used = in_use(directory, authority)
    rows = []
    for name, older in renewed.items():
        seen = used.get(name) == directory.identity(name).newest.serial
        if seen:
            directory.retire(older, authority)
        rows.append((name, f"{len(older)} older revoked" if seen else "its new certificate has not been seen yet"))
    print(columns(rows))
    if not any(used.get(name) == directory.identity(name).newest.serial for name in renewed):
        return
    tell_list(directory)
    if apply is not None:
        run(apply)
    else:
        print(f"then, where the broker is: {cut_of(directory, next(iter(renewed))).reload}")
