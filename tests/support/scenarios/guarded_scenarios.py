"""Small guarded scenarios of every registered algorithm, by mechanism, question and mode, and the other data to compare
with.
"""

from hushgrid.kernels.algorithms.registry import ALGORITHMS, of_patterns
from hushgrid.kernels.problems.statistics import STATISTICS
from hushgrid.lab.examples import examples
from tests.support.runs import background_run
from tests.support.runs.background_run import LOADS, ROWS
from tests.support.scenarios import neighbour_scenarios, record_scenarios
from tests.support.scenarios.record_scenarios import GAUSSIAN

SMALL = {"problem.data": {"synthetic": {"rows": 5, "features": 2}, "normalize": "unit-rows"}}
CHANGE = {"privacy.adjacency": {"bounded-change": 0.1}}


def zones(**over):
    small = {"problem.case": "case5", "problem.zones": 2, "algorithm.rounds": 4}
    return background_run.scenario(small | {f"privacy.{key}": value for key, value in over.items()})


def exact_zones(**over):
    """At least cost, without the AC step at the end, which is a process of its own."""
    raw = zones(mode="input", **over)
    raw["problem"] = raw["problem"] | {"ac": "none"}
    raw["algorithm"] = {"name": "consensus-admm", "rounds": 6}
    return raw


def walk(name="recal", over=(), **more):
    algorithm = {"name": name, "rounds": 12} | dict(examples(ALGORITHMS[name])["guarded"][0])
    return record_scenarios.scenario(SMALL | {"algorithm": algorithm, "privacy.epsilon": 400.0} | dict(over), **more)


def rounds(name, over=(), **more):
    return neighbour_scenarios.scenario(name, 4, SMALL | dict(over), **more)


def around(name, over=(), **more):
    """Records around a coordinator."""
    algorithm = {"name": name, "rounds": 4} | dict(examples(ALGORITHMS[name])["guarded"][0])
    own = SMALL | {"algorithm": algorithm, "network": None, "privacy.epsilon": 80.0}
    own["problem.data"] = SMALL["problem.data"] | {"nodes": 4}
    return record_scenarios.scenario(own | dict(over), **more)


#: Statistics of the records, by the name of the kind.
EXAMPLES = {kind: dict(statistic.example) for kind, statistic in STATISTICS.items()} | {
    "total": {"nonnegative": True},
    "mean": {"columns": [0, 2]},
}


def sums(kind="histogram", over=(), **more):
    """A statistic of the records, added up around a coordinator."""
    problem = {"kind": kind, "data": SMALL["problem.data"] | {"nodes": 4}} | EXAMPLES[kind]
    own = {"problem": problem, "algorithm": {"name": "sum"}, "network": None}
    return record_scenarios.scenario(own | dict(over), **more)


PAIR = {"pair": 0.01, "power_factor": 0.95}
CASES = {
    "ladmm": zones(),
    "ladmm, gaussian": zones(mechanism="gaussian", delta=1e-5),
    "ladmm at gradient": zones(at="gradient"),
    "ladmm at gradient, gaussian": zones(at="gradient", mechanism="gaussian", delta=1e-5),
    "ladmm, mode input": zones(mode="input"),
    "ladmm, mode input, gaussian": zones(mode="input", mechanism="gaussian", delta=1e-5),
    "ladmm, mode input, pairs and totals": zones(mode="input", adjacency={"bounded-change": PAIR}, release="totals"),
    "ladmm of records": around("ladmm", {"problem.box": 0.5}),
    "ladmm of records, gaussian, softmax": around(
        "ladmm", GAUSSIAN | {"problem.kind": "softmax", "problem.classes": 3, "algorithm.local_updates": 2}
    ),
    "fedavg": around("fedavg"),
    "fedprox": around("fedprox", GAUSSIAN | {"algorithm.local_updates": 2}),
    "sum": sums(),
    "sum, gaussian, gram": sums("gram", GAUSSIAN),
    "sum, masked": sums("total", GAUSSIAN | {"privacy.masked": {"corrupt": 1}}),
    "fedavg, masked": around("fedavg", GAUSSIAN | {"privacy.masked": {"corrupt": 1}}),
    "consensus-admm": exact_zones(),
    "consensus-admm, gaussian": exact_zones(mechanism="gaussian", delta=1e-5),
    "recal, bounded change": walk(over=CHANGE | GAUSSIAN),
    "recal, least squares": walk(over={"problem.kind": "least-squares"}),
    "recal, softmax": walk(over={"problem.kind": "softmax", "problem.classes": 3}),
    **{name: walk(name) for name in of_patterns(("token",))},
    "iadmm": walk("iadmm", GAUSSIAN),
    "iadmm, exact": walk("iadmm", {"algorithm.update": "exact"}),
    **{name: rounds(name) for name in neighbour_scenarios.ALGORITHMS},
    "dgd, bounded change, least squares": rounds("dgd", CHANGE | {"problem.kind": "least-squares"}),
    "dgd, uneven": rounds("dgd", GAUSSIAN | {"privacy.schedule": {"growth": 1.5}}),
    "dpadmm, dual": rounds("dpadmm", {"algorithm.perturb": "dual"}),
}


def others(raw):
    return LOADS if raw["problem"]["kind"] == "zones" else ROWS


def of_a_day():
    """A day of four hours on case5 that hides a house's whole day."""
    problem = {"kind": "zones", "case": "case5", "zones": [[1, 2, 5], [3, 4]], "objective": "cost", "ac": "none"}
    return {
        "hushgrid": 1,
        "name": "day",
        "seed": 1,
        "problem": problem | {"horizon": {"periods": 4, "hours": 1}},
        "algorithm": {"name": "consensus-admm", "rounds": 9},
        "privacy": {
            "mode": "input",
            "adjacency": {"day": {"energy_mwh": 0.02, "power_factor": 0.97}},
            "epsilon": 1.0,
        },
    }
