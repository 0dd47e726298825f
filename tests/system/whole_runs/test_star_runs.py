"""Federated learning around a coordinator through real brokers: the bits of memory, and nothing lost where nodes are
killed.
"""

import pytest

from hushgrid.broker.simulation import run
from tests.support.runs import background_run
from tests.support.scenarios.record_scenarios import GAUSSIAN, NOT_PRIVATE, scenario

AROUND = {"network": None, "problem.data.nodes": 3, "problem.box": 0.5, "seed": 7, "run": {"record": "trajectory"}}
CASES = {
    "guarded": GAUSSIAN | {"problem.kind": "softmax", "problem.classes": 3, "algorithm.eta": "1/(L+sqrt(t)/epsilon)"},
    "none": NOT_PRIVATE | {"problem.scale": "share"},
}


@pytest.mark.parametrize("case", CASES)
def test_through_a_broker_the_bits_are_those_of_memory(case, any_broker):
    algorithm = {"name": "ladmm", "rounds": 8, "rho": 0.5, "local_updates": 2}
    raw = scenario(AROUND | {"algorithm": algorithm} | CASES[case])
    background_run.assert_same_bits(run(raw), run(raw, transport="mqtt", broker=any_broker.url))
