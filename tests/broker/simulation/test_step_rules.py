"""The step of Theorem 5.3 against the default, on case14: the finding 2.6 of docs/papers/objpert-ladmm.md."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from tests.support.runs import background_run

LAST = 20  #: rounds


def shedding(at, eta):
    """Objective over the last rounds, Laplace noise at a total of 5."""
    algorithm = {"name": "ladmm", "rounds": 100, "eta": eta}
    over = {
        "problem.case": "case14",
        "problem.zones": 3,
        "algorithm": algorithm,
        "privacy.epsilon": 5.0,
        "privacy.at": at,
    }
    found = [run(background_run.scenario(over, seed=seed)).history["objective"][-LAST:] for seed in (0, 1)]
    return float(np.mean(found))


@pytest.mark.long
def test_5_1a_helps_where_the_noise_is_on_the_gradients_and_harms_where_it_is_on_the_loads():
    rules = ("1/(L+sqrt(t)/epsilon)", "1/(L+sqrt(t))")
    gradients, loads = ({eta: shedding(at, eta) for eta in rules} for at in ("gradient", "data"))
    assert gradients[rules[0]] < 0.5 * gradients[rules[1]]
    assert loads[rules[0]] > 1.5 * loads[rules[1]]
