"""`hushgrid fleet add`, `remove`: a member more or less, in scenario, members and lists, and what its box needs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.cli.operator.enrolment import read_request
from hushgrid.cli.operator.revoking import add_apply, revoke
from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from hushgrid.broker.enrolment.changes import Change
    from hushgrid.broker.enrolment.directory import FleetDirectory

TEXTS = {
    "add": "Add a member: scenario, members, lists, its certificate, and a folder with all that its box needs.",
    "remove": "Take a member out: scenario, members, lists, its certificates, its live connection.",
}
APPLY = "makes broker and coordinator read their files again"


def arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the commands."""
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="the fleet's directory")
    add("name", metavar="NAME", help="the next one: z4 after z3, n4 after n3" if name == "add" else "the last one")
    if name == "add":
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--zone", metavar="BUSES", type=_buses, help="9,10,14: taken from the zones that have them")
        what.add_argument("--data", metavar="FILE", help="its rows, as the box names them; counted if the file is here")
        add("--labels", metavar="LOW,HIGH", help="with --data: the public range of its labels [-1,1; classes: known]")
        add("--request", metavar="FILE", help="NAME.csr; -: from standard input [hushgrid fleet enrol, later]")
        add("--out", metavar="FOLDER", type=Path, help="where what its box needs goes [DIR/NAME]")
    add_apply(parser, APPLY)
    add("--ca-key", metavar="FILE", type=Path, help="the authority's key [DIR/ca.key]")


def _buses(words: str) -> list[int]:
    if re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", words) is None:
        raise argparse.ArgumentTypeError(f"found {words!r:.40}, expected bus numbers with commas between them")
    return sorted({int(word) for word in words.split(",")})


def main(options: argparse.Namespace) -> int:
    """Runs one of the commands."""
    from hushgrid.broker.enrolment.directory import FleetDirectory

    directory = FleetDirectory(options.directory)
    (_add if options.what == "add" else _remove)(directory, options)
    return 0


def _add(directory: FleetDirectory, options: argparse.Namespace) -> None:
    from hushgrid.broker.enrolment import changes
    from hushgrid.broker.enrolment.authority import check_name
    from hushgrid.cli.operator import boxes

    name, file = check_name(options.name), directory.scenario_file
    request = None if options.request is None else read_request(options.request)
    _expect_kind(directory, zones=options.zone is not None)
    if options.zone is not None:
        change = changes.add_zone(file, name, options.zone)
    else:
        change = changes.add_node(file, name, _count(Path(options.data)))
    folder = options.out or directory.path / name
    if folder.exists() and any((folder / f"{name}.{end}").exists() for end in ("yaml", "crt")):
        raise InputError(f"{folder}: found {name}'s files, expected none (--out)")
    if request is not None:
        directory.enrol(name, request, directory.authority(options.ca_key))
    directory.take(change.text)
    if options.zone is not None:
        boxes.write_zone(directory, name, options.zone, folder)
    else:
        boxes.write_rows(directory, name, options.data, options.labels, folder)
    if request is not None:
        directory.hand_over(name, folder)
        print(f"key fingerprint {request.fingerprint}: is it the one that the box has shown?")
    else:
        print(f"its certificate: hushgrid fleet enrol {directory.path} {name} --request {name}.csr")
    print(f"{folder}: to its box, beside {name}.key; its owner reads budget and allow; hushgrid node {name}.yaml")
    _tell_others(directory, change)
    _apply(directory, options)


def _remove(directory: FleetDirectory, options: argparse.Namespace) -> None:
    from hushgrid.broker.enrolment import changes

    name, file = options.name, directory.scenario_file
    take_out = changes.remove_zone if changes.is_zones(file) else changes.remove_node
    change, authority = take_out(file, name), directory.authority(options.ca_key)
    try:
        if name in directory.identities and not directory.is_out(name):
            revoke(directory, name, authority, options.apply)
    finally:
        directory.take(change.text)
    print(f"{file}: {', '.join(change.nodes)} are left")
    _tell_others(directory, change)
    _apply(directory, options)


def _expect_kind(directory: FleetDirectory, zones: bool) -> None:
    from hushgrid.broker.enrolment.changes import is_zones

    if is_zones(directory.scenario_file) != zones:
        found, expected = ("--zone", "--data FILE") if zones else ("--data", "--zone BUSES")
        raise InputError(f"{directory.scenario_file}: found {found}, expected {expected}: it is the other kind")


def _count(file: Path) -> int | None:
    """How many rows a file has, if it is here."""
    from hushgrid.node.problems.records.files import read_csv, read_npz

    if not file.is_file():
        return None
    table = read_npz(file, "least-squares") if file.suffix == ".npz" else read_csv(file, "least-squares")
    return len(table.b)


def _tell_others(directory: FleetDirectory, change: Change) -> None:
    """The zones whose buses have changed need other files: theirs are written beside the new one's."""
    from hushgrid.cli.operator import boxes

    for name, buses in change.moved.items():
        folder = directory.path / name
        boxes.write_zone(directory, name, buses, folder)
        print(
            f"{name}: its zone is {', '.join(map(str, buses))} now: data and loads as in {folder}/{name}.yaml, "
            "budget and allow as its owner has them; then a restart of its device"
        )


def _apply(directory: FleetDirectory, options: argparse.Namespace) -> None:
    from hushgrid.broker.enrolment.cut import cut_of, run

    if options.apply is not None:
        run(options.apply)
        return
    broker = cut_of(directory, options.name).reload if directory.kind != "rabbitmq" else "broker/ as its page says"
    print(f"then, where they run: {broker}; systemctl reload hushgrid-coordinator")
