"""What `hushgrid run` says on stdout when it is done, in plain text."""

from __future__ import annotations

from hushgrid.broker.report import dispatch, quality
from hushgrid.broker.report.day import day_of
from hushgrid.broker.report.network import walk_words
from hushgrid.broker.report.result import Result
from hushgrid.broker.report.wording import WORDINGS
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.node.columns import columns
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems import masking_words
from hushgrid.node.problems.power_flow.section import objective_of


def text(result: Result, scenario: Scenario) -> str:
    """A run in a dozen lines."""
    r, zones = result.summary, not scenario.kind.records
    through = "in one process" if r["transport"] == "memory" else f"over MQTT, {r['broker']}"
    done, because = (
        f"{r['rounds_done']} of {scenario.algorithm.rounds}{finished(r)}",
        f"stopped because: {r['stopped_because']}",
    )
    wording = WORDINGS[scenario.kind.folder]
    unit = wording.unit.strip()
    noisy = scenario.privacy is not None and scenario.privacy.mode == "input"
    rows, title = [], f"{r['name']}: {r['algorithm']}, {r['nodes']} nodes {through}"
    if zones and objective_of(scenario.problem, scenario.algorithm) == "cost":
        found = day_of(r, noisy) or dispatch.dispatch_of(r, scenario.problem.voll, noisy)
        title = f"{r['name']}: {found.headline}"
        rows += [("run", f"{r['algorithm']}, {r['nodes']} zones {through}"), ("figures", found.sentence)]
    elif isinstance(r.get("served_mw"), float | int):
        amounts = {key: f"{r[f'{key}_mw']:,.1f}" for key in ("generation", "load", "served", "unserved", "spilled")}
        rows.append(
            (
                "power",
                f"{amounts['generation']} MW generated for a load of {amounts['load']} MW: {amounts['served']} served, "
                f"{amounts['unserved']} not served, {amounts['spilled']} "
                f"spilled{' (the noisy loads)' if noisy else ''}",
            )
        )
    judged = r["quality"]
    rows.append(
        (
            "quality",
            f"{quality.WORD[judged['verdict']]}: {quality.sentence(judged, wording.differ, dispatch.feasible(r))}",
        )
    )
    if r["walk"] is None:
        rows.append(("rounds", f"{done}, {because}"))
    else:
        blocks = f"{len(result.history['round'])} blocks of {r['nodes']}"
        rows += [("activations", f"{done} ({blocks}), {because}"), ("walk", walk_words(r["walk"]))]
    if "records" in r:
        rows.append(("sum", f"over {len(r['summed'])} of {r['nodes']} nodes, {r['records']:,} records"))
    else:
        rows.append(("consensus residual", figure(r["consensus_residual"], unit)))
    if zones:
        rows.append(("largest violation", figure(r["max_violation"], unit)))
    if r["objective"] is not None:
        gap = "" if r["optimality_gap"] is None else f" ({r['optimality_gap']:.4g} above the optimum)"
        where = " at the noisy loads" if r["privacy"]["upheld"] is True else ""
        rows.append(("objective", figure(r["objective"]) + gap + where))
    elif r["privacy"]["upheld"] is True and "records" not in r:
        rows.append(("objective", "withheld: it would be computed from raw data"))
    if r.get("test") is not None:
        rows.append(("test error", test(r)))
    if r["relative_error"] is not None:
        rows.append(("relative error", figure(r["relative_error"])))
    if r["lost"]:
        rows.append(("lost", f"{', '.join(r['lost'])}: the walk went on around; {left_of(r)}"))
    if r["walk"] is not None and r["privacy"]["capped"]:
        rows.append(("cap reached", ", ".join(r["privacy"]["capped"])))
    if r.get("frozen"):
        rows.append(("frozen", f"{', '.join(r['frozen'])}: in the problem solved by a last linear model"))
    rows += [
        ("messages" if r["walk"] is None else "tokens handed over", f"{r['messages']:,} ({size(r['bytes'])})"),
        *levels(r),
        ("wall time", f"{r['wall_s']:.2f} s"),
        ("privacy", privacy(r)),
    ]
    if result.path is not None:
        rows.append(("report", str(result.path / "report.html")))
    return f"{title}\n{columns(rows, indent=2)}"


def levels(r: DocumentView) -> list[tuple[str, str]]:
    """What went on in each of two levels; nothing of one."""
    return [
        (label, f"{level['messages']:,} messages ({size(level['bytes'])}){_seconds(level)}")
        for label, key in (("in the sites", "in_sites"), ("between sites", "between_sites"))
        if (level := r.get(key))
    ]


def _seconds(level: DocumentView) -> str:
    return "" if level["seconds"] is None else f", {level['seconds']:.2f} s"


def left_of(r: DocumentView) -> str:
    """What of the nodes that are lost is in the problem that was solved."""
    stays = [name for name in r["lost"] if name in (r.get("solved") or r["lost"])]
    if not stays:
        return f"the problem solved is that of {', '.join(r['solved'])}"
    return f"what {', '.join(stays)} had added stays in the problem"


def finished(r: DocumentView) -> str:
    """The rounds of averaging that a run ended with."""
    k = (r.get("finish") or {}).get("gossip")
    return f", then {k} of averaging" if k else ""


def test(r: DocumentView) -> str:
    """The models on the rows of `problem.test`, in one sentence."""
    rows, errors = r["test"], [r[key] for key in r if key.startswith("test_error_") and r[key] is not None]
    between = "" if not errors else f", {figure(min(errors))} to {figure(max(errors))} of the nodes' own"
    return (
        f"{figure(r['test_error'])} of the common model{between} ({rows['measure']}; {figure(rows['trivial'])} "
        f"without a model); the {rows['rows']:,} rows of {rows['file']} are public: nothing protects them"
    )


def privacy(r: Document) -> str:
    """The claim in one sentence."""
    p = r["privacy"]
    if p["claimed"] is None:
        published = "not upheld: the published method claims no epsilon"
        return published if p["upheld"] is False else "not private: variant none gives exact answers"
    claimed, spent = bound(p["claimed"]), bound(p["spent"])
    kind, change = next(iter(p["adjacency"].items()))
    if isinstance(change, dict):
        text = (
            f"{key} {value[:12] if isinstance(value, str) else format(value, 'g')}" for key, value in change.items()
        )
        change = f"({', '.join(text)})"
    else:
        change = f"{change:g}"
    stand = {True: "upheld", False: "not upheld (published is for study)"}.get(
        p["upheld"], "not private (seed or truth)"
    )
    condition = masking_words.short(p)
    sentence = f"{stand}: claimed {claimed} per node over the run{condition}, spent {spent}; adjacency {kind} {change}"
    return sentence + ("; budget counted for this run only" if p["ledgers"] == "run" else "")


def bound(value: Document) -> str:
    """epsilon and delta of a result, epsilon None being unbounded."""
    epsilon = "unbounded epsilon" if value["epsilon"] is None else f"epsilon {value['epsilon']:.6g}"
    return epsilon + (f", delta {value['delta']:g}" if value.get("delta") else "")


def figure(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.4g} {unit}".rstrip()


def size(count: float) -> str:
    """Bytes for reading."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
