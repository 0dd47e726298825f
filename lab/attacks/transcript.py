"""A transcript read back as an eavesdropper reads it: the run's plan, and every message that carried an iterate,
once.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from hushgrid.broker.report import run_directory
from hushgrid.kernels.algorithms.base import Algorithm
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.patterns.neighbours import Iterate
from hushgrid.kernels.patterns.token import Token
from hushgrid.kernels.types import Document, Vector
from hushgrid.node import wire
from hushgrid.node.problems.plan import RunPlan, decode_plan

LIMIT = 2 * wire.PLAN_LIMIT  #: bytes of an envelope


class Message(NamedTuple):
    """A message that carried an iterate."""

    src: str
    dst: str  #: "" if it went to all that hear the sender
    seq: int  #: its number: the hop of a token, the round of a star, the message of a neighbour
    body: Any  #: as kernels/patterns declares it


class Visit(NamedTuple):
    """An activation: the token before and after it."""

    k: int  #: from 0
    i: int  #: the place of the node among the plan's nodes
    before: tuple[Vector, ...]
    after: tuple[Vector, ...]
    live: int  #: nodes that are in the token's sums

    @property
    def idle(self) -> bool:
        """Whether the token was handed on unchanged, as beyond a cap."""
        return all(np.array_equal(a, b) for a, b in zip(self.before, self.after, strict=True))


@dataclass(frozen=True, eq=False)
class Transcript:
    """What an eavesdropper on every edge has of a run. All numbers of the plan are public."""

    plan: RunPlan
    messages: tuple[Message, ...]  #: in the order in which they were heard first
    #: of two levels: the messages of the run above, and of that of each site
    levels: tuple[tuple[Message, ...], ...] = ()

    @property
    def algorithm(self) -> Algorithm:
        """The scenario's `algorithm` section."""
        section: Algorithm = self.plan.algorithm
        return section

    @property
    def problem(self) -> Any:
        """The public part of the problem."""
        return self.plan.problem

    @property
    def masked(self) -> bool:
        """Whether only sums over the nodes can be read."""
        return self.plan.terms is not None and self.plan.terms.masked is not None

    @property
    def nodes(self) -> list[str]:
        return self.plan.nodes

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each node among the plan's."""
        return {node: i for i, node in enumerate(self.nodes)}

    def visits(self, start: tuple[Vector, ...]) -> Iterator[Visit]:
        """The activations of a token's walk in order, up to the first that was not heard. `start`: token 0.

        The last activation of a walk sends no token: nothing is heard of it. Tours of a recount are no activations.
        """
        sizes = [vector.size for vector in start]
        tokens: dict[int, Message] = {}
        for message in self.messages:
            token, held = message.body, tokens.get(message.seq)
            if not isinstance(token, Token) or [vector.size for vector in token.vectors] != sizes:
                continue  # a node drops a token of another size
            if message.src in self.place and (held is None or len(held.body.fences) <= len(token.fences)):
                tokens[message.seq] = message
        before, toured, missing, k = start, False, 0, 0
        while (sent := tokens.get(k + 1)) is not None:
            token = sent.body
            touring = token.leg.recount is True
            if not (toured or touring):
                yield Visit(k, self.place[sent.src], before, token.vectors, len(self.nodes) - missing)
            before, toured, missing, k = token.vectors, touring, len(token.missing), k + 1

    def rounds(self, down: type, up: type) -> Iterator[tuple[int, Document, Document]]:
        """(t, what the coordinator of a star sent in round t, what came back), by member, from 1 on.

        down, up: the types of the two messages, whose first fields are vectors in the same coordinates. A round of
        which a message is missing ends it, and one whose size is not that of the member's other messages is none.
        """
        sent: dict[int, Document] = {}
        back: dict[int, Document] = {}
        sizes: dict[str, int] = {}
        for m in self.messages:
            messages, member, kind = (sent, m.dst, down) if m.src == wire.COORDINATOR else (back, m.src, up)
            if type(m.body) is kind and member in self.place:
                size = astuple(cast(Struct, m.body))[0].size
                if sizes.setdefault(member, size) == size:  # the coordinator speaks first
                    messages.setdefault(m.seq, {})[member] = m.body
        t = 1
        while len(sent.get(t, ())) == len(back.get(t, ())) == len(self.nodes):
            yield t, sent[t], back[t]
            t += 1

    def shares(self, most: int, size: int) -> np.ndarray:
        """(T, n, size): message t <= most of every neighbour, from the first to the last that was heard of all.

        Messages after the `most` of an algorithm's own rounds are those of averaging: functions of earlier ones.
        """
        rows: dict[int, dict[str, Vector]] = {}
        for m in self.messages:
            if isinstance(m.body, Iterate) and m.seq <= most and m.body.vector.size == size:
                rows.setdefault(m.seq, {})[m.src] = m.body.vector
        complete: list[list[Vector]] = []
        while len(row := rows.get(len(complete) + 1, {})) == len(self.nodes):
            complete.append([row[node] for node in self.nodes])
        return np.array(complete, dtype=np.float64).reshape(len(complete), len(self.nodes), size)


