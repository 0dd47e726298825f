"""A masked run of machines alone over a network that loses, repeats and reorders, with pads from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from hushgrid.kernels.algorithms.fedavg import MaskedServer, Params
from hushgrid.kernels.errors import Refused
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns import masked, masked_messages
from hushgrid.kernels.patterns.introductions import Introduction
from hushgrid.kernels.privacy.mask_graphs import chosen
from hushgrid.node import wire

D, G = 3, 2.0**-10


def key_of(name: str) -> bytes:
    """Not a key, but as long as one."""
    return name.encode().ljust(32, b".")


class SeededMasks:
    """Pads that both ends of a pair derive from their names."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.seed, self.met, self.used = name, seed, list[str](), set[tuple[int, int]]()

    def introduction(self) -> Introduction:
        return Introduction(key_of(self.name), b"c", b"s")

    def meet(self, introductions) -> None:
        if {name: i.key for name, i in introductions.items()} != {name: key_of(name) for name in introductions}:
            raise Refused(f"{self.name}: a foreign key")
        self.met = sorted(introductions)

    def picks(self, among: Sequence[str], k: int) -> tuple[str, ...]:
        """By the name and the set."""
        others = [m for m in among if m != self.name]
        words = np.random.default_rng(list(f"{self.name} {self.seed} {'|'.join(others)}".encode()))
        return chosen((int(w) for w in words.integers(1 << 62, size=k + 9)), others, k)

    def pad(
        self, round: int, attempt: int, among: Sequence[str], x: np.ndarray, size: int, neighbours=None
    ) -> masked.Words:
        assert (round, attempt) not in self.used, "a pad is used once"
        self.used.add((round, attempt))
        total, own = np.zeros(size, dtype=np.uint64), masked_messages.digest(neighbours or ())
        for other in among if neighbours is None else neighbours:
            if other != self.name:
                pair = "|".join([*sorted([self.name, other]), str(round), str(attempt), *among])
                if neighbours is not None:
                    ends = (own, neighbours[other]) if self.name < other else (neighbours[other], own)
                    pair += "|" + b"".join(ends).hex()
                stream = hashlib.shake_256(pair.encode() + x.tobytes()).digest(8 * size)
                words = np.frombuffer(stream, dtype="<u8")
                total = total + words if other > self.name else total - words
        return total


class CountingGate:
    """Shares without noise: whole numbers that name the device and how often it was asked."""

    def __init__(self, i: int) -> None:
        self.i, self.asked = i, list[tuple[bytes, bytes]]()

    def share(self, x: np.ndarray, about: bytes) -> np.ndarray:
        self.asked.append((about, x.tobytes()))
        return np.array([self.i + 1, -(self.i + 1) * 7, 10 ** (self.i % 15)], dtype=np.int64)


def watched(server: MaskedServer, sums: list[tuple[list[float], tuple[str, ...]]]) -> MaskedServer:
    """The same, which takes down each sum that it decodes, and of whom."""
    advance = server.advance

    def seen(total, devices):
        sums.append(((total / G).tolist(), tuple(devices)))
        return advance(total, devices)

    server.advance = seen
    return server


class MaskedFleet:
    """n devices and their coordinator. Each message is delivered with luck; `step` makes one delivery or lets time
    pass.
    """

    def __init__(
        self,
        n: int = 4,
        contributors: int | None = None,
        rounds: int = 3,
        answers: int = 9,
        seed: int = 0,
        prox=lambda v, t: v,
        neighbours: int = 0,
        draws: int = 3,
        **keys,
    ) -> None:
        self.names = [f"n{i}" for i in range(n)]
        self.params, self.prox = Params(**{"rounds": rounds, "step_size": 1.0} | keys), prox
        self.terms = masked.Terms(
            contributors=contributors or n, answers=answers, g=G, largest=1e20 * G, neighbours=neighbours, draws=draws
        )
        self.masks = {name: SeededMasks(name, seed) for name in self.names}
        self.gates = {name: CountingGate(i) for i, name in enumerate(self.names)}
        self.members = {name: self.member(name) for name in self.names}
        self.sums: list[tuple[list[float], tuple[str, ...]]] = []
        self.centre = self.server()
        self.rng = np.random.default_rng(seed)
        self.wire: list[tuple[str, str, int, object]] = []
        self.sent: dict[tuple[str, int], object] = {}
        self.dead: set[str] = set()
        self.put("coordinator", self.centre.start())

    def member(self, name: str) -> masked.MaskedMember:
        place = masked.NodeContext(
            name=name,
            gate=self.gates[name],
            masks=self.masks[name],
            terms=self.terms,
            start=np.zeros(D),
            members=self.names,
        )
        return masked.MaskedMember(place, self.params.rounds)

    def server(self) -> MaskedServer:
        at = masked.ServerContext(
            members=self.names, terms=self.terms, start=np.zeros(D), public=lambda x: 0 * x, prox=self.prox
        )
        return watched(MaskedServer(self.params, at), self.sums)

    def put(self, src: str, step) -> None:
        for send in step.send:
            if src != "coordinator":
                same = self.sent.setdefault((src, send.seq), send.body)
                assert wire.encode(same) == wire.encode(send.body), "another body under the same number"
            self.wire.append((src, send.dst, send.seq, send.body))

    def deliver(self, src: str, dst: str, seq: int, body) -> None:
        if dst in self.dead or src in self.dead:
            return
        machine = self.centre if dst == "coordinator" else self.members[dst]
        with suppress(Malformed):
            self.put(dst, machine.receive(src, seq, body))

    def step(self, lossy: bool = True) -> None:
        if not self.wire or self.rng.random() < 0.4 / len(self.names):
            self.put("coordinator", self.centre.tick())
            for name, member in self.members.items():
                if name not in self.dead and member.started:
                    self.put(name, member.tick())
            return
        message = self.wire.pop(int(self.rng.integers(len(self.wire))) if lossy else 0)
        luck = self.rng.random() if lossy else 0.5
        if luck < 0.2:
            return
        self.deliver(*message)
        if luck > 0.9:
            self.deliver(*message)

    def restart(self, name: str) -> None:
        """The same machine from its stored state."""
        if name == "coordinator":
            blob, self.centre = wire.encode(self.centre.state), self.server()
            self.centre.state = wire.decode_state(type(self.centre.state), blob)
            return
        blob, self.members[name] = wire.encode(self.members[name].state), self.member(name)
        self.members[name].state = wire.decode_state(masked.MemberState, blob)

    def until(self, holds, steps: int = 5000, lossy: bool = True) -> None:
        for _ in range(steps):
            if holds():
                return
            self.step(lossy)
        raise AssertionError("it did not come to that")

    def run(self, steps: int = 20000, lossy: bool = True) -> None:
        self.until(lambda: self.centre.state.done is not None, steps, lossy)

    def without(self, *silent: str) -> None:
        """The coordinator gives these up."""
        step = self.centre.without(list(silent))
        assert step is not None
        self.put("coordinator", step)

    def expected(self, among) -> list[float]:
        """The sum of their shares."""
        return np.sum([CountingGate(self.names.index(m)).share(np.zeros(D), b"") for m in among], axis=0).tolist()
