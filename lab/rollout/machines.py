"""One run from its machines alone, in each pattern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from hushgrid.kernels.algorithms.base import Rounds, Star, gossip_of
from hushgrid.kernels.patterns.neighbours import Neighbour
from hushgrid.kernels.patterns.routes import index
from hushgrid.kernels.patterns.star import StarCentre
from hushgrid.kernels.patterns.token import Leg, TokenNode
from hushgrid.kernels.types import Matrix, Vector
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.problems.records.centre import centre


class AllowAll:
    """A budget check that lets everything pass; the gate's own list of spends is priced afterwards."""

    honest = honest_at_site = None

    def authorise(self, spends: list[Spend]) -> None: ...
    def committed(self, spends: list[Spend]) -> None: ...


class Hop(NamedTuple):
    k: int  #: the activation just made, from 0
    i: int  #: at this agent
    token: tuple[Vector, ...]  #: after it


def walk(agents: Sequence[TokenNode], nodes: Iterable[int], token: tuple[Vector, ...]) -> Iterator[Hop]:
    """Hands the token along `nodes`, after each activation. Beyond its cap an agent leaves the token as it is."""
    for k, i in enumerate(nodes):
        agent = agents[i]
        if agent.cap is None or agent.state.answers < agent.cap:
            token = agent.activate(token, agent.n)
            agent.state.answers += 1
        yield Hop(k, i, token)


def walk_of_plan(plan: RunPlan, machines: Sequence[TokenNode], run: bytes) -> Iterator[Hop]:
    """The walk of a plan. `run`: the run's id, of which an unseeded random walk is a function."""
    route, nodes = plan.problem.way(plan.running, run), [""]
    for k in range(plan.running.rounds):
        nodes.append(route(nodes[-1], k, Leg()))
    return walk(machines, map(index, nodes[1:]), machines[0].first)


def run_rounds(machines: Sequence[Neighbour], per: int = 1, *, of_messages: bool = False) -> Iterator[Matrix]:
    """All nodes' x, shape (n, d), after each round of `per` messages.

    `of_messages`: what they send (ADMM's f), not what their state keeps.
    """
    sent = [m.first() for m in machines]
    for t in range(1, machines[0].messages + 1):
        new = [m.step(t, sent[i], {j: sent[index(j)] for j in m.neighbours}) for i, m in enumerate(machines)]
        if t % per == 0:
            yield np.array(sent if of_messages else [m.state.x for m in machines])
        sent = new


def run_star(plan: RunPlan, machines: Sequence[Any]) -> Iterator[StarCentre]:
    """A run around a coordinator: the coordinator's machine, after each exchange with all members."""
    server = cast(Star, plan.running).server(centre(plan, ""))
    members = dict(zip(plan.nodes, machines, strict=True))
    step = server.start()
    while step.send:
        answers = [(s.dst, members[s.dst].receive(members[s.dst].centre, s.seq, s.body).send[0]) for s in step.send]
        for member, answer in answers:
            step = server.receive(member, answer.seq, answer.body)
        yield server


def final_iterates(plan: RunPlan, machines: Sequence[Any], run: bytes = bytes(16)) -> Matrix:
    """What a run leaves its nodes, shape (n, d): each its own x. A token's x, and a coordinator's mean, are
    all nodes'.
    """
    n, algorithm = len(machines), plan.running
    if algorithm.pattern == "token":
        *_, hop = walk_of_plan(plan, machines, run)
        return np.repeat(hop.token[0][None], n, axis=0)
    if algorithm.pattern == "neighbours":
        rounds = cast(Rounds, algorithm)
        *_, x = run_rounds(machines, rounds.messages, of_messages=rounds.recorded[0] != "x")
        return x
    *_, server = run_star(plan, machines)
    if cast(Star, algorithm).server_holds_iterate(plan.problem.constrained):
        return np.repeat(server.state.w[None], n, axis=0)
    return np.repeat(np.mean(states(machines, algorithm.recorded[0]), axis=0)[None], n, axis=0)


def device_iterates(plan: RunPlan, machines: Sequence[Any], run: bytes = bytes(16)) -> Matrix:
    """What each device has at the end, before any rounds of averaging, shape (n, d).

    Around a coordinator: the last model that it was sent, if there were several rounds.
    """
    algorithm = plan.running
    if algorithm.pattern == "neighbours":
        if not gossip_of(algorithm):
            return final_iterates(plan, machines, run)
        *_, sent = run_rounds(machines, of_messages=True)
        for machine, message in zip(machines, sent, strict=True):
            machine.state.last = message
        return np.array([machine.iterates()["x"] for machine in machines])
    if algorithm.pattern == "token":
        final_iterates(plan, machines, run)
        return states(machines, algorithm.recorded[0])
    *_, server = run_star(plan, machines)
    if algorithm.rounds > 1 and len(machines) > 1:
        return np.repeat(server.state.w[None], len(machines), axis=0)
    return states(machines, algorithm.recorded[0])


def states(machines: Sequence[Any], name: str) -> Matrix:
    """One vector of all machines' states, shape (n, d)."""
    return np.array([getattr(machine.state, name) for machine in machines])
