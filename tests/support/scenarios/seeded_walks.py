"""Variants and mechanisms of walks over rows, seeded."""

from hushgrid.broker.simulation.problems.records import RowSetup
from hushgrid.node.config.scenario import scenario_from
from tests.support.scenarios.record_scenarios import GAUSSIAN, iadmm, scenario

TRAJECTORY = {"run.record": "trajectory"}
PI_ADMM1 = {"algorithm.variant": "published", "privacy": None, "algorithm.gamma": [0.5, 1.5]}
PI_ADMM2 = {"algorithm.variant": "published", "privacy": None, "algorithm.noise_sd": 0.01}
DP_RECAL = GAUSSIAN | {"algorithm.variant": "published", "algorithm.decay": 1.5}
SEEDED = {
    "recal": scenario(TRAJECTORY | {"seed": 5}),
    "DP-RECAL": scenario(TRAJECTORY | DP_RECAL | {"seed": 5}),
    "iadmm": iadmm(TRAJECTORY | GAUSSIAN | {"seed": 5}),
    "PI-ADMM1": iadmm(TRAJECTORY | PI_ADMM1 | {"algorithm.start": {"uniform": [-1.0, 1.0]}, "seed": 5}),
    "PI-ADMM2": iadmm(TRAJECTORY | PI_ADMM2 | {"seed": 5, "algorithm.name": "wadmm"}),
}


def setup(raw):
    return RowSetup(scenario_from(raw))


BACK_AND_FORTH = [0, 1] * 8 + [2, 3, 2, 3]
