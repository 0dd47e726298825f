"""From a scenario and the public part of its problem to the plan of a run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.problems.plan import RunPlan, decode_plan, encode_plan
from hushgrid.node.problems.registry import AnyPublic
from hushgrid.node.wire import PLAN_LIMIT


def make_plan(scenario: Scenario, problem: AnyPublic, file: str = "scenario") -> RunPlan:
    """The public plan of a scenario, with the caps and the accountant that its privacy section leaves to the program.

    Budgets stay with the nodes. Raises InputError if a device would refuse the plan for what is public.
    """
    privacy = scenario.privacy.public() if scenario.privacy else None
    plan = RunPlan(
        name=scenario.name, problem=problem, algorithm=scenario.algorithm, privacy=privacy, stop=scenario.run.stop
    )
    try:
        if privacy is not None and (t := plan.terms) is not None:
            plan = replace(plan, privacy=replace(privacy, accountant=t.accountant, answers=_answers(plan)))
        blob = encode_plan(plan)
        decode_plan(blob)
        plan.kind.check_answers(plan)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if (size := len(blob)) > PLAN_LIMIT // 2:
        raise InputError(f"{file}: found a plan of {size} bytes, expected at most {PLAN_LIMIT // 2} (a shorter walk)")
    return plan


def among(plan: RunPlan, present: Sequence[str]) -> RunPlan:
    """The plan of a run that these nodes make without the others. Caps that the program chose are chosen anew.

    Raises InputError if a device would refuse it for what is public.
    """
    made, p = replace(plan, problem=plan.kind.among(plan.problem, present)), plan.privacy
    if p is not None:
        free = replace(p, answers=None)
        if _answers(replace(plan, privacy=free)) == p.answers:
            made = replace(made, privacy=replace(p, answers=_answers(replace(made, privacy=free))))
        elif isinstance(p.answers, tuple):
            caps = tuple(cap for node, cap in zip(plan.nodes, p.answers, strict=True) if node in present)
            made = replace(made, privacy=replace(p, answers=caps))
    decode_plan(encode_plan(made))
    made.kind.check_answers(made)
    return made


def _answers(plan: RunPlan) -> int | tuple[int, ...] | None:
    """The caps as a plan says them: one number if they are alike."""
    caps, t = plan.caps, plan.terms
    return caps if len(set(caps)) > 1 else t.answers if t else None
