"""Every guarded answer of a gate, attacked by who knows both of two neighbouring data sets: what is proved of its cost
is never above the claim, and four fifths of it and more.

Private minimisers under Gaussian noise, pointwise sensitivities and groups of records play in their own files.
"""

import numpy as np
import pytest

from hushgrid.kernels.problems.losses import Loss, Objective
from hushgrid.node.privacy.noise_source import SeededNoise
from hushgrid.node.privacy.terms import check_privacy
from hushgrid.node.privacy.terms import terms as terms_of
from hushgrid.node.problems.power_flow.gate import ZoneGate
from tests.support import games
from tests.support.devices.gated_device import BETA, Quadratic, plan
from tests.support.devices.load_units import CAPACITY, COS, UNITS, Loads, asked
from tests.support.devices.rows_device import Free, gate, terms

pytestmark = pytest.mark.runs


N = 2500


class Forgetful:
    """Finds no earlier answer."""

    def key(self, question):
        return question.encode()

    def find(self, key):
        return None


def lower_bounds(mechanism, answers, values):
    """Of confidence that accuses, and of 95 %."""
    proved = games.proved_pure if mechanism == "laplace" else games.proved
    return proved(answers, values, games.DOUBT), proved(answers, values, 0.05)


def holds(mechanism, answers, values, claimed):
    accused, likely = lower_bounds(mechanism, answers, values)
    assert accused <= claimed
    assert likely >= 0.8 * claimed


# --- records ---


def opposed(kind):
    """Two data sets of one record that pull against each other along one coordinate with all their strength at x."""
    rows, labels = {"logistic": ([[1.0, 0.0]], (1.0, -1.0)), "least-squares": ([[1.0, 0.0]], (1.0, -1.0))}[kind]
    return [Loss(Objective(kind=kind), np.array(rows), np.array([b]), row_bound=1.0) for b in labels], np.zeros(2)


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
@pytest.mark.parametrize("unit", ["replace-one-record", "bounded-change"])
def test_gradients_of_records(unit, kind, mechanism, share):
    """With six tenths of the noise that the claim wants the game accuses."""
    (one, other), x = opposed(kind)
    moved = float(np.abs(one.gradient(x) - other.gradient(x)).sum())
    over = {"clip": moved / 2, "adjacency": unit} if unit.startswith("replace") else {"beta": moved}
    answers = []
    for loss, seed in ((one, 1), (other, 2)):
        asked_of = gate(loss, terms(mechanism, answers=N, per_answer=1.0 / share, **over), SeededNoise(seed, "n0"))
        answers.append([])
        for _ in range(N):
            answers[-1].append(asked_of.gradient(x))
            asked_of.committed()
    values = [one.gradient(x), other.gradient(x)]
    if share == 1.0:
        holds(mechanism, answers, values, 1.0)
    else:
        assert lower_bounds(mechanism, answers, values)[0] > 1.0


@pytest.mark.parametrize("question", ["minimizer", "output_minimizer"])
def test_minimisers_of_records_with_spherical_laplace_noise(question):
    """Never above the claim. No pair of records is known that comes near it: their price also holds a term of
    curvature, which the far pair does not have, and noise in the plane."""
    s = 0.01
    rows = np.array([[-s, np.sqrt(1 - s * s)], [-s, -np.sqrt(1 - s * s)]])
    pair = [Loss(Objective(kind="logistic"), row[None, :], np.ones(1), row_bound=1.0) for row in rows]
    answers, linear = [], np.array([-1e3, 0.0])
    for loss, seed in zip(pair, (1, 2), strict=True):
        t = terms("laplace", answers=N, per_answer=2.0, clip=1.0, adjacency="replace-one-record")
        asked_of = gate(loss, t, SeededNoise(seed, "n0"))
        answers.append([])
        for _ in range(N // 2):
            answers[-1].append(getattr(asked_of, question)(linear, 0.5))
            asked_of.committed()
    centres = [np.mean(each, axis=0) for each in answers]
    assert 0.1 < games.proved_pure(answers, centres, games.DOUBT) <= 2.0


# --- loads ---


def zone_answers(losses, t, ask):
    """N first answers of gates of their own, about either."""
    return [
        [
            ask(ZoneGate("n0", loss, t, SeededNoise(k, f"{side}"), Free(), Forgetful()))  # type: ignore[arg-type]
            for k in range(N)
        ]
        for side, loss in enumerate(losses)
    ]


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("unit", UNITS)
def test_loads_in_mode_input(unit, mechanism):
    adjacency = UNITS[unit]
    before, change = np.zeros(8), np.zeros(8)
    change[4 if unit == "relative" else 0] = 0.05 * CAPACITY[4] if unit == "relative" else BETA
    if unit == "pair":
        change[4] = BETA * np.sqrt(1 - COS**2) / COS
    t = asked(adjacency, mechanism=mechanism, epsilon=1.0 if mechanism == "laplace" else 5.0)
    losses = [Loads(d, adjacency) for d in (before + change, before)]
    answers = zone_answers(losses, t, lambda gate: gate.data())
    holds(mechanism, answers, [before + change, before], t.per_answer)


def test_loads_released_with_totals_never_prove_more_than_is_claimed():
    """An answer is one agreement of loads and totals, whose own noises nobody sees: less is proved than is claimed."""
    change = np.zeros(8)
    change[0] = BETA
    t = asked(UNITS["plain"], release="totals")
    answers = zone_answers([Loads(change), Loads(np.zeros(8))], t, lambda gate: gate.data())
    assert 0.2 < games.proved_pure(answers, [change, np.zeros(8)], games.DOUBT) <= t.per_answer


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("at", ["data", "gradient"])
def test_gradients_of_loads(at, mechanism):
    """Noise on the loads is read off the gradient first: it is 2 A' (A z + d)."""
    price = {"epsilon": 1.0} if mechanism == "laplace" else {"epsilon": 5.0, "delta": 1e-5}
    made = plan(at=at, mechanism=mechanism, per_answer=price, **({"delta": 1e-4} if mechanism == "gaussian" else {}))
    check_privacy(made.privacy, made.algorithm, False, "plan")
    t = terms_of(made.privacy, made.algorithm)
    loads, z = [np.array([BETA, 0.0]), np.zeros(2)], np.zeros(4)
    answers = np.array(zone_answers([Quadratic(d) for d in loads], t, lambda gate: gate.gradient(z)))
    values = [Quadratic(d).gradient(z, d) for d in loads]
    if at == "data":
        read = np.linalg.pinv(2 * Quadratic.A.T)
        answers, values = answers @ read.T, loads
    holds(mechanism, answers, values, t.per_answer)
