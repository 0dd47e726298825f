"""`hushgrid audit`: what games measure of a claim, and the standing tests of privacy on a scenario of your own."""

from __future__ import annotations

import argparse
import json
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrid.broker.simulation.interrupts import EndedInALine
from hushgrid.cli.completion import plug_algorithms, scenario_or_file
from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.node.schema.durations import in_words
from hushgrid.scenarios import find

if TYPE_CHECKING:
    from hushgrid.lab.audit.audit import AuditResult, Measured
    from hushgrid.lab.audit.games import Claim


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    given = add(
        "files",
        metavar="SCENARIO",
        type=Path,
        nargs="*",
        help="a scenario file, or the name of one that comes with the program; with --ledger a transcript and ledgers",
    )
    given.completer = scenario_or_file  # type: ignore[attr-defined]
    kind = parser.add_mutually_exclusive_group().add_argument
    kind("--one-run", action="store_true", help="audit one whole run with many canaries, from its transcript")
    kind("--interference", action="store_true", help="compare runs over other data, with the gates' answers held fixed")
    kind(
        "--questions",
        action="store_true",
        help="list which plans and questions its devices answer, and which they refuse",
    )
    kind("--ledger", action="store_true", help="TRANSCRIPT LEDGER...: compare what travelled with what was paid")
    kind(
        "--events", action="store_true", help="STATE TRANSCRIPT: the most that was revealed of any reading of a source"
    )
    add("--games", metavar="N", type=int, help="games about either data set that are counted [up to 100000, by width]")
    add("--canaries", metavar="N", type=int, help="of --one-run [4000]")
    add("--transport", choices=("mqtt", "memory"), default="mqtt", help="of --one-run: daemons, or this process [mqtt]")
    add("--broker", metavar="URL", default="auto", help="of --one-run: auto, embedded, or a URL [auto]")
    add(
        "--confidence",
        metavar="P",
        type=float,
        default=0.999,
        help="confidence of what is measured [0.999; games: also 0.95]",
    )
    add("--node", metavar="NAME", help="the node whose gate is audited [the first]")
    add("--set", metavar="path.to.key=value", action="append", default=[], help="replace a value; may be repeated")
    add("--plugin", metavar="MODULE", action="append", default=[], help="a module of your own whose algorithms may run")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--quiet", action="store_true", help="show no progress on stderr")


def main(options: argparse.Namespace) -> int:
    with EndedInALine(options.program):
        return _audit(options)


def _audit(o: argparse.Namespace) -> int:
    from hushgrid.broker.simulation.progress import Progress

    for key, low, high in (("games", 100, 10**8), ("canaries", 20, 20_000)):
        if (value := getattr(o, key)) is not None and not low <= value <= high:
            raise InputError(f"--{key}: found {value}, expected {low} to {high}")
    if not 0.5 <= o.confidence < 1:
        raise InputError(f"--confidence: found {o.confidence:g}, expected a number from 0.5 to below 1")
    plug_algorithms(o)
    if o.ledger:
        return _ledgers(o)
    if o.events:
        return _events(o)
    if len(o.files) != 1:
        raise InputError(f"SCENARIO: found {len(o.files) or 'none'}, expected a scenario file or a name")
    file = find(o.files[0])
    raw = _read(file, o.set)
    with Progress(quiet=o.quiet) as shown:
        if o.one_run:
            return _one_run(o, raw, file, shown.phase)
        if o.interference:
            return _interference(o, raw, file, shown.phase)
        if o.questions:
            return _questions(o, raw, file)
        from hushgrid.lab.audit.audit import audited

        found = audited(
            raw, str(file), games=o.games, confidence=o.confidence, node=o.node, base=file.parent, say=shown.phase
        )
    print(json.dumps(plain(found), indent=2) if o.json else told(found))
    return _ended(found.above, found.name, found.worst.bounds[o.confidence].epsilon, found.claim, o.confidence)


def _ended(above: bool, name: str, epsilon: float, claim: Claim, confidence: float) -> int:
    """0 if the claim stands. Raises HushgridError (exit code 1) if it is refuted."""
    if above:
        raise HushgridError(
            f"{name}: the claim is refuted: found epsilon at least {epsilon:.4g} with confidence {confidence:g}, "
            f"expected at most the claimed {claim.epsilon:.4g}"
        )
    return 0


def _read(file: Path, assignments: list[str]) -> dict[str, Any]:
    from hushgrid.node.schema.yaml_file import read_yaml, set_path

    raw = read_yaml(file)
    for assignment in assignments:
        set_path(raw, assignment)
    return raw


# --- one run ---


