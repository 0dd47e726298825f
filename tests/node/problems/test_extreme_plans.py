"""Whatever numbers a liar puts into a plan: a device takes it or refuses it in one line, soon, in little memory,
unanswered.

The limits of time are far above what is needed: they tell a plan that is refused from one that hangs a device.
"""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager, suppress
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError, Refused
from hushgrid.kernels.ranges import FAR, FAR_DUAL
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import decode_plan, step_ratio
from hushgrid.node.runtime.member import Member
from hushgrid.node.schema.sections import Budget
from tests.support import examples
from tests.support.scenarios import guarded_plans

HANGS_S = 20


@contextmanager
def alarmed():
    """TimeoutError in what takes HANGS_S seconds."""

    def late(*_):
        raise TimeoutError(f"still at it after {HANGS_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """A device with a budget, of each plan."""
    place, made = tmp_path_factory.mktemp("members"), {}
    for k, name in enumerate(guarded_plans.NAMES):
        device, _ = guarded_plans.device_and_plan(name)
        adjacency = guarded_plans.decoded(name).privacy.adjacency
        made[name] = Member(
            "fleet",
            device,
            Ledger(place / f"{k}.ledger", device.name),
            Budget(epsilon=1e4, delta=1e-3, adjacency=adjacency),
        )
    yield made
    for member in made.values():
        member.ledger.close()


def asked(member, blob):
    """What the device answers a plan: its refusal in one line, or nothing and the machine has begun."""
    said = None
    try:
        with alarmed(), np.errstate(over="raise", invalid="raise", divide="raise"):
            _, driver, _ = member._agreed(bytes(16), blob)
            driver.machine.start()
    except (InputError, Refused) as error:
        said = str(error)
    assert said is None or ("\n" not in said and len(said) < 500)
    return said


@pytest.mark.runs
@pytest.mark.parametrize("name", guarded_plans.NAMES)
def test_honest_plans_are_taken(members, name):
    assert asked(members[name], guarded_plans.device_and_plan(name)[1]) is None


# --- random lies ---


ENDS = [
    0,
    1,
    5e-324,
    1e-308,
    1e-300,
    1e-100,
    1e-30,
    1e-9,
    1e-6,
    0.5,
    1 - 2**-53,
    10**3,
    1e6,
    1e9,
    1e10,
    1e19,
    1e100,
    1e300,
    1.7e308,
    2**22,
    2**31,
    10**7,
    2**63 - 1,
    2**63,
    2**64,
    10**400,
]
numbers = st.sampled_from(ENDS + [-v for v in ENDS] + [float("nan"), float("inf"), float("-inf")])
lists = st.lists(numbers | st.lists(st.integers(-1, 12), min_size=2, max_size=2), max_size=6)
others = st.sampled_from(
    [
        None,
        True,
        "",
        "x" * 10**5,
        "\x00\x1b[2J",
        "random",
        "hamiltonian",
        "none",
        "published",
        "guarded",
        "gaussian",
        "laplace",
        "pure-optimal",
        "zcdp",
        "gdp",
        "softmax",
        "least-squares",
        {},
        [],
        [[]],
        [[0, 0]],
        [[0, 1], [1, 2]],
    ]
)


def places(value, path=()):
    """Every path in a plan."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key, v in inner for p in places(v, (*path, key))]


def put(raw, path, value):
    """`value` at a path, if an earlier lie has left one."""
    with suppress(LookupError, TypeError):
        for key in path[:-1]:
            raw = raw[key]
        raw[path[-1]] = deepcopy(value)


@st.composite
def lies(draw):
    name = draw(st.sampled_from(guarded_plans.NAMES))
    anywhere = st.sampled_from(places(guarded_plans.raw_plan(name)))
    return name, draw(st.lists(st.tuples(anywhere, numbers | lists | others), min_size=1, max_size=4))


@pytest.mark.runs
@examples.of(1500)
@given(lies())
@example(("dpp2", [(("algorithm", "beta"), 5e-324), (("algorithm", "rho"), 5e-324)]))
@example(("iadmm, exact", [(("privacy", "epsilon"), 1e9), (("algorithm", "rounds"), 20)]))
@example(("ladmm", [(("algorithm", "rho"), 1e100), (("algorithm", "eta"), 1.7e308)]))
def test_a_device_takes_or_refuses_any_plan(members, lie):
    name, changes = lie
    raw = guarded_plans.raw_plan(name)
    for path, value in changes:
        put(raw, path, value)
    asked(members[name], json.dumps(raw).encode())  # which writes NaN and Infinity, as a liar may


# --- crafted ones ---


def lie(name, over):
    """The plan with dotted paths laid over it."""
    raw = guarded_plans.raw_plan(name)
    for path, value in over.items():
        put(raw, path.split("."), value)
    return json.dumps(raw).encode()


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "over", "found"),
    [
        (
            "recal",
            {"privacy.epsilon": 1e-308, "privacy.delta": 1e-300},
            "Expected `float` >= 1e-09 - at `$.privacy.epsilon`",
        ),
        ("recal", {"privacy.delta": 1e-300}, "Expected `float` >= 1e-30 - at `$.privacy.delta`"),
        (
            "recal",
            {"privacy.epsilon": 1.7e308, "privacy.delta": 0.9},
            "Expected `float` <= 1000000000.0 - at `$.privacy.epsilon`",
        ),
        ("recal", {"privacy.delta": 0.9}, "Expected `float` <= 0.5 - at `$.privacy.delta`"),
        ("recal, softmax in a box", {"problem.classes": 10**8}, "Expected `int` <= 10000 - at `$.problem.classes`"),
        (
            "recal, softmax in a box",
            {"problem.classes": 10_000, "problem.features": 10_000},
            "found 10000 features of 10000 classes",
        ),
        (
            "dpp2",
            {"algorithm.alpha": 1e-308, "algorithm.beta": 5e-324, "algorithm.rho": 5e-324},
            "Expected `float` >= 1e-09 - at `$.algorithm.alpha`",
        ),
        ("ladmm", {"algorithm.eta": 1.7e308}, "`$.algorithm.eta`"),
        ("ladmm", {"algorithm.rho": 1e100}, "`$.algorithm.rho`"),
        (
            "mradmm",
            {"algorithm.eta.start": [1e100] * 4},
            "Expected `float` <= 1000000000.0 - at `$.algorithm.eta.start[0]`",
        ),
        ("nids", {"problem.L": [1.0, 1.0, 1.0, 1.0]}, "L: found numbers from 1 to 1, expected 1.1"),
        (
            "nids",
            {"problem.edges": [[0, 1], [1, 2], [2, 3], [3, 3]]},
            "found edge [3, 3], expected two different nodes",
        ),
        (
            "nids",
            {"problem.edges": [[0, 1], [1, 2], [2, 4]]},
            "found edge [2, 4], expected two different nodes of 0..3",
        ),
        ("nids", {"problem.edges": [[0, 1], [2, 3]]}, "expected a connected graph"),
        ("iadmm", {"problem.box": 1.0}, "found l1, l2 or a box, expected none"),
        ("recal", {"name": "x" * 65}, "`$.name`"),
        ("recal", {"name": "a\nb"}, "`$.name`"),
        ("recal", {"name": "a\n"}, "`$.name`"),
        ("ladmm", {"problem.case": "case5\x1b[2J"}, "`$.problem.case`"),
        ("ladmm", {"problem.digest": "no digest"}, "`$.problem.digest`"),
        ("ladmm", {"problem.zones": {"z1": [1], "a/b": [2]}}, "`key` in `$.problem.zones`"),
    ],
    ids=str,
)
def test_what_is_out_of_range_is_refused_by_its_place_in_the_plan(members, name, over, found):
    said = asked(members[name], lie(name, over))
    assert said is not None
    assert said.startswith(("plan: ", "network: "))
    assert found in said


