"""Units of privacy of loads, with their terms, and a zone's loads under each."""

from __future__ import annotations

import numpy as np

from hushgrid.node.privacy.terms import check_privacy, terms
from hushgrid.node.schema.sections import Adjacency, Change
from tests.support.devices.gated_device import Quadratic, plan

BETA, COS = 0.01, 0.8  # tan(phi) = 0.75
PLAIN = Adjacency(bounded_change=BETA)
PAIR = Adjacency(bounded_change=Change(pair=BETA, power_factor=COS))
RELATIVE = Adjacency(bounded_change=Change(relative=0.05, of="ab" * 32))
UNITS = {"plain": PLAIN, "pair": PAIR, "relative": RELATIVE}
CAPACITY = np.array([1.0, 0.2, 0.0, 3.0, 0.5, 0.5, 0.25, 0.0])  # p.u.: p of four buses, then q
MASK = np.array([1, 1, 1, 0, 1, 0, 1, 1], bool)


class Loads(Quadratic):
    """Loads d of four buses, some of which the public mask excludes, with contracts where the unit asks for them."""

    def __init__(self, d, adjacency=PLAIN, mask=MASK):
        super().__init__(np.where(mask, d, 0.0))
        change = adjacency.of_loads
        if change is not None and change.relative:
            self.unit = change.relative * CAPACITY
            mask = mask & (self.unit > 0)
        self.loaded = np.flatnonzero(mask)


def asked(adjacency, release="plain", mechanism="laplace", epsilon=1.0):
    """Terms of one answer."""
    over = {"mechanism": "gaussian", "delta": 1e-5} if mechanism == "gaussian" else {}
    made = plan(mode="input", adjacency=adjacency, release=release, epsilon=epsilon, **over)
    check_privacy(made.privacy, made.algorithm, False, "plan")
    return terms(made.privacy, made.algorithm)
