"""The privacy gate: all of a node's private data are behind it, and it alone knows what has been answered.

An algorithm asks, the gate answers with noise and notes one `Spend`; everything after the gate is post-processing. If
an answer would pass the node's budget, its owner's consent or the plan's cap, the gate refuses before it draws. Once an
answer is drawn it is paid, whatever becomes of it. All noise comes from the node's `NoiseSource`. This module has what
all gates have in common. What a gate answers depends on its data: `node/problems/power_flow/gate.py` holds the loads of
a zone, `node/problems/records/gate.py` rows of records.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.shares import Share
from hushgrid.kernels.types import Index, Vector
from hushgrid.node.privacy.ledger_rows import Spend
from hushgrid.node.privacy.noise_journal import Noise, NoiseJournal
from hushgrid.node.privacy.noise_source import NoiseSource
from hushgrid.node.privacy.terms import Terms

POOL = 32  #: the most answers for which noise is drawn ahead
NUMBERS = 1 << 18  #: that are drawn ahead at most, but for one answer


class Exhausted(Refused):
    """The gate refuses before it draws: the answer would pass its cap or its owner's budget, by public numbers."""


class Expiry(NamedTuple):
    """Until when each reading behind a gate counts (docs/gate.md, windows)."""

    until: NDArray[np.float64]  #: (k,) s of running time
    now: Callable[[], float]  #: the running time, s

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(k,) whether each counts now. It takes the same time whatever has expired."""
        flags: NDArray[np.bool_] = self.until >= self.now()
        return flags


class Answer(NamedTuple):
    """An answer that was released, as a simulation takes it down for the verdict on its run's result."""

    no: int  #: of the run, from 1
    x: Vector  #: (d,) where it was asked; of a private minimiser, what was released
    gradient: Vector  #: (d,) what it says the gradient is there
    scale: float  #: of its noise: a standard deviation, or Laplace's b; 0: none
    slack: float  #: what it may be off besides, in L2
    drift: float = 0.0  #: scale of the noise in x itself
    curvature: float = 0.0  #: that noise is in the gradient too, times this


class Authority(Protocol):
    """What decides whether a gate may answer."""

    @property
    def honest(self) -> int | None:
        """How many honest contributors of a masked sum are believed in at most; None: as many as the plan relies on."""
        ...

    def authorise(self, spends: list[Spend]) -> None:
        """Raises Refused if these spends, which are not committed yet, would pass what is allowed."""

    def committed(self, spends: list[Spend]) -> None:
        """These spends are in the ledger now."""


@dataclass
class GateState:
    """What a gate remembers of its run; the driver stores it with each step. d: a zone's loads, p.u."""

    answers: int = 0  #: answers given in this run
    drawn: int = 0  #: draws of a paper's noise with a scale of its own (published)
    total: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: sum of the noisy copies of d (mode objective)
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0))  #: the one noisy copy of d (mode input)


