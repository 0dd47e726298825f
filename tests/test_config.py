"""Scenario and device configuration: each error one line with file, key path, found and expected; nothing else comes out."""

from contextlib import suppress
from enum import Enum

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.config import (
    load_coordinator,
    load_device,
    load_scenario,
    scenario_from,
)
from hushgrid.node.plan import resolved, terms
from hushgrid.node.yaml_file import parse_yaml, read_yaml, set_path

SCENARIO = """\
hushgrid: 1
name: case14-three-zones
problem: {kind: zones, case: case14, zones: 3}
algorithm: {name: ladmm, rounds: 10}
privacy: {adjacency: {bounded-change: 0.01}, epsilon: 5.0}
"""
DEVICE = """\
node: z1
fleet: demo
broker: mqtt://localhost:1883
state: state
data: {case: case14, zone: [1, 2, 3], loads: loads.csv}
budget: {epsilon: 5.0, adjacency: {bounded-change: 0.01}}
"""
DELETE = Enum("Sentinel", "DELETE").DELETE  # tests are named alike in every process


def changed(text, **over):
    """The mapping in a text, with dotted paths (`__` for a dot) set or deleted."""
    raw = yaml.safe_load(text)
    for path, value in over.items():
        *parents, last = path.split("__")
        here = raw
        for parent in parents:
            here = here.setdefault(parent, {})
        if value is DELETE:
            del here[last]
        else:
            here[last] = value
    return raw


