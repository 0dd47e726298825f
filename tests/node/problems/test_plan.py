"""The plan of a data problem: what a device makes of one, right or wrong, whoever wrote it."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.kernels.errors import InputError, Refused
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.problems.plan import decode_plan, encode_plan
from tests.support import examples
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, iadmm, scenario
from tests.support.scenarios.scenario_texts import values

PLANS = {
    "recal": scenario(GAUSSIAN | {"privacy.answers": 5}),
    "given walk": scenario({"algorithm.walk": [0, 1] * 10, "algorithm.alpha": [0.1] * 4}),
    "cycle": iadmm(),
    "softmax": scenario(NOT_PRIVATE | {"problem.kind": "softmax"}),
    "published": scenario(GAUSSIAN | {"algorithm.variant": "published", "algorithm.decay": 1.5}),
}
SETUPS = {name: RowSetup(scenario_from(raw)) for name, raw in PLANS.items()}


class Anything:
    """An owner who allows every answer."""

    def authorise(self, spends): ...
    def committed(self, spends): ...


def device_takes(name, raw):
    """What a device does with a plan before it joins. Raises what it answers."""
    plan = decode_plan(msgspec.json.encode(raw))
    device = SETUPS[name].device("n0")
    device.check(plan)
    machine, _ = device.machine(plan, bytes(32), None, SeededNoise(1, "n0"), Anything())
    return machine


def raw_plan(name):
    return msgspec.json.decode(encode_plan(SETUPS[name].plan))


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        (None, "plan: privacy.answers: missing, expected the cap of each node of a random walk"),
        ([5, 5, 5], "privacy.answers: found 3 numbers, expected one for each of 4 nodes"),
        ([5, 5, 5, 0], "plan: Expected `int` >= 1 - at `$.privacy.answers[3]`"),
    ],
)
def test_a_device_refuses_caps_that_are_not_one_for_each_node(answers, line):
    raw = raw_plan("recal")
    raw["privacy"]["answers"] = answers
    with pytest.raises(InputError) as caught:
        device_takes("recal", raw)
    assert str(caught.value).startswith(line)


def test_a_devices_noise_is_calibrated_for_its_own_cap():
    raw = raw_plan("recal")
    raw["privacy"]["answers"] = [4, 20, 20, 20]
    plan = decode_plan(msgspec.json.encode(raw))
    own, other = plan.terms_of("n0"), plan.terms_of("n1")
    assert (own.answers, other.answers, own.epsilon, other.epsilon) == (4, 20, 50.0, 50.0)
    assert own.per_answer == pytest.approx(5**0.5 * other.per_answer, rel=1e-3)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_survives_its_bytes_and_makes_a_machine(name):
    plan = SETUPS[name].plan
    assert decode_plan(encode_plan(plan)) == plan
    assert device_takes(name, raw_plan(name)).start() is not None


@pytest.mark.parametrize(
    ("name", "over", "found"),
    [
        ("recal", {"rows": [10] * 3, "edges": [[0, 1], [1, 2]]}, "do not fit"),
        ("recal", {"rows": [10, 10, 10, 0]}, "Expected `int` >= 1 - at `$.problem.rows[3]`"),
        ("recal", {"L": [1.0]}, "do not fit"),
        ("recal", {"L": [-1.0] * 4}, "Expected `float` >= 0.0 - at `$.problem.L[0]`"),
        ("recal", {"classes": 3}, "do not fit"),
        ("softmax", {"classes": 1}, "do not fit"),
        ("recal", {"edges": [[0, 1]]}, "expected a connected graph"),
        ("recal", {"rows": [], "L": [], "edges": []}, "found 0 nodes, expected at least 2"),
        ("recal", {"box": -1.0}, "box"),
        ("recal", {"route": [0, 1, 2, 3]}, "plan: route: found 4 nodes, expected a closed walk"),
        ("cycle", {"route": []}, "plan: route: found 0 nodes, expected a closed walk"),
        ("cycle", {"route": [0, 1, 2]}, "plan: route: found 3 nodes, expected a closed walk"),
        ("cycle", {"route": [0, 2, 1, 3]}, "plan: route[1]: found a hop from 0 to 2, expected one along an edge"),
        ("given walk", {"edges": [[0, 2], [2, 1], [1, 3]]}, "found a hop from 0 to 1, expected one along an edge"),
        ("recal", {"features": 4}, "n0: found a plan for 10 rows of 4, expected its own 10 rows of 3"),
        ("recal", {"rows": [9, 10, 10, 10]}, "n0: found a plan for 9 rows of 3, expected its own 10 rows of 3"),
        ("recal", {"row_bound": None}, "n0: row_bound: found none, expected R"),
    ],
    ids=str,
)  # fmt: skip
def test_parts_that_do_not_belong_together_are_told_in_one_line(name, over, found):
    raw = raw_plan(name)
    raw["problem"] |= over
    with pytest.raises(InputError) as caught:
        device_takes(name, raw)
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_algorithm_of_another_kind_of_problem_is_refused():
    raw = raw_plan("recal")
    raw["algorithm"] = {"name": "consensus-admm", "rounds": 5, "variant": "none"}
    raw["privacy"] = None
    with pytest.raises(
        InputError, match=r"algorithm\.name: found consensus-admm, expected one for a problem of kind data"
    ):
        device_takes("recal", raw)


def places(value, path=()):
    """Every path in a mapping."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key, v in inner for p in places(v, (*path, key))]


anywhere = st.sampled_from([(name, path) for name in PLANS for path in places(raw_plan(name))])
numbers = st.sampled_from([-1, 0, 1, 2, 3, 7, 2**40, -0.5, 0.5, 1e300, 1e-300, True, None, "random", "none", []])


@pytest.mark.runs
@examples.of(500)
@given(anywhere, numbers | values)
def test_whatever_stands_in_a_plan_a_device_refuses_it_or_runs_it(place, value):
    name, path = place
    raw = here = raw_plan(name)
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    with suppress(InputError, Refused):
        device_takes(name, raw)