def _one_run(o: argparse.Namespace, raw: dict[str, Any], file: Path, say: Any) -> int:
    from hushgrid.lab.audit.one_run import CANARIES, one_run

    found = one_run(
        raw,
        str(file),
        canaries=o.canaries or CANARIES,
        confidence=o.confidence,
        node=o.node,
        transport=o.transport,
        broker=o.broker,
        base=file.parent,
        say=say,
    )
    t, c = found.terms, found.claim
    facts = {
        "name": found.name,
        "node": found.node,
        "algorithm": found.plan.algorithm.name,
        "mechanism": t.mechanism,
        "answers": t.answers,
        "seen": found.seen,
        "claimed": {"epsilon": c.epsilon, "delta": c.delta},
        "measured": {"epsilon_lower": found.epsilon, "mu_lower": found.mu},
        "any_mechanism": {"epsilon_lower": found.plain},
        "confidence": found.confidence,
        "above": found.above,
        "power": found.power,
        "share": found.share,
        "canaries": found.canaries,
        "guesses": found.guesses,
        "right": found.right,
        "games": 1,
        "canary": {"words": "a row with one feature of its own, its label chosen by a coin", "from_data": False},
        "transport": found.transport,
        "seconds": round(found.seconds, 3),
    }
    if o.json:
        print(json.dumps(facts, indent=2))
        return _ended(found.above, found.name, found.epsilon, c, o.confidence)
    delta = f", delta {c.delta:g}" if c.delta else ""
    verdict = "ABOVE THE CLAIM" if found.above else "no more than is claimed is shown; that no attack can is not shown"
    print(
        f"{found.name}: {facts['algorithm']}, one run over {found.transport}, {found.canaries:,} canaries at {found.node}\n"
        f"claimed     epsilon {c.epsilon:.4g}{delta}, over the run\n"
        f"measured    epsilon at least {found.epsilon:.4g}, with confidence {found.confidence:g}\n"
        f"power       epsilon {found.power:.4g}, {found.share:.2g} of the claim's {'epsilon' if found.mu is None else 'mu'}: a "
        f"perfect attack on exactly the claimed noise shows no more with {found.canaries:,} canaries, in the middle\n"
        f"  {found.right} of the {found.guesses} surest guesses are right, from {found.seen} answers of {t.answers}; for any mechanism: "
        f"epsilon at least {found.plain:.4g}\n  {verdict}"
    )
    return _ended(found.above, found.name, found.epsilon, c, o.confidence)


# --- the standing tests ---


def _interference(o: argparse.Namespace, raw: dict[str, Any], file: Path, say: Any) -> int:
    from hushgrid.lab.audit.interference import interference
    from hushgrid.node.columns import columns

    found = interference(raw, file.parent, say)
    same = not any(one.differs for one in found.compared)
    if o.json:
        rows = [{"data": one.data, "differs": one.differs} for one in found.compared]
        print(
            json.dumps(
                {
                    "name": found.name,
                    "messages": found.messages,
                    "compared": rows,
                    "same": same,
                    "control": found.control,
                },
                indent=2,
            )
        )
    else:
        cells = [
            [one.data, "the same" if not one.differs else "DIFFERS: " + ", ".join(one.differs[:6])]
            for one in found.compared
        ]
        print(
            f"{found.name}: {found.messages} messages, logs, outcomes, ledgers and results, with the gates' answers held still"
        )
        print(columns(cells, ["over", "beside the scenario's own data"], 2))
        print(
            f"  with the gates' own answers {len(found.control)} things differ, the transcript among them: the comparison can fail"
        )
    return 0 if same and "transcript" in found.control else 1


def _questions(o: argparse.Namespace, raw: dict[str, Any], file: Path) -> int:
    from hushgrid.lab.audit.questions import questions
    from hushgrid.node.columns import columns

    found = questions(raw, str(file), o.node, file.parent)
    same = all(q.same for q in found)
    if o.json:
        print(json.dumps({"questions": [q._asdict() for q in found], "same": same}, indent=2))
        return 0 if same else 1
    rows = [
        [q.where, q.what, "answers" if q.answered else "refuses", q.reply if q.same else f"DEPENDS ON DATA: {q.reply}"]
        for q in found
    ]
    print(columns(rows, ["", "asked", "the device", "and says"]))
    print("said over data sets of the same public shape: " + ("the same words for each" if same else "NOT THE SAME"))
    return 0 if same else 1


def _ledgers(o: argparse.Namespace) -> int:
    from hushgrid.lab.audit.ledgers import compared
    from hushgrid.node.columns import columns

    if len(o.files) < 2:
        raise InputError(f"--ledger: found {len(o.files)} files, expected a transcript and the ledgers of its nodes")
    found = compared(o.files[0], o.files[1:])
    fits = not any(line.wrong for line in found)
    if o.json:
        print(json.dumps({"lines": [line._asdict() for line in found], "fits": fits}, indent=2))
    else:
        header = ["node", "run", "travelled", "in the ledger", "cap", "epsilon", "claimed", ""]
        rows = [
            [
                li.node,
                li.run[:8],
                li.travelled,
                li.paid,
                li.cap,
                "-" if li.epsilon is None else f"{li.epsilon:.4g}",
                f"{li.claimed:.4g}",
                "; ".join(li.wrong) or "fits",
            ]
            for li in found
        ]
        print(columns(rows, header))
    return 0 if fits else 1


