"""From a scenario and the public part of its problem to the plan of a run."""

from __future__ import annotations

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.privacy.terms import Terms
from hushgrid.node.problems.plan import RunPlan, decode_plan, encode_plan
from hushgrid.node.problems.registry import AnyPublic
from hushgrid.node.wire import PLAN_LIMIT


def make_plan(scenario: Scenario, problem: AnyPublic, file: str = "scenario") -> tuple[Scenario, RunPlan]:
    """The scenario with its privacy section filled in, and its public plan; budgets stay with the nodes.

    Raises InputError if a device would refuse it for what is public.
    """

    def plan(of: Scenario) -> RunPlan:
        privacy = of.privacy.public() if of.privacy else None
        return RunPlan(name=of.name, problem=problem, algorithm=of.algorithm, privacy=privacy, stop=of.run.stop)

    try:
        scenario = resolved(scenario, plan(scenario).terms)
        made = plan(scenario)
        blob = encode_plan(made)
        decode_plan(blob)
        made.kind.check_answers(made)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if (size := len(blob)) > PLAN_LIMIT // 2:
        raise InputError(f"{file}: found a plan of {size} bytes, expected at most {PLAN_LIMIT // 2} (a shorter walk)")
    return scenario, made


def resolved(scenario: Scenario, t: Terms | None) -> Scenario:
    """The scenario with what its privacy section leaves to the program filled in."""
    if t is None or scenario.privacy is None:
        return scenario
    return replace(scenario, privacy=replace(scenario.privacy, accountant=t.accountant, answers=t.answers))
