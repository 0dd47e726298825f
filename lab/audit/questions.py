"""Which questions a device of a scenario answers, and which it refuses: by the plan, and at its gate.

A device's own member gets the scenario's plan and plans that lie about it, on a ledger with just the budget that the
scenario claims, and says whether it joins. A gate of the scenario's terms is asked everything that a gate can be asked.
All of it over several data sets of the same public shape: every answer to a plan, and every refusal, must be the same
words for each, for they may depend on public numbers alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.errors import HushgridError, InputError, Refused
from hushgrid.kernels.types import Document, DocumentView
from hushgrid.lab.audit.answers import Ask, Quiet
from hushgrid.lab.audit.audit import prepared
from hushgrid.lab.audit.interference import others, with_data
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan, encode_plan
from hushgrid.node.runtime.member import Member
from hushgrid.node.schema.sections import Allow, AllowMasked, AllowSite, Budget
from hushgrid.node.wire import COORDINATOR, Envelope, Join, Plan, Refuse, Topics

NONCE = b"n" * 16
#: What a gate can be asked: with a point, or with a linear term and a curvature.
AT_A_POINT = ("gradient", "exact_gradient", "perturb")
MINIMISERS = ("minimizer", "output_minimizer", "exact_minimizer")


class Finite:
    """An owner's authority that lets everything pass but what costs infinity."""

    honest = honest_at_site = None

    def authorise(self, spends: list[Spend]) -> None:
        if any(s.value == inf for s in spends):
            raise Refused("an answer of unbounded epsilon was asked for, which no budget allows")

    def committed(self, spends: list[Spend]) -> None: ...


class Question(NamedTuple):
    """A plan, or a question to a gate, and what is said to it."""

    where: str  #: plan | gate
    what: str
    answered: bool
    reply: str  #: a refusal in its own words, or what an answer costs
    same: bool  #: whether it is the same over all data sets


def questions(
    raw: DocumentView, file: str = "scenario", node: str | None = None, base: Path | None = None
) -> list[Question]:
    """What a device of the scenario says. Raises InputError."""
    scenario = scenario_from(deepcopy(dict(raw)), file, *(() if base is None else (base,)))
    if scenario.privacy is None or scenario.algorithm.variant != "guarded":
        raise InputError(
            f"{file}: algorithm.variant: found {scenario.algorithm.variant}, expected guarded (--questions)"
        )
    setup, plan = prepared(scenario, file)
    if setup is None:
        raise InputError(f"{file}: problem.data.devices: found rows that are on devices, expected rows (--questions)")
    name = node or plan.nodes[0]
    if name not in plan.nodes:
        raise InputError(f"--node: found {name}, expected one of {plan.nodes[0]}..{plan.nodes[-1]}")
    setups = [setup, *(with_data(prepared(scenario, file)[0], data) for data in others(raw))]
    devices = [one.device(name) for one in setups]
    results = []
    for what, blob in plans(plan):
        replies = [asked_to_join(device, plan, blob) for device in devices]
        results.append(Question("plan", what, *replies[0], len(set(replies)) == 1))
    for what, ask in asked_of_a_gate(plan):
        answers = [answer(gate_of(device, plan), ask) for device in devices]
        results.append(Question("gate", what, *answers[0], len(set(answers)) == 1))
    return results


# --- plans ---


def plans(plan: RunPlan) -> Iterator[tuple[str, bytes]]:
    """(in words, a plan's bytes): the scenario's own, and lies about it."""
    sections = json.loads(encode_plan(plan))
    yield "the scenario's own", json.dumps(sections).encode()
    for description, change in lies(sections):
        other = deepcopy(sections)
        for path, value in change.items():
            *parents, last = path.split(".")
            here = other
            for parent in parents:
                here = here[parent]
            here[last] = value
        yield description, json.dumps(other).encode()


def lies(sections: Document) -> list[tuple[str, Document]]:
    """What is changed, by path, and in words."""
    privacy, problem = sections["privacy"], sections["problem"]
    unit = "replace-one-record" if privacy["adjacency"].get("replace-one-record") else "bounded-change"
    lies_of_plan: list[tuple[str, Document]] = [
        ("without privacy", {"algorithm.variant": "none", "privacy": None}),
        ("with the paper's own noise", {"algorithm.variant": "published"}),
        ("rounds that no run has", {"algorithm.rounds": 10**12}),
        ("of another format", {"format": 99}),
        ("of another kind of problem", {"problem.kind": "data" if problem["kind"] == "zones" else "zones"}),
    ]
    if privacy.get("epsilon"):
        lies_of_plan.append(("for twice the budget", {"privacy.epsilon": 2 * privacy["epsilon"]}))
    else:
        lies_of_plan.append(
            (
                "for ten times the epsilon an answer",
                {"privacy.per_answer.epsilon": 10 * privacy["per_answer"]["epsilon"]},
            )
        )
    if unit == "replace-one-record":
        c = privacy["adjacency"][unit]["clip"]
        lies_of_plan.append(("with another clip", {f"privacy.adjacency.{unit}.clip": 10 * c}))
    elif isinstance(privacy["adjacency"][unit], float):
        lies_of_plan.append(
            ("hiding a tenth of the change", {f"privacy.adjacency.{unit}": privacy["adjacency"][unit] / 10})
        )
    if masked := privacy.get("masked"):
        lies_of_plan.append(
            ("that relies on fewer honest members", {"privacy.masked": {**masked, "corrupt": masked["corrupt"] + 1}})
        )
        if masked["corrupt"]:
            lies_of_plan.append(
                ("with one of its others fewer corrupt", {"privacy.masked.corrupt": masked["corrupt"] - 1})
            )
    if problem["kind"] == "zones":
        lies_of_plan.append(("over other zones", {"problem.zones": {**problem["zones"], min(problem["zones"]): [1]}}))
        lies_of_plan.append(("over another version of the case", {"problem.digest": "0" * 64}))
    else:
        rows = list(problem["rows"])
        lies_of_plan.append(("for more rows than there are", {"problem.rows": [rows[0] + 1, *rows[1:]]}))
        lies_of_plan.append(("for another number of features", {"problem.features": problem["features"] + 1}))
    return lies_of_plan


