"""`hushgrid audit`: what games measure of a claim, and the standing tests of privacy on a scenario of your own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrid.broker.simulation.interrupts import ended_in_a_line
from hushgrid.cli.completion import scenario_or_file
from hushgrid.kernels.errors import InputError
from hushgrid.scenarios import find

if TYPE_CHECKING:
    from hushgrid.broker.audit.audit import Found, Measured


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    scenario = add(
        "scenario",
        metavar="SCENARIO",
        type=Path,
        nargs="?",
        help="a scenario file, or the name of one that comes with the program",
    )
    scenario.completer = scenario_or_file  # type: ignore[attr-defined]
    add("--games", metavar="N", type=int, help="games about either data set that are counted [up to 100000, by width]")
    add("--confidence", metavar="P", type=float, default=0.95, help="of what is measured [0.95; 0.99 stands beside it]")
    add("--node", metavar="NAME", help="whose gate plays [the first node's]")
    add("--set", metavar="path.to.key=value", action="append", default=[], help="replace a value; may be repeated")
    add("--plugin", metavar="MODULE", action="append", default=[], help="a module of your own whose algorithms may run")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--quiet", action="store_true", help="show no progress on stderr")


def main(options: argparse.Namespace) -> int:
    return ended_in_a_line(lambda _: _audit(options), options.program)


def _audit(o: argparse.Namespace) -> int:
    from hushgrid.broker.audit.audit import audited
    from hushgrid.broker.simulation.progress import Progress
    from hushgrid.kernels.algorithms.registry import plug
    from hushgrid.node.schema.yaml_file import read_yaml, set_path

    if o.scenario is None:
        raise InputError("SCENARIO: found none, expected a scenario file or a name")
    if o.games is not None and not 100 <= o.games <= 10**8:
        raise InputError(f"--games: found {o.games}, expected 100 to 100000000")
    if not 0.5 <= o.confidence < 1:
        raise InputError(f"--confidence: found {o.confidence:g}, expected a number from 0.5 to below 1")
    plug(o.plugin, "--plugin")
    file = find(o.scenario)
    raw = read_yaml(file)
    for assignment in o.set:
        set_path(raw, assignment)
    with Progress(quiet=o.quiet) as shown:
        found = audited(
            raw, str(file), games=o.games, confidence=o.confidence, node=o.node, base=file.parent, say=shown.phase
        )
    print(json.dumps(plain(found), indent=2) if o.json else told(found))
    return 0


def plain(found: Found) -> dict[str, Any]:
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
        "games": worst.counted,
        "attack": worst.attack.name,
        "canary": worst.canary.told,
        "typical": None
        if found.typical is None
        else {
            "measured": bound(found.typical, found.confidence),
            "games": found.typical.counted,
            "canary": found.typical.canary.told,
        },
        "seconds": round(found.seconds, 3),
    }


def bound(of: Measured, confidence: float) -> dict[str, float | None]:
    found = of.bounds[confidence]
    return {"epsilon_lower": found.epsilon, "mu_lower": found.mu}


def told(found: Found) -> str:
    """The audit as text."""
    from hushgrid.node.columns import columns

    t, c = found.terms, found.confidence
    delta = f", delta {t.delta:g}" if t.delta else ""
    rows = [["the worst pair found", *_cells(found.worst, c), found.worst.canary.words]]
    if found.typical is not None:
        rows.append(["a typical pair", *_cells(found.typical, c), found.typical.canary.words])
    lines = [
        f"{found.name}: {found.plan.algorithm.name}, {t.answers} answers of {found.node}, {t.mechanism} noise, {t.adjacency}",
        f"claimed     epsilon {t.epsilon:.4g}{delta}, over the run",
        f"measured    epsilon at least {found.worst.bounds[c].epsilon:.4g}, with confidence {c:g}",
        f"power       epsilon {found.power:.4g}: what a perfect attack could have shown at most with so many games",
        columns([row[:-1] for row in rows], ["", *(f"at {100 * k:g} %" for k in found.worst.bounds), "games", "by"], 2),
        *(f"  {name}: {words}" for name, *_, words in rows),
        _verdict(found),
    ]
    if found.typical is not None and found.typical.canary.computed:
        lines.append("  the typical pair is computed from data: what is said of it is nobody's but the owner's")
    return "\n".join(lines)


def _cells(of: Measured, confidence: float) -> list[str]:
    return [*(f"{bound.epsilon:.4g}" for bound in of.bounds.values()), f"{of.counted:,}", of.attack.name]


def _verdict(found: Found) -> str:
    if found.above:
        return f"  ABOVE THE CLAIM: with confidence {found.confidence:g} the claimed epsilon does not hold"
    if found.power == 0:
        return "  so many games could have shown nothing: this says nothing about the claim"
    return "  no attack that was tried shows more than is claimed; that none can is what the proofs are for, not this"
