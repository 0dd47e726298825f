"""Of the small fleets of the simulation those that live over a real broker too."""

from hushgrid.lab.simulate import patterns
from hushgrid.lab.simulate.patterns import made as made

SCENARIOS = {kind: patterns.SCENARIOS[kind] for kind in ("star", "token", "neighbours", "zones")}
