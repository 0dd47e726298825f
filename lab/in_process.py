"""A run from its machines and gates alone: no ledger, no message, no process. For tuning and studies, never for devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from hushgrid.kernels.algorithms.base import Rounds, Star
from hushgrid.kernels.patterns.neighbours import Neighbour
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.patterns.token import Leg, TokenNode
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.centre import centre


class Willing:
    """An authority that lets everything pass; the gate's own list of spends is priced afterwards."""

    honest = None

    def authorise(self, spends: list[Spend]) -> None: ...
    def committed(self, spends: list[Spend]) -> None: ...


class Hop(NamedTuple):
    k: int  #: the activation just made, from 0
    i: int  #: at this agent
    token: tuple[Vector, ...]  #: after it


def handed(agents: Sequence[TokenNode], walk: Iterable[int], token: tuple[Vector, ...]) -> Iterator[Hop]:
    """The token handed along `walk` in this process, after each activation; beyond its cap an agent leaves it as it is."""
    for k, i in enumerate(walk):
        agent = agents[i]
        if agent.cap is None or agent.state.answers < agent.cap:
            token = agent.activate(token, agent.n)
            agent.state.answers += 1
        yield Hop(k, i, token)


def walked(plan: RunPlan, machines: Sequence[TokenNode], run: bytes) -> Iterator[Hop]:
    """The walk of a plan. `run`: the run's id, of which an unseeded random walk is a function."""
    route, walk = plan.problem.way(plan.running, run), [""]
    for k in range(plan.running.rounds):
        walk.append(route(walk[-1], k, Leg()))
    return handed(machines, map(index, walk[1:]), machines[0].first)


def rounds_of(machines: Sequence[Neighbour], per: int = 1, of_messages: bool = False) -> Iterator[Matrix]:
    """All nodes' x, shape (n, d), after each round of `per` messages: what they say (ADMM's f), or what they keep."""
    sent = [m.first() for m in machines]
    for t in range(1, machines[0].messages + 1):
        new = [m.step(t, sent[i], {j: sent[index(j)] for j in m.neighbours}) for i, m in enumerate(machines)]
        if t % per == 0:
            yield np.array(sent if of_messages else [m.state.x for m in machines])
        sent = new


def stepped(machines: Sequence[Neighbour], per: int = 1, of_messages: bool = False) -> Iterator[Vector]:
    """The mean of all nodes' x after each round."""
    for own in rounds_of(machines, per, of_messages):
        yield np.mean(own, axis=0)


def last(plan: RunPlan, machines: Sequence[Any], run: bytes = bytes(16)) -> Matrix:
    """What a run leaves its nodes, shape (n, d): each its own x. A token's x, and a coordinator's mean, are all nodes'."""
    n, algorithm = len(machines), plan.running
    if algorithm.pattern == "token":
        *_, hop = walked(plan, machines, run)
        return np.repeat(hop.token[0][None], n, axis=0)
    if algorithm.pattern == "neighbours":
        rounds = cast(Rounds, algorithm)
        *_, own = rounds_of(machines, rounds.messages, rounds.recorded[0] != "x")
        return own
    server = around(plan, machines)
    if cast(Star, algorithm).server_holds_iterate(plan.problem.constrained):
        return np.repeat(server.state.w[None], n, axis=0)
    z = [getattr(m.state, algorithm.recorded[0]) for m in machines]
    return np.repeat(np.mean(z, axis=0)[None], n, axis=0)


def around(plan: RunPlan, machines: Sequence[Any]) -> Any:
    """Plays a run around a coordinator; returns the coordinator's machine, as it is at the end."""
    server, members = cast(Star, plan.running).server(centre(plan, "")), dict(zip(plan.nodes, machines, strict=True))
    step = server.start()
    while step.send:
        said = [
            (send.dst, members[send.dst].receive(members[send.dst].centre, send.seq, send.body)) for send in step.send
        ]
        for member, answer in said:
            step = server.receive(member, answer.send[0].seq, answer.send[0].body)
    return server
