"""Every registered algorithm, by the examples that it declares, as small seeded scenarios of the kind of problem it solves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from hushgrid.broker.simulation.problems.base import Setup
from hushgrid.broker.simulation.setup import prepare
from hushgrid.kernels.algorithms.base import Algorithm, Keys, Variant
from hushgrid.kernels.algorithms.registry import ALGORITHMS, variants
from hushgrid.lab.examples import examples as short_examples
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.registry import KINDS
from tests.support.runs import background_run
from tests.support.scenarios import record_scenarios
from tests.support.scenarios.guarded_scenarios import sums

Raw = dict[str, Any]
ROUNDS = {"star": 4, "token": 12, "neighbours": 6}  #: three a node where a token walks around the ring
#: Of three features: no gradient of a row within 1 is longer than sqrt(3) in L1, so that nothing is clipped.
UNCLIPPED = {"privacy.adjacency": {"replace-one-record": {"clip": 2.0}}}
#: A small guarded scenario of each kind of problem, and how near two runs of it come that differ in rounding alone: a solver
#: of convex programs stops at its own tolerance.
SMALL: dict[str, tuple[Raw, float]] = {
    "data": (record_scenarios.scenario(UNCLIPPED), 1e-9),
    "statistics": (sums(), 1e-9),
    "zones": (background_run.scenario({"problem.case": "case5", "problem.zones": 2}), 1e-5),
}


class Example(NamedTuple):
    """One example that an algorithm declares."""

    kind: Kind
    declared: type[Algorithm]
    name: str
    variant: Variant
    keys: Keys

    @property
    def tolerance(self) -> float:
        """How near two runs come that differ in rounding alone, relative to the largest number."""
        return SMALL[self.kind.name][1]

    def scenario(self, over: Mapping[str, Any] | None = None, **more: Any) -> Raw:
        """As a scenario. `over`: dotted key paths to values."""
        small = SMALL[self.kind.name][0]
        rounds = ROUNDS[self.declared.pattern]
        raw: Raw = small | {"seed": 3, "run": {"record": "trajectory"}}
        raw["algorithm"] = {"name": self.name, "variant": self.variant, "rounds": rounds} | dict(self.keys)
        private = small["privacy"] | {"epsilon": 20.0 * rounds}
        if "objective" not in self.declared.modes:
            private |= {"mode": self.declared.modes[0]}
        published = self.declared.published if self.variant == "published" else None
        if published and "laplace" not in published.mechanisms:
            private |= {"mechanism": "gaussian", "delta": 1e-5}
        if self.declared.modes == ("input",):  # the AC step at the end is a process of its own
            raw["problem"] = raw["problem"] | {"ac": "none"}
        network = small.get("network")
        if network is not None and self.declared.pattern == "star":
            raw["problem"] = raw["problem"] | {"data": raw["problem"]["data"] | {"nodes": network["nodes"]}}
            network = None
        unclaimed = self.variant == "none" or (published is not None and published.source == "scales")
        return record_scenarios.scenario(
            {**raw, "network": network, "privacy": None if unclaimed else private} | dict(over or {}),
            **more,
        )

    def setup(self, over: Mapping[str, Any] | None = None) -> Setup:
        return prepare(scenario_from(self.scenario(over)))


def without_noise(algorithm: Algorithm) -> Algorithm:
    """The same updates with exact answers: a guarded run whose noise is zero."""
    pinned: dict[str, Any] = {}  # keys whose default depends on the variant
    if "update" in algorithm.__struct_fields__:
        pinned["update"] = "exact" if algorithm.exact else "first-order"
    if "penalties" in algorithm.__struct_fields__:
        pinned["penalties"] = "edge" if algorithm.of_edges else "node"
    return replace(algorithm, variant="none", **pinned)


def examples(of: Iterable[Variant] = ("guarded", "published", "none")) -> dict[str, Example]:
    """By a name that a test's parameter can have."""
    found = {}
    for kind in KINDS.values():
        for name in kind.algorithms:
            declared = ALGORITHMS[name]
            known = short_examples(declared)
            for variant in variants(declared):
                for k, keys in enumerate(known[variant] if variant in tuple(of) else ()):
                    on = f", {kind.name}" if len(declared.sharing) > 1 else ""
                    label = f"{name} {variant}{f' {k + 1}' if k else ''}{on}"
                    found[label] = Example(kind, declared, name, variant, keys)
    return found
