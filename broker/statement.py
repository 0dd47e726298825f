"""What a run's report says about privacy, in plain words. Pure functions of result.json and scenario.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPACE = "\u202f"  # narrow, does not break


def number(value: Any, digits: int = 3) -> str:
    """A number for reading: thousands apart, powers of ten written out; a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING if value is None else str(value)
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, int):
        return f"{value:,}".replace(",", _SPACE).replace("-", "−")
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        places = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{places}f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return text.replace(",", _SPACE).replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")


def fixed(value: float, places: int = 2) -> str:
    """A number of a column, to be compared with those above and below."""
    return f"{value:,.{places}f}".replace(",", _SPACE).replace("-", "−") if math.isfinite(value) else number(value)


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


def standing(result: Mapping[str, Any]) -> str:
    """ "upheld" only where result.json says `upheld: true`; whatever cannot be read as a claim claims nothing."""
    upheld = (result.get("privacy") or {}).get("upheld")
    return "upheld" if upheld is True else "not upheld" if upheld is False else "not private"


def part(value: Any, name: str) -> Any:
    """epsilon or delta of what is written as {epsilon, delta}; None where it is not."""
    return value.get(name) if isinstance(value, Mapping) else None


def adjacency_words(adjacency: Any, zones: bool, mechanism: str, base_mva: float | None) -> str:
    """The change that is hidden, such as "one active or reactive load moves by at most 0.01 p.u. (1 MW or 1 MVAr)"."""
    if isinstance(adjacency, Mapping) and "bounded-change" in adjacency:
        beta = adjacency["bounded-change"]
        if zones:
            power = (
                f" ({number(beta * base_mva)} MW or {number(beta * base_mva)} MVAr)"
                if base_mva and isinstance(beta, int | float)
                else ""
            )
            return f"one active or reactive load moves by at most {number(beta)} p.u.{power}"
        norm = _norm(mechanism)
        return f"one node's data change so that its gradient moves by at most {number(beta)} ({norm}) at every point"
    if (clip := _clip(adjacency)) is not None:
        clipped = f"each record's gradient is clipped to {number(clip)}, {_norm(mechanism)}"
        return f"one record of one node is replaced by any other (the number of records is public; {clipped})"
    return MISSING if adjacency is None else str(adjacency)


def _norm(mechanism: str) -> str:
    return "sum of absolute values" if mechanism == "laplace" else "Euclidean norm"


def _clip(adjacency: Any) -> Any:
    """c, where one record is replaced; else None."""
    how = adjacency.get("replace-one-record") if isinstance(adjacency, Mapping) else None
    return part(how, "clip")


#: The largest |slope| of a loss: a record's gradient is at most as long, times row_bound.
SLOPE = {"logistic": 1.0, "softmax": math.sqrt(2)}


def clipping(problem: Mapping[str, Any], clip: float, mechanism: str) -> str:
    """What clipping does to what is computed."""
    kind, R = str(problem.get("kind")), problem.get("row_bound")
    if mechanism == "gaussian" and kind in SLOPE and isinstance(R, int | float) and SLOPE[kind] * R <= clip:
        return "No record's gradient can be longer than the clipping bound: clipping changes nothing here."
    if kind == "softmax":
        return (
            "Clipped softmax gradients are the gradients of no function: where clipping shortens any, what the nodes tend "
            "to, noise apart, is a point where the clipped gradients balance, not the minimiser of any loss."
        )
    return (
        "Clipped gradients of this loss are those of a Huberised loss, which is convex too: what the nodes tend to, noise "
        "apart, is that loss's optimum. Errors in this report are against the optimum of the loss itself."
    )


ACCOUNTANTS = {
    "pure-basic": "pure-basic: the ε of all answers added up",
    "pure-optimal": "pure-optimal: optimal composition of a fixed number of pure answers",
    "zcdp": "zcdp: zero-concentrated differential privacy, converted to (ε, δ) at the end",
    "gdp": "gdp: Gaussian differential privacy, converted to (ε, δ) at the end",
}