def failure(raw):
    with pytest.raises(InputError) as caught:
        scenario_from(raw, "s.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("s.yaml: ")
    assert caught.value.exit_code == 2
    return line.removeprefix("s.yaml: ")


# --- a scenario ---


def test_the_least_scenario_has_the_defaults_of_the_contract():
    s = scenario_from(yaml.safe_load(SCENARIO))
    a, p = s.algorithm, s.privacy
    assert (a.variant, a.rho, a.eta, a.local_updates) == ("guarded", 100.0, "1/(L+sqrt(t))", 1)
    assert (p.mechanism, p.mode, p.at, p.accountant, p.answers) == ("laplace", "objective", "data", None, None)
    assert (s.seed, s.run.record, s.run.stop, s.run.faults, s.run.truth) == (None, "summary", None, None, False)
    filled = resolved(s, terms(s.privacy, s.algorithm)).privacy
    assert (filled.accountant, filled.answers) == ("pure-basic", 10)


@pytest.mark.parametrize(
    ("over", "answers"),
    [({}, 10), ({"algorithm__local_updates": 3}, 30), ({"privacy__mode": "input"}, 1), ({"privacy__answers": 7}, 7)],
    ids=str,
)
def test_the_cap_is_rounds_times_local_updates_and_one_for_input(over, answers):
    s = scenario_from(changed(SCENARIO, **over))
    t = terms(s.privacy, s.algorithm)
    assert t.answers == answers
    assert t.cost(t.answers) <= t.epsilon == 5.0


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"hushgrid": 2}, "hushgrid: found 2, expected one of 1"),
        ({"hushgrid": DELETE}, "hushgrid: missing, expected a value"),
        ({"name": DELETE}, "name: missing, expected a value"),
        ({"name": "a b"}, "name: found 'a b', expected str matching regex"),
        ({"name": False}, "name: found False, expected str"),
        ({"seed": -1}, "seed: found -1, expected int >= 0"),
        ({"seed": "7"}, "seed: found '7', expected int | null"),
        ({"epsilon": 1}, "epsilon: unknown key"),
        ({"problem": DELETE}, "problem: missing, expected a value"),
        ({"problem__kind": "softmaxx"}, "problem.kind: found 'softmaxx', expected one of zones, least-squares, logistic, softmax"),
        ({"problem__kind": [1]}, "problem.kind: found [1], expected one of zones, least-squares, logistic, softmax"),
        ({"problem__zones": DELETE}, "problem.zones: missing, expected a value"),
        ({"problem__zones": 0}, "problem.zones: found 0, expected int >= 1"),
        ({"problem__zones": [[1, "2"]]}, "problem.zones[0][1]: found '2', expected int"),
        ({"problem__loads": "x"}, "problem.loads: unknown key"),
        ({"algorithm": "ladmm"}, "algorithm: found 'ladmm', expected object"),
        ({"algorithm__name": "sgd"}, "algorithm.name: found 'sgd', expected one of ladmm"),
        ({"algorithm__name": ["ladmm"]}, "algorithm.name: found ['ladmm'], expected one of ladmm"),
        ({"algorithm__name": DELETE}, "algorithm.name: found None, expected one of ladmm"),
        ({"algorithm__rounds": DELETE}, "algorithm.rounds: missing, expected a value"),
        ({"algorithm__rounds": 0}, "algorithm.rounds: found 0, expected int >= 1"),
        ({"algorithm__rounds": 1.5}, "algorithm.rounds: found 1.5, expected int"),
        ({"algorithm__rounds": "10"}, "algorithm.rounds: found '10', expected int"),
        ({"algorithm__local_updates": 0}, "algorithm.local_updates: found 0, expected int >= 1"),
        ({"algorithm__rho": 0}, "algorithm.rho: found 0, expected"),
        ({"algorithm__rho": float("nan")}, "algorithm.rho: found nan, expected"),
        ({"algorithm__rho": float("inf")}, "algorithm.rho: found inf, expected"),
        ({"algorithm__rho__c1": 2}, "algorithm.rho"),
        ({"algorithm__eta": "1/t"}, "algorithm.eta: found '1/t', expected one of"),
        ({"algorithm__eta": -0.1}, "algorithm.eta: found -0.1, expected"),
        ({"algorithm__variant": "noisy"}, "algorithm.variant: found 'noisy', expected one of"),
        ({"algorithm__step": 1}, "algorithm.step: unknown key"),
        ({"privacy": DELETE}, "privacy: found nothing, expected a privacy section (variant guarded)"),
        ({"algorithm__variant": "none"}, "privacy: found a privacy section, expected none"),
        ({"privacy__adjacency": DELETE}, "privacy.adjacency: missing, expected a value"),
        ({"privacy__adjacency": {}}, "privacy.adjacency: found {}, expected bounded-change"),
        ({"privacy__adjacency": {"replace-one-record": {"clip": 1.0}}}, "privacy.adjacency: found replace-one-record"),
        ({"privacy__adjacency__replace-one-record": {"clip": 1.0}}, "privacy.adjacency: found two adjacencies"),
        ({"privacy__adjacency__bounded-change": 0}, "privacy.adjacency.bounded-change: found 0, expected float > 0.0"),
        ({"privacy__epsilon": DELETE}, "privacy.epsilon: found neither epsilon nor per_answer, expected one of them"),
        ({"privacy__per_answer": {"epsilon": 1}}, "privacy.epsilon: found both epsilon and per_answer, expected one"),
        ({"privacy__epsilon": 0}, "privacy.epsilon: found 0, expected float > 0.0"),
        ({"privacy__epsilon": float("inf")}, "privacy.epsilon: found inf, expected"),
        ({"privacy__epsilon": True}, "privacy.epsilon: found True, expected float"),
        ({"privacy__mechanism": "normal"}, "privacy.mechanism: found 'normal', expected one of"),
        ({"privacy__mechanism": "gaussian"}, "privacy.delta: found nothing, expected a number between 0 and 1"),
        ({"privacy__delta": 1.0}, "privacy.delta: found 1.0, expected float < 1.0"),
        ({"privacy__delta": 0.1}, "privacy.delta: found 0.1, expected none (pure-basic)"),
        ({"privacy__accountant": "pure-optimal"}, "privacy.delta: found nothing, expected a number between 0 and 1"),
        ({"privacy__accountant": "zcdp"}, "privacy.accountant: found zcdp, expected pure-basic or pure-optimal"),
        ({"privacy__accountant": "rdp"}, "privacy.accountant: found 'rdp', expected one of"),
        ({"privacy__mechanism": "gaussian", "privacy__delta": 0.1, "privacy__accountant": "pure-basic"}, "privacy.accountant: found pure-basic, expected zcdp or gdp (mechanism gaussian)"),
        ({"privacy__mode": "output"}, "privacy.mode: found output, expected objective or input"),
        ({"privacy__mode": "input", "algorithm__variant": "published"}, "privacy.mode: found input, expected objective"),
        ({"privacy__mode": "input", "privacy__at": "gradient"}, "privacy.at: found gradient, expected data (mode: input)"),
        ({"privacy__answers": 0}, "privacy.answers: found 0, expected int >= 1"),
        ({"privacy__budget": {"epsilon": 1, "adjacency": {"bounded-change": 1}}}, "privacy.budget.adjacency: found bounded-change 1.0, expected bounded-change 0.01"),
        ({"run__faults": {"loss": 1.5}}, "run.faults.loss: found 1.5, expected float <= 1.0"),
        ({"run__faults": {"lost": 0.5}}, "run.faults.lost: unknown key"),
        ({"run__stop": {"patience": 3}}, "run.stop.tolerance: missing, expected a value"),
        ({"run__stop": {"tolerance": 1e-6, "patience": 0}}, "run.stop.patience: found 0, expected int >= 1"),
        ({"run__record": "all"}, "run.record: found 'all', expected one of"),
    ],
    ids=str,
)  # fmt: skip
def test_each_error_of_a_scenario_is_one_line_with_its_key_path(over, line):
    assert failure(changed(SCENARIO, **over)).startswith(line)


