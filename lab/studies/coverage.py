"""What of the five papers is here: every algorithm, every theorem with a condition that can be used, every table and
figure (`hushgrid study --list`, docs/papers/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

State = Literal["works", "partly", "not"]


class Item(NamedTuple):
    """One numbered item of a paper."""

    name: str
    state: State  #: works: it can be repeated, whatever comes out
    what: str  #: what comes out; n.m is a finding of docs/papers/
    command: str  #: that shows it, or a page; "": nothing does


RUN, STUDY = "hushgrid run", "hushgrid study"
COVERAGE: Mapping[str, Sequence[Item]] = {
    "dp-recal": (
        Item("Algorithm 1", "works", "RECAL and DP-RECAL; guarded beside published", f"{RUN} adult-ring"),
        Item("Theorem 1", "works", "the visits to one agent are its answers, each in its ledger", f"{RUN} adult-ring"),
        Item("Theorem 2", "works", "converges to the central optimum, to 1e-12 without noise", f"{STUDY} relay"),
        Item(
            "Theorem 3",
            "works",
            "holds, also without strong convexity; (18)'s O(n) is n^1.5 to n^1.7",
            f"{STUDY} recal-rates",
        ),
        Item("Theorem 4", "works", "does not hold: the token tells the gradients (1.1)", f"{STUDY} findings"),
        Item("Figure 1", "works", "an illustration; hushgrid attack is that eavesdropper", f"{STUDY} recovered-images"),
        Item("Figure 2", "works", "order reproduced, 1e-15 not (1.2)", f"{STUDY} relay-figures"),
        Item("Figure 3", "works", "RECAL leads under the claimed noise, not at the gate", f"{STUDY} relay-figures"),
        Item("Figure 4", "works", "reproduced for u alone; x tells the images", f"{STUDY} relay-figures"),
        Item("Figure 5", "works", "order reproduced, 1e-15 not (1.2)", f"{STUDY} relay-figures"),
        Item("Figure 6", "works", "RECAL leads under the claimed noise; 1e-15 not (1.2)", f"{STUDY} relay-figures"),
        Item("Figure 7", "works", "reproduced for u alone; x tells the images", f"{STUDY} relay-figures"),
        Item("Figure 8", "works", "reproduced for u alone; x tells the images", f"{STUDY} relay-figures"),
        Item("Figure 9", "works", "the error falls to rounding by x", f"{STUDY} relay-figures"),
        Item("Table I", "works", "the order holds, the smallest leakage is not RECAL's", f"{STUDY} relay"),
        Item("Table II", "works", "does not hold on a ring (1.3)", f"{STUDY} relay"),
        Item("Table III", "works", "does not hold on geometric graphs", f"{STUDY} relay"),
        Item(
            "Table IV", "works", "errors not reproduced (1.2), the order under the claimed noise is", f"{STUDY} relay"
        ),
        Item("Table V", "works", "errors not reproduced (1.2), the order under the claimed noise is", f"{STUDY} relay"),
    ),
    "objpert-ladmm": (
        Item("Algorithm 3.1", "works", "for zones and for rows, in three modes", f"{RUN} case14-published"),
        Item("Theorem 4.2", "works", "holds: the projection, and h_m as l grows", f"{STUDY} penalty-functions"),
        Item("Theorem 4.3", "partly", "of the projection, with the right sensitivity (2.3)", f"{RUN} case14-published"),
        Item("Theorem 4.4", "partly", "of the projection, with the right sensitivity (2.3)", f"{RUN} digits-star"),
        Item("Theorem 4.5", "works", "every answer is priced with the right sensitivity", f"{RUN} case14-published"),
        Item("Theorem 4.6", "works", "does not hold (2.1)", f"{STUDY} findings"),
        Item(
            "Theorem 5.3",
            "works",
            "its step is a choice (2.6), its bound in the plan (2.7)",
            "hushgrid plan digits-star --set algorithm.eta=1/(L+sqrt(t))",
        ),
        Item(
            "Theorem 5.4",
            "works",
            "its step is a choice, its bound in the plan (2.7)",
            "hushgrid plan digits-star --set algorithm.eta=1/sqrt(t)",
        ),
        Item(
            "Theorem 5.5",
            "works",
            "its step is a choice, its bound in the plan (2.7)",
            "hushgrid plan digits-star --set algorithm.eta=2/(alpha(t+2))",
        ),
        Item("Figure 1", "works", "noise before the projection keeps the answer feasible", f"{STUDY} figures"),
        Item("Figure 2", "works", "an illustration of a penalty function", f"{STUDY} penalty-functions"),
        Item("Figure 3", "works", "order reproduced; the claims are not equal (2.3)", f"{STUDY} figures"),
        Item("Figure 4", "works", "order reproduced for small epsilons only", f"{STUDY} figures"),
        Item("Figure 5", "partly", "not reproduced at honest totals; 5,000 images; all by path", f"{STUDY} federated"),
        Item("Figure 6", "partly", "no figure; FEMNIST by path", f"{STUDY} federated"),
        Item("Figure 7", "partly", "does not hold at honest totals; FEMNIST by path", f"{STUDY} federated"),
        Item("Table 1", "works", "its scales are too small by the row of A (2.3)", f"{STUDY} figures"),
    ),
    "pi-admm": (
        Item("Algorithm 1", "works", "I-ADMM, exact and first-order", f"{RUN} adult-ring-nonprivate"),
        Item("Algorithm 2", "works", "with the right sign (3.2)", f"{STUDY} incremental"),
        Item("Algorithm 3", "works", "PI-ADMM1; it hides nothing (3.1)", f"{STUDY} incremental"),
        Item("Algorithm 4", "works", "PI-ADMM2; it hides little (3.1)", f"{STUDY} incremental"),
        Item("Theorem 1", "works", "PI-ADMM1 converges; its start flatters (21) (3.3)", f"{STUDY} incremental"),
        Item("Theorem 2", "works", "does not hold (3.1)", f"{STUDY} incremental"),
        Item("Corollary 1", "works", "does not hold (3.1)", f"{STUDY} incremental"),
        Item("Theorem 3", "works", "does not hold: colluders are not needed (3.1)", f"{STUDY} incremental"),
        Item("Figure 1", "works", "an illustration; hushgrid attack is that eavesdropper", f"{STUDY} incremental"),
        Item("Figure 2", "works", "an illustration of a cycle", f"{RUN} adult-ring-nonprivate"),
        Item("Figure 3", "works", "I-ADMM is first, by what the others are given (3.4)", f"{STUDY} incremental"),
        Item("Figure 4", "works", "reproduced; the divergence is the estimator's", f"{STUDY} incremental"),
        Item("Figure 5", "works", "I-ADMM is first, by what the others are given (3.4)", f"{STUDY} incremental"),
        Item("Figure 6", "works", "reproduced; the divergence is the estimator's", f"{STUDY} incremental"),
    ),
    "dpp2": (
        Item("Algorithm 1", "works", "DPP2; guarded beside published", f"{RUN} nonconvex-neighbours"),
        Item(
            "Theorem 1",
            "works",
            "holds; its conditions exclude the parameters (4.6)",
            f"{STUDY} dpp2-rates",
        ),
        Item("Theorem 2", "works", "holds: a factor of .984 a round (4.6)", f"{STUDY} dpp2-rates"),
        Item("Theorem 3", "works", "does not hold (4.2)", f"{STUDY} findings"),
        Item("Corollary 1", "works", "does not hold (4.3)", f"{STUDY} findings"),
        Item("Figure 1", "works", "reproduced; no setting is private (4.5)", f"{STUDY} dpp2-figures"),
        Item("Figure 2", "works", "reproduced; no setting is private (4.5)", f"{STUDY} dpp2-figures"),
        Item("Figure 3", "works", "reproduced for the gradient alone", f"{STUDY} dpp2-figures"),
        Item(
            "Table I", "partly", "six of eight rivals, at one honest total; not [22], eDP-TN", f"{STUDY} dpp2-figures"
        ),
    ),
    "recycled-admm": (
        Item("Algorithm 1", "works", "R-ADMM", f"{RUN} adult-minimisers"),
        Item("Algorithm 2", "works", "MR-ADMM, with penalties of edges (5.1)", f"{STUDY} recycled"),
        Item("Algorithm 3", "works", "private MR-ADMM; the recycled gradient is public (5.2)", f"{STUDY} recycled"),
        Item(
            "Theorem IV.1",
            "works",
            "checked; no bipartite graph fulfils it (5.5)",
            "hushgrid check adult-minimisers",
        ),
        Item("Theorem V.1", "works", "holds for an exact minimiser, and is loose (5.3)", f"{STUDY} recycled"),
        Item(
            "Theorem VI.1",
            "works",
            "answered by runs: its constant is unknown",
            "hushgrid plan adult-minimisers --loss 0.1",
        ),
        Item(
            "Theorem VI.2",
            "works",
            "answered by runs: its constants are unknown",
            "hushgrid plan adult-minimisers --loss 0.1",
        ),
        Item("Figure 1", "works", "reproduced; (b) hides a wrong limit (5.1)", f"{STUDY} recycled"),
        Item("Figure 2", "works", "not reproduced: no minimum at rho = .22", f"{STUDY} recycled"),
        Item("Figure 3", "works", "reproduced", f"{STUDY} recycled"),
        Item("Figure 4", "works", "reproduced", f"{STUDY} recycled"),
        Item("Figure 5", "works", "order reproduced; fewer answers help more (5.4)", f"{STUDY} recycled"),
    ),
}


def listing() -> str:
    """Every item, a line each, by its paper."""
    lines = list[str]()
    for paper, items in COVERAGE.items():
        counts = {state: sum(item.state == state for item in items) for state in ("works", "partly", "not")}
        lines.append(f"{paper}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
        name, what = (max(len(item[k]) for item in items) for k in (0, 2))
        lines += [f"  {i.name:{name}}  {i.state:6}  {i.what:{what}}  {i.command}".rstrip() for i in items]
    return "\n".join(lines)


def table() -> str:
    """The same in Markdown."""
    rows = ["| paper | item | | what comes out | command |", "|---|---|---|---|---|"]
    for paper, items in COVERAGE.items():
        for item in items:
            command = f"`{item.command}`" if item.command else ""
            rows.append(f"| [{paper}]({paper}.md) | {item.name} | {item.state} | {item.what} | {command} |")
    return "\n".join(rows)
