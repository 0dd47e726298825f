"""T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, Federated optimization in heterogeneous networks
(MLSys 2020), Algorithm 2: FedProx.

Problem and rounds are those of federated averaging. The local problem is h_p(x; w^t) = f_p(x) + mu/2 |x - w^t|^2, so
that models of unlike data stay together; it is solved inexactly, by E gradient steps. With mu = 0 it is federated
averaging, whose departures it shares; one local step is the same in both, and the coordinator's step too.
"""

from __future__ import annotations

from typing import ClassVar

from hushgrid.kernels.algorithms import fedavg
from hushgrid.kernels.ranges import Penalty


class Params(fedavg.Params, tag_field="name", tag="fedprox", frozen=True, kw_only=True):
    """The scenario's `algorithm` section: that of federated averaging, and mu."""

    title: ClassVar[str] = "federated averaging with a proximal term"
    paper: ClassVar[str] = (
        "T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, Federated optimization in heterogeneous "
        "networks, Algorithm 2"
    )

    mu: Penalty = 1.0  #: of mu/2 |x - w^t|^2 in the local problem

    @property
    def pull(self) -> float:
        return self.mu