def _events(o: argparse.Namespace) -> int:
    from hushgrid.lab.audit.events import events

    if len(o.files) != 2:
        raise InputError(f"--events: found {len(o.files)} files, expected a device's folder STATE and a TRANSCRIPT")
    each = events(*o.files)
    worst = max(each, key=lambda one: one.epsilon / one.claim.epsilon)
    if o.json:
        largest = {"reading": worst.reading, "epsilon": worst.epsilon if worst.epsilon < inf else None}
        facts = {"claimed": worst.claim.epsilon, "largest": largest, "readings": sum(one.readings for one in each)}
        print(json.dumps(facts, indent=2))
    for one in [] if o.json else each:
        c = one.claim
        delta = f", delta {c.delta:g}" if c.delta else ""
        span = f"in any {in_words(c.window)} of running time" if c.window is not None else "over its life"
        lost = (
            f"; {one.missing} answers travelled that its ledger lacks, and count for every reading"
            if one.missing
            else ""
        )
        print(
            f"{one.node}: {one.readings} readings, {one.answers} answers{lost}\n"
            f"claimed     epsilon {c.epsilon:.4g}{delta} {span} ({c.adjacency})\n"
            f"largest     epsilon {one.epsilon:.4g}, of {one.reading or 'none'}\n"
            f"  {'ABOVE THE CLAIM' if one.above else 'no reading was told of more than is claimed for a window'}"
        )
    return 1 if any(one.above for one in each) else 0


# --- games ---


def plain(found: AuditResult) -> dict[str, Any]:
    """The audit as JSON."""
    t, worst = found.terms, found.worst
    return {
        "name": found.name,
        "node": found.node,
        "algorithm": found.plan.algorithm.name,
        "variant": found.plan.algorithm.variant,
        "adjacency": t.adjacency,
        "mechanism": t.mechanism,
        "accountant": t.accountant,
        "answers": t.answers,
        "claimed": {"epsilon": t.epsilon, "delta": t.delta},
        "measured": bound(worst, found.confidence),
        "confidence": found.confidence,
        "at": {f"{c:g}": bound(worst, c) for c in worst.bounds},
        "above": found.above,
        "power": found.power,
        "expected": found.expected,
        "games": worst.counted,
        "attack": worst.attack.name,
        "canary": worst.canary.as_json,
        "typical": None
        if found.typical is None
        else {
            "measured": bound(found.typical, found.confidence),
            "games": found.typical.counted,
            "canary": found.typical.canary.as_json,
        },
        "seconds": round(found.seconds, 3),
    }


def bound(of: Measured, confidence: float) -> dict[str, float | None]:
    found = of.bounds[confidence]
    return {"epsilon_lower": found.epsilon, "mu_lower": found.mu}


def told(found: AuditResult) -> str:
    """The audit as text."""
    from hushgrid.node.columns import columns

    t, c = found.terms, found.confidence
    delta = f", delta {t.delta:g}" if t.delta else ""
    sums = f" in sums with {t.masked.honest - 1} honest others" if t.masked else ""
    rows = [["the worst pair found", *_cells(found.worst, c), found.worst.canary.description]]
    if found.typical is not None:
        rows.append(["a typical pair", *_cells(found.typical, c), found.typical.canary.description])
    lines = [
        f"{found.name}: {found.plan.algorithm.name}, {t.answers} answers of {found.node}{sums}, {t.mechanism} noise, {t.adjacency}",
        f"claimed     epsilon {t.epsilon:.4g}{delta}, over the run",
        f"measured    epsilon at least {found.worst.bounds[c].epsilon:.4g}, with confidence {c:g}",
        f"power       epsilon {found.power:.4g} at most: what a perfect attack could have shown with so many games ({found.expected:.4g} in the middle)",
        columns([row[:-1] for row in rows], ["", *(f"at {100 * k:g} %" for k in found.worst.bounds), "games", "by"], 2),
        *(f"  {name}: {words}" for name, *_, words in rows),
        _verdict(found),
    ]
    if found.typical is not None and found.typical.canary.computed:
        lines.append("  the typical pair is computed from data: what is said of it is nobody's but the owner's")
    return "\n".join(lines)


def _cells(of: Measured, confidence: float) -> list[str]:
    return [*(f"{bound.epsilon:.4g}" for bound in of.bounds.values()), f"{of.counted:,}", of.attack.name]


def _verdict(found: AuditResult) -> str:
    if found.above:
        chance = f"of {round(1 / (1 - found.confidence)):,} honest audits one says so by chance"
        return f"  ABOVE THE CLAIM: with confidence {found.confidence:g} the claimed epsilon does not hold ({chance})"
    if found.power == 0:
        return "  so many games could have shown nothing: this says nothing about the claim"
    return "  no attack that was tried shows more than is claimed; that none can is what the proofs are for, not this"
