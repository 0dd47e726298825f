"""A coordinator and members of a benchmark, served until their run is over; and the brokers that are here."""

from __future__ import annotations

import os

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.broker.servers.mosquitto import find_mosquitto
from hushgrid.lab.benchmarks.common.bare import PATIENCE_S
from hushgrid.node.runtime.event_loop import link_for, serve
from hushgrid.node.runtime.member import Member


def brokers_here() -> list[str]:
    return ["mosquitto", "embedded"] if find_mosquitto() else ["embedded"]


def coordinate(centre: Coordinator, url: str) -> None:
    """Its whole run; its error, where it has one."""
    link = link_for(centre, url, None)
    try:
        link.connect(PATIENCE_S)
        serve(centre, link, lambda: centre.finished)
    finally:
        link.close(clear=centre.retained, forget=True)
    if centre.error:
        raise centre.error


def attend(member: Member, url: str) -> None:
    """It takes part until the run has ended, or whoever started its process is gone."""
    link = link_for(member, url, None)
    link.connect(PATIENCE_S)
    serve(member, link, lambda: member.finished or os.getppid() == 1)
    link.close(clear=member.retained, forget=True)
