"""A customer's whole day as the unit of privacy: loads, terms, and what a day may move."""

from __future__ import annotations

import math

import numpy as np

from hushgrid.node.privacy.terms import check_privacy, terms
from hushgrid.node.schema.sections import Adjacency, Day
from tests.support.devices.gated_device import plan

E, COS, BASE = 0.02, 0.97, 100.0
TAN = math.tan(math.acos(COS))
DAY = Adjacency(day=Day(energy_mwh=E, power_factor=COS))


class Loads:
    """Two buses over T periods of h hours."""

    def __init__(self, T, d=None, hours=1.0):
        self.periods, self.size = T, 4 * T
        self.loaded = np.arange(self.size)
        self.unit = np.full(self.size, 1 / (hours * BASE))
        self.data = np.zeros(self.size) if d is None else d
        self.row_l1 = self.row_l2 = 1.0
        self.row_nnz, self.columns = 1, self.size


def asked(release="plain", mechanism="laplace", adjacency=DAY):
    over = {"mechanism": "gaussian", "delta": 1e-5} if mechanism == "gaussian" else {}
    made = plan(mode="input", adjacency=adjacency, release=release, epsilon=1.0, **over)
    check_privacy(made.privacy, made.algorithm, False, "plan")
    return terms(made.privacy, made.algorithm)


def shapes(T, hours=1.0):
    """Twelve days of a customer at the first bus, p.u. (T 4,): the most that each may move."""
    rng = np.random.default_rng(4)
    profiles = [np.ones(T), np.eye(T)[0], np.eye(T)[T - 1], (-1.0) ** np.arange(T), np.arange(1.0, T + 1)]
    profiles += [np.where(np.arange(T) % 3 == k, 1.0, 0.0) for k in range(3 if T > 2 else 0)]
    profiles += [rng.normal(size=T) for _ in range(12 - len(profiles))]
    for k, profile in enumerate(profiles):
        dp = E / hours / BASE * profile / np.abs(profile).sum()
        change = np.zeros((T, 2, 2))
        change[:, 0, 0] = dp
        change[:, 1, 0] = TAN * dp * (-1) ** k
        yield change.ravel()
