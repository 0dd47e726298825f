"""What a run's report says about privacy, in plain words: functions of result.json and scenario.yaml alone.

What depends on the kind of problem is said by its `wording.Wording`, what depends on the algorithm by its
`claims.Claim`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hushgrid.broker.report.claims import claim_of
from hushgrid.broker.report.drawings.numbers import MISSING, number
from hushgrid.broker.report.run_directory import Run
from hushgrid.broker.report.wording import Wording, part, wording_of
from hushgrid.kernels.algorithms.base import gated
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.problems import masking_words


@dataclass(frozen=True)
class Statement:
    """The privacy part of a report.

    standing: "upheld", "not upheld" or "not private". headline: one sentence. reasons: why it is not upheld or private.
    meaning: paragraphs for a lay reader. terms: name and value pairs. table: rows under `columns`, one a node.
    limits: what is not protected, as title and explanation.
    """

    standing: str
    headline: str
    reasons: tuple[str, ...]
    meaning: tuple[str, ...]
    terms: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]
    limits: tuple[tuple[str, str], ...]


def standing(result: DocumentView) -> str:
    """ "upheld" only where result.json says `upheld: true`; whatever cannot be read as a claim claims nothing."""
    upheld = (result.get("privacy") or {}).get("upheld")
    return "upheld" if upheld is True else "not upheld" if upheld is False else "not private"


ACCOUNTANTS = {
    "pure-basic": "pure-basic: the ε of all answers added up",
    "pure-optimal": "pure-optimal: optimal composition of a fixed number of pure answers",
    "zcdp": "zcdp: zero-concentrated differential privacy, converted to (ε, δ) at the end",
    "gdp": "gdp: Gaussian differential privacy, converted to (ε, δ) at the end",
}


def statement(run: Run, base_mva: float | None) -> Statement:
    """The statement that is true of this run. base_mva: MVA of one p.u., None where it is not known."""
    result, plan, wording = run.result, run.privacy, wording_of(run)
    privacy: DocumentView = result.get("privacy") or {}
    how = standing(result)
    mechanism = str(privacy.get("mechanism") or plan.get("mechanism") or "")
    claimed = privacy.get("claimed")
    epsilon, delta = part(claimed, "epsilon"), part(claimed, "delta")
    hidden = wording.hidden(privacy.get("adjacency") or plan.get("adjacency"), mechanism, base_mva)
    total = f"ε = {number(epsilon)}" + (f", δ = {number(delta)}" if delta else "")
    reasons = tuple(str(f) for f in _listed(privacy.get("findings")))
    if how == "upheld":
        where = masking_words.where(result)
        headline = f"Privacy claim upheld: {wording.whose} are protected with a total of {total} {where}."
    elif how == "not upheld":
        claim = "No privacy claim is made" if gated(run.algorithm) else "Privacy claim not upheld"
        first, *others = reasons or (
            "noise stands where the published method puts it, which does not give what it claims",
        )
        headline, reasons = f"{claim}: {first}", tuple(others)
    else:
        headline = f"Not private: {_why(run, wording)}"
    return Statement(
        standing=how,
        headline=headline,
        reasons=reasons,
        meaning=_meaning(how, run, wording, hidden, epsilon, delta, privacy.get("answers")),
        terms=_terms(how, run, hidden, total if epsilon is not None else MISSING, mechanism),
        **_nodes(privacy, plan),
        limits=_limits(how, run, wording),
    )


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _why(run: Run, wording: Wording) -> str:
    """Why a run is not private."""
    if run.algorithm.variant == "none":
        return (
            f"this is the plain {wording.method}; no noise was added and its messages can be traced back to the data."
        )
    if run.scenario.get("seed") is not None:
        return (
            "the noise was drawn from a seed, so that the run can be repeated; whoever knows the seed can take it off."
        )
    if (run.scenario.get("run") or {}).get("truth"):
        return "figures computed from the raw data were recorded beside the released ones (run.truth)."
    return "the run is marked as a simulation."


def _meaning(
    how: str, run: Run, wording: Wording, hidden: str, epsilon: float | None, delta: float | None, answers: int | None
) -> tuple[str, ...]:
    algorithm = run.algorithm
    if how == "not private" and algorithm.variant == "none":
        return ("The run shows what the algorithm does without protection. It says nothing about other runs.",)
    sentences = [*masking_words.claim(run.result, number(epsilon), number)]
    if how == "upheld" and isinstance(epsilon, int | float):
        odds = (
            f"{number(math.exp(epsilon))} (e to the power ε)" if epsilon <= 20 else f"e to the power {number(epsilon)}"
        )
        apart = f", apart from a probability of δ = {number(delta)}" if delta else ""
        sentences.append(
            f"Suppose {'such an adversary' if sentences else 'someone'} reads each message of this run, all final "
            f"values and the code, and knows all other data, and suppose {hidden}. Then nothing they can see becomes "
            f"more or less likely by more than a factor of {odds}{apart}."
        )
        sentences += wording.larger(delta)
    elif how == "not upheld" and epsilon is None:
        sentences.append(
            "The published method claims no ε: it obscures its messages, and what it hides is not measured."
        )
    elif how == "not upheld" and not gated(algorithm):
        sentences.append("The figures below are what the published method claims, for comparison. They are no promise.")
    elif how == "not upheld":
        sentences.append(
            "The figures below are the price of the gate's answers with noise nobody can repeat. The run is for study "
            "and promises nothing; as `guarded` the same answers carry a promise."
        )
    else:
        sentences.append(
            "The figures below are those of the same plan with noise nobody can repeat. They do not hold for this run."
        )
    if how != "upheld":
        sentences.insert(0, sentences.pop())  # that it does not hold is said before what does not
    if not gated(algorithm):
        return (*sentences, claim_of(algorithm).noise(algorithm, run.mode))
    count = f"at most {number(answers)} per node" if isinstance(answers, int) and answers != 1 else "all of them"
    return (*sentences, *wording.noise(count))


def _terms(how: str, run: Run, hidden: str, total: str, mechanism: str) -> tuple[tuple[str, str], ...]:
    privacy, plan = run.result.get("privacy") or {}, run.privacy
    gate = gated(run.algorithm)
    qualified = {
        "upheld": "",
        "not upheld": " (of the gate's answers; no promise)" if gate else " (claimed, not upheld)",
        "not private": " (of the plan; not of this run)",
    }[how]
    noise = {"laplace": "Laplace noise", "gaussian": "Gaussian noise"}.get(mechanism, mechanism or MISSING)
    if plan.get("sensitivity") == "pointwise":
        noise += ", scaled at each point by how far one record can move the gradient there"
    if growth := (plan.get("schedule") or {}).get("growth"):
        noise += f", spread over the answers by a public schedule: mu^2 of answer k in proportion to {growth:g}^k"
    if gate and run.algorithm.asks() == "minimiser" and not run.algorithm.by_output(mechanism):
        noise = "objective perturbation: a random linear term of spherical law, a little Laplace noise on the answer"
    accountant = privacy.get("accountant") or plan.get("accountant")
    terms = [
        ("Total per node, whole run", total + qualified if total != MISSING else "none claimed"),
        ("What is hidden (adjacency)", hidden),
        ("Mechanism", noise),
        ("Accountant", ACCOUNTANTS.get(str(accountant), MISSING if accountant is None else str(accountant))),
        ("Noise drawn by (sampler)", number(privacy.get("sampler"))),
        ("Answers per node, at most", number(privacy.get("answers"))),
        ("Cap reached", ", ".join(map(str, _listed(privacy.get("capped")))) or "no"),
    ]
    ledgers = privacy.get("ledgers")
    if ledgers == "run":
        text = (
            "budget counted for this run only: the ledgers began empty; another run on the same data adds to this one"
        )
        terms.append(("Ledgers", text))
    elif ledgers == "kept":
        text = "kept over runs: a node refuses what would pass its budget, whichever run asks (`hushgrid ledger show`)"
        terms.append(("Ledgers", text))
    return tuple(terms) if privacy.get("claimed") is not None or how == "upheld" else ()


def _nodes(privacy: DocumentView, plan: DocumentView) -> Document:
    """One row a node: claimed, spent, budget and what its ledger leaves of it."""
    budget = part(plan.get("budget"), "epsilon")
    rows = []
    for node, entry in (privacy.get("per_node") or {}).items():
        claimed, spent, remaining = (
            entry.get(key) if isinstance(entry, Mapping) else None for key in ("claimed", "spent", "left")
        )
        if claimed is None:
            continue
        figures = (part(claimed, "epsilon"), part(claimed, "delta"), part(spent, "epsilon"), budget, remaining)
        rows.append((str(node), *(number(x, 6) for x in figures)))
    return {
        "columns": ("Node", "ε claimed", "δ claimed", "ε spent", "ε budget", "ε left"),
        "table": tuple(rows),
    }


def _limits(how: str, run: Run, wording: Wording) -> tuple[tuple[str, str], ...]:
    privacy = run.result.get("privacy") or {}
    if how != "upheld":
        return (("Everything", "This run is for study. Its data must be treated as open to whoever has seen the run."),)
    limits = [
        *wording.limits(" and more than k times δ" * bool(part(privacy.get("claimed"), "delta"))),
        ("What the group shows", f"conclusions that do not depend on one such change, such as {wording.shows}."),
        ("Taking part", "that a node takes part, when, with how many messages of which size."),
        (
            f"A lying coordinator or {wording.liar}",
            "can spoil the answer or stop the run. It cannot make a device spend beyond its budget or answer without "
            "noise: the device's own ledger and gate decide.",
        ),
        ("A device that was broken into", masking_words.broken_into(run.result, number)),
        (
            "A device put back to an old copy",
            "is noticed by the mark kept elsewhere or by its peers; with neither left it is not, and what it had "
            "spent can be spent again.",
        ),
    ]
    if privacy.get("ledgers") == "run":
        limits.append(
            ("Other runs", "the total is this run's alone; each further run on the same data adds its own ε.")
        )
    return tuple(limits)
