"""Lengths of time in files have a unit, and are said in two parts."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.schema.durations import Duration, Length, in_words, seconds
from hushgrid.node.schema.sections import Section
from hushgrid.node.schema.yaml_file import convert, parse_yaml


@pytest.mark.parametrize(("text", "s"), [("10s", 10), ("15min", 900), ("1h", 3600), ("1.5h", 5400), ("30d", 2592000)])
def test_a_number_and_its_unit_are_seconds(text, s):
    assert seconds(msgspec.convert(text, Duration)) == s


@pytest.mark.parametrize("wrong", [15, "15", "15 min", "-1h", "h", "1e9s", "1w", "", "15min\n", "99999999d", "1h30min"])
def test_anything_else_is_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Duration)


class Timed(Section, frozen=True, kw_only=True):
    window: Length | None = None


@pytest.mark.parametrize(("text", "length"), [("24h", 86400), ("0.5h", 1800), ("7d", 604800), ("30", 30), ("1.5", 1.5)])
def test_where_programs_write_a_number_of_seconds_will_do(text, length):
    assert seconds(convert(parse_yaml(f"window: {text}", "f"), Timed, "f").window) == length


@pytest.mark.parametrize("text", ["24 hours", "h", "-2h", "1h30min", "'24'", "24H", ".5h"])
def test_a_file_with_anything_else_gets_one_line_with_examples(text):
    with pytest.raises(InputError, match=r"f: window: found '.*', expected a length of time with its unit: 30s, 15min"):
        convert(parse_yaml(f"window: {text}", "f"), Timed, "f")


@pytest.mark.parametrize("value", [-1, 1e300, float("inf"), float("nan")])
def test_a_number_of_seconds_has_a_range(value):
    with pytest.raises(InputError):
        convert({"window": value}, Timed, "f")


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (59, "59s"),
        (61, "1min 1s"),
        (900, "15min"),
        (8000, "2h 13min"),
        (86400, "24h"),
        (172800, "48h"),
        (3 * 86400 + 4000, "3d 1h"),
        (59.9, "59.9s"),
    ],
)
def test_a_length_is_said_in_two_parts(length, words):
    assert in_words(length) == words


@given(st.integers(1, 59), st.sampled_from(["s", "min", "h"]))
def test_whole_units_are_said_as_they_are_written(number, unit):
    assert seconds(in_words(seconds(f"{number}{unit}"))) == seconds(f"{number}{unit}")


@pytest.mark.parametrize(
    ("length", "words"), [(0.2, "1s"), (3599.5, "1h"), (7201, "2h 1min"), (4 * 86400 + 1, "4d 1h"), (900, "15min")]
)
def test_a_time_to_wait_is_never_said_too_short(length, words):
    assert in_words(length, up=True) == words
