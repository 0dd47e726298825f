"""What runs on the same rows have in common is made once: their nodes' losses, and what is checked of the rows."""

import numpy as np
import pytest

from hushgrid.broker.simulation.problems.cache import Cache, using_cache
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.problems import losses
from hushgrid.node.config.scenario import scenario_from


def setup_of(**problem):
    raw = {
        "hushgrid": 1,
        "name": "kept",
        "network": {"kind": "ring", "nodes": 3},
        "problem": {
            "kind": "logistic",
            "data": {"synthetic": {"rows": 10, "features": 3}, "normalize": "unit-rows"},
            "row_bound": 1.0,
        }
        | problem,
        "algorithm": {"name": "dgd", "rounds": 4, "step_size": 0.1, "variant": "none"},
    }
    return prepare(scenario_from(raw))


@pytest.fixture
def made(monkeypatch):
    """How many losses were made so far."""
    count, check = [], losses.Loss.__post_init__
    monkeypatch.setattr(losses.Loss, "__post_init__", lambda self: (count.append(self), check(self)))
    return count


def test_the_runs_of_a_sweep_share_their_losses(made):
    with using_cache(Cache()):
        first = setup_of().losses
        before = len(made)
        second = setup_of().losses
    assert [a is b for a, b in zip(first, second, strict=True)] == [True] * 3
    assert len(made) == before


def test_a_run_that_is_not_of_a_sweep_has_its_own(made):
    assert all(a is not b for a, b in zip(setup_of().losses, setup_of().losses, strict=True))


def test_runs_that_differ_in_what_is_public_share_their_rows_alone():
    x = np.ones(3)
    alone = [loss.gradient(x) for loss in setup_of(l2=0.5).losses]
    with using_cache(Cache()):
        first, second = setup_of(l2=0.1).losses, setup_of(l2=0.5).losses
    assert [a.A is b.A for a, b in zip(first, second, strict=True)] == [True] * 3
    assert [loss.objective.l2 for loss in second] == [0.5] * 3
    assert [loss.gradient(x).tobytes() for loss in second] == [g.tobytes() for g in alone]


def test_another_bound_of_the_rows_shortens_them_anew():
    with using_cache(Cache()):
        first, second = setup_of().losses, setup_of(row_bound=2.0).losses
    assert [a.row_bound for a in first] == [1.0] * 3
    assert [a.row_bound for a in second] == [2.0] * 3
