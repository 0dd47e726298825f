"""A run as processes on real brokers: the coordinator its own, nodes theirs or some together; of sites each its own.

One broker, or of sites one above and one a site: a site's sums would be read at the fleet's.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress

import msgspec

from hushgrid.broker.servers.choose import start
from hushgrid.broker.servers.process import OwnBroker, RunningBroker
from hushgrid.broker.simulation.eavesdropper import Eavesdropper, Spy
from hushgrid.broker.simulation.processes import END_S, HURRY_S, Child, Fleet, Outcome, deal, sweep
from hushgrid.broker.simulation.started import Started, Transcript
from hushgrid.broker.sites.site import fleet_of
from hushgrid.kernels.algorithms.registry import PLUGGED
from hushgrid.kernels.errors import Stopped
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.transport.connect import several
from hushgrid.node.wire import COORDINATOR, Topics

CLUSTER_S = 180.0  #: of patience with a cluster: on busy machines an election and what follows took 86 s
ABOVE = 4  #: times a site's patience has the fleet of sites: a site that asks its devices again is not silent
OUTCOME = "outcome.json"  #: in the run's own place: how the coordinator ended
Brokers = dict[str, RunningBroker]  #: of the fleet (""), and of each site


def run(started: Started, broker: str, silent_s: float) -> tuple[str, Transcript]:
    """The broker's name and, if the scenario asks for it, every message. Raises what has ended the run."""
    setup, place, signals = started.setup, started.place, started.signals
    suffix = secrets.token_hex(3)
    fleet = f"{setup.scenario.fleet}-{suffix}"
    eavesdropper = Eavesdropper(fleet) if started.eavesdropper is not None else None
    started.ledgers.state.mkdir(parents=True, exist_ok=True)
    children = Fleet(place, tuple(setup.plan.sites))
    with ExitStack() as stack:
        brokers: Brokers = {}
        for site in ("", *setup.plan.sites):
            folder = place / fleet_of("broker", site)
            brokers[site] = stack.enter_context(start(broker, folder, stopping=signals))
        running = brokers[""]
        more = f", and one for each of {len(brokers) - 1} sites" if setup.plan.sites else ""
        started.progress.phase(f"broker: {running.name}{more}")
        spies = [Spy(one.url, eavesdropper, fleet_of(fleet, site)) for site, one in brokers.items() if eavesdropper]
        try:
            patience = max(silent_s, CLUSTER_S) if several(running.url) else silent_s
            _begin(started, children, brokers, suffix, patience)
            _watch(started, children, spies)
        finally:
            children.end(HURRY_S if signals() else END_S)
            for spy in spies:
                spy.close()
            if children.killed and not isinstance(running, OwnBroker):
                sweep(running.url, Topics(fleet), started.members, [f"{name}-{suffix}" for name in started.members])
        return running.name, eavesdropper.lines if eavesdropper else None


def _begin(started: Started, children: Fleet, brokers: Brokers, suffix: str, patience: float) -> None:
    """Every process; the coordinator's last. patience: s, of whoever waits for devices."""
    setup, scenario = started.setup, started.setup.scenario
    common, nodes = _children(started, brokers, suffix, patience)
    hands = deal(nodes, scenario.run.processes)
    for process, hand in hands.items():
        started.signals.check()
        children.add(process, *hand)
    for site in setup.plan.sites:
        child = msgspec.structs.replace(
            common,
            role="site",
            name=site,
            client_id=f"{site}-{suffix}",
            below=brokers[site].url,
            data=setup.site_child(site, started.place),
            widths=dict(setup.widths(site)) if scenario.kind.sites(setup.plan.problem) else {},
        )
        children.add(site, child)
    above = {"silent_s": ABOVE * patience} if setup.plan.sites else {}
    children.add(COORDINATOR, msgspec.structs.replace(common, **above))
    sites = f", {len(setup.plan.sites)} sites" if setup.plan.sites else ""
    started.progress.phase(f"{scenario.name}: {len(nodes)} nodes in {len(hands)} processes{sites}, and a coordinator")


def _children(started: Started, brokers: Brokers, suffix: str, silent_s: float) -> tuple[Child, list[Child]]:
    """What the coordinator's process and the nodes' are made from."""
    setup, scenario, place = started.setup, started.setup.scenario, started.place
    common = Child(
        role="coordinator",
        name=COORDINATOR,
        client_id=f"{COORDINATOR}-{suffix}",
        fleet=f"{scenario.fleet}-{suffix}",
        broker=brokers[""].url,
        state=str(started.ledgers.state),
        durable=started.ledgers.durable,
        trace=str(place),
        outcome=str(place / OUTCOME),
        plan=encode_plan(setup.plan).decode(),
        silent_s=silent_s,
        widths=dict(setup.widths(COORDINATOR)),
        plugins=tuple(PLUGGED),
        beginning=setup.beginning,
        source=scenario.kind.source(scenario.problem),
    )
    nodes = [
        msgspec.structs.replace(
            common,
            role="node",
            name=name,
            client_id=f"{name}-{suffix}",
            fleet=fleet_of(common.fleet, site := setup.plan.site_of.get(name, "")),
            broker=brokers[site].url,
            seed=scenario.seed,
            budget=setup.budget,
            reveal=setup.reveal,
            data=setup.child(name, place),
            widths=dict(setup.widths(name)),
        )
        for name in setup.plan.nodes
    ]
    return common, nodes


def _watch(started: Started, children: Fleet, spies: list[Spy]) -> None:
    """Until the run is over. Raises what has ended it."""
    place, signals = started.place, started.signals
    outcome = place / OUTCOME

    def beat() -> None:
        with suppress(OSError, ValueError):
            written = (place / "outcome.progress").read_bytes()
            started.progress.round(*msgspec.json.decode(written, type=tuple[int, int, float | None]))
        for spy in spies:
            spy.listen()

    code = children.watch(signals, beat)
    if signals():
        raise Stopped(f"interrupted by {signals.name}")
    if not outcome.exists():
        raise Stopped(f"the coordinator ended with exit code {code}: {children.last_line(COORDINATOR)}")
    error = msgspec.json.decode(outcome.read_bytes(), type=Outcome).error()
    if error:
        raise error
