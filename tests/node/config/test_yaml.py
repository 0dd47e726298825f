"""YAML as hushgrid reads it, and keys laid over a scenario."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import (
    load_scenario,
    scenario_from,
)
from hushgrid.node.privacy.terms import terms
from hushgrid.node.schema.yaml_file import parse_yaml, read_yaml, set_path
from tests.support import examples
from tests.support.scenarios.scenario_texts import SCENARIO, changed, failure, values

# --- YAML ---


@pytest.mark.parametrize("text", ["1e-6", "1E-6", "+1e-6", "1.0e-6", "0.000001", "1.e-6"])
def test_a_number_with_an_exponent_is_a_number(text):
    assert parse_yaml(f"tolerance: {text}", "f") == {"tolerance": 1e-6}


@pytest.mark.parametrize("text", ["e-6", "1e", "a1e-6", "'1e-6'"])
def test_what_only_looks_like_one_is_text(text):
    assert isinstance(parse_yaml(f"x: {text}", "f")["x"], str)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", "f:1: found key 'a' twice, expected YAML"),
        ("p:\n  b: 1\n  c: 2\n  b: 1\n", "f:2: found key 'b' twice, expected YAML"),
        ("1: a", "f:1: found key 1, expected text, expected YAML"),
        ("[1, 2]", "f: found list, expected a mapping of keys"),
        ("", "f: found NoneType, expected a mapping of keys"),
        ("a: [1", "f:1: "),
        ("a: !!python/object:os.system x", "f:1: could not determine a constructor"),
        ("a: !!int ''", "f: "),
        ("a: !!bool maybe", "f: "),
        ("a: !!timestamp x", "f: "),
        ("!!map [a]", "f: "),
        ("a: \x07", "f: "),
        ("a: *b", "f:1: found undefined alias"),
    ],
)
def test_what_is_not_yaml_is_one_line(text, line):
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_value_of_aliases_in_aliases_is_refused_in_one_short_line():
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
        for a, b in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
    )
    raw = parse_yaml(laughs + SCENARIO.replace("case14-three-zones", "*u"), "s.yaml")
    assert len(failure({k: v for k, v in raw.items() if len(k) > 1})) < 200


@pytest.mark.runs
@examples.of(300)
@given(st.text(max_size=80))
def test_arbitrary_text_raises_an_input_error_or_nothing(text):
    with suppress(InputError):
        scenario_from(parse_yaml(text, "f"), "f")


TOKENS = [
    *"[]{}:,-&*!|>#'\"%@` \n",
    "!!",
    "!!int",
    "!!map",
    "!!set",
    "!!omap",
    "!!float",
    "!!binary",
    "!!null",
    "<<",
    "a",
    "1",
    "1e5",
    ".nan",
    "? ",
    "- ",
    ": ",
    "&a ",
    "*a",
    "name",
    "0x",
    "---",
    "...",
]


@pytest.mark.runs
@examples.of(500)
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join))
def test_arbitrary_yaml_raises_an_input_error_or_nothing(text):
    with suppress(InputError):
        scenario_from(parse_yaml(text, "f"), "f")
    with suppress(InputError):
        set_path({}, f"a.b={text}")


PATHS = [
    "hushgrid",
    "name",
    "seed",
    "problem",
    "problem__case",
    "problem__zones",
    "algorithm",
    "algorithm__name",
    "algorithm__rho",
    "algorithm__eta",
    "privacy",
    "privacy__adjacency",
    "privacy__epsilon",
    "privacy__per_answer",
    "privacy__delta",
    "privacy__budget",
    "run",
    "run__faults",
    "run__stop",
]


@pytest.mark.runs
@examples.of(400)
@given(st.sampled_from(PATHS), values)
def test_any_value_in_any_place_raises_an_input_error_or_nothing(path, value):
    with suppress(InputError):
        s = scenario_from(changed(SCENARIO, **{path: value}), "f")
        terms(s.privacy, s.algorithm)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(InputError, match="No such file or directory, expected a readable file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="expected a readable file"):
        read_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(InputError, match="found bytes that are not UTF-8, expected YAML text"):
        read_yaml(tmp_path / "latin.yaml")


# --- laid over a scenario ---


def test_set_lays_yaml_values_over_the_file(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    s = load_scenario(tmp_path / "s.yaml", {"seed": 7}, ["algorithm.rounds=5", "run.stop.tolerance=1e-6"])
    assert (s.seed, s.algorithm.rounds, s.run.stop.tolerance) == (7, 5, 1e-6)


@pytest.mark.parametrize("wrong", ["rounds", "=5", "name.x=1", "a=[1", "a=!!int ''"])
def test_a_set_that_says_nothing_is_one_line(tmp_path, wrong):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    with pytest.raises(InputError, match=r"--set .*expected"):
        load_scenario(tmp_path / "s.yaml", None, [wrong])


def test_an_override_below_a_value_is_one_line(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    with pytest.raises(InputError, match=r"name.x: found .*, expected a section"):
        load_scenario(tmp_path / "s.yaml", {"name.x": 1})
