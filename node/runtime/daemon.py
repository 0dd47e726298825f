"""`hushgrid node CONFIG`: one device, for as long as it is on."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.kernels.errors import InputError, Stopped
from hushgrid.node import system
from hushgrid.node.config.brokers import check_brokers
from hushgrid.node.config.device import FIXED, DeviceConfig, load_device
from hushgrid.node.config.files import with_fixed
from hushgrid.node.config.trust import credentials_of
from hushgrid.node.log import Log, Warned
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.problems.registry import TAGS
from hushgrid.node.runtime.event_loop import link_for, serve_all
from hushgrid.node.runtime.member import Member
from hushgrid.node.runtime.reporter import Reporter
from hushgrid.node.runtime.signals import Signals
from hushgrid.node.runtime.systemd import Unit
from hushgrid.node.schema.sections import Allow, Budget
from hushgrid.node.served import Served
from hushgrid.node.site.data_source import DataSource, data_source_of
from hushgrid.node.site.local_link import LocalEnd
from hushgrid.node.site.publisher import Publisher, Sinks, ends_of
from hushgrid.node.transport.certificate import OwnCertificate, days_of
from hushgrid.node.transport.link import Link

if TYPE_CHECKING:
    from hushgrid.node.trust.files import Credentials

#: Keys whose change is one line of the log; that of data, budget and allow says more.
SAID = ("source", "fresh", "retention", "sink", "keep")


class Service:
    """A device while it runs: what it says of itself, and its files read again when its owner asks."""

    def __init__(
        self,
        config: DeviceConfig,
        path: str,
        member: Member,
        link: Link,
        data_source: DataSource,
        publisher: Publisher,
        signals: Signals,
        end: Served | None = None,
    ) -> None:
        """`end`: the member behind its guard, if its broker is not trusted."""
        self.config, self.path, self.member, self.link, self.data_source = config, path, member, link, data_source
        self.end_of_fleet = end or member
        self.publisher, self.signals = publisher, signals
        self.unit, self.reporter = Unit(), Reporter(config, member, link)
        self.certificate = self.reporter.certificate = OwnCertificate(config.tls)
        self.ends: list[LocalEnd] = []  #: of local connections, that the loop drives now
        self._greeted = False

    def serve(self) -> None:
        """Until somebody asks to end. Other local connections are another loop."""
        while not self.signals:
            self.ends = ends_of(self.data_source, self.publisher)
            pairs: list[tuple[Served, Link]] = [(self.end_of_fleet, self.link), *((end, end.link) for end in self.ends)]
            serve_all(pairs, self, self.signals, lambda: self.publisher.wait)

    def __call__(self) -> bool:
        """What is due besides the run, at every turn of the loop. Whether there are other connections now."""
        asked = self.signals.reload
        if asked:
            self.signals.reload = False
            with self.unit.reloading():
                self._reload()
            if ends_of(self.data_source, self.publisher) != self.ends:
                return True
        if (asked or system.machine.wall() >= self.certificate.looks_at) and self._renewed():
            return True
        if not self._greeted and self.link.connects:
            self._greeted = True
            url, session = self.config.broker, self.member.session
            self.member.log(f"ready on {url}, fleet {self.config.fleet}, session {session}")
        self.unit.shows(self._standing())
        self.reporter()
        self.publisher.turn(None if self.member.driver else self.member.last)
        return False

    def end(self) -> None:
        """It ends in order, and says so."""
        self.unit.stopping()
        self.reporter.publish("off")

    def _reload(self) -> None:
        """The owner's file again, and the data. A file that is wrong changes nothing, and is said in one line."""
        log = self.member.log
        try:
            config = with_fixed(self.config, load_device(Path(self.path)), FIXED, self.path, log)
            check_brokers(config.broker, config.broker_in_clear, config.source, config.sink, Path(self.path))
            sinks = self.publisher.sinks_of(config)
            data_source = self.data_source.declared(config)
        except InputError as error:
            log(Warned(f"its configuration stays as it was: {error}"))
        else:
            self._take(config, data_source, sinks)
        self.data_source.look()

    def _renewed(self) -> bool:
        """Connects again by a certificate that has been renewed: if its owner asks, or once the old one's last day has
        come.
        """
        try:
            if not self.link.connected or not self.certificate.replaced(system.machine.wall()):
                return False
        except InputError as error:
            self.member.log(Warned(f"its certificate stays as it was: {error}"))
            return False
        self.member.log("its certificate has been renewed: it connects again")
        self.link.close(forget=False)
        self.link.open()
        return True

    def _take(self, config: DeviceConfig, data_source: DataSource, sinks: Sinks) -> None:
        """What the file says holds from now on: of data, from the next run on."""
        member, before = self.member, self.config
        self.config, self.reporter.config, member.ledger.runs.keep = config, config, config.keep
        self.data_source = member.renew = data_source
        self.publisher.declare(config, sinks, data_source)
        if changed := [key for key in SAID if getattr(config, key) != getattr(before, key)]:
            member.log(f"{', '.join(changed)}: as its file says from now on")
        if (config.budget, config.allow) != (before.budget, before.allow):
            self._govern(config.budget, config.allow)

    def _govern(self, budget: Budget, allow: Allow) -> None:
        """The owner's limits are others. A smaller budget holds at once, all else from the next consent."""
        member = self.member
        member.budget, member.allow = budget, allow
        member.consents += 1
        if member.driver and member.budget_check:
            member.budget_check.tighten(budget)
        self.link.send(self.end_of_fleet.connected())  # its birth says what is left
        member.log(f"the budget is epsilon {budget.epsilon:g} from now on")

    def _standing(self) -> str:
        """What the device does, or waits for."""
        if not self.link.connected:
            return f"waits for the broker {self.config.broker}: {self.link.why}"
        driver = self.member.driver
        return f"in run {driver.run.hex()[:8]}" if driver else "waits for a run"


