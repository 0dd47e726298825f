"""`hushgrid fleet init`, `request`, `enrol`, `renew`, `list`: keys, requests and certificates."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import InputError

if TYPE_CHECKING:
    from hushgrid.broker.enrolment.authority import Request
    from hushgrid.broker.enrolment.directory import FleetDirectory, Identity

TEXTS = {
    "init": "Make the directory of a fleet: its authority, its broker's files, its coordinator's file.",
    "request": "On the box: make its key, which stays here, and a request for a certificate.",
    "enrol": "Give a new member its certificate, by its request.",
    "renew": "Give a member a further certificate, by a new request; name, ledger and mark stay.",
    "list": "Who is enrolled, until when, and who is put out.",
}
KINDS = ("mosquitto", "dynsec", "nats", "rabbitmq", "emqx")


def arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the commands."""
    add = parser.add_argument
    if name == "request":
        add("name", metavar="NAME", help="lower-case letters, digits and -")
        add("--out", metavar="DIR", type=Path, required=True, help="where the key and the request go")
        return
    add("directory", metavar="DIR", type=Path, help="the fleet's directory")
    if name == "init":
        add("--fleet", metavar="NAME", required=True, help="a part of every topic")
        add(
            "--broker",
            metavar="URL",
            required=True,
            help="mqtts://host:port, as all machines reach it; of a cluster all, with commas between",
        )
        add("--scenario", metavar="FILE", type=Path, required=True, help="what the fleet computes")
        add("--broker-kind", choices=KINDS, default="mosquitto", help="[mosquitto]")
        add("--site", metavar="SITE", help="of a scenario with sites: the fleet of this one's devices, beside --above")
        add("--above", metavar="DIR", type=Path, help="the directory of the fleet of sites")
        add(
            "--trust",
            action="store_true",
            help="no broker is trusted: the coordinator's file has trust, and so have those of the devices, DIR/NAME",
        )
        add(
            "--bridge",
            metavar=("NAME", "URL", "NODE,NODE"),
            nargs=3,
            action="append",
            default=[],
            help="a site whose devices have a mosquitto of their own at URL, bridged to that of the fleet; repeatable",
        )
        add(
            "--here",
            metavar="FOLDER",
            type=Path,
            help="coordinator and watch run on this machine: their keys are made in FOLDER, and are enrolled",
        )
    if name in ("enrol", "renew"):
        add("name", metavar="NAME", help="as in its request")
        add("--request", metavar="FILE", required=True, help="NAME.csr; -: from standard input")
    if name == "renew":
        add("--now", action="store_true", help="revoke the older certificates at once")
    if name != "list":
        add("--ca-key", metavar="FILE", type=Path, help="the authority's key [DIR/ca.key]")


def main(options: argparse.Namespace) -> int:
    """Runs one of the commands."""
    match options.what:
        case "init":
            _init(options)
        case "request":
            from hushgrid.broker.enrolment.authority import request

            _show_request(request(options.name, options.out), options.out)
        case "enrol" | "renew":
            _sign(options)
        case "list":
            _list(_directory(options))
    return 0


def _directory(options: argparse.Namespace) -> FleetDirectory:
    from hushgrid.broker.enrolment.directory import FleetDirectory

    return FleetDirectory(options.directory)


def _init(options: argparse.Namespace) -> None:
    from hushgrid.broker.enrolment.authority import check_name, request
    from hushgrid.broker.enrolment.directory import FleetDirectory, FleetFile
    from hushgrid.broker.enrolment.lists.bridges import BridgeSection
    from hushgrid.node.config.brokers import same_broker
    from hushgrid.node.config.watch import WATCH
    from hushgrid.node.wire import COORDINATOR

    if (options.site is None) != (options.above is None):
        raise InputError("--site: found one of --site and --above, expected both: a site is a member of a fleet")
    above = FleetDirectory(options.above) if options.above is not None else None
    bridges = {
        check_name(name): BridgeSection(broker=url, members=members.split(",")) for name, url, members in options.bridge
    }
    if len(bridges) < len(options.bridge):
        raise InputError("--bridge: found a name twice, expected each once")
    file = FleetFile(
        fleet=check_name(options.fleet),
        broker=options.broker,
        kind=options.broker_kind,
        bridges=bridges,
        site=options.site,
        trust=options.trust,
    )
    if above is not None and options.site not in (there := above.members()):
        raise InputError(f"--site: found {options.site}, expected one of {', '.join(there)} ({above.path})")
    if above is not None and (missing := [site for site in above.members() if site not in above.identities]):
        raise InputError(
            f"--above: found no certificate of {', '.join(missing)} in {above.path}, expected one of each site: "
            f"they know each other by them (hushgrid fleet enrol {above.path} {missing[0]})"
        )
    if above is not None and same_broker(file.broker, above.broker):
        raise InputError(f"--broker: found that of {above.path}, expected another: it would see the site's sums")
    if options.trust:
        _check_plan(options.scenario)
    directory = FleetDirectory.make(options.directory, file, options.scenario, options.ca_key)
    key = options.ca_key or directory.path / "ca.key"
    if options.here is not None:
        authority = directory.authority(options.ca_key)
        for name in (COORDINATOR, WATCH):
            directory.enrol(name, request(name, options.here), authority)
            directory.hand_over(name, options.here)
    directory.write_coordinator(options.here)
    if options.trust:
        from hushgrid.cli.operator import boxes

        boxes.write_all(directory)
    if above is not None:
        directory.write_site(above, options.here)
    directory.write_broker()
    members = directory.members()
    print(
        f"{directory.path}: fleet {directory.fleet} on {directory.broker}, members {', '.join(members)}\n"
        f"{directory.path}/broker: all that the broker reads, its own key among it\n"
        + "".join(f"{directory.folder(name)}: the same of the site {name}\n" for name in directory.bridges)
        + (f"{directory.box('NAME')}: what each box needs, its owner reads budget and allow\n" if options.trust else "")
        + f"{key} can sign further members: move it to a place outside the fleet (--ca-key FILE names it)\n"
        f"next, for each member, on its box: hushgrid fleet request {members[0]} --out FOLDER\n"
        f"then here: hushgrid fleet enrol {directory.path} {members[0]} --request {members[0]}.csr"
    )


