"""Each way in which noise, clipping or counting could silently be wrong is caught: by a game that tells two
neighbouring data sets apart more often than the spends allow, by counting answers, or by comparing what two devices
say.
"""

import json
from math import inf, log

import numpy as np
import pytest
from scipy.stats import beta

from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.problems.losses import Loss
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.gate import Exhausted
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import encode_plan
from hushgrid.node.problems.records.gate import RowsGate
from tests.support.devices.asked_pair import Pair, rows_file
from tests.support.devices.hostile_questions import CLIP, honest_round, plans_of, rows_pair, zone_plans, zones_pair
from tests.support.scenarios.record_scenarios import scenario

GAMES = 2000  #: with each data set: enough for all but noise in floating point
DOUBT = 1e-6  #: chance that an honest gate is called dishonest, an event
X = (
    np.zeros(1),
    np.full(1, 100.0),
)  #: two questions: the record's slope is cut at -1 or 1 at the one, at 1 at the other
ROWS = 4
FAR, NEAR = (10.0, -10.0), (0.0, 10.0)  #: labels of the record that differs


# --- the game ---


def lower_bound(one, other, games):
    """Epsilon of at least this much, but for a chance of DOUBT: from hits among `games` (C. Clopper, E. Pearson,
    1934).
    """
    low = beta.ppf(DOUBT / 2, one, games - one + 1) if one else 0.0
    high = beta.ppf(1 - DOUBT / 2, other + 1, games - other) if other < games else 1.0
    return log(low / high) if low > 0 else -inf


class Free:
    """Nobody's budget: the game asks more often than any allows."""

    def authorise(self, spends): ...
    def committed(self, spends): ...


def played(pair, half, questions, games):
    """((games, questions) answers of one device's gate, (questions,) what its spends say that the first k cost)."""
    pair.now, gate = half, half.member.driver.gate
    gate.authority, found, named = Free(), [], np.zeros(len(questions))
    for _ in range(games):
        gate.restore(type(gate.state)())
        gate.committed()
        gate.refill()
        found.append([gate.gradient(x)[0] if x is not None else gate.data()[0] for x in questions])
        named = np.maximum(named, np.cumsum([s.value for s in gate.spends]))
    pair.now = None
    return np.array(found), named


def excess(pair, questions, values, games=GAMES):
    """By how much the epsilon that a game finds passes the spends' one, over all events; `values`: answers without
    noise.
    """
    pair.halves[1].stream = type(pair.halves[1].stream)(99)  # noise of its own
    (one, named), (other, _) = (played(pair, half, questions, games) for half in pair.halves)
    half_a_step = pair.halves[0].member.driver.gate.lattice.g / 2
    largest = max(abs(v[0]) for v in values)
    events = [(1, lambda a, v=v: a[:, 0] > v[0]) for v in values]
    events += [(1, lambda a, v=v: a[:, 0] < v[0]) for v in values]
    # Floating-point noise: a sum with a larger value has lost digits that the sum with 0 has.
    events.append((1, lambda a: (np.abs(a[:, 0]) < largest / 16) & (a[:, 0] % np.spacing(15 / 16 * largest) != 0)))
    if len(questions) > 1:  # the same noise twice
        events += [(2, lambda a, v=v: np.abs(np.diff(a - v)[:, 0]) < half_a_step) for v in values]
    found = -inf
    for answers, event in events:
        hits = [int(np.sum(event(a))) for a in (one, other)]
        found = max(found, max(lower_bound(*hits, games), lower_bound(*hits[::-1], games)) - named[answers - 1])
    return found


# --- two devices, one coordinate ---


def gradients(labels=FAR):
    """Without noise: the answers of either device to the two questions."""
    return [np.array([-np.clip(b, -1, 1) / ROWS, 1 / ROWS]) for b in labels]


def sensors(held, directory, labels=FAR):
    """Rows of one feature, of which one is not zero and differs in its label: its clipped gradient at x = 0 is -1 or
    1.
    """
    A, b = np.zeros((ROWS, 1)), np.zeros(ROWS)
    A[0], b[0] = 1.0, 1.0
    files = [rows_file(directory / n, A, v * b, CLIP, (-10.0, 10.0)) for n, v in zip("ab", labels, strict=True)]
    return Pair(held, files)


def asked():
    over = {
        "problem.kind": "least-squares",
        "problem.data": {"synthetic": {"rows": ROWS, "features": 1}, "normalize": "unit-rows"},
        "algorithm": {"name": "dgd", "rounds": 2, "step_size": 0.1},
        "privacy.epsilon": 2.0,
        "problem.l2": 0.0,
    }
    return json.loads(encode_plan(prepare(scenario_from(scenario(over))).plan))


def nothing(held):
    """The honest gate."""


