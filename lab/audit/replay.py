"""A node's run played again from a transcript: what its gate was asked, and what it answered.

The machine of a node is public code, and its messages are functions of its gate's answers and of what it received. So
who has heard a run makes the same machine, gives it what it received, and puts in the gate's place a stand-in that
answers 0, then 1 in every coordinate. The message that the node then sent says which answer it had: as long as a step
is affine in the answer, coordinate by coordinate, as steps by gradients are, that answer is found exactly. Where an
answer does not show in the next message (the last of a run, an entry at its bound) its coordinates are nan.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hushgrid.kernels.patterns import star
from hushgrid.kernels.types import Vector
from hushgrid.lab.attacks.transcript import Transcript
from hushgrid.lab.audit.answers import Quiet
from hushgrid.node.problems.machines import machine_of, place

SMALL = 2.0**-30  #: of the largest change of a message by an answer: where less changes, the answer is not seen


class GateAnswer(NamedTuple):
    """One question to a node's gate, and its answer as the node's message tells it."""

    x: Vector  #: (d,)
    answer: Vector  #: (d,), with the public part of the gradient; nan where it does not show


class SilentGate:
    """A stand-in for a gate: it answers 0 or what was set, and keeps the points of its queries."""

    def __init__(self) -> None:
        self.value: Vector | float = 0.0
        self.points: list[Vector] = []

    def gradient(self, x: Vector) -> Vector:
        self.points.append(x.copy())
        return np.zeros(x.size) + self.value


class Exchange(NamedTuple):
    """One step of a machine that was heard: `make` takes it, `sent` is what the node sent then, None if that was not
    heard.
    """

    make: Callable[[], Vector]
    sent: Vector | None


def replayed(transcript: Transcript, node: str) -> list[GateAnswer]:
    """The questions of a run in order. An algorithm that asks for gradients, around a coordinator or on a graph."""
    plan, gate = transcript.plan, SilentGate()
    i = plan.problem.position(node)
    machine = machine_of(plan, place(plan, b"", i, gate, Quiet()))  # type: ignore[arg-type]
    steps = {"neighbours": _rounds, "token": _visits, "star": _exchanges}[plan.algorithm.pattern]
    gate_answers: list[GateAnswer] = []
    for step in steps(transcript, machine, i):
        before = machine.state
        trials = []
        for value in (0.0, 1.0):
            machine.state, gate.value, gate.points = copy.deepcopy(before), value, []
            trials.append(step.make())
        calls = len(gate.points)
        machine.state, gate.points = before, []
        gate.value = answer = _solved(trials[0], trials[1], step.sent, plan.problem.size) if calls else np.zeros(0)
        if calls:
            gate.value = np.where(np.isnan(answer), 0.0, answer)
        step.make()
        if step.sent is None:
            break
        gate_answers += [GateAnswer(x, answer) for x in gate.points]
    return gate_answers


def _solved(zero: Vector, one: Vector, sent: Vector | None, d: int) -> Vector:
    """The answer (d,) with which a message is the one that was sent: affine, coordinate by coordinate."""
    if sent is None:
        return np.full(d, np.nan)
    slope, rest = (one - zero).reshape(-1, d), (sent - zero).reshape(-1, d)
    weight = np.sum(slope**2, axis=0)
    seen = weight > SMALL**2 * max(float(weight.max()), 1e-300)
    solution: Vector = np.where(seen, np.sum(slope * rest, axis=0) / np.where(seen, weight, 1.0), np.nan)
    return solution


def _rounds(transcript: Transcript, machine: Any, i: int) -> Iterator[Exchange]:
    """Messages of neighbours: step t makes message t + 1 from messages t."""
    shares, neighbours = transcript.shares(machine.messages, machine.size), machine.neighbours
    if not len(shares):
        return
    yield Exchange(machine.first, shares[0, i])
    for t in range(1, min(len(shares), machine.messages) + 1):
        others = {name: shares[t - 1, transcript.place[name]] for name in neighbours}
        sent = shares[t, i] if t < min(len(shares), machine.messages) else None
        yield Exchange(lambda t=t, others=others: machine.step(t, shares[t - 1, i], others), sent)  # type: ignore[misc]


def _visits(transcript: Transcript, machine: Any, i: int) -> Iterator[Exchange]:
    """The token before and after an activation of the node."""
    for visit in transcript.visits(machine.first):
        if visit.i == i and not visit.idle:
            yield Exchange(
                lambda v=visit: np.concatenate(machine.activate(v.before, v.live)),  # type: ignore[misc]
                np.concatenate(visit.after),
            )


def _exchanges(transcript: Transcript, machine: Any, i: int) -> Iterator[Exchange]:
    """What the coordinator sent in a round, and what the node sent back."""
    node = transcript.nodes[i]
    bodies = {type(m.body) for m in transcript.messages if m.src == node}
    downs = {type(m.body) for m in transcript.messages if m.dst == node}
    assert issubclass(type(machine), star.StarMember)
    down, up = next(iter(downs)), next(iter(bodies))
    for t, sent, back in transcript.rounds(down, up):

        def make(t: int = t, body: Any = sent[node]) -> Vector:
            machine.update(t, body)
            machine.state.t = t
            return flat(machine.answer_body())

        yield Exchange(make, flat(back[node]))


def flat(body: Any) -> Vector:
    """The vectors of a message, one after the other."""
    values = [getattr(body, name) for name in body.__struct_fields__]
    return np.concatenate([v for v in values if isinstance(v, np.ndarray)])