# --- steps far beyond their bound ---


@pytest.mark.parametrize(
    ("name", "over", "ratio"),
    [
        ("iadmm", {"algorithm.rho": 0.01}, 35.0),  # L = 1/4 + .1
        ("iadmm, exact", {}, None),
        ("wadmm", {"algorithm.rho": 0.5}, 0.7),
        ("recal", {"algorithm.alpha": 0.5}, 0.5 * 1.35 / 2),
        ("dpp2", {}, (0.4 - 0.1 * 5 / 6) * (0.3 * 5 / 6 + 0.7) / 4),  # largest at l = 5/6
        ("nids", {"algorithm.step_size": 2.0}, 1.1),  # L = 1 + .1
        ("extra", {"algorithm.step_size": 2.0}, 2 * 0.35 * 3 / 2),
        ("dgd", {"algorithm.step_size": 2.0}, 2 * 0.35 * 3 / 2),
        ("diadsp", {"algorithm.alpha": 2.0}, 2 * 0.35 * 9 / 2),
        ("ppdc", {"algorithm.eta": 2.0}, 2.0),
        ("ppdc", {"algorithm.gamma": 9.0}, 0.3 * (9 * 4 / 3 + 0.35) / 2),
        ("madmm", {"algorithm.theta": 1.1}, 2.0),
        ("dpladmm", {"algorithm.schedule": "constant"}, 0.35 * 0.5 / (2 * 1.5)),
        ("admm", {}, None),
        ("ladmm", {"algorithm.eta": 0.5}, "L/4"),
    ],
    ids=str,
)
def test_a_plan_tells_how_far_its_steps_are_beyond_their_public_bound(name, over, ratio):
    plan = decode_plan(lie(name, over))
    expected = plan.problem.L / 4 if ratio == "L/4" else ratio
    assert step_ratio(plan) == (expected if expected is None else pytest.approx(expected, rel=1e-12))


