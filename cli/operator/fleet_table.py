"""The rows of a fleet as a table of plain text, for `hushgrid status`."""

from __future__ import annotations

from hushgrid.kernels.types import Document
from hushgrid.node.columns import columns
from hushgrid.node.transport.certificate import SOON_D

HEAD = (
    *("node", "there", "version", "session", "run", "now", "round", "late", "left", "left in life", "runs out"),
    *("certificate", "last run", "last refusal"),
)


def table(facts: Document) -> str:
    """The rows as text, and in a line below it who is waited for."""
    lines = [columns([_cells(row) for row in facts["nodes"]], HEAD)]
    for row in facts["nodes"]:
        if row["waits_for"]:
            lines.append(f"{row['node']} waits for {', '.join(row['waits_for'])}")
        if row["refuses"]:
            lines.append(f"{row['node']}: the last run was refused by {', '.join(row['refuses'])}")
        if row["certificate_days"] is not None and row["certificate_days"] < SOON_D:
            lines.append(f"{row['node']}: {_ends(row['certificate_days'])}")
        lines += [f"{row['node']}: does the access list allow {topic}?" for topic in row["barred"]]
    return "\n".join(lines)


def _ends(days: int) -> str:
    """What to do about a certificate that ends soon, or has ended."""
    when = f"ends in {days} days" if days >= 0 else f"has ended {-days} days ago"
    return f"warning: its certificate {when}: hushgrid fleet renew"


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