def statement(result: Mapping[str, Any], scenario: Mapping[str, Any], base_mva: float | None) -> Statement:
    """The statement that is true of this run. base_mva: MVA of one p.u., None where it is not known."""
    privacy: Mapping[str, Any] = result.get("privacy") or {}
    plan: Mapping[str, Any] = scenario.get("privacy") or {}
    zones = (scenario.get("problem") or {}).get("kind") == "zones"
    how = standing(result)
    variant = str(result.get("variant"))
    mechanism = str(privacy.get("mechanism") or plan.get("mechanism") or "")
    claimed = privacy.get("claimed")
    epsilon, delta = part(claimed, "epsilon"), part(claimed, "delta")
    hidden = adjacency_words(privacy.get("adjacency") or plan.get("adjacency"), zones, mechanism, base_mva)
    total = f"ε = {number(epsilon)}" + (f", δ = {number(delta)}" if delta else "")
    whose = "each zone's loads" if zones else "each node's data"

    reasons = tuple(str(f) for f in _listed(privacy.get("findings")))
    if how == "upheld":
        headline = f"Privacy claim upheld: {whose} are protected with a total of {total} per node over this whole run."
    elif how == "not upheld":
        first = (
            reasons[0]
            if reasons
            else "noise stands where the published method puts it, which does not give what it claims"
        )
        headline = f"Privacy claim not upheld: {first}"
        reasons = reasons[1:]
    else:
        headline = f"Not private: {_why(scenario, variant)}"
    return Statement(
        standing=how,
        headline=headline,
        reasons=reasons,
        meaning=_meaning(how, variant, scenario, zones, hidden, epsilon, delta, privacy.get("answers")),
        terms=_terms(how, privacy, plan, hidden, total if epsilon is not None else MISSING, mechanism),
        **_nodes(privacy, plan),
        limits=_limits(how, zones, plan.get("adjacency"), privacy.get("ledgers")),
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _why(scenario: Mapping[str, Any], variant: str) -> str:
    if variant == "none":
        return "this is the plain optimiser; no noise was added and its messages can be traced back to the data."
    if scenario.get("seed") is not None:
        return (
            "the noise was drawn from a seed, so that the run can be repeated; whoever knows the seed can take it off."
        )
    if (scenario.get("run") or {}).get("truth"):
        return "figures computed from the raw data were recorded beside the released ones (run.truth)."
    return "the run is marked as a simulation."


def _meaning(
    how: str,
    variant: str,
    scenario: Mapping[str, Any],
    zones: bool,
    hidden: str,
    epsilon: Any,
    delta: Any,
    answers: Any,
) -> tuple[str, ...]:
    plan: Mapping[str, Any] = scenario.get("privacy") or {}
    if how == "not private" and variant == "none":
        return ("The run shows what the algorithm does without protection. It says nothing about other runs.",)
    said = []
    if how == "upheld" and isinstance(epsilon, int | float):
        odds = (
            f"{number(math.exp(epsilon))} (e to the power ε)" if epsilon <= 20 else f"e to the power {number(epsilon)}"
        )
        apart = f", apart from a probability of δ = {number(delta)}" if delta else ""
        said.append(
            f"Suppose someone reads each message of this run, all final values and the code, and knows all other data, "
            f"and suppose {hidden}. Then nothing they can see becomes more or less likely by more than "
            f"a factor of {odds}{apart}."
        )
        if zones:
            said.append(
                "A larger change is hidden less: k times the change, or k loads at once, counts as k times ε"
                + (" (and more than k times δ)." if delta else ".")
            )
    elif how == "not upheld" and epsilon is None:
        said.append("The published method claims no ε: it obscures its messages, and what it hides is not measured.")
    elif how == "not upheld":
        said.append("The figures below are what the published method claims, for comparison. They are no promise.")
    else:
        said.append(
            "The figures below are those of the same plan with noise nobody can repeat. They do not hold for this run."
        )
    said.append(_noise(plan, zones, variant, answers))
    if variant == "guarded" and (clip := _clip(plan.get("adjacency"))) is not None:
        said.append(clipping(scenario["problem"], clip, str(plan.get("mechanism"))))
    return tuple(said)


def _noise(plan: Mapping[str, Any], zones: bool, variant: str, answers: Any) -> str:
    mode = plan.get("mode", "objective")
    count = f"at most {number(answers)} per node" if isinstance(answers, int) and answers != 1 else "all of them"
    if variant == "published":
        where = {
            "output": "Noise was added to each zone's result, as the published method does.",
            "output-projected": "Noise was added to each zone's result, which was then projected on the zone's limits.",
        }
        return where.get(str(mode), "Noise was added where and as large as the published method says.")
    if not zones:
        return (
            f"Each answer is a gradient of a node's data with fresh noise, added before anything else sees it; all that "
            f"travels and all that nodes arrive at is computed from such answers. The total counts them, {count}."
        )
    if mode == "input":
        return (
            "Each load was perturbed once; every message is computed from that noisy copy, so more rounds cost nothing."
        )
    if plan.get("at") == "gradient":
        return f"Each answer is a gradient with fresh noise; the total counts the answers, {count}."
    return (
        f"Each answer was computed from a fresh noisy copy of the loads. Whoever listens can average the copies: "
        f"the total counts the answers, {count}."
    )


def _terms(
    how: str, privacy: Mapping[str, Any], plan: Mapping[str, Any], hidden: str, total: str, mechanism: str
) -> tuple[tuple[str, str], ...]:
    qualified = {
        "upheld": "",
        "not upheld": " (claimed, not upheld)",
        "not private": " (of the plan; not of this run)",
    }[how]
    accountant = privacy.get("accountant") or plan.get("accountant")
    terms = [
        ("Total per node, whole run", total + qualified if total != MISSING else "none claimed"),
        ("What is hidden (adjacency)", hidden),
        ("Mechanism", {"laplace": "Laplace noise", "gaussian": "Gaussian noise"}.get(mechanism, mechanism or MISSING)),
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


def _nodes(privacy: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """One row a node: claimed, spent, budget and what its ledger leaves of it."""
    budget = part(plan.get("budget"), "epsilon")
    rows = []
    for node, entry in (privacy.get("per_node") or {}).items():
        claimed, spent, left = (
            entry.get(key) if isinstance(entry, Mapping) else None for key in ("claimed", "spent", "left")
        )
        if claimed is None:
            continue
        figures = (part(claimed, "epsilon"), part(claimed, "delta"), part(spent, "epsilon"), budget, left)
        rows.append((str(node), *(number(x, 6) for x in figures)))
    return {
        "columns": ("Node", "ε claimed", "δ claimed", "ε spent", "ε budget", "ε left"),
        "table": tuple(rows),
    }


def _limits(how: str, zones: bool, adjacency: Any, ledgers: Any) -> tuple[tuple[str, str], ...]:
    if how != "upheld":
        return (("Everything", "This run is for study. Its data must be treated as open to whoever has seen the run."),)
    limits = []
    if zones:
        limits += [
            (
                "Public by design",
                "the network, its limits and costs, the zones, the plan, and all released set-points and flows.",
            ),
            (
                "Several loads at once",
                "a whole bus (its active and reactive load) or several loads changing at once is group privacy: "
                "k changes count as k times ε.",
            ),
        ]
    else:
        limits += [
            (
                "Public by design",
                "the network, the algorithm's settings, the bounds, how many records each node has, and the solution.",
            ),
            ("Who answers when", "the walk, who holds its token, and how often a node has answered are public."),
            (
                "Several records at once",
                "one person behind several records, or at several nodes, is group privacy: k count as k times ε.",
            )
            if _clip(adjacency) is not None
            else (
                "What the change is",
                "the promise is about gradients. Replacing a record is such a change only where the loss and the bounds "
                "say so (logistic: where twice the row bound over the number of records is no more; least squares: never).",
            ),
        ]
    shows = "a zone's rough total" if zones else "what the common model says about everyone alike"
    limits += [
        ("What the group shows", f"conclusions that do not depend on one such change, such as {shows}."),
        ("Taking part", "that a node takes part, when, with how many messages of which size."),
        (
            "A lying coordinator or neighbour",
            "can spoil the answer or stop the run. It cannot make a device spend beyond its budget or answer without "
            "noise: the device's own ledger and gate decide.",
        ),
        (
            "A device that was broken into",
            "whoever controls a device reads its own data. The other nodes' protection stands.",
        ),
        (
            "A device put back to an old copy",
            "is noticed by the mark kept elsewhere or by its peers; with neither left it is not, and what it had "
            "spent can be spent again.",
        ),
    ]
    if ledgers == "run":
        limits.append(
            ("Other runs", "the total is this run's alone; each further run on the same data adds its own ε.")
        )
    return tuple(limits)
