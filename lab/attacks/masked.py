"""Masked sums (kernels/patterns/masked.py): whoever hears everything decodes what the coordinator does, and no more.

The messages of an attempt are added up where all of its set were heard. What is left is the sum of the gate's noisy
answers: of no device by itself, unless a device has sent one answer under two sets. That is the classical mistake of a
masked sum: an attempt is given up, the late message turns up after all, and the difference of the two sums is the late
device's answer. With fresh noise two attempts over s and s - 1 devices are 2 s - 1 shares of noise apart; with repeated
answers one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from hushgrid.kernels.algorithms import fedavg
from hushgrid.kernels.algorithms import sum as sums
from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.patterns.masked import Ask, Draw, Masked, decoded
from hushgrid.kernels.patterns.star import Z
from hushgrid.kernels.types import Vector
from hushgrid.lab.attacks.base import Attack, Recovered
from hushgrid.lab.attacks.transcript import Message, Transcript
from hushgrid.node.problems.masking import noise_shares
from hushgrid.node.problems.records.section import DataPlan
from hushgrid.node.problems.statistics.section import StatisticsPlan


class Sum(NamedTuple):
    """What was decoded of one attempt."""

    round: int
    attempt: int
    among: tuple[str, ...]
    points: Vector  #: (d,) the point
    total: Vector  #: (d,) the sum of the noisy answers
    devices: int = 0  #: whose answers they are; `among` may be sites


class Repeated(NamedTuple):
    """Two attempts at one round, one device apart, in which the others sent the same answers."""

    round: int
    node: str
    answer: Vector  #: (d,) of that device, by itself


class MaskedSums(Attack):
    """Adds up what was heard."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (fedavg.Params, sums.Params)
    problem: ClassVar[tuple[type, ...]] = (DataPlan, StatisticsPlan)

    def fits(self, transcript: Transcript) -> bool:
        return super().fits(transcript) and transcript.masked

    def recover(self, transcript: Transcript) -> Recovered:
        sums, d = decodable(transcript), transcript.problem.size
        arrays = {
            "at_sum": np.array([s.points for s in sums]).reshape(-1, d),
            "g_sum": np.array([s.total / s.devices for s in sums]).reshape(-1, d),
            "when_sum": np.array([float(s.round) for s in sums]),
            "devices_sum": np.array([s.devices for s in sums]),
        }
        of_fleet = [{*s.among} <= {*transcript.plan.sites} for s in sums]
        fewest = min((s.devices for s in sums), default=0)
        notes: list[str] = []
        alone = repeated(sums, share_sd(transcript))
        if sums:
            notes = [
                f"Masked sums: {len(sums)} attempts were complete, and decode to sums over {fewest} devices or more."
            ]
            if transcript.levels:
                arrays["of_site_sum"] = ~np.array(of_fleet)
                notes[0] += f" {sum(of_fleet)} are of the fleet, the others are what sites' coordinators see."
            if not alone:
                notes[0] += " No answer of a single device is among them."
        for single in alone:
            arrays[f"alone_{single.node}"] = single.answer
            notes.append(
                f"{single.node} is alone in round {single.round}: the others sent the same answers under two sets."
            )
        return Recovered(arrays=arrays, notes=notes)


class Addends(Attack):
    """A sum that is not masked: what each node has said is its part, noise and all."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (sums.Params,)
    problem: ClassVar[tuple[type, ...]] = (StatisticsPlan,)

    def fits(self, transcript: Transcript) -> bool:
        return super().fits(transcript) and not transcript.masked

    def recover(self, transcript: Transcript) -> Recovered:
        addends = {
            m.src: m.body.z
            for m in transcript.messages
            if isinstance(m.body, Z) and m.body.z.size == transcript.problem.size
        }
        exact = transcript.plan.terms is None
        how = "exactly: nothing protects it" if exact else "with the node's own noise"
        return Recovered(
            arrays={f"s_{node}": part for node, part in addends.items()},
            notes=[f"The part of {len(addends)} nodes in the sum stands in their messages, {how}."],
        )


def share_sd(transcript: Transcript) -> float:
    """Standard deviation of one share's noise, in the unit of an answer."""
    return noise_shares(transcript.plan)[0].lattice.scale


def decodable(transcript: Transcript) -> list[Sum]:
    """The sums of the attempts of which every message was heard: late ones count."""
    return [each for messages in transcript.levels or (transcript.messages,) for each in _sums(transcript, messages)]


def _sums(transcript: Transcript, messages: Sequence[Message]) -> Iterator[Sum]:
    """Those of one run."""
    requests: dict[int, Ask] = {}
    draws: dict[int, tuple[str, ...]] = {}  # the sets that were drawn for, by the number of the exchange
    shares: dict[int, dict[str, Masked]] = {}
    for m in messages:
        if isinstance(m.body, Ask):
            requests.setdefault(m.seq, m.body)
        elif isinstance(m.body, Draw):
            draws[m.seq] = tuple(sorted({*transcript.plan.nodes} - {*m.body.absent}))
        elif isinstance(m.body, Masked) and len(m.body.share) == 8 * transcript.problem.size:
            shares.setdefault(m.seq, {})[m.src] = m.body
    g = noise_shares(transcript.plan)[0].lattice.g
    for seq, ask in sorted(requests.items()):
        sent = shares.get(seq, {})
        among = ask.among or draws.get(max((t for t in draws if t < seq), default=0), ())
        if among and {*among} <= {*sent} and ask.x.size == transcript.problem.size:
            total = decoded([sent[node].share for node in among], g)
            devices = sum(len(sent[node].among) or 1 for node in among)
            yield Sum(ask.round, ask.attempt, among, ask.x, total, devices)


def repeated(sums: list[Sum], sd: float) -> list[Repeated]:
    """Where two attempts are one device and one share of noise apart, not all the shares of both."""
    repeats = []
    for one in sums:
        for other in sums:
            apart = {*one.among} - {*other.among}
            if one.round != other.round or not {*other.among} < {*one.among} or len(apart) != 1:
                continue
            difference, fresh = one.total - other.total, one.devices + other.devices  # shares of noise, if it is fresh
            if float(np.mean(difference**2)) < sqrt(fresh * (one.devices - other.devices)) * sd**2:
                repeats.append(Repeated(one.round, apart.pop(), difference))
    return repeats
