"""A broker that lies: it alters every message in every way that pays, in four dresses, and repeats old ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec.structs import replace

from hushgrid.broker.simulation.memory import MemoryBroker
from hushgrid.broker.standby.replica import STANDBY, decode, decode_notes
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.masked_messages import Ask, Masked
from hushgrid.kernels.patterns.neighbours import Reached
from hushgrid.kernels.patterns.star import Released
from hushgrid.kernels.patterns.token import Held, Notice
from hushgrid.node import frames, wire
from hushgrid.node.frames import Broadcast, Hello, Sealed, Signed
from hushgrid.node.masks.identity import made_up
from hushgrid.node.trust.keys import SessionKey, hello_statement, statement
from hushgrid.node.wire import COORDINATOR, Birth, Finish, Finished, Join, Mark, Plan, Progress, Refuse, Topics
from tests.support.trust.fleet import TrustedBroker

NONCE = b"a nonce of a lie"
CLAIM = Mark(b"l" * 16, 1000, 100.0)
FEW = 3  #: repetitions at a time
LARGEST = 2 * wire.PLAN_LIMIT


def _plan(src, envelope):
    if not isinstance(body := envelope.body, Plan):
        return None
    run = wire.run_id(body.plan, NONCE, body.members)
    return replace(envelope, run=run, body=replace(body, nonce=NONCE))


def _mark(src, envelope):
    if isinstance(body := envelope.body, Plan):
        return replace(envelope, body=replace(body, marks=dict.fromkeys(body.members, CLAIM)))
    if isinstance(body, Join | Finished):
        return replace(envelope, body=replace(body, seen=tuple((name, CLAIM) for name in ("z1", "z2", "n0", "n1"))))
    return None if envelope.mark is None else replace(envelope, mark=CLAIM)


def _vectors(src, envelope):
    body = envelope.body
    if not isinstance(body, wire.Iterate) or isinstance(body, Released):
        return None
    return _scaled(envelope)


def _scaled(envelope):
    body = envelope.body
    fields = {key: getattr(body, key) for key in body.__struct_fields__}
    vectors = {key: -2.0 * value for key, value in fields.items() if isinstance(value, np.ndarray)}
    if isinstance(several := fields.get("vectors"), tuple):
        vectors["vectors"] = tuple(-2.0 * value for value in several)
    return replace(envelope, body=replace(body, **vectors)) if vectors else None


def _released(src, envelope):
    if not isinstance(body := envelope.body, Released):
        return None
    return replace(envelope, body=replace(body, disagreement=body.disagreement + 1.0, values=-2.0 * body.values))


def _masked(src, envelope):
    match envelope.body:
        case Ask(x=x) as ask:
            return replace(envelope, seq=envelope.seq + 1, body=replace(ask, round=ask.round + 1, x=x + 1.0))
        case Masked(share) as answer:
            return replace(envelope, body=replace(answer, share=share[::-1]))
    return None


def _epoch(src, envelope):
    if isinstance(body := envelope.body, Notice):
        raised = replace(body, announced=body.announced + 1, barrier=99)
        return replace(envelope, epoch=raised.epoch, seq=envelope.seq + 1, body=raised)
    return None


def _report(src, envelope):
    match envelope.body:
        case Held() as held:
            return replace(envelope, seq=envelope.seq + 1, body=replace(held, done="rounds"))
        case Reached():
            return replace(envelope, body=Reached(done=True))
    return None


#: What a lie makes of a message of `src`; None where it has nothing to say.
LIES = {
    "plan": _plan,
    "mark": _mark,
    "iterate": _vectors,
    "masked": _masked,
    "epoch": _epoch,
    "report": _report,
    "set-points": _released,
    "join": lambda src, e: None if src == COORDINATOR else replace(e, epoch=0, seq=0, body=Join(stands=7)),
    "refuse": lambda src, e: None if src == COORDINATOR else replace(e, epoch=0, seq=0, body=Refuse("a lie")),
    "farewell": lambda src, e: None if src == COORDINATOR else replace(e, epoch=0, seq=0, body=Finished()),
    "finish": lambda src, e: (
        replace(e, epoch=0, seq=0, body=Finish("stopped", "a lie")) if src == COORDINATOR else None
    ),
}
PRESENT = {
    "state": lambda p: replace(p, state="stopped") if isinstance(p, Progress) else None,
    "session": lambda p: replace(p, session=p.session + 1) if isinstance(p, Birth) else None,
    "birth": lambda p: replace(p, mark=CLAIM) if isinstance(p, Birth) else None,
}


def message_in(payload):
    """What a frame has inside; None of a hello."""
    frame = frames.decode(payload)
    return None if isinstance(frame, Hello) else frame.message


def altered(topics, topic, message):
    """(lie, topic, message) for each lie that fits."""
    kind, src, dst = topics.parse(topic)
    if dst.startswith(STANDBY):
        told = decode(message) if dst == STANDBY else decode_notes(message)
        other = replace(told, no=told.no + 99, **({"status": "stopped"} if dst == STANDBY else {"notes": {}}))
        return [("standby", topic, wire.encode(other))]
    try:
        whole = wire.decode_envelope(message, LARGEST)
    except Malformed:
        presence = wire.decode_presence(message)
        found = [(name, topic, lie(presence)) for name, lie in PRESENT.items()]
    else:
        found = [(name, topic, lie(src, whole)) for name, lie in LIES.items()]
        if src == COORDINATOR and kind == "edge":
            found.append(("state", topics.state(COORDINATOR), Progress(whole.run, 1, "stopped")))
    encoded = [(name, where, wire.encode(said)) for name, where, said in found if said is not None]
    return [(name, where, lie) for name, where, lie in encoded if lie != message]


class Forger:
    """What somebody makes of messages who has no key of the fleet `fleet`: keys and certificates of its own."""

    def __init__(self, fleet, names):
        self.topics, self.key = Topics(fleet), SessionKey()
        self.own, _ = made_up(names)  # certificates in everybody's name that nobody has pinned

    def dresses(self, dst, topic, frame, message):
        """In clear; with the proof of the truth; with that and a later number; with a proof of the liar's own."""
        number, (_, src, _) = frame.number + 1, self.topics.parse(topic)
        yield message
        yield frames.encode(replace(frame, message=message))
        yield frames.encode(replace(frame, number=number, message=message))
        key = self.key.edge(self.topics.fleet, src, dst, self.key.public, outward=True)
        tag = key.tag(topic, number, message)
        match frame:
            case Sealed():
                yield frames.encode(Sealed(number, tag, message))
                yield frames.encode(Sealed(number, frame.tag[: frames.KEY_ID] + tag[frames.KEY_ID :], message))
            case Broadcast():
                yield frames.encode(Broadcast(number, {dst: tag}, message))
        for public in (self.key.public, getattr(frame, "key", b"k" * frames.KEY)):
            signature = self.own[src].sign(statement(topic, number, public, message))
            yield frames.encode(Signed(number, public, signature, message))

    def poses(self, topic, hello, echo):
        """As the sender of a hello who is there now: by its certificate, or by one that nobody trusts."""
        _, src, dst = self.topics.parse(topic)
        for certificate in (hello.certificate, self.own[src].certificate):
            posed = replace(hello, key=self.key.public, certificate=certificate, session=99, echo=echo, wants=True)
            signature = self.own[src].sign(hello_statement(self.topics.fleet, src, dst, posed))
            yield frames.encode(replace(posed, signature=signature))


