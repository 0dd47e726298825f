"""`hushgrid coordinator CONFIG` of a site: a member of the fleet above and the coordinator of its devices, run after
run.

Which run there is, and when it begins, is said above. The two ends have connections and ledgers of their own, in one
loop.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from math import inf
from pathlib import Path

from hushgrid.broker.coordinator.status import Reporter, Views
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site
from hushgrid.broker.sites.upper import SiteDevice, UpperMember
from hushgrid.broker.sites.zones import ZoneSite
from hushgrid.kernels.errors import Stopped
from hushgrid.node.config.coordinator import Above, SiteConfig
from hushgrid.node.log import Log, Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems import masking
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.event_loop import link_for, serve_all
from hushgrid.node.runtime.reporter import Reporter as DeviceReporter
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import Unit
from hushgrid.node.schema.sections import AllowMasked
from hushgrid.node.served import Served
from hushgrid.node.transport.certificate import OwnCertificate, days_of
from hushgrid.node.transport.link import Link
from hushgrid.node.wire import COORDINATOR


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


def masked_site(up: Above) -> SiteDevice:
    """A site whose devices mask: it masks against the other sites, by the certificate of its file."""
    make, believed = masking.masks_by(up.site, up.tls, up.believed), up.believed

    def masks(run: bytes, ledger: Ledger, _: AllowMasked | None, exposed: float) -> masking.Masks:
        return make(run, ledger, believed, exposed)

    return SiteDevice(up.site, masks)


class Service:
    """A site while it runs."""

    def __init__(self, config: SiteConfig, say: Log, above: Ledger, below: Ledger) -> None:
        self.config, self.say, self.below, self.unit = config, say, below, Unit()
        up = config.above
        device = masked_site(up) if up.case is None else ZoneSite(up.site, up.case, up.ignore)
        self.reports_below, self.views = Reporter(config), Views(say)
        self.site = Site(UpperMember(device, up.fleet, above, say), self._begin)
        self.link_above = link_for(self.site.upper, up.broker, up.tls, keepalive=up.keepalive)
        self.reports_above = DeviceReporter(config, self.site.upper, self.link_above)
        self.reports_above.certificate = OwnCertificate(up.tls)
        self.site.upper.days = lambda: days_of(up.tls)
        self.link_below: Link | None = None
        self.served: SiteCoordinator | None = None  #: the devices' coordinator that `link_below` is of
        self._concluded: SiteCoordinator | None = None
        self._greeted = False

    def _begin(self, plan: RunPlan) -> SiteCoordinator:
        """The devices' coordinator for a run above. It waits for them, and says once who is missing."""
        c = self.config

        def missed(error: Stopped) -> None:
            self.say(Warned(f"{error}; still waiting"))

        lower = SiteCoordinator(
            c.above.site, c.fleet, plan, c.above.case or "", self.below, wait_s=60.0, silent_s=c.silent_s, missed=missed
        )
        lower.log = self.say
        self.reports_below.plans(lower)
        return lower

    def serve(self, signals: Signals) -> None:
        """Both connections; anew when the devices have another coordinator."""
        while not signals:
            if self.site.lower is not self.served:
                self._leave()
                self.served = self.site.lower
                if self.served is not None:
                    c = self.config
                    self.link_below = link_for(self.served, c.broker, c.tls, keepalive=c.keepalive)
            pairs: list[tuple[Served, Link]] = [(self.site.upper, self.link_above)]
            if self.served is not None and self.link_below is not None:
                pairs.append((self.served, self.link_below))
            serve_all(pairs, self._turn, signals, lambda: inf)

    def _turn(self) -> bool:
        """What goes from one end to the other, at every turn of the loop. Whether there is another coordinator below
        now.
        """
        if not self._greeted and self.link_above.connects:
            self._greeted = True
            self.say(f"ready on {self.config.above.broker}, fleet {self.config.above.fleet}")
        above, below = self.site.exchange()
        self.link_above.send(above)
        if self.site.lower is not self.served:
            return True
        lower = self.served
        if lower is not None and self.link_below is not None:
            self.link_below.send(below)
            if lower.finished and lower is not self._concluded:
                self._concluded = lower
                lower.conclude()
                self.reports_below.anew()
                self.say(f"its devices' run {lower.run.hex()[:8]} {'stopped' if lower.error else 'done'}")
            self.reports_below(lower, self.link_below)
            self.views(lower, self.link_below)
        self.reports_above()
        driver = self.site.upper.driver
        self.unit.shows(f"in run {driver.run.hex()[:8]}" if driver else "waits for a run")
        return False

    def _leave(self) -> None:
        if self.link_below is not None:
            self.link_below.close(clear=(), forget=False)
            self.link_below = None

    def close(self) -> None:
        """Both connections end, and both fleets are told."""
        self.reports_above.publish("off")
        if self.served is not None and self.link_below is not None:
            self.reports_below.publish(self.served, self.link_below, "off")
        self._leave()
        self.link_above.close(clear=(), forget=False)
