"""`hushgrid doctor`: an installation looked over step by step, beside a running device and without disturbing it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hushgrid.cli.owner.findings import Finding, Place, bad, ok, warn
from hushgrid.kernels.errors import HushgridError, InputError, Stopped

ENOUGH, LITTLE = 200 << 20, 20 << 20  #: bytes free on the disk of the ledger: below them it is said, or it is bad
EARLIEST, LATEST = 1735689600.0, 4102444800.0  #: 2025 and 2100, s since 1970: a clock outside was never set
DAY_S = 86400.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a device's or coordinator's file")


def main(options: argparse.Namespace) -> int:
    """0: nothing is bad; 2: the owner has something to do; 4: what is bad may pass by itself."""
    codes = set()
    for finding in look_over(options.config):
        print(finding, flush=True)
        codes.add(finding.code)
    return 2 if 2 in codes else max(codes, default=0)


def look_over(path: Path) -> Iterator[Finding]:
    """Every step in its order; those that need what an earlier one has not found are left out."""
    from hushgrid.cli.owner.findings_broker import broker
    from hushgrid.cli.owner.findings_plan import plan

    try:
        place, what = _place(path)
    except HushgridError as error:
        yield bad("file", str(error), "correct it")
        return
    yield ok("file", what)
    yield from _who(place)
    yield from _clock(place)
    yield from _disk(place)
    running = _held(place.ledger)
    yield from _ledger(place, running)
    yield from _certificate(place)
    yield from _revoked(place)
    reached = True
    for finding in broker(place, running):
        reached = reached and finding.grade != "bad"
        yield finding
    yield from plan(place, reached)
    yield from _unit(place, running)


def _place(path: Path) -> tuple[Place, str]:
    """The installation that a file describes, and what it is, in words. Raises InputError."""
    from hushgrid.cli.owner.check import check
    from hushgrid.node.config.coordinator import load_coordinator
    from hushgrid.node.config.device import load_device
    from hushgrid.node.schema.yaml_file import read_yaml
    from hushgrid.node.wire import COORDINATOR

    what = check(path).splitlines()[0]  # reads the data and the scenario too
    if "node" in read_yaml(path):
        device = load_device(path)
        mark = Path(device.mark) if device.mark else None
        unit, state = f"hushgrid-node@{device.node}", Path(device.state)
        names = (path, device.node, unit, device.fleet, device.broker, device.tls, state, mark)
        return Place(*names, ()), what
    if what.startswith("scenario"):
        raise InputError(f"{path}: found a scenario, expected a device's or a coordinator's file")
    from hushgrid.broker.coordinator.daemon import prepare

    centre = load_coordinator(path)
    _, plan = prepare(centre, str(path))
    unit, state = "hushgrid-coordinator", Path(centre.state)
    names = (path, COORDINATOR, unit, centre.fleet, centre.broker, centre.tls, state, None)
    return Place(*names, tuple(plan.nodes)), what


# --- on this machine ---


def _who(place: Place) -> Iterator[Finding]:
    import hushgrid
    from hushgrid.node.wire import WIRE

    yield ok("version", f"hushgrid {hushgrid.__version__}, wire {WIRE}")
    with suppress(OSError):
        owner = place.state.stat().st_uid
        if owner != os.geteuid():
            yield warn(
                "user",
                f"asked as user {os.geteuid()}, the state belongs to user {owner}",
                "ask as that user, who may read less: runuser -u hushgrid -- hushgrid doctor ...",
            )


def _clock(place: Place) -> Iterator[Finding]:
    now = time.time()
    today = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    newest = 0.0
    for file in (place.path, place.ledger):
        with suppress(OSError):
            newest = max(newest, file.stat().st_mtime)
    if not EARLIEST < now < LATEST:
        yield bad("clock", f"it is {today}", "set it, or wait for the time service: TLS believes no certificate", 4)
    elif newest > now + DAY_S:
        yield warn(
            "clock", f"it is {today}, and a file of this device is {(newest - now) / DAY_S:.0f} days newer", "set it"
        )
    else:
        yield ok("clock", today)


def _disk(place: Place) -> Iterator[Finding]:
    folder = place.state
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    room = f"{free / 1e6:,.0f} MB free at {folder}"
    if free < LITTLE:
        yield bad("disk", room, "make room: nothing is answered that the ledger cannot keep", 4)
    elif free < ENOUGH:
        yield warn("disk", room, "make room")
    else:
        yield ok("disk", room)
    if folder != place.state:
        yield warn(
            "state",
            f"{place.state} is not there yet",
            "nothing, if this is a new installation: the first start makes it",
        )
        return
    probe = place.state / f".{place.name}.doctor"
    try:
        with probe.open("wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        yield ok("state", f"{place.state} can be written")
    except OSError as error:
        yield bad(
            "state",
            f"{place.state}: {error.strerror}",
            "let the user of the service write there; or a disk has failed",
            4,
        )
    finally:
        with suppress(OSError):
            probe.unlink()


def _held(ledger: Path) -> bool:
    """Whether a process has the ledger open."""
    from hushgrid.node.privacy.ledger_file import held

    try:
        return held(ledger)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _ledger(place: Place, running: bool) -> Iterator[Finding]:
    from hushgrid.broker.watch.ledger_facts import Source, reading

    if not place.ledger.exists():
        yield warn("ledger", f"{place.ledger} is not there yet", "nothing, if this device is new; else put it back")
        return
    if running:
        yield ok("ledger", f"{place.ledger} is in use: a process runs, which checks it and its mark at every answer")
    else:
        try:
            with reading(Source(place.ledger, place.mark)) as ledger:
                behind, counts = (
                    ledger.marks.behind_in_words,
                    f"{ledger.spends.no} spends in {ledger.runs.session} sessions",
                )
        except HushgridError as error:
            code = 4 if isinstance(error, Stopped) else 2
            yield bad("ledger", str(error), "see 'When something is wrong' in docs/two-machines.md", code)
            return
        if behind:
            yield bad(
                "ledger", behind, f"mount the disk of the mark, or as its owner: hushgrid ledger accept {place.path}", 4
            )
            return
        yield ok("ledger", f"{place.ledger}: {counts}")
    if place.mark is not None:
        with suppress(OSError):
            if place.mark.stat().st_dev == place.ledger.stat().st_dev:
                yield warn(
                    "mark", f"{place.mark} is on the disk of the ledger", "keep it on another disk, if there is one"
                )
            else:
                yield ok("mark", f"{place.mark} is there, on a disk of its own")


def _certificate(place: Place) -> Iterator[Finding]:
    from hushgrid.node.transport.certificate import SOON_D, days_left

    if place.tls is None:
        yield warn("certificate", "none: the connection is not encrypted", "nothing, if the broker is on this machine")
        return
    for what, file in (("certificate", place.tls.cert), ("authority", place.tls.ca)):
        if file is None:
            continue
        try:
            days = days_left(file)
        except InputError as error:
            yield bad(what, str(error), "put it in place")
            continue
        ends = f"{file} ends in {days} days"
        if days < 0:
            yield bad(what, f"{file} has ended {-days} days ago", "make a new one: hushgrid fleet renew")
        elif days < SOON_D:
            yield warn(what, ends, "make a new one: hushgrid fleet renew")
        else:
            yield ok(what, ends)


def _revoked(place: Place) -> Iterator[Finding]:
    """The list of revoked certificates, if the fleet's directory is here."""
    from hushgrid.node.transport.certificate import SOON_D, list_ends

    file = place.path.parent / "broker" / "crl.pem"
    if not file.exists():
        return
    do = "hushgrid fleet retire DIR writes it anew; then reload the broker"
    try:
        days = int((list_ends(file).timestamp() - time.time()) // DAY_S)
    except InputError as error:
        yield bad("revoked", str(error), do)
        return
    text = f"{file} is good for {days} days"
    if days < 0:
        yield bad("revoked", f"{file} has ended {-days} days ago: mosquitto refuses every client", do)
    elif days < SOON_D:
        yield warn("revoked", text, do)
    else:
        yield ok("revoked", text)


def _unit(place: Place, running: bool) -> Iterator[Finding]:
    if not Path("/run/systemd/system").exists():
        return
    keys = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "StatusText", "NRestarts")
    try:
        done = subprocess.run(
            ["systemctl", "show", "-p", ",".join(keys), place.unit], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return
    properties = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    state = f"{place.unit}: {properties.get('ActiveState')} ({properties.get('SubState')})"
    state += f", {properties['StatusText']}" if properties.get("StatusText") else ""
    if properties.get("LoadState") != "loaded":
        yield warn("unit", f"{place.unit} is not installed", "sh deploy/install.sh, if systemd is to run it")
    elif properties.get("ActiveState") == "failed":
        yield bad("unit", f"{state}, {properties.get('Result')}", f"journalctl -u {place.unit} says why")
    elif properties.get("ActiveState") != "active":
        yield warn("unit", state, f"systemctl enable --now {place.unit}")
    elif properties.get("UnitFileState") != "enabled":
        yield warn(
            "unit", f"{state}, not enabled", f"systemctl enable {place.unit}: else it is not there after a reboot"
        )
    else:
        yield ok("unit", f"{state}, {properties.get('NRestarts')} restarts")
