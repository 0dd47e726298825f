"""Access lists of the ring of four with one mistake each, and the line by which `verify` must name it."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from hushgrid.broker.enrolment.lists.access import Access, Rights

ROOT = "hushgrid/1/ring"


class Mistake(NamedTuple):
    """`names`: the identities by which it is seen, when these alone try."""

    mutate: Callable[[Access], Access]
    line: str  #: the beginning of the finding
    code: int  #: of the command
    names: tuple[str, ...]


def changed(name: str, change: Callable[[Rights], Rights]) -> Callable[[Access], Access]:
    return lambda access: replace(
        access, rights=tuple(change(rights) if rights.name == name else rights for rights in access.rights)
    )


def writes(name: str, topic: str) -> Callable[[Access], Access]:
    return changed(name, lambda rights: rights._replace(publish=(*rights.publish, f"{ROOT}/{topic}")))


def reads(name: str, topic: str) -> Callable[[Access], Access]:
    return changed(
        name,
        lambda rights: rights._replace(
            read=(*rights.read, f"{ROOT}/{topic}"), subscribe=(*rights.subscribe, f"{ROOT}/{topic}")
        ),
    )


def lacks(name: str, topic: str) -> Callable[[Access], Access]:
    def without(topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for one in topics if one != f"{ROOT}/{topic}")

    return changed(name, lambda rights: Rights(rights.name, rights.role, *(without(topics) for topics in rights[2:])))


MISTAKES = {
    "watch may write": Mistake(writes("watch", "state/n0"), f"watch may publish {ROOT}/state/n0", 3, ("watch",)),
    "a device speaks as the coordinator": Mistake(
        writes("n0", "all/coordinator"), f"n0 may publish {ROOT}/all/coordinator", 3, ("n0",)
    ),
    "a device writes another's edge": Mistake(
        writes("n1", "edge/n0/coordinator"), f"n1 may publish {ROOT}/edge/n0/coordinator", 3, ("n1",)
    ),
    "a device reads another's edge": Mistake(reads("n0", "edge/n1/n2"), f"n0 may read {ROOT}/edge/n1/n2", 3, ("n0",)),
    "a wildcard is too wide": Mistake(reads("n3", "status/+"), f"n3 may read {ROOT}/status/n0", 3, ("n3",)),
    "a right to write lacks": Mistake(lacks("n1", "status/n1"), f"n1 cannot publish {ROOT}/status/n1", 1, ("n1",)),
    "a right to read lacks": Mistake(lacks("n2", "all/coordinator"), f"{ROOT}/all/coordinator", 1, ("n2",)),
    "a last will lacks": Mistake(lacks("n2", "state/n2"), f"n2 cannot publish {ROOT}/state/n2", 1, ("n2",)),
    "the coordinator does not see who is there": Mistake(
        lacks("coordinator", "state/+"), f"{ROOT}/state/n0", 1, ("coordinator",)
    ),
}
assert len(MISTAKES) == 9

#: Of the files themselves, by kind: (what is replaced, by what, the beginning of the finding).
FORGOTTEN = {
    "mosquitto": ("user watch\n", "pattern read hushgrid/1/ring/#\nuser watch\n", f"n0 may read {ROOT}/status/n0"),
    "dynsec": ('"publishClientSend": false', '"publishClientSend": true', "watch may publish "),
    "nats": ('deny: [">"]', "allow: []", "watch may publish "),
    "rabbitmq": (r'"write": "^$"', '"write": ".*"', "watch may publish "),
}
