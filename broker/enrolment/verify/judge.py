"""What was seen at the broker against the rights: what arrived that must not, and what lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hushgrid.broker.enrolment.lists.access import Access
from hushgrid.broker.enrolment.lists.choose import BrokerKind
from hushgrid.broker.enrolment.verify.probe import Outcome
from hushgrid.broker.enrolment.verify.topics import Holders, Tried, retained

#: Kinds of broker that bind no client id to a certificate.
UNBOUND: tuple[BrokerKind, ...] = ("nats", "rabbitmq")


@dataclass
class Seen:
    """What happened. Keys are (identity, topic or filter)."""

    subscribed: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    published: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    wills: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    arrived: set[tuple[str, str, str]] = field(default_factory=set)  #: (reader, topic, publisher)
    late: set[tuple[str, str, str]] = field(default_factory=set)  #: the same of retained messages, to who comes later
    inside: set[tuple[str, str]] = field(default_factory=set)  #: (reader, topic) of what is the broker's own
    taken_over: dict[tuple[str, str], Outcome] = field(default_factory=dict)  #: (identity, another's client id)


@dataclass
class Verdict:
    """What `verify` prints."""

    forbidden: list[str] = field(default_factory=list)  #: what arrived, or was granted, and must not be
    lacking: list[str] = field(default_factory=list)  #: what is needed, and was refused or did not arrive
    impossible: list[str] = field(default_factory=list)  #: what this kind of broker cannot refuse
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  #: (what was tried, how it was answered)

    @property
    def code(self) -> int:
        """0 if all is right, 3 if something forbidden arrived, 1 if something needed lacks."""
        return 3 if self.forbidden else 1 if self.lacking else 0


def judge(access: Access, tried: Mapping[str, Tried], among: list[str], seen: Seen, kind: BrokerKind) -> Verdict:
    """The verdict. `among`: the identities that listened."""
    verdict = Verdict()
    verdict.forbidden += dict.fromkeys(_arrived(access, seen))
    verdict.forbidden += dict.fromkeys(_granted(access, tried, seen))
    for (name, victim), outcome in sorted(seen.taken_over.items()):
        verdict.counts["another's client id", outcome.reason] += 1
        if outcome.kind == "taken":
            line = f"{name} connects with the client id of {victim}, which is disconnected by that"
            (verdict.impossible if kind in UNBOUND else verdict.forbidden).append(line)
    verdict.lacking += dict.fromkeys(_lacking(access, Holders(access, among, "read"), seen))
    _count(access, seen, verdict.counts)
    return verdict


def _arrived(access: Access, seen: Seen) -> Iterator[str]:
    for reader, topic, publisher in sorted(seen.arrived | seen.late):
        will = " as a will" if (publisher, topic) in seen.wills else ""
        if not access.rights_of(publisher).may_publish(topic):
            yield f"{publisher} may publish {topic}{will}: it arrived at {reader}"
        if not access.rights_of(reader).may_subscribe(topic):
            yield f"{reader} may read {topic}: what {publisher} published arrived"
    for reader, topic in sorted(seen.inside):
        yield f"{reader} may read {topic}, the broker's own"


def _granted(access: Access, tried: Mapping[str, Tried], seen: Seen) -> Iterator[str]:
    """What the broker granted, where it refuses aloud: then a grant is a right."""
    controls = {one.control for one in tried.values()}
    for what, outcomes in (("publish", seen.published), ("subscribe to", seen.subscribed)):
        aloud = any(topic in controls and outcome.kind != "taken" for (_, topic), outcome in outcomes.items())
        for (name, topic), outcome in sorted(outcomes.items()):
            rights = access.rights_of(name)
            allowed = rights.may_publish(topic) if what == "publish" else rights.may_subscribe(topic)
            if aloud and outcome.kind == "taken" and not allowed:
                yield f"{name} may {what} {topic}: {outcome.reason}"


def _lacking(access: Access, readers: Holders, seen: Seen) -> Iterator[str]:
    for (name, topic), outcome in sorted(seen.subscribed.items()):
        rights = access.rights_of(name)
        if outcome.kind != "taken" and (topic in rights.subscribe or rights.may_read(topic)):
            yield f"{name} cannot subscribe to {topic}: {outcome.reason}"
    foreign = {topic for _, topic, who in seen.arrived | seen.late if not access.rights_of(who).may_publish(topic)}
    for (name, topic), outcome in sorted((seen.published | seen.wills).items()):
        if not access.rights_of(name).may_publish(topic):
            continue
        if outcome.kind != "taken":
            will = " as its will" if (name, topic) in seen.wills else ""
            yield f"{name} cannot publish {topic}{will}: {outcome.reason}"
            continue
        expected = [one for one in readers(topic) if one != name]
        lacks = [one for one in expected if (one, topic, name) not in seen.arrived]
        if expected and lacks == expected and not _deaf(seen, lacks, topic):
            yield f"{name} cannot publish {topic}, or nobody can read it: acknowledged, and it arrived at nobody"
        else:
            yield from (f"{one} does not get {topic} of {name}: {_subscribed(seen, one, topic)}" for one in lacks)
        if retained(topic) and not lacks and topic not in foreign:  # else another's is retained there
            missed = [one for one in expected if (one, topic, name) not in seen.late]
            yield from (f"{one} does not get {topic} of {name} retained" for one in missed)


def _deaf(seen: Seen, names: list[str], topic: str) -> bool:
    """Whether the broker refuses all of them the subscription."""
    return all(seen.subscribed.get((name, topic), SUBSCRIBED).kind != "taken" for name in names)


SUBSCRIBED = Outcome("taken", "subscribed")


def _subscribed(seen: Seen, name: str, topic: str) -> str:
    outcome = seen.subscribed.get((name, topic), SUBSCRIBED)
    return "subscribed, and it does not arrive" if outcome.kind == "taken" else f"subscription: {outcome.reason}"


def _count(access: Access, seen: Seen, counts: Counter[tuple[str, str]]) -> None:
    reached = {(publisher, topic) for _, topic, publisher in seen.arrived}
    for what, outcomes in (("publication", seen.published), ("will", seen.wills)):
        for (name, topic), outcome in outcomes.items():
            allowed = access.rights_of(name).may_publish(topic)
            silent = outcome.kind == "taken" and (name, topic) not in reached
            reason = "acknowledged, not delivered" if silent and not allowed else outcome.reason
            counts[f"{'needed' if allowed else 'forbidden'} {what}", reason] += 1
    for (name, topic), outcome in seen.subscribed.items():
        allowed = access.rights_of(name).may_subscribe(topic)
        reason = outcome.reason if outcome.kind != "taken" else "granted" if allowed else "granted, nothing arrives"
        counts[f"{'needed' if allowed else 'forbidden'} subscription", reason] += 1