#: What multiplies the step of each, and its ratio at 1.
FAR_STEPS = {
    "iadmm": ({"algorithm.rho": lambda k: 0.35 / k}, FAR),
    "nids": ({"algorithm.step_size": lambda k: 2 / 1.1 * k}, FAR),
    "dgd": ({"algorithm.step_size": lambda k: 2 / (0.35 * 3) * k}, FAR),
    "diadsp": ({"algorithm.alpha": lambda k: 2 / (0.35 * 9) * k}, FAR),
    "ppdc": ({"algorithm.omega": lambda k: (k / 0.3) ** 0.5}, FAR_DUAL),
    "madmm": ({"algorithm.theta": lambda k: 0.55 * k}, FAR_DUAL),
}


@pytest.mark.parametrize("name", FAR_STEPS)
def test_a_device_refuses_steps_far_beyond_their_bound_only(members, name):
    steps, far = FAR_STEPS[name]
    near, beyond = ({key: of(far * f) for key, of in steps.items()} for f in (0.99, 1.01))
    assert asked(members[name], lie(name, near)) is None
    said = asked(members[name], lie(name, beyond))
    assert f"found a step of {far * 1.01:.4g} times its bound of stability, expected at most {far:g} times" in said


def test_iterates_held_in_a_box_may_step_as_far_as_they_like(members):
    for box, said in ((1.0, None), (None, "plan: algorithm: found a step of 525 times")):
        answer = asked(members["extra"], lie("extra", {"algorithm.step_size": 1000.0, "problem.box": box}))
        assert answer == said or answer.startswith(said)


def test_a_run_without_privacy_may_diverge():
    blob = lie("nids", {"algorithm.step_size": 1e9, "algorithm.variant": "none", "privacy": None})
    assert step_ratio(decode_plan(blob)) > 1e8
