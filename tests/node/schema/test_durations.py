"""Lengths of time in files, and in lines of text."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.schema.durations import Duration, in_words, seconds
from hushgrid.node.schema.sections import Section
from hushgrid.node.schema.yaml_file import convert, parse_yaml


class Timed(Section, frozen=True, kw_only=True):
    window: Duration | None = None


@pytest.mark.parametrize(
    ("text", "length"), [("24h", 86400), ("15min", 900), ("30s", 30), ("0.5h", 1800), ("7d", 604800), ("30", 30)]
)
def test_a_length_is_a_number_with_its_unit_or_a_number_of_seconds(text, length):
    assert seconds(convert(parse_yaml(f"window: {text}", "f"), Timed, "f").window) == length


@pytest.mark.parametrize("text", ["24 hours", "h", "1e3h", "-2h", "1h30min", "'24'", "24H", ".5h"])
def test_anything_else_is_one_line_with_examples(text):
    with pytest.raises(InputError, match=r"f: window: found '.*', expected a length of time: 30s, 15min, 24h, 7d, or"):
        convert(parse_yaml(f"window: {text}", "f"), Timed, "f")


@pytest.mark.parametrize("value", [-1, 1e300, float("inf"), float("nan")])
def test_a_number_of_seconds_has_a_range(value):
    with pytest.raises((InputError, msgspec.ValidationError)):
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
