"""How far an AC optimal power flow at noisy loads keeps from the limits, so that the true loads do not pass them.

The noise of a load has the standard deviation sigma = sqrt(2) beta/epsilon (Laplace). Under the release `totals`
entries and totals have half the epsilon each, so there it is 2 sqrt(2) beta/epsilon, but errors of a zone's loads
cancel: their sum has the variance sigma^2 n/(n + 1) in place of sigma^2 n. With these:

    |V|         0.005 p.u., whatever the noise: voltages are held where there are generators, and follow where there are
    not rating      3 sigma, at most 5 % of it: the flow of a line that one load hangs on moves by that load's error
    p           2.5 standard deviations of the system's imbalance times the unit's share of the headroom, at a dispatch
                without margins. The imbalance is taken up by headroom, so no unit passes its limits as long as all of
                them together have so much; a unit at a limit takes up nothing and need not be moved away from it
    q           4.5 sigma, at most 10 % of the unit's range: a bus's reactive load, the losses around it and its
                neighbours' loads are all for the unit that holds the voltage there

They are soft, at a hundredth of the value of lost load: hard ones leave small cases without a dispatch. Everything is
public: case, beta, epsilon, and how many loads carry noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Literal

import numpy as np

from hushgrid.grid_cases.ac.network import flat
from hushgrid.grid_cases.ac.power_flow import AMPLE, headroom
from hushgrid.grid_cases.ac.program import Margins
from hushgrid.grid_cases.case import Case, Floats

Release = Literal["plain", "totals"]

OF_V = 0.005  #: p.u.
OF_RATING, MOST_OF_RATING = 3.0, 0.05  #: sigma; of the rating
OF_P = 2.5  #: standard deviations of the imbalance
OF_Q, MOST_OF_Q = 4.5, 0.1  #: sigma; of the range


def sigma_of_load(beta: float, epsilon: float, release: Release = "plain") -> float:
    """Standard deviation of the noise of one load, p.u.; beta in p.u."""
    return sqrt(2) * beta / epsilon * (2.0 if release == "totals" else 1.0)


def sigma_of_imbalance(beta: float, epsilon: float, n: Sequence[int], release: Release = "plain") -> float:
    """Standard deviation of the error of the sum of all loads, p.u.; n: noisy loads of each zone."""
    loads = sum(k / (k + 1) if release == "totals" else k for k in n)
    return sigma_of_load(beta, epsilon, release) * sqrt(loads)


def margins(
    case: Case, beta: float, epsilon: float, n: Sequence[int], release: Release = "plain", *, p_g: Floats | None = None
) -> Margins:
    """The margins of a release of noisy loads: beta in p.u., n active loads that carry noise in each zone.

    p_g: (generators,) about where the units will run, p.u., of the relaxation for one; None: in the middle of their
    ranges. The price is that of `Margins`, a hundredth of the default value of lost load.
    """
    g, sigma, rate = case.generators, sigma_of_load(beta, epsilon, release), case.lines.rate
    room = headroom(case, flat(case).p_g if p_g is None else p_g)
    share = room / max(float(room.sum()), 1e-12)
    rating = np.divide(OF_RATING * sigma, rate, out=np.zeros(len(rate)), where=rate > 0)
    return Margins(
        v=OF_V,
        rating=np.minimum(rating, MOST_OF_RATING),
        p=OF_P * sigma_of_imbalance(beta, epsilon, n, release) * share,
        q=np.minimum(OF_Q * sigma, MOST_OF_Q * np.minimum(g.q_max - g.q_min, AMPLE)),
    )
