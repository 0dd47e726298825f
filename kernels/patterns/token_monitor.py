"""The coordinator's side of the token pattern: it sees who has the token, and begins a new epoch where one is lost.

It holds no vector and reads no clock: its driver decides from presence and leases whom to suspect, and this machine
whether a token may be issued again. The argument for safety stands in `kernels/patterns/token.py`. Reports may be late
and suspicions wrong: that costs an epoch, never a second token. An epoch is decided once, for ever; a holder lost
together with the node before it leaves nobody who may decide, and the walk waits for one of them (`missing` says for
whom).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET
from msgspec.structs import replace

from hushgrid.kernels.errors import Stopped, Suspended
from hushgrid.kernels.machine import NOTHING, Malformed, Send, Step
from hushgrid.kernels.patterns.token_messages import NEVER, Answer, Held, Leg, Notice, Route


@dataclass
class MonitorState:
    t: int = 0  #: 1 once started
    held: tuple[int, int] = (0, 0)  #: (epoch, hop) of the newest token reported or issued
    by: str = ""  #: who made activation hop - 1
    to: str = ""  #: and hands the token to this node, for activation hop
    no: int = 0  #: of the last notice
    notice: Notice = field(default_factory=Notice)
    suspect: str = ""  #: of the announcement under way; "": none
    hop: int = 0  #: the activation it is feared to have been lost in
    answers: dict[str, Answer] = field(default_factory=dict)  #: to the last notice
    avoided: tuple[str, ...] = ()  #: the nodes no token of this epoch has been sent to since `held`
    done: str | None = None
    recounts: bool = False  #: a leg around other nodes begins with a recount
    missing: tuple[str, ...] = ()  #: the nodes that the sums of the token held were without


class TokenMonitor:
    """`neighbours` of every member; `rounds` activations in all, along `route`. `recounts`: all members know how to."""

    def __init__(
        self, neighbours: Mapping[str, Iterable[str]], route: Route, rounds: int, *, recounts: bool = True
    ) -> None:
        self.route = route
        self.neighbours = {node: frozenset(nodes) for node, nodes in neighbours.items()}
        self.members, self.rounds = sorted(self.neighbours), rounds
        self.state = MonitorState(to=route("", 0, Leg()), recounts=recounts)

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @property
    def complete(self) -> bool:
        return self.state.done is not None

    def start(self) -> Step:
        """The first notice says no more than that the run has begun."""
        self.state.t = 1
        return self._notify()

    def receive(self, sender: str, seq: int, body: object) -> Step:
        if sender not in self.neighbours or not isinstance(body, Held | Answer):
            raise Malformed(f"{type(body).__name__} from {sender}, expected a member's report")
        s = self.state
        if s.done is not None:
            return NOTHING
        if isinstance(body, Held):
            known = s.held == (body.epoch, seq) and s.by and (s.to or sender != s.by)
            if (body.epoch, seq) < s.held or known:
                return NOTHING
            s.held, s.by, s.to, s.done = (body.epoch, seq), sender, body.to, body.done
            s.missing = () if body.missing is UNSET else body.missing
            if sender in s.answers and s.answers[sender].t < seq:  # it knew, and from it every holder after it
                s.avoided = s.notice.without
            return Step(done=s.done, taken=True)
        if seq != s.no or sender in s.answers:
            return NOTHING
        s.answers = dict(sorted({**s.answers, sender: body}.items()))
        if sender == s.by and not s.to and body.holds and body.t == s.held[1]:
            s.to = body.to
        return self._decide()._replace(taken=True) if s.suspect else Step(taken=True)

    def tick(self) -> Step:
        """The last notice again, to whoever has not answered it."""
        s = self.state
        if s.done is not None or not s.no:
            return Step(done=s.done)
        return Step(tuple(Send(node, s.no, s.notice) for node in self.members if node not in s.answers))

    # --- what the driver may ask for ---

    def suspect(self, node: str) -> Step:
        """The node that has the token, or is to have it next, is feared lost: announce the next epoch.

        An announcement under way is dropped. Raises Stopped if neither is this node.
        """
        s, n = self.state, self.state.notice
        if s.done is not None:
            return NOTHING
        if node not in (s.by, s.to) or not node:
            raise Stopped(f"{node} is feared lost: expected {s.by or s.to} or {s.to}, who have the token")
        fences = (*n.fences, NEVER) if s.suspect else n.fences
        s.suspect, s.hop = node, s.held[1] - (node == s.by)
        return self._notify(announced=len(fences) + 1, barrier=max(n.barrier, s.hop + 1), fences=fences, by="")

    def around(self, nodes: Iterable[str]) -> Step:
        """From now on the walk goes around these nodes, and again to all others. Holders hear of it as they can."""
        s, without = self.state, tuple(sorted(nodes))
        if s.suspect:
            raise Stopped(f"activation {s.hop} at {s.suspect} is feared lost: expected to be decided first")
        self._check_connected(without)
        s.avoided = tuple(node for node in s.avoided if node in without)
        return self._notify(version=s.no + 1, without=without, recount=s.recounts or UNSET)

    def missing(self) -> list[str]:
        """Whose answer a suspicion waits for."""
        s = self.state
        if not s.suspect:
            return []
        answer, needed = s.answers.get(s.suspect), self.neighbours[s.suspect] - set(s.avoided)
        if answer and answer.t == s.hop + 1 and answer.holds:
            # a copy for a node that is avoided is of an older epoch: the last fence undoes whatever is made of it there
            needed = frozenset({answer.to} - {"", *s.avoided})
        elif answer and answer.t <= s.hop and self._keeper()[0]:
            return []
        return sorted(needed - s.answers.keys())

    # --- inside ---

    def _decide(self) -> Step:
        s, n = self.state, self.state.notice
        handed_on = any(a.t > s.hop + 1 for a in s.answers.values())
        if not handed_on and self.missing():
            return NOTHING
        by, hop = ("", 0) if handed_on else self._keeper()
        suspect, s.suspect = s.suspect, ""
        if not by:
            return self._notify(fences=(*n.fences, NEVER), by="")
        version, without, recount = n.version, n.without, s.recounts or UNSET
        lost = {suspect} - s.answers.keys()
        if new := bool(lost) or by in without:  # who issues a token is there, whatever was thought of it
            version, without = s.no + 1, tuple(sorted({*n.without, *lost} - {by}))
            self._check_connected(without)
        leg = n.leg if version == n.leg.version else Leg(version, max(hop, 1), by, without, recount)
        s.avoided, s.held = without, (len(n.fences) + 1, hop)
        s.by, s.to = (by, self.route(by, hop, leg)) if hop else ("", by)
        if hop and leg.recount is True and not new:
            s.to = ""  # how far the recount of that leg has come, its issuer says
        return self._notify(
            fences=(*n.fences, hop), by=by, hop=hop, leg=leg, version=version, without=without, recount=recount
        )

    def _keeper(self) -> tuple[str, int]:
        """Who can issue which token, when nobody has made activation hop + 1 or ever will; "" where nobody can."""
        s = self.state
        answer = s.answers.get(s.suspect)
        if answer and answer.t == s.hop + 1 and answer.holds:  # it is there after all, and its step stands
            return (s.suspect, s.hop + 1) if s.hop + 1 < self.rounds else ("", 0)
        if s.hop == 0:  # token 0 is everybody's
            return (s.suspect if answer else min(self.neighbours[s.suspect] - set(s.avoided))), 0
        return next((node for node, a in sorted(s.answers.items()) if a.holds and a.t == s.hop), ""), s.hop

    def _notify(self, **decided: object) -> Step:
        s = self.state
        s.no, s.notice, s.answers = s.no + 1, replace(s.notice, **decided), {}
        return self.tick()

    def _check_connected(self, without: tuple[str, ...]) -> None:
        """Raises Stopped unless at least two nodes remain, and are connected."""
        remaining = set(self.members) - set(without)
        seen, stack = set(), sorted(remaining)[:1]
        while stack:
            node = stack.pop()
            seen.add(node)
            stack.extend((self.neighbours[node] & remaining) - seen)
        if seen != remaining or len(remaining) < 2:
            raise Suspended(
                f"without {', '.join(without)} the network falls apart: expected two nodes or more, connected"
            )
