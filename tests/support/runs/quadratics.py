"""Members of a consensus whose steps are formulas."""

import numpy as np


class Quadratic:
    """f_p(z) = |z - c|^2 / 2 in free space: the step is a formula."""

    def __init__(self, c, weight):
        self.c, self.weight = c, weight

    def minimum(self, v, factor):
        rho = factor * self.weight
        self.z = (self.c + rho * v) / (1 + rho)
        self.value, self.totals, self.duals = float(np.sum((self.z - self.c) ** 2) / 2), np.zeros(0), np.zeros(0)
        return self

    def bound(self, lam):
        """min |z - c|^2/2 + <lam, z>, at z = c - lam."""
        return float(lam @ self.c - lam @ lam / 2)


class Gate:
    def __init__(self, c):
        self.c, self.answers = c, 0

    def data(self):
        self.answers += 1
        return self.c
