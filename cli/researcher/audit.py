"""`hushgrid audit`: what games measure of a claim, and the standing tests of privacy on a scenario of your own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.broker.simulation.interrupts import EndedInALine
from hushgrid.cli.completion import plug_algorithms, scenario_or_file
from hushgrid.kernels.errors import HushgridError, InputError
from hushgrid.kernels.types import Document
from hushgrid.node.schema.durations import in_words
from hushgrid.scenarios import find

if TYPE_CHECKING:
    from hushgrid.lab.audit.audit import AuditResult, Measured
    from hushgrid.lab.audit.games import Claim


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    files = add(
        "files",
        metavar="SCENARIO",
        type=Path,
        nargs="*",
        help="a scenario file, or the name of one that comes with the program; with --ledger a transcript and ledgers",
    )
    files.completer = scenario_or_file  # type: ignore[attr-defined]
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
    add("--at-site", action="store_true", help="of games, with sites: what its own site's coordinator sees")
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
    with Progress(quiet=o.quiet) as progress:
        if o.one_run:
            return _one_run(o, raw, file, progress.phase)
        if o.interference:
            return _interference(o, raw, file, progress.phase)
        if o.questions:
            return _questions(o, raw, file)
        from hushgrid.lab.audit.audit import audited

        audit = audited(
            raw,
            str(file),
            games=o.games,
            confidence=o.confidence,
            node=o.node,
            at_site=o.at_site,
            base=file.parent,
            say=progress.phase,
        )
    print(json.dumps(plain(audit), indent=2) if o.json else as_text(audit))
    return _ended(audit.above, audit.name, audit.worst.bounds[o.confidence].epsilon, audit.claim, o.confidence)


def _ended(above: bool, name: str, epsilon: float, claim: Claim, confidence: float) -> int:
    """0 if the claim stands. Raises HushgridError (exit code 1) if it is refuted."""
    if above:
        raise HushgridError(
            f"{name}: the claim is refuted: found epsilon at least {epsilon:.4g} with confidence {confidence:g}, "
            f"expected at most the claimed {claim.epsilon:.4g}"
        )
    return 0


def _read(file: Path, assignments: list[str]) -> Document:
    from hushgrid.node.schema.yaml_file import read_yaml, set_path

    raw = read_yaml(file)
    for assignment in assignments:
        set_path(raw, assignment)
    return raw


# --- one run ---


def _one_run(o: argparse.Namespace, raw: Document, file: Path, say: Callable[[str], None]) -> int:
    from hushgrid.lab.audit.one_run import CANARIES, one_run

    audit = one_run(
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
    t, c = audit.terms, audit.claim
    facts = {
        "name": audit.name,
        "node": audit.node,
        "algorithm": audit.plan.algorithm.name,
        "mechanism": t.mechanism,
        "answers": t.answers,
        "seen": audit.seen,
        "claimed": {"epsilon": c.epsilon, "delta": c.delta},
        "measured": {"epsilon_lower": audit.epsilon, "mu_lower": audit.mu},
        "any_mechanism": {"epsilon_lower": audit.plain},
        "confidence": audit.confidence,
        "above": audit.above,
        "power": audit.power,
        "share": audit.share,
        "canaries": audit.canaries,
        "guesses": audit.guesses,
        "right": audit.right,
        "games": 1,
        "canary": {"words": "a row with one feature of its own, its label chosen by a coin", "from_data": False},
        "transport": audit.transport,
        "seconds": round(audit.seconds, 3),
    }
    if o.json:
        print(json.dumps(facts, indent=2))
        return _ended(audit.above, audit.name, audit.epsilon, c, o.confidence)
    delta = f", delta {c.delta:g}" if c.delta else ""
    verdict = "ABOVE THE CLAIM" if audit.above else "no more than is claimed is shown; that no attack can is not shown"
    print(
        f"{audit.name}: {facts['algorithm']}, one run over {audit.transport}, "
        f"{audit.canaries:,} canaries at {audit.node}\n"
        f"claimed     epsilon {c.epsilon:.4g}{delta}, over the run\n"
        f"measured    epsilon at least {audit.epsilon:.4g}, with confidence {audit.confidence:g}\n"
        f"power       epsilon {audit.power:.4g}, {audit.share:.2g} of the claim's "
        f"{'epsilon' if audit.mu is None else 'mu'}: a "
        f"perfect attack on exactly the claimed noise shows no more with {audit.canaries:,} canaries, in the middle\n"
        f"  {audit.right} of the {audit.guesses} surest guesses are right, from {audit.seen} answers of {t.answers}; "
        f"for any mechanism: "
        f"epsilon at least {audit.plain:.4g}\n  {verdict}"
    )
    return _ended(audit.above, audit.name, audit.epsilon, c, o.confidence)


# --- the standing tests ---


def _interference(o: argparse.Namespace, raw: Document, file: Path, say: Callable[[str], None]) -> int:
    from hushgrid.lab.audit.interference import interference
    from hushgrid.node.columns import columns

    comparison = interference(raw, file.parent, say)
    same = not any(one.differs for one in comparison.compared)
    if o.json:
        rows = [{"data": one.data, "differs": one.differs} for one in comparison.compared]
        print(
            json.dumps(
                {
                    "name": comparison.name,
                    "messages": comparison.messages,
                    "compared": rows,
                    "same": same,
                    "control": comparison.control,
                },
                indent=2,
            )
        )
    else:
        cells = [
            [one.data, "the same" if not one.differs else "DIFFERS: " + ", ".join(one.differs[:6])]
            for one in comparison.compared
        ]
        print(
            f"{comparison.name}: {comparison.messages} messages, logs, outcomes, ledgers and results, "
            f"with the gates' answers held still"
        )
        print(columns(cells, ["over", "beside the scenario's own data"], 2))
        print(
            f"  with the gates' own answers {len(comparison.control)} things differ, the transcript among them: "
            f"the comparison can fail"
        )
    return 0 if same and "transcript" in comparison.control else 1


def _questions(o: argparse.Namespace, raw: Document, file: Path) -> int:
    from hushgrid.lab.audit.questions import questions
    from hushgrid.node.columns import columns

    answers = questions(raw, str(file), o.node, file.parent)
    same = all(q.same for q in answers)
    if o.json:
        keys = ("where", "what", "answered", "said", "same")
        print(json.dumps({"questions": [dict(zip(keys, q, strict=True)) for q in answers], "same": same}, indent=2))
        return 0 if same else 1
    rows = [
        [q.where, q.what, "answers" if q.answered else "refuses", q.reply if q.same else f"DEPENDS ON DATA: {q.reply}"]
        for q in answers
    ]
    print(columns(rows, ["", "asked", "the device", "and says"]))
    print("said over data sets of the same public shape: " + ("the same words for each" if same else "NOT THE SAME"))
    return 0 if same else 1


def _ledgers(o: argparse.Namespace) -> int:
    from hushgrid.lab.audit.ledgers import compared
    from hushgrid.node.columns import columns

    if len(o.files) < 2:
        raise InputError(f"--ledger: found {len(o.files)} files, expected a transcript and the ledgers of its nodes")
    lines = compared(o.files[0], o.files[1:])
    fits = not any(line.wrong for line in lines)
    if o.json:
        print(json.dumps({"lines": [line._asdict() for line in lines], "fits": fits}, indent=2))
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
            for li in lines
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


def plain(audit: AuditResult) -> Document:
    """The audit as JSON."""
    t, worst = audit.terms, audit.worst
    return {
        "name": audit.name,
        "node": audit.node,
        "algorithm": audit.plan.algorithm.name,
        "variant": audit.plan.algorithm.variant,
        "adjacency": t.adjacency,
        "mechanism": t.mechanism,
        "accountant": t.accountant,
        "answers": t.answers,
        "claimed": {"epsilon": t.epsilon, "delta": t.delta},
        "measured": bound(worst, audit.confidence),
        "confidence": audit.confidence,
        "at": {f"{c:g}": bound(worst, c) for c in worst.bounds},
        "above": audit.above,
        "power": audit.power,
        "expected": audit.expected,
        "games": worst.counted,
        "attack": worst.attack.name,
        "canary": worst.canary.as_json,
        "typical": None
        if audit.typical is None
        else {
            "measured": bound(audit.typical, audit.confidence),
            "games": audit.typical.counted,
            "canary": audit.typical.canary.as_json,
        },
        "seconds": round(audit.seconds, 3),
    }


def bound(measured: Measured, confidence: float) -> dict[str, float | None]:
    lower = measured.bounds[confidence]
    return {"epsilon_lower": lower.epsilon, "mu_lower": lower.mu}


def as_text(audit: AuditResult) -> str:
    """The audit as text."""
    from hushgrid.node.columns import columns

    t, c = audit.terms, audit.confidence
    delta = f", delta {t.delta:g}" if t.delta else ""
    sums = f" in sums with {t.masked.honest - 1} honest others" if t.masked else ""
    rows = [["the worst pair found", *_cells(audit.worst, c), audit.worst.canary.description]]
    if audit.typical is not None:
        rows.append(["a typical pair", *_cells(audit.typical, c), audit.typical.canary.description])
    lines = [
        f"{audit.name}: {audit.plan.algorithm.name}, {t.answers} answers of {audit.node}{sums}, {t.mechanism} noise, "
        f"{t.adjacency}",
        f"claimed     epsilon {t.epsilon:.4g}{delta}, over the run",
        f"measured    epsilon at least {audit.worst.bounds[c].epsilon:.4g}, with confidence {c:g}",
        f"power       epsilon {audit.power:.4g} at most: what a perfect attack could have shown with so many games "
        f"({audit.expected:.4g} in the middle)",
        columns([row[:-1] for row in rows], ["", *(f"at {100 * k:g} %" for k in audit.worst.bounds), "games", "by"], 2),
        *(f"  {name}: {sentence}" for name, *_, sentence in rows),
        _verdict(audit),
    ]
    if audit.typical is not None and audit.typical.canary.computed:
        lines.append("  the typical pair is computed from data: what is said of it is nobody's but the owner's")
    return "\n".join(lines)


def _cells(measured: Measured, confidence: float) -> list[str]:
    return [
        *(f"{bound.epsilon:.4g}" for bound in measured.bounds.values()),
        f"{measured.counted:,}",
        measured.attack.name,
    ]


def _verdict(audit: AuditResult) -> str:
    if audit.above:
        chance = f"of {round(1 / (1 - audit.confidence)):,} honest audits one says so by chance"
        return f"  ABOVE THE CLAIM: with confidence {audit.confidence:g} the claimed epsilon does not hold ({chance})"
    if audit.power == 0:
        return "  so many games could have shown nothing: this says nothing about the claim"
    return "  no attack that was tried shows more than is claimed; that none can is what the proofs are for, not this"
