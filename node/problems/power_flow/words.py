"""A change that only loads have, in the words of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hushgrid.node.schema.sections import Change


def change_words(written: Mapping[str, Any], base_mva: float | None) -> str:
    """The change that a result states, such as {"pair": 0.01, "power_factor": 0.95}: what of the loads is hidden."""
    change = msgspec.convert(written, Change)
    if change.pair is None:
        share, digest = 100 * (change.relative or 0.0), change.capacities[:12]
        return (
            f"one active or reactive load moves by at most {share:.4g} % of its contracted capacity (the public "
            f"capacities of digest {digest}); an entry without capacity counts as no load"
        )
    p, q = change.pair, change.reactive
    power = f" ({p * base_mva:.4g} MW and {q * base_mva:.4g} MVAr)" if base_mva else ""
    return (
        f"one customer moves the active load of one bus by at most {p:.4g} p.u. and its reactive load by at most "
        f"{q:.4g} p.u.{power}"
    )