def guarded(member: Member, credentials: Credentials | None) -> Served:
    """The device behind its guard; itself, if its owner trusts the broker."""
    if credentials is None:
        return member
    from hushgrid.node.trust.guarded import Guarded

    return Guarded(member, credentials, lambda: member.peers)


def main(config: DeviceConfig, path: str, signals: Signals) -> int:
    """Run a device until it is told to stop. It waits for the broker itself, for as long as that takes."""
    say = Log(config.node)
    with (
        ExitStack() as closing
    ):  # link, publisher, data source and ledger, in this order: each closes whatever the others did
        _serve(config, path, signals, say, closing)
    say(f"stopped by {signals.asked}")
    return 0


def _serve(config: DeviceConfig, path: str, signals: Signals, say: Log, closing: ExitStack) -> None:
    """Until it is told to stop. What it opens is closed by `closing`."""
    state = Path(config.state)
    credentials = credentials_of(config.node, config.trust, config.tls, path)
    ledger = Ledger(
        state / f"{config.node}.ledger", config.node, Path(config.mark) if config.mark else None, keep=config.keep
    )
    closing.callback(ledger.close)
    ledger.born_with(tuple(TAGS))
    data_source = data_source_of(config, path, ledger, say)
    if why := ledger.refusal:
        if ledger.marks.lost:  # its disk may come back: tried again, with a pause, by whoever restarts us
            raise Stopped(f"{config.node}: {why}")
        say(Warned(f"refuses every run: {why}"))
    publisher = Publisher(config, path, data_source, ledger, say)
    journal = NoiseJournal(Path(os.environ.get("RUNTIME_DIRECTORY", config.state)) / f"{config.node}.drawn", ledger)
    member = Member(
        config.fleet,
        data_source.device,
        ledger,
        config.budget,
        config.allow,
        log=say,
        outcome=publisher.outcome(config.kind.outcome(data_source.device, state)),
        renew=data_source,
        journal=journal,
    )
    member.days = partial(days_of, config.tls)
    link = link_for(member, config.broker, config.tls, keepalive=config.keepalive)
    service = Service(config, path, member, link, data_source, publisher, signals, guarded(member, credentials))
    closing.callback(lambda: service.data_source.close())  # that of then
    closing.callback(publisher.close)
    closing.callback(lambda: link.close(clear=member.retained, forget=False))
    service.unit.ready()
    service.serve()
    service.end()
    journal.close()
