"""`hushgrid check FILE`: everything about a file that can be known without a network."""

from __future__ import annotations

from pathlib import Path

from hushgrid.kernels.errors import InputError
from hushgrid.node.config import load_coordinator, load_device, load_scenario
from hushgrid.node.dial import parse_url, tls_context
from hushgrid.node.plan import DataPlan, ZonesPlan
from hushgrid.node.yaml_file import read_yaml


def check(path: Path) -> str:
    """What a good file is, in one line. A scenario, device or coordinator, told apart by its keys. InputError."""
    raw = read_yaml(path)
    if "node" in raw:
        return _device(path)
    if "coordinator" in raw or "scenario" in raw or "members" in raw:
        return _coordinator(path)
    if {"hushgrid", "problem", "algorithm"} & set(raw):
        return _scenario(path)
    found = ", ".join(raw) or "no key"
    raise InputError(
        f"{path}: found {found}, expected a scenario (hushgrid, problem, algorithm), a device (node) or a "
        "coordinator (scenario)"
    )


def _scenario(path: Path) -> str:
    from hushgrid.broker.coordinate import public
    from hushgrid.node.assemble import make_plan

    scenario = load_scenario(path)
    _, problem = public(scenario, str(path))
    _, plan = make_plan(scenario, problem, str(path))
    t = plan.terms
    promise = (
        "no privacy" if t is None else f"{t.mechanism}, epsilon {t.epsilon:g}{_delta(t.delta)} in {t.answers} answers"
    )
    name, variant = scenario.algorithm.name, scenario.algorithm.variant
    return (
        f"scenario {scenario.name}: {_problem(problem)}, {name} ({variant}), "
        f"{scenario.algorithm.rounds} {'rounds' if isinstance(problem, ZonesPlan) else 'activations'}, {promise}"
    )


def _problem(problem: ZonesPlan | DataPlan) -> str:
    if isinstance(problem, ZonesPlan):
        return f"{problem.case} in {len(problem.zones)} zones"
    return f"{problem.objective.kind}, {problem.features} features, {len(problem.rows)} nodes"


def _delta(delta: float) -> str:
    return f", delta {delta:g}" if delta else ""


def _device(path: Path) -> str:
    from hushgrid.node.daemon import device_of

    config = load_device(path)
    tls_context(parse_url(config.broker), config.tls)
    device_of(config, str(path))
    budget, data = config.budget, config.data
    what = f"the rows of {data}" if isinstance(data, str) else f"{len(data.zone)} buses of {data.case}"
    return f"node {config.node} of fleet {config.fleet} on {config.broker}: {what}, budget epsilon {budget.epsilon:g}{_delta(budget.delta or 0.0)}"


def _coordinator(path: Path) -> str:
    from hushgrid.broker.coordinate import prepare

    config = load_coordinator(path)
    tls_context(parse_url(config.broker), config.tls)
    _, plan = prepare(config, str(path))
    return f"coordinator of fleet {config.fleet} on {config.broker}: {plan.name}, members {', '.join(plan.nodes)}"
