"""A site on two connections: to the fleet above, and to its devices, anew when they have another coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site
from hushgrid.node.runtime.event_loop import serve_all
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.served import Served
from hushgrid.node.transport.link import Link
from hushgrid.node.wire import Publication


class Seat(NamedTuple):
    """One of its ends, as a loop drives it."""

    end: Served
    link: Link
    seal: Callable[[list[Publication]], Iterable[Publication]] = lambda publications: publications


class TwoLinks:
    """`below` makes the connection of a coordinator of its devices; `ended` hears once that their run is over."""

    def __init__(
        self,
        site: Site,
        above: Seat,
        below: Callable[[SiteCoordinator], Seat],
        ended: Callable[[SiteCoordinator], None] = lambda _: None,
    ) -> None:
        self.site, self.above, self._make, self._on_end = site, above, below, ended
        self.below: Seat | None = None
        self.served: SiteCoordinator | None = None  #: the devices' coordinator that `below` is of
        self._heard: SiteCoordinator | None = None  #: of whose end was told last

    def serve(
        self,
        over: Callable[[], bool],
        signals: Callable[[], bool] | Signals,
        wait: Callable[[], float] = lambda: inf,
    ) -> None:
        """Until `over`, which is asked at every turn of the loop, or somebody asks to end. wait: as in `serve_all`."""
        stop: Callable[[], bool] = signals.__bool__ if isinstance(signals, Signals) else signals
        ended = False

        def turn() -> bool:
            nonlocal ended
            if self._exchange():
                return True
            ended = over()
            return ended

        while not ended and not stop():
            if self.site.lower is not self.served:
                self.leave()
                self.served = self.site.lower
                self.below = self._make(self.served) if self.served is not None else None
            seats = [self.above, *([self.below] if self.below else [])]
            serve_all([(seat.end, seat.link) for seat in seats], turn, signals, wait)

    def _exchange(self) -> bool:
        """What goes from one end to the other. Whether there is another coordinator below now."""
        above, below = self.site.exchange()
        self.above.link.send(self.above.seal(above))
        if self.site.lower is not self.served:
            return True
        lower = self.served
        if lower is not None and self.below is not None:
            self.below.link.send(self.below.seal(below))
        if (concluded := self.site.concluded) is not self._heard and concluded is not None:
            self._heard = concluded
            self._on_end(concluded)
        return False

    def leave(self) -> None:
        """The connection to the devices ends."""
        if self.below is not None:
            self.below.link.close(clear=(), forget=False)
            self.below = None

    def close(self) -> None:
        """Both end."""
        self.leave()
        self.above.link.close(clear=(), forget=False)
