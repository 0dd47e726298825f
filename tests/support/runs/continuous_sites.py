"""Intervals of sites of devices with rows, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushgrid.broker.simulation.memory import Served
from hushgrid.broker.sites.lower import SiteCoordinator
from hushgrid.broker.sites.site import Site, below_of, fleet_of
from hushgrid.broker.sites.upper import UpperMember
from hushgrid.lab.benchmarks.continuous import NAME
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR
from tests.support.runs.continuous_fleet import RowFleet
from tests.support.runs.masked_runs import masked

WAIT_S, SILENT_S = 4.0, 2.0  #: of a site; the fleet is more patient


def sites_of_three(place: Path, *, m: int = 3, s: int = 3, rounds: int = 2, answers: int = 6, **keys: Any) -> SiteFleet:
    """Three sites of three devices; m sites of a round at least, and s devices of a site."""
    how = {"corrupt": 0, "contributors": s, "sites": {"number": 3, "contributors": m}}
    privacy = {"epsilon": 1e9, "answers": answers, "masked": how}
    return SiteFleet(place, masked(place / "rows", nodes=9, privacy=privacy, algorithm={"rounds": rounds}), **keys)


class SiteFleet(RowFleet):
    """As `RowFleet`, in two levels."""

    def __init__(self, directory: Path, raw: dict[str, Any], **keys: Any) -> None:
        super().__init__(directory, raw, **{"wait_s": 20.0, "silent_s": 20.0} | keys)
        for site in self.rows.plan.sites:
            self.comes(site)

    def paid(self) -> dict[str, int]:
        """The answers of each device's life."""
        return {node: self.ledgers[node].spends.answers() for node in self.rows.plan.nodes}

    def _member(self, zone: str) -> Served:
        if zone in self.rows.plan.sites:
            return self._site(zone)
        log = self.logs.setdefault(zone, []).append
        fleet = fleet_of(NAME, self.rows.plan.site_of[zone])
        return Member(fleet, self._zone(zone), self._ledger(zone), None, simulated=Simulated(self.seed), log=log)

    def _site(self, name: str) -> Site:
        log, file = self.logs.setdefault(name, []).append, below_of(name)

        def begin(plan: RunPlan, among: list[str] | None) -> SiteCoordinator:
            if file in self.ledgers:
                self.ledgers[file].close()
            ledger = self.ledgers[file] = Ledger(self.directory / f"{file}.ledger", COORDINATOR, durable=False)
            waits = {"wait_s": WAIT_S, "silent_s": SILENT_S, "missed": lambda error: log(str(error))}
            return SiteCoordinator(name, fleet_of(NAME, name), plan, "", ledger, among=among, **waits)

        return Site(UpperMember(self.rows.site(name), NAME, self._ledger(name), log), begin)
