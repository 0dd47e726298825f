"""Whatever a device is asked: what two data sets that differ in one record let it say is equal, or an answer is paid
for.
"""

import json

import numpy as np
import pytest

from hushgrid.kernels.patterns import token
from hushgrid.node.problems.power_flow.device import ZoneLoss
from hushgrid.node.wire import COORDINATOR, Finish
from tests.support.devices.asked_pair import Pair, rows_file
from tests.support.devices.hostile_questions import (
    LEARNERS,
    changed,
    honest_round,
    message,
    next_round,
    plans_of,
    rows_pair,
    zone_plans,
    zones_pair,
)
from tests.support.devices.zone_fleet import setup

BATCH = 40  #: questions to one pair of devices
KINDS = (*LEARNERS, "zones")
VALUES = ("constant", "honest")


@pytest.fixture(scope="module")
def asked():
    """{kind: plans that its devices join}."""
    return {kind: plans_of(kind) for kind in LEARNERS} | {"zones": zone_plans()}


def files(kind, directory):
    return zones_pair(directory) if kind == "zones" else rows_pair(kind, directory)


def trial(monkeypatch, tmp_path, plans, kind, values, seed, questions):
    """So many random questions to one pair. (failures, slow ones)."""
    dice = np.random.default_rng([seed, KINDS.index(kind), VALUES.index(values)])
    with monkeypatch.context() as held:
        pair = Pair(held, files(kind, tmp_path / f"{kind}{seed}{values}"), values, seed)
        case = 0
        while pair.asked < questions:
            case += 1
            name = list(plans)[dice.integers(len(plans))]
            raw, what = changed(plans[name], dice)
            pair.begin(f"{kind} {seed}.{case} {name}, {what}")
            if pair.plan(raw, nonce=dice.bytes(16)):
                for _ in range(int(dice.integers(1, 8))):
                    if pair.member.driver is None:
                        break
                    if dice.random() < 0.5:
                        next_round(pair, dice)
                    else:
                        src, seq, body, more = message(pair, dice)
                        pair.tell(src, seq, body, **more)
            if pair.failures:  # what comes after a failure is not judged
                break
        pair.close()
    return pair


@pytest.mark.runs
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_questions_tell_nothing_unpaid(tmp_path, monkeypatch, asked, kind, values):
    assert_all(tmp_path, monkeypatch, asked[kind], kind, values, range(2))


