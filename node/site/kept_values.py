"""The values of a device's data version, beside its ledger: what the device holds is a function of the version alone.

A device that is started again within a run goes on with the values that the run began with, whatever its source says
now. Were they read again, one version would have two data sets. The file holds the data themselves, as the source does.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node.durable import write_file
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.feed import Values, pack, unpack, whole


class Kept(Struct, array_like=True, frozen=True):
    """The values of a data version. Times are the ledger's running time, s."""

    ledger: bytes  #: the ledger's id
    version: int
    risen: float  #: when the version was raised
    read: float  #: when the values were good
    values: bytes
    stamp: str = ""  #: how the source's file looked from outside

    @property
    def good(self) -> Values | None:
        """The values; None if the bytes are none."""
        try:
            found = unpack(self.values)
        except InputError:
            return None
        return found if whole(found) else None


class KeptValues:
    """The file of one device. It is written before the version rises in the ledger."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self.ledger = path, ledger
        found = last_kept(path)
        self.now = found if found and found.ledger == ledger.id else None

    @property
    def values(self) -> Values | None:
        """The last good values, of whatever version; None if there are none."""
        return self.now.good if self.now else None

    @property
    def current(self) -> bool:
        """Whether the values are those of the ledger's version. A rise that a death has cut short is completed."""
        if self.now is None or self.values is None:
            return False
        if self.now.version == self.ledger.data_version + 1:
            self.ledger.new_data()
        return self.now.version == self.ledger.data_version

    def rise(self, values: Values, read: float, stamp: str = "") -> int:
        """A new version with these values, good at `read` and from a file of that stamp. Returns its number. Raises Stopped if the disk fails."""
        version = self.ledger.data_version + 1
        kept = Kept(self.ledger.id, version, running(self.ledger), read, pack(values), stamp)
        try:
            write_file(self.path, msgspec.msgpack.encode(kept), mode=0o600)
        except OSError as error:
            raise Stopped(f"{self.path}: {error.strerror}, expected to write the values of a data version") from None
        self.now = kept
        self.ledger.new_data()
        return version


def kept_file(state: str, node: str) -> Path:
    return Path(state) / f"{node}.intake"


def last_kept(path: Path) -> Kept | None:
    """What a device has kept there; None if there is nothing whole."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None


def running(ledger: Ledger) -> float:
    """Seconds that the device has run, over all its sessions."""
    return ledger.running
