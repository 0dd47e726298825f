"""When the next run of a fleet that runs by itself is due: every so often, and never to catch up.

Time here is CLOCK_BOOTTIME, which goes on while the machine sleeps, and which nobody can set. It begins anew with each
boot of the machine, so what is remembered names the boot. Only across a boot the wall clock is asked how long the
machine was off, and it is believed for one interval at most: a clock without a battery may be decades wrong, either
way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import NamedTuple, Protocol

from msgspec import Struct

from hushgrid.node import system

EARLY = 0.01  #: of a period of a day; what begins no sooner before it counts as in it: clocks differ


class Remembered(Struct, frozen=True):
    """What a coordinator's ledger keeps of its schedule, from before each run begins."""

    number: int  #: of the interval that began last, from 1
    due: float  #: when the next one is, s of this boot's clock
    late: float  #: how much of that is jitter, s
    boot: str  #: which boot
    wall: float  #: when the next one is by the wall clock, s since 1970


class Moment(Struct, frozen=True):
    """A time by all clocks."""

    boot: str  #: which boot
    at: float  #: s of its clock
    wall: float  #: s of the wall clock


class Dated(Protocol):
    """What has the parts of a moment."""

    @property
    def boot(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def wall(self) -> float: ...


class Clocks(NamedTuple):
    """The clocks that a schedule reads, s."""

    boot: Callable[[], float] = system.boottime
    wall: Callable[[], float] = system.wall
    boot_id: Callable[[], str] = system.boot_id

    def moment(self, ago: float = 0.0) -> Moment:
        """So many seconds ago."""
        return Moment(self.boot_id(), self.boot() - ago, self.wall() - ago)

    def since(self, moment: Dated) -> float:
        """Seconds since then, by this boot's clock, else by the wall clock."""
        same = moment.boot != "" and moment.boot == self.boot_id()
        return self.boot() - moment.at if same else self.wall() - moment.wall


def periods(age: float, length: float) -> int:
    """How many periods of this length are over at this age, s."""
    return floor(age / length + EARLY)


class Schedule:
    """One run every `every` s, each up to `jitter` s later, which is drawn at random and public.

    Whatever was missed is not made up for: after a sleep, a stop or a run that took too long, the next run is due once.
    A run on its beat, or behind it by less than the middle between `jitter` and `every`, keeps the beat, so that jitter
    and small delays do not add up. A later one begins a new beat: the one after it is due `every` later. Intervals that
    are the periods of a day keep the day's beat whatever happens.
    """

    def __init__(
        self,
        every: float,
        jitter: float = 0.0,
        remembered: Remembered | None = None,
        clocks: Clocks | None = None,
        share: Callable[[], float] = system.share,
    ) -> None:
        """`remembered`: by an earlier process; None: the first run is due now. `share` draws from [0, 1)."""
        self.every, self.jitter, self.clocks, self.share = every, jitter, clocks or Clocks(), share
        self.number = remembered.number if remembered else 0
        self.late = min(max(remembered.late, 0.0), jitter) if remembered else 0.0
        self.due = self._since(remembered)  #: s of CLOCK_BOOTTIME

    def _since(self, remembered: Remembered | None) -> float:
        now = self.clocks.boot()
        if remembered is None:
            return now
        same = remembered.boot != "" and remembered.boot == self.clocks.boot_id()
        remaining = remembered.due - now if same else remembered.wall - self.clocks.wall()
        # However a clock was set meanwhile, no more than one interval is waited for.
        return now + min(max(remaining, 0.0), self.every + self.jitter)

    def declare(self, every: float, jitter: float) -> None:
        """Another interval from now on: the next run is due when it was, or after one interval if that is sooner."""
        self.every, self.jitter, self.late = every, jitter, min(self.late, jitter)
        self.due = min(self.due, self.clocks.boot() + every + jitter)

    @property
    def left(self) -> float:
        """Seconds until the next run is due; 0 if it is."""
        return max(self.due - self.clocks.boot(), 0.0)

    def begin(self, age: float | None = None) -> Remembered:
        """The next interval begins now. Returns what is to be remembered durably before anything of it is said.

        age: s since the beginning of a day whose periods the intervals are; None: they are no periods.
        """
        now = self.clocks.boot()
        beat = self.due - self.late
        if age is not None:
            beat = now - age + periods(age, self.every) * self.every
        elif now < self.due or now - beat >= (self.jitter + self.every) / 2:  # asked for early, or far too late
            beat = now
        self.number += 1
        self.late = self.jitter * self.share()
        self.due = beat + self.every + self.late
        wall = self.clocks.wall() + self.due - now
        return Remembered(self.number, self.due, self.late, self.clocks.boot_id(), wall)
