"""Machines of two levels of masked sums over a network that loses, repeats and reorders, with pads from a seed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from hushgrid.kernels.algorithms.fedavg import MaskedServer, Params
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked, sites
from hushgrid.node import wire
from tests.support.runs.masked_machines import CountingGate, D, G, SeededMasks, watched

TOP = "coordinator"


class TwoLevels:
    """Sites of devices. Each message is delivered with luck; `step` makes one delivery or lets time pass."""

    def __init__(self, sizes=(3, 3), fewest=None, least_sites=None, rounds=2, answers=9, seed=0) -> None:
        self.nodes = [f"n{i}" for i in range(sum(sizes))]
        self.sites = dict(sites.dealt(self.nodes, sizes))
        self.params = Params(rounds=rounds, step_size=1.0)
        self.terms = masked.Terms(contributors=fewest or min(sizes), answers=answers, g=G, largest=1e20 * G)
        self.least_sites = least_sites or len(sizes)
        self.gates = {name: CountingGate(i) for i, name in enumerate(self.nodes)}
        self.masks = {name: SeededMasks(name) for name in (*self.nodes, *self.sites)}
        self.devices = {name: self.device(name) for name in self.nodes}
        self.above = {site: self.upper(site) for site in self.sites}
        self.below = {site: self.lower(site) for site in self.sites}
        self.sums: list[tuple[list[float], tuple[str, ...]]] = []
        self.site_sums: list[tuple[str, tuple[int, int], bytes]] = []  #: that a site has handed up, as it has them
        self.top = self.centre()
        self.rng = np.random.default_rng(seed)
        self.wire: list[tuple[str, str, int, object]] = []
        self.sent: dict[tuple[str, int], object] = {}
        self.dead: set[str] = set()
        self.put(TOP, self.top.start())
        for site, lower in self.below.items():
            self.put(f"{site}/", lower.start())

    def device(self, name):
        place = masked.NodeContext(
            name=name, gate=self.gates[name], masks=self.masks[name], terms=self.terms, start=np.zeros(D)
        )
        return masked.MaskedMember(place, self.params.rounds)

    def upper(self, site):
        terms = replace(self.terms, contributors=self.least_sites)
        return sites.SiteMember(site, self.masks[site], terms, np.zeros(D), self.params.rounds)

    def lower(self, site):
        return sites.SiteCentre(self.context(self.sites[site], self.terms), self.params.rounds)

    def context(self, members, terms, among=None):
        start = np.zeros(D)
        return masked.ServerContext(
            members=list(members),
            terms=terms,
            start=start,
            public=lambda x: 0 * x,
            prox=lambda v, t: v,
            sites=among or {},
        )

    def centre(self):
        among = {site: (frozenset(nodes), self.terms.contributors) for site, nodes in self.sites.items()}
        terms = replace(self.terms, contributors=self.least_sites)
        return watched(MaskedServer(self.params, self.context(self.sites, terms, among)), self.sums)

    # --- the network ---

    def machine(self, name):
        if name == TOP:
            return self.top
        if name.endswith("/"):
            return self.below[name[:-1]]
        return self.above.get(name) or self.devices[name]

    def put(self, src, step) -> None:
        for send in step.send:
            if src not in (TOP, *(f"{site}/" for site in self.sites)):
                same = self.sent.setdefault((src, send.seq), send.body)
                assert wire.encode(same) == wire.encode(send.body), "another body under the same number"
            dst = send.dst
            if dst == TOP and src in self.devices:
                dst = next(f"{site}/" for site, nodes in self.sites.items() if src in nodes)
            self.wire.append((src, dst, send.seq, send.body))
        self.settle()

    def settle(self) -> None:
        for site in self.sites:
            if site in self.dead:
                continue
            above, below = self.above[site], self.below[site]
            question, words = above.wanted, below.state.sum
            steps = sites.passed(above, below)
            if steps.above.send:
                assert question is not None
                self.site_sums.append((site, (question.round, question.attempt), words))
                self.put(site, steps.above)
            if steps.below.send:
                self.put(f"{site}/", steps.below)

    def deliver(self, src, dst, seq, body) -> None:
        if {dst.rstrip("/"), src.rstrip("/")} & self.dead:
            return
        sender = TOP if src.endswith("/") else src
        with suppress(Malformed):
            self.put(dst, self.machine(dst).receive(sender, seq, body))

    def step(self, lossy=True) -> None:
        if not self.wire or (lossy and self.rng.random() < 0.02):
            for name in (TOP, *(f"{site}/" for site in self.sites), *self.sites, *self.nodes):
                if name.rstrip("/") not in self.dead and self.machine(name).started:
                    self.put(name, self.machine(name).tick())
            return
        message = self.wire.pop(int(self.rng.integers(len(self.wire))) if lossy else 0)
        luck = self.rng.random() if lossy else 0.5
        if luck < 0.2:
            return
        self.deliver(*message)
        if luck > 0.9:
            self.deliver(*message)

    def restart(self, name) -> None:
        """The same machine from its stored state."""
        blob = wire.encode(self.machine(name).state)
        if name == TOP:
            self.top = self.centre()
        elif name.endswith("/"):
            self.below[name[:-1]] = self.lower(name[:-1])
        elif name in self.sites:
            self.above[name] = self.upper(name)
        else:
            self.devices[name] = self.device(name)
        self.machine(name).state = wire.decode_state(type(self.machine(name).state), blob)

    def until(self, holds, steps=20000, lossy=True) -> None:
        for _ in range(steps):
            if holds():
                return
            self.step(lossy)
        raise AssertionError("it did not come to that")

    @property
    def over(self) -> bool:
        return self.top.state.done is not None and all(
            lower.state.done is not None for site, lower in self.below.items() if site not in self.dead
        )

    def expected(self, among) -> list[float]:
        """The sum of their shares."""
        return np.sum([CountingGate(self.nodes.index(m)).share(np.zeros(D), b"") for m in among], axis=0).tolist()
