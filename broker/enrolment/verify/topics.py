"""What each identity tries: every topic between the names that it is looked at with, and the broker's own topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from hushgrid.broker.enrolment.lists.access import ANY, Access, Rights, matches
from hushgrid.node.wire import Topics

TOGETHER = 8  #: names that an identity is looked at with, at most: in a larger fleet its neighbours and a few others
SHOWN = ("state", "status", "run", "answer")  #: kinds of topics that are published retained
WILD = ("#", "+/#", "hushgrid/#", "$SYS/#", "$MQTT/#", "$MQTT/sess/#", "$MQTT/msgs/#", "$JS/#", "$CONTROL/#")


class Tried(NamedTuple):
    """What one identity tries."""

    name: str
    topics: tuple[str, ...]  #: to publish on, and to subscribe to
    filters: tuple[str, ...]  #: with wildcards: to subscribe to
    control: str  #: a topic that nobody has a right to: whether the broker refuses aloud


def tried_by(access: Access, name: str, nonce: str) -> Tried:
    """Every topic of the fleet between the names beside `name`, those of no fleet, and wildcards."""
    fleet = access.fleet
    names = beside(access, name)
    t = Topics(fleet)
    shown = [each(one) for one in names for each in (t.all, t.state, t.status, t.run, t.answer)]
    edges = [t.edge(a, b) for a in names for b in names if a != b]
    control = f"hushgrid-verify/{nonce}"
    strange = [Topics(f"{fleet}-").state(name), t.state(f"{name}-"), f"hushgrid/1/{fleet}", control]
    wide = [f"hushgrid/1/{fleet}/#", *(f"hushgrid/1/{fleet}/{kind}/+" for kind in ("all", *SHOWN))]
    wide += [t.edge("+", "+"), *(t.edge("+", one) for one in names), *(t.edge(one, "+") for one in names)]
    return Tried(name, tuple(dict.fromkeys([*shown, *edges, *strange])), (*WILD, *wide), control)


def beside(access: Access, name: str) -> list[str]:
    """The names that an identity is looked at with, itself among them."""
    rights, names = access.rights_of(name), access.names
    if len(names) <= TOGETHER:
        return names
    roles = {one.name for one in access.rights if one.role != "device"}
    linked = {topic.split("/")[-1] for topic in rights.publish} & {*names}
    place = names.index(name)
    following = [names[(place + k) % len(names)] for k in range(len(names))]
    first = [name, *sorted(roles - {name}), *(other for other in following if other in linked)]
    return list(dict.fromkeys([*first, *following]))[:TOGETHER]


def retained(topic: str) -> bool:
    """Whether the fleet's programs publish on this topic with the sign to keep it."""
    parts = topic.split("/")
    return len(parts) == 5 and parts[3] in SHOWN


class Holders:
    """Who may publish, or read, a topic by right, among some names; of many topics."""

    def __init__(self, access: Access, among: Sequence[str], right: Literal["publish", "read"]) -> None:
        self._exact: dict[str, set[str]] = {}
        self._wild: list[tuple[str, str]] = []
        for name in among:
            rights = access.rights_of(name)
            for pattern in rights.publish if right == "publish" else rights.read:
                if ANY in pattern:
                    self._wild.append((pattern, name))
                else:
                    self._exact.setdefault(pattern, set()).add(name)

    def __call__(self, topic: str) -> list[str]:
        wide = {name for pattern, name in self._wild if matches(pattern, topic)}
        return sorted(self._exact.get(topic, set()) | wide)


def foreign_will(rights: Rights, tried: Tried, readers: Callable[[str], list[str]]) -> str | None:
    """A topic for a will that `rights` forbid, and somebody else may read, so that its arrival would be seen."""
    for topic in tried.topics:
        if not rights.may_publish(topic) and {*readers(topic)} - {rights.name}:
            return topic
    return None
