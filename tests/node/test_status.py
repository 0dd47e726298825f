"""What stands on a status topic: JSON that says public facts, and of a stranger nothing."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hushgrid.kernels.machine import Malformed
from hushgrid.node.status import LIMIT, NAMED, Interval, Status, decode, encode, moment
from tests.support.status import PLAIN


def test_it_is_one_line_of_json_with_every_key_and_comes_back():
    text = encode(PLAIN)
    assert b"\n" not in text
    assert set(json.loads(text)) == set(Status.__struct_fields__)
    assert decode(text) == PLAIN


@given(st.binary(max_size=200))
def test_bytes_of_a_stranger_are_malformed_and_nothing_else(payload):
    with pytest.raises(Malformed):
        decode(payload)


@pytest.mark.parametrize(
    "over",
    [
        {"node": "Z 1"},
        {"version": "x" * 65},
        {"run": "ab"},
        {"at": "now"},
        {"state": "Dancing"},
        {"refused": "a long story"},
        {"waits_for": ["z1"] * (NAMED + 1)},
        {"waits_s": -1},
        {"gone": {"z2": "yesterday"}},
        {"epsilon_left": "all"},
    ],
    ids=str,
)
def test_a_field_of_another_form_is_malformed(over):
    with pytest.raises(Malformed):
        decode(json.dumps(json.loads(encode(PLAIN)) | over).encode())


def test_a_status_above_its_limit_is_malformed_before_it_is_read():
    with pytest.raises(Malformed, match="at most"):
        decode(b" " * LIMIT + encode(PLAIN))


def test_a_status_of_a_later_version_is_read_for_what_is_known():
    later = json.loads(encode(PLAIN)) | {"something": "new"}
    assert decode(json.dumps(later).encode()) == PLAIN


def test_the_largest_status_is_within_the_limit():
    names = tuple(f"{no:064}" for no in range(NAMED))
    dated, counts = dict.fromkeys(names, PLAIN.at), {f"{'c' * 15}{chr(97 + no)}": 1 << 40 for no in range(26)}
    interval = Interval(number=1, outcome="held", held=dated, absent=names, refused=names, at=PLAIN.at, counts=counts)
    entries, text = dict.fromkeys(names, 1 << 40), "v" * 64
    full = replace(PLAIN, node="n" * 64, version=text, waits_for=names, gone=dated, refuses=names, digest=text)
    full = replace(full, entries=entries, interval=interval)
    assert len(encode(full)) <= LIMIT
    assert decode(encode(full)) == full


@given(st.floats(allow_nan=False))
def test_a_moment_is_a_date_whatever_a_clock_says(seconds):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment(seconds))