@pytest.mark.long
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_random_questions_tell_nothing_unpaid(tmp_path, monkeypatch, asked, kind, values):
    """1250 of each kind of device and of values."""
    assert_all(tmp_path, monkeypatch, asked[kind], kind, values, range(100, 100 + 1250 // BATCH + 1))


def assert_all(tmp_path, monkeypatch, plans, kind, values, seeds):
    failures, slow = [], []
    for seed in seeds:
        pair = trial(monkeypatch, tmp_path, plans, kind, values, seed, BATCH)
        failures += pair.failures
        slow += pair.slow
    assert (failures, slow) == ([], [])


@pytest.mark.runs
def test_the_plans_that_are_changed_are_joined_and_their_questions_answered(tmp_path, monkeypatch, asked):
    """The trial can tell: what it starts from is joined, and an honest round of it is answered and paid."""
    dice = np.random.default_rng(1)
    for kind in KINDS:
        with monkeypatch.context() as held:
            pair = Pair(held, files(kind, tmp_path / kind))
            for name, raw in asked[kind].items():
                pair.begin(f"{kind} {name}")
                assert pair.plan(raw, nonce=dice.bytes(16)), (kind, name)
                before = pair.halves[0].spent
                for _ in range(3):
                    honest_round(pair)
                assert pair.halves[0].spent > before, (kind, name)
            assert pair.failures == []
            pair.close()


# --- crafted ---


#: {what: (kind, algorithm, {path: value})}: plans that made a step, a calibration or the memory fail.
CRAFTED = {
    "a tiny epsilon with a tiny delta": (
        "logistic",
        "dgd",
        {
            "privacy.epsilon": 1e-308,
            "privacy.delta": 1e-300,
            "privacy.mechanism": "gaussian",
            "privacy.accountant": "gdp",
        },
    ),
    "a huge epsilon with a large delta": (
        "logistic",
        "dgd",
        {
            "privacy.epsilon": 1.7e308,
            "privacy.delta": 0.9,
            "privacy.mechanism": "gaussian",
            "privacy.accountant": "gdp",
        },
    ),
    "pure-optimal at 800 an answer": (
        "logistic",
        "dgd",
        {"privacy.epsilon": 3200.0, "privacy.delta": 1e-5, "privacy.accountant": "pure-optimal"},
    ),
    "a hundred million classes": ("softmax", "dgd", {"problem.classes": 10**8}),
    "tiny numbers of DPP2": (
        "logistic",
        "dpp2",
        {"algorithm.alpha": 1e-300, "algorithm.beta": 1e-308, "algorithm.rho": 5e-324},
    ),
    "huge numbers of DPP2": (
        "logistic",
        "dpp2",
        {"algorithm.alpha": 1e308, "algorithm.beta": 1e300, "algorithm.rho": 1e308},
    ),
    "a step beyond all numbers": ("logistic", "dgd", {"algorithm.step_size": 1.7e308}),
    "a penalty of nothing": ("logistic", "iadmm", {"algorithm.rho": 5e-324}),
    "a penalty beyond all numbers": ("logistic", "iadmm, exact", {"algorithm.rho": 1.7e308}),
    "minimisers without curvature": ("logistic", "admm", {"algorithm.eta": 5e-324, "problem.objective.l2": 0.0}),
    "a huge scale": ("logistic", "dgd", {"problem.objective.scale": 1.7e308}),
    "a tiny scale": ("logistic", "dgd", {"problem.objective.scale": 5e-324}),
    "a huge row bound": ("logistic", "dgd", {"problem.row_bound": 1e150}),
    "a tiny row bound": ("logistic", "dgd", {"problem.row_bound": 5e-324}),
    "a huge clip": ("logistic", "dgd", {"privacy.adjacency.replace-one-record.clip": 1.7e308}),
    "a tiny clip": ("logistic", "dgd", {"privacy.adjacency.replace-one-record.clip": 5e-324}),
    "a huge l2": ("logistic", "dgd", {"problem.objective.l2": 1.7e308}),
    "ten million rounds": ("logistic", "recal", {"algorithm.rounds": 10_000_000}),
    "eta beyond all numbers": ("zones", "ladmm objective data", {"algorithm.eta": 1.7e308, "algorithm.rho": 1e100}),
    "eta of nothing": ("zones", "ladmm objective data", {"algorithm.eta": 5e-324}),
    "rho beyond all numbers": ("zones", "ladmm objective data", {"algorithm.rho": 1.7e308}),
    "fifty local updates": ("zones", "ladmm input data", {"algorithm.local_updates": 50}),
    "fifty-one local updates": ("zones", "ladmm input data", {"algorithm.local_updates": 51}),
}


def crafted(plans, name, over):
    raw = json.loads(json.dumps(plans[name]))
    for path, value in over.items():
        here, *_ = raw, None
        *parents, last = path.split(".")
        for key in parents:
            here = here[key]
        here[last] = value
    return raw


@pytest.mark.runs
@pytest.mark.parametrize("values", ["constant", "bare"])
@pytest.mark.parametrize("what", CRAFTED)
def test_an_extreme_plan_tells_nothing_unpaid_and_takes_no_second(tmp_path, monkeypatch, asked, what, values):
    kind, name, over = CRAFTED[what]
    pair = Pair(monkeypatch, files(kind, tmp_path), values)
    pair.begin(what)
    if pair.plan(crafted(asked[kind], name, over)):
        for _ in range(3):
            if pair.member.driver:
                honest_round(pair)
    pair.close()
    assert (pair.failures, pair.slow) == ([], [])


def test_a_step_made_to_fail_by_a_load_is_paid_for(tmp_path, monkeypatch):
    """eta is such that the step overflows if a gradient's entry is above tau, and tau lies between the two loads'."""
    d = np.zeros(2 * len(setup().plan.problem.zones["z1"]))
    d[0] = 10.0
    pair = Pair(monkeypatch, zones_pair(tmp_path, d), "bare")
    largest = []
    for half in pair.halves:
        zone = half.member.device
        free = np.setdiff1d(np.arange(zone.model.n), zone.model.shared)
        largest.append(np.max(np.abs(ZoneLoss(zone.model, zone.d).gradient(zone.model.start, zone.d)[free])))
    assert largest[0] < largest[1]
    over = {"algorithm.eta": 1.7976931348623157e308 / np.mean(largest), "algorithm.rho": 1e100}
    pair.begin("eta at the load")
    if pair.plan(crafted(zone_plans(), "ladmm objective gradient", over)):
        honest_round(pair)
    pair.close()
    assert pair.failures == []


@pytest.mark.parametrize("name", ["dgd", "iadmm", "recal"])
def test_a_step_made_to_fail_by_a_record_is_paid_for(tmp_path, monkeypatch, asked, name):
    """The step's size is such that it overflows for the one data set alone."""
    with monkeypatch.context() as held:
        pair = Pair(held, files("least-squares", tmp_path), "bare")
        halves = [h.member.device.shard for h in pair.halves]
        largest = []
        for A, b in halves:
            A = A / np.maximum(1.0, np.linalg.norm(A, axis=1, keepdims=True))  # the row bound, then the clip in L1
            A = A / np.maximum(1.0, np.linalg.norm(A, 1, axis=1, keepdims=True))
            largest.append(16 * float(np.max(np.abs(A.T @ b / len(b)))))
        assert min(largest) > 1
        step = 1.7976931348623157e308 / np.mean(largest)
        scaled = crafted(asked["least-squares"], name, {"problem.objective.scale": 16.0})
        keys = {
            "dgd": {"algorithm.step_size": step},
            "iadmm": {"algorithm.rho": 1 / step},
            "recal": {"algorithm.alpha": step},
        }
        pair.begin(f"{name} at the record")
        if pair.plan(crafted({name: scaled}, name, keys[name])):
            for _ in range(3):
                if pair.member.driver:
                    honest_round(pair)
        pair.close()
    assert pair.failures == []


@pytest.mark.parametrize("kind", ["softmax", "logistic"])
def test_a_plan_is_refused_by_declarations_and_never_by_labels(tmp_path, monkeypatch, kind):
    """A label that the plan's problem has no place for, on one of the two devices; none declares classes for it."""
    A, b = np.eye(6)[:, :3] * 0.5, np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    if kind == "logistic":
        b = 2 * b - 1
    other = b.copy()
    other[0] = 5.0 if kind == "softmax" else 0.25
    adjacency, declared = {"replace-one-record": {"clip": 1.0}}, (-10.0, 10.0)
    pair = Pair(
        monkeypatch,
        [rows_file(tmp_path / n, A, v, adjacency, declared) for n, v in (("a", b), ("b", other))],
        "constant",
    )
    plans = plans_of(kind)
    for classes in (2, 3, 4, 5, 6) if kind == "softmax" else (1,):
        pair.begin(f"{kind}, {classes} classes")
        pair.plan(crafted(plans, "dgd", {"problem.classes": classes}), nonce=bytes([classes] * 16))
    pair.close()
    assert pair.failures == []


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["logistic", "zones"])
def test_a_farewell_before_the_end_makes_no_outcome(tmp_path, monkeypatch, asked, kind):
    pair = Pair(monkeypatch, files(kind, tmp_path))
    for name, raw in asked[kind].items():
        for rounds in (0, 1):
            pair.begin(f"{name} after {rounds}")
            assert pair.plan(raw, nonce=bytes([rounds] * 16))
            for _ in range(rounds):
                honest_round(pair)
            visited = rounds and isinstance(
                pair.member.driver.machine, token.TokenNode
            )  # who ends a walk is not known here
            pair.tell(COORDINATOR, 0, Finish("done", "rounds"))
            assert [len(h.outcomes) for h in pair.halves] == ([1, 1] if visited else [0, 0]), name
            for half in pair.halves:
                half.outcomes.clear()
    pair.close()
    assert pair.failures == []
