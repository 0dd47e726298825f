"""The public range of every number that a plan may carry, declared once and read by the structs that carry it.

A plan is written by the coordinator, and the coordinator may be the adversary: with a number large or small enough a
step overflows, or a solver fails, for some data and not for others. So each number has a range. It is wider than every
honest use, and narrow enough that one step from iterates of at most 2^40 (`machine.LARGEST`) stays below 1e100: the
largest product is a penalty (1e9) times a growth of iterates (1e13) times a gradient (scale 1e6, row_bound^2 1e12,
iterate 1e13). Work and memory are bounded by the counts. What is out of range is refused when a plan is read, before
any answer.
"""

from __future__ import annotations

from sys import float_info
from typing import Annotated

from msgspec import Meta

MOST = 10_000_000  #: of whatever is counted
NODES = 10_000
EDGES = 1 << 18
ENTRIES = 1 << 22  #: of x, d = features x classes
BUSES = 100_000  #: of a case
MOST_MASKED = 500  #: nodes of a masked run, or of a site: each is introduced to all


#: How far beyond its public bound of stability (`Params.step_ratio`) a guarded run may step. The bound holds for the
#: worst rows; real rows' curvature is far below row_bound^2 and a mixing matrix seldom meets Gershgorin. Noise-free on
#: the Adult rows (8 sensors, 123 features, optimum |x*| = 8.1; |x| and relative error at a ratio of 10, 30, 100, 300):
#:   NIDS 15 .91, 86 10, 397 49, 5e31; EXTRA 8.1 .006, 14 .79, 35 3.5, 64 7.5; DGD 8.1 .007, 15 .92, 50 5.5, 64 7.5;
#:   DiaDSP 6.8 .23, 7.9 .05, 18 1.3, 50 5.3; first-order I-ADMM 39 4.2, 132 16, 389 48, 1e17.
#: So 30 may be useful, 100 is worse than the zero vector for each of them, and what lies beyond diverges.
FAR = 100.0
#: The same where the bound is not one of curvature, so that no data are kinder: M-ADMM's theta, PPDC's gamma and omega.
#: On Adult both converge at 3 (relative error .007, .003) and pass 1e38 at 10.
FAR_DUAL = 5.0

Count = Annotated[int, Meta(ge=1, le=MOST)]
Node = Annotated[int, Meta(ge=0, lt=NODES)]  #: n<i>
Features = Annotated[int, Meta(ge=1, le=ENTRIES)]
Classes = Annotated[int, Meta(ge=1, le=10_000)]
Bus = Annotated[int, Meta(ge=0, le=1_000_000_000)]  #: a bus number
RowCount = Annotated[int, Meta(ge=1, le=1_000_000_000)]
#: Local updates: a projection onto a zone of a hundred buses takes up to 15 ms, and one message's work less than a
#: second.
Updates = Annotated[int, Meta(ge=1, le=50)]
Gossip = Annotated[int, Meta(ge=1, le=1000)]  #: rounds of averaging: few, for differences shrink by a factor in each
Seed = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

Step = Annotated[float, Meta(ge=1e-9, le=1e9)]  #: a step size, a penalty, a mixing weight
Momentum = Annotated[float, Meta(ge=0, le=0.999)]  #: weight of the past: in a running mean, or in a step
Penalty = Annotated[float, Meta(ge=0, le=1e9)]  #: one that may be absent
Growth = Annotated[float, Meta(ge=1, le=1e3)]
Magnitude = Annotated[float, Meta(ge=1e-12, le=1e6)]  #: scale, clip, bounded change, box, omega, a row's norm
PowerFactor = Annotated[float, Meta(ge=0.1, le=1)]  #: cos(phi) of a customer
Share = Annotated[float, Meta(ge=1e-4, le=100)]  #: of a contracted capacity
Weight = Annotated[float, Meta(ge=0, le=1e6)]  #: of a regulariser: l1, l2, lambda
Noise = Annotated[float, Meta(ge=1e-9, le=1e9)]  #: a paper's own scale or standard deviation
Number = Annotated[float, Meta(ge=-1e9, le=1e9)]  #: of a start point
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Lipschitz = Annotated[float, Meta(ge=0, le=1e19)]  #: at least scale row_bound^2 + l2 + 2 lambda omega in their ranges
Epsilon = Annotated[float, Meta(ge=1e-9, le=1e9)]
Delta = Annotated[float, Meta(ge=1e-30, le=0.5)]

Tolerance = Annotated[float, Meta(ge=1e-30, le=1e30)]  #: of a stopping rule: compared, never computed with
Positive = Annotated[float, Meta(gt=0, le=float_info.max)]  #: of what exists in simulation only
#: Of a coordinator: no device computes with it.
Seconds = Annotated[float, Meta(gt=0, le=float_info.max, extra_json_schema={"unit": "s"})]
Keepalive = Annotated[int, Meta(ge=5, le=3600, extra_json_schema={"unit": "s"})]  #: of a connection

Case = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,64}\Z")]  #: the name of a case's file
Title = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]  #: of a scenario
Name = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}\Z")]  #: of a node or a fleet
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{0,128}\Z")]
