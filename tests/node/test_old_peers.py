"""What this version says to peers of the version before, and they to it: each reads the other."""

import msgspec
from msgspec import Struct

from hushgrid.node import wire
from hushgrid.node.problems.plan import decode_plan, encode_plan, scheduled
from tests.support.devices.zone_fleet import setup


class Plan(Struct, tag="plan", frozen=True):
    """As the version before has it."""

    plan: bytes
    nonce: bytes
    members: dict[str, int]
    marks: dict[str, wire.Mark]


class Join(Struct, tag="join", frozen=True):
    """As the version before has it."""


class Finish(Struct, tag="finish", frozen=True):
    """As the version before has it."""

    state: str
    reason: str
    kind: str = ""


def read(value, type_):
    return msgspec.msgpack.decode(wire.encode(value), type=type_)


def test_a_peer_of_the_version_before_reads_the_messages_of_a_continuous_run():
    plan = wire.Plan(b"{}", b"n", {"z1": 1}, {}, every=900.0, warm={"z1": b"r"})
    assert read(plan, Plan) == Plan(b"{}", b"n", {"z1": 1}, {})
    assert read(wire.Join(warm=True), Join) == Join()
    last = wire.Finish("done", "rounds", residual=0.5, quality="rounds")
    assert read(last, Finish) == Finish("done", "rounds")


def test_messages_of_the_version_before_are_read_as_of_a_run_by_no_schedule():
    assert read(Plan(b"{}", b"n", {}, {}), wire.Plan) == wire.Plan(b"{}", b"n", {}, {})
    assert read(Join(), wire.Join) == wire.Join(warm=False, stands=-1, accepted=None)
    assert read(Finish("done", "rounds"), wire.Finish) == wire.Finish("done", "rounds")


def test_the_bytes_of_a_plan_that_travels_name_no_schedule_and_a_members_stored_plan_does():
    plan = setup().plan
    blob = encode_plan(plan)
    assert b"interval" not in blob
    assert decode_plan(blob).every is None
    assert scheduled(blob, None) is blob
    kept = scheduled(blob, 900.0)
    assert decode_plan(kept).every == 900.0
    assert scheduled(b"no plan", 900.0) == b"no plan"
