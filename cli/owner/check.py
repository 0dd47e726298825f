"""`hushgrid check FILE`: everything about a file that can be known without a network."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from hushgrid.cli.completion import scenario_or_file
from hushgrid.kernels.algorithms import radmm
from hushgrid.kernels.algorithms.base import UNITS
from hushgrid.kernels.algorithms.registry import offer_installed
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.brokers import in_clear
from hushgrid.node.config.coordinator import is_site, load_coordinator, load_site
from hushgrid.node.config.device import load_device
from hushgrid.node.config.scenario import load_scenario
from hushgrid.node.config.site import ready_words
from hushgrid.node.config.trust import credentials_of, trust_words
from hushgrid.node.problems.plan import RunPlan, step_ratio, warnings
from hushgrid.node.schema.sections import Tls
from hushgrid.node.schema.yaml_file import read_yaml
from hushgrid.node.site.data_source import device_of
from hushgrid.node.transport.certificate import SOON_D, days_of
from hushgrid.node.transport.connect import parse_url, parse_urls, tls_context
from hushgrid.node.wire import COORDINATOR
from hushgrid.scenarios import find

#: What a paper's own theorem says of a graph and of an algorithm's parameters, by the algorithm's name.
THEOREMS: Mapping[str, Callable[..., str]] = {"radmm": radmm.theorem, "mradmm": radmm.theorem}
MOST_NODES = 100  #: of a graph whose eigenvalues are computed for that


def arguments(parser: argparse.ArgumentParser) -> None:
    file = parser.add_argument(
        "file", metavar="FILE", type=Path, help="a file, or the name of a scenario that comes with the program"
    )
    file.completer = scenario_or_file  # type: ignore[attr-defined]


def main(options: argparse.Namespace) -> int:
    print(f"ok: {check(find(options.file))}")
    return 0


def check(path: Path) -> str:
    """What the file describes, in one line; for a device, its owner's consent in words in the lines below,
    for a scenario what its paper's theorems say of it, and what its model leaves out of a case.

    The keys say whether it is a scenario, a device's or a coordinator's file. Raises InputError if the file is none of
    these, or is wrong.
    """
    raw = read_yaml(path)
    if "node" in raw:
        return _device(path)
    if is_site(path):
        return _site(path)
    if "coordinator" in raw or "scenario" in raw or "members" in raw:
        return _coordinator(path)
    if {"hushgrid", "problem", "algorithm"} & set(raw):
        return _scenario(path)
    keys = ", ".join(raw) or "no key"
    raise InputError(
        f"{path}: found {keys}, expected a scenario (hushgrid, problem, algorithm), a device (node) or a "
        "coordinator (scenario)"
    )


def _scenario(path: Path) -> str:
    from hushgrid.node.config.planning import make_plan

    offer_installed()
    scenario = load_scenario(path)
    problem = scenario.kind.public(scenario, str(path))
    plan = make_plan(scenario, problem, str(path))
    scenario.kind.check_data(scenario.problem, problem)
    t = plan.terms
    fewest = min(plan.caps, default=t.answers if t else 0)
    promise = (
        "no privacy"
        if t is None
        else f"{t.mechanism}, epsilon {t.epsilon:g}{_delta(t.delta)} in "
        + (f"{t.answers} answers" if fewest == t.answers else f"{fewest} to {t.answers} answers, by node")
    )
    if t is not None and t.masked is not None:
        at_site = f"its own site's coordinator {t.at_site():.4g}; " if t.masked.sites else ""
        levels = f" in {len(t.masked.sites.sizes)} sites" if t.masked.sites else ""
        graphs = f"; graphs of masks add {t.masked.exposed:g} to delta" if t.masked.graph else ""
        corrupt, alone = f"at most {t.masked.corrupt} corrupt", f"a share alone {t.alone():.4g}"
        promise += f" (masked{levels}: {corrupt}; {at_site}{alone}{graphs})"
    if t is not None and scenario.algorithm.asks() == "statistic":
        promise += f", noise of {_spread(plan):.4g} on each entry that is added up"
    ratio = step_ratio(plan)
    step = "" if ratio is None else f", step {ratio:.2g} times its public bound"
    algorithm = scenario.algorithm
    first = (
        f"scenario {scenario.name}: {problem.description}, {algorithm.name} ({algorithm.variant}), "
        f"{algorithm.rounds} {UNITS[algorithm.pattern]}{step}, {promise}"
    )
    theorem = THEOREMS.get(algorithm.name)
    few = theorem is not None and plan.problem.graph.n <= MOST_NODES
    theorems = [theorem(algorithm, plan.problem.graph, plan.problem.constants[0])] if theorem and few else []
    warned = [f"warning: {warning}" for warning in warnings(plan, scenario.kind.source(scenario.problem))]
    return "\n  ".join([first, *theorems, *scenario.kind.left_out(scenario.problem), *warned])


def _spread(plan: RunPlan) -> float:
    """Standard deviation of the noise on a sum over all nodes."""
    from hushgrid.node.problems.statistics.centre import spread

    return spread(plan, plan.nodes)


def _delta(delta: float) -> str:
    return f", delta {delta:g}" if delta else ""


def _device(path: Path) -> str:
    from hushgrid.cli.owner.questions import questions
    from hushgrid.node.config.consent import consent, renews

    config = load_device(path)
    tls_context(parse_urls(config.broker)[0], config.tls)
    ready = ready_words(config.source, config.sink, path)
    device = device_of(config, str(path))
    budget = config.budget
    what = config.kind.data_words(config.data)
    first = (
        f"node {config.node} of fleet {config.fleet} on {config.broker}: {what}, "
        f"budget epsilon {budget.epsilon:g}{_delta(budget.delta or 0.0)}{renews(budget)}"
    )
    source, sink = config.source and config.source.mqtt, config.sink and config.sink.mqtt
    clear = _in_clear(config.broker, *(site.broker for site in (source, sink) if site))
    credentials_of(config.node, config.trust, config.tls, str(path))
    owned = [*consent(config, device), *questions(config, device), *trust_words(config.trust)]
    lines = [*clear, *owned, *ready, *_certificate(config.tls)]
    return "\n  ".join([first, *lines])


def _coordinator(path: Path) -> str:
    from hushgrid.broker.coordinator.daemon import prepare

    config = load_coordinator(path)
    tls_context(parse_urls(config.broker)[0], config.tls)
    _, plan = prepare(config, str(path))
    first = f"coordinator of fleet {config.fleet} on {config.broker}: {plan.name}, members {', '.join(plan.parties)}"
    credentials_of(COORDINATOR, config.trust, config.tls, str(path), plan.parties)
    lines = [*_in_clear(config.broker), *trust_words(config.trust), *_certificate(config.tls)]
    return "\n  ".join([first, *lines])


def _site(path: Path) -> str:
    from hushgrid.broker.sites.daemon import member_above

    config = load_site(path)
    above = config.above
    for broker, tls in ((config.broker, config.tls), (above.broker, above.tls)):
        tls_context(parse_url(broker), tls)
    member_above(above)
    credentials_of(COORDINATOR, config.trust, config.tls, str(path), ())
    credentials_of(above.site, above.trust, above.tls, f"{path}: above")
    first = (
        f"coordinator of the devices of fleet {config.fleet} on {config.broker}, and site {above.site} of fleet "
        f"{above.fleet} on {above.broker}: it adds no noise and has no budget"
    )
    whose = (("its devices", config.trust), (f"the fleet {above.fleet}", above.trust))
    trusted = [f"towards {who}, {line}" for who, t in whose for line in trust_words(t)]
    return "\n  ".join([first, *_in_clear(config.broker, above.broker), *trusted, *_certificate(above.tls)])


def _in_clear(*brokers: str) -> list[str]:
    """What the owner has taken upon himself with `broker_in_clear`, if any of these brokers needs it."""
    clear = [url for broker in brokers if (url := in_clear(broker))]
    known = "in clear, as the owner knows: all on the way can read and change what is said"
    return [f"{', '.join(clear)}: {known}"] if clear else []


def _certificate(tls: Tls | None) -> list[str]:
    """For how long a client's own certificate is good."""
    days = days_of(tls)
    if days is None:
        return []
    if days < 0:
        return [f"warning: its certificate has ended {-days} days ago"]
    return [f"{'warning: ' if days < SOON_D else ''}its certificate ends in {days} days"]
