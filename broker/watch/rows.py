"""A fleet as rows: all that is known of each node, whoever has said it."""

from __future__ import annotations

import calendar
import time

from msgspec import to_builtins

from hushgrid.broker.watch.nodes import FleetNode
from hushgrid.kernels.errors import printable
from hushgrid.kernels.types import Document
from hushgrid.node.wire import COORDINATOR

WORDS = 32  #: characters of a text from outside


def rows(fleet: str, seen: dict[str, FleetNode]) -> Document:
    """All that is known of the nodes: {fleet, nodes: [a row each]}. What nobody has said is null."""
    centre = seen.get(COORDINATOR)
    return {"fleet": fleet, "nodes": [_row(node, centre) for node in seen.values()]}


def _row(node: FleetNode, centre: FleetNode | None) -> Document:
    birth, report, progress = node.birth, node.status, node.progress
    offered = birth.capabilities if birth else None
    awaited = centre.status if centre and centre.status and node.name in centre.status.waits_for else None
    late = report.late_s if report and node.name == COORDINATOR else awaited.waits_s if awaited else None
    run = birth.run.hex() if birth and birth.run else report.run if report else progress.run.hex() if progress else ""
    said_of = [s for s in (report, centre and centre.status) if s and s.run == run]
    return {
        "node": node.name,
        "there": node.there,
        "since": report.since if report and node.there else None,
        "gone_since": None if node.there else node.gone,
        "version": printable(offered.version if offered else report.version if report else "", WORDS) or None,
        "wire": getattr(offered, "wire", None) or (report.wire if report else None),
        "session": birth.session if birth else report.session if report else None,
        "state": "off" if not node.there else report.state if report else "running" if birth and birth.run else "idle",
        "run": run or None,
        "round": next((s.round for s in said_of if s.round is not None), _told(centre, run)),
        "rounds": next((s.rounds for s in said_of if s.rounds is not None), None),
        "late_s": late,
        "due": report.due if report else None,
        "waits_for": list(report.waits_for) if report else [],
        "refuses": list(report.refuses) if report else [],
        "interval": to_builtins(report.interval) if report and report.interval else None,
        "epsilon": report.epsilon if report else None,
        "lifetime": report.lifetime if report else None,
        "epsilon_left": report.epsilon_left if report else offered.budget_left if offered else None,
        "epsilon_left_life": report.epsilon_left_life if report else None,
        "window_s": report.window_s if report else None,
        "runs_out": report.runs_out if report else None,
        "certificate_days": report.certificate_days if report else offered.certificate_days if offered else None,
        "last": report.last if report and report.last else None,
        "refused": report.refused if report and report.refused else None,
        "refused_at": report.refused_at if report else None,
        "data_age_s": report.data_age_s if report else None,
        "barred": [printable(topic, 2 * WORDS) for topic in birth.barred] if birth else [],
        "at": report.at if report else None,
    }


def _told(centre: FleetNode | None, run: str) -> int | None:
    """Rounds that are done in a run, as the coordinator's retained state says: of a run under way nobody else does."""
    progress = centre.progress if centre else None
    return progress.round if progress and progress.run.hex() == run else None


def seconds(moment: str | None) -> float:
    """A moment of a status as s since 1970; 0 without one, or of one that no calendar has."""
    try:
        return float(calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))) if moment else 0.0
    except ValueError:
        return 0.0
