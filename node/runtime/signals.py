"""How a process is asked to end, or to look again."""

from __future__ import annotations

import signal
from types import FrameType


class Signals:
    """SIGTERM and SIGINT ask the loop to end; what is under way is finished first. SIGHUP: look at the data again."""

    def __init__(self) -> None:
        self.asked = ""
        self.reload = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGHUP, self._hup)

    def _hup(self, number: int, _: FrameType | None) -> None:
        self.reload = True

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.asked = signal.Signals(number).name

    def __bool__(self) -> bool:
        return bool(self.asked)
