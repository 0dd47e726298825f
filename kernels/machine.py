"""One algorithm = one pure state machine per role: what an algorithm promises whoever runs it.

The same machine object runs in the simulator, in the daemon and in the tests, and never knows which. Data and
randomness come in through the gate it is given; it reads no clock, no socket and no global random state. Its whole
memory is `state`, one dataclass of arrays and scalars, which the driver saves and restores without code per algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from hushgrid.kernels.types import Vector

#: No entry of an iterate is larger: what is, or is not finite, has diverged, and is neither sent nor taken. Public, and
#: so far out that sums and products of such numbers with any plan's stay finite.
LARGEST = 2.0**40


class Malformed(Exception):
    """A message a machine refuses before it touches its state: of a foreign sender, type or dimension."""


ALL = ""  #: a destination: every neighbour, one broadcast


class Send(NamedTuple):
    """One message: to whom, its sequence number on that edge, and its body (a tagged struct of the paper's file)."""

    dst: str
    seq: int
    body: Any


class Step(NamedTuple):
    """What a machine wants done. The driver commits gate spends, state and sends in ONE transaction, then publishes."""

    send: tuple[Send, ...] = ()
    done: str | None = None  #: why the run is over for this machine, or None while it goes on
    taken: bool = False  #: the message was new and is now part of the state; False: a repetition, or not its turn
    more: bool = False  #: another step can be made at once, by `proceed`: each is committed by itself


NOTHING = Step()


class Machine(Protocol):
    """A role of an algorithm. Duplicates, gaps and reordering happen; every method is idempotent under them."""

    state: Any

    @property
    def started(self) -> bool:
        """Whether the run is known to have begun: what was said before needs no repetition."""
        ...

    @property
    def complete(self) -> bool:
        """Whether this role has done all that the run can ask of it, so that a coordinator may call the run done."""
        ...

    def start(self) -> Step:
        """The first step; called once, when every member has joined."""
        ...

    def receive(self, sender: str, seq: int, body: Any) -> Step:
        """A message has arrived. An old one is answered with the same bytes again, or with nothing."""
        ...

    def tick(self) -> Step:
        """Some time has passed: the messages whose receipt is not proven yet, the same bytes again."""
        ...


class Keeping(Machine, Protocol):
    """A machine of a device: it declares what the device keeps of a run that is done, and whose broadcasts it hears."""

    @property
    def hears(self) -> Sequence[str]:
        """Nodes whose broadcasts it needs."""
        ...

    def outcome(self) -> dict[str, Vector]:
        """Vectors by name, a function of the state alone."""
        ...


class Proceeding(Machine, Protocol):
    """A machine that may say `more`."""

    def proceed(self) -> Step:
        """The next step, which needs nothing more from anybody."""
        ...
