"""The answer in force, as it is kept over restarts, and as the file of a sink has it;
also once the device has ended.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.kernels.types import Document
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.config.site import group_of
from hushgrid.node.durable import write_file
from hushgrid.node.privacy.ledger_file import held
from hushgrid.node.schema.durations import in_words
from hushgrid.node.schema.site import SinkFile

STOPPED = "the device has stopped"  #: why an answer is old that nobody would call old otherwise


class Standing(Struct):
    """The answer in force, as it is kept over restarts."""

    document: Document  #: what others are told
    archive: bytes | None  #: of rows: the model, .npz
    ran: float  #: running time when it was written, s
    validity: float | None  #: s for which it counts
    tariff: Document | None = None  #: over a horizon: prices and limits of its periods
    every: float = 0.0  #: s from one answer to the next, by the schedule

    @property
    def old(self) -> bool:
        return bool(self.document["state"] == "old")

    def marked(self, state: str, reason: str) -> Standing:
        """The same answer, of which this is said."""
        return msgspec.structs.replace(self, document=self.document | {"state": state, "reason": reason})

    def following(self, reason: str) -> Standing | None:
        """The next period of the same plan, which is in force for this reason; None: there is none."""
        coming = self.document.get("day")
        if not coming:
            return None
        document = self.document | coming[0] | {"day": coming[1:], "state": "held", "reason": reason}
        tariff = self.tariff and _later(self.tariff, str(coming[0]["valid_from"]))
        return msgspec.structs.replace(self, document=document, ran=self.ran + self.every, tariff=tariff)

    @property
    def stopped(self) -> Standing:
        """The same answer, of a device that has ended."""
        why = self.document["reason"]
        return self.marked("old", f"{STOPPED}: {why}" if why else STOPPED)


def _later(tariff: Document, start: str) -> Document:
    """The prices and limits of the periods from this time on."""
    buses: Document = {
        bus: {key: [row for row in rows if row["start"] >= start] for key, rows in each.items()}
        for bus, each in tariff["buses"].items()
    }
    return tariff | {"buses": buses}


def place_of(config: DeviceConfig) -> Path:
    """Where a device keeps its answer in force."""
    return Path(config.state) / f"{config.node}.told"


def last_standing(config: DeviceConfig) -> Standing | None:
    """The answer that a device has kept; None if there is nothing whole."""
    try:
        standing = msgspec.msgpack.decode(place_of(config).read_bytes(), type=Standing)
    except (OSError, msgspec.DecodeError):
        return None
    standing.document.setdefault("data_state", None)  # an earlier release has kept it
    return standing


def write_standing(file: SinkFile, standing: Standing, group: int | None) -> None:
    """Replaces the sink's file. `group`: a number. Raises OSError."""
    archive = standing.archive if file.path.endswith(".npz") else None
    content = archive or msgspec.json.format(msgspec.json.encode(standing.document)) + b"\n"
    write_file(Path(file.path), content, mode=int(file.mode, 8), group=group)


def mark_stopped(config: DeviceConfig, path: str) -> None:
    """The device has ended, however: the file of its sink says so from now on, until the next start.

    Raises InputError if a process holds its ledger, Stopped if the file cannot be written.
    """
    with suppress(FileNotFoundError):
        if held(ledger := Path(config.state) / f"{config.node}.ledger"):
            raise InputError(f"{ledger}: held by another process, expected that the device has ended")
    file, standing = config.sink.file if config.sink else None, last_standing(config)
    if file is None or standing is None:
        return
    group = group_of(file.group, f"{path}: sink.file.group") if file.group else None
    try:
        write_standing(file, standing if standing.old else standing.stopped, group)
    except OSError as error:
        raise Stopped(f"{file.path}: {error.strerror}, expected to write that the device has stopped") from None


def standing_words(config: DeviceConfig) -> list[str]:
    """The device's own report on its answer in force and its data, in lines: their version and age when it was made."""
    standing = last_standing(config)
    if standing is None:
        return []
    document = standing.document
    age = document["age"]
    old = "" if age is None else f", {in_words(age)} old when it was made"
    until = f", good until {document['valid_until']}" if document["valid_until"] else ""
    run = f"run {document['run'][:8]}, data version {document['data_version']}{old}"
    return [f"the answer in force is of {document['time']}{until}: {run}"]
