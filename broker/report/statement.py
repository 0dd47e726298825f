"""What a run's report says about privacy, in plain words: functions of result.json and scenario.yaml alone, by what the
algorithm asks of its gate, its pattern and its variant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hushgrid.broker.report import dispatch
from hushgrid.broker.report.claims import claim_of
from hushgrid.broker.report.run_directory import Run
from hushgrid.kernels.algorithms.base import Algorithm, gated
from hushgrid.node.problems import masking_words
from hushgrid.node.problems.power_flow.words import change_words
from hushgrid.node.problems.records.words import clipping
from hushgrid.node.problems.statistics import words

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
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.replace(",", _SPACE).replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
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


def adjacency_words(
    adjacency: Any, zones: bool, mechanism: str, base_mva: float | None, records: str = "clipped"
) -> str:
    """The change that is hidden, such as "one active or reactive load moves by at most 0.01 p.u. (1 MW or 1 MVAr)".

    `records`: what bounds each record's gradient: it is "clipped", "bounded" by loss and rows, or "trusted" to be short; or it
    is a part of a sum that is "added".
    """
    if isinstance(adjacency, Mapping) and "bounded-change" in adjacency:
        beta = adjacency["bounded-change"]
        if zones:
            if isinstance(beta, Mapping):
                return change_words(beta, base_mva)
            power = f" ({number(beta * base_mva)} MW or {number(beta * base_mva)} MVAr)" if base_mva else ""
            return f"one active or reactive load moves by at most {number(beta)} p.u.{power}"
        norm = _norm(mechanism)
        return f"one node's data change so that its gradient moves by at most {number(beta)} ({norm}) at every point"
    if (clip := _clip(adjacency)) is not None:
        how = {
            "clipped": f"each record's gradient is clipped to {number(clip)}, {_norm(mechanism)}",
            "bounded": "the loss and the row bound limit what one record can do; nothing is clipped",
            "added": f"its part of the sum is shortened to {number(clip)}, {_norm(mechanism)}",
            "trusted": f"the method takes it for granted that no record's gradient is longer than {number(clip)}",
        }[records]
        k = part(adjacency["replace-one-record"], "records") or 1
        which = "one record of one node is" if k == 1 else f"any {number(k)} records of one node are"
        return f"{which} replaced by any other{'s' * (k > 1)} (the number of records is public; {how})"
    return MISSING if adjacency is None else str(adjacency)


def _norm(mechanism: str) -> str:
    return "sum of absolute values" if mechanism == "laplace" else "Euclidean norm"


def _clip(adjacency: Any) -> Any:
    """c, where one record is replaced; else None."""
    how = adjacency.get("replace-one-record") if isinstance(adjacency, Mapping) else None
    return part(how, "clip")


ACCOUNTANTS = {
    "pure-basic": "pure-basic: the ε of all answers added up",
    "pure-optimal": "pure-optimal: optimal composition of a fixed number of pure answers",
    "zcdp": "zcdp: zero-concentrated differential privacy, converted to (ε, δ) at the end",
    "gdp": "gdp: Gaussian differential privacy, converted to (ε, δ) at the end",
}


def statement(run: Run, base_mva: float | None) -> Statement:
    """The statement that is true of this run. base_mva: MVA of one p.u., None where it is not known."""
    result, scenario, algorithm, zones = run.result, run.scenario, run.algorithm, run.zones
    privacy: Mapping[str, Any] = result.get("privacy") or {}
    plan: Mapping[str, Any] = scenario.get("privacy") or {}
    how = standing(result)
    mechanism = str(privacy.get("mechanism") or plan.get("mechanism") or "")
    claimed = privacy.get("claimed")
    epsilon, delta = part(claimed, "epsilon"), part(claimed, "delta")
    records = (
        "added"
        if run.sums
        else "bounded"
        if algorithm.asks() == "minimiser"
        else "clipped"
        if gated(algorithm)
        else "trusted"
    )
    hidden = adjacency_words(privacy.get("adjacency") or plan.get("adjacency"), zones, mechanism, base_mva, records)
    total = f"ε = {number(epsilon)}" + (f", δ = {number(delta)}" if delta else "")
    whose = "each zone's loads" if zones else "each node's data"

    reasons = tuple(str(f) for f in _listed(privacy.get("findings")))
    if how == "upheld":
        headline = f"Privacy claim upheld: {whose} are protected with a total of {total} {masking_words.where(result)}."
    elif how == "not upheld":
        first = (
            reasons[0]
            if reasons
            else "noise stands where the published method puts it, which does not give what it claims"
        )
        headline = f"{_not_upheld(algorithm)}: {first}"
        reasons = reasons[1:]
    else:
        headline = f"Not private: {_why(scenario, algorithm)}"
    return Statement(
        standing=how,
        headline=headline,
        reasons=reasons,
        meaning=_meaning(how, run, hidden, epsilon, delta, privacy.get("answers")),
        terms=_terms(how, run, hidden, total if epsilon is not None else MISSING, mechanism),
        **_nodes(privacy, plan),
        limits=_limits(how, run),
    )


def _not_upheld(algorithm: Algorithm) -> str:
    return "No privacy claim is made" if gated(algorithm) else "Privacy claim not upheld"


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _why(scenario: Mapping[str, Any], algorithm: Algorithm) -> str:
    if algorithm.variant == "none":
        what = "sum" if algorithm.asks() == "statistic" else "optimiser"
        return f"this is the plain {what}; no noise was added and its messages can be traced back to the data."
    if scenario.get("seed") is not None:
        return (
            "the noise was drawn from a seed, so that the run can be repeated; whoever knows the seed can take it off."
        )
    if (scenario.get("run") or {}).get("truth"):
        return "figures computed from the raw data were recorded beside the released ones (run.truth)."
    return "the run is marked as a simulation."


def _meaning(how: str, run: Run, hidden: str, epsilon: Any, delta: Any, answers: Any) -> tuple[str, ...]:
    algorithm, plan = run.algorithm, run.scenario.get("privacy") or {}
    if how == "not private" and algorithm.variant == "none":
        return ("The run shows what the algorithm does without protection. It says nothing about other runs.",)
    sentences = [*masking_words.claim(run.result, number(epsilon), number)]
    if how == "upheld" and isinstance(epsilon, int | float):
        odds = (
            f"{number(math.exp(epsilon))} (e to the power ε)" if epsilon <= 20 else f"e to the power {number(epsilon)}"
        )
        apart = f", apart from a probability of δ = {number(delta)}" if delta else ""
        sentences.append(
            f"Suppose {'such an adversary' if sentences else 'someone'} reads each message of this run, all final values and the "
            f"code, and knows all other data, and suppose {hidden}. Then nothing they can see becomes more or less likely by "
            f"more than a factor of {odds}{apart}."
        )
        if run.zones:
            sentences.append(
                "A larger change is hidden less: k times the change, or k loads at once, counts as k times ε"
                + (" (and more than k times δ)." if delta else ".")
            )
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
    sentences.append(_noise(run, answers))
    answer = algorithm.asks(str(plan.get("mode", "objective")))
    if gated(algorithm) and answer == "gradient" and (clip := _clip(plan.get("adjacency"))) is not None:
        sentences.append(clipping(run.scenario["problem"], clip, str(plan.get("mechanism"))))
    return tuple(sentences)


def _noise(run: Run, answers: Any) -> str:
    algorithm, plan = run.algorithm, run.scenario.get("privacy") or {}
    mode = str(plan.get("mode", "objective"))
    count = f"at most {number(answers)} per node" if isinstance(answers, int) and answers != 1 else "all of them"
    if not gated(algorithm):
        return claim_of(algorithm).noise(algorithm, mode)
    if run.zones:
        if run.least_cost:
            return dispatch.noise_words(run.scenario["problem"])
        if mode == "input":
            return "Each load was perturbed once; every message is computed from that noisy copy, so more rounds cost nothing."
        if plan.get("at") == "gradient":
            return f"Each answer is a gradient with fresh noise; the total counts the answers, {count}."
        return (
            f"Each answer drew a fresh noisy copy of the loads and was computed from the mean of all copies so far. Whoever "
            f"listens can average them too: the total counts the answers, {count}."
        )
    if run.sums:
        return words.added(run.scenario["problem"], _clip(plan.get("adjacency")), str(plan.get("mechanism")))
    if algorithm.asks() != "minimiser":
        what = "Each answer is a gradient of a node's data with fresh noise"
    elif algorithm.by_output(str(plan.get("mechanism", "laplace"))):
        what = (
            "Each answer is a private minimiser: the point where a node's own function plus a public quadratic is least, "
            "with fresh noise (output perturbation)"
        )
    else:
        what = (
            "Each answer is a private minimiser: the point where a node's own function plus a public quadratic and a fresh "
            "random linear term is least (objective perturbation), with a little more noise for what the solver leaves open"
        )
    sentence = (
        f"{what}, added before anything else sees it; all that travels and all that nodes arrive at is computed from such "
        f"answers. The total counts them, {count}."
    )
    return f"{sentence} {claim_of(algorithm).note(algorithm)}".rstrip()


def _terms(how: str, run: Run, hidden: str, total: str, mechanism: str) -> tuple[tuple[str, str], ...]:
    privacy, plan = run.result.get("privacy") or {}, run.scenario.get("privacy") or {}
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


def _nodes(privacy: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
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


def _limits_of_records(run: Run, more: str) -> tuple[tuple[str, str], ...]:
    """What of records is not protected. `more`: of delta, as the end of a clause."""
    adjacency = (run.scenario.get("privacy") or {}).get("adjacency")
    return (
        (
            "Public by design",
            f"the network, the algorithm's settings, the bounds, how many records each node has, and the {'sum' if run.sums else 'solution'}.",
        ),
        (
            "Who answers when",
            "the walk, who holds its token, and how often a node has answered are public."
            if run.walks
            else "the rounds, and in which of them every node answers, are public.",
        ),
        (
            "Several records at once",
            f"one person behind several records, or at several nodes, is group privacy: k count as k times ε{more}.",
        )
        if _clip(adjacency) is not None
        else (
            "What the change is",
            "the promise is about gradients. Replacing a record is such a change only where the loss and the bounds "
            "say so (logistic: where scale times twice the row bound over the number of records is no more; least squares: "
            "never).",
        ),
    )


def _limits(how: str, run: Run) -> tuple[tuple[str, str], ...]:
    zones = run.zones
    privacy = run.result.get("privacy") or {}
    ledgers, more = privacy.get("ledgers"), " and more than k times δ" * bool(part(privacy.get("claimed"), "delta"))
    if how != "upheld":
        return (("Everything", "This run is for study. Its data must be treated as open to whoever has seen the run."),)
    limits = []
    if zones:
        limits += [
            (
                "Public by design",
                "the network, its limits and costs, the zones, the plan, and all released "
                f"{'values, flows and prices' if run.least_cost else 'set-points and flows'}.",
            ),
            *(dispatch.knowledge(run.scenario["problem"], run.result, run.noisy_loads) if run.least_cost else ()),
            (
                "Several loads at once",
                "a whole bus (its active and reactive load) or several loads changing at once is group privacy: "
                "k changes count as k times ε.",
            ),
        ]
    else:
        limits += _limits_of_records(run, more)
    shows = (
        "a zone's rough total"
        if zones
        else "what the sum says"
        if run.sums
        else "what the common model says about everyone alike"
    )
    limits += [
        ("What the group shows", f"conclusions that do not depend on one such change, such as {shows}."),
        ("Taking part", "that a node takes part, when, with how many messages of which size."),
        (
            f"A lying coordinator or {'another zone' if zones else 'neighbour' if run.algorithm.pattern != 'star' else 'another node'}",
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
    if ledgers == "run":
        limits.append(
            ("Other runs", "the total is this run's alone; each further run on the same data adds its own ε.")
        )
    return tuple(limits)
