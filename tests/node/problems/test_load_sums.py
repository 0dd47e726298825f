"""The band around a sum of noisy loads: public, and as wide as the noise is."""

import numpy as np
import pytest

from hushgrid.broker.simulation.setup import prepare
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.power_flow.gate import lattice_of
from hushgrid.node.problems.power_flow.question import LoadQuestion

pytestmark = pytest.mark.runs


ZONES = {
    "hushgrid": 1, "name": "sums", "problem": {"kind": "zones", "case": "case14", "zones": 3, "objective": "cost"},
    "algorithm": {"name": "consensus-admm", "rounds": 5},
}  # fmt: skip


@pytest.mark.parametrize(("mechanism", "release"), [("laplace", "plain"), ("laplace", "totals"), ("gaussian", "plain")])
def test_the_noise_of_a_sum_is_that_of_draws(mechanism, release):
    """4,000 draws: a sample's variance is within 15 % of its own, five standard errors of a Laplace's."""
    privacy = {"adjacency": {"bounded-change": 0.01}, "epsilon": 1.0, "mode": "input", "release": release}
    privacy |= {"mechanism": "gaussian", "delta": 1e-5} if mechanism == "gaussian" else {}
    setup = prepare(scenario_from({**ZONES, "privacy": privacy}))
    name = next(iter(setup.models))
    loss = setup.public_loss(name)
    lattice, question = lattice_of(name, loss, setup.terms), LoadQuestion(loss, setup.terms)
    half = loss.size // 2
    sums = [question.answered(lattice.sample(question.width) * lattice.g)[:half].sum() for _ in range(4000)]
    assert np.var(sums) == pytest.approx(question.sum_error(lattice) ** 2, rel=0.15)
