"""What `hushgrid doctor` finds of a device and the plan in force: whether they are about the same problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hushgrid.cli.owner.findings import Finding, Place, bad, ok, warn
from hushgrid.kernels.errors import HushgridError
from hushgrid.node.config.watch import WatchConfig, load_watch
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.plan import decode_plan
from hushgrid.node.status import NAMED, Status
from hushgrid.node.wire import COORDINATOR

DO = "the device's data section and the coordinator's scenario must agree: docs/device-changes.md"


def plan(place: Place, reached: bool) -> Iterator[Finding]:
    """By the plan of the last run that its ledger has, and if the broker was `reached` by what the coordinator says
    now.
    """
    if place.name == COORDINATOR:
        return
    from hushgrid.node.config.device import load_device
    from hushgrid.node.site.data_source import device_of

    device = device_of(load_device(place.path), str(place.path))
    yield from _last(place, device)
    centre = _coordinator_status(place) if reached else None
    if centre is not None and centre.entries:
        wrong = _differences(device, centre)
        if wrong:
            yield bad("plan", f"in force: {'; '.join(wrong)}", DO)
        else:
            yield ok("plan", "in force: it is for this device")


def _last(place: Place, device: Device) -> Iterator[Finding]:
    from hushgrid.broker.watch.ledger_facts import Source, reading

    try:
        with reading(Source(place.ledger)) as ledger:
            last = ledger.runs.last()
        if last is None or not last.plan:
            return
        joined = decode_plan(last.plan)
    except HushgridError:  # the step of the ledger has said so; a later program's plan is none of ours
        return
    try:
        device.check(joined)
    except HushgridError as error:
        yield warn(
            "plan", f"of its last run, {joined.name}: {error}", f"nothing, if both have changed since; else {DO}"
        )
    else:
        yield ok("plan", f"of its last run, {joined.name}: it is for this device")


def _coordinator_status(place: Place) -> Status | None:
    """The coordinator's status; None if the identity `watch` cannot be had here, or there is none."""
    from hushgrid.broker.watch.nodes import look

    try:
        config = (
            WatchConfig(fleet=place.fleet, broker=place.broker) if place.tls is None else load_watch(Path(place.path))
        )
        centre = look(config).get(COORDINATOR)
    except HushgridError:
        return None
    return centre.status if centre else None


def _differences(device: Device, centre: Status) -> list[str]:
    """What of a device is not as the coordinator's plan has it."""
    if device.name not in centre.entries:
        named = ", ".join(centre.entries)
        return [] if len(centre.entries) == NAMED else [f"found no {device.name} among its members {named}"]
    expected = {
        "problem": (device.kind, centre.problem),
        "case digest": (device.digest[:12], centre.digest),
        "entries": (device.dimension, centre.entries[device.name]),
    }
    return [f"{what}: found {here}, expected {there}" for what, (here, there) in expected.items() if here != there]
