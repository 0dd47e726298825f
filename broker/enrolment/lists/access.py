"""Who may publish and read what in a fleet, as data: from the scenario's graph and the names that are not put out.

One topic a directed edge. A device speaks to its neighbours and to the coordinator, the coordinator to all, and `watch`
reads. The other modules here write the same rights as each kind of broker reads them; `verify` tries them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast

from hushgrid.broker.standby.replica import STANDBY, notes_topic, topic
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.sites import dealt
from hushgrid.node.config.scenario import Scenario
from hushgrid.node.config.watch import WATCH
from hushgrid.node.privacy.terms import masked_of
from hushgrid.node.problems.on_graph import OnGraph
from hushgrid.node.problems.registry import KINDS
from hushgrid.node.wire import COORDINATOR, Topics

Role = Literal["device", "coordinator", "standby", "watch", "broker", "bridge"]
ANY = "+"  #: one level of a topic


class Rights(NamedTuple):
    """What one identity may do; what is not named is forbidden. `+` stands for one level."""

    name: str
    role: Role
    publish: tuple[str, ...]
    read: tuple[str, ...]  #: topics from which messages may arrive
    #: filters that its program subscribes to: some brokers refuse one that is wider than what is allowed. Nothing more
    #: arrives by it than what its writers may publish
    subscribe: tuple[str, ...]

    def may_publish(self, topic: str) -> bool:
        return any(matches(pattern, topic) for pattern in self.publish)

    def may_read(self, topic: str) -> bool:
        return any(matches(pattern, topic) for pattern in self.read)

    def may_subscribe(self, topic: str) -> bool:
        """Whether a topic, or a filter, is within a right to read or within what its program asks for."""
        return self.may_read(topic) or any(matches(pattern, topic) for pattern in self.subscribe)


@dataclass(frozen=True)
class Access:
    """The rights of every identity: the coordinator's, the devices', those of `watch`."""

    fleet: str
    networked: bool  #: whether devices speak to each other
    rights: tuple[Rights, ...]

    @property
    def names(self) -> list[str]:
        return [rights.name for rights in self.rights]

    @property
    def devices(self) -> list[str]:
        return [rights.name for rights in self.rights if rights.role == "device"]

    @cached_property
    def by_name(self) -> dict[str, Rights]:
        return {rights.name: rights for rights in self.rights}

    def rights_of(self, name: str) -> Rights:
        """Raises KeyError if there is nobody of that name."""
        return self.by_name[name]


def members_of(scenario: Scenario, file: str, site: str = "") -> list[str]:
    """Who takes part in the fleet of a scenario: its nodes; of two levels the sites, or with `site` the nodes of that
    one. Raises InputError if the scenario is wrong, or has no such site. `file`: its name.
    """
    public = scenario.kind.public(scenario, file)
    nodes: list[str] = public.nodes
    masked = masked_of(scenario.privacy, len(nodes)) if scenario.privacy else None
    sites = dealt(nodes, masked.sites.sizes) if masked and masked.sites else scenario.kind.sites(public)
    if not site:
        return list(sites) or nodes
    if site not in sites:
        raise InputError(f"{file}: found no site {site}, expected one of {', '.join(sites) or 'none: it has no sites'}")
    return sites[site]


def access_of(
    fleet: str,
    scenario: Scenario,
    file: str,
    without: Collection[str] = (),
    *,
    site: str = "",
    standby: bool = False,
) -> Access:
    """The rights in a fleet that computes `scenario`. `without`: names that were put out; `site`: as `members_of`;
    `standby`: as `rights_on`.

    Raises InputError if the scenario is wrong. `file`: its name.
    """
    public = scenario.kind.public(scenario, file)
    nodes = members_of(scenario, file, site)
    networked = scenario.algorithm.pattern != "star"
    neighbours: dict[str, list[str]] = {name: [] for name in nodes}
    if networked:
        graph = cast(OnGraph, public).graph
        neighbours = {nodes[i]: [nodes[j] for j in beside] for i, beside in enumerate(graph.neighbours)}
    exchanging = any(pattern != "star" for pattern in KINDS[scenario.kind.devices].patterns)
    return rights_on(fleet, neighbours, networked=networked, exchanging=exchanging, without=without, standby=standby)


def rights_on(
    fleet: str,
    neighbours: Mapping[str, Sequence[str]],
    *,
    networked: bool,
    exchanging: bool,
    without: Collection[str] = (),
    standby: bool = False,
) -> Access:
    """The rights in a graph: the neighbours of each device. `exchanging`: devices subscribe as if they had some.
    `standby`: there is a second coordinator, which waits.
    """
    topics = Topics(fleet)
    listed = [_coordinator(topics, standby), *([_standby(topics)] if standby else [])]
    for name, beside in neighbours.items():
        others = [other for other in beside if other not in without]
        listed.append(_device(topics, name, others, networked, exchanging))
    listed.append(_watch(topics))
    return Access(fleet, networked, tuple(rights for rights in listed if rights.name not in without))


def _coordinator(t: Topics, standby: bool) -> Rights:
    watched = (t.state(COORDINATOR), t.status(COORDINATOR), t.run(), t.answer())
    replicas = (topic(t.fleet), notes_topic(t.fleet))
    read = (t.edge(ANY, COORDINATOR), t.state(ANY), *(replicas if standby else ()))
    return Rights(
        COORDINATOR, "coordinator", (t.all(COORDINATOR), t.edge(COORDINATOR, ANY), *watched), read, subscribe=read
    )


def _standby(t: Topics) -> Rights:
    read = (t.state(COORDINATOR), t.status(COORDINATOR), topic(t.fleet), notes_topic(t.fleet))
    return Rights(STANDBY, "standby", (), read, subscribe=read)


def _device(t: Topics, name: str, neighbours: Sequence[str], networked: bool, exchanging: bool) -> Rights:
    speaks = (t.all(name),) if networked else ()
    hears = tuple(t.all(other) for other in neighbours)
    out = tuple(t.edge(name, other) for other in (COORDINATOR, *neighbours))
    come = tuple(t.edge(other, name) for other in (COORDINATOR, *neighbours))
    edges = (t.edge(ANY, name),) if exchanging else come
    return Rights(
        name,
        "device",
        publish=(*speaks, *out, t.state(name), t.status(name)),
        read=(t.all(COORDINATOR), *hears, *come, t.state(COORDINATOR)),
        subscribe=(t.all(COORDINATOR), *hears, *edges, t.state(COORDINATOR)),
    )


def _watch(t: Topics) -> Rights:
    read = (t.state(ANY), t.status(ANY), t.run(), t.answer())
    return Rights(WATCH, "watch", (), read, subscribe=read)


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic, or a filter, is within a pattern with `+`."""
    if ANY not in pattern:
        return pattern == topic
    parts, levels = pattern.split("/"), topic.split("/")
    if len(parts) != len(levels) or "#" in levels:
        return False
    return all(part in (ANY, level) for part, level in zip(parts, levels, strict=True))
