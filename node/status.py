"""What a device or a coordinator says of itself to whoever watches the fleet: public facts, as JSON.

It stands retained on `status/<node>`. Nothing in it is computed from data: what was spent follows from the plans, a
refusal is named by a code, and when it is said follows from the runs alone.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.ranges import Name

LIMIT = 1 << 15  #: bytes of a status
NAMED = 32  #: the most nodes that a status names
Text = Annotated[str, Meta(max_length=64)]
Moment = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")]  #: UTC
Amount = Annotated[float, Meta(ge=0)]

Word = Annotated[str, Meta(pattern=r"^[a-z-]{0,16}\Z")]  #: one of a few; a later version may have more

#: What a node does. gathering: members are missing; joining: members have not stored the plan; over: members have not
#: heard of the end; off: it has ended in order.
State = Literal["idle", "gathering", "joining", "running", "over", "off"]


class Interval(Struct, frozen=True, kw_only=True):
    """The last interval of a fleet that runs by itself. Nothing in it is a function of anybody's data."""

    number: Annotated[int, Meta(ge=0)]  #: from 1
    outcome: Word  #: answer, held or missed
    #: why it was missed: refused, failed, input, silent, absent, broker or stopped
    cause: Word = ""
    held: Annotated[dict[Name, Moment], Meta(max_length=NAMED)] = {}  #: zones that count as they were last, since when
    absent: Annotated[tuple[Name, ...], Meta(max_length=NAMED)] = ()  #: members that took no part
    refused: Annotated[tuple[Name, ...], Meta(max_length=NAMED)] = ()  #: members that refused
    at: Moment  #: when it ended
    #: intervals of the coordinator's life by how they ended: answer, held, or the cause of those that were missed
    counts: Annotated[dict[Word, Annotated[int, Meta(ge=0)]], Meta(max_length=NAMED)] = {}


class Status(Struct, frozen=True, kw_only=True):
    """Of a device, or of the coordinator. Times are UTC by the sender's own clock."""

    node: Name  #: who says it
    version: Text  #: of the program that runs
    wire: int  #: the number of the messages that it speaks
    session: int  #: its starts so far
    since: Moment  #: start of this one
    at: Moment  #: when this was said
    #: what it does now: idle, running, off (it has ended in order); the coordinator also gathering, joining, over
    state: Word
    run: Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?\Z")] = ""  #: the run under way, or the last one
    last: Word = (
        ""  #: how the last run stands here: joined, running, owed (its outcome is not written), done, stopped, refused
    )
    #: the rule by which it has refused last, in this session or an earlier one: budget, window, lifetime, per-run,
    #: algorithm, adjacency, problem (a question that is not on its owner's list), masked, variant, mark (its ledger is
    #: behind its mark), input (a plan that is not for it), failed (a step), certificate (its own is not valid by its
    #: clock; masked runs), device
    refused: Word = ""
    #: rounds that are done in this run, as the coordinator says: its own, and a device's of a run that is over
    round: int | None = None
    rounds: int | None = None  #: of its plan, the most that it may make
    waits_for: Annotated[
        tuple[Name, ...], Meta(max_length=NAMED)
    ] = ()  #: members that must send something; the coordinator's
    waits_s: Amount | None = None  #: for how long it has waited for them
    late_s: Amount | None = None  #: by how much the next run is behind its schedule; the coordinator's
    due: Moment | None = None  #: the next run, by the schedule; the coordinator's
    gone: Annotated[dict[Name, Moment], Meta(max_length=NAMED)] = {}  #: members that are not connected, and since when
    refuses: Annotated[
        tuple[Name, ...], Meta(max_length=NAMED)
    ] = ()  #: members that refused the last run; the coordinator's
    problem: Word = ""  #: what its plan asks for: the kind of its devices; the coordinator's
    digest: Text = ""  #: of the public part of that problem, the first 12 characters; the coordinator's
    entries: Annotated[dict[Name, int], Meta(max_length=NAMED)] = {}  #: of the problem, by member; the coordinator's
    interval: Interval | None = None  #: the last one, of a fleet that runs by itself; the coordinator's
    epsilon: Amount | None = None  #: the whole budget of the window; without a window, that of the life
    lifetime: Amount | None = None  #: the whole budget of the life, if that has a limit: without a window, epsilon
    epsilon_left: float | None = None  #: of the window; without a window, of the budget
    epsilon_left_life: float | None = None  #: of the whole life
    window_s: Amount | None = None  #: the window's length in running time
    runs_out: Moment | None = None  #: when the life's budget ends, if every run costs as much as the last one
    certificate_days: int | None = None  #: until its certificate ends
    #: number of the certificate that it has connected with, hexadecimal: the operator learns that a new one is in use
    certificate: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,40}\Z")] = ""
    #: how old its data version is, s of the device's running time, in whole minutes; when it rises is public, because
    #: it never depends on what the data are
    data_age_s: Amount | None = None
    refused_at: Moment | None = None  #: when it refused last
    #: it says so again within as long, if it can: whoever stands by for it takes silence for its death; a coordinator's
    again_s: Annotated[float, Meta(ge=0, le=3600)] | None = None
    #: messages of this session that somebody else has made, as far as `trust:` tells; null: it trusts its broker
    forged: Annotated[int, Meta(ge=0)] | None = None


_decoder = msgspec.json.Decoder(Status)


def encode(status: Status) -> bytes:
    """A status as JSON on one line."""
    return msgspec.json.encode(status)


def decode(payload: bytes) -> Status:
    """The status in `payload`. Raises Malformed on anything else."""
    if len(payload) > LIMIT:
        raise Malformed(f"{len(payload)} bytes, at most {LIMIT} expected")
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Malformed(str(error)[:200]) from None


def moment(seconds: float) -> str:
    """s since 1970 as UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(seconds, 0.0), 253402300799.0)))
