"""What is said of masked sums, to a report and to a device's owner."""

from __future__ import annotations

from collections.abc import Callable

from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.privacy.terms import Terms

OPEN = "breaks neither X25519, HKDF-SHA256 nor ChaCha20"


def figures(t: Terms) -> Document:
    """`privacy.masked` of result.json; nothing if nothing is masked."""
    m = t.masked
    if m is None:
        return {}
    alone = {"epsilon": t.alone(), "delta": t.delta}
    graph = {} if m.graph is None else {"neighbours": m.graph.neighbours, "exposed": m.exposed}
    sums: Document = {"corrupt": m.corrupt, "contributors": m.contributors, "honest": m.honest, "alone": alone}
    return {"masked": sums | graph}


def short(privacy: DocumentView) -> str:
    """The claim's condition, for a summary in one line; "" if nothing is masked."""
    m = privacy.get("masked")
    if not m:
        return ""
    honest = m["contributors"] - m["corrupt"]
    graphs = f"; graphs of masks add {m['exposed']:g} to delta" if "neighbours" in m else ""
    return (
        f" against coordinator, broker and any {m['corrupt']} of the nodes together, if {honest} of a round's "
        f"contributors are honest (against all others together epsilon {m['alone']['epsilon']:.6g}{graphs})"
    )


def where(result: DocumentView) -> str:
    """Of whom and against whom a total holds, for a headline."""
    m = (result.get("privacy") or {}).get("masked")
    if not m:
        return "per node over this whole run"
    return (
        f"per node over this whole run, against the broker, the coordinator and any {m['corrupt']} of the nodes "
        "together: only sums are seen"
    )


def claim(result: DocumentView, epsilon: str, number: Callable[..., str]) -> tuple[str, ...]:
    """The claim of a masked run in words, the fewest that are true; nothing if nothing is masked. `number`: how one is
    written.
    """
    m, nodes = (result.get("privacy") or {}).get("masked"), result.get("nodes")
    if not m:
        return ()
    t, h, alone = m["corrupt"], m["contributors"] - m["corrupt"], m["alone"]
    others = f"any {t} of the {nodes} devices" if t else "none of the devices"
    graph = (
        f" Each device masks with {m['neighbours']} others of its own choice: with a probability of at most "
        f"{number(m['exposed'])} a sum of fewer than {m['honest']} honest shares can be decoded, which adds to δ."
        if "neighbours" in m
        else ""
    )
    return (
        f"Against the broker, the coordinator and {others} together, and anyone who {OPEN}: (ε = {epsilon}, δ = "
        f"{number(alone['delta'])})-differential privacy for one record, computationally, provided at least {h} of a "
        "round's contributors run this program and their certificates are theirs. Against all others together: (ε = "
        f"{number(alone['epsilon'], 4)}, δ = {number(alone['delta'])}). A device whose owner believes in fewer "
        f"honest ones counts more, and its own ledger says how much.{graph}",
        "Masking is not integrity: a device can spoil a sum, and nobody sees which one did.",
    )


def broken_into(result: DocumentView, number: Callable[..., str]) -> str:
    """What a device in other hands means for the others."""
    sentence, m = "whoever controls a device reads its own data. ", (result.get("privacy") or {}).get("masked")
    if not m:
        return sentence + "The other nodes' protection stands."
    return (
        f"{sentence}The claim allows for {number(m['corrupt']) if m['corrupt'] else 'none'} of these; beyond that the "
        f"others are protected less, at the worst with ε = {number(m['alone']['epsilon'], 4)}."
    )
