"""The views of a run and of an answer: JSON of public facts, limited in size, count and form, whoever wrote it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hushgrid.kernels.machine import Malformed
from hushgrid.node.views import ASKED, EDGES, LIMIT, PRICES, AnswerView, RunView, decode, encode

AT, RUN = "2026-11-22T16:00:00Z", "0a" * 16
RUNS = RunView(
    run=RUN, at=AT, algorithm="recal", pattern="token", state="running", round=2, rounds=9, activation=7, holder="n1",
    asked=("n1",), asked_in_all=1, since=AT, nodes=4, edges=(("n0", "n1"), ("n1", "n2")), edges_in_all=2,
)  # fmt: skip
ANSWER = AnswerView(
    run=RUN, at=AT, valid_until=AT, number=3, outcome="held", kind="zones", verdict="solved", served_mw=259.0, cost=8e3,
    unserved_mw=0.0, gap=1e-4, ac="solved", ac_violation=0.0, tie_flows={"z1-z2": -3.5}, prices={1: 20.5},
    cut={"tie_flows": 9}, columns=("entry", "value", "sd"), table=(("count", 7, None),),
)  # fmt: skip


@pytest.mark.parametrize("view", [RUNS, ANSWER], ids=["run", "answer"])
def test_a_view_is_one_line_of_json_with_every_key_and_comes_back(view):
    payload = encode(view)
    assert b"\n" not in payload
    assert set(json.loads(payload)) == set(type(view).__struct_fields__)
    assert decode(type(view), payload) == view
    later = json.loads(payload) | {"something": "new"}
    assert decode(type(view), json.dumps(later).encode()) == view


@given(st.sampled_from([RunView, AnswerView]), st.binary(max_size=200))
def test_bytes_of_a_stranger_are_malformed_and_nothing_else(kind, payload):
    with pytest.raises(Malformed):
        decode(kind, payload)


HOSTILE = [
    (RUNS, {"run": "ab"}), (RUNS, {"algorithm": "\x1b[2J"}), (RUNS, {"pattern": "A star"}), (RUNS, {"round": -1}),
    (RUNS, {"holder": "<b>"}), (RUNS, {"asked": ["n1"] * (ASKED + 1)}), (RUNS, {"edges": [["a", "b"]] * (EDGES + 1)}),
    (RUNS, {"edges": [["a", "b", "c"]]}), (RUNS, {"residual": 1e16}), (ANSWER, {"tie_flows": {"z1\n": 1.0}}),
    (ANSWER, {"prices": {str(bus): 1.0 for bus in range(PRICES + 1)}}), (ANSWER, {"prices": {"a bus": 1.0}}),
    (ANSWER, {"table": [["x"]] * (EDGES + 1)}), (ANSWER, {"table": [["\x9b"]]}), (ANSWER, {"columns": ["c"] * 9}),
    (ANSWER, {"cost": "much"}), (ANSWER, {"ac": "x" * 201}), (ANSWER, {"valid_until": "soon"}),
]  # fmt: skip


@pytest.mark.parametrize(("view", "over"), HOSTILE, ids=lambda part: next(iter(part)) if type(part) is dict else "")
def test_a_field_of_another_form_is_malformed(view, over):
    with pytest.raises(Malformed):
        decode(type(view), json.dumps(json.loads(encode(view)) | over).encode())


def test_a_view_above_its_limit_is_malformed_before_it_is_read():
    with pytest.raises(Malformed, match="at most"):
        decode(RunView, b" " * LIMIT + encode(RUNS))


def test_what_nobody_would_read_is_not_encoded():
    with pytest.raises(Malformed):
        encode(replace(RUNS, edges=(("n0", "n1"),) * (EDGES + 1)))
    assert decode(AnswerView, encode(replace(ANSWER, cost=float("inf")))).cost is None  # JSON has no such number


def test_the_largest_view_is_within_the_limit():
    name = "n" * 64
    edges = ((name, name),) * EDGES
    assert len(encode(replace(RUNS, edges=edges, asked=(name,) * ASKED, lost=(name,) * ASKED))) <= LIMIT
    flows = {f"{no:0129}": -1.2345678901234567e-300 for no in range(EDGES)}
    prices = dict.fromkeys(range(10**9 - PRICES, 10**9), -1.2345678901234567)
    assert len(encode(replace(ANSWER, tie_flows=flows, prices=prices))) <= LIMIT
