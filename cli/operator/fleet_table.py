"""The rows of `hushgrid status`: one node each, as JSON and as a table."""

from __future__ import annotations

from hushgrid.cli.operator.fleet import Seen
from hushgrid.kernels.errors import printable
from hushgrid.kernels.types import Document
from hushgrid.node.columns import columns
from hushgrid.node.wire import COORDINATOR

WORDS = 32  #: characters of a text from outside
HEAD = (
    *("node", "there", "version", "session", "run", "now", "round", "late", "left", "left in life", "runs out"),
    *("certificate", "last run", "last refusal"),
)


def rows(fleet: str, seen: dict[str, Seen]) -> Document:
    """All that is known of the nodes: {fleet, nodes: [a row each]}. What nobody has said is null."""
    centre = seen.get(COORDINATOR)
    return {"fleet": fleet, "nodes": [_row(node, centre) for node in seen.values()]}


def _row(node: Seen, centre: Seen | None) -> Document:
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
        "epsilon_left": report.epsilon_left if report else offered.budget_left if offered else None,
        "epsilon_left_life": report.epsilon_left_life if report else None,
        "window_s": report.window_s if report else None,
        "runs_out": report.runs_out if report else None,
        "certificate_days": report.certificate_days if report else offered.certificate_days if offered else None,
        "last": report.last if report and report.last else None,
        "refused": report.refused if report and report.refused else None,
        "barred": [printable(topic, 2 * WORDS) for topic in birth.barred] if birth else [],
        "at": report.at if report else None,
    }


def _told(centre: Seen | None, run: str) -> int | None:
    """Rounds that are done in a run, as the coordinator's retained state says: of a run under way nobody else does."""
    progress = centre.progress if centre else None
    return progress.round if progress and progress.run.hex() == run else None


def table(facts: Document) -> str:
    """The rows as text, and in a line below it who is waited for."""
    lines = [columns([_cells(row) for row in facts["nodes"]], HEAD)]
    for row in facts["nodes"]:
        if row["waits_for"]:
            lines.append(f"{row['node']} waits for {', '.join(row['waits_for'])}")
        if row["refuses"]:
            lines.append(f"{row['node']}: the last run was refused by {', '.join(row['refuses'])}")
        lines += [f"{row['node']}: does the access list allow {topic}?" for topic in row["barred"]]
    return "\n".join(lines)


def _cells(row: Document) -> tuple[str, ...]:
    def cell(key: str, unit: str = "") -> str:
        value = row[key]
        return "-" if value is None else f"{value:.4g}{unit}" if isinstance(value, float) else f"{value}{unit}"

    since, gone = row["since"] or "", row["gone_since"] or "?"
    return (
        row["node"],
        f"since {since}" if row["there"] and since else "yes" if row["there"] else f"gone since {gone}",
        cell("version"),
        cell("session"),
        (row["run"] or "-")[:8],
        row["state"],
        "-" if row["round"] is None else f"{row['round']}" + (f" of {row['rounds']}" if row["rounds"] else ""),
        cell("late_s", " s"),
        cell("epsilon_left"),
        cell("epsilon_left_life"),
        (row["runs_out"] or "-")[:10],
        cell("certificate_days", " days"),
        cell("last"),
        cell("refused"),
    )