def read(run_dir: Path) -> Transcript:
    """The transcript in a run directory. Raises InputError, one line."""
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: found no such directory, expected a run directory")
    path = run_dir / "transcript.jsonl"
    lines = run_directory.transcript(path)
    if lines is None:
        raise InputError(f"{run_dir}: found no transcript.jsonl, expected a run that has one (run.record: transcript)")
    return parse(lines, str(path))


def parse(lines: Sequence[Mapping[str, object]], file: str) -> Transcript:
    """What the lines of a transcript say of the run with most iterates in it. Raises InputError: `file` lacks a plan.

    Iterates of strangers to the run are dropped: anybody may write into what a spy hears.
    """
    plans: dict[bytes, bytes] = {}
    every: dict[bytes, dict[tuple[object, ...], Message]] = {}
    for src, dst, envelope in envelopes(lines, file):
        body = envelope.body
        if (named := announced(envelope)) is not None:
            plans[envelope.run] = named
        elif isinstance(body, wire.Iterate):
            to = "" if isinstance(body, Iterate) else dst  # an answer to one neighbour repeats what all were told
            message = Message(src, dst, envelope.seq, body)
            every.setdefault(envelope.run, {}).setdefault((src, to, envelope.seq, wire.encode(body)), message)
    counts = Counter({run: len(every.get(run, ())) for run in plans})
    if not counts:
        raise InputError(f"{file}: found no plan, expected the transcript of a run")
    run = counts.most_common(1)[0][0]
    plan = decode_plan(plans[run])
    members = {*plan.nodes, *plan.sites, wire.COORDINATOR}

    def of_members(run: bytes) -> tuple[Message, ...]:
        return tuple(m for m in every.get(run, {}).values() if m.src in members)

    levels = tuple(of_members(each) for each in plans if plan.sites and plans[each] == plans[run])
    return Transcript(plan, of_members(run), levels)


def announced(envelope: wire.Envelope) -> bytes | None:
    """The encoded plan that an envelope announces, if it is the plan of the run that it names."""
    body = envelope.body
    if isinstance(body, wire.Plan) and wire.run_id(body.plan, body.nonce, body.members) == envelope.run:
        return body.plan
    return None


def envelopes(lines: Iterable[Mapping[str, object]], file: str) -> Iterator[tuple[str, str, wire.Envelope]]:
    """(src, dst, envelope) of every message on an edge, or to all (dst ""); who sent it is what its topic says.

    Raises InputError: a line of `file` that no run has recorded.
    """
    for k, line in enumerate(lines, 1):
        try:
            topic, payload = str(line["topic"]), base64.b64decode(str(line["bytes"]), validate=True)
            kind, src, dst = wire.Topics(topic.split("/")[2]).parse(topic)
            if kind in ("edge", "all") and payload:
                yield src, dst, wire.decode_envelope(payload, LIMIT)
        except (KeyError, TypeError, IndexError, binascii.Error, Malformed) as error:
            raise InputError(
                f"{file}:{k}: found {str(error)[:120]}, expected a message as `hushgrid run` records it"
            ) from None
