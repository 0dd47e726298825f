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
    figures = {"corrupt": m.corrupt, "contributors": m.contributors, "honest": m.honest, "alone": alone}
    if m.graph is not None:
        figures |= {"neighbours": m.graph.neighbours, "exposed": m.exposed}
    if m.sites is not None:
        at_site = {"epsilon": t.at_site(), "delta": t.delta, "honest": m.site}
        figures["sites"] = {
            "number": len(m.sites.sizes),
            "contributors": m.sites.contributors,
            "corrupt": m.sites.corrupt,
            "at_site": at_site,
        }
    return {"masked": figures}


def _uncorrupted(m: DocumentView) -> int:
    """So many of a round's contributors have to be honest."""
    return int(m["honest"] if m.get("sites") else m["contributors"] - m["corrupt"])


def _whom(m: DocumentView, both: str) -> str:
    """Those against whom the sum of all is the claim, in few words; of one level with `both` of these."""
    if sites := m.get("sites"):
        both = f"the fleet's coordinator and broker, {sites['corrupt']} other sites"
    return f"{both} and any {m['corrupt']} of the nodes"


def short(privacy: DocumentView) -> str:
    """The claim's condition, for a summary in one line; "" if nothing is masked."""
    m = privacy.get("masked")
    if not m:
        return ""
    graphs = f"; graphs of masks add {m['exposed']:g} to delta" if "neighbours" in m else ""
    sites = m.get("sites")
    at_site = (
        f"against its own site's coordinator and broker epsilon {sites['at_site']['epsilon']:.6g}, " if sites else ""
    )
    return (
        f" against {_whom(m, 'coordinator, broker')} together, if {_uncorrupted(m)} of a round's "
        f"contributors are honest ({at_site}against all others together epsilon {m['alone']['epsilon']:.6g}{graphs})"
    )


def where(result: DocumentView) -> str:
    """Of whom and against whom a total holds, for a headline."""
    m = (result.get("privacy") or {}).get("masked")
    if not m:
        return "per node over this whole run"
    return (
        f"per node over this whole run, against {_whom(m, 'the broker, the coordinator')} together: only sums are seen"
    )


def claim(result: DocumentView, epsilon: str, number: Callable[..., str]) -> tuple[str, ...]:
    """The claim of a masked run in words, the fewest that are true; nothing if nothing is masked. `number`: how one is
    written.
    """
    m, nodes = (result.get("privacy") or {}).get("masked"), result.get("nodes")
    if not m:
        return ()
    t, h, alone, sites = m["corrupt"], _uncorrupted(m), m["alone"], m.get("sites")
    others = f"any {t} of the {nodes} devices" if t else "none of the devices"
    graph = (
        f" Each device masks with {m['neighbours']} others of its own choice: with a probability of at most "
        f"{number(m['exposed'])} a sum of fewer than {m['honest']} honest shares can be decoded, which adds to δ."
        if "neighbours" in m
        else ""
    )
    above = "the broker, the coordinator"
    at_site = ""
    if sites:
        c = sites["corrupt"]
        above = f"the fleet's broker and coordinator, {f'any {c}' if c else 'none'} of the other sites' coordinators"
        at_site = (
            f"Against its own site's broker and coordinator, which see the site's sums, and {others}: (ε = "
            f"{number(sites['at_site']['epsilon'], 4)}, δ = {number(alone['delta'])}), provided at least "
            f"{sites['at_site']['honest']} of the site's contributors do so. "
        )
    return (
        f"Against {above} and {others} together, and anyone who {OPEN}: (ε = {epsilon}, δ = "
        f"{number(alone['delta'])})-differential privacy for one record, computationally, provided at least {h} of a "
        f"round's contributors run this program and their certificates are theirs. {at_site}Against all others "
        f"together: (ε = {number(alone['epsilon'], 4)}, δ = {number(alone['delta'])}). A device whose owner believes "
        f"in fewer honest ones counts more, and its own ledger says how much.{graph}",
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