def _check_plan(file: Path) -> None:
    """Raises InputError unless devices can be told what they are to consent to."""
    from hushgrid.node.config.planning import make_plan
    from hushgrid.node.config.scenario import load_scenario

    scenario = load_scenario(file)
    make_plan(scenario, scenario.kind.public(scenario, str(file)), str(file))


def _show_request(made: Request, folder: Path) -> None:
    print(
        f"{folder}/{made.name}.key: its private key, which stays on this machine\n"
        f"{folder}/{made.name}.csr: its request, {len(made.pem)} bytes\n"
        f"key fingerprint {made.fingerprint}\n{made.pem.decode()}",
        end="",
    )


def read_request(file: str) -> Request:
    """The request in a file, or on standard input (-). Raises InputError."""
    from hushgrid.broker.enrolment.authority import Request

    if file == "-":
        return Request.read(sys.stdin.buffer.read(), "standard input")
    try:
        return Request.read(Path(file).read_bytes(), file)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}, expected a request (hushgrid fleet request)") from None


def _sign(options: argparse.Namespace) -> None:
    directory, request = _directory(options), read_request(options.request)
    authority = directory.authority(options.ca_key)
    if options.what == "enrol":
        directory.enrol(options.name, request, authority)
    else:
        directory.renew(options.name, request, authority, options.now)
    directory.write_broker()
    path, ends = directory.path, directory.identity(options.name).newest.ends
    beside = _beside(directory, options.name)
    print(
        f"key fingerprint {request.fingerprint}: is it the one that the box has shown?\n"
        f"{path}/{options.name}.crt: {options.name}, until {ends:%Y-%m-%d}; to the box with {beside}\n"
        f"files that name it by `peers` say {directory.pinned(options.name)}"
    )
    if options.what == "renew" and options.now:
        tell_list(directory)
    if options.what == "renew":
        left = (
            "" if options.now else f"; the older one stays valid until hushgrid fleet retire {path} has seen this one"
        )
        print(f"the box takes it at SIGHUP, or by itself on the last day of the older one{left}")


def _beside(directory: FleetDirectory, name: str) -> str:
    """What goes to a box with its certificate; the folder of a box that no broker is trusted by has all of it."""
    if directory.trust and (box := directory.box(name)).is_dir():
        directory.hand_over(name, box)
        return str(box)
    crl = f" and {directory.path}/crl.pem" if directory.trust else ""
    return f"{directory.path}/ca.crt{crl}"


def tell_list(directory: FleetDirectory) -> None:
    """Says where the list of revoked certificates goes besides the broker."""
    if directory.trust:
        print(f"{directory.path}/crl.pem: to every end; until then it takes the revoked one for who it was")


def _list(directory: FleetDirectory) -> None:
    from hushgrid.broker.enrolment.authority import now

    rows = [("name", "role", "state", "ends in", "key fingerprint")]
    for name in directory.names():
        identity = directory.identity(name)
        left = identity.newest.ends - now()
        ends = f"{left.days} days" if left.total_seconds() > 0 else "ended"
        rows.append((name, identity.role, _state(identity), ends, identity.newest.fingerprint))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))


def _state(identity: Identity) -> str:
    older = [one for one in identity.certificates[:-1] if one.revoked is None]
    return f"renewed, {len(older)} older" if older and identity.state == "enrolled" else identity.state
