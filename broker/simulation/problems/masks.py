"""Identities for the devices of a simulated masked run. They are made anew each time: no result depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrid.node.problems.masking import MakeMasks
from hushgrid.node.problems.plan import RunPlan

if TYPE_CHECKING:
    from hushgrid.node.masks.identity import Identity, Trust
    from hushgrid.node.masks.run_masks import Pairs


def identities(plan: RunPlan) -> Mapping[str, Identity]:
    """Of every node; nothing if nothing is masked."""
    if plan.terms is None or plan.terms.masked is None:
        return {}
    from hushgrid.node.masks.identity import made_up

    return made_up([*plan.nodes, *plan.sites])[0]


def makers(plan: RunPlan) -> Mapping[str, MakeMasks]:
    """How each node of a run in one process masks."""
    if not (members := identities(plan)):
        return {}
    from hushgrid.node.masks.identity import Shared
    from hushgrid.node.masks.run_masks import SharedPairs

    trust, pairs = Shared(one.fingerprint for one in members.values()), SharedPairs()
    return {node: _maker(node, one, trust, pairs) for node, one in members.items()}


def saved(members: Mapping[str, Identity], node: str, place: Path) -> dict[str, object]:
    """What `maker` needs in another process: PEM files in `place`, and the fingerprints of all."""
    if node not in members:
        return {}
    cert, key = place / f"{node}.crt", place / f"{node}.key"
    members[node].save(cert, key)
    return {"cert": str(cert), "key": str(key), "peers": [one.fingerprint for one in members.values()]}


def maker(node: str, data: Mapping[str, Any]) -> MakeMasks | None:
    """How a node masks, from what was saved; None if nothing was."""
    if "cert" not in data:
        return None
    from hushgrid.node.masks.identity import Identity, Trust

    return _maker(node, Identity.read(node, data["cert"], data["key"]), Trust(data["peers"]))


def _maker(node: str, identity: Identity, trust: Trust, pairs: Pairs | None = None) -> MakeMasks:
    from hushgrid.node.masks.run_masks import RunMasks

    return lambda run, ledger, _, exposed: RunMasks(node, run, ledger, identity, trust, exposed, pairs)
