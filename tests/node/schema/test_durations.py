"""Lengths of time in files have a unit."""

import msgspec
import pytest

from hushgrid.node.schema.durations import Duration, seconds


@pytest.mark.parametrize(("text", "s"), [("10s", 10), ("15min", 900), ("1h", 3600), ("1.5h", 5400), ("30d", 2592000)])
def test_a_number_and_its_unit_are_seconds(text, s):
    assert seconds(msgspec.convert(text, Duration)) == s


@pytest.mark.parametrize("wrong", [15, "15", "15 min", "-1h", "h", "1e9s", "1w", "", "15min\n", "99999999d", "1h30min"])
def test_anything_else_is_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Duration)
