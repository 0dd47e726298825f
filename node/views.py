"""What a coordinator shows of the run under way and of its last answer, as JSON, retained, for the identity `watch`.

Both are functions of the plan and of the messages that the coordinator has had: post-processing, which costs nothing.
No node hears them, and a reader takes them for what anybody may have written: sizes, counts and forms are limited.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.ranges import Bus, Name
from hushgrid.node.status import Moment, Word

LIMIT = 1 << 19  #: bytes of a view
ASKED = 32  #: the most nodes that are named as asked
EDGES = 1024  #: the most edges of a graph, tie flows, and rows of a table
PRICES = 4096  #: the most buses with a price

RunId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Count = Annotated[int, Meta(ge=0, le=1 << 48)]
Figure = Annotated[float, Meta(ge=-1e15, le=1e15)]  #: finite, whatever a run has led to
Field = Annotated[str, Meta(pattern=r"^[a-z_]{1,16}\Z")]  #: of a view
Tie = Annotated[str, Meta(pattern=r"^[a-z0-9-]{3,129}\Z")]  #: of two zones: z1-z2
Text = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{0,200}\Z")]
Cell = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{0,64}\Z")] | Figure | None


class RunView(Struct, frozen=True, kw_only=True):
    """The run under way, or the last one: said at most once a second, and when it ends."""

    run: RunId  #: the run's id
    at: Moment  #: when this was said, UTC by the coordinator's clock
    algorithm: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]  #: its name, as in the scenario
    pattern: Word  #: star, neighbours or token
    state: Word  #: joining, running, done or stopped
    round: Count = 0  #: rounds that are done; of a token: blocks of n activations, n the number of nodes
    rounds: Count = 0  #: the most of them that the plan allows
    activation: Count | None = None  #: of a token: hops that it has made
    residual: Figure | None = None  #: consensus residual of that round, where the coordinator of the pattern sees one
    holder: Name | None = None  #: of a token: the node that has it, or that it was sent to last
    asked: Annotated[tuple[Name, ...], Meta(max_length=ASKED)] = ()  #: nodes that must send something now
    asked_in_all: Count = 0  #: how many they are: more than `asked` names, if it is cut
    since: Moment | None = None  #: since when `holder` or `asked` is this one
    lost: Annotated[tuple[Name, ...], Meta(max_length=ASKED)] = ()  #: nodes without which the run goes on
    nodes: Count = 0  #: how many take part
    edges: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=EDGES)] = ()  #: of the graph, if the plan has one
    edges_in_all: Count = 0  #: how many it has: more than `edges` holds, if it is cut


class AnswerView(Struct, frozen=True, kw_only=True):
    """What the last run that gave an answer has found. What does not apply, or is not known, is null."""

    run: RunId  #: the run's id
    at: Moment  #: when the run ended, UTC by the coordinator's clock
    #: by the schedule, when the next answer is due with some slack, as of a device's set-points; later it counts as old
    valid_until: Moment | None = None
    number: Count | None = None  #: of the interval, of a fleet that runs by itself
    outcome: Word  #: answer; held: some members were absent and count as they were last
    kind: Word  #: of the problem: zones, data (rows) or statistics (a sum over rows)
    #: solved, agreed, noise-limited, not-converged or diverged, as in result.json, if the coordinator's messages tell:
    #: of rows only diverged, because what tests a model are the gates' own answers
    verdict: Word | None = None
    rounds: Count = 0  #: rounds that were made
    residual: Figure | None = None  #: consensus residual of the last one
    served_mw: Figure | None = None  #: zones at least cost: what of the loads is served, MW
    unserved_mw: Figure | None = None  #: what is not, MW
    cost: Figure | None = None  #: $/h, lost load at its value included; of the AC dispatch if there is one
    gap: Figure | None = None  #: share of the cost above a proven lower bound
    ac: Text | None = None  #: solved: it satisfies the AC equations; else why not
    ac_violation: Figure | None = None  #: the largest violation of a limit by the dispatch, p.u.
    tie_flows: Annotated[dict[Tie, Figure], Meta(max_length=EDGES)] = {}  #: MW from the first zone to the second
    prices: Annotated[dict[Bus, Figure], Meta(max_length=PRICES)] = {}  #: $/MWh of one more MW of load, by bus
    test_error: Figure | None = None  #: of the common model on the plan's public held-out rows
    columns: Annotated[tuple[Cell, ...], Meta(max_length=8)] = ()  #: of a sum or statistic: those of `table`
    table: Annotated[tuple[tuple[Cell, ...], ...], Meta(max_length=EDGES)] = ()  #: its rows
    cut: Annotated[dict[Field, Count], Meta(max_length=8)] = {}  #: field: how many entries it had before it was cut


View = TypeVar("View", bound=RunView | AnswerView)


def encode(view: RunView | AnswerView) -> bytes:
    """A view as JSON on one line. Raises Malformed if it is one that nobody would read."""
    payload = msgspec.json.encode(view)
    decode(type(view), payload)
    return payload


def decode(kind: type[View], payload: bytes) -> View:
    """The view in `payload`. Raises Malformed on anything else."""
    if len(payload) > LIMIT:
        raise Malformed(f"{len(payload)} bytes, at most {LIMIT} expected")
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Malformed(str(error)[:200]) from None
