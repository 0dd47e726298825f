"""Small scenarios of every algorithm among neighbours, guarded, on a ring of four."""

import msgspec

from hushgrid.kernels.algorithms import registry
from hushgrid.lab.examples import examples
from tests.support.scenarios import record_scenarios

ROUNDS = 7


def _declared(name):
    """The keys of an algorithm's first guarded example, and the names of its trajectory."""
    kind = registry.ALGORITHMS[name]
    keys = dict(examples(kind)["guarded"][0])
    section = msgspec.convert({"name": name, "rounds": ROUNDS} | keys, kind)
    return keys, [*section.recorded_messages, *section.recorded]


ALGORITHMS = {name: _declared(name) for name in registry.of_patterns(("neighbours",))}


def scenario(name, rounds=ROUNDS, over=(), **more):
    """Guarded, on a ring of four. The price of a minimiser has a part that no noise pays, so 300 answers cost 6000."""
    algorithm = {"name": name, "rounds": rounds} | ALGORITHMS[name][0]
    return record_scenarios.scenario({"algorithm": algorithm, "privacy.epsilon": 20.0 * rounds} | dict(over), **more)
