"""Which signals a process heeds. TERM and INT ask it to end; no other ends it.

HUP asks it to read its files again, USR1 asks a coordinator for a run. Every other signal is heard and means nothing.
The signals of a fault keep their effect: by ABRT systemd's watchdog ends a process whose loop stands still.
"""

from __future__ import annotations

import signal
from types import FrameType

#: Of a fault of the process itself, then those that cannot be heard, that stop and continue, and that end nothing.
LEFT = frozenset(
    getattr(signal, f"SIG{name}")
    for name in (
        *("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP"),
        *("KILL", "STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD", "URG", "WINCH"),
    )
)


class Signals:
    """What was asked of this process since it was last looked at. What is under way is finished first.

    A handler of ours, and no ignoring: what a process ignores, the programs that it starts would ignore too.
    """

    def __init__(self) -> None:
        self.asked = ""  #: the signal that asks to end
        self.reload = False  #: HUP: the files are to be read again
        self.begin = False  #: USR1: a run is to begin
        for number in signal.valid_signals() - LEFT:
            signal.signal(number, self._heard)

    def _heard(self, number: int, _: FrameType | None) -> None:
        match number:
            case signal.SIGTERM | signal.SIGINT:
                self.asked = signal.Signals(number).name
            case signal.SIGHUP:
                self.reload = True
            case signal.SIGUSR1:
                self.begin = True

    def __bool__(self) -> bool:
        return bool(self.asked)
