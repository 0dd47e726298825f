"""Intervals of sites, of devices with rows or of zones, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushgrid.broker.simulation.memory import Served
from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.problems.power_flow import ZoneSetup
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site, below_of, fleet_of
from hushgrid.broker.sites.upper import UpperMember
from hushgrid.lab.benchmarks.continuous import NAME
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import Fleet, RowFleet
from tests.support.runs.day_fleet import DayFleet
from tests.support.runs.masked_runs import masked

WAIT_S, SILENT_S = 4.0, 2.0  #: of a site; the fleet is more patient
PATIENCE = {"wait_s": 20.0, "silent_s": 20.0}


def sites_of_three(place: Path, *, m: int = 3, s: int = 3, rounds: int = 2, answers: int = 6, **keys: Any) -> SiteFleet:
    """Three sites of three devices; m sites of a round at least, and s devices of a site."""
    how = {"corrupt": 0, "contributors": s, "sites": {"number": 3, "contributors": m}}
    privacy = {"epsilon": 1e9, "answers": answers, "masked": how}
    return SiteFleet(place, masked(place / "rows", nodes=9, privacy=privacy, algorithm={"rounds": rounds}), **keys)


class SiteFleet(RowFleet):
    """As `RowFleet`, in two levels."""

    def __init__(self, directory: Path, raw: dict[str, Any], **keys: Any) -> None:
        super().__init__(directory, raw, **PATIENCE | keys)
        for site in self.rows.plan.sites:
            self.comes(site)

    def paid(self) -> dict[str, int]:
        """The answers of each device's life."""
        return {node: self.ledgers[node].spends.answers() for node in self.rows.plan.nodes}

    def _member(self, zone: str) -> Served:
        if zone in self.rows.plan.sites:
            return site_of(self, self.rows, zone)
        log = self.logs.setdefault(zone, []).append
        fleet = fleet_of(NAME, self.rows.plan.site_of[zone])
        return Member(fleet, self._zone(zone), self._ledger(zone), None, simulated=Simulated(self.seed), log=log)


class ZoneSiteFleet(DayFleet):
    """Zones in two levels that plan hour by hour."""

    def __init__(self, directory: Path, setup: ZoneSetup, **keys: Any) -> None:
        super().__init__(directory, setup, **PATIENCE | keys)
        for site in setup.plan.sites:
            self.comes(site)

    def _member(self, zone: str) -> Served:
        sites = self.setup.plan.sites
        return site_of(self, self.setup, zone) if zone in sites else super()._member(zone)

    def fleet_of(self, zone: str) -> str:
        return fleet_of(NAME, self.setup.plan.site_of[zone])


def site_of(fleet: Fleet, setup: Setup, name: str) -> Site:
    """A site of a fleet."""
    log, file = fleet.logs.setdefault(name, []).append, below_of(name)
    source = setup.scenario.kind.source(setup.scenario.problem)

    def begin(plan: RunPlan, among: list[str] | None) -> SiteCoordinator:
        if file in fleet.ledgers:
            fleet.ledgers[file].close()
        ledger = fleet.ledgers[file] = Ledger(fleet.directory / f"{file}.ledger", COORDINATOR, durable=False)
        waits = {"wait_s": WAIT_S, "silent_s": SILENT_S, "missed": lambda error: log(str(error))}
        return SiteCoordinator(name, fleet_of(NAME, name), plan, source, ledger, among=among, **waits)

    return Site(UpperMember(setup.site(name), NAME, fleet._ledger(name), log), begin)
