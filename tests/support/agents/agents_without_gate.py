"""Agents with data and no gate, and a token that is handed from one to the next without a network between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hushgrid.kernels.graphs import Graph, Network, cyclic_route, random_walk
from hushgrid.kernels.patterns.token import Token, TokenNode
from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.kernels.problems.minimizer import Minimizer


class Data:
    """An oracle of one agent's f_i. `noise`: what is added to its next gradients, or what `perturb` adds, in order."""

    def __init__(self, loss, noise=()):
        self.loss, self.minimize, self.noise = loss, Minimizer(loss), iter(noise)
        self.answers = []

    def exact_gradient(self, x):
        return self.loss.gradient(x)

    def gradient(self, x):
        self.answers.append(self.loss.gradient(x) + next(self.noise))
        return self.answers[-1]

    def perturb(self, x):
        return x + next(self.noise)

    def exact_minimizer(self, linear, quadratic):
        return self.minimize(linear, quadratic).x

    def minimizer(self, linear, quadratic):
        return self.minimize(linear + next(self.noise), quadratic).x


def losses(kind, n, m, q, seed, **objective):
    """n agents of m rows: least squares, or logistic with labels of both kinds."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=q)
    found = []
    for _ in range(n):
        A = rng.normal(size=(m, q)) / np.sqrt(q)
        b = A @ truth + 0.1 * rng.normal(size=m) if kind == "least-squares" else np.sign(A @ truth + rng.normal(size=m))
        found.append(Loss(Objective(kind=kind, **objective), A, b))
    return found


def names(walk):
    return [f"n{i}" for i in walk]


def along(walk):
    """The route that makes activation k at walk[k]."""
    return lambda node, hop, leg: f"n{walk[hop]}"


class Hop(NamedTuple):
    k: int  #: the activation just made
    i: int  #: at this agent
    token: tuple[np.ndarray, ...]  #: after it


def walked(agents: list[TokenNode]) -> Iterator[Hop]:
    """Hand the token on until the walk is over; after each activation."""
    by_name = {agent.name: agent for agent in agents}
    i, step = next((i, s) for i, agent in enumerate(agents) if (s := agent.start()).taken)
    k = 0
    while True:
        state = agents[i].state
        yield Hop(k, i, state.final if state.done else state.out.vectors)
        if step.done:
            return
        dst, seq, body = next(send for send in step.send if isinstance(send.body, Token))
        assert seq == k + 1
        step = by_name[dst].receive(agents[i].name, seq, body)
        k, i = seq, agents.index(by_name[dst])


def network(kind):
    """A ring or a geometric graph of six, and a random walk's length on it covers every agent."""
    keys = {"ring": {}, "geometric": {"radius": 0.6, "seed": 3}}[kind]
    return Network(kind=kind, nodes=6, **keys).build()


def random(graph: Graph, rounds):
    return random_walk(graph, 0, rounds, seed=5)


def cycle(graph: Graph, rounds):
    nodes = cyclic_route(graph).nodes
    return [nodes[k % len(nodes)] for k in range(rounds)]


def distance(losses_, regularizer, x, linear=0.0):
    """A bound of |x - x*|_2 for F = sum f_i + <linear, x> + n r, by a proximal gradient step of length 1/L from x.

    F's smooth part is mu-convex and L-smooth: such a step contracts by 1 - mu/L, so its length d has |x - x*| <= (L/mu)
    d; twice that where a ridge of r, below L, is counted in mu.
    """
    n = len(losses_)
    slope = sum(f.gradient(x) for f in losses_) + linear
    data = sum((f.A.T @ f.A) * f.objective.scale / f.rows for f in losses_)
    e = np.linalg.eigvalsh(data)
    l2 = n * losses_[0].objective.l2
    least_squares = losses_[0].objective.kind == "least-squares"
    L, mu = (e[-1] + l2, e[0] + l2) if least_squares else (e[-1] / 4 + l2, l2 + n * regularizer.l2)
    d = x - regularizer.prox(x - slope / L, n / L)
    return 2 * L / mu * float(np.linalg.norm(d))


def eavesdrop(tokens, p, fs, r):
    """(agent, y_i, its gradient) of every visit but an agent's last, from the tokens and public numbers alone.

    x+ = prox(x - u~ - beta (x - y_i)): where x+ is not 0 the prox can be undone, and y_i is plain. (7c) does the rest.
    """
    n, beta = len(fs), p.beta_n(len(fs))
    x, u, visited = np.zeros(fs[0].size), np.zeros(fs[0].size), {}
    for i, (x_new, u_new) in tokens:
        v = x_new * (1 + n * r.l2) + n * r.l1 * np.sign(x_new)
        y, lam = x + (v - x + u) / beta, 0.0
        if i in visited:
            y_then, lam_then, x_then, x_after = visited[i]
            half = lam_then + beta * (x_then - y_then)
            yield i, y_then, half - (y - y_then) / p.alpha_i(i, fs[i].L)
            lam = lam_then + beta * (x_after - y)
        visited[i] = y, lam, x, x_new
        x, u = x_new, u_new


# --- Samplers by arbitrary-precision inversion, and lattices to try them on ---


class Stream:
    """Uniform words from a seed, given ones first; remembers how much was asked for."""

    def __init__(self, seed: int, first: list[int] | None = None, then: list[int] | None = None) -> None:
        self.generator = np.random.Generator(np.random.Philox(seed))
        self.waiting = list(first or []) + list(then or [])
        self.words = 0

    def __call__(self, size: int) -> bytes:
        count = size // 8
        self.words += count
        given_words, self.waiting = self.waiting[:count], self.waiting[count:]
        return b"".join(w.to_bytes(8, "little") for w in given_words) + self.generator.bytes(
            8 * (count - len(given_words))
        )