def consent(t: Terms) -> Allow:
    """An owner's who allows just what the scenario claims."""
    if (m := t.masked) is None:
        return Allow()
    alone = t.alone() * (1 + 1e-9)
    site = AllowSite(honest=m.site, epsilon=t.at_site() * (1 + 1e-9)) if m.sites else None
    masked = AllowMasked(
        corrupt=m.corrupt,
        honest=m.uncorrupted,
        alone=alone,
        exposed=m.exposed or None,
        site=site,
        peers=("0" * 64,),
    )
    return Allow(masked=masked)


def asked_to_join(device: Any, plan: RunPlan, blob: bytes) -> tuple[bool, str]:
    """Whether a device joins a plan, and what it says."""
    t, p = plan.terms_of(device.name), plan.privacy
    assert t is not None
    assert p is not None
    budget = Budget(epsilon=t.epsilon, delta=t.delta or None, adjacency=p.adjacency)
    with (
        tempfile.TemporaryDirectory(prefix="hushgrid-audit-") as scratch,
        closing(Ledger(Path(scratch) / f"{device.name}.ledger", device.name, durable=False)) as ledger,
    ):
        member = Member("audit", device, ledger, budget, consent(t))
        member.connected()
        members = {name: member.session if name == device.name else 1 for name in plan.nodes}
        run = wire.run_id(blob, NONCE, members)
        message = wire.encode(Envelope(run, 0, 0, None, Plan(blob, NONCE, members, {})))
        replies = member.on_message(Topics("audit").all(COORDINATOR), message)
    for publication in replies:
        if "/state/" in publication.topic or not publication.payload:
            continue
        body = wire.decode_envelope(publication.payload, 2 * wire.PLAN_LIMIT).body
        if isinstance(body, Join):
            return True, "it joins"
        if isinstance(body, Refuse):
            return False, body.reason
    return False, "it says nothing"


# --- gates ---


def gate_of(device: Any, plan: RunPlan) -> Gate:
    """Its gate under the plan's terms, without noise: what it says, not what it answers, is looked at."""
    if plan.problem.kind != "zones":
        gate: Gate = device.gate(plan, Quiet(), Finite())
        return gate
    from hushgrid.lab.audit.canaries import Forgetful
    from hushgrid.node.problems.power_flow.device import loss_of
    from hushgrid.node.problems.power_flow.gate import ZoneGate

    loss = loss_of(device.model, device.d, plan.problem, plan.terms, device.contracts, base_mva=device.case.base_mva)
    return ZoneGate(device.name, loss, plan.terms, Quiet(), Finite(), Forgetful())


def asked_of_a_gate(plan: RunPlan) -> Iterator[tuple[str, Ask]]:
    """(in words, a question)."""
    t = plan.terms
    assert t is not None
    if plan.algorithm.asks() == "statistic":
        yield from asked_for_a_sum(t)
        return
    zones = plan.problem.kind == "zones"

    def size(gate: Any) -> int:
        return int(gate.loss.columns if zones else gate.loss.size)

    def put(name: str, *arguments: float) -> Ask:
        return lambda gate: getattr(gate, name)(np.zeros(size(gate)), *arguments)

    for name in AT_A_POINT:
        yield f"{name} at the start", put(name)
    yield "gradient far out", lambda gate: gate.gradient(np.full(size(gate), 1e9))
    if zones:
        yield "data", lambda gate: gate.data()
    else:
        for name in MINIMISERS:
            yield f"{name}, curvature 1", put(name, 1.0)
        yield "minimizer, curvature 0", put("minimizer", 0.0)
    if t.masked is not None:
        yield "share at the start", lambda gate: gate.share(np.zeros(size(gate)), b"")

    def often(gate: Any) -> None:
        gate.state.answers = t.answers
        if t.masked is not None:
            gate.share(np.zeros(size(gate)), b"")
        else:
            gate.data() if t.mode == "input" and zones else gate.gradient(np.zeros(size(gate)))

    yield "one answer more than the cap", often


def asked_for_a_sum(t: Terms) -> Iterator[tuple[str, Ask]]:
    """The same of a gate that answers with its part of a sum, which depends on no point."""
    yield "statistic", lambda gate: gate.statistic()
    yield "exact_statistic", lambda gate: gate.exact_statistic()
    yield "share", lambda gate: gate.share(np.zeros(0), b"")

    def often(gate: Any) -> None:
        gate.state.answers = t.answers
        gate.statistic() if t.masked is None else gate.share(np.zeros(0), b"")

    yield "one answer more than the cap", often


def answer(gate: Gate, ask: Ask) -> tuple[bool, str]:
    """What a gate says to a question."""
    try:
        ask(gate)
    except HushgridError as error:
        return False, str(error)
    if not gate.spends:
        return True, "no spend"
    s = gate.spends[0]
    unit = {"laplace": "epsilon", "gaussian": "mu"}.get(s.kind, "")
    return True, f"{unit} {s.value:.4g}, sensitivity {s.sensitivity:.4g}, noise of scale {s.scale:.4g}"
