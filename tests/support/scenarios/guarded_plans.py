"""Guarded plans of every algorithm, small, and the device that is asked to take part: what a liar begins with."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.algorithms import registry
from hushgrid.lab.examples import examples
from hushgrid.node.config.planning import make_plan
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.plan import RunPlan, decode_plan, encode_plan
from hushgrid.node.problems.records.kind import KIND as RECORDS
from tests.support.devices.zone_fleet import setup as zones
from tests.support.scenarios import record_scenarios

GAUSSIAN = {"privacy.mechanism": "gaussian", "privacy.delta": 1e-5, "privacy.accountant": "gdp"}
SOFTMAX = {"problem.kind": "softmax", "problem.classes": 3, "problem.data.synthetic.classes": 3}

#: Keys of the algorithm section, and what else of the scenario differs.
ALGORITHMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "recal": ({"name": "recal", "rounds": 20}, GAUSSIAN),
    "recal, softmax in a box": ({"name": "recal", "rounds": 20}, SOFTMAX | GAUSSIAN | {"problem.box": 1.0}),
    "recal, given walk": ({"name": "recal", "rounds": 20, "walk": [0, 1] * 10, "alpha": [0.1] * 4}, {}),
    "iadmm": ({"name": "iadmm", "rounds": 20, "rho": 1.0}, {}),
    "iadmm, exact": (
        {"name": "iadmm", "rounds": 20, "rho": 1.0, "update": "exact"},
        {"privacy.accountant": "pure-optimal", "privacy.delta": 1e-6},
    ),
    "wadmm": ({"name": "wadmm", "rounds": 20, "rho": 1.0}, {"privacy.mechanism": "gaussian", "privacy.delta": 1e-5}),
    "dpp2": ({"name": "dpp2", "rounds": 20, "alpha": 0.4, "beta": 0.1, "rho": 0.3}, GAUSSIAN),
    "extra": ({"name": "extra", "rounds": 20, "step_size": 0.5}, GAUSSIAN | {"problem.box": 1.0}),
    "nids": ({"name": "nids", "rounds": 20, "step_size": 0.5}, {"problem.kind": "least-squares"}),
    "dgd": ({"name": "dgd", "rounds": 20, "step_size": 0.5}, {"privacy.adjacency": {"bounded-change": 0.01}}),
    "diadsp": ({"name": "diadsp", "rounds": 20, "alpha": 0.1}, GAUSSIAN),
    "ppdc": ({"name": "ppdc", "rounds": 20, "eta": 0.3, "gamma": 1.0, "omega": 1.0}, GAUSSIAN),
    "admm": ({"name": "admm", "rounds": 20, "eta": 0.5}, {}),
    "radmm": ({"name": "radmm", "rounds": 20, "eta": 0.5, "gamma": 0.1}, {}),
    "mradmm": ({"name": "mradmm", "rounds": 20, "eta": {"start": [0.5] * 4, "growth": 1.1}, "gamma": 0.1}, {}),
    "dpadmm": ({"name": "dpadmm", "rounds": 20, "eta": 0.5, "perturb": "primal"}, GAUSSIAN),
    "dpladmm": ({"name": "dpladmm", "rounds": 20, "eta": 0.5, "step": 0.5}, GAUSSIAN),
    "madmm": ({"name": "madmm", "rounds": 20, "eta": {"start": 0.5, "growth": 1.1}, "theta": 0.5}, {}),
}
for _name in RECORDS.algorithms:  # one that has come since: its own example
    _declared = registry.ALGORITHMS[_name]
    _example = dict(examples(_declared)["guarded"][0])
    _over: dict[str, Any] = {} if _declared.pattern != "star" else {"network": None, "problem.data.nodes": 4}
    _label = f"{_name} of records" if len(_declared.sharing) > 1 else _name
    ALGORITHMS.setdefault(_label, ({"name": _name, "rounds": 20} | _example, _over))
NAMES = (*ALGORITHMS, "ladmm", "ladmm, input", "consensus-admm")


@functools.cache
def device_and_plan(name: str) -> tuple[Any, bytes]:
    """The device n0 or z1 of a plan, and the plan's bytes."""
    if name in ("ladmm", "ladmm, input"):
        made = zones(mode="input" if "input" in name else "objective")
        return made.device("z1"), encode_plan(made.plan)
    if name == "consensus-admm":
        made = zones(mode="input", name=name, rounds=20)
        return made.device("z1"), encode_plan(made.plan)
    section, over = ALGORITHMS[name]
    made = prepare(scenario_from(record_scenarios.scenario({"algorithm": section, "privacy.epsilon": 200.0} | over)))
    return made.device("n0"), encode_plan(made.plan)


def decoded(name: str) -> RunPlan:
    return decode_plan(device_and_plan(name)[1])


def raw_plan(name: str) -> dict[str, Any]:
    plan: dict[str, Any] = msgspec.json.decode(device_and_plan(name)[1])
    return plan


# --- Plans of masked sums over devices that need not exist ---

DELTA = 1e-5


def sum_of(nodes: int, corrupt: int, epsilon: float, **masking: object) -> RunPlan:
    """Of one masked mean over so many devices with 50 rows of 3 features each. masking: more of `privacy.masked`."""
    raw = {
        "hushgrid": 1, "name": "sum", "algorithm": {"name": "sum"},
        "problem": {"kind": "mean", "data": {"devices": {"features": 3, "rows": 50}, "nodes": nodes}},
        "privacy": {
            "mechanism": "gaussian", "accountant": "gdp", "epsilon": epsilon, "delta": DELTA,
            "adjacency": {"replace-one-record": {"clip": 1.0}}, "masked": {"corrupt": corrupt} | masking,
        },
    }  # fmt: skip
    scenario = scenario_from(raw, "s")
    return make_plan(scenario, scenario.kind.public(scenario, "s"))
