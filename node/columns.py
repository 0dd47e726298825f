"""Plain text in aligned columns, for whatever a command prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: int = 0) -> str:
    """Rows under a header, each column as wide as its widest cell; numbers right, the rest left."""
    table = [[str(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not table:
        return ""
    body = table[1:] if header else table
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    right = [bool(body) and all(_numeric(cell) for cell in column) for column in zip(*body, strict=True)]
    right = right or [False] * len(widths)
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)) for row in table
    ]
    return "\n".join(" " * indent + line.rstrip() for line in lines)


def _numeric(cell: str) -> bool:
    return cell == "-" or cell.lstrip("-").replace(",", "").replace(".", "", 1).replace("e-", "", 1).isdigit()
