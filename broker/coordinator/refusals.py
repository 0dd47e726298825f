"""Which members have refused, interval after interval, and whom it is of no use to ask now."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hushgrid.node.wire import Birth, Capabilities, Mark

PATIENCE = 3  #: refusals in a row after which a member is asked again only once its birth is another


class Fewer(Protocol):
    """What a coordinator asks about a run without some of its members."""

    def possible(self, present: list[str]) -> bool:
        """Whether a run of these members alone can be made."""
        ...

    def passed_over(self, member: str, birth: Birth) -> str:
        """Why a member of this birth is not asked now, in one line; "" if it is."""
        ...


class Refusal(NamedTuple):
    """The last one of a member."""

    times: int  #: in a row
    session: int
    offer: tuple[Mark, Capabilities, int] | None  #: what its birth said
    interval: int  #: the number of the interval
    midway: bool  #: in the rounds of a run, which it has ended
    reason: str


class Refusals:
    """Of all members. They are known to this process alone: a coordinator that starts again asks everybody."""

    def __init__(self) -> None:
        self._last: dict[str, Refusal] = {}

    def note(self, member: str, birth: Birth | None, interval: int, reason: str, *, midway: bool) -> int:
        """A member has refused in an interval. Returns how often it has, in a row."""
        before = self._last.get(member)
        times = before.times + 1 if before else 1
        offer = _offer(birth) if birth else None
        self._last[member] = Refusal(times, birth.session if birth else -1, offer, interval, midway, reason)
        return times

    def forget(self, members: list[str]) -> None:
        """These have taken part in a run that is done."""
        for member in members:
            self._last.pop(member, None)

    def standing(self, member: str, birth: Birth, interval: int, *, without: bool = True) -> str:
        """Why a member of this birth would refuse in an interval, so that it is not asked; "" if it may not.

        It has refused so often, and its birth is the same; or it has ended the run of the interval before, and there may be
        one `without` it.
        """
        last = self._last.get(member)
        if last is None or birth.session != last.session:
            return ""
        same = last.times >= PATIENCE and _offer(birth) == last.offer
        ended = without and last.midway and interval == last.interval + 1
        return f"{last.reason} (not asked: {last.times} refusals in a row)" if same or ended else ""


def _offer(birth: Birth) -> tuple[Mark, Capabilities, int]:
    return birth.mark, birth.capabilities, birth.consents
