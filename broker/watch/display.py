"""A node's row as a person reads it, on the page, without a script and on a terminal: the same words everywhere."""

from __future__ import annotations

from hushgrid.broker.report.drawings.numbers import number
from hushgrid.kernels.errors import printable
from hushgrid.kernels.types import Document
from hushgrid.node.schema.durations import in_words

WIDEST = 64  #: characters of a cell
LOW = 0.2  #: share of a budget below which it is low
CERTIFICATE_DAYS = 60  #: days below which a certificate is to be renewed
#: Kinds of rows that a reader may want alone, and what they are called.
FILTERS = {
    "gone": "Gone",
    "silent": "Silent in a run",
    "refused": "Refused",
    "budget": "Budget below a fifth",
    "certificate": f"Certificate below {CERTIFICATE_DAYS} days",
}
#: Columns of a row: key and heading.
COLUMNS = {
    "node": "Node",
    "now": "Now",
    "round": "Round",
    "budget": "Budget left",
    "life": "Left in its life",
    "last": "Last run",
    "refusal": "Last refusal",
    "certificate": "Certificate",
    "version": "Version",
}


def displayed(row: Document) -> Document:
    """{node, cells: {column: text}, flags, share, life, spoke, strip}. share, life: of a budget, what is left of it."""
    return {
        "node": row["node"],
        "cells": {key: printable(text, WIDEST) for key, text in cells(row).items()},
        "flags": flags(row),
        "share": part(row["epsilon_left"], row["epsilon"]),
        "life": part(row["epsilon_left_life"], row["lifetime"]) if row["window_s"] else None,
        "spoke": row["spoke"],
        "strip": row["strip"],
    }


def cells(row: Document) -> dict[str, str]:
    """The texts of a row, by column."""
    window = f" in {in_words(row['window_s'])}" if row["window_s"] else ""
    life = amount(row["epsilon_left_life"], row["lifetime"]) if row["window_s"] else ""
    days = row["certificate_days"]
    refusal = row["refused"] or ""
    return {
        "node": row["node"],
        "now": now(row),
        "round": "" if row["round"] is None else str(row["round"]) + (f" of {row['rounds']}" if row["rounds"] else ""),
        "budget": amount(row["epsilon_left"], row["epsilon"]) + (window if row["epsilon_left"] is not None else ""),
        "life": life,
        "last": row["last"] or "",
        "refusal": f"{refusal}, {day(row['refused_at'])}" if refusal and row["refused_at"] else refusal,
        "certificate": "" if days is None else "has ended" if days < 0 else f"{days} day{'s' * (days != 1)}",
        "version": row["version"] or "",
    }


def now(row: Document) -> str:
    """What a node does now."""
    if not row["there"]:
        return f"gone since {day(row['gone_since'])}" if row["gone_since"] else "gone"
    state = str(row["state"])
    if row["waits_for"]:
        state += f", waits for {', '.join(row['waits_for'][:3])}" + ("…" if len(row["waits_for"]) > 3 else "")
    return f"silent ({state})" if row["silent"] else state


def flags(row: Document) -> list[str]:
    """The kinds of FILTERS that a row is of."""
    days, least = row["certificate_days"], row["share"]
    has = {
        "gone": not row["there"],
        "silent": row["silent"],
        "refused": bool(row["refused"]) and row["last"] in (None, "refused"),
        "budget": least is not None and least < LOW,
        "certificate": days is not None and days < CERTIFICATE_DAYS,
    }
    return [name for name in FILTERS if has[name]]


def share(row: Document) -> float | None:
    """What is left of a node's budget, as a share: of its window or of its life, whichever is less."""
    parts = (part(row["epsilon_left"], row["epsilon"]), part(row["epsilon_left_life"], row["lifetime"]))
    return min((each for each in parts if each is not None), default=None)


def part(rest: float | None, limit: float | None) -> float | None:
    """A rest as a share of its limit, within [0, 1]."""
    return None if rest is None or not limit else round(min(max(rest / limit, 0.0), 1.0), 4)


def amount(rest: float | None, limit: float | None) -> str:
    """A rest and its limit."""
    if rest is None:
        return ""
    return number(float(rest)) + (f" of {number(float(limit))}" if limit else "")


def day(moment: str | None) -> str:
    """A moment of a status as it is read: day and minute, UTC, on one line."""
    return "" if moment is None else f"{moment[:10]} {moment[11:16]}".replace("-", "\u2011")
