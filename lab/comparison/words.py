"""What a sweep says on stdout when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.lab.comparison.medians import groups, median, numbers
from hushgrid.lab.comparison.page import QUALITIES, qualities
from hushgrid.node.columns import columns

if TYPE_CHECKING:
    from pandas import DataFrame

FIRST = 3  #: figures, the page has more
LISTED = 60  #: points


def summary(runs: DataFrame, out: Path | None) -> str:
    """Medians and their standard errors at every point, in aligned columns; what failed, and where the rest is."""
    over, names = runs.attrs["over"], qualities(runs)[:FIRST]
    kinds = sorted({*runs["dp"].dropna()} - {"", "none"})
    rows = []
    for values, same in groups(runs):
        done = same[same["status"] == "done"]
        row = [str(values[key]) for key in over]
        row += ["/".join(sorted({*done["dp"]}))] * (len(kinds) > 1)
        for name in names:
            middle = median(numbers(done, name))
            row += [f"{middle.value:.4g}" if middle.n else "-", f"{middle.error:.2g}" if middle.n > 1 else "-"]
        rows.append([*row, f"{len(done)}/{len(same)}"])
    header = [*over, *["ε is"] * (len(kinds) > 1)]
    header += [word for name in names for word in (QUALITIES.get(name, name), "±")] + ["done"]
    counts = runs["status"].value_counts()
    ended = ", ".join(f"{counts[status]} {status}" for status in counts.index)
    seeds = runs["seed"].nunique()
    lines = [f"{len(runs)} runs, {seeds} seeds a point: {ended}. Medians, ± their standard error; not private (seeds)."]
    lines.append(columns(rows[:LISTED], header, indent=2))
    if len(rows) > LISTED:
        lines.append(f"  and {len(rows) - LISTED} points more")
    if out is not None:
        lines.append(f"  comparison: {out / 'comparison.html'}")
    return "\n".join(lines)