def test_fewer_answers_than_one_round_needs_is_an_error():
    s = scenario_from(changed(SCENARIO, algorithm__local_updates=3, privacy__answers=2))
    with pytest.raises(InputError, match=r"privacy.answers: found 2, expected at least local_updates = 3, one round"):
        terms(s.privacy, s.algorithm)


def test_more_answers_than_a_plan_can_say_are_an_error():
    s = scenario_from(changed(SCENARIO, algorithm__rounds=5_000_000, algorithm__local_updates=3))
    with pytest.raises(InputError, match=r"algorithm\.rounds: found 5000000 with 3 local_updates, expected at most"):
        terms(s.privacy, s.algorithm)


def test_a_cap_below_the_rounds_ends_the_run_with_the_last_whole_round():
    s = scenario_from(changed(SCENARIO, algorithm__local_updates=3, privacy__answers=8))
    t = terms(s.privacy, s.algorithm)
    assert (t.rounds, t.capped) == (2, True)


def test_a_per_answer_epsilon_gives_the_total_and_a_total_the_per_answer_epsilon():
    s = scenario_from(changed(SCENARIO, privacy__epsilon=DELETE, privacy__per_answer={"epsilon": 0.05}))
    assert terms(s.privacy, s.algorithm).epsilon == pytest.approx(0.5, rel=1e-15)
    s = scenario_from(yaml.safe_load(SCENARIO))
    assert terms(s.privacy, s.algorithm).per_answer == 0.5


