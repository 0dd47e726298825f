"""The study of federated learning plays the machines of a run, and its table says what was played."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.lab.studies.papers import federated
from hushgrid.lab.studies.papers.federated import (
    SLACK,
    TIGHT,
    FederatedTask,
    Images,
    measured,
    played,
    row,
    scenario,
    tasks,
)
from hushgrid.node.config.scenario import scenario_from
from tests.support.scenarios.small_images import small_images


def task(tmp_path, epsilon=4.0, **keys):
    """A small one: three nodes with ten rows of two features."""
    return FederatedTask(**{
        "images": small_images(tmp_path), "epsilon": epsilon, "rounds": 4, "local_updates": 2, "box": SLACK,
        "mode": "objective", "seeds": (5, 6),
    } | keys)  # fmt: skip


@pytest.mark.parametrize("keys", [{}, {"mode": "output", "box": TIGHT}, {"name": "fedavg"}], ids=str)
def test_a_seed_played_has_the_bits_of_the_run(keys, tmp_path):
    of = task(tmp_path, **keys)
    raw = scenario(of, 6) | {"run": {"record": "trajectory"}}
    found = run(raw)
    for t, models in enumerate(played(RowSetup(scenario_from(raw)), 6)):
        for i, model in enumerate(models):
            assert np.array_equal(model, found.trajectory[f"z_n{i}"][t])
    assert measured(of).error[1] == found.test_error


def test_a_row_says_the_setting_and_one_run_is_enough_without_noise(tmp_path):
    line = measured(task(tmp_path, epsilon=float("inf")))
    assert line.error.shape == (1,)
    said = dict(zip(federated.COLUMNS, row(line), strict=True))
    assert (said["epsilon"], said["noise"], said["answers"]) == ("none", "none", 8)
    assert said["largest |x_k| over the box"] <= 1


def test_every_setting_is_a_scenario_that_can_run():
    for of in tasks(Images(), federated.EPSILONS, (0,)):
        scenario_from(scenario(of, 0))
