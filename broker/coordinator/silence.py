"""How long each member has been silent, by the coordinator's own clock: it stands still while the broker is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable


class Silence:
    """When each member that is waited for was heard last, or asked."""

    def __init__(self) -> None:
        self.now = 0.0  #: of the coordinator's clock, s
        self.fresh = 0.0  #: silence counts from this time on, s
        self.wall: Callable[[], float] = time.time
        self._last: dict[str, float] = {}

    def tick(self, now: float, waiting: Iterable[str]) -> None:
        """Some time has passed. `waiting`: the members that are waited for."""
        self.now = now
        self._last = {m: max(self._last.get(m, now), self.fresh) for m in waiting}

    def ask(self, members: Iterable[str]) -> None:
        """Something was asked of these members just now."""
        self._last = dict.fromkeys(members, self.now)

    def end(self, member: str, *, asked: bool = False) -> None:
        """A member says something. `asked`: it counts from when it was asked, if it was."""
        self._last[member] = self._last.get(member, 0.0) if asked else self.now

    def longer(self, members: Iterable[str], seconds: float) -> list[str]:
        """Those of these members that have been silent for longer."""
        return [m for m in members if self.now - self._last[m] > seconds]

    def moment(self, seconds: float = 0.0) -> str:
        """The time of day, so many seconds ago."""
        return time.strftime("%H:%M:%S", time.localtime(self.wall() - seconds))

    def words(self, member: str) -> str:
        """Since when a member has been silent."""
        seconds = self.now - self._last[member]
        return f"{member} silent since {self.moment(seconds)} ({seconds:.0f} s)"
