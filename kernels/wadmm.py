"""W. Yin, X. Mao, K. Yuan, Y. Gu, A. H. Sayed, A communication-efficient random-walk algorithm for decentralized
optimization: W-ADMM (reference [17] of the I-ADMM paper), the updates of I-ADMM on a random walk.

Problem: min_x sum_i f_i(x). Written from its description in the I-ADMM paper, Section II: (4a), (4b), (5), the next agent
drawn among the neighbours with P_ij = 1/deg(i). Its beta is rho here.
"""

from __future__ import annotations

from typing import ClassVar

from hushgrid.kernels import iadmm
from hushgrid.kernels.iadmm import Agent as Agent
from hushgrid.kernels.recal import Walk


class Params(iadmm.Params, tag_field="name", tag="wadmm", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The scenario's `algorithm` section: I-ADMM's keys, another default of the walk."""

    name: ClassVar[str] = "wadmm"
    walk: Walk = "random"