def test_a_path_wins_over_a_built_in_case_only_where_there_is_such_a_file(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert load_scenario(tmp_path / "s.yaml").problem.case == "case14"
    (tmp_path / "case14").write_text("")
    assert load_scenario(tmp_path / "s.yaml").problem.case == str(tmp_path / "case14")


@pytest.mark.parametrize("case", ["a\0b", "x" * 5000])
def test_a_case_no_file_can_be_called_is_no_file(case):
    assert scenario_from(changed(SCENARIO, problem__case=case)).problem.case == case


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


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_arbitrary_text_raises_an_input_error_or_nothing(text):
    with suppress(InputError):
        scenario_from(parse_yaml(text, "f"), "f")


TOKENS = [*"[]{}:,-&*!|>#'\"%@` \n", "!!", "!!int", "!!map", "!!set", "!!omap", "!!float", "!!binary", "!!null", "<<", "a", "1", "1e5", ".nan", "? ", "- ", ": ", "&a ", "*a", "name", "0x", "---", "..."]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join))
def test_arbitrary_yaml_raises_an_input_error_or_nothing(text):
    with suppress(InputError):
        scenario_from(parse_yaml(text, "f"), "f")
    with suppress(InputError):
        set_path({}, f"a.b={text}")


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PATHS = ["hushgrid", "name", "seed", "problem", "problem__case", "problem__zones", "algorithm", "algorithm__name", "algorithm__rho", "algorithm__eta", "privacy", "privacy__adjacency", "privacy__epsilon", "privacy__per_answer", "privacy__delta", "privacy__budget", "run", "run__faults", "run__stop"]  # fmt: skip


@settings(max_examples=400, deadline=None)
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


# --- a device's configuration ---


def device(tmp_path, text):
    (tmp_path / "node.yaml").write_text(text)
    return load_device(tmp_path / "node.yaml")


def test_a_devices_paths_are_relative_to_its_file(tmp_path):
    c = device(tmp_path, DEVICE + "mark: m/z1.mark\ntls: {ca: ca.pem}\n")
    assert c.state == str(tmp_path / "state")
    assert c.mark == str(tmp_path / "m/z1.mark")
    assert c.data.loads == str(tmp_path / "loads.csv")
    assert c.tls.ca == str(tmp_path / "ca.pem")
    assert c.data.case == "case14"


def test_it_may_stand_under_node(tmp_path):
    nested = "node:\n" + "".join(f"  {line}\n" for line in DEVICE.splitlines())
    assert device(tmp_path, nested) == device(tmp_path, DEVICE)
    with pytest.raises(InputError, match="seed: found beside node, expected node alone"):
        device(tmp_path, nested + "seed: 7\n")


@pytest.mark.parametrize("line", ["seed: 7", "variant: none", "published: true", "none: true", "truth: true"])
def test_a_device_refuses_what_only_simulation_may_have(tmp_path, line):
    with pytest.raises(InputError, match=f"{line.split(':')[0]}: found .* expected in simulation only"):
        device(tmp_path, DEVICE + line)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("node: z1", "node: Z1", "node: found 'Z1', expected str matching regex"),
        ("node: z1\n", "", "node: missing, expected a value"),
        ("fleet: demo", "fleet: a/b", "fleet: found 'a/b', expected"),
        (DEVICE.splitlines()[-1], "", "budget: missing, expected a value"),
        (", adjacency: {bounded-change: 0.01}", "", "budget.adjacency: missing, expected e.g. {bounded-change: 0.01}"),
        ("epsilon: 5.0", "epsilon: .inf", "budget.epsilon: found inf, expected"),
        ("zone: [1, 2, 3]", "zone: 3", "data.zone: found 3, expected array"),
        ("state: state", "states: state", "states: unknown key"),
    ],
)
def test_each_error_of_a_device_is_one_line_with_its_key_path(tmp_path, old, new, line):
    assert old in DEVICE
    with pytest.raises(InputError) as caught:
        device(tmp_path, DEVICE.replace(old, new))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_coordinators_configuration(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("{fleet: demo, broker: 'mqtt://localhost', scenario: s.yaml, state: st}")
    c = load_coordinator(path)
    assert (c.scenario, c.state) == (str(tmp_path / "s.yaml"), str(tmp_path / "st"))
    assert (c.wait_s, c.silent_s) == (60.0, 10.0)
    path.write_text("{fleet: demo, broker: 'mqtt://localhost', scenario: s.yaml, state: st, silent_s: 0}")
    with pytest.raises(InputError, match="silent_s: found 0, expected float > 0"):
        load_coordinator(path)
