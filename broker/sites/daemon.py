"""`hushgrid coordinator CONFIG` of a site: a member of the fleet above and the coordinator of its devices, run after
run.

Which run there is, and when it begins, is said above. The two ends have connections and ledgers of their own, in one
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.coordinator.status import Reporter, Views
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site
from hushgrid.broker.sites.two_links import Seat, TwoLinks
from hushgrid.broker.sites.upper import SiteDevice, UpperMember
from hushgrid.broker.sites.zones import ZoneSite
from hushgrid.kernels.errors import Stopped
from hushgrid.node.config.coordinator import Above, SiteConfig
from hushgrid.node.config.trust import credentials_of
from hushgrid.node.log import Log, Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems import masking
from hushgrid.node.problems.kind import Device
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.endpoint import Endpoint
from hushgrid.node.runtime.event_loop import link_for
from hushgrid.node.runtime.reporter import Reporter as DeviceReporter
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import Unit
from hushgrid.node.schema.sections import AllowMasked
from hushgrid.node.transport.certificate import OwnCertificate, days_of
from hushgrid.node.transport.link import Link
from hushgrid.node.wire import COORDINATOR

if TYPE_CHECKING:
    from hushgrid.node.trust.files import Credentials


def main(config: SiteConfig, signals: Signals) -> int:
    """Serves both fleets until it is told to stop."""
    name, state = config.above.site, Path(config.state)
    say = Log(name)
    with ExitStack() as stack:
        above = stack.enter_context(closing(Ledger(state / f"{name}.ledger", name)))
        below = stack.enter_context(closing(Ledger(state / f"{COORDINATOR}.ledger", COORDINATOR)))
        service = Service(config, say, above, below)
        stack.callback(service.close)
        service.unit.ready()
        service.serve(signals)
        service.unit.stopping()
    say(f"stopped by {signals.asked}")
    return 0


def member_above(up: Above) -> Device:
    """What it has where a device has its data. Raises InputError if the public case, or its certificate, is not
    there.
    """
    return masked_site(up) if up.case is None else ZoneSite(up.site, up.case, up.ignore)


def masked_site(up: Above) -> SiteDevice:
    """A site whose devices mask: it masks against the other sites, by the certificate of its file."""
    make, believed = masking.masks_by(up.site, up.tls, up.believed), up.believed

    def masks(run: bytes, ledger: Ledger, _: AllowMasked | None, exposed: float) -> masking.Masks:
        return make(run, ledger, believed, exposed)

    return SiteDevice(up.site, masks)


def guarded(end: Endpoint, link: Link, credentials: Credentials | None, peers: Callable[[], Collection[str]]) -> Seat:
    """The end behind its guard; as it is, if its broker is trusted."""
    if credentials is None:
        return Seat(end, link)
    from hushgrid.node.trust.guarded import Guarded

    guard = Guarded(end, credentials, peers)
    return Seat(guard, link, guard.seal)


class Service:
    """A site while it runs."""

    def __init__(self, config: SiteConfig, say: Log, above: Ledger, below: Ledger) -> None:
        self.config, self.say, self.below, self.unit = config, say, below, Unit()
        up = config.above
        self.reports_below, self.views = Reporter(config), Views(say)
        self.site = Site(UpperMember(member_above(up), up.fleet, above, say), self._begin)
        link = link_for(self.site.upper, up.broker, up.tls, keepalive=up.keepalive)
        member = self.site.upper
        trust_above = credentials_of(up.site, up.trust, up.tls, "above")
        self.credentials = credentials_of(COORDINATOR, config.trust, config.tls, "a site's file", ())
        seat = guarded(member, link, trust_above, lambda: member.peers)
        self.links = TwoLinks(self.site, seat, self._seat, self._told)
        self.reports_above = DeviceReporter(config, self.site.upper, link)
        self.reports_above.certificate = OwnCertificate(up.tls)
        self.site.upper.days = lambda: days_of(up.tls)
        self._greeted = False

    def _begin(self, plan: RunPlan, among: list[str] | None) -> SiteCoordinator:
        """The devices' coordinator for a run above. It waits for them, and says who is missing: it goes on without
        these if enough are there, else it waits on.
        """
        c = self.config

        def missed(error: Stopped) -> None:
            self.say(Warned(f"{error}; still waiting"))

        lower = SiteCoordinator(
            *(c.above.site, c.fleet, plan, c.above.case or "", self.below),
            wait_s=c.wait_s,
            silent_s=c.silent_s,
            missed=missed,
            among=among,
        )
        if among is not None:
            self.say(Warned(f"its devices' run is made of {', '.join(among)}"))
        lower.log = self.say
        self.reports_below.plans(lower)
        return lower

    def _seat(self, lower: SiteCoordinator) -> Seat:
        c = self.config
        link = link_for(lower, c.broker, c.tls, keepalive=c.keepalive)
        return guarded(lower, link, self.credentials, lambda: lower.names)

    def serve(self, signals: Signals) -> None:
        """Both connections, until somebody asks to end."""
        self.links.serve(self._turn, signals)

    def _turn(self) -> bool:
        """What it says of itself at every turn of the loop."""
        links = self.links
        if not self._greeted and links.above.link.connects:
            self._greeted = True
            self.say(f"ready on {self.config.above.broker}, fleet {self.config.above.fleet}")
        if links.served is not None and links.below is not None:
            self.reports_below(links.served, links.below.link)
            self.views(links.served, links.below.link)
        self.reports_above()
        driver = self.site.upper.driver
        self.unit.shows(f"in run {driver.run.hex()[:8]}" if driver else "waits for a run")
        return False

    def _told(self, lower: SiteCoordinator) -> None:
        self.reports_below.anew()
        self.say(f"its devices' run {lower.run.hex()[:8]} {'stopped' if lower.error else 'done'}")

    def close(self) -> None:
        """Both connections end, and both fleets are told."""
        self.reports_above.publish("off")
        if self.links.served is not None and self.links.below is not None:
            self.reports_below.publish(self.links.served, self.links.below.link, "off")
        self.links.close()
