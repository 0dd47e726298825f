"""How a device gets its data: from the file that its owner replaces."""

from __future__ import annotations

from collections.abc import Callable

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.durable import stamp
from hushgrid.node.log import Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.kind import Device


class Intake:
    """The device with its data as their file holds them; a file that is another one is a new data version.

    Whether it is another is judged by inode, size and time, never by what it holds: that would tell whether two data sets
    are equal. The version is raised in the ledger before the new data are used.
    """

    def __init__(self, config: DeviceConfig, path: str, ledger: Ledger, log: Callable[[str], None]) -> None:
        """Reads the data. InputError."""
        self.config, self.path, self.ledger, self.log = config, path, ledger, log
        self.file = config.file
        self.device, self._stamp = self._read()
        ledger.saw_data(self._stamp)

    def __call__(self, every: float | None) -> Device:
        self.look()
        return self.device

    @property
    def age(self) -> float | None:
        return None

    def look(self) -> None:
        """Takes the data of now; keeps those of before where the file cannot be read."""
        try:
            if self._seen() != self._stamp:
                device, stamp = self._read()
                self.ledger.saw_data(stamp)
                self.device, self._stamp = device, stamp
                self.log(f"{self.file} was replaced: data version {self.ledger.data_version}")
        except InputError as error:
            self.log(Warned(f"the data stay as they were: {error}"))

    def _read(self) -> tuple[Device, str]:
        """Data and stamp of one and the same file, even where it is being replaced meanwhile."""
        while True:
            before = self._seen()
            device = self.config.kind.device(self.config, self.path)
            if self._seen() == before:
                return device, before

    def _seen(self) -> str:
        try:
            return stamp(self.file)
        except OSError as error:
            raise InputError(f"{self.file}: {error.strerror}, expected this device's data") from None