class Believed(Exception):
    """A lie has changed something."""


class BelievedBroker(MemoryBroker):
    """It tells the lie `kind` wherever it fits, until somebody believes it: then it raises Believed."""

    world, kind = None, ""

    def _deliver(self, delivery):
        if self.world is not None:
            for name, topic, message in altered(self.world.centre.topics, delivery.topic, delivery.payload):
                if name == self.kind:
                    before = self.world.state(delivery.dst)
                    self.endpoints[delivery.dst].on_message(topic, message)
                    if self.world.state(delivery.dst) != before:
                        raise Believed
        super()._deliver(delivery)


class LyingBroker(TrustedBroker):
    """It delivers what is sent, and before it every lie about it, once it knows the `world`.

    After each lie nothing may have changed at its victim, which says nothing but hellos; after a repetition it may
    say again what it has said.
    """

    def __init__(self, *args, **options):
        self.recorded, self.world, self.lies, self.turn = [], None, Counter(), 0
        super().__init__(*args, **options)
        self.forger = Forger("world", self.endpoints)

    def publish(self, publications):
        self.recorded += [(p.topic, p.payload) for p in publications if p.payload]
        super().publish(publications)

    def _deliver(self, delivery):
        if self.world is not None:
            self.lie_about(delivery)
        super()._deliver(delivery)

    def lie_about(self, delivery):
        if not framed(delivery.payload):
            return
        frame, topics = frames.decode(delivery.payload), self.forger.topics
        if isinstance(frame, Hello):
            echo = self.world.guard(delivery.dst).key.public
            for payload in self.forger.poses(delivery.topic, frame, echo):
                self.tell("hello", delivery.dst, delivery.topic, payload)
            return
        for name, topic, message in altered(topics, delivery.topic, frame.message):
            for payload in self.forger.dresses(delivery.dst, topic, frame, message):
                self.tell(name, delivery.dst, topic, payload)

    def repeats(self, recorded):
        """A few of what was recorded are delivered again to all that hear their topics; all of it in turn."""
        for _ in range(min(FEW, len(recorded))):
            topic, payload = recorded[self.turn % len(recorded)]
            self.turn += 1
            for victim in self._hearers(topic):
                self.tell("repeated", victim, topic, payload)

    def start_again(self, names):
        """These processes, after what was on its way has come."""
        while self.queue:
            MemoryBroker._deliver(self, self._next())
        for name in names:
            self.endpoints[name] = self.rebuild(name)

    def tell(self, name, victim, topic, payload):
        """One lie."""
        before, held = self.world.state(victim), dict(self.world.guard(victim).peers)
        spoken = {message_in(p) for t, p in self.recorded if framed(p)} if name == "repeated" else ()
        out = self.endpoints[victim].on_message(topic, payload)
        assert self.world.state(victim) == before, name
        assert self.world.guard(victim).peers == held, name
        assert all(message in (None, *spoken) for message in map(message_in, (p.payload for p in out))), name
        self.lies[name] += 1


def framed(payload):
    try:
        frames.decode(payload)
    except Malformed:
        return False
    return True
