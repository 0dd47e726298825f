"""What a report and the README say of an algorithm's published privacy, by its name. Every algorithm has a default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hushgrid.kernels.algorithms.base import Algorithm, Sharing, gated
from hushgrid.node.problems.plan import RunPlan

#: From the algorithm, the privacy section's mode, the number of nodes and what they share: why `published` promises
#: nothing.
Reason = Callable[[Algorithm, str, int, Sharing], str]
Noise = Callable[[Algorithm, str], str]  #: from the algorithm and the mode: a sentence on the published variant's noise


def _unpromised(a: Algorithm, mode: str, nodes: int, sharing: Sharing) -> str:
    at_the_gate = "; its noise is the gate's, at its full price" if gated(a) else ""
    return f"{a.name}: published is for study and devices refuse it{at_the_gate}"


class Claim(NamedTuple):
    """The sentences of one algorithm."""

    holds: str = "not examined"  #: whether the published claim holds, for the table of algorithms
    reason: Reason = _unpromised
    noise: Noise = lambda a, mode: "Noise was added as the published method does."
    note: Callable[[Algorithm], str] = lambda a: ""  #: what a report adds to its sentences on the gate's noise


def _of_token(a: Any, mode: str) -> str:
    """What PI-ADMM1 and 2 do; neither is a gate's noise."""
    if a.noise_sd:
        return "Each step is computed from the data as they are; Gaussian noise was added to what it gave."
    if a.gamma:
        return "Each step is computed from the data as they are; only its penalty was drawn at random."
    return "Each step is computed from the data as they are; no noise was added."


def _of_linearised(a: Any, mode: str, nodes: int, sharing: Sharing) -> str:
    drawn, output = "drawn in floating point", mode.startswith("output")
    if sharing == "copies":
        too_small = "made for (6.4), which is up to 2 times smaller than how far a record moves the gradient, and "
        return f"ladmm 2.2: the noise is {'' if output else too_small}{drawn}"
    if output:
        return f"ladmm 2.3: the sensitivity beta of the projected step is not derived, and the noise is {drawn}"
    return (
        "ladmm 2.3: the gradient moves by 2 beta a_i, not 2 beta; the noise is scaled to an L1 (L2) sensitivity "
        f"up to 5 (2.24) times too small in case14, 13 (3.6) in case118, and is {drawn}"
    )


def _of_penalties(a: Any, mode: str, nodes: int, sharing: Sharing) -> str:
    """The ADMM family asks the gate for private answers when published too: its epsilon is honest, its limit may be
    wrong.
    """
    sentence = _unpromised(a, mode, nodes, sharing)
    differ = any(len({a.eta_i(i, k) for i in range(nodes)}) > 1 for k in (1, 2))
    if differ and not a.of_edges and not a.perturbed_dual:
        sentence += (
            ", but penalties that differ by node lead to a wrong point (5.1: argmin sum O_i/eta_i for fixed eta_i)"
        )
    return sentence


def _used_again(a: Any) -> str:
    again = "In the round after an answer nodes use it again: that message uses no data and costs nothing."
    return again if a.recycles and a.asks() == "minimiser" else ""


def _decaying(where: str) -> Noise:
    return lambda a, mode: f"Each gradient is exact. Noise that decays was added to {where}."


def _says(sentence: str) -> Reason:
    return lambda a, mode, nodes, sharing: sentence


def _reconstructed(name: str, where: str) -> Claim:
    return Claim(
        "not examined: reconstructed",
        _says(f"{name}: reconstructed; its noise decays and is drawn in floating point, no epsilon is counted"),
        _decaying(where),
    )


NONE = Claim("none is made")
_RECYCLED = Claim(
    "at the gate's price; node penalties lead to a wrong point (5.1)", reason=_of_penalties, note=_used_again
)
_TOKEN = Claim(
    "no: differences of the token tell the gradients (3.1); it is obfuscation, without an epsilon",
    _says("iadmm 3.1: the token's differences tell x_i - y_i/rho; gradients follow from them. Obfuscation, no epsilon"),
    _of_token,
)
_OUTPUT_NOISE = {
    "output": "Noise was added to each node's result, as the published method does.",
    "output-projected": "Noise was added to each node's result, which was then projected on the node's limits.",
}

CLAIMS: Mapping[str, Claim] = {
    **dict.fromkeys(
        ("consensus-admm", "dgd", "extra", "fedavg", "fedprox", "gradient-tracking", "nids", "privsgp"), NONE
    ),
    "admm": _RECYCLED._replace(holds="at the gate's price"),
    "diadsp": _reconstructed("diadsp", "both parts of a message, state and direction"),
    "dmsp": _reconstructed("dmsp", "each message"),
    "dpadmm": _RECYCLED._replace(holds="per iteration alone; here the whole run's price"),
    "dpladmm": _RECYCLED._replace(holds="not examined: reconstructed"),
    "dpp2": Claim(
        "no: Theorem 3's sum lacks its first term, and the final x has no noise (4.1-4.5)",
        _says(
            "dpp2 4.1-4.5: eta hides nothing from the nodes, the sum of Theorem 3 lacks its first term, the final x "
            "has no noise"
        ),
        _decaying("both messages of a round"),
    ),
    "iadmm": _TOKEN,
    "ladmm": Claim(
        "no: sensitivities up to 13 (loads) and 2 (records) times too small (2.2, 2.3)",
        _of_linearised,
        lambda a, mode: _OUTPUT_NOISE.get(
            mode, "Noise was added to each gradient, as large as the published method says."
        ),
    ),
    "madmm": _RECYCLED._replace(holds="at the gate's price"),
    "mradmm": _RECYCLED,
    "ppdc": _reconstructed("ppdc", "each message and to each node's own dual variable"),
    "radmm": _RECYCLED,
    "recal": Claim(
        "no: the token carries every gradient without noise, one visit late (1.1)",
        _says(
            "recal 1.1: the token carries y_i one visit late without noise; an eavesdropper gets every gradient from it"
        ),
        lambda a, mode: (
            "Each gradient is exact. Noise was added to the sum of multipliers that the token carries, as large as the "
            "published method says."
        ),
    ),
    "sum": Claim("holds"),
    "wadmm": _TOKEN._replace(holds="none is made"),
    "weakening": Claim(
        "not examined: reconstructed",
        _says("weakening: reconstructed; its noise is drawn in floating point, no epsilon is counted"),
        lambda a, mode: "Each gradient is exact. Noise that grows was added to each message.",
    ),
}


def claim_of(algorithm: Algorithm) -> Claim:
    """The sentences of an algorithm, or the default ones."""
    return CLAIMS.get(algorithm.name, Claim())


def reasons(plan: RunPlan) -> list[str]:
    """Why a published variant makes no promise; nothing for the others."""
    a = plan.algorithm
    if a.variant != "published":
        return []
    mode = plan.privacy.mode if plan.privacy else ""
    return [claim_of(a).reason(a, mode, len(plan.nodes), plan.kind.sharing)]