def half_the_noise(held):
    sample = Lattice.sample
    held.setattr(Lattice, "sample", lambda self, *given: sample(self, *given) // 2)


def a_repeated_pool(held):
    """Every integer is given out twice."""
    sample = Lattice.sample
    held.setattr(
        Lattice, "sample", lambda self, size, *given: np.repeat(sample(self, (size + 1) // 2, *given), 2)[:size]
    )


def no_clip(held):
    held.setattr(Loss, "clipped_gradient", lambda self, x, c, order: self.data_gradient(x))


def a_wrong_m(held):
    sensitivity = Loss.sensitivity
    held.setattr(Loss, "sensitivity", lambda self, *given: sensitivity(self, *given) / 2)  # of twice the rows


def float_noise(held):
    dice = np.random.default_rng(3)
    held.setattr(Lattice, "release", lambda self, v, n: v + dice.laplace(scale=self.scale, size=v.size))


MUTATIONS = (half_the_noise, a_repeated_pool, no_clip, a_wrong_m, float_noise)


@pytest.mark.runs
@pytest.mark.parametrize("mutation", [nothing, *MUTATIONS], ids=lambda m: m.__name__)
def test_the_game_finds_more_than_was_paid_for_exactly_where_something_is_wrong(tmp_path, monkeypatch, mutation):
    labels = NEAR if mutation is float_noise else FAR
    pair = sensors(monkeypatch, tmp_path, labels)
    mutation(monkeypatch)
    assert pair.plan(asked())
    found = excess(pair, X, gradients(labels), games=5000 if mutation is float_noise else GAMES)
    pair.close()
    assert found > 0 if mutation is not nothing else found <= 0


@pytest.mark.runs
@pytest.mark.parametrize("mutation", [nothing, half_the_noise, float_noise], ids=lambda m: m.__name__)
def test_the_same_of_a_zone_that_answers_with_its_loads(tmp_path, monkeypatch, mutation):
    d = np.zeros(6)
    pair = Pair(monkeypatch, zones_pair(tmp_path, d))
    mutation(monkeypatch)
    raw = zone_plans()["ladmm input data"]
    raw["privacy"] |= {"epsilon": 1.0}
    assert pair.plan(raw)
    for half in pair.halves:
        half.member.driver.gate.memory = Forgetful()
    found = excess(pair, [None], [np.array([0.0]), np.array([0.01])])
    pair.close()
    assert found > 0 if mutation is not nothing else found <= 0


class Forgetful:
    """Every answer of the game is a fresh one."""

    def key(self, *given):
        return b""

    def find(self, key):
        return None


@pytest.mark.runs
def test_the_game_is_near_to_what_was_paid_for(tmp_path, monkeypatch):
    """It has power: of the honest gate's epsilon 1 it finds most. Of 5000 games, chances .5 and .18 are known to .07
    and .15, relative.
    """
    pair = sensors(monkeypatch, tmp_path)
    assert pair.plan(asked())
    found = excess(pair, X[:1], [v[:1] for v in gradients()], games=5000)
    pair.close()
    assert found > -0.3


# --- what the other trials find ---


def test_a_dropped_spend_is_found_by_counting_answers(tmp_path, monkeypatch):
    pair, commit = sensors(monkeypatch, tmp_path), Ledger.commit
    monkeypatch.setattr(Ledger, "commit", lambda self, *given, **more: commit(self, *given, **more | {"spends": ()}))
    pair.begin("a dropped spend")
    assert pair.plan(asked())
    honest_round(pair)
    pair.close()
    assert any("answers released" in failure for failure in pair.failures)


def test_a_refusal_that_tells_of_data_is_found_by_comparing_two_devices(tmp_path, monkeypatch):
    pair = Pair(monkeypatch, rows_pair("logistic", tmp_path), "constant")

    def leaking(gate, x):
        raise Exhausted(f"a gradient of {gate.loss.gradient(x)[0]}")

    monkeypatch.setattr(RowsGate, "gradient", leaking)
    pair.begin("a leak by text")
    assert pair.plan(plans_of("logistic")["dgd"])
    honest_round(pair)
    pair.close()
    assert any("told apart" in failure for failure in pair.failures)


def test_an_answer_without_noise_or_spend_is_found_by_comparing_two_devices(tmp_path, monkeypatch):
    pair = Pair(monkeypatch, rows_pair("logistic", tmp_path), "constant")
    monkeypatch.setattr(RowsGate, "gradient", lambda gate, x: gate.loss.gradient(x))
    pair.begin("an exact answer")
    assert pair.plan(plans_of("logistic")["dgd"])
    for _ in range(2):
        honest_round(pair)
    pair.close()
    assert any("told apart" in failure for failure in pair.failures)
