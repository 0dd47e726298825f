"""The rows of `hushgrid status`: one node each, as JSON and as a table."""

from __future__ import annotations

from typing import Any

from hushgrid.cli.operator.fleet import Seen
from hushgrid.kernels.errors import printable
from hushgrid.node.columns import columns
from hushgrid.node.wire import COORDINATOR

WORDS = 32  #: characters of a text from outside
HEAD = (
    *("node", "there", "version", "session", "run", "now", "round", "late", "left", "left in life", "runs out"),
    *("certificate", "last run", "last refusal"),
)


def rows(fleet: str, seen: dict[str, Seen]) -> dict[str, Any]:
    """All that is known of the nodes: {fleet, nodes: [a row each]}. What nobody has said is null."""
    centre = seen.get(COORDINATOR)
    return {"fleet": fleet, "nodes": [_row(node, centre) for node in seen.values()]}


def _row(node: Seen, centre: Seen | None) -> dict[str, Any]:
    birth, said, progress = node.birth, node.said, node.progress
    offered = birth.capabilities if birth else None
    awaited = centre.said if centre and centre.said and node.name in centre.said.waits_for else None
    late = said.late_s if said and node.name == COORDINATOR else awaited.waits_s if awaited else None
    run = birth.run.hex() if birth and birth.run else said.run if said else progress.run.hex() if progress else ""
    said_of = [s for s in (said, centre and centre.said) if s and s.run == run]
    return {
        "node": node.name,
        "there": node.there,
        "since": said.since if said and node.there else None,
        "gone_since": None if node.there else node.gone,
        "version": printable(offered.version if offered else said.version if said else "", WORDS) or None,
        "wire": getattr(offered, "wire", None) or (said.wire if said else None),
        "session": birth.session if birth else said.session if said else None,
        "state": "off" if not node.there else said.state if said else "running" if birth and birth.run else "idle",
        "run": run or None,
        "round": next((s.round for s in said_of if s.round is not None), _told(centre, run)),
        "rounds": next((s.rounds for s in said_of if s.rounds is not None), None),
        "late_s": late,
        "due": said.due if said else None,
        "waits_for": list(said.waits_for) if said else [],
        "refuses": list(said.refuses) if said else [],
        "epsilon_left": said.epsilon_left if said else offered.budget_left if offered else None,
        "epsilon_left_life": said.epsilon_left_life if said else None,
        "window_s": said.window_s if said else None,
        "runs_out": said.runs_out if said else None,
        "certificate_days": said.certificate_days if said else offered.certificate_days if offered else None,
        "last": said.last if said and said.last else None,
        "refused": said.refused if said and said.refused else None,
        "barred": [printable(topic, 2 * WORDS) for topic in birth.barred] if birth else [],
        "at": said.at if said else None,
    }


def _told(centre: Seen | None, run: str) -> int | None:
    """Rounds that are done in a run, as the coordinator's retained state says: of a run under way nobody else does."""
    progress = centre.progress if centre else None
    return progress.round if progress and progress.run.hex() == run else None


def table(found: dict[str, Any]) -> str:
    """The rows as text, and in a line below it who is waited for."""
    lines = [columns([_cells(row) for row in found["nodes"]], HEAD)]
    for row in found["nodes"]:
        if row["waits_for"]:
            lines.append(f"{row['node']} waits for {', '.join(row['waits_for'])}")
        if row["refuses"]:
            lines.append(f"{row['node']}: the last run was refused by {', '.join(row['refuses'])}")
        lines += [f"{row['node']}: does the access list allow {topic}?" for topic in row["barred"]]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def said(key: str, unit: str = "") -> str:
        value = row[key]
        return "-" if value is None else f"{value:.4g}{unit}" if isinstance(value, float) else f"{value}{unit}"

    since, gone = row["since"] or "", row["gone_since"] or "?"
    return (
        row["node"],
        f"since {since}" if row["there"] and since else "yes" if row["there"] else f"gone since {gone}",
        said("version"),
        said("session"),
        (row["run"] or "-")[:8],
        row["state"],
        "-" if row["round"] is None else f"{row['round']}" + (f" of {row['rounds']}" if row["rounds"] else ""),
        said("late_s", " s"),
        said("epsilon_left"),
        said("epsilon_left_life"),
        (row["runs_out"] or "-")[:10],
        said("certificate_days", " days"),
        said("last"),
        said("refused"),
    )
