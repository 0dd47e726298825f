"""W. Yin, X. Mao, K. Yuan, Y. Gu, A. H. Sayed, A communication-efficient random-walk algorithm for decentralized
optimization: W-ADMM (reference [17] of the I-ADMM paper), the updates of I-ADMM on a random walk.

Problem: min_x sum_i f_i(x). Written from its description in the I-ADMM paper, Section II: (4a), (4b), (5), the next
agent drawn among the neighbours with P_ij = 1/deg(i). Its beta is rho here.
"""

from __future__ import annotations

from typing import ClassVar

from hushgrid.kernels.algorithms import iadmm
from hushgrid.kernels.algorithms.base import Way
from hushgrid.kernels.algorithms.iadmm import Agent as Agent


class Params(iadmm.Params, tag_field="name", tag="wadmm", frozen=True, kw_only=True):
    """The scenario's `algorithm` section: I-ADMM's keys, another default of the walk."""

    title: ClassVar[str] = "walkman ADMM"
    paper: ClassVar[str] = (
        "W. Yin, X. Mao, K. Yuan, Y. Gu, A. H. Sayed, A communication-efficient random-walk algorithm for "
        "decentralized optimization"
    )

    walk: Way = "random"  #: at random (metropolis: evenly), around a cycle, or the active node of each activation
