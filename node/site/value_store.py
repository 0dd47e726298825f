"""The values of a device's data version, beside its ledger: what the device holds is a function of version and time
alone.

A device that is started again within a run goes on with the values that the run began with, whatever its source says
now. Were they read again, one version would have two data sets, and readings would count for longer than they may: so
the file says when each was read, and which files that was. It holds the data themselves, as the source does.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.durable import write_file
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import ReadingDays
from hushgrid.node.problems.feed import Feed, Readings, Values, complete, pack, unpack
from hushgrid.node.site.sources import MOST_FILES, Files, Reading

GONE = 64  #: files that are no longer there, and yet remembered


class StoredValues(Struct, array_like=True, frozen=True):
    """The values of a data version. Times are the ledger's running time, s."""

    ledger: bytes  #: the ledger's id
    version: int
    risen: float  #: when the version was raised
    read: float  #: when the values were good
    values: bytes
    stamp: str = ""  #: how the source's file looked from outside
    times: bytes | None = None  #: `Readings.read` and `Readings.until`; None: of a release before there were any
    number: int = 0  #: of rows: how many were ever taken
    files: Files = {}  #: those that were read
    forgotten: int = 0  #: of files that were read and are remembered no more, when the latest was made, ns
    days: ReadingDays | None = None  #: of whose readings the device's data are the mean

    @property
    def good(self) -> Values | None:
        """The values; None if the bytes are none."""
        try:
            values = unpack(self.values)
        except InputError:
            return None
        return values if complete(values) else None

    @property
    def readings(self) -> Readings | None:
        """The same with their times."""
        values = self.good
        if values is None:
            return None
        size = len(next(reversed(values.values())))
        if self.times is None:
            return Readings(values, np.full(size, self.read), np.full(size, np.inf), size)
        read, until = np.frombuffer(self.times).reshape(2, -1).copy()
        return Readings(values, read, until, self.number) if len(read) == size else None


class ValueStore:
    """The file of one device. It is written before the version rises in the ledger."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger
        stored = last_values(path)
        self.now = stored if stored and stored.ledger == ledger.id else None

    @property
    def readings(self) -> Readings | None:
        """The last good values, of whatever version; None if there are none."""
        return self.now.readings if self.now else None

    def fitting(self, feed: Feed) -> Readings | None:
        """The same; None too if they are of another zone or of other rows."""
        last = self.readings
        if last is None or last.values.keys() != feed.nothing.keys():
            return None
        forms = {name: (feed.rows or len(v), *v.shape[1:]) for name, v in feed.nothing.items()}
        return last if all(last.values[name].shape == form for name, form in forms.items()) else None

    @property
    def current(self) -> bool:
        """Whether the values are those of the ledger's version. A rise that a death has cut short is completed."""
        if self.now is None or self.readings is None:
            return False
        if self.now.version == self.ledger.data_version + 1:
            self.ledger.new_data(self.now.days)
        return self.now.version == self.ledger.data_version

    def rise(
        self, readings: Readings, good: float, reading: Reading | None = None, days: ReadingDays | None = None
    ) -> int:
        """A new version with these values, good at running time `good`. Returns its number.
        Raises Stopped if the disk fails.

        `reading`: what the source gave last, and from which files. `days`: of whose readings the data are the mean.
        """
        version, before = self.ledger.data_version + 1, self.now
        files, forgotten = _remembered(before, reading)
        stamp = reading.stamp if reading and reading.stamp else before.stamp if before else ""
        times = np.stack([readings.read, readings.until]).tobytes()
        self._write(
            StoredValues(
                self.ledger.id,
                version,
                running(self.ledger),
                good,
                pack(readings.values),
                stamp,
                times,
                readings.number,
                files,
                forgotten,
                days,
            )
        )
        self.ledger.new_data(days)
        return version

    def settle(self, readings: Readings, now: float) -> None:
        """The same values of the same version with these times; none of them is after running time `now`."""
        assert self.now is not None
        times, past = np.stack([readings.read, readings.until]).tobytes(), (self.now.risen, self.now.read)
        risen, read = (min(then, now) for then in past)
        settled = replace(self.now, times=times, number=readings.number, risen=risen, read=read)
        if settled != self.now:
            self._write(settled)

    def _write(self, stored: StoredValues) -> None:
        try:
            write_file(self.path, msgspec.msgpack.encode(stored), mode=0o600)
        except OSError as error:
            raise Stopped(f"{self.path}: {error.strerror}, expected to write the values of a data version") from None
        self.now = stored


def _remembered(before: StoredValues | None, reading: Reading | None) -> tuple[Files, int]:
    """The files that were read, those that are there and the last of the others;
    and how late one was made that is not in them.
    """
    old, forgotten = (before.files, before.forgotten) if before else ({}, 0)
    if reading is None or reading.files is None:
        return old, forgotten
    files = {key: known for key, known in old.items() if key not in reading.files} | reading.files
    gone = [key for key in files if key not in reading.there]
    for key in [*gone[: max(len(gone) - GONE, 0)], *list(files)[: max(len(files) - MOST_FILES, 0)]]:
        if (known := files.pop(key, None)) is not None:
            forgotten = max(forgotten, known.born)
    return files, forgotten


def values_file(state: str, node: str) -> Path:
    return Path(state) / f"{node}.intake"


def last_values(path: Path) -> StoredValues | None:
    """What a device has kept there; None if there is nothing whole."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=StoredValues)
    except (OSError, msgspec.DecodeError):
        return None


def running(ledger: Ledger) -> float:
    """Seconds that the device has run, over all its sessions."""
    return ledger.spends.running