class Gate:
    """The gate of one run. `lattice`: the grid and scale of its noise (None: no noise at the gate).

    `width`: the number of an answer's entries that carry noise. `spends` and `repeat` are what the driver commits with
    the step.
    """

    def __init__(
        self,
        node: str,
        terms: Terms | None,
        noise: NoiseSource,
        authority: Authority,
        lattice: Lattice | None,
        width: int,
    ) -> None:
        self.node, self.terms, self.noise, self.authority = node, terms, noise, authority
        self.lattice, self.width = lattice, width
        self.state = GateState()
        self.spends: list[Spend] = []
        self.repeat: list[tuple[bytes, bytes]] = []
        self.journal: NoiseJournal | None = None  #: a real device's note of what is drawn; a simulation needs none
        self.run = b""
        self.version: int | None = None  #: of the data behind it [the ledger's of now]
        self.expiry: Expiry | None = None  #: of the readings behind it; None: they count for ever
        #: which of them count in the answer that is being made; None: all
        self.counted: NDArray[np.bool_] | None = None
        #: a simulation's, read and emptied after each commit; None: not wanted
        self.released: list[Answer] | None = None
        self.drawn_l1 = 0.0  #: sum of |noise| since the last reading, for reports of simulations; never sent or stored

    # --- what the driver asks ---

    def knows(self) -> bool:
        """Whether every answer of the run will be a repeat of one that was given before."""
        return False

    def refill(self) -> None:
        """Draws noise for the next answers. Called after the last publish."""
        if self.lattice is None:
            return
        most = max(1, min(POOL, NUMBERS // max(self.width, 1)))
        count = min(most, self._terms().answers - self.state.answers)
        if self.alike:
            self.noise.refill(self.lattice, self.width, count)
            return
        ahead = range(self.state.answers + 1, self.state.answers + count + 1)
        for lattice, answers in Counter(map(self.lattice_at, ahead)).items():
            self.noise.refill(lattice, self.width, answers)

    def committed(self) -> None:
        """The spends and repeats of the last step are in the ledger now."""
        self.authority.committed(self.spends)
        self.spends, self.repeat = [], []

    def restore(self, state: GateState) -> None:
        """Sets the stored state, in a gate that has answered nothing yet."""
        self.state = state

    # --- inside ---

    @property
    def alike(self) -> bool:
        """Whether the noise of all answers has one grid and scale."""
        return True

    def lattice_at(self, answer: int) -> Lattice:
        """The grid and scale of an answer's noise."""
        if self.lattice is None:
            raise Refused(f"{self.node}: a guarded answer was asked for in a published run")
        return self.lattice

    def _terms(self) -> Terms:
        if self.terms is None:
            raise Refused(f"{self.node}: a noisy answer was asked for in a run without privacy")
        return self.terms

    def _noise_lattice(self) -> Lattice:
        return self.lattice_at(self.state.answers + 1)

    def _spend(self, spend: Spend) -> None:
        cap = self.terms.answers if self.terms else None
        if cap is not None and self.state.answers >= cap:
            raise Exhausted(
                f"{self.node}: {self.state.answers} answers given, one more asked, the plan's cap is {cap}", "cap"
            )
        try:
            self.authority.authorise([*self.spends, spend])
        except Refused as error:
            raise Exhausted(str(error), error.refused_by) from None
        self.spends.append(spend)
        self.state.answers += 1

    def _nonprivate(self) -> None:
        """Notes one answer without noise: infinite epsilon, under every adjacency. Raises Refused in a private run."""
        if self.terms is not None:
            raise Refused(f"{self.node}: an exact answer was asked for in a private run")
        self._spend(Spend(self.state.answers + 1, "nonprivate", inf, inf, 0.0, 0.0, "", "none"))

    def _release(self, question: bytes | memoryview, compute: Callable[[], Vector], unit: float = 1.0) -> Vector:
        """One answer, shape (width,): what `compute` makes of the data, rounded to the grid, plus exact noise.

        The answer is paid before the data are touched. `question`: everything besides the data on which the answer
        depends. `unit`: what the grid and the noise are counted in, a public number; `compute` counts in it too. Raises
        Exhausted if the cap or the budget would be passed.
        """
        t, lattice = self._terms(), self._noise_lattice()
        spent, k = lattice.epsilon if t.mechanism == "laplace" else lattice.mu, self.state.answers + 1
        quantum = (lattice.sensitivity * unit, lattice.scale * unit, lattice.g * unit)
        spend = Spend(k, t.mechanism, spent, *quantum, t.adjacency, self.noise.sampler)
        (n,) = self._draw(spend, question, lambda: (self.noise.take(lattice, self.width, k),))
        self._sum_up(n, lattice.g * unit)
        return lattice.release(compute(), n) * unit

    def _masked_share(self, share: Share | None, question: bytes, compute: Callable[[], Index]) -> Index:
        """What `compute` makes of the data, in grid steps, plus this node's share of a masked sum's noise: one answer.

        It is worth what a sum of h shares is, so it must leave the device masked. Paid, and refused, as by `_release`.
        """
        t, lattice = self._terms(), self._noise_lattice()
        if share is None:
            raise Refused(f"{self.node}: a share was asked for in a run that masks nothing")
        k, quantum = self.state.answers + 1, (lattice.sensitivity, lattice.scale, lattice.g)
        spend = Spend(k, t.mechanism, share.mu, *quantum, t.adjacency, self.noise.sampler, share.honest)
        (n,) = self._draw(spend, question, lambda: (self.noise.take(lattice, self.width, k),))
        self._sum_up(n, lattice.g)
        return compute() + n

    def _sum_up(self, n: Index, g: float) -> None:
        if self.journal is None:  # a real device reports no noise
            self.drawn_l1 += self._size(n, g)

    def _size(self, n: Index, g: float) -> float:
        """Sum of |noise| of one answer, in the unit of what it answers."""
        return float(np.add.reduce(np.abs(n))) * g

    def _draw(self, spend: Spend, question: bytes | memoryview, draw: Callable[[], Noise]) -> Noise:
        """The noise of one answer to `question`, which is paid here.

        If a process that died has drawn and paid an answer to this question, its noise is used again: unless a reading
        has expired since, for the same noise on other data would tell both. Which readings count is settled once the
        budget has been asked, so that none counts in an answer that was authorised after its time.
        """
        if self.journal is None:
            self._spend(spend)
            self._settle()
            return draw()
        subject = f"{spend!r} of data version {self.version}".encode()
        self._settle()
        if (noise := self.journal.kept(self._digest(subject, question))) is not None:
            self.state.answers += 1
            return noise
        self._spend(spend)
        self._settle()
        return self.journal.draw(self.run, spend, self._digest(subject, question), draw, self.version)

    def _settle(self) -> None:
        self.counted = None if self.expiry is None else self.expiry.counted

    def _digest(self, subject: bytes, question: bytes | memoryview) -> bytes:
        """The digest of what is asked, and of which readings."""
        readings = b"" if self.counted is None else b" of the readings " + np.packbits(self.counted).tobytes() + b" "
        digest = hashlib.sha256(b"".join((self.run, subject, readings)))
        digest.update(question)
        return digest.digest()

    def _paper_noise(self, scale: float, size: int) -> Vector:
        """The current answer's noise as a paper draws it, (size,): Laplace or Gaussian, in floating point."""
        xi = self.noise.of_paper(self._terms().mechanism, scale, size, self.state.answers)
        self.drawn_l1 += float(np.sum(np.abs(xi)))
        return xi
