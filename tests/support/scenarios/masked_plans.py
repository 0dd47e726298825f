"""Plans of masked sums over devices that need not exist."""

from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import RunPlan

DELTA = 1e-5


def sum_of(nodes: int, corrupt: int, epsilon: float) -> RunPlan:
    """Of one masked mean over so many devices with 50 rows of 3 features each."""
    raw = {
        "hushgrid": 1, "name": "sum", "algorithm": {"name": "sum"},
        "problem": {"kind": "mean", "data": {"devices": {"features": 3, "rows": 50}, "nodes": nodes}},
        "privacy": {
            "mechanism": "gaussian", "accountant": "gdp", "epsilon": epsilon, "delta": DELTA,
            "adjacency": {"replace-one-record": {"clip": 1.0}}, "masked": {"corrupt": corrupt},
        },
    }  # fmt: skip
    scenario = scenario_from(raw, "s")
    return make_plan(scenario, scenario.kind.public(scenario, "s"))
