"""The star pattern: a coordinator sends every member a vector each round, and goes on when all have answered.

Loss, duplication and reordering are handled here, once: a message of the coming round advances, one of the round just
answered is answered with the same bytes again, anything else is nothing. A paper supplies the two updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from hushgrid.kernels.machine import NOTHING, Malformed, Send, Step


class StarMember(ABC):
    """A member of a star. `state.t` is the last round answered; `answer_body` rebuilds that round's message from it."""

    state: Any

    def __init__(self, centre: str, rounds: int) -> None:
        self.centre = centre
        self.rounds = rounds

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @abstractmethod
    def check(self, body: Any) -> None:
        """Raise Malformed unless `body` is what the centre may send this member."""

    @abstractmethod
    def update(self, t: int, body: Any) -> None:
        """Round t: take the centre's message and advance the state, all of it or (on an error) nothing."""

    @abstractmethod
    def answer_body(self) -> Any:
        """The message of round `state.t`, a function of the state alone."""

    def start(self) -> Step:
        return NOTHING  # the centre speaks first

    def receive(self, sender: str, seq: int, body: Any) -> Step:
        if sender != self.centre:
            raise Malformed(f"a message from {sender}, expected from {self.centre}")
        self.check(body)
        if seq == self.state.t + 1 and seq <= self.rounds:
            self.update(seq, body)
            self.state.t = seq
            return self.tick()._replace(taken=True)
        return self.tick() if seq == self.state.t else NOTHING

    def tick(self) -> Step:
        if self.state.t == 0:
            return NOTHING
        return Step((Send(self.centre, self.state.t, self.answer_body()),))


class StarCentre(ABC):
    """The centre of a star. `state.t` is the round under way, `state.arrived` what has come in for it."""

    state: Any

    def __init__(self, members: list[str], rounds: int) -> None:
        self.members = sorted(members)
        self.rounds = rounds

    @property
    def started(self) -> bool:
        return bool(self.state.t)

    @abstractmethod
    def check(self, member: str, body: Any) -> None:
        """Raise Malformed unless `body` is what this member may send."""

    @abstractmethod
    def begin(self) -> None:
        """Compute what round `state.t` sends."""

    @abstractmethod
    def combine(self) -> bool:
        """All answers of round `state.t` are in `state.arrived`: take them; True stops before the next round."""

    @abstractmethod
    def round_body(self, member: str) -> Any:
        """This round's message to a member, a function of the state alone."""

    def start(self) -> Step:
        self.state.t = 1
        self.begin()
        return self.tick()

    def receive(self, sender: str, seq: int, body: Any) -> Step:
        if sender not in self.members:
            raise Malformed(f"a message from {sender}, which is no member")
        self.check(sender, body)
        s = self.state
        if s.done is not None or seq != s.t or sender in s.arrived:
            return NOTHING
        s.arrived[sender] = body
        if len(s.arrived) < len(self.members):
            return Step(taken=True)
        stop = self.combine()
        s.arrived = {}
        if stop or s.t == self.rounds:
            s.done = "tolerance" if stop else "rounds"
            return Step(done=s.done, taken=True)
        s.t += 1
        self.begin()
        return self.tick()._replace(taken=True)

    def tick(self) -> Step:
        s = self.state
        if s.done is not None:
            return Step(done=s.done)
        return Step(tuple(Send(m, s.t, self.round_body(m)) for m in self.members if m not in s.arrived))

    def missing(self) -> list[str]:
        """Members whose answer to the round under way has not come."""
        return [m for m in self.members if m not in self.state.arrived]
